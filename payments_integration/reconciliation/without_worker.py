"""For projects without a worker: all that is due, once (``payments_process``), and polling (``payments_listen``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from payments_integration import inbox, projection
from payments_integration.client import get_client
from payments_integration.db.transactions import long_ago
from payments_integration.exceptions import KEY_REFUSED
from payments_integration.models import AccountState, Event, EventSource, ReconciliationRun, RunKind
from payments_integration.reconciliation.accounts import reconcile_balances
from payments_integration.reconciliation.due import process_due
from payments_integration.reconciliation.events import receive_page, reconcile_events
from payments_integration.reconciliation.objects import reconcile_objects
from payments_integration.reconciliation.retention import prune
from payments_integration.schedule import BEAT_SCHEDULE

#: An event may be listed a little late.
OVERLAP = timedelta(minutes=1)


def run_due(account: str, *, reconcile_now: bool = False) -> list[ReconciliationRun]:
    """Do once what a worker and its schedule would do for an account now; returns the records of the passes.

    Each kind of pass runs if the schedule's interval has passed since the last one began, or if the provider refused
    the API key then. Pruning follows the daily sweep. ``reconcile_now``: run every pass, whenever the last one was.
    """
    runs: list[ReconciliationRun] = []
    process_due(account)
    if reconcile_now or _is_due(account, RunKind.EVENTS, "reconcile_events"):
        runs.append(reconcile_events(account))
    if reconcile_now or _is_due(account, RunKind.OBJECTS, "reconcile_objects"):
        swept_at = _swept_at(account)
        runs.append(reconcile_objects(account))
        if _swept_at(account) != swept_at:
            prune(account)
    if reconcile_now or _is_due(account, RunKind.BALANCES, "sync_balances"):
        runs.append(reconcile_balances(account))
    process_due(account)
    return runs


def _is_due(account: str, kind: str, task: str) -> bool:
    interval = timedelta(seconds=float(BEAT_SCHEDULE[f"payments_integration.{task}"]["schedule"]))
    recent = ReconciliationRun.objects.filter(~long_ago("started_at", interval), account=account, kind=kind)
    return all(error.startswith(KEY_REFUSED) for error in recent.values_list("error", flat=True))


def _swept_at(account: str) -> datetime | None:
    return AccountState.objects.filter(pk=account).values_list("swept_at", flat=True).first()


@dataclass(frozen=True, slots=True)
class Poll:
    """The new events, oldest first, and where the next poll begins."""

    events: list[Event]
    next_since: datetime


def poll(account: str, *, since: datetime) -> Poll:
    """Store, apply and dispatch events created from ``since`` on; raises what the client raises."""
    begun = timezone.now()
    next_since: datetime | None = None
    for answer in get_client(account).events.pages(created_from=since, background=True):
        projection.note_contact(account, answer.answered_at)
        receive_page(account, answer.data)
        if next_since is None:
            # The first page is the newest. Events created while the others are read are left to the next poll.
            next_since = max(since, min(answer.answered_at or since, begun) - OVERLAP)
    new = list(
        Event.objects.filter(account=account, received_at__gte=begun, source=EventSource.RECONCILIATION).order_by(
            "created_at", "pk"
        )
    )
    # Pages come newest first, so the events are dispatched only now, oldest first.
    inbox.process(account)
    inbox.release(account)
    process_due(account)
    return Poll(new, next_since or since)
