"""Do once all that is due (``payments_process``, ``payments_worker``), and poll (``payments_listen``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min, Q
from django.utils import timezone

from payments_integration import inbox, projection
from payments_integration.db.claims import long_ago
from payments_integration.exceptions import KEY_REFUSED
from payments_integration.models import Event, EventSource, EventState, ReconciliationRun, RunKind
from payments_integration.reconciliation.accounts import reconcile_balances
from payments_integration.reconciliation.due import process_due
from payments_integration.reconciliation.events import receive_page, reconcile_events
from payments_integration.reconciliation.objects import reconcile_objects
from payments_integration.reconciliation.retention import prune_daily
from payments_integration.reconciliation.runs import PASS, state_of
from payments_integration.runtime import stopping
from payments_integration.schedule import BEAT_SCHEDULE
from payments_integration.sync import get_client

#: An event may be listed a little late.
OVERLAP = timedelta(minutes=1)


def run_due(
    account: str, *, reconcile_now: bool = False, turn_seconds: float | None = None, done: Counter[str] | None = None
) -> list[ReconciliationRun]:
    """Do once what a worker and its schedule would do for an account now. Returns the records of the passes.

    Each kind of pass runs if the schedule's interval has passed since the last one began, or if the provider refused
    the API key then. Pruning follows the daily sweep; with the first account, also the accounts that the setting no
    longer has are pruned. ``reconcile_now``: run every pass, whenever the last one was. ``turn_seconds`` and ``done``
    are the same as in ``process_due``. If the process is asked to stop, no further pass begins.
    """
    runs: list[ReconciliationRun] = []

    def begins(kind: str, task: str) -> bool:
        return not stopping.is_requested() and (reconcile_now or _is_due(account, kind, task))

    process_due(account, turn_seconds=turn_seconds, done=done)
    if begins(RunKind.EVENTS, "reconcile_events"):
        runs.append(reconcile_events(account))
    if begins(RunKind.OBJECTS, "reconcile_objects"):
        swept_at = _swept_at(account)
        runs.append(reconcile_objects(account))
        # Without a time the sweeps fail, and pruning does not wait for them.
        now_swept_at = _swept_at(account)
        if now_swept_at is None or now_swept_at != swept_at:
            prune_daily(account)
    if begins(RunKind.BALANCES, "sync_balances"):
        runs.append(reconcile_balances(account))
    process_due(account, turn_seconds=turn_seconds, done=done)
    return runs


def _is_due(account: str, kind: str, task: str) -> bool:
    interval = timedelta(seconds=float(BEAT_SCHEDULE[f"payments_integration.{task}"]["schedule"]))
    recent = ReconciliationRun.objects.filter(~long_ago("started_at", interval), account=account, kind=kind)
    return all(error.startswith(KEY_REFUSED) for error in recent.values_list("error", flat=True))


def _swept_at(account: str) -> datetime | None:
    return state_of(account).values_list("swept_at", flat=True).first()


@dataclass(frozen=True, slots=True)
class Poll:
    """The new events, oldest first, and where the next poll begins."""

    events: list[Event]
    next_since: datetime


def polled_from(account: str, since: datetime) -> datetime:
    """Return where a new listener begins: before ``since`` if an earlier one was interrupted and its events wait.

    Events of a pass that is running, or that the next pass continues, are left to it. Events that have waited for an
    hour are released anyway: a listener that starts weeks later does not read all events of those weeks.
    """
    if state_of(account).filter(~PASS.free() | Q(window_from__isnull=False)).exists():
        return since
    waiting = Event.objects.filter(account=account, state__in=(EventState.PENDING, EventState.HELD), attempts=0)
    waiting = waiting.filter(source=EventSource.RECONCILIATION, received_at__gt=timezone.now() - inbox.LONGEST_HOLD)
    oldest = waiting.aggregate(oldest=Min("created_at"))["oldest"]
    return since if oldest is None else min(since, oldest - OVERLAP)


def poll(account: str, *, since: datetime) -> Poll:
    """Store, apply and dispatch events created from ``since`` on. Raises what the client raises."""
    begun = timezone.now()
    pages = []
    for answer in get_client(account).events.pages(created_from=since, background=True):
        projection.note_contact(account, answer.answered_at)
        pages.append(answer)
    # The first page is the newest. The next poll takes events that are created while the others are read.
    next_since = max(since, min(pages[0].answered_at or since, begun) - OVERLAP)
    # Oldest first: if the listener is stopped here, the events of the other pages are newer than what it stored.
    for answer in reversed(pages):
        receive_page(account, answer.data)
    new = list(
        Event.objects.filter(account=account, received_at__gte=begun, source=EventSource.RECONCILIATION).order_by(
            "created_at", "pk"
        )
    )
    inbox.process(account)
    # Older ones may be held by a pass that is running or was interrupted.
    inbox.release(account, since=since)
    process_due(account)
    return Poll(new, next_since)
