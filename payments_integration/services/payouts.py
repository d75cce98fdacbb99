"""Money out to bank accounts (spec, "Payouts")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration import conf, wakeup
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, Country, Currency
from payments_integration.models import Balance, Payout
from payments_integration.money import format_money
from payments_integration.services import reads, shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import Checks, Json
from payments_integration.services.guards import refuse_transaction
from payments_integration.services.intents import Doubt, Intent, check_size, target
from payments_integration.services.recipes import CANCEL_PAYOUT, CREATE_PAYOUT
from payments_integration.services.states import StatusGuard


@sends(Payout)
def create_payout(
    *,
    amount: int,
    currency: str,
    country: str,
    method_code: str,
    destination: Mapping[str, Any],
    merchant_reference: str | None = None,
    metadata: Mapping[str, str] | None = None,
    account: str = conf.DEFAULT_ACCOUNT,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Send money out (spec, "Payouts"); returns the Payout. Amount plus fee are reserved from the available
    balance.

    ``amount``: minor units. ``destination``: ``{type: "bank_account", account_number, holder_name,
    holder_document: {type, number}, bank_code, account_type}``, the last two optional.
    ``merchant_reference``: the operation's id if left out. ``actor``: a user or text.

    Raises ValidationError (nothing recorded; also where the available balance, read anew, does not cover the
    amount), PermissionDenied (the actor is staff and may not), TransactionRefused (use ``defer``),
    IdempotencyMismatch, ProviderError (refused, closed; insufficient_balance is an InvalidState), ApprovalRequired
    (from APPROVAL_LIMITS on: recorded, sent by ``approve``) and OutcomeUnknown (kept, being resolved: do not repeat
    it with another key).
    """
    checks = Checks()
    body: Json = {
        "amount": checks.amount("amount", amount),
        "currency": checks.choice("currency", currency, Currency.values),
        "country": checks.choice("country", country, Country.values),
        "method_code": checks.text("method_code", method_code, required=True),
    }
    body["destination"] = shapes.destination(checks, "destination", destination, body["country"])
    if merchant_reference is not None:
        body["merchant_reference"] = checks.text("merchant_reference", merchant_reference)
    if metadata is not None:
        body["metadata"] = checks.metadata("metadata", metadata)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    check_size(checks, body)
    checks.finish()
    return Intent(
        operation=CREATE_PAYOUT,
        account=account,
        arguments=body,
        body=body,
        amount=body["amount"],
        currency=body["currency"],
        fills_reference=True,
        idempotency_key=key,
        actor=who,
        guard=CoverGuard(account, body["currency"], body["amount"]),
    )


@sends(Payout)
def cancel_payout(
    payout: Payout | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Cancel a payout that is still created (spec, "Payouts"); what was reserved is released. Returns the
    Payout.

    ``payout``: an instance or its id. Raises what ``create_payout`` raises; ValidationError where the payout
    cannot be canceled any more, also after having been read again.
    """
    checks = Checks()
    alias, object_id, row = target(checks, "payout", Payout, payout, "pout_", account)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    return Intent(
        operation=CANCEL_PAYOUT,
        account=alias,
        arguments={"payout": object_id},
        target_id=object_id,
        idempotency_key=key,
        actor=who,
        guard=StatusGuard("payout", row, CANCELABLE_PAYOUT_STATUSES) if row else None,
    )


def payout_cover(currency: str, *, account: str = conf.DEFAULT_ACCOUNT) -> Balance | None:
    """What there is for a payout: the balance as the provider says now; None where it lists none in this currency.

    ``available`` is what counts; it has to cover the fee as well, which is known only once the payout is made.
    Raises ValidationError, ProviderError, NoAnswer, TransactionRefused.
    """
    refuse_transaction("payout_cover")
    checks = Checks()
    currency = checks.choice("currency", currency, Currency.values)
    checks.finish()
    rows = reads.read_balances(account)
    wakeup.wake(account)
    return next((row for row in rows if row.currency == currency), None)


@dataclass(frozen=True, slots=True)
class CoverGuard:
    """A payout must fit into the available balance, and there must be no debt, as far as the mirror has the balance.

    Without the fee, which nobody knows before, and without locks: it spares a request that is bound to be refused.
    What two payouts at once may take, the provider decides.
    """

    #: The mirror may be old, and a transaction cannot bring it up to date.
    when_deferred: ClassVar[bool] = False
    counts_operations: ClassVar[bool] = False

    account: str
    currency: str
    amount: int

    def before(self) -> None:
        """The mirror's word is enough to go ahead: the provider decides."""

    def decide(self, intent: Intent) -> Intent:
        balance = Balance.objects.filter(account=self.account, currency=self.currency, gone_at=None).first()
        if balance is not None and (balance.available < self.amount or balance.debt > 0):
            words = _("The available balance is %(available)s (hold %(hold)s).")
            if balance.debt > 0:
                words = _("Nothing is paid out while there is a debt (%(debt)s). Available: %(available)s.")
            figures = {
                name: format_money(getattr(balance, name), self.currency) for name in ("available", "debt", "hold")
            }
            raise Doubt({"amount": ValidationError(words, code="insufficient_balance", params=figures)})
        return intent

    def refresh(self) -> None:
        reads.read_balances(self.account)
