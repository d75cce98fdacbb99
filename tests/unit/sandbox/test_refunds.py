from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Engine, SandboxError

from .support import ACCOUNT, DEPOSIT, PAYOUT, Client, types_of

FEE = 300


@pytest.fixture(autouse=True)
def funded(engine: Engine) -> None:
    engine.fund("CLP", 100_000)


def paid_card(engine: Engine, client: Client, **changes: Any) -> str:
    payment_id: str = client.card(**changes)["id"]
    engine.pay(payment_id)
    return payment_id


def paid_transfer(engine: Engine, client: Client) -> str:
    payment_id: str = client.bank()["id"]
    engine.pay(payment_id)
    return payment_id


def test_a_card_refund_runs_without_a_payout(engine: Engine, client: Client) -> None:
    payment_id = paid_card(engine, client)
    available = engine.balances["CLP"]["available"]
    refund = client.make("/refunds", {"payment_id": payment_id})
    assert (refund["status"], refund["amount"], refund["currency"], refund["payout_id"]) == (
        "created", 10_000, "CLP", None,
    )  # fmt: skip
    assert engine.payouts == {}
    assert (engine.balances["CLP"]["available"], engine.balances["CLP"]["hold"]) == (available - 10_000, 10_000)
    assert engine.payments[payment_id]["refunded_amount"] == 0
    engine.succeed_refund(refund["id"])
    assert engine.balances["CLP"]["hold"] == 0
    assert engine.payments[payment_id]["refunded_amount"] == 10_000
    assert types_of(engine, "refund") == ["refund.created", "refund.processing", "refund.succeeded"]


@pytest.mark.parametrize("code", ["cl_khipu", "cl_bank_transfer", "cl_mach", "cl_servipag"])
def test_every_other_family_is_refunded_by_a_payout(engine: Engine, client: Client, code: str) -> None:
    payment_id = paid_card(engine, client, method_code=code)
    missing = client.post("/refunds", {"payment_id": payment_id})
    assert (missing.error["code"], missing.error["param"]) == ("parameter_missing", "destination")
    refund = client.make("/refunds", {"payment_id": payment_id, "destination": ACCOUNT, "amount": 4_000})
    payout = engine.payouts[refund["payout_id"]]
    assert (payout["refund_id"], payout["amount"], payout["fee"]) == (refund["id"], 4_000, FEE)
    assert payout["destination"] == ACCOUNT
    assert engine.balances["CLP"]["hold"] == 4_000 + FEE
    assert client.get(f"/payouts/{payout['id']}").json == payout
    engine.succeed_payout(payout["id"])
    assert engine.refunds[refund["id"]]["status"] == "succeeded"
    assert engine.payments[payment_id]["refunded_amount"] == 4_000


