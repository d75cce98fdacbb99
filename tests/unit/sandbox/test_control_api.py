from __future__ import annotations

import json
from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine

from .support import ACCOUNT, CARD, DEPOSIT, Client, Receiver, types_of


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("open", None, "requires_action"),
        ("pay", None, "succeeded"),
        ("pay", {"amount": 4_000}, "partially_paid"),
        ("process", None, "processing"),
        ("fail", {"reason": "no_funds"}, "failed"),
        ("expire", None, "expired"),
        ("hold", None, "on_hold"),
    ],
)
def test_a_payment_can_be_changed_over_http(
    engine: Engine, client: Client, action: str, body: Any, status: str
) -> None:
    payment = client.bank()
    reply = client.control(f"payments/{payment['id']}/{action}", body)
    assert (reply.status, reply.json["status"]) == (200, status)
    assert engine.payments[payment["id"]] == reply.json
    assert reply.json["failure_reason"] == ("no_funds" if action == "fail" else None)


def test_a_payment_can_be_charged_back_over_http(client: Client) -> None:
    payment = client.card()
    client.control(f"payments/{payment['id']}/pay")
    assert client.control(f"payments/{payment['id']}/chargeback").json["status"] == "chargeback"


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        (["process"], "processing"),
        (["succeed"], "succeeded"),
        (["fail"], "failed"),
        (["succeed", "return"], "returned"),
        (["hold"], "on_hold"),
        (["delay"], "created"),
    ],
)
def test_a_payout_can_be_changed_over_http(client: Client, actions: list[str], status: str) -> None:
    assert client.control("fund", {"currency": "CLP", "amount": 100_000}).json["available"] == 100_000
    payout = client.payout()
    for action in actions:
        reply = client.control(f"payouts/{payout['id']}/{action}")
    assert (reply.status, reply.json["status"]) == (200, status)


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        (["process"], "processing"),
        (["succeed"], "succeeded"),
        (["fail"], "failed"),
        (["succeed", "return"], "returned"),
        (["cancel"], "canceled"),
    ],
)
def test_a_refund_can_be_changed_over_http(engine: Engine, client: Client, actions: list[str], status: str) -> None:
    engine.fund("CLP", 100_000)
    payment = client.card()
    engine.pay(payment["id"])
    refund = client.make("/refunds", {"payment_id": payment["id"]})
    for action in actions:
        reply = client.control(f"refunds/{refund['id']}/{action}")
    assert (reply.status, reply.json["status"]) == (200, status)


