"""One full object of each kind, and every operation with what it must send and what it may get back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from payments_integration import wire
from payments_integration.client import Client

API_KEY = "sk_test_unit_5f3c"
BASE = "https://pay.example/v1"
CREATED = "2026-03-01T12:00:00.123456Z"
DATE = "Sun, 01 Mar 2026 12:00:01 GMT"
DOCUMENT_NUMBER = "12.345.678-5"
ACCOUNT_NUMBER = "00998877665544"

PAYMENT: dict[str, Any] = {
    "id": "pay_1",
    "object": "payment",
    "status": "requires_action",
    "amount": 15000,
    "amount_received": 0,
    "currency": "CLP",
    "country": "CL",
    "method_code": "webpay",
    "method_family": "card",
    "payer": {"name": "Ana Rojas", "document": {"type": "RUT", "number": DOCUMENT_NUMBER}},
    "created_at": CREATED,
}
PAYOUT: dict[str, Any] = {
    "id": "pout_1",
    "object": "payout",
    "status": "created",
    "amount": 5000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "bank_cl",
    "destination": {"type": "bank_account", "account_number": ACCOUNT_NUMBER},
    "created_at": CREATED,
}
REFUND: dict[str, Any] = {
    "id": "ref_1",
    "object": "refund",
    "status": "processing",
    "payment_id": "pay_1",
    "amount": 100,
    "currency": "CLP",
    "created_at": CREATED,
}
DEPOSIT_REFERENCE: dict[str, Any] = {
    "id": "dep_1",
    "object": "deposit_reference",
    "status": "active",
    "country": "MX",
    "currency": "MXN",
    "method_code": "spei",
    "details": {"type": "bank_transfer_details"},
    "created_at": CREATED,
}
BALANCE: dict[str, Any] = {
    "object": "balance",
    "currency": "CLP",
    "available": 1,
    "pending": 2,
    "reserve": 3,
    "hold": 4,
    "debt": 0,
}
WEBHOOK_ENDPOINT: dict[str, Any] = {
    "id": "whk_1",
    "object": "webhook_endpoint",
    "url": "https://shop.example/hook/",
    "events": ["payment.succeeded"],
    "status": "active",
    "secret": "whsec_only_once",
}
EVENT: dict[str, Any] = {
    "id": "evt_1",
    "object": "event",
    "type": "payment.succeeded",
    "created_at": CREATED,
    "data": PAYMENT,
}
METHOD: dict[str, Any] = {"code": "webpay", "family": "card"}

#: Not what a JSON library would write: odd spaces and key order must arrive as they are.
BODY = b'{ "currency":"CLP",  "amount" : 15000,\n"note":"\xc3\xb1" }'
PERSONAL_BODY = json.dumps({"payer": PAYMENT["payer"], "destination": PAYOUT["destination"]}).encode()
KEY = "order-17:create 1"
SINCE = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def page(*items: Any, has_more: bool = False) -> dict[str, Any]:
    return {"object": "list", "has_more": has_more, "data": list(items)}


@dataclass(frozen=True)
class Case:
    """An operation: the call, the request it must make, a good reply."""

    name: str
    method: str
    path: str
    call: Callable[..., Any]
    reply: Any
    #: What ``data`` is; None: nothing, "iterator": the call gives the items themselves.
    struct: type | None
    body: bytes | None = None
    keyed: bool = False
    #: The kind whose ``object`` the reply must name; empty where nothing names it.
    kind: str = ""
    #: The id that was asked for.
    asked: str = ""
    listed: bool = False
    paged: bool = False

    def __str__(self) -> str:
        return self.name


def _keyed(**more: Any) -> dict[str, Any]:
    return {"idempotency_key": KEY, **more}


def _creates(name: str, path: str, sample: dict[str, Any], struct: type) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(client, name).create(BODY, **_keyed(**more))

    return Case(f"{name}.create", "POST", path, call, sample, struct, BODY, keyed=True, kind=sample["object"])


def _acts(name: str, verb: str, path: str, sample: dict[str, Any], struct: type) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(getattr(client, name), verb)(sample["id"], **_keyed(**more))

    return Case(
        f"{name}.{verb}",
        "POST",
        path,
        call,
        sample,
        struct,
        keyed=True,
        kind=sample["object"],
        asked=sample["id"],
    )


def _gets(name: str, path: str, sample: dict[str, Any], struct: type | None) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(client, name).get(sample["id"], **more)

    return Case(f"{name}.get", "GET", path, call, sample, struct, kind=sample["object"], asked=sample["id"])


def _pages(name: str, path: str, sample: dict[str, Any], struct: type | None) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(client, name).list_page(**more)

    return Case(
        f"{name}.list",
        "GET",
        path,
        call,
        page(sample),
        struct,
        kind=sample["object"],
        listed=True,
        paged=True,
    )


def _lists(name: str, path: str, sample: dict[str, Any], struct: type, kind: str) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(client, name).list(**more)

    return Case(f"{name}.list", "GET", path, call, {"data": [sample]}, struct, kind=kind, listed=True)


def _delete(client: Client, **more: Any) -> Any:
    return client.webhook_endpoints.delete("whk_1", **more)


CASES = [
    _lists("payment_methods", "/payment-methods", METHOD, wire.PaymentMethod, ""),
    _pages("payments", "/payments", PAYMENT, wire.Payment),
    _creates("payments", "/payments", PAYMENT, wire.Payment),
    _gets("payments", "/payments/pay_1", PAYMENT, wire.Payment),
    _acts("payments", "cancel", "/payments/pay_1/cancel", PAYMENT, wire.Payment),
    _pages("payouts", "/payouts", PAYOUT, wire.Payout),
    _creates("payouts", "/payouts", PAYOUT, wire.Payout),
    _gets("payouts", "/payouts/pout_1", PAYOUT, wire.Payout),
    _acts("payouts", "cancel", "/payouts/pout_1/cancel", PAYOUT, wire.Payout),
    _pages("refunds", "/refunds", REFUND, wire.Refund),
    _creates("refunds", "/refunds", REFUND, wire.Refund),
    _gets("refunds", "/refunds/ref_1", REFUND, wire.Refund),
    _creates("deposit_references", "/deposit-references", DEPOSIT_REFERENCE, wire.DepositReference),
    _gets("deposit_references", "/deposit-references/dep_1", DEPOSIT_REFERENCE, wire.DepositReference),
    _lists("balances", "/balances", BALANCE, wire.Balance, "balance"),
    _lists("webhook_endpoints", "/webhook-endpoints", WEBHOOK_ENDPOINT, wire.WebhookEndpoint, "webhook_endpoint"),
    _creates("webhook_endpoints", "/webhook-endpoints", WEBHOOK_ENDPOINT, wire.WebhookEndpoint),
    Case("webhook_endpoints.delete", "DELETE", "/webhook-endpoints/whk_1", _delete, "", None),
    _acts(
        "webhook_endpoints",
        "rotate_secret",
        "/webhook-endpoints/whk_1/rotate-secret",
        WEBHOOK_ENDPOINT,
        wire.WebhookEndpoint,
    ),
    _pages("events", "/events", EVENT, None),
    _gets("events", "/events/evt_1", EVENT, None),
]
