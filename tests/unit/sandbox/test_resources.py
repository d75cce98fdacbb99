"""Every resource has exactly the fields of the specification, with their types."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from payments_integration.sandbox import Engine

from .support import ACCOUNT, DEPOSIT, PAYER, Client

TEXT, INT, TIME, OBJECT, LIST = "text", "int", "time", "object", "list"

# field -> (type, required, may be null)
TABLES: dict[str, dict[str, tuple[str, bool, bool]]] = {
    "payment": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "status": (TEXT, True, False),
        "amount": (INT, True, False),
        "amount_received": (INT, True, False),
        "fee": (INT, False, False),
        "net_amount": (INT, False, False),
        "currency": (TEXT, True, False),
        "country": (TEXT, True, False),
        "method_code": (TEXT, True, False),
        "method_family": (TEXT, True, False),
        "flow": (TEXT, False, False),
        "checkout_url": (TEXT, False, True),
        "refunded_amount": (INT, False, False),
        "merchant_reference": (TEXT, False, False),
        "payer": (OBJECT, False, False),
        "next_action": (OBJECT, False, False),
        "failure_reason": (TEXT, False, True),
        "metadata": (OBJECT, False, False),
        "created_at": (TIME, True, False),
        "expires_at": (TIME, False, True),
        "succeeded_at": (TIME, False, True),
    },
    "payout": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "status": (TEXT, True, False),
        "amount": (INT, True, False),
        "fee": (INT, False, False),
        "currency": (TEXT, True, False),
        "country": (TEXT, True, False),
        "method_code": (TEXT, True, False),
        "destination": (OBJECT, False, False),
        "merchant_reference": (TEXT, False, False),
        "failure_reason": (TEXT, False, True),
        "refund_id": (TEXT, False, True),
        "metadata": (OBJECT, False, False),
        "created_at": (TIME, True, False),
        "succeeded_at": (TIME, False, True),
    },
    "refund": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "status": (TEXT, True, False),
        "payment_id": (TEXT, True, False),
        "payout_id": (TEXT, False, True),
        "amount": (INT, True, False),
        "currency": (TEXT, True, False),
        "reason": (TEXT, False, True),
        "created_at": (TIME, True, False),
    },
    "deposit_reference": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "status": (TEXT, True, False),
        "country": (TEXT, True, False),
        "currency": (TEXT, True, False),
        "method_code": (TEXT, True, False),
        "merchant_reference": (TEXT, False, False),
        "details": (OBJECT, True, False),
        "created_at": (TIME, True, False),
    },
    "balance": {
        "object": (TEXT, True, False),
        "currency": (TEXT, True, False),
        "available": (INT, True, False),
        "pending": (INT, True, False),
        "reserve": (INT, True, False),
        "hold": (INT, True, False),
        "debt": (INT, True, False),
        "updated_at": (TIME, False, False),
    },
    "webhook_endpoint": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "url": (TEXT, True, False),
        "events": (LIST, True, False),
        "status": (TEXT, True, False),
        "created_at": (TIME, False, False),
    },
    "event": {
        "id": (TEXT, True, False),
        "object": (TEXT, True, False),
        "type": (TEXT, True, False),
        "created_at": (TIME, True, False),
        "data": (OBJECT, True, False),
    },
}
PREFIXES = {
    "payment": "pay_",
    "payout": "pout_",
    "refund": "ref_",
    "deposit_reference": "dep_",
    "webhook_endpoint": "whk_",
    "event": "evt_",
}


def has_type(value: Any, kind: str) -> bool:
    if kind == TIME:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    return type(value) is {TEXT: str, INT: int, OBJECT: dict, LIST: list}[kind]


def check(item: dict[str, Any], kind: str) -> None:
    table = TABLES[kind]
    assert item["object"] == kind
    assert set(item) <= set(table)
    assert {name for name, (_, required, _) in table.items() if required} <= set(item)
    for name, value in item.items():
        wanted, _, nullable = table[name]
        assert (value is None and nullable) or has_type(value, wanted), (name, value)
    if kind in PREFIXES:
        assert item["id"].startswith(PREFIXES[kind])


def test_a_payment_has_all_fields_in_every_status(engine: Engine, client: Client) -> None:
    full = {
        "payer": PAYER,
        "metadata": {"order": "7"},
        "merchant_reference": "o-7",
        "return_url": "https://shop.example/back",
    }
    for payment in (client.card(**full), client.card(), client.card(flow="s2s")):
        check(payment, "payment")
        check(engine.pay(payment["id"]), "payment")
        check(client.get(f"/payments/{payment['id']}").json, "payment")
    paid = client.get("/payments").json["data"][-1]
    assert (paid["payer"], paid["metadata"], paid["merchant_reference"]) == (PAYER, {"order": "7"}, "o-7")
    assert "return_url" not in paid


def test_absent_optional_fields_are_omitted(client: Client) -> None:
    payment = client.card()
    assert not {"payer", "merchant_reference"} & set(payment)
    assert payment["metadata"] == {}


def test_payouts_and_refunds_have_all_fields(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 1_000_000)
    payout = client.payout(merchant_reference="p-1", metadata={"a": "b"})
    check(payout, "payout")
    assert payout["destination"] == ACCOUNT
    assert payout["refund_id"] is None
    check(engine.succeed_payout(payout["id"]), "payout")
    for payment, extra in ((client.card(), {}), (client.bank(), {"destination": ACCOUNT})):
        engine.pay(payment["id"])
        refund = client.make("/refunds", {"payment_id": payment["id"], "reason": "changed mind", **extra})
        check(refund, "refund")
        assert refund["reason"] == "changed mind"
    check(client.get(f"/payouts/{refund['payout_id']}").json, "payout")


def test_a_deposit_reference_and_its_payment_have_all_fields(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", {**DEPOSIT, "payer": PAYER, "merchant_reference": "user-1"})
    check(reference, "deposit_reference")
    check(client.get(f"/deposit-references/{reference['id']}").json, "deposit_reference")
    check(engine.transfer(reference["id"], 500), "payment")


def test_balances_events_and_endpoints_have_all_fields(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 100_000)
    client.payout(amount=1_000)
    for balance in client.get("/balances").json["data"]:
        check(balance, "balance")
        assert ("updated_at" in balance) == (balance["currency"] == "CLP")
    events = client.get("/events").json["data"]
    assert events
    for event in events:
        check(event, "event")
        check(event["data"], event["data"]["object"])
        assert client.get(f"/events/{event['id']}").json == event
    created = client.make("/webhook-endpoints", {"url": "https://shop.example/hook"})
    assert isinstance(created.pop("secret"), str)
    check(created, "webhook_endpoint")
    check(client.get("/webhook-endpoints").json["data"][0], "webhook_endpoint")


@pytest.mark.parametrize(
    ("code", "kind", "field"),
    [
        ("cl_webpay_card", "redirect", "redirect_url"),
        ("cl_mach", "qr", "qr_payload"),
        ("cl_servipag", "voucher", "voucher_code"),
        ("cl_servipag", "voucher", "voucher_barcode"),
        ("cl_bank_transfer", "bank_transfer_details", "bank_transfer"),
        ("cl_bank_transfer", "bank_transfer_details", "reference"),
        ("cl_chek", "phone_otp", "reference"),
    ],
)
def test_each_method_has_its_next_action(client: Client, code: str, kind: str, field: str) -> None:
    payment = client.card(method_code=code, flow="s2s")
    action = payment["next_action"]
    assert (payment["status"], action["type"]) == ("requires_action", kind)
    assert action[field]
    assert action["expires_at"] == payment["expires_at"]
    if field == "bank_transfer":
        assert {type(value) for value in action[field].values()} == {str}
        assert set(action[field]) == {"bank_name", "account_number", "account_holder"}


def test_every_country_has_every_family_and_next_action(client: Client) -> None:
    methods = client.get("/payment-methods").json["data"]
    for country in ("CL", "CO", "EC", "PE", "MX", "BR"):
        here = [method for method in methods if method["country"] == country]
        assert {method["family"] for method in here} == {
            "card", "bank_redirect", "bank_transfer", "wallet", "cash", "deposit_reference",
        }  # fmt: skip
        assert {method["next_action"] for method in here} == {
            "redirect", "qr", "voucher", "bank_transfer_details", "phone_otp", "none",
        }  # fmt: skip
    assert {method["currency"] for method in methods} == {"CLP", "COP", "PEN", "MXN", "BRL", "USD"}


def test_every_listed_method_can_be_used_as_listed(engine: Engine, client: Client) -> None:
    for method in client.get("/payment-methods").json["data"]:
        body = {
            "country": method["country"],
            "currency": method["currency"],
            "method_code": method["code"],
        }
        engine.fund(method["currency"], 1_000_000)
        if "payment" in method["uses"]:
            payment = client.make("/payments", {**body, "amount": 1_000})
            assert payment["method_family"] == method["family"]
        if "payout" in method["uses"]:
            client.make("/payouts", {**body, "amount": 1_000, "destination": ACCOUNT})
        if "deposit_reference" in method["uses"]:
            client.make("/deposit-references", body)
        assert method["uses"]


def test_payment_methods_are_filtered(client: Client) -> None:
    def codes(**query: Any) -> set[str]:
        return {method["code"] for method in client.get("/payment-methods", **query).json["data"]}

    assert all(code.startswith("cl_") for code in codes(country="CL"))
    assert {code for code in codes(currency="USD") if not code.startswith("ec_")} == {"pe_bank_transfer_usd"}
    assert codes(country="MX", currency="BRL") == set()
    assert "mx_oxxo" in codes(amount=10_000_000_000)
    assert "mx_oxxo" not in codes(amount=10_000_000_001)
    for query in ({"country": "AR"}, {"currency": "BTC"}, {"amount": "12.5"}, {"amount": 0}, {"limit": 3}):
        reply = client.get("/payment-methods", **query)
        assert (reply.status, reply.error["code"]) == (400, "parameter_invalid")
        assert reply.error["param"] == next(iter(query))
