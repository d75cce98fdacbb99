"""Webhook deliveries: signature, HTTP request, queue, retries and log ("Webhook signature", "Delivery rules")."""

from __future__ import annotations

import hashlib
import heapq
import hmac
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, TypeAlias

import requests

from .clock import Clock, iso
from .endpoints import Endpoint, Endpoints
from .faults import Fault, FaultRegistry
from .protocol import DAY, HOUR, MINUTE, Json
from .resources import new_id

ACK_TIMEOUT: Final = 10.0
# Waits after the first, second, … failure; then every 24 hours, up to 3 days after the first attempt.
RETRY_WAITS: Final = (MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, 12 * HOUR)
LAST_WAIT: Final = DAY
GIVE_UP_AFTER: Final = timedelta(seconds=3 * DAY)
LOG_SIZE: Final = 100_000
WRONG_SECRET: Final = "whsec_" + "0" * 48

# (url, headers, body) -> HTTP status; raises when there is no answer
Transport: TypeAlias = Callable[[str, dict[str, str], bytes], int]


class NotAcknowledgedError(Exception):
    """No usable answer came, or it came too late."""


def signature(body: bytes, secrets: list[str], unix_time: int) -> str:
    """The value of ``Service-Signature``: ``t=…`` and one ``v1=…`` per secret, HMAC-SHA256 over ``<t>.<body>``."""
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
        """The HTTP status of the answer, without waiting for its body. Raises NotAcknowledgedError."""
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


@dataclass
class Delivery:
    """One event for one endpoint. ``held_for``: how many later deliveries must be sent before it."""

    number: int
    api_key: str
    endpoint_id: str
    event_id: str
    event_type: str
    body: bytes
    due_at: datetime
    first_at: datetime | None = None
    attempts: int = 0
    held_for: int = 0
    fault: Fault | None = None
    fault_drawn: bool = False

    @property
    def attempt_fault(self) -> str | None:
        """The kind of fault of the current attempt; only a first attempt has one."""
        return self.fault.kind if self.fault is not None and self.attempts == 1 else None

    def next_due(self, now: datetime) -> datetime | None:
        """The time of the next attempt after a failure now; None at the end of the retry schedule."""
        first = self.first_at or now
        index = self.attempts - 1
        due = now + timedelta(seconds=RETRY_WAITS[index] if index < len(RETRY_WAITS) else LAST_WAIT)
        return due if due - first <= GIVE_UP_AFTER else None


@dataclass(frozen=True)
class DispatcherRecord:
    """What is saved of a dispatcher. ``count``: the number of the newest delivery."""

    count: int
    queue: list[Delivery]
    log: list[Json]
    old_signature_first: bool


