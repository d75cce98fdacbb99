"""Polling GET /events from a moment on: for development without a public address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from payments_integration import inbox
from payments_integration.client import get_client
from payments_integration.models import Event, EventSource
from payments_integration.reconciliation.due import work_off

#: Events may show up a little late.
OVERLAP = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Poll:
    """What was new, oldest first, and where the next poll begins."""

    events: list[Event]
    next_since: datetime


def poll(account: str, *, since: datetime) -> Poll:
    """Store, apply and tell events created from ``since`` on; raises what the client raises."""
    begun = timezone.now()
    next_since: datetime | None = None
    for answer in get_client(account).events.pages(created_from=since, background=True):
        inbox.receive_many(account, (event.body for event in answer.data.items), source=EventSource.RECONCILIATION)
        if next_since is None:
            # The first page is the newest: what is created while the others are read is left to the next poll.
            next_since = max(since, min(answer.answered_at or since, begun) - OVERLAP)
    new = list(
        Event.objects.filter(account=account, received_at__gte=begun, source=EventSource.RECONCILIATION).order_by(
            "created_at", "pk"
        )
    )
    # Told only now, oldest first: the pages came newest first.
    inbox.process(account)
    inbox.release(account)
    work_off(account)
    return Poll(new, next_since or since)
