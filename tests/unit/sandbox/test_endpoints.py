from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine
from payments_integration.sandbox.protocol import EVENT_TYPES

from .support import Client

HOOK = {"url": "https://shop.example/hook"}


def test_the_secret_is_shown_only_on_creation_and_rotation(client: Client) -> None:
    created = client.make("/webhook-endpoints", {**HOOK, "events": ["payment.succeeded"]})
    assert created["status"] == "active"
    assert created["secret"]
    listed = client.get("/webhook-endpoints").json["data"]
    assert [{**listed[0], "secret": created["secret"]}] == [created]
    rotated = client.post(f"/webhook-endpoints/{created['id']}/rotate-secret")
    assert rotated.status == 200
    assert rotated.json == {**created, "secret": rotated.json["secret"]}
    assert rotated.json["secret"] != created["secret"]
    assert "secret" not in client.get("/webhook-endpoints").json["data"][0]


def test_an_endpoint_subscribes_to_all_events_by_default(client: Client) -> None:
    assert client.make("/webhook-endpoints", HOOK)["events"] == list(EVENT_TYPES)
    chosen = ["refund.created", "payment.created", "refund.created"]
    assert client.make("/webhook-endpoints", {**HOOK, "events": chosen})["events"] == [
        "refund.created", "payment.created",
    ]  # fmt: skip


@pytest.mark.parametrize("events", [[], "payment.created", ["payment.suceeded"], [5]])
def test_an_endpoint_that_gets_no_delivery_cannot_be_added(engine: Engine, events: Any) -> None:
    with pytest.raises(ValueError, match=r"events: .* Known: payment.created, "):
        engine.add_endpoint(HOOK["url"], events)
    assert not engine.default_project.state.endpoints.by_id


def test_event_types_match_the_specification() -> None:
    assert len(EVENT_TYPES) == 25
    assert "payout.delayed" in EVENT_TYPES
    assert "refund.canceled" not in EVENT_TYPES


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "parameter_missing", "url"),
        ({"url": 5}, "parameter_invalid", "url"),
        ({"url": "shop.example/hook"}, "parameter_invalid", "url"),
        ({"url": "http://shop.example/hook"}, "parameter_invalid", "url"),
        ({"url": "http://127.0.0.1.evil.example/"}, "parameter_invalid", "url"),
        ({"url": "ftp://shop.example/hook"}, "parameter_invalid", "url"),
        ({"url": "https://"}, "parameter_invalid", "url"),
        ({"url": "https://shop.example:99999/"}, "parameter_invalid", "url"),
        ({**HOOK, "events": []}, "parameter_invalid", "events"),
        ({**HOOK, "events": "payment.created"}, "parameter_invalid", "events"),
        ({**HOOK, "events": ["payment.vanished"]}, "parameter_invalid", "events"),
        ({**HOOK, "events": ["*"]}, "parameter_invalid", "events"),
        ({**HOOK, "secret": "mine"}, "parameter_invalid", "secret"),
    ],
)
def test_an_invalid_endpoint_is_refused(engine: Engine, client: Client, body: Any, code: str, param: str) -> None:
    reply = client.post("/webhook-endpoints", body)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
    assert engine.endpoints == {}


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:8000", "[::1]:8000", "127.1.2.3", "shop.localhost"])
def test_plain_http_is_allowed_for_loopback_hosts(client: Client, host: str) -> None:
    client.make("/webhook-endpoints", {"url": f"http://{host}/hook"})


def test_at_most_ten_endpoints_can_be_active(engine: Engine, client: Client) -> None:
    ids = [client.make("/webhook-endpoints", HOOK)["id"] for _ in range(10)]
    reply = client.post("/webhook-endpoints", HOOK)
    assert (reply.status, reply.error["code"]) == (422, "limit_exceeded")
    engine.endpoint(ids[0]).status = "disabled"
    assert client.post("/webhook-endpoints", HOOK).status == 201
    client.delete(f"/webhook-endpoints/{ids[1]}")
    assert client.post("/webhook-endpoints", HOOK).status == 201


def test_a_deleted_endpoint_is_gone(client: Client) -> None:
    endpoint = client.make("/webhook-endpoints", HOOK)
    reply = client.delete(f"/webhook-endpoints/{endpoint['id']}")
    assert (reply.status, reply.json) == (
        200, {"id": endpoint["id"], "object": "webhook_endpoint", "deleted": True},
    )  # fmt: skip
    assert client.get("/webhook-endpoints").json == {"data": []}
    assert client.delete(f"/webhook-endpoints/{endpoint['id']}").error["code"] == "resource_not_found"


def test_the_old_secret_is_valid_for_24_hours_after_a_rotation(engine: Engine, client: Client, clock: Clock) -> None:
    endpoint = client.make("/webhook-endpoints", HOOK)
    first = endpoint["secret"]
    second = client.post(f"/webhook-endpoints/{endpoint['id']}/rotate-secret").json["secret"]
    state = engine.endpoint(endpoint["id"])
    assert state.secrets_at(clock.now()) == [second, first]
    clock.advance(86_399)
    third = client.post(f"/webhook-endpoints/{endpoint['id']}/rotate-secret").json["secret"]
    assert state.secrets_at(clock.now()) == [third, second]
    clock.advance(86_400)
    assert state.secrets_at(clock.now()) == [third]
