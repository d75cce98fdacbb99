"""Pay-ins (spec, "Payments")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import Country, Currency, Flow
from payments_integration.models import Payment
from payments_integration.outbox import Intent
from payments_integration.services.service import change, creation, service
from payments_integration.validation import objects
from payments_integration.validation.validator import Json, Validator

#: The provider creates the payments of a deposit reference.
_FLOWS = (Flow.HOSTED.value, Flow.S2S.value)


@service(Payment)
def create_payment(
    *,
    amount: int,
    currency: str,
    country: str,
    method_code: str,
    merchant_reference: str | None = None,
    payer: Mapping[str, Any] | None = None,
    return_url: str | None = None,
    flow: str = "hosted",
    metadata: Mapping[str, str] | None = None,
    account: str = conf.DEFAULT_ACCOUNT,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Ask for money (spec, "Payments"); returns the Payment, with ``checkout_url`` in the hosted flow.

    ``amount``: minor units. ``payer``: ``{name, email, phone, document: {type, number}, ip, device_id}``, all
    optional, the phone in E.164. ``merchant_reference``: the operation's id if left out. ``actor``: a user or
    text.

    Raises ValidationError (nothing recorded), TransactionRefused (use ``defer``), IdempotencyMismatch,
    ProviderError (refused, closed) and OutcomeUnknown (kept, being resolved: do not repeat it with another
    key).
    """
    validator = Validator()
    body: Json = {
        "amount": validator.amount("amount", amount),
        "currency": validator.choice("currency", currency, Currency.values),
        "country": validator.choice("country", country, Country.values),
        "method_code": validator.text("method_code", method_code, required=True),
        "flow": validator.choice("flow", flow, _FLOWS),
    }
    if merchant_reference is not None:
        body["merchant_reference"] = validator.text("merchant_reference", merchant_reference)
    if payer is not None:
        body["payer"] = objects.payer(validator, "payer", payer, body["country"])
    if return_url is not None:
        body["return_url"] = validator.url("return_url", return_url)
    if metadata is not None:
        body["metadata"] = validator.metadata("metadata", metadata)
    return creation(
        "create_payment",
        validator,
        body,
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
        fills_reference=True,
    )


@service(Payment)
def cancel_payment(
    payment: Payment | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Cancel a payment that is created or requires_action (spec, "States and transitions"); returns the
    Payment.

    ``payment``: an instance or its id. Raises what ``create_payment`` raises; ValidationError where the
    payment cannot be canceled any more, also after having been read again.
    """
    return change(
        "cancel_payment",
        Payment,
        payment,
        name="payment",
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
    )
