"""Examples of the OpenAPI description: a payment of 12,990 pesos, a payout, and what belongs to them."""

from __future__ import annotations

from typing import Any

from payments_integration.api import bodies, representations
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
    "operation": "create_payout",
    "state": "awaiting_approval",
    "amount": 500000,
    "currency": "CLP",
    "merchant_reference": "payroll-7",
    "target_id": "",
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

#: What an answer, or a request, of that kind looks like.
EXAMPLES: dict[type[Any], dict[str, Any]] = {
    representations.PaymentSerializer: PAYMENT,
    representations.PayoutSerializer: PAYOUT,
    representations.RefundSerializer: REFUND,
    representations.DepositReferenceSerializer: DEPOSIT_REFERENCE,
    representations.OperationSerializer: OPERATION,
    representations.BalanceSerializer: {
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
    representations.PaymentMethodSerializer: {
        "object": "payment_method",
        "code": "cl_bank_transfer",
        "name": "Bank transfer",
    },
    representations.EventSerializer: {
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
    bodies.PaymentGiven: {
        "amount": 12990,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_bank_transfer",
        "merchant_reference": "order-1001",
        "payer": _PAYER,
        "return_url": "https://shop.example.com/thanks/",
    },
    bodies.PayoutGiven: {
        "amount": 500000,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_bank_payout",
        "destination": _DESTINATION,
        "merchant_reference": "payroll-7",
    },
    bodies.RefundGiven: {"payment_id": "pay_01HV2T", "amount": 2990, "destination": _DESTINATION},
    bodies.RefundOfPaymentGiven: {"amount": 2990, "destination": _DESTINATION},
    bodies.DepositReferenceGiven: {
        "country": "CL",
        "currency": "CLP",
        "method_code": "cl_deposit_reference",
        "merchant_reference": "customer-7",
    },
}

#: Status of an error to when it comes, and what it looks like.
ERRORS: dict[int, tuple[str, dict[str, str]]] = {
    400: (
        "A parameter, a header or the body is missing or wrong.",
        {
            "type": INVALID_REQUEST,
            "code": "parameter_missing",
            "message": "This is required.",
            "param": "method_code",
        },
    ),
    401: (
        "Nobody is signed in.",
        {"type": AUTHENTICATION, "code": "not_authenticated", "message": "Sign in first."},
    ),
    403: (
        "Whoever is signed in may not do this.",
        {"type": PERMISSION, "code": "permission_denied", "message": "You may not do this."},
    ),
    404: (
        "There is no such object, or none that the caller may see.",
        {"type": NOT_FOUND, "code": "resource_not_found", "message": "There is no such object."},
    ),
    406: (
        "The Accept header asks for something else than JSON of a known version.",
        {"type": INVALID_REQUEST, "code": "not_acceptable", "message": "There is no such version; known: 1."},
    ),
    409: (
        "The Idempotency-Key was used for another call. Nothing was done.",
        {
            "type": IDEMPOTENCY,
            "code": "idempotency_conflict",
            "message": "This Idempotency-Key was used for another call. Nothing was done.",
            "param": "Idempotency-Key",
        },
    ),
    413: (
        "The body is larger than 256 KB.",
        {"type": INVALID_REQUEST, "code": "request_too_large", "message": "The request is larger than 256 KB."},
    ),
    415: (
        "The body is no JSON.",
        {"type": INVALID_REQUEST, "code": "unsupported_media_type", "message": "Unsupported media type."},
    ),
    422: (
        "The state of things forbids it: the object's status, the balance, what is left to refund.",
        {
            "type": INVALID_STATE,
            "code": "insufficient_balance",
            "message": "The available balance is CLP 1,000.",
            "param": "amount",
        },
    ),
    429: (
        "Too many requests; the header Retry-After says for how long.",
        {"type": RATE_LIMIT, "code": "rate_limited", "message": "Too many requests."},
    ),
    502: (
        "The provider does not work with the merchant now. Nothing was done.",
        {
            "type": API_ERROR,
            "code": "provider_unavailable",
            "message": "The payment provider cannot do this now.",
        },
    ),
    503: (
        "The provider does not answer now; the header Retry-After says when to try again. Nothing was done.",
        {
            "type": API_ERROR,
            "code": "provider_unavailable",
            "message": "The payment provider cannot do this now.",
        },
    ),
}
