from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine, RateLimits, SandboxError, UnknownObjectError

from .support import ACCOUNT, CARD, PAYOUT, Client, Receiver


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
    with pytest.raises(TypeError, match="pass its id"):
        engine.pay(payment)  # type: ignore[arg-type]
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


# its own time, faults and logs


def test_a_project_has_its_own_clock(engine: Engine, client: Client) -> None:
    second = engine.add_project("sk_test_two")
    other = Client(engine, "sk_test_two")
    mine, theirs = client.card(), other.card()
    assert client.control("clock", {"advance": 7_200}, project="sk_test_two").status == 200
    assert client.get(f"/payments/{mine['id']}").json["status"] == "created"
    assert other.get(f"/payments/{theirs['id']}").json["status"] == "expired"
    assert client.control("clock", method="GET").json["now"].startswith("2026-01-15T12:00:00")
    assert not second.clock.is_frozen
    assert 7_190 < second.clock.ahead < 7_210
    shared = Clock()
    third = engine.add_project("sk_test_three", clock=shared)
    assert third.clock is shared


def test_a_project_has_its_own_faults(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_project("sk_test_two")
    other = Client(engine, "sk_test_two")
    other.make("/webhook-endpoints", {"url": "https://two.example/"})
    client.make("/webhook-endpoints", {"url": "https://one.example/"})
    other.control("faults", {"kind": "error", "times": None, "method": "GET"})
    other.control("faults", {"kind": "drop", "times": None})
    assert other.get("/balances").status == 500
    assert client.get("/balances").status == 200
    assert Client(engine, None).get("/balances").status == 401, "without a key it is the default project"
    client.card()
    other.card()
    engine.deliver_due()
    assert {url for url, _, _ in receiver.got} == {"https://one.example/"}
    assert client.control("faults", method="GET").json == {"faults": []}
    client.control("faults", method="DELETE")
    assert [fault["kind"] for fault in other.control("faults", method="GET").json["faults"]] == ["error", "drop"]


def test_a_project_has_its_own_logs_and_delivers_by_itself(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_project("sk_test_two")
    other = Client(engine, "sk_test_two")
    for caller in (client, other):
        caller.make("/webhook-endpoints", {"url": f"https://{caller.api_key}.example/"})
        caller.card()
    Client(engine, "sk_unknown").get("/balances")
    assert client.control("deliver").json == {"attempts": 1}
    for caller, statuses, sent in ((client, [401, 201, 201], 1), (other, [201, 201], 0)):
        assert [entry["status"] for entry in caller.listed("requests").json["data"]] == statuses
        assert len(caller.listed("deliveries").json["data"]) == sent
    assert len(engine.pending_deliveries) == len(engine.projects["sk_test_two"].pending_deliveries) == 1
    other.control("deliver")
    assert [len(project.deliveries) for project in engine.projects.values()] == [1, 1]
    assert len(engine.deliveries) == 2
    assert b"sk_" not in other.listed("deliveries").raw.replace(b"https://sk_test_two.example", b"")


# reset


def used(engine: Engine, api_key: str) -> Client:
    """Bring something into everything that a project holds."""
    client = Client(engine, api_key)
    client.make("/webhook-endpoints", {"url": "https://shop.example/"})
    client.post("/payments", CARD, key="once")
    client.control("trigger", {"event": "refund.succeeded"})
    client.control("terms", {"countries": ["CL"]})
    client.control("keys", {"api_key": f"{api_key}_more"})
    client.control("faults", {"kind": "html", "operation": "list_events"})
    client.control("clock", {"offset": 5_000})
    client.control("deliver")
    client.card()
    return client


def content(engine: Engine, api_key: str) -> dict[str, Any]:
    client = Client(engine, api_key)
    (books,) = (project for project in engine.books()["projects"] if project["api_key"] == api_key)
    return {
        **books,
        **{name: client.listed(name).json["data"] for name in ("requests", "deliveries")},
        "faults": client.control("faults", method="GET").json,
        "terms": engine.projects[api_key].terms,
        "keys": engine.projects[api_key].state.keys,
        "pending": engine.projects[api_key].pending_deliveries,
        "frozen": engine.projects[api_key].clock.is_frozen,
        "ahead": round(engine.projects[api_key].clock.ahead / 100),
    }


def fresh() -> Engine:
    engine = Engine(rate_limits=RateLimits(), transport=Receiver(), funds={"CLP": 500_000}, seed=4)
    engine.add_project("sk_test_two")
    return engine


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "ledger": [{**entry, "at": ""} for entry in found["ledger"]]}


def test_one_project_is_reset_and_the_other_keeps_all(engine: Engine) -> None:
    engine = fresh()
    first, second = (used(engine, key) for key in ("sk_test_sandbox", "sk_test_two"))
    kept = content(engine, "sk_test_sandbox")
    clock = engine.projects["sk_test_two"].clock
    running = engine.projects["sk_test_two"].state
    assert without_times(content(engine, "sk_test_two")) != without_times(content(fresh(), "sk_test_two"))
    reply = first.control("projects/sk_test_two_more", method="DELETE")
    assert (reply.status, reply.json) == (200, {"api_key": "sk_test_two"})
    assert without_times(content(engine, "sk_test_two")) == without_times(content(fresh(), "sk_test_two"))
    assert content(engine, "sk_test_sandbox") == kept
    assert engine.projects["sk_test_two"].clock is clock, "who follows the clock goes on"
    assert second.post("/payments", CARD, key="once").status == 201
    assert Client(engine, "sk_test_two_more").get("/balances").error["code"] == "api_key_invalid"
    assert running.dispatcher.pending() == []
    assert second.get("/balances").headers["RateLimit-Remaining"] == "199"
    second.control("projects/sk_test_two", method="DELETE")
    assert second.get("/payments").json["data"] == []


def test_everything_is_reset(engine: Engine, client: Client) -> None:
    engine = fresh()
    first, _ = (used(engine, key) for key in ("sk_test_sandbox", "sk_test_two"))
    Client(engine, "sk_unknown").get("/balances")
    reply = first.control("projects", method="DELETE")
    assert (reply.status, reply.json) == (200, {"api_key": "sk_test_sandbox"})
    assert list(engine.projects) == ["sk_test_sandbox"]
    assert without_times(content(engine, "sk_test_sandbox")) == without_times(content(fresh(), "sk_test_sandbox"))
    assert (engine.requests, engine.deliveries, engine.gateway.bodies) == ([], [], {})
    assert engine.default_project.payments == engine.payments == {}
    assert first.control("projects", {"api_key": "sk_test_two"}).status == 200


def test_a_reset_makes_the_first_endpoint_again_with_its_secret(engine: Engine, receiver: Receiver) -> None:
    engine.first_endpoint = "https://shop.example/", "whsec_first"
    for _ in range(2):
        engine.reset()
    (endpoint,) = engine.default_project.state.endpoints.by_id.values()
    assert (endpoint.url, endpoint.secret) == engine.first_endpoint
    Client(engine).card()
    engine.deliver_due()
    assert receiver.types == ["payment.created"]


def test_a_program_may_send_the_key_of_the_project_that_it_makes(engine: Engine) -> None:
    client = Client(engine, "sk_test_new")
    assert client.control("tick").status == 404
    assert client.control("projects", {"api_key": "sk_test_new"}).json == {"api_key": "sk_test_new"}
    assert client.control("tick").status == 200


def test_a_wrong_reset_is_refused(engine: Engine, client: Client) -> None:
    client.card()
    reply = client.control("projects/sk_test_none", method="DELETE")
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "resource_not_found", "project")
    assert "POST /_sandbox/projects" in reply.error["message"]
    assert client.control("projects/sk_test_sandbox", {"x": 1}, method="DELETE").status == 400
    for path in ("projects", "projects/sk_test_sandbox"):
        assert client.call("DELETE", f"/_sandbox/{path}", b"", None, origin="https://evil.example").status == 403
    assert len(engine.payments) == 1
