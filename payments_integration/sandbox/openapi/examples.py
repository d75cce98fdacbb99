"""Examples: a card payment of CLP 12,500, its refund, a payout, a Pix payment and a deposit account."""

from __future__ import annotations

from typing import Final

from .types import Json

_DOCUMENT: Final[Json] = {"type": "RUT", "number": "11111111-1"}
_PAYER: Final[Json] = {"name": "Ana Soto", "email": "ana@example.com", "phone": "+56912345678", "document": _DOCUMENT}
_ACCOUNT: Final[Json] = {
    "type": "bank_account",
    "bank_code": "001",
    "account_number": "123456789",
    "account_type": "checking",
    "holder_name": "Ana Soto",
    "holder_document": _DOCUMENT,
}
_CHECKOUT: Final = "https://pay.example.com/checkout/pay_5f0c1a2b3c4d5e6f7a8b9c0d"

REQUESTS: Final[dict[str, dict[str, Json]]] = {
    "CreatePayment": {
        "hosted": {
            "amount": 12_500,
            "currency": "CLP",
            "country": "CL",
            "method_code": "cl_webpay_card",
            "merchant_reference": "order-1042",
            "payer": _PAYER,
            "return_url": "https://shop.example.com/orders/1042/return",
            "metadata": {"cart": "7f3a"},
        },
        "s2s": {
            "amount": 4_990,
            "currency": "BRL",
            "country": "BR",
            "method_code": "br_pix",
            "merchant_reference": "order-1043",
            "flow": "s2s",
        },
    },
    "CreatePayout": {
        "bank account": {
            "amount": 8_000,
            "currency": "CLP",
            "country": "CL",
            "method_code": "cl_bank_transfer",
            "merchant_reference": "seller-7-2026-01",
            "destination": _ACCOUNT,
        }
    },
    "CreateRefund": {
        "card": {"payment_id": "pay_5f0c1a2b3c4d5e6f7a8b9c0d", "amount": 2_500, "reason": "One item is sold out"},
        "any other family": {"payment_id": "pay_6a1b2c3d4e5f60718293a4b5", "destination": _ACCOUNT},
    },
    "CreateDepositReference": {
        "account of a customer": {
            "country": "CL",
            "currency": "CLP",
            "method_code": "cl_deposit",
            "payer": {"name": "Ana Soto"},
            "merchant_reference": "customer-88",
        }
    },
    "CreateWebhookEndpoint": {
        "two types": {
            "url": "https://shop.example.com/payments/webhook/",
            "events": ["payment.succeeded", "refund.succeeded"],
        },
        "all types": {"url": "https://shop.example.com/payments/webhook/"},
    },
}

PAYMENT: Final[Json] = {
    "id": "pay_5f0c1a2b3c4d5e6f7a8b9c0d",
    "object": "payment",
    "status": "created",
    "amount": 12_500,
    "amount_received": 0,
    "fee": 0,
    "net_amount": 0,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_webpay_card",
    "method_family": "card",
    "flow": "hosted",
    "checkout_url": _CHECKOUT,
    "refunded_amount": 0,
    "merchant_reference": "order-1042",
    "payer": _PAYER,
    "next_action": {"type": "redirect", "redirect_url": _CHECKOUT, "expires_at": "2026-01-15T13:00:00.000000Z"},
    "failure_reason": None,
    "metadata": {"cart": "7f3a"},
    "created_at": "2026-01-15T12:00:00.000000Z",
    "expires_at": "2026-01-15T13:00:00.000000Z",
    "succeeded_at": None,
}
CANCELED: Final[Json] = {**PAYMENT, "status": "canceled", "next_action": {"type": "none"}}
SUCCEEDED: Final[Json] = {
    **PAYMENT,
    "status": "succeeded",
    "amount_received": 12_500,
    "fee": 363,
    "net_amount": 12_137,
    "next_action": {"type": "none"},
    "succeeded_at": "2026-01-15T12:04:10.000000Z",
}
PAYOUT: Final[Json] = {
    "id": "pout_7b2c3d4e5f60718293a4b5c6",
    "object": "payout",
    "status": "created",
    "amount": 8_000,
    "fee": 300,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": _ACCOUNT,
    "merchant_reference": "seller-7-2026-01",
    "failure_reason": None,
    "refund_id": None,
    "metadata": {},
    "created_at": "2026-01-16T09:00:00.000000Z",
    "succeeded_at": None,
}
REFUND: Final[Json] = {
    "id": "ref_8c3d4e5f60718293a4b5c6d7",
    "object": "refund",
    "status": "created",
    "payment_id": "pay_5f0c1a2b3c4d5e6f7a8b9c0d",
    "payout_id": None,
    "amount": 2_500,
    "currency": "CLP",
    "reason": "One item is sold out",
    "created_at": "2026-01-16T10:00:00.000000Z",
}
DEPOSIT_REFERENCE: Final[Json] = {
    "id": "dep_9d4e5f60718293a4b5c6d7e8",
    "object": "deposit_reference",
    "status": "active",
    "country": "CL",
    "currency": "CLP",
    "method_code": "cl_deposit",
    "merchant_reference": "customer-88",
    "details": {
        "type": "bank_transfer_details",
        "bank_transfer": {"bank_name": "Banco", "account_number": "000123456789", "account_holder": "Ana Soto"},
        "reference": "4810275561",
    },
    "created_at": "2026-01-15T12:00:00.000000Z",
}
BALANCE: Final[Json] = {
    "object": "balance",
    "currency": "CLP",
    "available": 12_137,
    "pending": 0,
    "reserve": 0,
    "hold": 0,
    "debt": 0,
    "updated_at": "2026-01-15T12:04:10.000001Z",
}
PAYMENT_METHOD: Final[Json] = {
    "object": "payment_method",
    "code": "cl_webpay_card",
    "name": "Webpay card",
    "family": "card",
    "country": "CL",
    "currency": "CLP",
    "next_action": "redirect",
    "uses": ["payment"],
    "min_amount": 1,
    "max_amount": 1_000_000_000_000,
    "available": True,
}
ENDPOINT: Final[Json] = {
    "id": "whk_ae5f60718293a4b5c6d7e8f9",
    "object": "webhook_endpoint",
    "url": "https://shop.example.com/payments/webhook/",
    "events": ["payment.succeeded", "refund.succeeded"],
    "status": "active",
    "created_at": "2026-01-10T08:00:00.000000Z",
}
ENDPOINT_WITH_SECRET: Final[Json] = {**ENDPOINT, "secret": "whsec_the_signing_secret_of_this_endpoint"}

_BY_KIND: Final[dict[str, Json]] = {"payment": PAYMENT, "payout": PAYOUT, "refund": REFUND, "balance": BALANCE}


def event(event_type: str = "payment.succeeded") -> Json:
    """An event of this type, with its object in a matching status."""
    kind, _, status = event_type.partition(".")
    data = _BY_KIND[kind]
    if event_type == "payment.succeeded":
        data = SUCCEEDED
    elif kind != "balance" and status != "delayed":
        data = {**data, "status": status}
    return {
        "id": "evt_bf60718293a4b5c6d7e8f90a",
        "object": "event",
        "type": event_type,
        "created_at": "2026-01-15T12:04:10.000000Z",
        "data": data,
    }


def page(item: Json) -> Json:
    """The last page of a list, with one object."""
    return {"object": "list", "has_more": False, "data": [item]}


def listed(item: Json) -> Json:
    """A list without pages, with one object."""
    return {"data": [item]}
