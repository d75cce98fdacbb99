"""Send webhook deliveries: signature, HTTP request, queue, retries and log ("Webhook signature", "Delivery rules")."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, TypeAlias

import requests

from .clock import Clock, iso
from .delivery_queue import Delivery, DeliveryQueue
from .endpoints import Endpoint, Endpoints
from .faults import FaultRegistry
from .protocol import Json
from .resources import new_id

logger = logging.getLogger("payments_integration.sandbox")

ACK_TIMEOUT: Final = 10.0
WAIT: Final = 0.05  # seconds between two checks for a stop
LOG_SIZE: Final = 100_000
WRONG_SECRET: Final = "whsec_" + "0" * 48

# (url, headers, body) -> HTTP status; raises if there is no answer
Transport: TypeAlias = Callable[[str, dict[str, str], bytes], int]


class NotAcknowledgedError(Exception):
    """No usable answer came, or it came too late."""


def signature(body: bytes, secrets: list[str], unix_time: int) -> str:
    """Return ``Service-Signature``: ``t=…`` and one ``v1=…`` per secret, HMAC-SHA256 over ``<t>.<body>``."""
    signed = str(unix_time).encode() + b"." + body
    digests = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={unix_time}", *(f"v1={digest}" for digest in digests)])


class HttpTransport:
    """POSTs over HTTP without redirects, proxies or .netrc. A context manager that closes its connections."""

    def __init__(self, ack_timeout: float = ACK_TIMEOUT) -> None:
        self._ack_timeout = ack_timeout
        self._session = requests.Session()
        self._session.trust_env = False

    def __enter__(self) -> HttpTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close()

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> int:
        """Return the HTTP status of the answer, without waiting for its body. Raises NotAcknowledgedError."""
        began = time.monotonic()
        try:
            with self._session.post(
                url, data=body, headers=headers, timeout=self._ack_timeout, allow_redirects=False, stream=True
            ) as response:
                status = response.status_code
        except (requests.RequestException, ValueError, OSError) as error:
            raise NotAcknowledgedError(f"{type(error).__name__}: {error}") from error
        if time.monotonic() - began > self._ack_timeout:
            raise NotAcknowledgedError(f"answered {status} after more than {self._ack_timeout:g} seconds")
        return status


@dataclass(frozen=True)
class DispatcherRecord:
    """The saved state of a dispatcher. ``count`` is the number of the newest delivery."""

    count: int
    queue: list[Delivery]
    log: list[Json]
    old_signature_first: bool


class Outlet:
    """The way out for the deliveries of all projects, and the callbacks about them.

    If ``transport`` is set, it replaces HTTP: a callable ``(url, headers, body) -> status`` that may raise.
    """

    def __init__(self) -> None:
        self.transport: Transport | None = None
        #: Set when something is queued.
        self.wake = threading.Event()
        #: Called before each attempt, and after a thread's last one.
        self.checkpoint: Callable[[], object] = lambda: None
        #: Called with each entry of a log.
        self.watcher: Callable[[Json], object] = lambda entry: None
        #: Threads that send.
        self.lanes: set[threading.Thread] = set()

    def join(self) -> None:
        """Wait for the threads that send."""
        for lane in list(self.lanes):
            lane.join()


class Dispatcher:
    """Sends the deliveries of one project, one after the other for each endpoint, and logs every attempt."""

    def __init__(
        self,
        api_key: str,
        clock: Clock,
        lock: threading.RLock,
        faults: FaultRegistry,
        endpoints: Endpoints,
        outlet: Outlet,
    ) -> None:
        self.log: list[Json] = []
        self.ack_timeout = ACK_TIMEOUT
        self.old_signature_first = False
        self.queue = DeliveryQueue()
        #: Counts everything that is queued, sent or given up.
        self.changes = 0
        self._api_key = api_key
        self._clock = clock
        self._lock = lock
        self._faults = faults
        self._endpoints = endpoints
        self._outlet = outlet
        self._count = 0
        #: The deliveries under way, each with the thread that sends it.
        self._in_flight: list[tuple[Delivery, int]] = []
        self._one_settled = threading.Condition(lock)
        self._lanes: set[str] = set()  # the endpoints that have a thread

    def enqueue(self, endpoint: Endpoint, event: Json, body: bytes) -> None:
        """Queue this event for this endpoint, due at once."""
        with self._lock:
            self._count += 1
            now = self._clock.now()
            self._push(Delivery(self._count, endpoint.id, event["id"], event["type"], body, due_at=now))
        self._outlet.wake.set()

    def pending(self) -> list[Json]:
        """Return the queue, next first: ``{event_id, endpoint_id, attempts, due_at}``."""
        with self._lock:
            return [
                {
                    "event_id": item.event_id,
                    "endpoint_id": item.endpoint_id,
                    "attempts": item.attempts,
                    "due_at": iso(item.due_at),
                }
                for item in self.queue
            ]

    def record(self) -> DispatcherRecord:
        """Return the state for :meth:`restore`, with the deliveries that are under way."""
        with self._lock:
            queue = [*self.queue, *(delivery for delivery, _ in self._in_flight)]
            return DispatcherRecord(self._count, queue, self.log, self.old_signature_first)

    def restore(self, record: DispatcherRecord) -> None:
        """Load the queue and the log of an earlier run."""
        with self._lock:
            self._count = record.count
            self.queue.restore(record.queue)
            self.log.extend(record.log)
            self.old_signature_first = record.old_signature_first

    def deliver_due(self, stopped: Callable[[], bool] = lambda: False, endpoint_id: str | None = None) -> int:
        """Send in this thread all deliveries that are due or become due meanwhile. Returns the number of attempts.

        With an ``endpoint_id``, sends only deliveries to this endpoint. Without one, also waits for deliveries that
        another thread sends.
        """
        sent = 0
        with HttpTransport(self.ack_timeout) as http:
            while not stopped() and (delivery := self._next(stopped, endpoint_id)) is not None:
                try:
                    self._outlet.checkpoint()
                    sent += self._attempt(delivery, self._outlet.transport or http)
                finally:
                    self._land(delivery)
        return sent

    def start_due(self, stopped: Callable[[], bool]) -> None:
        """Send due deliveries in a thread for each endpoint, so that a slow receiver delays only its own."""
        with self._lock:
            for endpoint_id in self.queue.due_endpoints(self._clock.now()):
                if endpoint_id not in self._lanes:
                    lane = threading.Thread(
                        target=self._run_lane,
                        args=(endpoint_id, stopped),
                        name="payments-sandbox-deliveries",
                        daemon=True,
                    )
                    self._lanes.add(endpoint_id)
                    self._outlet.lanes.add(lane)
                    lane.start()

    def close(self) -> None:
        """Send nothing more, except the deliveries under way."""
        with self._lock:
            self.queue = DeliveryQueue()

    def _run_lane(self, endpoint_id: str, stopped: Callable[[], bool]) -> None:
        try:
            self.deliver_due(stopped, endpoint_id)
            self._outlet.checkpoint()
        except Exception:  # the next start tries again
            logger.exception("The sandbox's deliveries to %s failed", endpoint_id)
        finally:
            with self._lock:
                self._lanes.discard(endpoint_id)
                self._outlet.lanes.discard(threading.current_thread())

    def _push(self, delivery: Delivery) -> None:
        self.changes += 1
        self.queue.push(delivery)

    def _next(self, stopped: Callable[[], bool], endpoint_id: str | None) -> Delivery | None:
        """Take the next due delivery from the queue. Two threads never send to one endpoint at a time."""
        own = threading.get_ident()
        with self._one_settled:
            while True:
                busy = {delivery.endpoint_id for delivery, thread in self._in_flight if thread != own}
                delivery = self.queue.pop_due(self._clock.now(), busy, endpoint_id)
                if delivery is not None:
                    if self._is_sent_now(delivery):
                        self._in_flight.append((delivery, own))
                        return delivery
                elif endpoint_id is None and busy:
                    self._one_settled.wait(WAIT)
                    if stopped():
                        return None
                else:
                    return None

    def _is_sent_now(self, delivery: Delivery) -> bool:
        """Return False if its endpoint is no longer active, or if a fault drops, delays or reorders it."""
        endpoint = self._endpoints.by_id.get(delivery.endpoint_id)
        if endpoint is None or endpoint.status != "active":
            return False
        return not self._postpone(delivery, endpoint)

    def _postpone(self, delivery: Delivery, endpoint: Endpoint) -> bool:
        """Draw the fault of a first attempt. Returns True if the fault drops, delays or reorders the delivery."""
        if delivery.fault_drawn:
            return False
        delivery.fault_drawn = True
        fault = self._faults.take_for_delivery(delivery.event_type, delivery.endpoint_id, self._api_key)
        delivery.fault = fault
        if fault is None:
            return False
        if fault.kind == "drop":
            delivery.attempts = 1
            self._record(delivery, endpoint, None, None, acknowledged=True)
            return True
        if fault.kind in ("delay", "reorder"):
            delivery.due_at = self._clock.now() + timedelta(seconds=fault.delay or 0)
            self._push(delivery)
            if fault.kind == "reorder":
                self.queue.hold(delivery, fault.count or 1)
            return True
        return False

    def _attempt(self, delivery: Delivery, transport: Transport) -> int:
        with self._lock:
            endpoint = self._endpoints.by_id.get(delivery.endpoint_id)
            if endpoint is None:
                return 0
            now = self._clock.now()
            delivery.first_at = delivery.first_at or now
            delivery.attempts += 1
            secrets = [WRONG_SECRET] if delivery.attempt_fault == "bad_signature" else endpoint.secrets_at(now)
            if self.old_signature_first:
                secrets.reverse()
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "payments-sandbox",
                # In real time, even if the sandbox's clock was moved: a receiver compares it with its own clock.
                "Service-Signature": signature(delivery.body, secrets, int(datetime.now(UTC).timestamp())),
            }
        copies = 2 if delivery.attempt_fault == "duplicate" else 1
        acknowledged = [self._send(delivery, endpoint, transport, headers) for _ in range(copies)]
        with self._lock:
            self._land(delivery)
            self.settle(delivery, endpoint, acknowledged=any(acknowledged))
            self.queue.count_sent(delivery, self._clock.now())
        return copies

    def _land(self, delivery: Delivery) -> None:
        """Note that the delivery is no longer under way."""
        with self._one_settled:
            self._in_flight = [entry for entry in self._in_flight if entry[0] is not delivery]
            self._one_settled.notify_all()

    def settle(self, delivery: Delivery, endpoint: Endpoint, *, acknowledged: bool) -> None:
        """Note the result of an attempt. Without an acknowledgement, queue another one for later."""
        self.changes += 1
        if acknowledged:
            self._endpoints.record_success(endpoint)
            return
        self._endpoints.record_failure(endpoint)
        due_at = delivery.next_due(self._clock.now())
        if due_at is not None:
            delivery.due_at = due_at
            self._push(delivery)

    def _send(self, delivery: Delivery, endpoint: Endpoint, transport: Transport, headers: dict[str, str]) -> bool:
        status: int | None = None
        problem: str | None = None
        try:
            status = transport(endpoint.url, headers, delivery.body)
        except NotAcknowledgedError as error:
            problem = str(error)
        except Exception as error:  # any exception of a test's transport means that there was no answer
            problem = f"{type(error).__name__}: {error}"
        acknowledged = status is not None and 200 <= status < 300
        with self._lock:
            self._record(delivery, endpoint, status, problem, acknowledged=acknowledged)
        return acknowledged

    def _record(
        self, delivery: Delivery, endpoint: Endpoint, status: int | None, error: str | None, *, acknowledged: bool
    ) -> None:
        del self.log[: max(0, len(self.log) - LOG_SIZE + 1)]
        line = {
            "id": new_id("dlv"),
            "event_id": delivery.event_id,
            "event_type": delivery.event_type,
            "endpoint_id": endpoint.id,
            "url": endpoint.url,
            "at": iso(self._clock.now()),
            "attempt": delivery.attempts,
            "status": status,
            "error": error,
            "acknowledged": acknowledged,
            "fault": delivery.attempt_fault,
        }
        self.log.append(line)
        self._outlet.watcher(line)
