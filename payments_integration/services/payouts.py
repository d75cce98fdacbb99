"""Send money to bank accounts (spec, "Payouts")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import COUNTRIES, CURRENCIES
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
    """Send money to a bank account (spec, "Payouts"). The provider reserves amount and fee from the available balance.

    ``idempotency_key``, ``actor`` and further errors are the same as in ``create_payment``.

    Args:
        amount: Minor units.
        currency: Its ISO code, such as ``CLP``.
        country: The ISO code of the recipient's country, such as ``CL``.
        method_code: A ``code`` of ``list_payment_methods``.
        destination: ``{type: "bank_account", account_number, holder_name, holder_document: {type, number}, bank_code,
            account_type}``, the last two optional.
        merchant_reference: Your id for it; the operation's id if left out. No blanks at its ends.
        metadata: At most 20 texts of at most 500 characters, by name.
        account: An alias of ``ACCOUNTS``.

    Returns:
        The mirrored payout.

    Raises:
        ValidationError: An argument is wrong, or the balance, read again, does not cover the amount.
        InvalidState: The provider refused, for example with ``insufficient_balance``. No money moves.
        ApprovalRequired: It reaches ``APPROVAL_LIMITS``. Recorded; ``approve`` sends it.
        OutcomeUnknown: Also before anything is sent, if it may be a repeat: a payout of this reference, amount and
            currency that no operation made is in the mirror, or a user has asked for one within a day and no user
            asks now. A person decides.
    """
    validator = Validator(conf.current().DOCUMENT_CHECKS)
    body: Json = {
        "amount": validator.amount("amount", amount, currency),
        "currency": validator.choice("currency", currency, CURRENCIES),
        "country": validator.choice("country", country, COUNTRIES),
        "method_code": validator.text("method_code", method_code, required=True),
    }
    body["destination"] = objects.destination(validator, "destination", destination, body["country"])
    if merchant_reference is not None:
        body["merchant_reference"] = validator.reference("merchant_reference", merchant_reference)
    if metadata is not None:
        body["metadata"] = validator.metadata("metadata", metadata)
    return creation(
        validator, body, account=account, idempotency_key=idempotency_key, actor=actor, fills_reference=True
    )


@service(Payout)
def cancel_payout(
    payout: Payout | str, *, account: str | None = None, idempotency_key: str | None = None, actor: object = None
) -> Intent:
    """Cancel a payout that is still ``created`` (spec, "Payouts"). The provider releases what it reserved.

    ``account``, ``idempotency_key``, ``actor`` and further errors are the same as in ``create_payment``.

    Args:
        payout: An instance or its id.

    Returns:
        The mirrored payout.

    Raises:
        ValidationError: The payout can no longer be canceled, even after it was read again.
    """
    return change(Payout, payout, name="payout", account=account, idempotency_key=idempotency_key, actor=actor)
