"""Provide what the resources of a project share: ids, lists with cursor pages, events and changes of status.

See "List endpoints" and "Events" in the provider's document.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from .catalog import Terms
from .clock import Clock, iso, parse_iso
from .ledger import Ledger
from .protocol import DAY, EVENT_TYPES, ApiError, Json, encode_json

DEFAULT_LIMIT = 25
MAX_LIMIT = 100
RETENTION = timedelta(seconds=30 * DAY)


class SandboxError(ValueError):
    """The state does not allow the control that was called, such as paying a canceled payment."""


class UnknownObjectError(SandboxError, LookupError):
    """The sandbox has no object with this id."""


def new_id(prefix: str) -> str:
    """Return a new id such as ``pay_5f0c…``. Never seeded, because two sandboxes may use the same database."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Collection:
    """Objects by id, oldest first. The cost of a page depends only on the objects that it reads."""

    def __init__(self) -> None:
        self._items: dict[str, Json] = {}
        self._order: list[str] = []
        self._position: dict[str, int] = {}
        self._dropped = 0

    def add(self, item: Json) -> None:
        """Add an object as the newest."""
        self._position[item["id"]] = self._dropped + len(self._order)
        self._order.append(item["id"])
        self._items[item["id"]] = item

    def get(self, object_id: str) -> Json | None:
        """Return the object itself, not a copy; None if there is none."""
        return self._items.get(object_id)

    def find(self, object_id: str) -> Json:
        """Return the object itself, for the controls. Raises UnknownObjectError."""
        if object_id not in self._items:
            raise UnknownObjectError(f"there is no {object_id!r} in the sandbox")
        return self._items[object_id]

    def get_or_404(self, object_id: str) -> Json:
        """Return the object itself, for the API. Raises resource_not_found."""
        if object_id not in self._items:
            raise ApiError("resource_not_found", f"There is no object with the id {object_id!r}.")
        return self._items[object_id]

    def drop_oldest_while(self, condition: Callable[[Json], bool]) -> None:
        """Remove the oldest objects while the condition is true."""
        count = 0
        while count < len(self._order) and condition(self._items[self._order[count]]):
            count += 1
        for object_id in self._order[:count]:
            del self._items[object_id]
            del self._position[object_id]
        del self._order[:count]
        self._dropped += count

    def since(self, count: int) -> list[Json]:
        """Return the objects added since there were ``count``, oldest first. Works only if none were removed."""
        return [self._items[object_id] for object_id in self._order[count:]]

    def page(self, limit: int, starting_after: str | None, wanted: Callable[[Json], bool]) -> Json:
        """Return a page, newest first: ``{object, has_more, data}``. Raises resource_not_found for a wrong cursor."""
        index = len(self._order)
        if starting_after is not None:
            if starting_after not in self._position:
                raise ApiError("resource_not_found", "There is no such object to start after.", param="starting_after")
            index = self._position[starting_after] - self._dropped
        data: list[Json] = []
        while index > 0:
            index -= 1
            item = self._items[self._order[index]]
            if wanted(item):
                if len(data) == limit:
                    return {"object": "list", "has_more": True, "data": data}
                data.append(item)
        return {"object": "list", "has_more": False, "data": data}

    def __iter__(self) -> Iterator[Json]:
        return (self._items[object_id] for object_id in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._items


class EventStore:
    """Emits, stores and deletes events. ``on_emit`` is called with each event and the exact bytes of its body."""

    def __init__(self, clock: Clock, on_emit: Callable[[Json, bytes], None]) -> None:
        self.items = Collection()
        self._bodies: dict[str, bytes] = {}
        self._clock = clock
        self._on_emit = on_emit

    def emit(self, event_type: str, data: Json) -> None:
        """Store and send an event for an object. The times of events follow the order of the changes."""
        if event_type not in EVENT_TYPES:
            raise ValueError(f"{event_type!r} is not an event type")
        event: Json = {
            "id": new_id("evt"),
            "object": "event",
            "type": event_type,
            "created_at": iso(self._clock.stamp()),
            "data": copy.deepcopy(data),
        }
        body = encode_json(event)
        self.items.add(event)
        self._bodies[event["id"]] = body
        self._on_emit(event, body)

    def restore(self, events: list[Json]) -> None:
        """Store events of an earlier run, oldest first, without sending them."""
        for event in events:
            self.items.add(event)
            self._bodies[event["id"]] = encode_json(event)

    def body(self, event_id: str) -> bytes | None:
        """Return the bytes to deliver, equal at every attempt; None if the event is deleted."""
        return self._bodies.get(event_id)

    def prune(self) -> None:
        """Delete events older than 30 days."""
        horizon = self._clock.now() - RETENTION
        oldest = next(iter(self.items), None)
        if oldest is None or parse_iso(oldest["created_at"]) >= horizon:
            return
        self.items.drop_oldest_while(lambda event: parse_iso(event["created_at"]) < horizon)
        self._bodies = {event["id"]: self._bodies[event["id"]] for event in self.items}


@dataclass
class ProjectContext:
    """The shared parts of one project. ``page_url`` returns the address of a payment's checkout page."""

    clock: Clock
    events: EventStore
    ledger: Ledger
    terms: Terms
    page_url: Callable[[str], str]

    def emit(self, item: Json) -> None:
        """Emit the event for the object's type and new status."""
        self.events.emit(f"{item['object']}.{item['status']}", item)

    def stamp(self) -> str:
        """Return the time of a change, in the format of the API."""
        return iso(self.clock.stamp())


class Resources:
    """The objects of one type. ``in_progress_since`` has the times from which automatic progress counts."""

    def __init__(self, context: ProjectContext) -> None:
        self.items = Collection()
        self.in_progress_since: dict[str, str] = {}
        self._context = context

    def _require(self, object_id: str, statuses: tuple[str, ...], verb: str) -> Json:
        item = self.items.find(object_id)
        if item["status"] not in statuses:
            allowed = ", ".join(statuses)
            raise SandboxError(f"a {item['object']} that is {item['status']} cannot {verb}; allowed from {allowed}")
        return item

    def _require_cancelable(self, object_id: str, statuses: tuple[str, ...]) -> Json:
        """Return the object, for the API. Raises resource_not_found and invalid_state."""
        item = self.items.get_or_404(object_id)
        if item["status"] not in statuses:
            raise ApiError("invalid_state", f"A {item['object']} that is {item['status']} cannot be canceled.")
        return item

    def _update(self, item: Json, status: str, **changes: object) -> None:
        item.update(status=status, **changes)
        if status == "processing":
            self.in_progress_since[item["id"]] = self._context.stamp()
        else:
            self.in_progress_since.pop(item["id"], None)
