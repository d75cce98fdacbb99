"""Events to mirror rows, in batches with a bounded number of statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q

from payments_integration import bulk, wire
from payments_integration.enums import Kind
from payments_integration.models import (
    MIRRORS,
    Balance,
    BalanceChange,
    Event,
    Mirror,
    StateBy,
    StatusChange,
)
from payments_integration.projection import changes, ordering, rows
from payments_integration.projection.clock import provider_times
from payments_integration.projection.erasing import keep_erased
from payments_integration.projection.ordering import Order
from payments_integration.projection.refreshes import ObjectKey, request_refreshes
from payments_integration.transactions import hold


@dataclass(slots=True)
class Applied:
    """What a batch did, for the inbox to mark."""

    #: Event id to the mirrored status when it was applied.
    previous_status: dict[str, str] = field(default_factory=dict)
    #: Event id to why it cannot be applied: it must go to quarantine.
    refused: dict[str, str] = field(default_factory=dict)
    #: Ids of events whose object somebody else holds: they stay as they are for the next batch.
    postponed: set[str] = field(default_factory=set)
    #: Ids of events whose object's personal data was erased: their bodies must not be kept.
    erased: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Object:
    """One mirrored object while a batch goes over it."""

    row: Any | None
    is_held_elsewhere: bool = False
    #: Not to be stored with its personal data, should it be new.
    is_erased: bool = False
    is_new: bool = False
    changed: bool = False
    first_status: str = ""
    last_event: Event | None = None
    #: What ``last_event`` said, where the row does not have it yet: of many events only the last one is written out.
    latest: wire.AnyResource | None = None
    amounts: tuple[int, ...] = ()

    @property
    def status(self) -> str:
        """The mirrored status as it is after the events so far."""
        if self.latest is not None:
            return str(rows.storable(getattr(self.latest, "status", "")))
        return rows.status_of(self.row) if self.row is not None else ""

    def write_out(self) -> Any:
        """The row, with all that the events so far have brought."""
        if self.latest is not None:
            rows.assign(self.row, rows.row_values(self.latest))  # type: ignore[arg-type]
            self.latest = None
        return self.row


def apply_events(events: Iterable[tuple[Event, wire.AnyResource]]) -> Applied:
    """Apply events to the mirror, in ``created_at`` order per object. Call inside a transaction.

    Locks the touched rows in one fixed order, inserts those that are absent (an IntegrityError means that another
    transaction was first: repeat the whole batch) and updates only rows held under lock. Rows that another
    transaction holds are waited for by nobody: their events are postponed.
    """
    batch = sorted(events, key=lambda item: (item[0].created_at, item[0].id))
    now_at = provider_times(event.account for event, _ in batch)
    objects = _lock(batch)
    _note_erased(batch, objects)
    applied = Applied()
    refreshes: dict[ObjectKey, str] = {}
    for event, resource in batch:
        item = objects[_key(event)]
        if item.is_held_elsewhere:
            applied.postponed.add(event.id)
            continue
        if item.row is not None and item.row.account != event.account:
            applied.refused[event.id] = "the object belongs to another account"
            continue
        applied.previous_status[event.id] = item.status
        reason = _apply(item, event, resource, now_at[event.account])
        if item.row is not None and item.row.erased_at:
            applied.erased.add(event.id)
        if reason:
            refreshes[(event.account, event.object_kind, event.object_id)] = reason
        if isinstance(resource, wire.Refund) and item.last_event is event:
            # A refund may change its payment's refunded_amount without an event of the payment; and where the
            # payment is not here yet, this brings it.
            refreshes.setdefault((event.account, Kind.PAYMENT, resource.payment_id), "refund_changed")
    _save(objects.values())
    request_refreshes(refreshes)
    return applied


def _apply(item: _Object, event: Event, resource: wire.AnyResource, provider_now: datetime) -> str:
    """Bring one event to its object; returns why the object must be read again, or ""."""
    too_far_ahead = event.created_at > provider_now + ordering.MAX_AHEAD
    if item.row is None:
        at = provider_now if too_far_ahead else event.created_at
        item.row = rows.new_row(
            event.account, resource, rows.row_values(resource), at=at, by=StateBy.EVENT, is_erased=item.is_erased
        )
        item.is_new = item.changed = True
        item.last_event = event
        return "time_ahead" if too_far_ahead else ""
    if too_far_ahead:
        return "time_ahead"
    row: Mirror = item.row
    if row.state_by == StateBy.EVENT:
        order = ordering.event_after_event(event.created_at, row.state_at)
    else:
        order = ordering.event_after_answer(event.created_at, row.state_at, row.state_span)
    if order is Order.OLDER:
        return ""
    if order is Order.UNCLEAR:
        return "order_unclear" if rows.differences(item.write_out(), resource) else ""
    rows.stamp(row, at=event.created_at, by=StateBy.EVENT)
    item.latest = resource
    item.changed = True
    item.last_event = event
    return ""


def _note_erased(batch: list[tuple[Event, Any]], objects: dict[tuple[str, str, str], _Object]) -> None:
    """Of the objects that are new, those whose personal data was erased before they came."""
    new = [(event, resource) for event, resource in batch if objects[_key(event)].row is None]
    erased = keep_erased(
        (event.account, resource) for event, resource in new if not objects[_key(event)].is_held_elsewhere
    )
    for event, _ in new if erased else ():
        if (event.account, event.object_kind, event.object_id) in erased:
            objects[_key(event)].is_erased = True


def _key(event: Event) -> tuple[str, str, str]:
    # Ids are unique across accounts (a foreign row must be found, to refuse the event); currencies are not.
    scope = event.account if event.object_kind == Kind.BALANCE else ""
    return (event.object_kind, scope, event.object_id)


def _lock(batch: list[tuple[Event, Any]]) -> dict[tuple[str, str, str], _Object]:
    objects = {_key(event): _Object(row=None) for event, _ in batch}
    for kind, model in MIRRORS.items():
        keys = [key for key in objects if key[0] == kind]
        if not keys:
            continue
        wanted = model._default_manager.filter(_identity(model, keys))
        for row in hold(wanted, skip_locked=True).order_by("pk"):
            item = objects.get(_row_key(row))
            if item is not None:
                item.row = row
                item.first_status = rows.status_of(row)
                item.amounts = changes.balance_amounts(row) if isinstance(row, Balance) else ()
        missing = [key for key in keys if objects[key].row is None]
        if missing:
            # Absent, or skipped because another transaction holds it.
            for row in model._default_manager.filter(_identity(model, missing)):
                item = objects.get(_row_key(row))
                # Asked for by accounts and currencies, balances come that we hold ourselves.
                if item is not None and item.row is None:
                    item.is_held_elsewhere = True
    return objects


def _identity(model: type[Any], keys: list[tuple[str, str, str]]) -> Q:
    if model is Balance:
        return Q(account__in={key[1] for key in keys}, currency__in={key[2] for key in keys})
    return Q(pk__in=[key[2] for key in keys])


def _row_key(row: Mirror) -> tuple[str, str, str]:
    return (row.kind, row.account if isinstance(row, Balance) else "", row.object_id)


def _save(objects: Iterable[_Object]) -> None:
    touched = [item for item in objects if item.changed]
    for item in touched:
        item.write_out()
    for model in MIRRORS.values():
        bulk.insert([item.row for item in touched if isinstance(item.row, model) and item.is_new])
        bulk.overwrite([item.row for item in touched if isinstance(item.row, model) and not item.is_new])
    status_changes: list[StatusChange] = []
    balance_changes: list[BalanceChange] = []
    for item in touched:
        row, event = item.row, item.last_event
        if row is None or event is None:
            continue
        if isinstance(row, Balance):
            if changes.balance_amounts(row) != item.amounts:
                balance_changes.append(changes.balance_change(row, at=row.state_at))
        elif change := changes.status_change(row, item.first_status, at=event.created_at, event=event):
            status_changes.append(change)
    bulk.insert(status_changes, keys=False)
    bulk.insert(balance_changes, keys=False)
