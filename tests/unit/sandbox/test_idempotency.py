from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine, Fault

from .support import CARD, DEPOSIT, PAYOUT, Client

DAY = 86_400


def test_a_post_without_an_idempotency_key_is_refused(engine: Engine, client: Client) -> None:
    for path in ("/payments", "/payouts", "/refunds", "/deposit-references", "/webhook-endpoints",
                 "/payments/p/cancel", "/payouts/p/cancel", "/webhook-endpoints/w/rotate-secret"):  # fmt: skip
        for headers in ({}, {"idempotency_key": ""}):
            reply = client.call("POST", f"/v1{path}", json.dumps(CARD).encode(), **headers)
            assert (reply.status, reply.error["code"], reply.error["param"]) == (
                400, "parameter_missing", "Idempotency-Key",
            )  # fmt: skip
    assert engine.payments == {}


def test_a_key_has_at_most_255_characters(client: Client) -> None:
    assert client.post("/payments", CARD, key="k" * 255).status == 201
    reply = client.post("/payments", CARD, key="k" * 256)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (
        400, "parameter_invalid", "Idempotency-Key",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/payments", CARD),
        ("/payouts", PAYOUT),
        ("/deposit-references", DEPOSIT),
        ("/webhook-endpoints", {"url": "https://shop.example/hook"}),
    ],
)
def test_a_repeated_key_returns_the_first_response(engine: Engine, client: Client, path: str, body: Any) -> None:
    engine.fund("CLP", 100_000)
    first = client.post(path, body, key="k")
    events = len(engine.events)
    again = client.post(path, body, key="k")
    assert (again.status, again.raw) == (first.status, first.raw)
    assert first.status == 201
    assert len(engine.events) == events
    assert len(engine.payments) + len(engine.payouts) + len(engine.deposit_references) + len(engine.endpoints) == 1


def test_a_repeated_response_shows_the_old_state_of_the_object(engine: Engine, client: Client) -> None:
    first = client.post("/payments", CARD, key="k")
    engine.pay(first.json["id"])
    assert client.post("/payments", CARD, key="k").raw == first.raw


def test_a_repeated_rotation_returns_the_same_secret(client: Client) -> None:
    endpoint = client.make("/webhook-endpoints", {"url": "https://shop.example/hook"})
    path = f"/webhook-endpoints/{endpoint['id']}/rotate-secret"
    first = client.post(path, key="k")
    assert client.post(path, key="k").raw == first.raw
    assert client.post(path, key="other").json["secret"] != first.json["secret"]


def test_the_same_key_with_another_body_is_a_conflict(engine: Engine, client: Client) -> None:
    client.post("/payments", CARD, key="k")
    reply = client.post("/payments", {**CARD, "amount": 1}, key="k")
    assert (reply.status, reply.error["type"], reply.error["code"]) == (
        409, "idempotency_error", "idempotency_conflict",
    )  # fmt: skip
    assert len(engine.payments) == 1


def test_bodies_are_compared_byte_by_byte(client: Client) -> None:
    raw = json.dumps(CARD).encode()
    assert client.call("POST", "/v1/payments", raw, idempotency_key="k").status == 201
    reply = client.call("POST", "/v1/payments", raw + b" ", idempotency_key="k")
    assert reply.error["code"] == "idempotency_conflict"


def test_the_same_key_at_another_path_is_a_conflict(client: Client) -> None:
    first, second = client.card(), client.card()
    assert client.post(f"/payments/{first['id']}/cancel", key="k").status == 200
    reply = client.post(f"/payments/{second['id']}/cancel", key="k")
    assert reply.error["code"] == "idempotency_conflict"


def test_keys_are_kept_for_24_hours(engine: Engine, client: Client, clock: Clock) -> None:
    first = client.post("/payments", CARD, key="k")
    clock.advance(DAY - 1)
    assert client.post("/payments", CARD, key="k").raw == first.raw
    clock.advance(2)
    assert client.post("/payments", CARD, key="k").json["id"] != first.json["id"]
    assert client.post("/payments", {**CARD, "amount": 5}, key="k").error["code"] == "idempotency_conflict"
    assert len(engine.payments) == 2


def test_a_key_older_than_24_hours_can_be_used_again(client: Client, clock: Clock) -> None:
    client.post("/payments", CARD, key="k")
    clock.advance(DAY)
    assert client.post("/payments", {**CARD, "amount": 5}, key="k").status == 201


def test_keys_belong_to_a_project(engine: Engine, client: Client) -> None:
    engine.add_project("sk_test_two")
    first = client.post("/payments", CARD, key="k").json
    second = Client(engine, "sk_test_two").post("/payments", {**CARD, "amount": 5}, key="k").json
    assert first["id"] != second["id"]


def test_an_error_of_the_operation_is_stored(engine: Engine, client: Client) -> None:
    first = client.post("/payouts", PAYOUT, key="k")
    assert first.error["code"] == "insufficient_balance"
    engine.fund("CLP", 100_000)
    assert client.post("/payouts", PAYOUT, key="k").raw == first.raw
    assert client.post("/payouts", PAYOUT, key="new").status == 201


def test_an_error_before_the_operation_is_not_stored(engine: Engine, client: Client) -> None:
    engine.terms.active = False
    assert client.post("/payments", CARD, key="k").status == 403
    engine.terms.active = True
    client.call("POST", "/v1/payments", b"{", idempotency_key="k")
    assert client.post("/payments", CARD, key="k").status == 201


def test_a_5xx_is_not_stored(engine: Engine, client: Client) -> None:
    engine.terms.broken_methods = {CARD["method_code"]}
    assert client.post("/payments", CARD, key="k").status == 502
    engine.terms.broken_methods = set()
    assert client.post("/payments", CARD, key="k").status == 201
    assert len(engine.payments) == 1


def test_a_key_is_in_progress_while_the_first_request_runs(engine: Engine, client: Client) -> None:
    engine.faults.add(Fault("slow", delay=60))
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.append(client.post("/payments", CARD, key="k")))
    thread.start()
    deadline = time.monotonic() + 30
    while "k" not in engine.default_project.state.idempotency.uses and time.monotonic() < deadline:
        time.sleep(0.001)
    second = client.post("/payments", CARD, key="k")
    assert second.status == 409
    assert (second.error["type"], second.error["code"]) == ("idempotency_error", "idempotency_in_progress")
    assert client.post("/payments", {**CARD, "amount": 1}, key="k").error["code"] == "idempotency_conflict"
    assert engine.payments == {}
    engine.gateway.closing.set()  # ends the pause
    thread.join()
    engine.gateway.closing.clear()
    assert replies[0].status == 201
    assert client.post("/payments", CARD, key="k").raw == replies[0].raw
    assert len(engine.payments) == 1


def test_equal_simultaneous_requests_create_one_object(engine: Engine, client: Client) -> None:
    replies: list[Any] = []
    threads = [
        threading.Thread(target=lambda: replies.append(client.post("/payments", CARD, key="k"))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engine.payments) == 1
    assert {reply.status for reply in replies} <= {201, 409}
    assert len({reply.raw for reply in replies if reply.status == 201}) == 1
