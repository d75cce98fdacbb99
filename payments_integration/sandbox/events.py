"""The event store of a project: the full object at the time of each change, kept 30 days ("Events")."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import timedelta

from .clock import Clock
from .collection import Collection
from .shapes import DAY, EVENT_TYPES, Wire, iso, new_id, parse_iso

RETENTION = 30 * DAY


class EventStore:
    """Emits, keeps and forgets events. ``on_emit`` is told of each, with the exact bytes of its body."""

    def __init__(self, clock: Clock, on_emit: Callable[[Wire, bytes], None]) -> None:
        self.items = Collection()
        self._bodies: dict[str, bytes] = {}
        self._clock = clock
        self._on_emit = on_emit

    def emit(self, event_type: str, data: Wire) -> Wire:
        """Record that an object changed. Times are strictly in the order of the changes."""
        if event_type not in EVENT_TYPES:
            raise ValueError(f"{event_type!r} is not an event type")
        event: Wire = {
            "id": new_id("evt"),
            "object": "event",
            "type": event_type,
            "created_at": iso(self._clock.stamp()),
            "data": copy.deepcopy(data),
        }
        body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        self.items.add(event)
        self._bodies[event["id"]] = body
        self._on_emit(event, body)
        return event

    def body(self, event_id: str) -> bytes | None:
        """The bytes that are delivered, the same at every attempt; None once the event is forgotten."""
        return self._bodies.get(event_id)

    def prune(self) -> None:
        """Forget events older than 30 days."""
        horizon = self._clock.now() - timedelta(seconds=RETENTION)
        oldest = next(iter(self.items), None)
        if oldest is None or parse_iso(oldest["created_at"]) >= horizon:
            return
        self.items.drop_oldest_while(lambda event: parse_iso(event["created_at"]) < horizon)
        self._bodies = {event["id"]: self._bodies[event["id"]] for event in self.items}
