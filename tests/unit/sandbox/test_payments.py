from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine, SandboxError

from .support import CARD, PAYER, TRANSFER, Client, types_of

HOUR, DAY = 3_600, 86_400


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"amount": None}, "parameter_missing", "amount"),
        ({"currency": None}, "parameter_missing", "currency"),
        ({"country": None}, "parameter_missing", "country"),
        ({"method_code": None}, "parameter_missing", "method_code"),
        ({"amount": True}, "parameter_invalid", "amount"),
        ({"amount": 10.0}, "parameter_invalid", "amount"),
        ({"amount": "10"}, "parameter_invalid", "amount"),
        ({"amount": 0}, "amount_out_of_range", "amount"),
        ({"amount": -1}, "amount_out_of_range", "amount"),
        ({"amount": 2**63}, "amount_out_of_range", "amount"),
        ({"amount": 1_000_000_000_001}, "amount_out_of_range", "amount"),
        ({"currency": "BTC"}, "parameter_invalid", "currency"),
        ({"currency": ["CLP"]}, "parameter_invalid", "currency"),
        ({"country": "AR"}, "parameter_invalid", "country"),
        ({"method_code": "gold"}, "parameter_invalid", "method_code"),
        ({"method_code": "mx_oxxo"}, "method_not_available", "method_code"),
        ({"method_code": "cl_deposit"}, "method_not_available", "method_code"),
        ({"currency": "USD"}, "method_not_available", "method_code"),
        ({"flow": "deposit_reference"}, "parameter_invalid", "flow"),
        ({"merchant_reference": 7}, "parameter_invalid", "merchant_reference"),
        ({"merchant_reference": " "}, "parameter_invalid", "merchant_reference"),
        ({"merchant_reference": "x" * 256}, "parameter_invalid", "merchant_reference"),
        ({"return_url": "javascript:alert(1)"}, "parameter_invalid", "return_url"),
        ({"return_url": "/relative"}, "parameter_invalid", "return_url"),
        ({"return_url": "ftp://x.example"}, "parameter_invalid", "return_url"),
        ({"return_url": 'https://x.example/"><script>'}, "parameter_invalid", "return_url"),
        ({"payer": []}, "parameter_invalid", "payer"),
        ({"payer": {"email": "nobody"}}, "parameter_invalid", "payer.email"),
        ({"payer": {"phone": "0912345678"}}, "parameter_invalid", "payer.phone"),
        ({"payer": {"age": 3}}, "parameter_invalid", "payer.age"),
        ({"payer": {"document": {"type": "RUT"}}}, "parameter_missing", "payer.document.number"),
        ({"payer": {"document": {"number": "1"}}}, "parameter_missing", "payer.document.type"),
        ({"payer": {"document": {"type": "SSN", "number": "1"}}}, "parameter_invalid", "payer.document.type"),
        ({"metadata": ["a"]}, "parameter_invalid", "metadata"),
        ({"metadata": {"a": 1}}, "parameter_invalid", "metadata.a"),
        ({"metadata": {"a": "x" * 501}}, "parameter_invalid", "metadata.a"),
        ({"metadata": {str(n): "" for n in range(21)}}, "parameter_invalid", "metadata"),
        ({"surprise": 1}, "parameter_invalid", "surprise"),
        ({"payer": {"email": "blocked@example.com"}}, "blocked_payer", "payer"),
    ],
)
def test_an_invalid_payment_is_refused(
    engine: Engine, client: Client, changes: dict[str, Any], code: str, param: str
) -> None:
    reply = client.post("/payments", {**CARD, **changes})
    assert 400 <= reply.status < 500
    assert (reply.error["code"], reply.error["param"]) == (code, param)
    assert engine.payments == {}
    assert engine.events == []


@pytest.mark.parametrize("kind", ["RUT", "CC", "NIT", "CE", "PASS", "PPT", "RUC", "DL", "DNI", "CPP", "CPF", "CNPJ",
                                  "RFC", "CURP"])  # fmt: skip
def test_every_document_type_is_accepted(client: Client, kind: str) -> None:
    payer = {"document": {"type": kind, "number": "123"}}
    assert client.card(payer=payer)["payer"] == payer


def test_values_at_the_limits_are_accepted(client: Client) -> None:
    metadata = {str(n): "x" * 500 for n in range(20)}
    assert client.card(metadata=metadata)["metadata"] == metadata
    assert client.card(amount=1)["amount"] == 1
    assert client.card(payer=None, flow=None)["flow"] == "hosted"


