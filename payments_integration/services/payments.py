"""Pay-ins (spec, "Payments")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, Country, Currency, Flow
from payments_integration.models import Payment
from payments_integration.services import shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import Checks, Json
from payments_integration.services.intents import Intent, check_size, target
from payments_integration.services.recipes import CANCEL_PAYMENT, CREATE_PAYMENT
from payments_integration.services.states import StatusGuard

#: A deposit reference's payments are created by the provider.
_FLOWS = (Flow.HOSTED.value, Flow.S2S.value)


@sends(Payment)
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
    checks = Checks()
    body: Json = {
        "amount": checks.amount("amount", amount),
        "currency": checks.choice("currency", currency, Currency.values),
        "country": checks.choice("country", country, Country.values),
        "method_code": checks.text("method_code", method_code, required=True),
        "flow": checks.choice("flow", flow, _FLOWS),
    }
    if merchant_reference is not None:
        body["merchant_reference"] = checks.text("merchant_reference", merchant_reference)
    if payer is not None:
        body["payer"] = shapes.payer(checks, "payer", payer, body["country"])
    if return_url is not None:
        body["return_url"] = checks.url("return_url", return_url)
    if metadata is not None:
        body["metadata"] = checks.metadata("metadata", metadata)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    check_size(checks, body)
    checks.finish()
    return Intent(
        operation=CREATE_PAYMENT,
        account=account,
        arguments=body,
        body=body,
        amount=body["amount"],
        currency=body["currency"],
        fills_reference=True,
        idempotency_key=key,
        actor=who,
    )


@sends(Payment)
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
    checks = Checks()
    alias, object_id, row = target(checks, "payment", Payment, payment, "pay_", account)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    return Intent(
        operation=CANCEL_PAYMENT,
        account=alias,
        arguments={"payment": object_id},
        target_id=object_id,
        idempotency_key=key,
        actor=who,
        guard=StatusGuard("payment", row, CANCELABLE_PAYMENT_STATUSES) if row else None,
    )
