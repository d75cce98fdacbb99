"""Deliveries of events: the queue, the retry schedule and the log ("Delivery rules")."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .clock import Clock
from .endpoints import Endpoint, Endpoints
from .faults import Fault, FaultBox
from .shapes import DAY, HOUR, MINUTE, Wire, iso
from .transport import ACK_TIMEOUT, HttpTransport, NotAcknowledgedError, Transport, signature

# Waits after the first, second, … failure; then every 24 hours, as long as that is within 3 days of the first
# attempt.
RETRY_WAITS: Final = (MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, 12 * HOUR)
LAST_WAIT: Final = DAY
GIVE_UP_AFTER: Final = timedelta(seconds=3 * DAY)
WRONG_SECRET: Final = "whsec_" + "0" * 48


@dataclass
class Delivery:
    """One event on its way to one endpoint. ``held_for``: how many later ones must go first."""

    number: int
    api_key: str
    endpoints: Endpoints
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

    def next_due(self, now: datetime) -> datetime | None:
        """When to try again after a failure now; None when the schedule is at its end."""
        first = self.first_at or now
        index = self.attempts - 1
        due = now + timedelta(seconds=RETRY_WAITS[index] if index < len(RETRY_WAITS) else LAST_WAIT)
        return due if due - first <= GIVE_UP_AFTER else None


class Dispatcher:
    """Sends what is due, one after the other, and keeps a log of every attempt.

    ``transport`` replaces real HTTP when set: a callable ``(url, headers, body) -> status`` that may raise.
    """

    def __init__(self, clock: Clock, lock: AbstractContextManager[object], faults: FaultBox) -> None:
        self.log: list[Wire] = []
        self.transport: Transport | None = None
        self.ack_timeout = ACK_TIMEOUT
        self.old_signature_first = False
        self.wake = threading.Event()
        self._clock = clock
        self._lock = lock
        self._faults = faults
        self._queue: list[tuple[datetime, int, Delivery]] = []
        self._held: list[Delivery] = []
        self._count = 0
        self._sending = threading.RLock()

    def enqueue(self, api_key: str, endpoints: Endpoints, endpoint: Endpoint, event: Wire, body: bytes) -> None:
        """Send this event to this endpoint, as soon as may be."""
        with self._lock:
            self._count += 1
            self._push(
                Delivery(
                    self._count, api_key, endpoints, endpoint.id, event["id"], event["type"], body,
                    due_at=self._clock.now(),
                )
            )  # fmt: skip
        self.wake.set()

    def pending(self) -> list[Wire]:
        """What is still to be sent: event, endpoint, attempts so far and when it is due."""
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

    def deliver_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Send everything that is due now, and what falls due by that; returns the number of attempts."""
        sent = 0
        with self._sending, HttpTransport(self.ack_timeout) as http:
            while not stopped() and (delivery := self._claim()) is not None:
                sent += self._attempt(delivery, self.transport or http)
        return sent

    # inside

    def _push(self, delivery: Delivery) -> None:
        heapq.heappush(self._queue, (delivery.due_at, delivery.number, delivery))

    def _claim(self) -> Delivery | None:
        with self._lock:
            while self._queue and self._queue[0][0] <= self._clock.now():
                delivery = heapq.heappop(self._queue)[2]
                endpoint = delivery.endpoints.by_id.get(delivery.endpoint_id)
                if endpoint is None or endpoint.status != "active":
                    continue
                delivery.held_for = 0
                if not self._put_off(delivery):
                    return delivery
        return None

    def _put_off(self, delivery: Delivery) -> bool:
        """Draw the fault of a first attempt; True when there is nothing to send for now."""
        if delivery.fault_drawn:
            return False
        delivery.fault_drawn = True
        fault = self._faults.for_delivery(delivery.event_type, delivery.endpoint_id, delivery.api_key)
        delivery.fault = fault
        if fault is None:
            return False
        if fault.kind == "drop":
            delivery.attempts = 1
            self._record(delivery, delivery.endpoints.by_id[delivery.endpoint_id], None, None, acknowledged=True)
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
            endpoint = delivery.endpoints.by_id.get(delivery.endpoint_id)
            if endpoint is None:
                return 0
            now = self._clock.now()
            delivery.first_at = delivery.first_at or now
            delivery.attempts += 1
            first = delivery.attempts == 1
            kind = delivery.fault.kind if delivery.fault is not None and first else None
            secrets = [WRONG_SECRET] if kind == "bad_signature" else endpoint.secrets_at(now)
            if self.old_signature_first:
                secrets.reverse()
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "payments-sandbox",
                "Service-Signature": signature(delivery.body, secrets, int(now.timestamp())),
            }
        copies = 2 if kind == "duplicate" else 1
        acknowledged = [self._send(delivery, endpoint, transport, headers) for _ in range(copies)]
        with self._lock:
            self._settle(delivery, endpoint, any(acknowledged))
            self._let_go(delivery)
        return copies

    def _send(self, delivery: Delivery, endpoint: Endpoint, transport: Transport, headers: dict[str, str]) -> bool:
        status: int | None = None
        problem: str | None = None
        try:
            status = transport(endpoint.url, headers, delivery.body)
        except NotAcknowledgedError as error:
            problem = str(error)
        except Exception as error:  # a transport given by a test: whatever it raises is no acknowledgement
            problem = f"{type(error).__name__}: {error}"
        acknowledged = status is not None and 200 <= status < 300
        with self._lock:
            self._record(delivery, endpoint, status, problem, acknowledged=acknowledged)
        return acknowledged

    def _settle(self, delivery: Delivery, endpoint: Endpoint, acknowledged: bool) -> None:
        if acknowledged:
            delivery.endpoints.record_success(endpoint)
            return
        delivery.endpoints.record_failure(endpoint)
        due_at = delivery.next_due(self._clock.now())
        if due_at is not None:
            delivery.due_at = due_at
            self._push(delivery)

    def _let_go(self, sent: Delivery) -> None:
        """Count down what is held back behind later deliveries to the same endpoint."""
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
        self,
        delivery: Delivery,
        endpoint: Endpoint,
        status: int | None,
        error: str | None,
        *,
        acknowledged: bool,
    ) -> None:
        self.log.append(
            {
                "event_id": delivery.event_id,
                "event_type": delivery.event_type,
                "endpoint_id": endpoint.id,
                "url": endpoint.url,
                "at": iso(self._clock.now()),
                "attempt": delivery.attempts,
                "status": status,
                "error": error,
                "acknowledged": acknowledged,
                "fault": delivery.fault.kind if delivery.fault is not None and delivery.attempts == 1 else None,
            }
        )
