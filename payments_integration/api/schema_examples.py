"""Examples in the OpenAPI description: a payment of 12,990 pesos, a payout, and related objects."""

from __future__ import annotations

from typing import Any

from payments_integration.api import request_bodies, serializers
from payments_integration.api.errors import (
    API_ERROR,
    AUTHENTICATION,
    IDEMPOTENCY,
    INVALID_REQUEST,
    INVALID_STATE,
    NOT_FOUND,
    PERMISSION,
    RATE_LIMIT,
)

_AT = "2026-03-02T14:05:00Z"
_PAYER = {
    "name": "Ana Rojas",
    "email": "ana@example.com",
    "phone": "+56912345678",
    "document": {"type": "RUT", "number": "11111111-1"},
}
_DESTINATION = {
    "type": "bank_account",
    "bank_code": "001",
    "account_number": "123456789",
    "account_type": "checking",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}

PAYMENT: dict[str, Any] = {
    "id": "pay_01HV2T",
    "object": "payment",
    "account": "default",
    "status": "requires_action",
    "amount": 12990,
    "amount_received": 0,
    "fee": None,
    "net_amount": None,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "method_family": "bank_transfer",
    "flow": "hosted",
    "checkout_url": "https://checkout.example.com/pay_01HV2T",
    "refunded_amount": 0,
    "merchant_reference": "order-1001",
    "payer": _PAYER,
    "next_action": {"type": "redirect", "redirect_url": "https://checkout.example.com/pay_01HV2T"},
    "failure_reason": None,
    "metadata": {"cart": "77"},
    "created_at": _AT,
    "expires_at": "2026-03-03T14:05:00Z",
    "succeeded_at": None,
}
PAYOUT: dict[str, Any] = {
    "id": "pout_01HV2V",
    "object": "payout",
    "account": "default",
    "status": "created",
    "amount": 500000,
    "fee": 300,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_payout",
    "destination": _DESTINATION,
    "merchant_reference": "payroll-7",
    "failure_reason": None,
    "refund_id": None,
    "metadata": None,
    "created_at": _AT,
    "succeeded_at": None,
}
REFUND: dict[str, Any] = {
    "id": "ref_01HV2W",
    "object": "refund",
    "account": "default",
    "status": "created",
    "payment_id": "pay_01HV2T",
    "payout_id": None,
    "amount": 2990,
    "currency": "CLP",
    "reason": "One item was out of stock",
    "created_at": _AT,
}
DEPOSIT_REFERENCE: dict[str, Any] = {
    "id": "dep_01HV2X",
    "object": "deposit_reference",
    "account": "default",
    "status": "active",
    "country": "CL",
    "currency": "CLP",
    "method_code": "cl_deposit_reference",
    "merchant_reference": "customer-7",
    "details": {
        "type": "bank_transfer_details",
        "bank_transfer": {"bank_name": "Banco", "account_number": "9001", "account_holder": "Shop SpA"},
    },
    "created_at": _AT,
}
OPERATION: dict[str, Any] = {
    "id": "op_5f0c",
    "object": "operation",
    "account": "default",
    "operation": "create_refund",
    "state": "awaiting_approval",
    "amount": PAYMENT["amount"],
    "currency": "CLP",
    "merchant_reference": "",
    "target_id": PAYMENT["id"],
    "result_kind": "",
    "result_id": "",
    "actor": "7:finance",
    "approved_by": "",
    "approved_at": None,
    "attempts": 0,
    "error": None,
    "created_at": _AT,
    "first_sent_at": None,
    "last_sent_at": None,
    "next_attempt_at": None,
    "closed_at": None,
}


def _part(example: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: example[name] for name in names}


