from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from payments_integration.sandbox import Clock, Engine, Fault, SandboxServer

from .support import CARD, Client, Receiver

AUTH = {"Authorization": "Bearer sk_test_sandbox"}
URL = "https://shop.example/hook"


class Remote:
    """A client of a running server, without retries and redirects."""

    def __init__(self, server: SandboxServer, session: requests.Session) -> None:
        self.server, self.session = server, session

    def post(self, key: str = "k", path: str = "/payments", body: Any = CARD) -> requests.Response:
        headers = {"Idempotency-Key": key, **AUTH}
        return self.session.post(
            f"{self.server.url}/v1{path}", json=body, headers=headers, timeout=30, allow_redirects=False
        )

    def get(self, path: str) -> requests.Response:
        return self.session.get(f"{self.server.url}/v1{path}", headers=AUTH, timeout=30)


@pytest.fixture
def remote(server: SandboxServer) -> Iterator[Remote]:
    with requests.Session() as session:
        yield Remote(server, session)


@pytest.mark.parametrize("work", [False, True])
def test_a_reset_before_or_after_the_request_is_executed(engine: Engine, remote: Remote, work: bool) -> None:
    fault = engine.faults.add(Fault("reset", work=work))
    with pytest.raises(requests.ConnectionError) as caught:
        remote.post()
    assert "ConnectionResetError" in str(caught.value)
    assert len(engine.payments) == int(work)
    assert fault.used == 1
    assert (engine.requests[-1]["status"], engine.requests[-1]["fault"]) == (None, "reset")
    assert remote.post().json()["id"] in engine.payments
    assert len(engine.payments) == 1  # with the same key it is the same payment


def test_truncate_sends_half_of_the_body(engine: Engine, remote: Remote) -> None:
    engine.faults.add(Fault("truncate"))
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        remote.post()
    assert len(engine.payments) == 1
    assert remote.post().status_code == 201


def test_drip_sends_the_body_in_pieces(engine: Engine, remote: Remote) -> None:
    engine.faults.add(Fault("drip", delay=0.02, count=10))
    began = time.monotonic()
    assert remote.post().status_code == 201
    assert time.monotonic() - began >= 0.15


@pytest.mark.parametrize("work", [False, True])
def test_slow_delays_the_response(engine: Engine, remote: Remote, work: bool) -> None:
    engine.faults.add(Fault("slow", delay=0.1, work=work))
    began = time.monotonic()
    assert remote.post().status_code == 201
    assert time.monotonic() - began >= 0.1
    assert len(engine.payments) == 1


def test_stopping_does_not_wait_for_slow_responses(engine: Engine) -> None:
    with SandboxServer(engine, deliver=False) as server, requests.Session() as session:
        engine.faults.add(Fault("slow", delay=60))
        with pytest.raises(requests.Timeout):
            session.get(f"{server.url}/v1/balances", headers=AUTH, timeout=0.05)
        began = time.monotonic()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("work", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault("error"), 500, "internal_error"),
        (Fault("error", code="service_unavailable"), 503, "service_unavailable"),
        (Fault("error", code="provider_unavailable", status=504), 504, "provider_unavailable"),
        (Fault("in_progress"), 409, "idempotency_in_progress"),
        (Fault("rate_limited"), 429, "rate_limited"),
    ],
)
def test_an_error_before_or_after_the_request_is_executed(
    engine: Engine, client: Client, fault: Fault, status: int, code: str, work: bool
) -> None:
    engine.faults.add(Fault(fault.kind, code=fault.code, status=fault.status, work=work))
    reply = client.post("/payments", CARD, key="k")
    assert (reply.status, reply.error["code"]) == (status, code)
    assert len(engine.payments) == int(work)
    assert client.post("/payments", CARD, key="k").status == 201
    assert len(engine.payments) == 1


def test_html_is_sent_with_status_200(engine: Engine, client: Client) -> None:
    engine.faults.add(Fault("html"))
    reply = client.post("/payments", CARD)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert reply.raw.startswith(b"<!doctype html>")
    assert engine.payments == {}


def test_redirect_sends_a_302(engine: Engine, remote: Remote) -> None:
    engine.faults.add(Fault("redirect"))
    reply = remote.post()
    assert (reply.status_code, reply.headers["Location"]) == (302, "/maintenance")
    assert engine.payments == {}


@pytest.mark.parametrize("value", [None, "-1", "999999", "soon", "0"])
def test_rate_limited_sends_retry_after_unchanged(engine: Engine, client: Client, value: str | None) -> None:
    engine.faults.add(Fault("rate_limited", retry_after=value))
    reply = client.get("/balances")
    assert (reply.status, reply.headers.get("Retry-After")) == (429, value)


