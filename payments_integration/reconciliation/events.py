"""Missed events: GET /events against the inbox (spec, "Events").

One pass per account at a time. The end of a pass is fixed at its start on the provider's clock. What lies between
the watermark and the end is cut into windows, oldest first; each page goes through the inbox; the watermark moves
only when a window is complete, and the cursor is saved per page, so that an interrupted pass goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from payments_integration import conf, inbox
from payments_integration.client import Answer, PageOf, RawEvent, get_client
from payments_integration.exceptions import PagingError, ProviderError
from payments_integration.inbox import Receipt
from payments_integration.models import EventSource, ReconciliationRun, RunKind
from payments_integration.reconciliation.fetching import ahead
from payments_integration.reconciliation.leases import Lease, lease
from payments_integration.reconciliation.objects import resync
from payments_integration.reconciliation.runs import Progress, recorded
from payments_integration.signals import call_attention

#: An event may show up late; the hour before the watermark is read again.
OVERLAP = timedelta(hours=1)
#: The provider keeps events 30 days (spec, "Delivery rules").
RETENTION = timedelta(days=30)
#: A gap longer than this may have lost events at its far end: objects are compared too.
MAX_GAP = timedelta(days=29)
WINDOW = timedelta(days=1)
#: Without a Date the end is taken so far before the local clock.
UNDATED = timedelta(minutes=15)
#: New events are applied after so many, to keep memory flat and the mirror close.
APPLY_EVERY = 1000


@dataclass(slots=True)
class _Window:
    start: datetime
    end: datetime
    cursor: str | None = None


def reconcile_events(
    account: str = conf.DEFAULT_ACCOUNT,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Progress | None = None,
) -> ReconciliationRun:
    """Store every event that the inbox lacks, apply and tell it; returns the record of the pass.

    ``since`` and ``until`` read just that span and leave the watermark alone. The run's ``state`` says how it ended:
    errors of the provider are recorded in it, not raised.
    """
    conf.account(account)
    resync_needed = False
    with recorded(account, RunKind.EVENTS) as run, lease(account) as held:
        now, is_dated = _provider_now(account, held)
        end = min(until, now) if until else (now if is_dated else now - UNDATED)
        resync_needed = _read_span(run, held, since, end, explicit=bool(since or until), progress=progress)
    # Merchant code may take its time: not under the lease.
    inbox.process(account)
    inbox.tell(account)
    if resync_needed and run.finished_at and not run.error:
        resync(account, progress=progress)
    return run


def _provider_now(account: str, held: Lease) -> tuple[datetime, bool]:
    """The provider's clock by the Date of an answer, else ours; and which it was. Notes how far they are apart."""
    events = get_client(account).events
    (answer,) = ahead((events.list_page(limit=1, background=True) for _ in range(1)), held.renew)
    if answer.answered_at is None:
        return timezone.now(), False
    held.write(clock_offset=(answer.answered_at - timezone.now()).total_seconds())
    return answer.answered_at, True


def _read_span(
    run: ReconciliationRun,
    held: Lease,
    since: datetime | None,
    end: datetime,
    *,
    explicit: bool,
    progress: Progress | None,
) -> bool:
    """Read all windows; returns whether objects must be compared too, because events may be gone for good."""
    state = held.state()
    gap = end - state.watermark if state.watermark else None
    start = since or (max(state.watermark - OVERLAP, end - RETENTION) if state.watermark else end - RETENTION)
    start, end = _floor(start), _ceil(end)
    resync_needed = not explicit and (gap is None or gap > MAX_GAP)
    if not explicit and gap is not None and gap > MAX_GAP:
        call_attention(
            ReconciliationRun,
            "gap_too_long",
            account=run.account,
            message=f"No complete pass for {gap.days} days: events may be gone; every object is compared.",
            instance=run,
        )
    run.window_from, run.window_to = start, end
    resumed = None
    if not explicit and state.cursor and state.window_from and state.window_to and state.window_to <= end:
        resumed = _Window(state.window_from, state.window_to, state.cursor)
    for window in _windows(start, end, resumed):
        _read_window(run, held, window, save=not explicit, progress=progress)
        if not explicit:
            held.write(watermark=window.end, window_from=None, window_to=None, cursor="")
    return resync_needed


def _windows(start: datetime, end: datetime, resumed: _Window | None) -> Iterator[_Window]:
    """Consecutive windows, oldest first; the one that was interrupted comes where it belongs, with its cursor."""
    if resumed is not None and start <= resumed.start + OVERLAP:
        yield resumed
        start = resumed.end
    while start < end:
        yield _Window(start, min(start + WINDOW, end))
        start = min(start + WINDOW, end)


def _read_window(
    run: ReconciliationRun, held: Lease, window: _Window, *, save: bool, progress: Progress | None
) -> None:
    fresh = 0
    for answer in _pages(run, held, window):
        counts = inbox.receive_many(
            run.account, (event.body for event in answer.data.items), source=EventSource.RECONCILIATION
        )
        new = counts[Receipt.NEW] + counts[Receipt.QUARANTINED]
        run.pages += 1
        run.seen += counts.total()
        run.recovered += new
        fresh += new
        if save and answer.data.has_more and answer.data.cursor:
            held.write(window_from=window.start, window_to=window.end, cursor=answer.data.cursor)
        else:
            held.renew()
        if fresh >= APPLY_EVERY:
            inbox.process(run.account)
            fresh = 0
        if progress is not None:
            progress(run)
    if fresh:
        inbox.process(run.account)


def _pages(run: ReconciliationRun, held: Lease, window: _Window) -> Iterator[Answer[PageOf[RawEvent]]]:
    """The window's pages; begun anew, once, where the provider does not know the saved cursor any more."""
    events = get_client(run.account).events

    def walk(cursor: str | None) -> Iterator[Answer[PageOf[RawEvent]]]:
        pages = events.pages(
            starting_after=cursor,
            created_from=window.start,
            created_to=window.end,
            background=True,
        )
        return ahead(pages, held.renew)

    if window.cursor is None:
        yield from walk(None)
        return
    pages = walk(window.cursor)
    try:
        first = next(pages, None)
    except (PagingError, ProviderError) as error:
        if isinstance(error, ProviderError) and error.status_code >= 500:
            raise
        yield from walk(None)
        return
    if first is not None:
        yield first
        yield from pages


def _floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)


def _ceil(at: datetime) -> datetime:
    return _floor(at) + timedelta(seconds=1) if at.microsecond else _floor(at)
