"""Money out to bank accounts (spec, "Payouts")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, Country, Currency, Kind
from payments_integration.models import Payout
from payments_integration.services import shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import Checks, Json
from payments_integration.services.intents import Intent, check_size, target
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

    Raises ValidationError (nothing recorded), TransactionRefused (use ``defer``), IdempotencyMismatch,
    ProviderError (refused, closed; insufficient_balance is an InvalidState) and OutcomeUnknown (kept, being
    resolved: do not repeat it with another key).
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
        guard=StatusGuard(Kind.PAYOUT, "payout", alias, object_id, CANCELABLE_PAYOUT_STATUSES) if row else None,
    )
