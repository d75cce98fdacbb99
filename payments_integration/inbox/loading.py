"""Load what a worker needs to dispatch the items of many objects, with a few statements.

An item is an event, or a status change that an answer brought.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F, Max, Min, OuterRef, Q, QuerySet

from payments_integration import conf
from payments_integration.db import statements
from payments_integration.models import (
    MIRRORS,
    Event,
    EventState,
    ObjectDispatch,
    ObjectKey,
    Shape,
    StatusChange,
    keys_of,
    of_objects,
    shape_of,
)
from payments_integration.projection import MAX_AHEAD, awaiting_read, clock_offset, id_field

#: Later items of the object wait for these events: another worker may be applying a pending one, and a later batch may
#: finish first. An event that could not be applied needs an upgrade, so nothing waits for it.
TO_BE_APPLIED_STATES = (Q(state=EventState.HELD), Q(state=EventState.PENDING, attempts=0))
TO_BE_APPLIED = TO_BE_APPLIED_STATES[0] | TO_BE_APPLIED_STATES[1]
#: The states of an event that was dispatched once: a replayed one waits again, and may be parked.
_ONCE_DONE = (EventState.DONE, EventState.APPLIED, EventState.PARKED)

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
        extra["event_id"] = item.pk
    return extra


def load(rows: Iterable[ObjectDispatch], using: str) -> tuple[list[Work], bool]:
    """Load the objects that have items to dispatch. Returns them, and True if these are all of their items."""
    works = {row.object_key: Work(row) for row in rows}
    if not works:
        return [], True
    # Read mirror rows and waiting events first: a change after that is noticed when the item is dispatched.
    _load_mirrors(works, using)
    (shape, given), most = shape_of(works), conf.current().BATCH_SIZE
    waiting = _first_waiting(shape, using=using, given=given)
    blocked_from = {(account, kind, object_id): at for account, kind, object_id, at in waiting}
    events = _load_items(Event, "created_at", shape, given, most, using)
    answered = _load_items(StatusChange, "at", shape, given, most, using)
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
            work.changes[str(item.pk)] = [item] if isinstance(item, StatusChange) else []
    by_id = {event.pk: event for event in events}
    for change in _brought_by(by_id, using):
        change.event = by_id[str(change.event_id)]
        works[change.event.object_key].changes.setdefault(change.event.pk, []).append(change)
    loaded = [work for work in works.values() if work.items]
    _load_staleness(loaded, using)
    return loaded, is_whole


@statements.built_once
def _first_waiting(shape: Shape) -> QuerySet[Any, Any]:
    waiting = Event.objects.filter(of_objects(keys_of(shape)), TO_BE_APPLIED).order_by()
    return waiting.values_list("account", "object_kind", "object_id").annotate(Min("created_at"))


def _load_items(model: Any, when: str, shape: Shape, given: dict[str, str], most: int, using: str) -> list[Any]:
    """Return items to dispatch, each with ``clock_offset``: the provider's clock minus ours in seconds."""
    items = []
    for *values, offset in _applied(model, when, shape, most, using=using, given=given):
        item = statements.instance(model, values, using)
        item.clock_offset = offset
        items.append(item)
    return items


@statements.built_once
def _applied(model: Any, when: str, shape: Shape, most: int) -> QuerySet[Any]:
    items: QuerySet[Any] = model._default_manager.filter(of_objects(keys_of(shape)), state=EventState.APPLIED)
    items = items.annotate(clock_offset=clock_offset(OuterRef("account")))
    return items.order_by(when, "pk")[:most]


def _load_mirrors(works: dict[ObjectKey, Work], using: str) -> None:
    for kind, model in MIRRORS.items():
        ids = [key[2] for key in works if key[1] == kind]
        column, names = id_field(kind), statements.columns(model)
        account_at, key_at, version_at, erased_at = map(names.index, ("account", column, "version", "erased_at"))
        for values in statements.rows_in(model, {column: ids}, using) if ids else ():
            work = works.get((values[account_at], kind, values[key_at]))
            if work is not None:
                work.values, work.seen = values, (values[version_at], values[erased_at] is not None)


def _brought_by(events: Collection[str], using: str) -> list[StatusChange]:
    """Return the status changes that these events brought."""
    if not events:
        return []
    given = dict(zip(statements.stand_ins(len(events)), events, strict=True))
    found = _changes_of(len(events), using=using, given=given)
    return [statements.instance(StatusChange, values, using) for values in found]


@statements.built_once
def _changes_of(count: int) -> QuerySet[StatusChange]:
    return StatusChange.objects.filter(event__in=statements.stand_ins(count)).order_by("pk")


def _load_staleness(works: list[Work], using: str) -> None:
    if not works:
        return
    by_key = {work.row.object_key: work for work in works}
    (shape, given), earliest = shape_of(by_key), min(time_of(work.items[0]) for work in works)
    max_ahead = tuple({work.row.account: work.max_ahead for work in works}.items())
    newest = _newest_dispatched(shape, max_ahead, using=using, given=given, times={_EARLIEST: earliest})
    for account, kind, object_id, created_at in newest:
        by_key[account, kind, object_id].dispatched_to = created_at


#: The time of the earliest item, in SQL that is built once.
_EARLIEST = datetime(1970, 3, 1, tzinfo=UTC)


@statements.built_once
def _newest_dispatched(shape: Shape, max_ahead: tuple[tuple[str, timedelta], ...]) -> QuerySet[Any, Any]:
    not_far_ahead = Q()
    for account, most in max_ahead:
        not_far_ahead |= Q(account=account, created_at__lt=F("received_at") + most)
    dispatched = Event.objects.filter(
        of_objects(keys_of(shape)),
        not_far_ahead,
        state__in=_ONCE_DONE,
        dispatched_at__isnull=False,
        created_at__gt=_EARLIEST,
    )
    return dispatched.order_by().values_list("account", "object_kind", "object_id").annotate(Max("created_at"))
