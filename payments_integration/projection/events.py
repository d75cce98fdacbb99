"""Apply events to mirror rows, in batches with a limited number of statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

from django.db import router

from payments_integration import schemas
from payments_integration.db import statements
from payments_integration.db.fields import SameAccountKey
from payments_integration.enums import FIRST_STATUSES
from payments_integration.models import MIRRORS, Event, Mirror, ObjectKey, RefreshReason, StateBy, StatusChange
from payments_integration.projection import ordering, rows
from payments_integration.projection.ordering import Order
from payments_integration.projection.reads import linked_reads, request_refreshes
from payments_integration.projection.rows import keep_erased
from payments_integration.signals import mirror_written


@dataclass(slots=True)
class BatchResult:
    """The results of a batch, for the inbox to record."""

    #: Event id to the mirrored status before the event.
    previous_status: dict[str, str] = field(default_factory=dict)
    #: Event id to the new status, for each event that brought a change of status.
    new_status: dict[str, str] = field(default_factory=dict)
    #: Event id to the reason why it cannot be applied. These events go to quarantine.
    refused: dict[str, str] = field(default_factory=dict)
    #: Ids of events whose object another transaction has locked. The next batch applies them.
    postponed: set[str] = field(default_factory=set)
    #: Ids of events whose object's personal data was erased. Their bodies are deleted.
    erased: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Object:
    """One mirrored object during a batch."""

    row: Any | None
    is_locked_elsewhere: bool = False
    #: If the object is new, store it without personal data.
    is_erased: bool = False
    is_new: bool = False
    changed: bool = False
    first_status: str = ""
    #: The time of the row before the batch; None: the object is new.
    first_at: datetime | None = None
    last_event: Event | None = None
    #: The content of ``last_event`` until it is assigned to the row. Of many events only the last is assigned.
    latest: schemas.AnyResource | None = None

    @property
    def status(self) -> str:
        """Return the status after the events so far."""
        if self.latest is not None:
            return str(rows.storable(getattr(self.latest, "status", "")))
        return rows.status_of(self.row) if self.row is not None else ""

    def up_to_date_row(self) -> Any:
        """Return the row with the content of the events so far."""
        if self.latest is not None:
            rows.assign(self.row, rows.row_values(self.latest))  # type: ignore[arg-type]
            self.latest = None
        return self.row


def apply_events(events: Iterable[tuple[Event, schemas.AnyResource]]) -> BatchResult:
    """Apply events to the mirror, in ``created_at`` order per object. Call inside a transaction.

    Locks the rows in one fixed order, inserts absent ones and updates only locked rows. An IntegrityError means that
    another transaction was faster: repeat the whole batch. Events of rows that another transaction has locked are
    postponed.
    """
    batch = sorted(events, key=lambda item: (item[0].created_at, item[0].id))
    if not batch:
        return BatchResult()
    objects = _lock(batch)
    absent = [key for key, item in objects.items() if item.row is None]
    named = [name for _, resource in batch for name in _named(resource)]
    new = [(event, resource) for event, resource in batch if objects[_key(event)].row is None]
    erasing = {key for event, resource in new for key in rows.erasing_keys(event.account, resource)}
    facts = rows.read_facts((event for event, _ in batch), [*named, *absent], erasing)
    owners = facts.owners
    for key in absent:
        objects[key].is_locked_elsewhere = key in owners
    owners |= {key: item.row.account for key, item in objects.items() if item.row is not None}
    _note_erased(new, objects, facts.erased)
    applied = BatchResult()
    refreshes: dict[ObjectKey, str] = {}
    #: Objects whose rows may be older than an event. Their handlers wait for the refresh.
    awaited: set[ObjectKey] = set()
    for event, resource in batch:
        row_key = _key(event)
        item = objects[row_key]
        if item.is_locked_elsewhere:
            applied.postponed.add(event.id)
            continue
        if item.row is not None and item.row.account != event.account:
            applied.refused[event.id] = "the object belongs to another account"
            continue
        if any(owners.get(name, event.account) != event.account for name in _named(resource)):
            applied.refused[event.id] = "it names an object of another account"
            continue
        applied.previous_status[event.id] = item.status
        reason = _apply(item, event, resource, facts.now_at[event.account])
        if item.row is not None and item.row.erased_at:
            applied.erased.add(event.id)
        key = event.object_key
        if reason:
            refreshes[key] = reason
        if item.last_event is event:
            awaited.discard(key)
        elif reason:
            awaited.add(key)
        if item.last_event is event:
            # If that object is not mirrored yet, the refresh inserts it.
            for linked, why in linked_reads(event.account, resource).items():
                refreshes.setdefault(linked, why)
        owners[row_key] = event.account
    applied.new_status = _save(objects.values(), facts.recorded)
    if refreshes:
        request_refreshes(refreshes, awaited=awaited)
    return applied


def _apply(item: _Object, event: Event, resource: schemas.AnyResource, provider_now: datetime) -> str:
    """Apply one event to its object. Returns the reason for a refresh, or ""."""
    too_far_ahead = event.created_at > provider_now + ordering.MAX_AHEAD
    if item.row is None:
        # Such a time orders nothing, and ours may be wrong: the row counts as read at an unknown time.
        at, by = event.created_at, StateBy.EVENT
        if too_far_ahead:
            at, by = provider_now, StateBy.ANSWER
        values = rows.row_values(resource)
        item.row = rows.new_row(event.account, resource, values, at=at, by=by, is_erased=item.is_erased)
        item.is_new = item.changed = True
        item.last_event = event
        return RefreshReason.TIME_AHEAD if too_far_ahead else ""
    if too_far_ahead:
        return RefreshReason.TIME_AHEAD
    row: Mirror = item.row
    if row.state_by == StateBy.EVENT:
        order = ordering.against_event(event.created_at, row.state_at)
    else:
        goes_back = getattr(resource, "status", "") in FIRST_STATUSES and rows.status_of(row) not in FIRST_STATUSES
        order = ordering.event_against_answer(event.created_at, row.state_at, row.answer_seconds, goes_back=goes_back)
    if order is Order.OLDER:
        return ""
    if order is Order.UNCLEAR:
        return RefreshReason.ORDER_UNCLEAR if rows.differences(item.up_to_date_row(), resource) else ""
    rows.stamp(row, at=event.created_at, by=StateBy.EVENT)
    item.latest = resource
    item.changed = True
    item.last_event = event
    return ""


def _named(resource: schemas.AnyResource) -> list[rows.RowKey]:
    """Return the key of each other object that this one names, such as a refund's payment."""
    named = _references(rows.KIND_OF[type(resource)])
    return [(kind, "", object_id) for name, kind in named if (object_id := getattr(resource, name))]


