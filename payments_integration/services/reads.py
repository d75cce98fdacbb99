"""Read without changing anything: one object, payment methods, balances (spec, "Endpoints")."""

from __future__ import annotations

from typing import TypeVar, overload

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration import conf, projection, schemas, sync, wakeup
from payments_integration.db.transactions import refuse_transaction
from payments_integration.enums import COUNTRIES, CURRENCIES, ID_PREFIXES, kind_of
from payments_integration.models import MIRRORS, Balance, Mirror
from payments_integration.sync import get_client
from payments_integration.validation.validator import Validator, is_object_id

MirrorT = TypeVar("MirrorT", bound=Mirror)


@overload
def refresh(obj: MirrorT, *, account: str | None = None) -> MirrorT: ...
@overload
def refresh(obj: str, *, account: str | None = None) -> Mirror: ...
def refresh(obj: Mirror | str, *, account: str | None = None) -> Mirror:
    """Read one object from the provider and bring its row up to date (spec, "Endpoints").

    Balances and webhook endpoints have no GET of their own, so all of the account's are read.

    Args:
        obj: An instance or its id.
        account: The alias for an id that the mirror does not know.

    Returns:
        The same instance, up to date; for an id its row.

    Raises:
        NotFound: The provider does not know it. The row is kept and marked as gone.
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("refresh")
    if isinstance(obj, Mirror):
        if account is not None and account != obj.account:
            raise ValidationError({"account": _("This object belongs to another account.")})
        row: Mirror = sync.read(obj.kind, obj.account, obj.object_id)
        if projection.leaves_work(row, obj):
            wakeup.wake(obj.account)
        if row.pk != obj.pk:
            return row
        obj.refresh_from_db()
        return obj
    kind = kind_of(obj) if isinstance(obj, str) else None
    if kind is None or not is_object_id(obj, ID_PREFIXES[kind]):
        raise ValidationError({"obj": _("This must be a mirrored object or its id.")})
    object_id = str(obj)  # a middleware's lazy text, for example
    known: Mirror | None = MIRRORS[kind]._default_manager.filter(pk=object_id).first()
    if known is not None:
        return refresh(known, account=account)
    alias = conf.account(account or conf.DEFAULT_ACCOUNT).alias
    new: Mirror = sync.read(kind, alias, object_id)
    if projection.leaves_work(new):
        wakeup.wake(alias)
    return new


def list_payment_methods(
    *,
    country: str | None = None,
    currency: str | None = None,
    amount: int | None = None,
    account: str = conf.DEFAULT_ACCOUNT,
) -> list[schemas.PaymentMethod]:
    """Read the payment methods (GET /payment-methods); nothing is stored.

    Args:
        country: The ISO code of a country; by default all.
        currency: An ISO code; by default all.
        amount: Only methods for this amount, in minor units.
        account: An alias of ``ACCOUNTS``.

    Returns:
        Each has its ``code`` and, in ``extra``, everything else that the provider shows.

    Raises:
        ValidationError: An argument is wrong.
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("list_payment_methods")
    validator = Validator()
    country = validator.choice("country", country, COUNTRIES, required=False) or None
    currency = validator.choice("currency", currency, CURRENCIES, required=False) or None
    if amount is not None:
        validator.amount("amount", amount, currency)
    validator.finish()
    alias = conf.account(account).alias
    answer = get_client(alias).payment_methods.list(country, currency, amount)
    projection.note_contact(alias, answer.answered_at)
    return answer.data


def sync_balances(*, account: str = conf.DEFAULT_ACCOUNT) -> list[Balance]:
    """Read every balance of the account into the mirror (GET /balances).

    Args:
        account: An alias of ``ACCOUNTS``.

    Returns:
        One row per currency, amounts in minor units.

    Raises:
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("sync_balances")
    return sync.read_balances(conf.account(account).alias)


def payout_cover(currency: str, *, account: str = conf.DEFAULT_ACCOUNT) -> Balance | None:
    """Read the balance that a payout draws on from the provider.

    Args:
        currency: Its ISO code.
        account: An alias of ``ACCOUNTS``.

    Returns:
        The balance; None if the provider lists none in this currency. ``available`` (minor units) must also cover the
        fee, which is known only after the payout is made.

    Raises:
        ValidationError: The currency is unknown.
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("payout_cover")
    validator = Validator()
    currency = validator.choice("currency", currency, CURRENCIES)
    validator.finish()
    rows = sync_balances(account=account)
    return next((row for row in rows if row.currency == currency), None)
