"""Load what a worker needs to dispatch the items of many objects, with a few statements.

An item is an event, or a status change that an answer brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from payments_integration import conf
from payments_integration.db import statements
from payments_integration.inbox.finding import EARLIEST, applied_items, brought_by, first_waiting, newest_dispatched
from payments_integration.models import MIRRORS, Event, ObjectDispatch, ObjectKey, StatusChange, shape_of
from payments_integration.projection import MAX_AHEAD, awaiting_read, id_field

Item = Event | StatusChange


@dataclass(slots=True)
class Work:
    """The items of an object that can be dispatched, oldest first."""

    row: ObjectDispatch
    items: list[Item] = field(default_factory=list)
    #: True if the items may share a transaction with items of other objects (``groups``).
    is_grouped: bool = False
    #: The status changes that each event brought.
    changes: dict[str, list[StatusChange]] = field(default_factory=dict)
    #: The columns of the mirror row when the items were loaded; none if there is no row.
    values: Sequence[Any] = ()
    #: The version of that row and "is erased": an erasure does not count as a version.
    seen: Seen | None = None
    #: ``created_at`` of the newest dispatched event. Earlier items are stale.
    dispatched_to: datetime | None = None
    #: Ignore events dated further ahead of their receipt when deciding staleness. Otherwise one of them would make
    #: every later event stale. Includes the difference of the clocks, because ``received_at`` is ours.
    max_ahead: timedelta = MAX_AHEAD

    def note_dispatched(self, item: Item) -> None:
        """Remove the first item after its dispatch."""
        self.items.pop(0)
        self.dispatched_to = self.dispatched_to_after(item, self.dispatched_to)

    def dispatched_to_after(self, item: Item, dispatched_to: datetime | None) -> datetime | None:
        """Return ``dispatched_to`` as it is after this item."""
        if isinstance(item, Event) and item.created_at < item.received_at + self.max_ahead:
            return max(dispatched_to or item.created_at, item.created_at)
        return dispatched_to

    def turns(self) -> Iterator[tuple[Item, bool]]:
        """Yield each item with "is stale", as if the items before it were dispatched in the same transaction."""
        dispatched_to = self.dispatched_to
        for item in self.items:
            yield item, dispatched_to is not None and dispatched_to > time_of(item)
            dispatched_to = self.dispatched_to_after(item, dispatched_to)


#: The version of a mirror row, and True if it is erased.
Seen = tuple[int, bool]


def time_of(item: Item) -> datetime:
    """Return the provider's time. An object's items are dispatched in its order."""
    return item.created_at if isinstance(item, Event) else item.at


def ids_of(item: Item) -> dict[str, str]:
    extra = {"account": item.account}
    if isinstance(item, Event):
        extra["event_id"] = item.id
    return extra


def load(rows: Iterable[ObjectDispatch], using: str) -> tuple[list[Work], bool]:
    """Load the objects that have items to dispatch. Returns them, and True if these are all of their items."""
    works = {row.object_key: Work(row) for row in rows}
    if not works:
        return [], True
    # Read mirror rows and waiting events first: a change after that is noticed when the item is dispatched.
    _load_mirrors(works, using)
    (shape, given), most = shape_of(works), conf.current().BATCH_SIZE
    waiting = first_waiting(shape, using=using, given=given)
    blocked_from = {(account, kind, object_id): at for account, kind, object_id, at in waiting}
    events = applied_items(Event, "created_at", shape, given, most, using)
    answered = applied_items(StatusChange, "at", shape, given, most, using)
    # The transaction that applies an event requests the read that it needs, so look for the read after the event.
    unread = awaiting_read(works)
    is_whole = max(len(events), len(answered)) < most
    # The sort is stable: an event goes before a change of the same time.
    items: list[Item] = sorted([*events, *answered], key=time_of)
    for item in items:
        key = item.object_key
        work, first_blocked = works[key], blocked_from.get(key)
        if not is_whole and time_of(item) > min(
            time_of(found[-1]) for found in (events, answered) if len(found) == most
        ):
            break  # earlier items than this one are not loaded
        if key not in unread and (first_blocked is None or time_of(item) < first_blocked):
            work.items.append(item)
            # Only a provider whose clock is ahead widens the limit. If ours was set forward after the receipt, every
            # earlier event would seem to be ahead.
            offset: float = max(item.clock_offset or 0.0, 0.0)  # type: ignore[union-attr]
            work.max_ahead = MAX_AHEAD + timedelta(seconds=offset)
            work.changes[str(item.id)] = [item] if isinstance(item, StatusChange) else []
    by_id = {event.id: event for event in events}
    for change in brought_by(by_id, using):
        change.event = by_id[str(change.event_id)]
        works[change.event.object_key].changes.setdefault(change.event.id, []).append(change)
    loaded = [work for work in works.values() if work.items]
    _load_staleness(loaded, using)
    return loaded, is_whole


def _load_mirrors(works: dict[ObjectKey, Work], using: str) -> None:
    for kind, model in MIRRORS.items():
        ids = [key[2] for key in works if key[1] == kind]
        column, names = id_field(kind), statements.columns(model)
        account_at, key_at, version_at, erased_at = map(names.index, ("account", column, "version", "erased_at"))
        for values in statements.rows_in(model, {column: ids}, using) if ids else ():
            work = works.get((values[account_at], kind, values[key_at]))
            if work is not None:
                work.values, work.seen = values, (values[version_at], values[erased_at] is not None)


def _load_staleness(works: list[Work], using: str) -> None:
    if not works:
        return
    by_key = {work.row.object_key: work for work in works}
    (shape, given), earliest = shape_of(by_key), min(time_of(work.items[0]) for work in works)
    max_ahead = tuple(sorted({work.row.account: work.max_ahead for work in works}.items()))
    newest = newest_dispatched(shape, max_ahead, using=using, given=given, times={EARLIEST: earliest})
    for account, kind, object_id, created_at in newest:
        by_key[account, kind, object_id].dispatched_to = created_at
