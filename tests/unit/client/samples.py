"""One full object of each kind, and each call of the client with its request and a good reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from payments_integration import schemas
from payments_integration.client import Client, answers
from tests import factories

API_KEY = "sk_test_unit_5f3c"
BASE = "https://pay.example/v1"
CREATED = "2026-03-01T12:00:00.123456Z"
DATE = "Sun, 01 Mar 2026 12:00:01 GMT"
DOCUMENT_NUMBER = "12.345.678-5"
ACCOUNT_NUMBER = "00998877665544"

PAYMENT = factories.payment(
    status="requires_action",
    amount=15000,
    payer={"name": "Ana Rojas", "document": {"type": "RUT", "number": DOCUMENT_NUMBER}},
    created_at=CREATED,
)
PAYOUT = factories.payout(destination={"type": "bank_account", "account_number": ACCOUNT_NUMBER}, created_at=CREATED)
REFUND = factories.refund(status="processing", created_at=CREATED)
DEPOSIT_REFERENCE = factories.deposit_reference(created_at=CREATED)
BALANCE = factories.balance()
WEBHOOK_ENDPOINT = factories.webhook_endpoint(secret="whsec_only_once")
EVENT = factories.event(PAYMENT, id="evt_1", type="payment.succeeded", created_at=CREATED)
METHOD: dict[str, Any] = {"code": "webpay", "family": "card"}

#: Odd spaces and key order, which must arrive unchanged.
BODY = b'{ "currency":"CLP",  "amount" : 15000,\n"note":"\xc3\xb1" }'
PERSONAL_BODY = json.dumps({"payer": PAYMENT["payer"], "destination": PAYOUT["destination"]}).encode()
KEY = "order-17:create 1"
SINCE = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def page(*items: Any, has_more: bool = False) -> dict[str, Any]:
    return {"object": "list", "has_more": has_more, "data": list(items)}


def each(client: Client, name: str) -> Iterator[Any]:
    """Every item of a list."""
    for found in getattr(client, name).pages():
        yield from answers.whole(found).data.items


@dataclass(frozen=True)
class Case:
    """One call of the client, the request that it must send, and a good reply."""

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


def _gets(name: str, path: str, sample: dict[str, Any], struct: type) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return getattr(client, name).get(sample["id"], **more)

    return Case(f"{name}.get", "GET", path, call, sample, struct, kind=sample["object"], asked=sample["id"])


def _pages(name: str, path: str, sample: dict[str, Any], struct: type | None) -> Case:
    def call(client: Client, **more: Any) -> Any:
        return answers.whole(next(getattr(client, name).pages(**more)))

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
    _lists("payment_methods", "/payment-methods", METHOD, schemas.PaymentMethod, ""),
    _pages("payments", "/payments", PAYMENT, schemas.Payment),
    _creates("payments", "/payments", PAYMENT, schemas.Payment),
    _gets("payments", "/payments/pay_1", PAYMENT, schemas.Payment),
    _acts("payments", "cancel", "/payments/pay_1/cancel", PAYMENT, schemas.Payment),
    _pages("payouts", "/payouts", PAYOUT, schemas.Payout),
    _creates("payouts", "/payouts", PAYOUT, schemas.Payout),
    _gets("payouts", "/payouts/pout_1", PAYOUT, schemas.Payout),
    _acts("payouts", "cancel", "/payouts/pout_1/cancel", PAYOUT, schemas.Payout),
    _pages("refunds", "/refunds", REFUND, schemas.Refund),
    _creates("refunds", "/refunds", REFUND, schemas.Refund),
    _gets("refunds", "/refunds/ref_1", REFUND, schemas.Refund),
    _creates("deposit_references", "/deposit-references", DEPOSIT_REFERENCE, schemas.DepositReference),
    _gets("deposit_references", "/deposit-references/dep_1", DEPOSIT_REFERENCE, schemas.DepositReference),
    _lists("balances", "/balances", BALANCE, schemas.Balance, "balance"),
    _lists("webhook_endpoints", "/webhook-endpoints", WEBHOOK_ENDPOINT, schemas.WebhookEndpoint, "webhook_endpoint"),
    _creates("webhook_endpoints", "/webhook-endpoints", WEBHOOK_ENDPOINT, schemas.WebhookEndpoint),
    Case("webhook_endpoints.delete", "DELETE", "/webhook-endpoints/whk_1", _delete, "", None),
    _acts(
        "webhook_endpoints",
        "rotate_secret",
        "/webhook-endpoints/whk_1/rotate-secret",
        WEBHOOK_ENDPOINT,
        schemas.WebhookEndpoint,
    ),
    _pages("events", "/events", EVENT, None),
]