@cache
def _references(kind: str) -> list[tuple[str, str]]:
    """Return the fields of this kind that hold the id of another object, and that object's kind."""
    fields: list[Any] = [field for field in MIRRORS[kind]._meta.concrete_fields if isinstance(field, SameAccountKey)]
    return [(field.attname, field.related_model.kind) for field in fields]


def _note_erased(new: list[tuple[Event, Any]], objects: dict[rows.RowKey, _Object], known: set[ObjectKey]) -> None:
    """Mark new objects whose personal data was erased before they came."""
    erased = keep_erased(
        [(event.account, resource) for event, resource in new if not objects[_key(event)].is_locked_elsewhere], known
    )
    for event, _ in new if erased else ():
        if event.object_key in erased:
            objects[_key(event)].is_erased = True


def _key(event: Event) -> rows.RowKey:
    return (event.object_kind, rows.scope(event.object_kind, event.account), event.object_id)


def _lock(batch: list[tuple[Event, Any]]) -> dict[rows.RowKey, _Object]:
    """Return the batch's objects with their rows, locked. Without a row are new ones and what is locked elsewhere."""
    objects = {_key(event): _Object(row=None) for event, _ in batch}
    for kind, model in MIRRORS.items():
        keys = [key for key in objects if key[0] == kind]
        if not keys:
            continue
        using = router.db_for_write(model)
        for values in statements.rows_in(model, rows.identity(model, keys), using, lock=True):
            row: Any = statements.from_values(model, values, using)
            item = objects.get((kind, rows.scope(kind, row.account), row.object_id))
            if item is not None:
                item.row = row
                item.first_status, item.first_at = rows.status_of(row), row.state_at
    return objects


def _save(objects: Iterable[_Object], recorded: Mapping[ObjectKey, rows.Recorded]) -> dict[str, str]:
    """Write the rows. Returns the new status by the event that brought it."""
    touched = [item for item in objects if item.changed]
    for item in touched:
        item.up_to_date_row()
    for model in MIRRORS.values():
        of_model = [item for item in touched if isinstance(item.row, model)]
        if not of_model:
            continue
        new: list[Any] = [item.row for item in of_model if item.is_new]
        known: list[Any] = [item.row for item in of_model if not item.is_new]
        # The same order in every process. Otherwise two that insert the same objects would wait for each other.
        statements.insert_many(sorted(new, key=attrgetter("account", "object_id")))
        statements.update_many(known)
    changes: list[tuple[StatusChange, datetime | None]] = []
    for item in touched:
        row, event = item.row, item.last_event
        if row is None or event is None:
            continue
        # Take the row's time, because the event may be dated ahead.
        if change := rows.status_change(row, item.first_status, at=row.state_at, event=event):
            changes.append((change, item.first_at))
    status_changes = [
        change for change, row_at in changes if rows.changes_object(change, recorded.get(change.object_key), row_at)
    ]
    if inserted := [item.row for item in touched if item.is_new]:
        rows.notice_unexpected(inserted)
    statements.insert_many(status_changes, keys=False)
    mirror_written([item.row for item in touched])
    return {str(change.event_id): change.status for change in status_changes}
