from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine, SandboxError

from .support import ACCOUNT, PAYOUT, Client, types_of

FEE = 300  # CLP
ALL = ("created", "processing", "succeeded", "failed", "canceled", "on_hold", "returned")


@pytest.fixture(autouse=True)
def funded(engine: Engine) -> None:
    engine.fund("CLP", 100_000)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"amount": None}, "parameter_missing", "amount"),
        ({"currency": None}, "parameter_missing", "currency"),
        ({"country": None}, "parameter_missing", "country"),
        ({"method_code": None}, "parameter_missing", "method_code"),
        ({"destination": None}, "parameter_missing", "destination"),
        ({"amount": 1.0}, "parameter_invalid", "amount"),
        ({"amount": 0}, "amount_out_of_range", "amount"),
        ({"method_code": "cl_webpay_card"}, "method_not_available", "method_code"),
        ({"destination": "bank"}, "parameter_invalid", "destination"),
        ({"destination": {**ACCOUNT, "type": None}}, "parameter_missing", "destination.type"),
        ({"destination": {**ACCOUNT, "type": "wallet"}}, "parameter_invalid", "destination.type"),
        ({"destination": {**ACCOUNT, "account_number": None}}, "parameter_missing", "destination.account_number"),
        ({"destination": {**ACCOUNT, "holder_name": None}}, "parameter_missing", "destination.holder_name"),
        ({"destination": {**ACCOUNT, "holder_document": None}}, "parameter_missing", "destination.holder_document"),
        (
            {"destination": {**ACCOUNT, "holder_document": {"type": "X", "number": "1"}}},
            "parameter_invalid",
            "destination.holder_document.type",
        ),
        ({"destination": {**ACCOUNT, "account_type": "gold"}}, "parameter_invalid", "destination.account_type"),
        ({"destination": {**ACCOUNT, "iban": "1"}}, "parameter_invalid", "destination.iban"),
        ({"metadata": {"a": None}}, "parameter_invalid", "metadata.a"),
        ({"payer": {}}, "parameter_invalid", "payer"),
        ({"amount": 99_701}, "insufficient_balance", "amount"),
    ],
)
def test_an_invalid_payout_is_refused(
    engine: Engine, client: Client, changes: dict[str, Any], code: str, param: str
) -> None:
    reply = client.post("/payouts", {**PAYOUT, **changes})
    assert (reply.error["code"], reply.error["param"]) == (code, param)
    assert engine.payouts == {}
    assert engine.balances["CLP"]["available"] == 100_000


def test_amount_and_fee_are_reserved(engine: Engine, client: Client) -> None:
    payout = client.payout()
    assert (payout["status"], payout["fee"]) == ("created", FEE)
    balance = engine.balances["CLP"]
    assert (balance["available"], balance["hold"]) == (100_000 - 10_300, 10_300)
    assert set(types_of(engine)[1:]) == {"balance.updated", "payout.created"}


def test_the_whole_balance_can_be_paid_out_but_not_more(engine: Engine, client: Client) -> None:
    reply = client.post("/payouts", {**PAYOUT, "amount": 99_701})
    assert (reply.status, reply.error["type"], reply.error["code"]) == (
        422, "invalid_state_error", "insufficient_balance",
    )  # fmt: skip
    client.payout(amount=99_700)
    assert engine.balances["CLP"]["available"] == 0


@pytest.mark.parametrize("country", ["CO", "EC", "PE", "MX", "BR"])
def test_each_currency_has_its_own_balance(engine: Engine, client: Client, country: str) -> None:
    method = next(
        method for method in client.get("/payment-methods", country=country).json["data"] if "payout" in method["uses"]
    )
    body = {**PAYOUT, "country": country, "currency": method["currency"], "method_code": method["code"]}
    assert client.post("/payouts", body).error["code"] == "insufficient_balance"


def put_into(engine: Engine, client: Client, status: str) -> str:
    payout_id: str = client.payout()["id"]
    actions: dict[str, Any] = {
        "created": lambda: None,
        "processing": lambda: engine.process_payout(payout_id),
        "succeeded": lambda: engine.succeed_payout(payout_id),
        "failed": lambda: engine.fail_payout(payout_id),
        "canceled": lambda: client.post(f"/payouts/{payout_id}/cancel"),
        "on_hold": lambda: engine.hold_payout(payout_id),
        "returned": lambda: (engine.succeed_payout(payout_id), engine.return_payout(payout_id)),
    }
    actions[status]()
    assert engine.payouts[payout_id]["status"] == status
    return payout_id


