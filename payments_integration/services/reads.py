"""GET: what the provider says now, into the mirror. Nothing here can move money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration import conf, projection, wakeup, wire
from payments_integration.client import Answer, Client, get_client
from payments_integration.enums import Country, Currency, Kind
from payments_integration.exceptions import NotFound
from payments_integration.models import MIRRORS, Balance, Mirror, WebhookEndpoint
from payments_integration.services.checks import Checks
from payments_integration.services.guards import refuse_transaction

MirrorT = TypeVar("MirrorT", bound=Mirror)

#: Seconds that background reads wait for the rate limit.
BACKGROUND_WAIT = 5.0

_GETS: dict[str, Callable[[Client, str, float | None, bool], Answer[Any]]] = {
    Kind.PAYMENT: lambda client, pk, wait, back: client.payments.get(pk, max_wait=wait, background=back),
    Kind.PAYOUT: lambda client, pk, wait, back: client.payouts.get(pk, max_wait=wait, background=back),
    Kind.REFUND: lambda client, pk, wait, back: client.refunds.get(pk, max_wait=wait, background=back),
    Kind.DEPOSIT_REFERENCE: lambda client, pk, wait, back: client.deposit_references.get(
        pk, max_wait=wait, background=back
    ),
}
_PREFIXES = {"pay_": Kind.PAYMENT, "pout_": Kind.PAYOUT, "ref_": Kind.REFUND, "dep_": Kind.DEPOSIT_REFERENCE,
             "whk_": Kind.WEBHOOK_ENDPOINT}  # fmt: skip


@overload
def refresh(obj: MirrorT, *, account: str | None = None) -> MirrorT: ...
@overload
def refresh(obj: str, *, account: str | None = None) -> Mirror: ...
def refresh(obj: Mirror | str, *, account: str | None = None) -> Mirror:
    """Read one object by GET and return it: the same instance, brought up to date, or for an id its row.

    Balances and webhook endpoints have no GET of their own, so all of the account's are read. Raises NotFound
    (the row is kept and marked as gone), other ProviderErrors, NoAnswer, and TransactionRefused in a
    transaction.
    """
    refuse_transaction("refresh")
    if isinstance(obj, Mirror):
        if account is not None and account != obj.account:
            raise ValidationError({"account": _("This object belongs to another account.")})
        row: Mirror = read(obj.kind, obj.account, obj.object_id)
        wakeup.wake(obj.account)
        if row.pk != obj.pk:
            return row
        obj.refresh_from_db()
        return obj
    kind = next((kind for prefix, kind in _PREFIXES.items() if isinstance(obj, str) and obj.startswith(prefix)), None)
    if kind is None:
        raise ValidationError({"obj": _("This must be a mirrored object or its id.")})
    known: Mirror | None = MIRRORS[kind]._default_manager.filter(pk=obj).first()
    if known is not None:
        return refresh(known, account=account)
    alias = account or conf.DEFAULT_ACCOUNT
    new: Mirror = read(kind, alias, obj)
    wakeup.wake(alias)
    return new


def read(kind: str, account: str, object_id: str, *, background: bool = False, wait: float | None = None) -> Any:
    """GET one object and write it; returns its row. NotFound marks the row as gone.

    ``background``: leave the rate limit to others. ``wait``: seconds to wait for it, if not as usual.
    """
    client = get_client(account)
    wait = BACKGROUND_WAIT if wait is None and background else wait
    if kind == Kind.BALANCE:
        return _pick(read_balances(account, background=background, wait=wait), object_id, "currency")
    if kind == Kind.WEBHOOK_ENDPOINT:
        return _pick(read_endpoints(account, background=background, wait=wait), object_id, "pk")
    before = projection.snapshot(kind, account, object_id)
    try:
        answer = _GETS[kind](client, object_id, wait, background)
    except NotFound:
        projection.mark_gone(account, kind, object_id)
        raise
    return projection.write_answer(
        account, answer.data, answered_at=answer.answered_at, duration=answer.duration, before=before
    )


def sync_balances(*, account: str = conf.DEFAULT_ACCOUNT) -> list[Balance]:
    """GET /balances into the mirror; one row per currency. Raises ProviderError, NoAnswer,
    TransactionRefused.
    """
    refuse_transaction("sync_balances")
    rows = read_balances(account)
    wakeup.wake(account)
    return rows


def sync_webhook_endpoints(*, account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """GET /webhook-endpoints into the mirror; those that are not listed any more are marked as gone.

    Raises ProviderError, NoAnswer, TransactionRefused.
    """
    refuse_transaction("sync_webhook_endpoints")
    rows = read_endpoints(account)
    wakeup.wake(account)
    return rows


def list_payment_methods(
    *,
    country: str | None = None,
    currency: str | None = None,
    amount: int | None = None,
    account: str = conf.DEFAULT_ACCOUNT,
) -> list[wire.PaymentMethod]:
    """GET /payment-methods: ``code`` and, in ``extra``, whatever else the provider shows. ``amount``: minor
    units.

    Raises ValidationError, ProviderError, NoAnswer, TransactionRefused.
    """
    refuse_transaction("list_payment_methods")
    checks = Checks()
    country = checks.choice("country", country, Country.values, required=False) or None
    currency = checks.choice("currency", currency, Currency.values, required=False) or None
    if amount is not None:
        checks.amount("amount", amount)
    checks.finish()
    return get_client(account).payment_methods.list(country, currency, amount).data


def read_balances(account: str, *, background: bool = False, wait: float | None = None) -> list[Balance]:
    before = projection.balance_snapshots(account)
    answer = get_client(account).balances.list(max_wait=wait, background=background)
    return projection.write_balances(
        account,
        answer.data,
        answered_at=answer.answered_at,
        duration=answer.duration,
        before=before,
    )


def read_endpoints(account: str, *, background: bool = False, wait: float | None = None) -> list[WebhookEndpoint]:
    answer = get_client(account).webhook_endpoints.list(max_wait=wait, background=background)
    return projection.write_endpoints(account, answer.data, answered_at=answer.answered_at, duration=answer.duration)


def _pick(rows: list[Any], object_id: str, name: str) -> Any:
    for row in rows:
        if getattr(row, name) == object_id:
            return row
    raise NotFound("the provider does not list this object", status_code=404, code="resource_not_found")