#: Serializer to an example of an answer or a body.
EXAMPLES: dict[type[Any], dict[str, Any]] = {
    serializers.PaymentSerializer: PAYMENT,
    serializers.PayoutSerializer: PAYOUT,
    serializers.RefundSerializer: REFUND,
    serializers.DepositReferenceSerializer: DEPOSIT_REFERENCE,
    serializers.OperationSerializer: OPERATION,
    serializers.BalanceSerializer: {
        "object": "balance",
        "account": "default",
        "currency": "CLP",
        "available": 1500000,
        "pending": 120000,
        "reserve": 0,
        "hold": 500300,
        "debt": 0,
        "updated_at": _AT,
    },
    serializers.PaymentMethodSerializer: {
        "object": "payment_method",
        "code": "cl_bank_transfer",
        "name": "Bank transfer",
    },
    serializers.EventSerializer: {
        "id": "evt_01HV2Y",
        "object": "event",
        "account": "default",
        "type": "payment.requires_action",
        "created_at": _AT,
        "received_at": "2026-03-02T14:05:01Z",
        "source": "webhook",
        "state": "done",
        "object_kind": "payment",
        "object_id": "pay_01HV2T",
        "data": {name: value for name, value in PAYMENT.items() if name != "account" and value is not None},
    },
    request_bodies.PaymentInput: {
        **_part(PAYMENT, "amount", "currency", "country", "method_code", "merchant_reference", "payer"),
        "return_url": "https://shop.example.com/thanks/",
    },
    request_bodies.PayoutInput: _part(
        PAYOUT, "amount", "currency", "country", "method_code", "destination", "merchant_reference"
    ),
    request_bodies.RefundInput: {"payment_id": "pay_01HV2T", "amount": 2990, "destination": _DESTINATION},
    request_bodies.RefundOfPaymentInput: {"amount": 2990, "destination": _DESTINATION},
    request_bodies.DepositReferenceInput: _part(
        DEPOSIT_REFERENCE, "country", "currency", "method_code", "merchant_reference"
    ),
}

_UNAVAILABLE = (API_ERROR, "provider_unavailable", "The payment provider cannot do this now.")
#: Status of an error to its meaning, and an example: type, code, message and, for some, param.
_ERRORS: dict[int, tuple[str, tuple[str, ...]]] = {
    400: (
        "A parameter, a header or the body is missing or wrong.",
        (INVALID_REQUEST, "parameter_missing", "This is required.", "method_code"),
    ),
    401: ("The caller is not signed in.", (AUTHENTICATION, "not_authenticated", "Sign in first.")),
    403: (
        "The caller does not have the permission.",
        (PERMISSION, "permission_denied", "You may not do this."),
    ),
    404: (
        "The object does not exist, or the caller may not see it.",
        (NOT_FOUND, "resource_not_found", "There is no such object."),
    ),
    406: (
        "The Accept header asks for another format than JSON, or for an unknown version.",
        (INVALID_REQUEST, "not_acceptable", "There is no such version; known: 1."),
    ),
    409: (
        "The Idempotency-Key was used for another call. Nothing was done.",
        (
            IDEMPOTENCY,
            "idempotency_conflict",
            "This Idempotency-Key was used for another call. Nothing was done.",
            "Idempotency-Key",
        ),
    ),
    413: (
        "The body is larger than 256 KB.",
        (INVALID_REQUEST, "request_too_large", "The request is larger than 256 KB."),
    ),
    415: ("The body is not JSON.", (INVALID_REQUEST, "unsupported_media_type", "Unsupported media type.")),
    422: (
        "The current state does not allow it: the object's status, the balance, or the refundable rest.",
        (INVALID_STATE, "insufficient_balance", "The available balance is CLP 1,000.", "amount"),
    ),
    429: (
        "Too many requests; the header Retry-After says for how long.",
        (RATE_LIMIT, "rate_limited", "Too many requests."),
    ),
    502: ("The provider refused the merchant's credentials or failed. Nothing was done.", _UNAVAILABLE),
    503: (
        (
            "The provider or the server's database does not answer; the header Retry-After says when to try again. "
            "After provider_unavailable nothing was done; after database_unavailable, repeat a POST with the same key."
        ),
        _UNAVAILABLE,
    ),
}
ERRORS = {
    status: (about, dict(zip(("type", "code", "message", "param"), error, strict=False)))
    for status, (about, error) in _ERRORS.items()
}