def test_a_deposit_is_refunded_by_a_payout(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    payment = engine.transfer(reference["id"], 5_000)
    refund = client.make("/refunds", {"payment_id": payment["id"], "destination": ACCOUNT})
    assert refund["payout_id"] in engine.payouts


ACTIONS = [
    ("process", "processing"),
    ("succeed", "succeeded"),
    ("fail", "failed"),
    ("cancel", "canceled"),
]


@pytest.mark.parametrize("by_card", [True, False])
@pytest.mark.parametrize(("action", "status"), [*ACTIONS, ("return", "returned")])
def test_refunds_by_card_and_by_payout_reach_each_status(
    engine: Engine, client: Client, by_card: bool, action: str, status: str
) -> None:
    payment_id = paid_card(engine, client) if by_card else paid_transfer(engine, client)
    destination = {} if by_card else {"destination": ACCOUNT}
    before = engine.balances["CLP"]["available"]
    fee = 0 if by_card else FEE
    refund_id = client.make("/refunds", {"payment_id": payment_id, "amount": 6_000, **destination})["id"]
    if action == "return":
        engine.succeed_refund(refund_id)
    refund = getattr(engine, f"{action}_refund")(refund_id)
    assert refund["status"] == status
    if not by_card:
        assert engine.payouts[refund["payout_id"]]["status"] == status
    events = [event["data"] for event in engine.events if event["type"] == f"refund.{status}"]
    assert events == ([] if status == "canceled" else [refund])  # there is no event type refund.canceled
    balance, payment = engine.balances["CLP"], engine.payments[payment_id]
    gone = {"processing": 6_000 + fee, "succeeded": 6_000 + fee, "returned": fee}.get(status, 0)
    assert balance["available"] == before - gone
    assert balance["hold"] == (6_000 + fee if status == "processing" else 0)
    assert payment["refunded_amount"] == (6_000 if status == "succeeded" else 0)
    again = client.post("/refunds", {"payment_id": payment_id, "amount": 10_000, **destination})
    assert (again.status == 201) == (status in ("failed", "canceled", "returned"))


def test_a_payout_on_hold_does_not_change_its_refund(engine: Engine, client: Client) -> None:
    refund = client.make("/refunds", {"payment_id": paid_transfer(engine, client), "destination": ACCOUNT})
    engine.hold_payout(refund["payout_id"])
    assert engine.refunds[refund["id"]]["status"] == "created"
    engine.succeed_payout(refund["payout_id"])
    assert engine.refunds[refund["id"]]["status"] == "succeeded"


def test_canceling_the_payout_cancels_the_refund(engine: Engine, client: Client) -> None:
    refund = client.make("/refunds", {"payment_id": paid_transfer(engine, client), "destination": ACCOUNT})
    assert client.post(f"/payouts/{refund['payout_id']}/cancel").status == 200
    assert client.get(f"/refunds/{refund['id']}").json["status"] == "canceled"
    assert types_of(engine, "refund") == ["refund.created"]


def test_no_more_than_was_received_can_be_refunded(engine: Engine, client: Client) -> None:
    payment_id = paid_card(engine, client)
    client.make("/refunds", {"payment_id": payment_id, "amount": 4_000})
    reply = client.post("/refunds", {"payment_id": payment_id, "amount": 6_001})
    assert (reply.error["code"], reply.error["param"]) == ("amount_out_of_range", "amount")
    assert client.make("/refunds", {"payment_id": payment_id})["amount"] == 6_000
    nothing = client.post("/refunds", {"payment_id": payment_id})
    assert (nothing.status, nothing.error["code"]) == (422, "invalid_state")


@pytest.mark.parametrize(("received", "status"), [(4_000, "partially_paid"), (12_000, "overpaid")])
def test_partial_and_excess_amounts_can_be_refunded(
    engine: Engine, client: Client, received: int, status: str
) -> None:
    payment_id = client.bank()["id"]
    assert engine.pay(payment_id, received)["status"] == status
    refund = client.make("/refunds", {"payment_id": payment_id, "destination": ACCOUNT})
    assert refund["amount"] == received


@pytest.mark.parametrize("action", [None, "open_checkout", "process", "fail", "expire", "hold", "chargeback"])
def test_only_payments_with_money_can_be_refunded(engine: Engine, client: Client, action: str | None) -> None:
    payment_id = client.card()["id"]
    if action == "chargeback":
        engine.pay(payment_id)
    if action is not None:
        getattr(engine, action)(payment_id)
    reply = client.post("/refunds", {"payment_id": payment_id})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (422, "invalid_state", "payment_id")


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"payment_id": None}, "parameter_missing", "payment_id"),
        ({"payment_id": 7}, "parameter_invalid", "payment_id"),
        ({"payment_id": "pay_none"}, "resource_not_found", "payment_id"),
        ({"amount": 0}, "amount_out_of_range", "amount"),
        ({"amount": "5"}, "parameter_invalid", "amount"),
        ({"reason": 5}, "parameter_invalid", "reason"),
        ({"destination": {**ACCOUNT, "holder_name": None}}, "parameter_missing", "destination.holder_name"),
        ({"currency": "CLP"}, "parameter_invalid", "currency"),
    ],
)
def test_an_invalid_refund_is_refused(
    engine: Engine, client: Client, changes: dict[str, Any], code: str, param: str
) -> None:
    body = {"payment_id": paid_card(engine, client), **changes}
    reply = client.post("/refunds", body)
    assert (reply.error["code"], reply.error["param"]) == (code, param)
    assert engine.refunds == {}