def test_hosted_is_the_default_and_has_a_checkout_page(engine: Engine, client: Client) -> None:
    payment = client.card()
    assert (payment["flow"], payment["status"]) == ("hosted", "created")
    assert payment["checkout_url"].endswith(f"/checkout/{payment['id']}")
    assert payment["next_action"]["redirect_url"] == payment["checkout_url"]
    assert types_of(engine) == ["payment.created"]
    assert engine.open_checkout(payment["id"])["status"] == "requires_action"
    assert engine.open_checkout(payment["id"])["status"] == "requires_action"
    assert types_of(engine) == ["payment.created", "payment.requires_action"]


def test_s2s_requires_action_at_once_and_has_no_page(engine: Engine, client: Client) -> None:
    payment = client.card(flow="s2s")
    assert (payment["status"], payment["checkout_url"]) == ("requires_action", None)
    assert types_of(engine) == ["payment.created", "payment.requires_action"]


def test_a_direct_card_payment_is_processing_at_once(engine: Engine, client: Client) -> None:
    payment = client.card(flow="s2s", method_code="cl_card_direct")
    assert (payment["status"], payment["next_action"], payment["expires_at"]) == (
        "processing", {"type": "none"}, None,
    )  # fmt: skip
    assert engine.pay(payment["id"])["status"] == "succeeded"
    assert types_of(engine, "payment") == ["payment.created", "payment.processing", "payment.succeeded"]


def test_a_paid_payment_adds_the_amount_less_the_fee_to_the_balance(engine: Engine, client: Client) -> None:
    paid = engine.pay(client.card()["id"])
    assert (paid["status"], paid["amount_received"], paid["fee"], paid["net_amount"]) == (
        "succeeded", 10_000, 290, 9_710,
    )  # fmt: skip
    assert paid["succeeded_at"] is not None
    assert paid["next_action"] == {"type": "none"}
    assert engine.balances["CLP"]["available"] == 9_710
    assert types_of(engine) == [
        "payment.created", "payment.processing", "payment.succeeded", "balance.updated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fee"),
    [("cl_webpay_card", 290), ("cl_khipu", 150), ("cl_bank_transfer", 100), ("cl_mach", 200), ("cl_servipag", 250)],
)
def test_the_fee_of_each_family(engine: Engine, client: Client, code: str, fee: int) -> None:
    assert engine.pay(client.card(method_code=code)["id"])["fee"] == fee


@pytest.mark.parametrize("opened", [False, True])
def test_created_and_requires_action_can_be_canceled(engine: Engine, client: Client, opened: bool) -> None:
    payment = client.card()
    if opened:
        engine.open_checkout(payment["id"])
    reply = client.post(f"/payments/{payment['id']}/cancel")
    assert (reply.status, reply.json["status"]) == (200, "canceled")
    assert types_of(engine)[-1] == "payment.canceled"


def put_into(engine: Engine, client: Client, status: str) -> str:
    """A payment in this status; returns its id."""
    transfer = status in ("partially_paid", "overpaid")
    payment_id: str = (client.bank() if transfer else client.card())["id"]
    actions: dict[str, Any] = {
        "processing": lambda: engine.process(payment_id),
        "succeeded": lambda: engine.pay(payment_id),
        "failed": lambda: engine.fail(payment_id),
        "expired": lambda: engine.expire(payment_id),
        "canceled": lambda: client.post(f"/payments/{payment_id}/cancel"),
        "on_hold": lambda: engine.hold(payment_id),
        "partially_paid": lambda: engine.pay(payment_id, 4_000),
        "overpaid": lambda: engine.pay(payment_id, 14_000),
        "chargeback": lambda: (engine.pay(payment_id), engine.chargeback(payment_id)),
        "requires_action": lambda: engine.open_checkout(payment_id),
        "created": lambda: None,
    }
    actions[status]()
    assert engine.payments[payment_id]["status"] == status
    return payment_id


ALL = ("created", "requires_action", "processing", "succeeded", "failed", "expired", "canceled", "on_hold",
       "partially_paid", "overpaid", "chargeback")  # fmt: skip


