"""Letting items be dispatched: events that a pass has held back, and items that a person replays."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.db import router
from django.db.models import Q
from django.utils import timezone

from payments_integration import permissions
from payments_integration.attention import call_attention
from payments_integration.db.statements import of_account
from payments_integration.db.transactions import repeatable, updated
from payments_integration.inbox.loading import Item, key_of
from payments_integration.inbox.receiving import read_again
from payments_integration.models import Event, EventState, ObjectDispatch
from payments_integration.projection import of_objects
from payments_integration.reasons import Reason

#: Events wait no longer than this for a pass that does not complete their window.
LONGEST_HOLD = timedelta(hours=1)


def release(account: str, before: datetime | None = None) -> int:
    """Let held events created before ``before`` (None: all) be dispatched; returns how many events.

    Reconciliation calls it when everything older has been received. Later events of a failed pass stay held, because
    older pages are missing.
    """
    complete = of_account(Event.objects.filter(state=EventState.HELD), account)
    if before is not None:
        complete = complete.filter(created_at__lt=before)
    return updated(complete, state=EventState.APPLIED)


def release_overdue(account: str | None = None) -> int:
    """Let the held events of an account be dispatched once one was held for LONGEST_HOLD; returns how many events.

    Its pass keeps failing, and later events of the objects wait for them. All of them together, so that they are
    dispatched in order; those that the pass finds later are stale. One statement if nothing is overdue.
    """
    now = timezone.now()
    # One that is further ahead was received while our clock was wrong.
    held_for_long = Q(received_at__lte=now - LONGEST_HOLD) | Q(received_at__gt=now + LONGEST_HOLD)
    overdue = of_account(Event.objects.filter(held_for_long, state=EventState.HELD), account)
    released = 0
    for name in list(overdue.order_by().values_list("account", flat=True).distinct()):
        released += repeatable(partial(_release_with_attention, name), using=router.db_for_write(Event), durable=True)
    return released


def _release_with_attention(account: str) -> int:
    if count := release(account):
        call_attention(
            Event,
            Reason.EVENTS_HELD,
            account=account,
            message=f"Reconciliation has not completed its window for an hour, so {count} held events are "
            "dispatched now. Older ones that it finds later are stale.",
        )
    return count


def replay(item: Item, actor: object = None) -> None:
    """Have a parked or dispatched event or change dispatched again; it is stale if a newer event was dispatched since.

    A quarantined event is parsed again instead, as after an upgrade. ``actor``: a user or text; raises
    PermissionDenied for a member of staff without ``replay_event``.
    """
    permissions.require_of_staff(actor, "replay_event", item)
    if isinstance(item, Event) and item.state == EventState.QUARANTINED:
        read_again(item)
        return
    if not item.object_kind:
        return  # it was never understood, and its body is erased
    finished = type(item)._default_manager.filter(pk=item.pk, state__in=(EventState.PARKED, EventState.DONE))
    updated(finished, state=EventState.APPLIED, attempts=0, error="", dispatched_at=None)
    updated(ObjectDispatch.objects.filter(of_objects([key_of(item)]), claim=""), next_attempt_at=None)