def test_a_refund_above_the_available_balance_is_refused(engine: Engine, client: Client) -> None:
    payment_id = paid_card(engine, client)
    client.payout(amount=engine.balances["CLP"]["available"] - FEE - 9_999)
    reply = client.post("/refunds", {"payment_id": payment_id})
    assert (reply.status, reply.error["code"], reply.error["type"], reply.error["param"]) == (
        422, "insufficient_balance", "invalid_state_error", "amount",
    )  # fmt: skip
    assert client.post("/refunds", {"payment_id": payment_id, "amount": 9_999}).status == 201


def test_a_refund_by_payout_also_needs_its_fee(engine: Engine, client: Client) -> None:
    payment_id = paid_transfer(engine, client)
    client.payout(amount=engine.balances["CLP"]["available"] - FEE - 10_299)
    body = {"payment_id": payment_id, "destination": ACCOUNT}
    assert client.post("/refunds", body).error["code"] == "insufficient_balance"
    engine.fund("CLP", 1)
    assert client.post("/refunds", body).status == 201


def test_a_debt_blocks_payouts_and_refunds(engine: Engine, client: Client) -> None:
    kept, lost = paid_card(engine, client), paid_card(engine, client)
    client.payout(amount=engine.balances["CLP"]["available"] - FEE)
    engine.chargeback(lost)
    assert engine.balances["CLP"]["debt"] == 10_000
    for path, body in (("/refunds", {"payment_id": kept, "amount": 1}), ("/payouts", {**PAYOUT, "amount": 1})):
        reply = client.post(path, body)
        assert (reply.status, reply.error["code"]) == (422, "insufficient_balance")
        assert "debt" in reply.error["message"]
    engine.fund("CLP", 10_000 + 1_000)
    assert client.post("/refunds", {"payment_id": kept, "amount": 1}).status == 201


def test_a_chargeback_excludes_the_refunded_amount(engine: Engine, client: Client) -> None:
    payment_id = paid_card(engine, client)
    engine.succeed_refund(client.make("/refunds", {"payment_id": payment_id, "amount": 3_000})["id"])
    available = engine.balances["CLP"]["available"]
    engine.chargeback(payment_id)
    assert engine.balances["CLP"]["available"] == available - 7_000
    full = paid_card(engine, client)
    client.make("/refunds", {"payment_id": full})
    with pytest.raises(SandboxError):
        engine.chargeback(full)


def test_refunds_can_be_listed_by_payment(engine: Engine, client: Client) -> None:
    first, second = paid_card(engine, client), paid_card(engine, client)
    wanted = client.make("/refunds", {"payment_id": first, "amount": 1})
    client.make("/refunds", {"payment_id": second, "amount": 1})
    assert client.get("/refunds", payment_id=first).json["data"] == [wanted]


ALL = ("created", "processing", "succeeded", "failed", "canceled", "returned")
ALLOWED = {
    "process": {"created"},
    "succeed": {"created", "processing"},
    "fail": {"created", "processing"},
    "cancel": {"created"},
    "return": {"succeeded"},
}


@pytest.mark.parametrize("action", ALLOWED)
@pytest.mark.parametrize("status", ALL)
def test_each_status_of_a_refund_allows_only_its_actions(
    engine: Engine, client: Client, action: str, status: str
) -> None:
    refund_id = client.make("/refunds", {"payment_id": paid_card(engine, client)})["id"]
    if status == "returned":
        engine.succeed_refund(refund_id)
    if status != "created":
        verb = {"processing": "process", "succeeded": "succeed", "failed": "fail", "canceled": "cancel"}
        getattr(engine, f"{verb.get(status, 'return')}_refund")(refund_id)
    if status in ALLOWED[action]:
        getattr(engine, f"{action}_refund")(refund_id)
    else:
        with pytest.raises(SandboxError):
            getattr(engine, f"{action}_refund")(refund_id)
        assert engine.refunds[refund_id]["status"] == status