@pytest.mark.parametrize("status", [status for status in ALL if status not in ("created", "requires_action")])
def test_no_other_status_can_be_canceled(engine: Engine, client: Client, status: str) -> None:
    payment_id = put_into(engine, client, status)
    before, events = engine.payments[payment_id], len(engine.events)
    reply = client.post(f"/payments/{payment_id}/cancel")
    assert (reply.status, reply.error["code"], reply.error["type"]) == (
        422, "invalid_state", "invalid_state_error",
    )  # fmt: skip
    assert (engine.payments[payment_id], len(engine.events)) == (before, events)


ALLOWED = {
    "pay": {"created", "requires_action", "processing", "expired", "on_hold", "partially_paid"},
    "fail": {"created", "requires_action", "processing", "on_hold"},
    "expire": {"created", "requires_action"},
    "hold": {"created", "requires_action", "processing"},
    "process": {"created", "requires_action"},
    "chargeback": {"succeeded"},
}


@pytest.mark.parametrize("action", ALLOWED)
@pytest.mark.parametrize("status", ALL)
def test_each_status_of_a_payment_allows_only_its_actions(
    engine: Engine, client: Client, action: str, status: str
) -> None:
    payment_id = put_into(engine, client, status)
    before = engine.payments[payment_id]
    if status in ALLOWED[action]:
        after = getattr(engine, action)(payment_id)
        assert after["status"] != status
        assert types_of(engine, "payment")[-1] == f"payment.{after['status']}"
    else:
        with pytest.raises(SandboxError):
            getattr(engine, action)(payment_id)
        assert engine.payments[payment_id] == before


@pytest.mark.parametrize("status", ALL)
def test_each_status_emits_an_event_with_the_object(engine: Engine, client: Client, status: str) -> None:
    payment_id = put_into(engine, client, status)
    event = [event for event in engine.events if event["type"] == f"payment.{status}"][-1]
    assert event["data"]["id"] == payment_id
    assert event["data"]["status"] == status
    assert event["data"] == {**engine.payments[payment_id]}


@pytest.mark.parametrize(("code", "lifetime"), [("cl_webpay_card", HOUR), ("cl_servipag", 3 * DAY)])
def test_a_payment_expires_by_the_clock(
    engine: Engine, client: Client, clock: Clock, code: str, lifetime: int
) -> None:
    payment = client.card(method_code=code)
    age = datetime.fromisoformat(payment["expires_at"]) - datetime.fromisoformat(payment["created_at"])
    assert age.total_seconds() == lifetime
    clock.advance(lifetime - 1)
    assert client.get(f"/payments/{payment['id']}").json["status"] == "created"
    clock.advance(2)
    assert client.get(f"/payments/{payment['id']}").json["status"] == "expired"
    assert types_of(engine)[-1] == "payment.expired"


@pytest.mark.parametrize("status", ["processing", "succeeded", "failed", "canceled", "on_hold"])
def test_other_statuses_do_not_expire(engine: Engine, client: Client, clock: Clock, status: str) -> None:
    payment_id = put_into(engine, client, status)
    clock.advance(30 * DAY - 60)
    assert engine.payments[payment_id]["status"] == status


@pytest.mark.parametrize("body", [CARD, TRANSFER])
def test_a_late_payment_succeeds_after_expiry(engine: Engine, client: Client, body: dict[str, Any]) -> None:
    payment = client.make("/payments", body)
    engine.expire(payment["id"])
    assert engine.pay(payment["id"])["status"] == "succeeded"
    assert types_of(engine, "payment")[-2:] == ["payment.expired", "payment.succeeded"]


def test_transfers_accept_partial_and_excess_amounts(engine: Engine, client: Client) -> None:
    payment = client.bank()
    part = engine.pay(payment["id"], 4_000)
    assert (part["status"], part["amount_received"], part["fee"], part["succeeded_at"]) == (
        "partially_paid", 4_000, 40, None,
    )  # fmt: skip
    assert engine.balances["CLP"]["available"] == 3_960
    assert engine.pay(payment["id"])["status"] == "succeeded"
    over = engine.pay(payment["id"], 500)
    assert (over["status"], over["amount_received"], over["net_amount"]) == ("overpaid", 10_500, 10_395)
    assert engine.balances["CLP"]["available"] == 10_395
    with pytest.raises(SandboxError):
        engine.pay(payment["id"])  # nothing is missing: an amount is needed


