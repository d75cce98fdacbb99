"""Queue the deliveries of one project: when each is due, and which wait for others ("Delivery rules")."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .faults import Fault
from .protocol import DAY, HOUR, MINUTE

# Seconds after the first, second, … failure; then every 24 hours, up to 3 days after the first attempt.
RETRY_WAITS: Final = (MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, 12 * HOUR)
LAST_WAIT: Final = DAY
GIVE_UP_AFTER: Final = timedelta(seconds=3 * DAY)


@dataclass
class Delivery:
    """One event for one endpoint. ``held_for`` is the number of later deliveries that must be sent before it."""

    number: int
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
        """The kind of fault of the current attempt. Only a first attempt has one."""
        return self.fault.kind if self.fault is not None and self.attempts == 1 else None

    def next_due(self, now: datetime) -> datetime | None:
        """Return the time of the next attempt after a failure now; None at the end of the retry schedule."""
        first = self.first_at or now
        index = self.attempts - 1
        due = now + timedelta(seconds=RETRY_WAITS[index] if index < len(RETRY_WAITS) else LAST_WAIT)
        return due if due - first <= GIVE_UP_AFTER else None


class DeliveryQueue:
    """One queue for each endpoint, so that no search passes over the deliveries of another endpoint."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[tuple[datetime, int, Delivery]]] = {}
        self._held: list[Delivery] = []

    def __iter__(self) -> Iterator[Delivery]:
        """Yield all deliveries, next first."""
        entries = [entry for heap in self._heaps.values() for entry in heap]
        return (delivery for _, _, delivery in sorted(entries, key=lambda entry: entry[:2]))

    def push(self, delivery: Delivery) -> None:
        """Add a delivery. It is due at its ``due_at``."""
        heapq.heappush(self._heaps.setdefault(delivery.endpoint_id, []), (delivery.due_at, delivery.number, delivery))

    def due_endpoints(self, now: datetime) -> list[str]:
        """Return the ids of the endpoints with a due delivery, next first."""
        due = [(heap[0][:2], endpoint_id) for endpoint_id, heap in self._heaps.items() if heap and heap[0][0] <= now]
        return [endpoint_id for _, endpoint_id in sorted(due)]

    def pop_due(self, now: datetime, without: Collection[str], only: str | None = None) -> Delivery | None:
        """Remove and return the next due delivery, except to the endpoints ``without``; None if there is none."""
        for endpoint_id in self.due_endpoints(now):
            if endpoint_id not in without and only in (None, endpoint_id):
                heap = self._heaps[endpoint_id]
                delivery = heapq.heappop(heap)[2]
                if not heap:
                    del self._heaps[endpoint_id]
                if delivery.held_for:
                    delivery.held_for = 0
                    self._held = [held for held in self._held if held is not delivery]
                return delivery
        return None

    def remove(self, delivery: Delivery) -> None:
        """Remove this delivery."""
        rest = [entry for entry in self._heaps.pop(delivery.endpoint_id) if entry[2] is not delivery]
        if rest:
            heapq.heapify(rest)
            self._heaps[delivery.endpoint_id] = rest

    def hold(self, delivery: Delivery, count: int) -> None:
        """Make this queued delivery due after ``count`` later deliveries to its endpoint were sent."""
        delivery.held_for = count
        self._held.append(delivery)

    def restore(self, deliveries: list[Delivery]) -> None:
        """Load the deliveries of an earlier run."""
        for delivery in deliveries:
            self.push(delivery)
        self._held = [delivery for delivery in deliveries if delivery.held_for > 0]

    def count_sent(self, sent: Delivery, now: datetime) -> None:
        """Count down the held deliveries, which wait until later ones to the same endpoint were sent."""
        for held in self._held:
            if held.endpoint_id == sent.endpoint_id and held.number < sent.number and held.held_for > 0:
                held.held_for -= 1
                if held.held_for == 0:
                    self.remove(held)
                    held.due_at = now
                    self.push(held)
        self._held = [held for held in self._held if held.held_for > 0]
