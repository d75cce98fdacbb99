from __future__ import annotations

import pytest

from payments_integration.sandbox import Engine, SandboxError, UnknownObjectError

from .support import ACCOUNT, PAYOUT, Client, Receiver


def test_projects_share_nothing(engine: Engine, client: Client, receiver: Receiver) -> None:
    second = engine.add_project("sk_test_two")
    other = Client(engine, "sk_test_two")
    engine.fund("CLP", 50_000)
    endpoint = client.make("/webhook-endpoints", {"url": "https://one.example/"})
    payment, payout = client.card(), client.payout()
    engine.pay(payment["id"])
    reference = client.make("/deposit-references", {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"})
    refund = client.make("/refunds", {"payment_id": payment["id"], "amount": 1})
    event = engine.events[0]
    for path in (
        f"/payments/{payment['id']}", f"/payouts/{payout['id']}", f"/refunds/{refund['id']}",
        f"/deposit-references/{reference['id']}", f"/events/{event['id']}",
    ):  # fmt: skip
        assert client.get(path).status == 200
        assert other.get(path).error["code"] == "resource_not_found"
    for path in ("/payments", "/payouts", "/refunds", "/events", "/webhook-endpoints"):
        assert other.get(path).json["data"] == []
        assert client.get(path).json["data"] != []
    assert other.post(f"/payments/{payment['id']}/cancel").status == 404
    assert other.post("/refunds", {"payment_id": payment["id"]}).status == 404
    assert other.delete(f"/webhook-endpoints/{endpoint['id']}").status == 404
    assert other.get("/payments", starting_after=payment["id"]).status == 404
    assert other.post("/payouts", PAYOUT).error["code"] == "insufficient_balance"
    assert second.balances["CLP"]["available"] == 0
    other.card()
    engine.deliver_due()
    assert {event["data"].get("id") for event in receiver.events} >= {payment["id"], payout["id"]}
    assert not {event["id"] for event in receiver.events} & {event["id"] for event in second.events}


def test_the_engine_finds_the_project_of_an_object(engine: Engine) -> None:
    second = engine.add_project("sk_test_two")
    payment = Client(engine, "sk_test_two").card()
    assert engine.payments == {}
    assert engine.pay(payment["id"])["status"] == "succeeded"
    assert second.payments[payment["id"]]["status"] == "succeeded"
    assert (second.balances["CLP"]["available"], engine.balances["CLP"]["available"]) == (9_710, 0)
    with pytest.raises(UnknownObjectError):
        engine.default_project.chargeback(payment["id"])
    for object_id in ("pay_none", ""):
        with pytest.raises(SandboxError):
            engine.pay(object_id)
    assert second.audit() == []


def test_an_api_key_can_be_used_by_one_project_only(engine: Engine) -> None:
    with pytest.raises(ValueError, match="already"):
        engine.add_project("sk_test_sandbox")
    engine.add_key("sk_test_second")
    with pytest.raises(ValueError, match="already"):
        engine.add_project("sk_test_second")


def test_returned_objects_are_copies(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 100_000)
    payment, payout = client.card(), client.payout()
    engine.payments[payment["id"]]["amount"] = 1
    engine.payouts[payout["id"]]["destination"]["account_number"] = "x"
    engine.balances["CLP"]["available"] = 1
    engine.events[0]["data"].clear()
    engine.deposit_references.clear()
    engine.pay(payment["id"])["amount"] = 1
    assert engine.payments[payment["id"]]["amount"] == 10_000
    assert engine.payouts[payout["id"]]["destination"] == ACCOUNT
    assert engine.events[0]["data"]


def test_the_newest_objects_come_last(engine: Engine, client: Client) -> None:
    ids = [client.card()["id"] for _ in range(3)]
    assert list(engine.payments) == ids
    assert [event["data"]["id"] for event in engine.events] == ids


def test_the_request_log_has_all_fields(engine: Engine, client: Client) -> None:
    client.post("/payments", {"amount": 1}, key="k")
    client.post("/payments", {"amount": 1}, key="k")
    entry, again = engine.requests
    assert {name: entry[name] for name in ("method", "path", "idempotency_key", "status", "operation")} == {
        "method": "POST", "path": "/v1/payments", "idempotency_key": "k", "status": 400,
        "operation": "create_payment",
    }  # fmt: skip
    assert entry["at"] == "2026-01-15T12:00:00.000000Z"
    assert entry["request_id"].startswith("req_")
    assert (entry["replayed"], again["replayed"]) == (False, True)


def test_a_project_may_start_with_money_that_no_event_reports() -> None:
    engine = Engine(funds={"CLP": 50_000})
    for project in (engine.default_project, engine.add_project("sk_test_two")):
        assert project.balances["CLP"]["available"] == 50_000
        assert project.balances["USD"]["available"] == 0
        assert (project.events, project.audit()) == ([], [])


def test_the_same_amount_as_at_first_is_reported_too() -> None:
    engine = Engine(funds={"CLP": 5_000})
    assert engine.fund("CLP", 5_000)["available"] == 5_000
    assert [event["data"]["available"] for event in engine.events] == [5_000]


def test_the_first_funding_replaces_what_is_left_of_it() -> None:
    engine = Engine(funds={"CLP": 50_000, "USD": 7})
    Client(engine).payout(amount=40_000)
    assert engine.fund("CLP", 5_000)["available"] == 5_000
    assert engine.fund("CLP", 5_000)["available"] == 10_000
    assert (engine.balances["CLP"]["hold"], engine.balances["USD"]["available"]) == (40_300, 7)
    assert [event["data"]["available"] for event in engine.events if event["type"] == "balance.updated"][-2:] == [
        5_000,
        10_000,
    ]
    assert engine.audit() == []


@pytest.mark.parametrize("funds", [{"EUR": 5}, {"CLP": 0}, {"CLP": 1.5}])
def test_a_project_starts_with_whole_minor_units_of_known_currencies(funds: dict[str, int]) -> None:
    with pytest.raises(SandboxError):
        Engine(funds=funds)