@pytest.mark.parametrize("code", ["cl_webpay_card", "cl_khipu", "cl_mach", "cl_servipag"])
def test_other_methods_refuse_partial_and_excess_amounts(engine: Engine, client: Client, code: str) -> None:
    payment = client.card(method_code=code)
    for amount in (9_999, 10_001):
        with pytest.raises(SandboxError):
            engine.pay(payment["id"], amount)
    engine.pay(payment["id"], 10_000)
    with pytest.raises(SandboxError):
        engine.pay(payment["id"], 1)


@pytest.mark.parametrize("amount", [0, -1, True, 1.5, "5", 10**13])
def test_an_invalid_amount_of_a_control_is_refused(engine: Engine, client: Client, amount: Any) -> None:
    with pytest.raises(SandboxError):
        engine.pay(client.bank()["id"], amount)


def test_money_on_hold_is_pending_until_it_is_released(engine: Engine, client: Client) -> None:
    payment = client.card()
    held = engine.hold(payment["id"])
    assert (held["status"], held["amount_received"]) == ("on_hold", 10_000)
    assert (engine.balances["CLP"]["pending"], engine.balances["CLP"]["available"]) == (9_710, 0)
    with pytest.raises(SandboxError):
        engine.pay(payment["id"], 5_000)
    engine.pay(payment["id"])
    assert (engine.balances["CLP"]["pending"], engine.balances["CLP"]["available"]) == (0, 9_710)


def test_money_on_hold_is_returned_when_the_payment_fails(engine: Engine, client: Client) -> None:
    payment = client.card()
    engine.hold(payment["id"])
    failed = engine.fail(payment["id"], "fraud_suspected")
    assert (failed["failure_reason"], failed["amount_received"], failed["net_amount"]) == ("fraud_suspected", 0, 0)
    assert engine.balances["CLP"]["pending"] == 0


def test_a_chargeback_of_a_card_payment_can_become_debt(engine: Engine, client: Client) -> None:
    transfer = client.bank()
    engine.pay(transfer["id"])
    with pytest.raises(SandboxError):
        engine.chargeback(transfer["id"])
    card = client.card()
    engine.pay(card["id"])
    engine.fund("CLP", 100)
    assert engine.chargeback(card["id"])["status"] == "chargeback"
    assert engine.balances["CLP"]["available"] == 9_900 + 9_710 + 100 - 10_000
    second = client.card(amount=20_000)
    engine.pay(second["id"])
    available = engine.balances["CLP"]["available"]
    client.payout(amount=available - 300)
    engine.chargeback(second["id"])
    assert engine.balances["CLP"]["debt"] == 20_000
    engine.fund("CLP", 25_000)
    assert (engine.balances["CLP"]["debt"], engine.balances["CLP"]["available"]) == (0, 5_000)


def test_a_later_transfer_does_not_change_succeeded_at(engine: Engine, client: Client, clock: Clock) -> None:
    payment = client.bank()
    succeeded_at = engine.pay(payment["id"])["succeeded_at"]
    clock.advance(60)
    assert engine.pay(payment["id"], 5)["succeeded_at"] == succeeded_at


def test_a_charged_back_payment_cannot_be_refunded(engine: Engine, client: Client) -> None:
    payment = client.card()
    engine.pay(payment["id"])
    payments = engine.default_project.state.payments
    assert payments.refundable(engine.payments[payment["id"]]) == 10_000
    engine.chargeback(payment["id"])
    assert payments.refundable(engine.payments[payment["id"]]) == 0


def test_a_chargeback_uses_the_reserve_first(engine: Engine, client: Client) -> None:
    card = client.card()
    engine.pay(card["id"])
    refused: list[tuple[str, Any]] = [("CLP", -5), ("CLP", 50.5), ("CLP", Decimal(50)), ("clp", 5)]
    for currency, amount in refused:
        with pytest.raises(SandboxError):
            engine.set_reserve(currency, amount)
    engine.set_reserve("CLP", 4_000)
    assert engine.balances["CLP"]["available"] == 5_710
    engine.chargeback(card["id"])
    balance = engine.balances["CLP"]
    assert (balance["reserve"], balance["available"], balance["debt"]) == (0, 0, 290)


def test_events_are_strictly_in_order(engine: Engine, client: Client) -> None:
    for _ in range(5):
        engine.pay(client.card(payer=PAYER)["id"])
    times = [event["created_at"] for event in engine.events]
    assert times == sorted(set(times))
    assert all(len(time) == len("2026-01-15T12:00:00.000000Z") and time.endswith("Z") for time in times)
