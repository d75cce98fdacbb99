"""Take payments (spec, "Payments")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf
from payments_integration.enums import COUNTRIES, CURRENCIES, Flow
from payments_integration.models import Payment
from payments_integration.outbox import Intent
from payments_integration.services.service import change, creation, service
from payments_integration.validation import objects
from payments_integration.validation.attempt_key import AttemptKey
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
    """Ask for money (spec, "Payments").

    Args:
        amount: Minor units: 1250 is USD 12.50, and CLP 1250.
        currency: Its ISO code, such as ``CLP``.
        country: The ISO code of the payer's country, such as ``CL``.
        method_code: A ``code`` of ``list_payment_methods``.
        merchant_reference: Your order's id; the operation's id if left out. No blanks at its ends.
        payer: ``{name, email, phone, document: {type, number}, ip, device_id}``, all optional, the phone in E.164.
        return_url: The https:// address to which the checkout page sends the payer back. A repeated call may have
            another one, and the provider keeps the first.
        flow: ``hosted``: the payer pays on ``checkout_url``. ``s2s``: your page shows ``next_action``.
        metadata: At most 20 texts of at most 500 characters, by name.
        account: An alias of ``ACCOUNTS``.
        idempotency_key: Names the intent. A call with a known key sends nothing new and returns the same object.
            Without a key, two calls are two intents, even if the second one is a retry. With a key of
            ``Payable.attempt_key`` the arguments must be the order's.
        actor: Who asks, a user or text, for the ledger. Staff need the permission for the call.

    Returns:
        The mirrored payment, with ``checkout_url`` in the hosted flow.

    Raises:
        ValidationError: An argument is wrong; ``message_dict`` names it. Nothing was recorded or sent.
        PermissionDenied: The actor is staff and may not. Nothing was recorded or sent.
        TransactionRefused: The call is inside a transaction, where ``defer`` works. Nothing was recorded or sent.
        IdempotencyMismatch: The key belongs to a different call. Nothing was sent.
        ProviderError: The provider refused. The operation is closed, and no money moves.
        OutcomeUnknown: The request may have arrived. The app keeps it and resolves it: do not repeat it with
            another key.
    """
    validator = Validator(conf.current().DOCUMENT_CHECKS)
    body: Json = {
        "amount": validator.amount("amount", amount, currency),
        "currency": validator.choice("currency", currency, CURRENCIES),
        "country": validator.choice("country", country, COUNTRIES),
        "method_code": validator.text("method_code", method_code, required=True),
        "flow": validator.choice("flow", flow, _FLOWS),
    }
    if merchant_reference is not None:
        body["merchant_reference"] = validator.reference("merchant_reference", merchant_reference)
    if payer is not None:
        body["payer"] = objects.payer(validator, "payer", payer, body["country"])
    if return_url is not None:
        body["return_url"] = validator.url("return_url", return_url)
    if metadata is not None:
        body["metadata"] = validator.metadata("metadata", metadata)
    if isinstance(idempotency_key, AttemptKey):
        idempotency_key.check(validator, body, account)
    return creation(
        validator, body, account=account, idempotency_key=idempotency_key, actor=actor, fills_reference=True
    )


@service(Payment)
def cancel_payment(
    payment: Payment | str, *, account: str | None = None, idempotency_key: str | None = None, actor: object = None
) -> Intent:
    """Cancel a payment that is ``created`` or ``requires_action`` (spec, "States and transitions").

    ``account``, ``idempotency_key``, ``actor`` and further errors are the same as in ``create_payment``.

    Args:
        payment: An instance or its id.

    Returns:
        The mirrored payment.

    Raises:
        ValidationError: The payment can no longer be canceled, even after it was read again.
    """
    return change(Payment, payment, name="payment", account=account, idempotency_key=idempotency_key, actor=actor)
