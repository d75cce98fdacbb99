"""Letting items be dispatched: events that a pass has held back, and items that a person replays."""

from __future__ import annotations

from datetime import datetime

from payments_integration import permissions
from payments_integration.db.statements import of_account
from payments_integration.db.transactions import updated
from payments_integration.inbox.dispatching import Item, key_of
from payments_integration.inbox.receiving import read_again
from payments_integration.models import Event, EventState, ObjectDispatch
from payments_integration.projection import of_objects


def release(account: str, before: datetime | None = None) -> int:
    """Let held events created before ``before`` (None: all) be dispatched; returns how many events.

    Reconciliation calls it when everything older has been received. Later events of a failed pass stay held, because
    older pages are missing.
    """
    complete = of_account(Event.objects.filter(state=EventState.HELD), account)
    if before is not None:
        complete = complete.filter(created_at__lt=before)
    return updated(complete, state=EventState.APPLIED)


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