class Dispatcher:
    """Sends what is due, one delivery at a time, and logs every attempt.

    ``transport`` replaces HTTP when set: a callable ``(url, headers, body) -> status`` that may raise.
    """

    def __init__(self, clock: Clock, lock: AbstractContextManager[object], faults: FaultRegistry) -> None:
        self.log: list[Json] = []
        self.transport: Transport | None = None
        self.ack_timeout = ACK_TIMEOUT
        self.old_signature_first = False
        self.wake = threading.Event()
        #: The endpoints of each project, by the API key that it was created with.
        self.endpoints: dict[str, Endpoints] = {}
        #: Called before each attempt.
        self.before_sending: Callable[[], object] = lambda: None
        #: Changes with everything that is queued, sent or given up.
        self.changes = 0
        self._clock = clock
        self._lock = lock
        self._faults = faults
        self._queue: list[tuple[datetime, int, Delivery]] = []
        self._held: list[Delivery] = []
        self._in_flight: Delivery | None = None
        self._count = 0
        self._sending = threading.RLock()

    def enqueue(self, api_key: str, endpoint: Endpoint, event: Json, body: bytes) -> None:
        """Queue this event for this endpoint; it is due at once."""
        with self._lock:
            self._count += 1
            now = self._clock.now()
            self._push(Delivery(self._count, api_key, endpoint.id, event["id"], event["type"], body, due_at=now))
        self.wake.set()

    def pending(self) -> list[Json]:
        """The queue, next first: ``{event_id, endpoint_id, attempts, due_at}``."""
        with self._lock:
            return [
                {
                    "event_id": item.event_id,
                    "endpoint_id": item.endpoint_id,
                    "attempts": item.attempts,
                    "due_at": iso(item.due_at),
                }
                for _, _, item in sorted(self._queue, key=lambda entry: entry[:2])
            ]

    def record(self) -> DispatcherRecord:
        """What :meth:`restore` needs, with the delivery that is under way."""
        with self._lock:
            queue = [delivery for _, _, delivery in self._queue]
            if self._in_flight is not None:
                queue.append(self._in_flight)
            return DispatcherRecord(self._count, queue, self.log, self.old_signature_first)

    def restore(self, record: DispatcherRecord) -> None:
        """Take the queue and the log of an earlier run."""
        with self._lock:
            self._count = record.count
            for delivery in record.queue:
                self._push(delivery)
            self._held = [delivery for delivery in record.queue if delivery.held_for > 0]
            self.log.extend(record.log)
            self.old_signature_first = record.old_signature_first

    def deliver_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Send all deliveries that are due, or become due meanwhile. Returns the number of attempts."""
        sent = 0
        with self._sending, HttpTransport(self.ack_timeout) as http:
            while not stopped() and (delivery := self._next()) is not None:
                self.before_sending()
                sent += self._attempt(delivery, self.transport or http)
        return sent

    def _push(self, delivery: Delivery) -> None:
        self.changes += 1
        heapq.heappush(self._queue, (delivery.due_at, delivery.number, delivery))

    def _next(self) -> Delivery | None:
        with self._lock:
            while self._queue and self._queue[0][0] <= self._clock.now():
                delivery = heapq.heappop(self._queue)[2]
                endpoint = self._endpoint(delivery)
                if endpoint is None or endpoint.status != "active":
                    continue
                delivery.held_for = 0
                if not self._postpone(delivery, endpoint):
                    self._in_flight = delivery
                    return delivery
        return None

    def _endpoint(self, delivery: Delivery) -> Endpoint | None:
        return self.endpoints[delivery.api_key].by_id.get(delivery.endpoint_id)

    def _postpone(self, delivery: Delivery, endpoint: Endpoint) -> bool:
        """Draw the fault of a first attempt. True if the fault drops, delays or reorders the delivery."""
        if delivery.fault_drawn:
            return False
        delivery.fault_drawn = True
        fault = self._faults.take_for_delivery(delivery.event_type, delivery.endpoint_id, delivery.api_key)
        delivery.fault = fault
        if fault is None:
            return False
        if fault.kind == "drop":
            delivery.attempts = 1
            self._record(delivery, endpoint, None, None, acknowledged=True)
            return True
        if fault.kind in ("delay", "reorder"):
            if fault.kind == "reorder":
                delivery.held_for = fault.count or 1
                self._held.append(delivery)
            delivery.due_at = self._clock.now() + timedelta(seconds=fault.delay or 0)
            self._push(delivery)
            return True
        return False

    def _attempt(self, delivery: Delivery, transport: Transport) -> int:
        with self._lock:
            endpoint = self._endpoint(delivery)
            if endpoint is None:
                self._in_flight = None
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
                "Service-Signature": signature(delivery.body, secrets, int(now.timestamp())),
            }
        copies = 2 if delivery.attempt_fault == "duplicate" else 1
        acknowledged = [self._send(delivery, endpoint, transport, headers) for _ in range(copies)]
        with self._lock:
            self._in_flight = None
            self._settle(delivery, endpoint, any(acknowledged))
            self._release_held(delivery)
        return copies

    def _send(self, delivery: Delivery, endpoint: Endpoint, transport: Transport, headers: dict[str, str]) -> bool:
        status: int | None = None
        problem: str | None = None
        try:
            status = transport(endpoint.url, headers, delivery.body)
        except NotAcknowledgedError as error:
            problem = str(error)
        except Exception as error:  # a test's transport: any exception means that there was no answer
            problem = f"{type(error).__name__}: {error}"
        acknowledged = status is not None and 200 <= status < 300
        with self._lock:
            self._record(delivery, endpoint, status, problem, acknowledged=acknowledged)
        return acknowledged

    def _settle(self, delivery: Delivery, endpoint: Endpoint, acknowledged: bool) -> None:
        self.changes += 1
        endpoints = self.endpoints[delivery.api_key]
        if acknowledged:
            endpoints.record_success(endpoint)
            return
        endpoints.record_failure(endpoint)
        due_at = delivery.next_due(self._clock.now())
        if due_at is not None:
            delivery.due_at = due_at
            self._push(delivery)

    def _release_held(self, sent: Delivery) -> None:
        """Count down the deliveries held back until later ones to the same endpoint are sent."""
        released = []
        for held in self._held:
            if held.endpoint_id == sent.endpoint_id and held.number < sent.number and held.held_for > 0:
                held.held_for -= 1
                if held.held_for == 0:
                    held.due_at = self._clock.now()
                    released.append(held)
        if released:
            self._queue = [(item.due_at, item.number, item) for _, _, item in self._queue]
            heapq.heapify(self._queue)
        self._held = [held for held in self._held if held.held_for > 0]

    def _record(
        self, delivery: Delivery, endpoint: Endpoint, status: int | None, error: str | None, *, acknowledged: bool
    ) -> None:
        del self.log[: max(0, len(self.log) - LOG_SIZE + 1)]
        self.log.append(
            {
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
        )
