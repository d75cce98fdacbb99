"""Find missed events: compare GET /events with the inbox (spec, "Events").

One pass per account runs at a time. Its end is fixed at its start: the provider's time, or ours if that is later. The
time between the watermark and the end is cut into windows, oldest first. Each page goes through the inbox. The
watermark moves only when a window is complete, and the cursor is saved per page, so that an interrupted pass continues
where it stopped. Pages come newest first, so the inbox holds the events of a window until the window is complete, then
dispatches them in order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from payments_integration import conf, inbox, projection, sync
from payments_integration.attention import call_attention
from payments_integration.client import Answer, PageOf, RawEvent
from payments_integration.dates import on_site
from payments_integration.db.claims import Held
from payments_integration.inbox import Receipt
from payments_integration.models import EventSource, ReconciliationRun, RunKind, RunState
from payments_integration.reconciliation.due import refresh_due
from payments_integration.reconciliation.objects import resync_if_due
from payments_integration.reconciliation.runs import (
    HEARTBEAT_SECONDS,
    Progress,
    check_deadline,
    claimed,
    fetched_ahead,
    recorded,
    report,
    resumed_pages,
)
from payments_integration.signals import Reason
from payments_integration.sync import get_client

#: An event may be listed late, so the hour before the watermark is read again.
OVERLAP = timedelta(hours=1)
#: The provider keeps events 30 days (spec, "Delivery rules").
RETENTION = timedelta(days=30)
#: After a longer gap the provider may have deleted events, so every object is compared as well.
MAX_GAP = timedelta(days=29)
WINDOW = timedelta(days=1)
#: If the answer has no Date, the pass ends this long before the local clock.
UNDATED = timedelta(minutes=15)
#: The clocks disagree if a Date is further than this from what we know of the provider's clock. Our clock is measured
#: against a Date that is this close.
CREDIBLE = timedelta(minutes=15)
#: Windows overlap by a second, in case the provider excludes both ends of a range.
SEAM = timedelta(seconds=1)
#: New events are applied in batches of this size, to limit memory and to keep the mirror current.
APPLY_EVERY = 1000


class _End(NamedTuple):
    """The end of a pass by both clocks. It reads up to the later one; the watermark moves only up to the earlier."""

    earlier: datetime
    later: datetime


@dataclass(slots=True)
class _Window:
    start: datetime
    end: datetime
    #: The window is read up to here. An interrupted window goes on to ``end`` alone: newer events come before its
    #: cursor.
    read_to: datetime
    cursor: str | None = None


def reconcile_events(
    account: str = conf.DEFAULT_ACCOUNT,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Progress | None = None,
    deadline: float | None = None,
    resync: bool = True,
) -> ReconciliationRun:
    """Store every event that the inbox lacks, apply and dispatch it. Returns the record of the pass.

    ``since`` and ``until`` read only that range and do not move the watermark. Errors of the provider are recorded in
    the run (``state``, ``error``), not raised. ``deadline`` (``time.monotonic()``): a request is waiting, so no page
    is fetched after it and a resync that is due is left to the schedule. ``resync``: do a resync that is due.
    """
    conf.account(account)
    explicit = since is not None or until is not None
    with recorded(account, RunKind.EVENTS, progress=progress, deadline=deadline) as run, claimed(account) as held:
        sync.require_same_project(account)
        end = _end(run, held)
        if explicit:
            end = _End(*(min(until or at, at) for at in end))
            start = since or end.earlier - RETENTION
        else:
            start = _start(run, held, end.earlier)
        end = _End(*map(_ceil, end))
        _read_range(run, held, _floor(start), end, explicit=explicit)
    # The merchant's handlers may be slow, so they run without the claim.
    inbox.process(account, deadline=deadline)
    inbox.release_overdue(account)
    inbox.dispatch(account, deadline=deadline)
    if refresh_due(account, deadline=deadline, hurry=deadline is not None, only_awaited=True):
        inbox.dispatch(account, deadline=deadline)
    if run.state == RunState.DONE and resync and not explicit and deadline is None:
        resync_if_due(account, progress=progress)
    return run


def _end(run: ReconciliationRun, held: Held) -> _End:
    """Return the provider's time, by an answer's Date and as we know it; without a Date, our time minus a margin.

    If the two disagree, either may be wrong. A pass that ended at the earlier one would find events hours late if our
    clock is slow. A watermark at the later one would pass events that do not exist yet. Without a Date, the Dates of
    the pages limit the watermark.
    """
    events = get_client(run.account).events
    (answer,) = fetched_ahead((events.newest(background=True) for _ in range(1)), held.renew)
    projection.note_contact(run.account, answer.answered_at)
    now, expected, date = timezone.now(), projection.provider_time(run.account), answer.answered_at
    if date is None:
        return _End(now - UNDATED, now - UNDATED)
    offset = (date - now).total_seconds()
    if abs(date - now) <= CREDIBLE:
        held.write(clock_offset=offset, doubtful_offset=None)
    else:
        held.write(doubtful_offset=offset)  # health shows it
    if abs(date - expected) > CREDIBLE:
        message = f"The provider's Date is {date}, our clock says {now}: one of them is wrong."
        call_attention(run, Reason.PROVIDER_CLOCK, message)
    return _End(min(date, expected), max(date, expected))


def _start(run: ReconciliationRun, held: Held, end: datetime) -> datetime:
    """Return where to begin, so that every event up to the end that the provider still has is read."""
    state = held.row.get()
    watermark = state.watermark
    if watermark is not None and watermark > end + CREDIBLE + UNDATED:
        # A wrong clock moved it at an unknown time, so everything that the provider still has is read again.
        message = f"The watermark is {watermark}, which is in the future: a clock was wrong."
        message += f" The events of the last {RETENTION.days} days are read again."
        call_attention(run, Reason.PROVIDER_CLOCK, message)
        return end - RETENTION
    gap = end - watermark if watermark is not None else None
    if (gap is None or gap > MAX_GAP) and state.resync_due_at is None:
        # Written before a window shrinks the gap, so that the resync stays due even if this pass fails.
        held.write(resync_due_at=timezone.now())
    # Before the first pass, deliveries may have been lost since the first contact.
    read_to = watermark or state.first_contact_at
    if read_to is not None and end - read_to > MAX_GAP:
        days = (end - read_to).days
        message = f"No pass was complete for {days} days: events may be lost, so every object is compared."
        call_attention(run, Reason.GAP_TOO_LONG, message)
    return max(min(watermark, end) - OVERLAP, end - RETENTION) if watermark is not None else end - RETENTION


def _read_range(run: ReconciliationRun, held: Held, start: datetime, end: _End, *, explicit: bool) -> None:
    run.window_from, run.window_to = start, end.later
    state = held.row.get()
    # What lies behind a gap is dispatched after the events of the gap, which the next pass reads.
    is_behind_gap = explicit and state.watermark is not None and start > state.watermark
    resumed = None
    if not explicit and state.cursor and state.window_from and state.window_to and state.window_to <= end.later:
        resumed = _Window(state.window_from, state.window_to, state.window_to, state.cursor)
        run.resumed = f"the events up to {on_site(state.window_to):%Y-%m-%d %H:%M}"
    for window in _windows(start, end, resumed):
        if run.pages:
            check_deadline(run)
        complete = _read_window(run, held, window, save=not explicit)
        _apply(run.account, held)
        if not is_behind_gap:
            inbox.release(run.account, window.read_to)
        if not explicit:
            held.write(
                watermark=min(complete, end.earlier), window_from=None, window_to=None, cursor="",
                **projection.key_values(run.account),
            )  # fmt: skip


def _windows(start: datetime, end: _End, resumed: _Window | None) -> Iterator[_Window]:
    """Yield consecutive windows, oldest first. An interrupted window is resumed first, at its cursor.

    The last window is read up to the later end. That is years later if our clock is that wrong, but then it has few
    events.
    """
    if resumed is not None and abs(start - resumed.start) <= OVERLAP:
        yield resumed
        # The cursor has passed events that were listed late.
        start = resumed.end - OVERLAP
    while start + WINDOW < end.earlier:
        yield _Window(start, start + WINDOW, start + WINDOW)
        start += WINDOW
    if start < end.later:
        yield _Window(start, max(start, end.earlier), end.later)


def _read_window(run: ReconciliationRun, held: Held, window: _Window, *, save: bool) -> datetime:
    """Store the window's events. Returns how far it is complete: up to its end, or the Date of a page before it."""
    fresh, complete, are_new, renew_at = 0, window.end, False, 0.0
    for answer in _pages(run, held, window):
        complete = min(complete, answer.answered_at or complete)
        counts = receive_page(run.account, answer.data, are_new=are_new)
        # After an outage, page after page is new.
        are_new = counts[Receipt.NEW] == counts.total()
        new = counts[Receipt.NEW] + counts[Receipt.QUARANTINED]
        run.pages += 1
        run.seen += counts.total()
        run.recovered += new
        fresh += new
        if save and answer.data.has_more and answer.data.cursor:
            held.write(window_from=window.start, window_to=complete, cursor=answer.data.cursor)
            check_deadline(run)
        elif time.monotonic() >= renew_at:
            held.renew()
            renew_at = time.monotonic() + HEARTBEAT_SECONDS
        if fresh >= APPLY_EVERY:
            _apply(run.account, held, most=fresh, since=window.start - SEAM)
            fresh = 0
        report(run)
    return complete