def test_a_response_with_a_wrong_id_or_type(engine: Engine, client: Client) -> None:
    engine.faults.add(Fault("wrong_id"))
    wrong = client.post("/payments", CARD, key="k").json
    assert wrong["id"].startswith("pay_")
    assert wrong["id"] not in engine.payments
    right = client.post("/payments", CARD, key="k").json
    assert {**wrong, "id": right["id"]} == right
    engine.faults.add(Fault("wrong_kind"))
    other = client.get(f"/payments/{right['id']}").json
    assert (other["object"], other["id"].split("_")[0]) == ("payout", "pout")
    engine.faults.add(Fault("wrong_id"))
    assert client.get("/payments").json["data"][0]["id"] != right["id"]
    engine.faults.add(Fault("wrong_id"))
    assert client.get("/balances").json["data"][0]["currency"] == "CLP"  # nothing to falsify


def test_no_date_omits_the_header(engine: Engine, remote: Remote) -> None:
    engine.faults.add(Fault("no_date"))
    assert "Date" not in remote.get("/balances").headers
    assert "Date" in remote.get("/balances").headers


def test_an_empty_page_with_has_more(engine: Engine, client: Client) -> None:
    client.card()
    engine.faults.add(Fault("empty_page", operation="list_payments"))
    assert client.get("/payments").json == {"object": "list", "has_more": True, "data": []}


@pytest.mark.parametrize(
    ("filters", "hit"),
    [
        ({"method": "POST"}, True),
        ({"method": "GET"}, False),
        ({"path": "/v1/payments"}, True),
        ({"path": "/payments"}, True),
        ({"path": "/payouts"}, False),
        ({"operation": "create_payment"}, True),
        ({"operation": "get_payment"}, False),
        ({"api_key": "sk_test_sandbox"}, True),
        ({"api_key": "sk_test_two"}, False),
        ({"method": "POST", "operation": "get_payment"}, False),
        ({"probability": 0.0}, False),
    ],
)
def test_which_requests_a_fault_matches(engine: Engine, client: Client, filters: dict[str, Any], hit: bool) -> None:
    fault = engine.faults.add(Fault("error", **filters))
    assert client.post("/payments", CARD).status == (500 if hit else 201)
    assert fault.used == int(hit)


def test_a_fault_applies_as_often_as_times_says(engine: Engine, client: Client) -> None:
    engine.faults.add(Fault("error", times=2))
    assert [client.get("/balances").status for _ in range(4)] == [500, 500, 200, 200]
    engine.faults.add(Fault("error", times=None))
    assert {client.get("/balances").status for _ in range(10)} == {500}
    engine.faults.clear()
    assert client.get("/balances").status == 200


def test_only_the_first_matching_fault_applies(engine: Engine, client: Client) -> None:
    first, second = engine.faults.add(Fault("html")), engine.faults.add(Fault("error"))
    client.get("/balances")
    assert (first.used, second.used) == (1, 0)


def test_the_same_seed_gives_the_same_faults(clock: Clock) -> None:
    def run(seed: int) -> list[int]:
        engine = Engine(clock=clock, rate_limits=False, seed=seed)
        engine.faults.add(Fault("error", times=None, probability=0.5))
        return [Client(engine).get("/balances").status for _ in range(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 5 < run(1).count(500) < 35


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "explode"}, "unknown kind 'explode': one of reset, error"),
        ({"kind": "error", "code": "nope"}, "unknown code 'nope': one of parameter_invalid"),
        ({"kind": "drop", "event_type": "x"}, "unknown event_type 'x': one of payment.created"),
        ({"kind": "error", "probability": 2}, "a probability is between 0 and 1"),
        # Each of these would never apply, so a test of what happens after the fault would be green.
        ({"kind": "error", "operation": "createPayment"}, "unknown operation 'createPayment': one of list_payment_m"),
        ({"kind": "error", "method": "post"}, "unknown method 'post': one of GET, POST, DELETE"),
        ({"kind": "error", "path": "payments"}, "path 'payments' must begin with a slash"),
        ({"kind": "error", "times": 0}, "times is at least 1, or None"),
        ({"kind": "error", "event_type": "payment.created"}, "fit 'error', a fault of requests: use method, path"),
        ({"kind": "html", "endpoint_id": "whk_1"}, "endpoint_id does not fit 'html'"),
        ({"kind": "drop", "operation": "create_payment"}, "fit 'drop', a fault of deliveries: use event_type, end"),
        ({"kind": "drop", "method": "POST"}, "method does not fit 'drop'"),
        ({"kind": "drop", "path": "/payments"}, "path does not fit 'drop'"),
    ],
)
def test_an_invalid_fault_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Fault(**fields)


# deliveries


@pytest.fixture
def endpoint(engine: Engine) -> dict[str, Any]:
    return engine.add_endpoint(URL, ["payment.created"])


