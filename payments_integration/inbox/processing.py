"""Applying stored events to the mirror, hundreds per transaction."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import QuerySet
from django.utils import timezone

from payments_integration import conf, wire
from payments_integration.enums import Kind
from payments_integration.inbox.receiving import quarantined
from payments_integration.models import MIRRORS, AccountState, Event, EventState, StatusChange
from payments_integration.projection import TOO_OLD_TO_TELL, apply_events
from payments_integration.signals import call_attention, event_received, status_changed
from payments_integration.transactions import claim, is_transient, repeatable

logger = logging.getLogger(__name__)


def process(account: str | None = None, *, deadline: float | None = None) -> int:
    """Apply all pending events, batch by batch; returns how many.

    Safe to run anywhere at any time, also beside itself. ``deadline``: a ``time.monotonic()`` after which no
    further batch is begun.
    """
    done = 0
    while deadline is None or time.monotonic() < deadline:
        count = process_batch(account)
        done += count
        if count < conf.current().BATCH_SIZE:
            break
    return done


def process_batch(account: str | None = None) -> int:
    """Claim and apply one batch in one transaction; a crash leaves it as it was.

    An event that no transaction can apply goes to quarantine, so that it does not hold up the others.
    """
    try:
        return _batch(account)
    except Exception as error:
        if is_transient(error):
            raise
        logger.exception("A batch of events could not be applied; trying them one by one")
    ids = list(_pending(account).values_list("pk", flat=True)[: conf.current().BATCH_SIZE])
    for event_id in ids:
        try:
            _batch(account, only=event_id)
        except Exception as error:
            if is_transient(error):
                raise
            _set_aside(event_id, f"it cannot be applied: {type(error).__name__}: {error}")
    return len(ids)


def _batch(account: str | None, *, only: str | None = None) -> int:
    refused: list[Event] = []

    def batch() -> int:
        refused.clear()
        pending = _pending(account)
        if only is not None:
            pending = pending.filter(pk=only)
        events = list(claim(pending)[: conf.current().BATCH_SIZE])
        if events:
            refused.extend(_apply(events))
        return len(events)

    count = repeatable(batch, using=router.db_for_write(Event))
    _alert(refused)
    return count


def _pending(account: str | None) -> QuerySet[Event]:
    settings = conf.current()
    pending = Event.objects.filter(state=EventState.PENDING)
    if account is not None:
        pending = pending.filter(account=account)
    if settings.PROCESSING == "celery" and settings.REORDER_WINDOW:
        pending = pending.filter(received_at__lte=timezone.now() - timedelta(seconds=settings.REORDER_WINDOW))
    return pending.order_by("created_at", "id")


def _set_aside(event_id: str, reason: str) -> None:
    def move() -> list[Event]:
        return _quarantine(list(claim(Event.objects.filter(pk=event_id))), {event_id: reason})

    _alert(repeatable(move, using=router.db_for_write(Event)))


def _alert(quarantined: list[Event]) -> None:
    for event in quarantined:
        call_attention(Event, "event_quarantined", account=event.account, message=event.error, instance=event)


def _apply(events: list[Event]) -> list[Event]:
    """Apply claimed events and mark them; returns the rows that went to quarantine instead."""
    readable: list[tuple[Event, Any]] = []
    unreadable: dict[str, str] = {}
    foreign: list[Event] = []
    for event in events:
        try:
            resource = wire.event_resource(wire.decode_event(bytes(event.body or b"")))
        except wire.WireError as error:  # stored by a version that understood it
            unreadable[event.id] = str(error)
            continue
        if resource is None:
            foreign.append(event)
        else:
            readable.append((event, resource))
    applied = apply_events(readable, provider_now=provider_now(events[0].account))
    refused = {**applied.refused, **unreadable}
    _mark(
        [event for event, _ in readable if event.id not in refused] + foreign,
        applied.previous_status,
    )
    return _quarantine([event for event in events if event.id in refused], refused)


def _mark(events: list[Event], previous_status: dict[str, str]) -> None:
    """One UPDATE per distinct outcome: a handful, whatever the batch's size."""
    now = timezone.now()
    outcomes: dict[tuple[str, str, datetime | None], list[str]] = defaultdict(list)
    for event in events:
        too_old = event.received_at - event.created_at > TOO_OLD_TO_TELL
        untold = has_receivers(event.object_kind) and not too_old
        state = EventState.APPLIED if untold else EventState.DONE
        told_at = None if untold or too_old else now
        outcomes[(state, previous_status.get(event.id, ""), told_at)].append(event.id)
    for (outcome, status, told_at), ids in sorted(outcomes.items(), key=str):
        Event.objects.filter(pk__in=ids).update(state=outcome, previous_status=status, told_at=told_at)


def _quarantine(events: list[Event], reasons: dict[str, str]) -> list[Event]:
    """Move events to the quarantine: their own id becomes free for a good copy."""
    moved = [
        quarantined(event.account, bytes(event.body or b""), source=event.source, reason=reasons[event.id])
        for event in events
    ]
    if moved:
        there = set(Event.objects.filter(id__in=[row.id for row in moved]).values_list("id", flat=True))
        moved = [row for row in moved if row.id not in there]
        StatusChange.objects.filter(event__in=events).update(event=None)
        Event.objects.filter(pk__in=[event.id for event in events]).delete()
        Event.objects.bulk_create(moved)
    return moved


def has_receivers(kind: str) -> bool:
    """Whether anybody listens for events of this kind; if not, telling is over before it begins."""
    model = MIRRORS.get(kind, Event) if kind in Kind.values else Event
    return event_received.has_listeners(model) or status_changed.has_listeners(model)


def provider_now(account: str) -> datetime:
    """The provider's clock as far as we know it."""
    offset = AccountState.objects.filter(account=account).values_list("clock_offset", flat=True).first()
    return timezone.now() + timedelta(seconds=offset or 0)