def test_a_deposit_reference_takes_transfers_and_can_be_disabled_over_http(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    payment = client.control(f"deposit-references/{reference['id']}/transfer", {"amount": 900}).json
    assert engine.payments[payment["id"]]["amount_received"] == 900
    assert client.control(f"deposit-references/{reference['id']}/disable").json["status"] == "disabled"
    assert client.control(f"deposit-references/{reference['id']}/transfer", {"amount": 900}).status == 422


def test_the_clock_can_be_moved_over_http(client: Client, clock: Clock) -> None:
    payment = client.card()
    assert client.control("clock", {"advance": 7_200}).json["now"].startswith("2026-01-15T14:00:00")
    assert client.get(f"/payments/{payment['id']}").json["status"] == "expired"
    assert client.control("clock", {"freeze": "2026-02-01T00:00:00Z"}).json == {
        "now": "2026-02-01T00:00:00.000000Z", "frozen": True,
    }  # fmt: skip
    assert client.control("clock", {"unfreeze": True}).json["frozen"] is False
    assert client.control("clock", {"offset": 10}).json["frozen"] is False
    assert client.control("clock", method="GET").status == 200
    for body in ({"advance": "soon"}, {"freeze": "tomorrow"}, {"warp": 9}):
        assert client.control("clock", body).status == 400


def test_faults_can_be_added_and_cleared_over_http(engine: Engine, client: Client) -> None:
    added = client.control("faults", {"kind": "error", "code": "blocked_payer", "times": 2})
    assert (added.status, added.json["used"]) == (200, 0)
    assert client.post("/payments", CARD).error["code"] == "blocked_payer"
    assert client.control("faults", method="GET").json["faults"][0]["used"] == 1
    assert client.control("faults", method="DELETE").json == {"faults": []}
    assert client.post("/payments", CARD).status == 201
    assert client.control("faults", {"kind": "nonsense"}).status == 400
    assert engine.faults.all() == []


def test_deliveries_can_be_sent_and_repeated_over_http(engine: Engine, client: Client, receiver: Receiver) -> None:
    endpoint = client.control(
        "endpoints", {"url": "http://host.docker.internal/hook", "events": ["payment.created"], "secret": "s"}
    ).json
    assert endpoint["secret"] == "s"
    client.card()
    assert client.control("deliver").json == {"attempts": 1}
    event = engine.events[0]
    assert client.control(f"events/{event['id']}/redeliver").json == {"queued": 1}
    assert client.control(f"events/{event['id']}/redeliver", {"endpoint_id": endpoint["id"]}).json == {"queued": 1}
    client.control("deliver")
    assert receiver.types == ["payment.created"] * 3
    engine.endpoint(endpoint["id"]).status = "disabled"
    assert client.control(f"endpoints/{endpoint['id']}/enable").json["status"] == "active"


def test_terms_and_api_keys_can_be_changed_over_http(engine: Engine, client: Client) -> None:
    terms = client.control("terms", {"active": False, "countries": ["PE"]}).json
    assert (terms["active"], terms["countries"], terms["require_whitelist"]) == (False, ["PE"], False)
    assert client.get("/balances").error["code"] == "merchant_not_active"
    client.control("terms", {"active": True, "require_whitelist": True, "countries": ["CL"]})
    client.control("whitelist", {"account_number": ACCOUNT["account_number"]})
    assert ACCOUNT["account_number"] in engine.terms.whitelist
    for body in ({"active": "no"}, {"countries": "CL"}, {"whitelist": []}):
        assert client.control("terms", body).status == 422
    client.control("keys", {"api_key": "sk_test_second"})
    client.control("revoke", {"api_key": "sk_test_sandbox"})
    assert client.get("/balances").error["code"] == "api_key_revoked"
    assert Client(engine, "sk_test_second").get("/balances").status == 200


def test_the_reserve_can_be_set_and_projects_added_over_http(engine: Engine, client: Client) -> None:
    assert client.control("projects", {"api_key": "sk_test_two"}).status == 200
    assert client.control("projects", {"api_key": "sk_test_two"}).status == 400
    body = {"currency": "PEN", "amount": 500}
    assert client.control("fund", body, project="sk_test_two").json["available"] == 500
    assert client.control("reserve", {**body, "amount": 200}, project="sk_test_two").json["reserve"] == 200
    assert engine.balances["PEN"]["available"] == 0
    assert client.control("fund", body, project="sk_test_none").status == 404
    assert client.control("tick").status == 200


def test_books_returns_the_whole_content(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 1_000)
    client.card()
    client.get("/payments")
    client.get("/nothing")
    books = client.control("books", method="GET").json
    project = books["projects"][0]
    assert project["payments"] == list(engine.payments.values())
    assert [event["type"] for event in project["events"]] == types_of(engine)
    assert project["balances"][0]["available"] == 1_000
    assert project["ledger"][0]["outside"] == 1_000
    assert (project["audit"], books["audit"]) == ([], [])
    assert books["request_counts"] == {"create_payment": 1, "list_payments": 1, "unknown": 1}
    assert [entry["status"] for entry in books["requests"]] == [201, 200, 404]
    assert set(project) >= {"payouts", "refunds", "deposit_references", "endpoints", "notifications"}
    assert client.control("books").status == 405


def test_unknown_objects_and_impossible_actions_are_errors(engine: Engine, client: Client) -> None:
    payment = client.card()
    assert client.control("payments/pay_none/pay").status == 404
    assert client.control(f"payouts/{payment['id']}/succeed").status == 404
    assert client.control(f"payments/{payment['id']}/dance").status == 404
    assert client.control("dance").status == 404
    assert client.control(f"payments/{payment['id']}/pay", method="GET").status == 405
    assert client.control(f"payments/{payment['id']}/chargeback").status == 422
    assert client.control(f"payments/{payment['id']}/pay", {"amount": "10"}).status == 422
    assert client.control("fund", {"currency": "EUR", "amount": 5}).status == 422
    assert client.control("fund", {}).status == 400
    assert client.control("fund", [1]).status == 400
    reply = client.call("POST", "/_sandbox/fund", b"{")
    assert (reply.status, set(reply.error)) == (400, {"type", "code", "message", "request_id"})
    assert engine.payments[payment["id"]]["status"] == "created"


def test_requests_from_pages_of_other_sites_are_refused(engine: Engine, client: Client) -> None:
    body = json.dumps({"currency": "CLP", "amount": 5}).encode()
    reply = client.call("POST", "/_sandbox/fund", body, origin="https://evil.example", host="127.0.0.1")
    assert reply.status == 403
    assert engine.balances["CLP"]["available"] == 0