# status -> the available balance and the hold, after a start with 100,000
MONEY = {
    "created": (89_700, 10_300),
    "processing": (89_700, 10_300),
    "on_hold": (89_700, 10_300),
    "succeeded": (89_700, 0),
    "failed": (100_000, 0),
    "canceled": (100_000, 0),
    "returned": (99_700, 0),
}


@pytest.mark.parametrize("status", ALL)
def test_each_status_moves_the_money_and_emits_its_event(engine: Engine, client: Client, status: str) -> None:
    payout_id = put_into(engine, client, status)
    balance = engine.balances["CLP"]
    assert (balance["available"], balance["hold"]) == MONEY[status]
    event = [event for event in engine.events if event["type"] == f"payout.{status}"][-1]
    assert event["data"] == engine.payouts[payout_id]
    assert (engine.payouts[payout_id]["succeeded_at"] is not None) == (status in ("succeeded", "returned"))


@pytest.mark.parametrize("status", ALL)
def test_only_a_created_payout_can_be_canceled(engine: Engine, client: Client, status: str) -> None:
    payout_id = put_into(engine, client, status)
    reply = client.post(f"/payouts/{payout_id}/cancel")
    if status == "created":
        assert (reply.status, reply.json["status"]) == (200, "canceled")
    else:
        assert (reply.status, reply.error["code"]) == (422, "invalid_state")
        assert engine.payouts[payout_id]["status"] == status


ALLOWED = {
    "process_payout": {"created", "on_hold"},
    "succeed_payout": {"created", "processing", "on_hold"},
    "fail_payout": {"created", "processing", "on_hold"},
    "hold_payout": {"created", "processing"},
    "return_payout": {"succeeded"},
    "delay_payout": {"created", "processing", "on_hold"},
}


@pytest.mark.parametrize("action", ALLOWED)
@pytest.mark.parametrize("status", ALL)
def test_each_status_of_a_payout_allows_only_its_actions(
    engine: Engine, client: Client, action: str, status: str
) -> None:
    payout_id = put_into(engine, client, status)
    if status in ALLOWED[action]:
        getattr(engine, action)(payout_id)
    else:
        with pytest.raises(SandboxError):
            getattr(engine, action)(payout_id)


def test_a_delay_emits_an_event_without_a_change(engine: Engine, client: Client) -> None:
    payout_id = put_into(engine, client, "processing")
    before = engine.payouts[payout_id]
    engine.delay_payout(payout_id)
    assert types_of(engine)[-1] == "payout.delayed"
    assert engine.events[-1]["data"] == before == engine.payouts[payout_id]


def test_the_failure_reason_is_stored(engine: Engine, client: Client) -> None:
    assert engine.fail_payout(client.payout()["id"], "wrong_account")["failure_reason"] == "wrong_account"


def test_a_required_whitelist_is_enforced_after_24_hours(engine: Engine, client: Client, clock: Clock) -> None:
    engine.terms.require_whitelist = True
    refused = client.post("/payouts", PAYOUT)
    assert (refused.error["code"], refused.error["param"]) == ("parameter_invalid", "destination.account_number")
    engine.whitelist(ACCOUNT["account_number"])
    clock.advance(86_399)
    assert client.post("/payouts", PAYOUT).status == 400
    clock.advance(1)
    assert client.post("/payouts", PAYOUT).status == 201


def test_automatic_progress_follows_the_clock(clock: Clock) -> None:
    engine = Engine(clock=clock, rate_limits=False, auto_progress=10)
    client = Client(engine)
    engine.fund("CLP", 100_000)
    payout_id = client.payout()["id"]
    direct_id = client.card(flow="s2s", method_code="cl_card_direct")["id"]
    held_id = client.payout(amount=1_000)["id"]
    engine.hold_payout(held_id)
    clock.advance(9)
    assert engine.payouts[payout_id]["status"] == "created"
    clock.advance(1)
    assert engine.payouts[payout_id]["status"] == "processing"
    assert engine.payments[direct_id]["status"] == "succeeded"
    clock.advance(10)
    assert engine.payouts[payout_id]["status"] == "succeeded"
    card = client.card()
    engine.pay(card["id"])
    refund = client.make("/refunds", {"payment_id": card["id"], "amount": 100})
    clock.advance(25)
    assert engine.refunds[refund["id"]]["status"] == "succeeded"
    assert types_of(engine, "refund") == ["refund.created", "refund.processing", "refund.succeeded"]
    assert engine.payouts[held_id]["status"] == "on_hold"
    assert engine.audit() == []