def receive_page(account: str, page: PageOf[RawEvent], *, are_new: bool = False) -> Counter[Receipt]:
    """Store the events of a page, and quarantine what the client could not read. ``are_new``: all of it, probably."""
    bodies = (event.body for event in page.items)
    counts = inbox.receive_many(account, bodies, source=EventSource.RECONCILIATION, are_new=are_new)
    if (missing := page.unread) is not None:
        counts[inbox.receive_unread(account, missing.id, missing.span, source=EventSource.RECONCILIATION)] += 1
    return counts


def _apply(account: str, held: Held, *, most: int | None = None, since: datetime | None = None) -> None:
    """Apply pending events for a few seconds at a time, so that the claim is renewed even if the database is slow.

    ``most``, ``since``: apply only the events that were just stored.
    """
    while count := inbox.process(account, deadline=time.monotonic() + HEARTBEAT_SECONDS, most=most, since=since):
        held.renew()
        if most is not None:
            most -= count
            if most <= 0:
                return


def _pages(run: ReconciliationRun, held: Held, window: _Window) -> Iterator[Answer[PageOf[RawEvent]]]:
    """Yield the window's pages. If the provider no longer knows the saved cursor, the window starts again."""
    events = get_client(run.account).events

    def walk(cursor: str | None) -> Iterator[Answer[PageOf[RawEvent]]]:
        pages = events.pages(
            starting_after=cursor, created_from=window.start - SEAM, created_to=window.read_to, background=True
        )
        return fetched_ahead(pages, held.renew)

    return resumed_pages(walk, window.cursor)


def _floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)


def _ceil(at: datetime) -> datetime:
    return _floor(at) + timedelta(seconds=1) if at.microsecond else _floor(at)
