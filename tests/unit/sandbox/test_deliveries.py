from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import time_machine

from payments_integration.sandbox import Clock, Engine, SandboxError, deliveries
from payments_integration.sandbox.deliveries import HttpTransport, NotAcknowledgedError

from .support import Client, Receiver

MINUTE, HOUR, DAY = 60, 3_600, 86_400
URL = "https://shop.example/hook"


@pytest.fixture
def endpoint(engine: Engine) -> dict[str, str]:
    """It subscribes to one type only, so that expiring payments do not add deliveries."""
    return engine.add_endpoint(URL, ["payment.created"])


def parts(header: str) -> tuple[int, list[str]]:
    pairs = [part.split("=", 1) for part in header.split(",")]
    assert pairs[0][0] == "t"
    assert {name for name, _ in pairs[1:]} == {"v1"}
    return int(pairs[0][1]), [value for _, value in pairs[1:]]


def signed(secret: str, unix_time: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{unix_time}.".encode() + body, hashlib.sha256).hexdigest()


def test_a_delivery_contains_the_signed_event(
    engine: Engine, client: Client, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    payment = client.card(merchant_reference="pedido ñ")
    assert engine.deliver_due() == 1
    url, headers, body = receiver.got[0]
    assert (url, headers["Content-Type"]) == (URL, "application/json")
    unix_time, values = parts(headers["Service-Signature"])
    assert abs(unix_time - time.time()) < 60
    assert values == [signed(endpoint["secret"], unix_time, body)]
    assert json.loads(body) == client.get("/events").json["data"][0]
    assert json.loads(body)["data"] == payment
    assert "ñ".encode() in body


def test_deliveries_have_two_signatures_for_24_hours_after_a_rotation(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    new = client.post(f"/webhook-endpoints/{endpoint['id']}/rotate-secret").json["secret"]
    clock.advance(DAY - 1)
    client.card()
    engine.deliver_due()
    engine.dispatcher.old_signature_first = True
    client.card()
    engine.deliver_due()
    clock.advance(1)
    client.card()
    engine.deliver_due()
    orders = []
    for _, headers, body in receiver.got[-1:] + receiver.got[:2]:
        unix_time, values = parts(headers["Service-Signature"])
        names = {signed(new, unix_time, body): "new", signed(endpoint["secret"], unix_time, body): "old"}
        orders.append([names[value] for value in values])
    assert orders == [["new"], ["new", "old"], ["old", "new"]]


def test_an_endpoint_receives_only_the_types_it_subscribes_to(
    engine: Engine, client: Client, receiver: Receiver
) -> None:
    engine.add_endpoint(URL, ["payment.succeeded"])
    engine.pay(client.card()["id"])
    engine.deliver_due()
    assert receiver.types == ["payment.succeeded"]


def test_every_endpoint_receives_the_same_bytes(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_endpoint("https://one.example/")
    engine.add_endpoint("https://two.example/")
    client.card()
    assert engine.deliver_due() == 2
    assert {url for url, _, _ in receiver.got} == {"https://one.example/", "https://two.example/"}
    assert len({body for _, _, body in receiver.got}) == 1


def test_events_older_than_the_endpoint_are_not_sent(engine: Engine, client: Client, receiver: Receiver) -> None:
    client.card()
    engine.add_endpoint(URL)
    assert engine.deliver_due() == 0


SCHEDULE = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, DAY]


@pytest.mark.usefixtures("endpoint")
def test_failed_deliveries_follow_the_retry_schedule(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver
) -> None:
    receiver.status = 500
    client.card()
    with time_machine.travel(0, tick=False) as real:
        assert engine.deliver_due() == 1
        for number, wait in enumerate(SCHEDULE, start=2):
            real.shift(1)
            clock.advance(wait - 1)
            assert engine.deliver_due() == 0
            clock.advance(1)
            assert engine.deliver_due() == 1
            assert engine.deliveries[-1]["attempt"] == number
    assert [parts(headers["Service-Signature"])[0] for _, headers, _ in receiver.got] == list(range(9))
    assert sum(SCHEDULE) <= 3 * DAY < sum(SCHEDULE) + DAY
    clock.advance(30 * DAY)
    assert engine.deliver_due() == 0
    assert engine.pending_deliveries == []
    assert len({body for _, _, body in receiver.got}) == 1


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("move", [600, -600, 40 * DAY])
def test_a_signature_has_real_time_wherever_the_sandbox_s_clock_stands(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver, move: int
) -> None:
    clock.unfreeze()
    clock.set_offset(move)
    client.card()
    engine.deliver_due()
    (_, headers, body), now = receiver.got[0], time.time()
    assert abs(parts(headers["Service-Signature"])[0] - now) < 60
    created_at = datetime.fromisoformat(json.loads(body)["created_at"]).timestamp()
    assert abs(created_at - now - move) < 60
    assert engine.deliveries[0]["at"] >= json.loads(body)["created_at"]


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_acknowledges_a_delivery(engine: Engine, client: Client, receiver: Receiver, status: int) -> None:
    receiver.status = status
    client.card()
    engine.deliver_due()
    assert engine.pending_deliveries == []
    assert (engine.deliveries[0]["status"], engine.deliveries[0]["acknowledged"]) == (status, True)


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("status", [100, 199, 300, 302, 400, 404, 410, 500, 503])
def test_other_statuses_do_not_acknowledge_a_delivery(
    engine: Engine, client: Client, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    client.card()
    engine.deliver_due()
    assert len(engine.pending_deliveries) == 1
    assert (engine.deliveries[0]["status"], engine.deliveries[0]["acknowledged"]) == (status, False)


@pytest.mark.usefixtures("endpoint")
def test_a_delivery_without_an_answer_is_logged_and_retried(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver
) -> None:
    receiver.error = NotAcknowledgedError("timed out")
    client.card()
    engine.deliver_due()
    assert (engine.deliveries[0]["status"], engine.deliveries[0]["error"]) == (None, "timed out")
    receiver.error = None
    clock.advance(MINUTE)
    engine.deliver_due()
    assert engine.deliveries[-1]["acknowledged"] is True


def fail_once(engine: Engine, client: Client, receiver: Receiver) -> None:
    receiver.status = 500
    client.card()
    engine.deliver_due()


def test_an_endpoint_is_failing_after_3_days_of_failures(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    fail_once(engine, client, receiver)
    clock.advance(3 * DAY - 1)
    assert engine.endpoint(endpoint["id"]).failing is False
    clock.advance(1)
    state = engine.endpoint(endpoint["id"])
    assert (state.failing, state.status) == (True, "active")
    listed = client.get("/webhook-endpoints").json["data"][0]
    assert (listed["status"], "failing" in listed) == ("active", False)
    assert client.get("/events", type="payment.created").json["data"]  # still readable
    receiver.status = 200
    client.card()
    engine.deliver_due()
    assert engine.endpoint(endpoint["id"]).failing is False


def test_an_endpoint_is_disabled_after_7_days_of_failures(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    for _ in range(7):
        fail_once(engine, client, receiver)
        clock.advance(DAY - 1)
    assert engine.endpoints[endpoint["id"]]["status"] == "active"
    clock.advance(7)
    fail_once(engine, client, receiver)
    assert client.get("/webhook-endpoints").json["data"][0]["status"] == "disabled"
    assert [(note["what"], note["endpoint_id"]) for note in engine.notifications] == [("disabled", endpoint["id"])]
    sent = len(receiver.got)
    client.card()
    clock.advance(DAY)
    assert engine.deliver_due() == 0
    assert len(receiver.got) == sent
    receiver.status = 200
    assert engine.enable_endpoint(endpoint["id"])["status"] == "active"
    client.card()
    assert engine.deliver_due() >= 1


def test_a_success_ends_a_series_of_failures(
    engine: Engine, client: Client, clock: Clock, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    for day in range(12):
        fail_once(engine, client, receiver)
        if day == 6:
            receiver.status = 200
            client.card()
            engine.deliver_due()
        clock.advance(DAY)
    assert engine.endpoints[endpoint["id"]]["status"] == "active"


@pytest.mark.usefixtures("endpoint")
def test_events_are_kept_for_30_days(engine: Engine, client: Client, clock: Clock) -> None:
    client.card()
    event = engine.events[0]
    clock.advance(30 * DAY - 1)
    assert client.get(f"/events/{event['id']}").status == 200
    clock.advance(2)
    assert client.get(f"/events/{event['id']}").error["code"] == "resource_not_found"
    assert event["id"] not in {item["id"] for item in client.get("/events").json["data"]}
    with pytest.raises(SandboxError):
        engine.redeliver(event["id"])


def test_an_event_can_be_delivered_again(
    engine: Engine, client: Client, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    other = engine.add_endpoint("https://other.example/", ["refund.created"])
    client.card()
    engine.deliver_due()
    event = engine.events[0]
    assert engine.redeliver(event["id"]) == 1
    assert engine.deliver_due() == 1
    assert engine.redeliver(event["id"], other["id"]) == 1
    assert engine.deliver_due() == 1
    assert [url for url, _, _ in receiver.got] == [URL, URL, "https://other.example/"]
    assert len({body for _, _, body in receiver.got}) == 1
    engine.endpoint(other["id"]).status = "disabled"
    for arguments in ((event["id"], other["id"]), (event["id"], "whk_none"), ("evt_none",)):
        with pytest.raises(SandboxError):
            engine.redeliver(*arguments)


def test_a_deleted_endpoint_receives_no_more_deliveries(
    engine: Engine, client: Client, receiver: Receiver, endpoint: dict[str, str]
) -> None:
    client.card()
    client.delete(f"/webhook-endpoints/{endpoint['id']}")
    assert engine.deliver_due() == 0
    assert receiver.got == []


# over HTTP


class Shop:
    """A merchant's server on this machine, with the ``status`` and ``delay`` of its answers."""

    def __init__(self) -> None:
        shop = self
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.status, self.delay = 200, 0.0
        self.arrived = threading.Event()
        self.done = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                shop.paths.append(self.path)
                shop.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                shop.headers = dict(self.headers)
                shop.arrived.set()
                shop.done.wait(shop.delay)
                self.send_response(shop.status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Shop:
        self.thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.done.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_deliveries_over_http_ignore_redirects_proxies_and_netrc(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w") as file:
        file.write("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", netrc)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    engine.transport = None
    with Shop() as shop:
        endpoint = engine.add_endpoint(f"{shop.url}/hook")
        shop.status = 302
        client.card()
        engine.deliver_due()
        assert shop.paths == ["/hook"]
        assert "Authorization" not in shop.headers
        assert shop.headers["Content-Type"] == "application/json"
        unix_time, values = parts(shop.headers["Service-Signature"])
        assert values == [signed(endpoint["secret"], unix_time, shop.bodies[0])]
        assert engine.deliveries[0]["status"] == 302


def test_a_late_answer_does_not_acknowledge_a_delivery(engine: Engine, client: Client) -> None:
    assert engine.dispatcher.ack_timeout == 10.0
    engine.transport = None
    engine.dispatcher.ack_timeout = 0.1
    with Shop() as shop:
        shop.delay = 60
        engine.add_endpoint(f"{shop.url}/hook")
        client.card()
        began = time.monotonic()
        engine.deliver_due()
        assert time.monotonic() - began < 20
        assert engine.deliveries[0]["acknowledged"] is False
        assert "Timeout" in engine.deliveries[0]["error"]


@pytest.mark.parametrize(("seconds", "in_time"), [(10.0, True), (10.1, False)])
def test_an_answer_counts_within_10_seconds_in_total(
    monkeypatch: pytest.MonkeyPatch, seconds: float, in_time: bool
) -> None:
    readings = iter([100.0, 100.0 + seconds])
    monkeypatch.setattr(deliveries, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    with Shop() as shop, HttpTransport() as send:
        if in_time:
            assert send(shop.url, {}, b"{}") == 200
        else:
            with pytest.raises(NotAcknowledgedError, match="after more than 10 seconds"):
                send(shop.url, {}, b"{}")


def test_a_refused_connection_is_logged(engine: Engine, client: Client) -> None:
    engine.transport = None
    engine.add_endpoint("http://127.0.0.1:9/hook")
    client.card()
    engine.deliver_due()
    assert "ConnectionError" in engine.deliveries[0]["error"]


def test_the_scheduler_delivers_until_it_is_stopped(engine: Engine, client: Client) -> None:
    engine.transport = None
    with Shop() as shop:
        engine.add_endpoint(f"{shop.url}/hook")
        engine.start_scheduler()
        engine.start_scheduler()  # a second call does nothing
        try:
            client.card()
            assert shop.arrived.wait(30)
        finally:
            engine.stop_scheduler()
    assert not engine.scheduler.running
    names = [thread.name for thread in threading.enumerate()]
    assert "payments-sandbox-scheduler" not in names
    client.card()
    assert len(engine.pending_deliveries) == 1


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_slow_receiver_delays_no_other_one_and_gets_its_own_in_order(engine: Engine, client: Client) -> None:
    engine.transport = None
    other = engine.add_project("sk_test_two")
    with Shop() as slow, Shop() as fast, Shop() as second:
        slow.delay = 60
        for project, shop in ((engine, slow), (engine, fast), (other, second)):
            project.add_endpoint(f"{shop.url}/hook", ["payment.created"])
        engine.start_scheduler()
        try:
            sent = [client.card()["id"] for _ in range(3)]
            Client(engine, "sk_test_two").card()
            wait_for(lambda: len(fast.bodies) == 3 and len(second.bodies) == 1)
            assert len(slow.bodies) == 1, "one after the other"
            assert len(engine.pending_deliveries) == 2
            slow.delay = 0
            slow.done.set()
            wait_for(lambda: len(slow.bodies) == 3)
        finally:
            slow.done.set()
            engine.stop_scheduler()
    for shop in (slow, fast):
        assert [json.loads(body)["data"]["id"] for body in shop.bodies] == sent
    assert "payments-sandbox-deliveries" not in [thread.name for thread in threading.enumerate()]


def test_delivering_by_hand_waits_for_what_another_thread_sends(engine: Engine, client: Client) -> None:
    begun, may_end = threading.Event(), threading.Event()
    got: list[str] = []

    def transport(url: str, headers: dict[str, str], body: bytes) -> int:
        if not got:
            got.append("first")
            begun.set()
            may_end.wait(30)
        else:
            got.append("second")
        return 200

    engine.transport = transport
    engine.add_endpoint(URL, ["payment.created"])
    client.card()
    engine._run_due(lambda: False)
    assert begun.wait(30)
    client.card()
    by_hand = threading.Thread(target=engine.deliver_due)
    by_hand.start()
    by_hand.join(0.3)
    assert by_hand.is_alive()
    assert got == ["first"]
    may_end.set()
    by_hand.join(30)
    assert got == ["first", "second"]
    engine.stop_scheduler()
    assert [entry["acknowledged"] for entry in engine.deliveries] == [True, True]


def test_a_receiver_may_have_more_delivered_while_it_answers(engine: Engine, client: Client) -> None:
    nested: list[int] = []

    def transport(url: str, headers: dict[str, str], body: bytes) -> int:
        nested.append(engine.deliver_due())
        return 200

    engine.transport = transport
    engine.add_endpoint(URL, ["payment.created"])
    client.card()
    client.card()
    assert engine.deliver_due() == 1
    assert nested == [0, 1]
    assert engine.pending_deliveries == []


def test_the_scheduler_continues_after_an_exception(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    twice = threading.Event()

    def broken() -> None:
        calls.append(1)
        if len(calls) > 1:
            twice.set()
        raise RuntimeError("boom")

    monkeypatch.setattr(engine, "tick", broken)
    engine.start_scheduler()
    try:
        assert twice.wait(30)
    finally:
        engine.stop_scheduler()


def test_the_delivery_log_has_all_fields(engine: Engine, client: Client, endpoint: dict[str, str]) -> None:
    client.card()
    engine.deliver_due()
    assert engine.deliveries == [
        {
            "id": engine.deliveries[0]["id"],
            "event_id": engine.events[0]["id"],
            "event_type": "payment.created",
            "endpoint_id": endpoint["id"],
            "url": URL,
            "at": engine.deliveries[0]["at"],
            "attempt": 1,
            "status": 200,
            "error": None,
            "acknowledged": True,
            "fault": None,
        }
    ]


def test_deliveries_are_sent_in_the_order_of_the_events(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_endpoint(URL)
    for _ in range(10):
        engine.pay(client.card()["id"])
    engine.deliver_due()
    assert receiver.events == engine.events
    assert all(a["created_at"] < b["created_at"] for a, b in itertools.pairwise(receiver.events))
