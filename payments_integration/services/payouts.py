"""Money out to bank accounts (spec, "Payouts")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import Country, Currency
from payments_integration.models import Payout
from payments_integration.outbox import Intent
from payments_integration.services.service import change, creation, service
from payments_integration.validation import objects
from payments_integration.validation.validator import Json, Validator


@service(Payout)
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

    Raises ValidationError (nothing recorded; also where the available balance, read again, does not cover the
    amount), PermissionDenied (the actor is staff and may not), TransactionRefused (use ``defer``),
    IdempotencyMismatch, ProviderError (refused, closed; insufficient_balance is an InvalidState), ApprovalRequired
    (from APPROVAL_LIMITS on: recorded, sent by ``approve``) and OutcomeUnknown (kept, being resolved: do not repeat
    it with another key).
    """
    validator = Validator()
    body: Json = {
        "amount": validator.amount("amount", amount),
        "currency": validator.choice("currency", currency, Currency.values),
        "country": validator.choice("country", country, Country.values),
        "method_code": validator.text("method_code", method_code, required=True),
    }
    body["destination"] = objects.destination(validator, "destination", destination, body["country"])
    if merchant_reference is not None:
        body["merchant_reference"] = validator.text("merchant_reference", merchant_reference)
    if metadata is not None:
        body["metadata"] = validator.metadata("metadata", metadata)
    return creation(
        "create_payout",
        validator,
        body,
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
        fills_reference=True,
    )


@service(Payout)
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
    return change(
        "cancel_payout",
        Payout,
        payout,
        name="payout",
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
    )