def references(receiver: Receiver) -> list[str]:
    return [event["data"]["merchant_reference"] for event in receiver.events]


@pytest.mark.usefixtures("endpoint")
def test_duplicate_sends_a_delivery_twice(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.faults.add(Fault("duplicate"))
    client.card()
    assert engine.deliver_due() == 2
    assert receiver.got[0][2] == receiver.got[1][2]
    assert [entry["fault"] for entry in engine.deliveries] == ["duplicate", "duplicate"]


@pytest.mark.usefixtures("endpoint")
def test_reorder_sends_a_delivery_after_later_ones(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.faults.add(Fault("reorder", count=2))
    for name in "abcd":
        client.card(merchant_reference=name)
    engine.deliver_due()
    assert references(receiver) == ["b", "c", "a", "d"]


@pytest.mark.usefixtures("endpoint")
def test_reorder_waits_for_later_deliveries_only_for_its_delay(
    engine: Engine, client: Client, receiver: Receiver, clock: Clock
) -> None:
    engine.faults.add(Fault("reorder", delay=30))
    client.card(merchant_reference="a")
    engine.deliver_due()
    assert receiver.got == []
    clock.advance(30)
    engine.deliver_due()
    assert references(receiver) == ["a"]


@pytest.mark.usefixtures("endpoint")
def test_the_retry_of_an_earlier_delivery_does_not_release_a_reordered_one(
    engine: Engine, client: Client, receiver: Receiver, clock: Clock
) -> None:
    receiver.status = 500
    client.card(merchant_reference="a")
    engine.deliver_due()
    receiver.status = 200
    engine.faults.add(Fault("reorder", delay=600))
    client.card(merchant_reference="b")
    clock.advance(60)
    engine.deliver_due()
    assert references(receiver) == ["a", "a"]
    client.card(merchant_reference="c")
    engine.deliver_due()
    assert references(receiver) == ["a", "a", "c", "b"]


@pytest.mark.usefixtures("endpoint")
def test_drop_sends_nothing_and_keeps_the_event(
    engine: Engine, client: Client, receiver: Receiver, clock: Clock
) -> None:
    engine.faults.add(Fault("drop"))
    client.card()
    engine.deliver_due()
    clock.advance(100_000)
    engine.deliver_due()
    assert receiver.got == []
    assert [(entry["fault"], entry["acknowledged"]) for entry in engine.deliveries] == [("drop", True)]
    assert client.get("/events", type="payment.created").json["data"]


@pytest.mark.usefixtures("endpoint")
def test_delay_sends_a_delivery_later(engine: Engine, client: Client, receiver: Receiver, clock: Clock) -> None:
    engine.faults.add(Fault("delay", delay=120))
    client.card(merchant_reference="a")
    client.card(merchant_reference="b")
    engine.deliver_due()
    clock.advance(119)
    engine.deliver_due()
    assert references(receiver) == ["b"]
    clock.advance(1)
    engine.deliver_due()
    assert references(receiver) == ["b", "a"]


def test_bad_signature_applies_to_the_first_attempt_only(
    engine: Engine, client: Client, receiver: Receiver, clock: Clock, endpoint: dict[str, Any]
) -> None:
    engine.faults.add(Fault("bad_signature"))
    receiver.status = 400
    client.card()
    engine.deliver_due()
    clock.advance(60)
    engine.deliver_due()
    with_fault, without = (headers["Service-Signature"] for _, headers, _ in receiver.got)
    from_secret = engine.endpoint(endpoint["id"]).secret
    assert from_secret == endpoint["secret"]
    assert with_fault.split("v1=")[1] != without.split("v1=")[1]
    assert [entry["fault"] for entry in engine.deliveries] == ["bad_signature", None]


@pytest.mark.parametrize(
    ("filters", "hit"),
    [
        ({"event_type": "payment.created"}, True),
        ({"event_type": "payment.failed"}, False),
        ({"endpoint_id": "other"}, False),
        ({"api_key": "sk_test_sandbox"}, True),
    ],
)
@pytest.mark.usefixtures("endpoint")
def test_which_deliveries_a_fault_matches(
    engine: Engine, client: Client, receiver: Receiver, filters: dict[str, Any], hit: bool
) -> None:
    engine.faults.add(Fault("drop", **filters))
    client.card()
    engine.deliver_due()
    assert len(receiver.got) == int(not hit)


@pytest.mark.usefixtures("endpoint")
def test_faults_of_requests_do_not_apply_to_deliveries(engine: Engine, client: Client, receiver: Receiver) -> None:
    delivery, request = engine.faults.add(Fault("drop")), engine.faults.add(Fault("error", method="GET"))
    client.card()
    engine.deliver_due()
    assert (delivery.used, request.used) == (1, 0)
    client.get("/balances")
    assert (delivery.used, request.used) == (1, 1)
