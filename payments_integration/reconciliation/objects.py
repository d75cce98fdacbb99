"""Compare objects with the provider: read silent ones (without news for SILENT_AFTER), and sweep the lists.

Some changes have no event (refund.canceled, deposit references), and the provider may have deleted an event. A sweep
reads a list from the newest object down to a horizon, inserts the absent ones and compares every field of the others.
A difference is drift: it is recorded per field, then repaired by reading the object.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from payments_integration import conf, erasure, inbox, projection, sync
from payments_integration.client import Answer, PageOf
from payments_integration.dates import on_site
from payments_integration.db import keyset
from payments_integration.db.claims import CLOCK_SLACK, Claims, Held, long_ago
from payments_integration.db.transactions import repeatable, updated
from payments_integration.enums import OPEN_PAYMENT_STATUSES, OPEN_PAYOUT_STATUSES, OPEN_REFUND_STATUSES
from payments_integration.models import (
    DepositReference,
    DueRefresh,
    Event,
    EventState,
    Mirror,
    Payment,
    Payout,
    ReconciliationRun,
    RefreshReason,
    Refund,
    RunKind,
)
from payments_integration.reconciliation.accounts import check_endpoints
from payments_integration.reconciliation.doubles import report_doubles
from payments_integration.reconciliation.due import refresh_due
from payments_integration.reconciliation.runs import (
    Progress,
    add_drift,
    check_deadline,
    ensured_state,
    fetched_ahead,
    recorded,
    report,
    resumed_pages,
    state_of,
)
from payments_integration.runtime import stopping
from payments_integration.services import sync_balances
from payments_integration.sync import get_client

SWEEP_EVERY = timedelta(days=1)
#: Silent objects per kind and pass, the longest silent first.
SILENT_BATCH = 500
#: An open object that the provider did not know is read again this long after the last 404: before a payer may pay
#: again because it has been gone for a day.
GONE_EVERY = timedelta(hours=20)
MAX_ERROR = 5000
#: A pass reads due objects for at most this many seconds, because a provider that hangs would block a worker for
#: hours. Every pass and every wake-up continues with the rest.
REPAIR_SECONDS = 240.0
#: A process claims the account's objects for the daily sweep, or for a full resync, and renews the claim per page.
SWEEP = Claims(timedelta(minutes=30), prefix="sweep_")
#: An interrupted full resync is resumed for this long. After that it starts again, because too much has changed.
RESUME_WITHIN = timedelta(days=1)
#: ``AccountState.resync_list`` when the lists are read. The objects that they lack are read one by one.
_LISTS_ARE_READ = "read"

_OPEN: tuple[tuple[type[Any], frozenset[str]], ...] = (
    (Payment, OPEN_PAYMENT_STATUSES),
    (Payout, OPEN_PAYOUT_STATUSES),
    (Refund, OPEN_REFUND_STATUSES),
    (DepositReference, frozenset({"active"})),
)
_LISTED = (Payment, Payout, Refund)


def reconcile_objects(
    account: str = conf.DEFAULT_ACCOUNT,
    *,
    full: bool = False,
    sweep: bool = False,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> ReconciliationRun:
    """Read silent and due objects, sweep the lists once a day, check the endpoints. Returns the record of the pass.

    ``full``: compare every object (a full resync). The daily sweep also becomes one if a resync is due. ``sweep``:
    sweep the lists now, unless another process is doing it. ``deadline`` (``time.monotonic()``): a request is waiting,
    so nothing starts after it and a due resync is left to the schedule.
    """
    conf.account(account)
    if full:
        return resync(account, progress=progress)
    if deadline is None and state_of(account).filter(_is_unswept()).exists():
        run = resync_if_due(account, progress=progress)
        if run is not None:
            return run
    with recorded(account, RunKind.OBJECTS, progress=progress, deadline=deadline) as run:
        sync.require_same_project(account)
        # First, because it needs no answer of the provider.
        report_doubles(account)
        _request_silent(account)
        if held := _claim_sweep(account, early=sweep):
            _daily_sweep(run, held)
        _repair(run, deadline=min(deadline or math.inf, time.monotonic() + REPAIR_SECONDS))
        check_endpoints(account)
    inbox.dispatch(account, deadline=deadline)
    erasure.finish(account)
    return run


def resync_if_due(account: str, *, progress: Progress | None = None) -> ReconciliationRun | None:
    """Do the full resync that a long gap made due, unless another process sweeps. Returns its record.

    After an error it keeps its claim, so it is tried again when the claim ends.
    """
    held = SWEEP.take(state_of(account), long_ago("resync_due_at", timedelta()))
    return _resync(account, held, progress) if held is not None else None


def resync(account: str, *, progress: Progress | None = None) -> ReconciliationRun:
    """Read the lists to their ends, then every known object that was not in them. Returns the record of the pass.

    An interrupted resync is resumed at its last page. One that runs in another process ends: this one continues it.
    """
    with SWEEP.seize(ensured_state(account)) as held:
        return _resync(account, held, progress)


def _resync(account: str, held: Held, progress: Progress | None) -> ReconciliationRun:
    with recorded(account, RunKind.FULL, progress=progress) as run:
        sync.require_same_project(account)

        def step(kind: str, cursor: str) -> None:
            held.write(resync_list=kind, resync_cursor=cursor)
            stop_if_asked()
            report(run)

        def heartbeat() -> None:
            stop_if_asked()
            held.renew()
            report(run)

        def stop_if_asked() -> None:
            if stopping.is_requested():
                held.release()  # the next process continues at once
                check_deadline(run)

        begun, kind, cursor = _place(run, held)
        if progress is not None:
            run.expected = sum(model._default_manager.filter(account=account).count() for model in _LISTED)
        if kind != _LISTS_ARE_READ:
            _sweep(run, horizon=None, step=step, heartbeat=heartbeat, kind=kind, cursor=cursor)
        run.reads = "objects that the lists lack"
        step(_LISTS_ARE_READ, "")
        for model, _ in _OPEN:
            _request_unconfirmed(model, account, before=begun)
            _repair(run, heartbeat)
            heartbeat()  # a repair that was asked to stop has left objects
        sync_balances(account=account)
        check_endpoints(account)
        # Even if single objects could not be read: the record names them, and another resync would not help.
        held.release(swept_at=begun, resync_due_at=None, resync_begun_at=None, resync_list="", resync_cursor="")
        updated(state_of(account).filter(first_synced_at=None), first_synced_at=timezone.now())
        report_doubles(account)
    inbox.dispatch(account)
    return run


def _place(run: ReconciliationRun, held: Held) -> tuple[datetime, str, str]:
    """Return when the resync began, and the list and page to go on with; empty: from the start."""
    recent = held.row.filter(resync_begun_at__isnull=False).exclude(long_ago("resync_begun_at", RESUME_WITHIN)).first()
    if recent is None or recent.resync_begun_at is None:
        begun = timezone.now()
        held.write(resync_begun_at=begun, resync_list="", resync_cursor="")
        return begun, "", ""
    if recent.resync_list:
        after = f" after {recent.resync_cursor}" if recent.resync_cursor else ""
        at = on_site(recent.resync_begun_at)
        run.resumed = f"the full resync of {at:%Y-%m-%d %H:%M} ({recent.resync_list}{after})"
    return recent.resync_begun_at, recent.resync_list, recent.resync_cursor


def _request_silent(account: str) -> None:
    is_silent = long_ago("synced_at", timedelta(seconds=conf.current().SILENT_AFTER))
    for model, statuses in _OPEN:
        # Objects that are already due keep their retry times and leave room for others.
        requested = DueRefresh.objects.filter(account=account, object_kind=model.kind, object_id=OuterRef("pk"))
        rows = model._default_manager.filter(~Exists(requested), account=account, status__in=statuses)
        rows = rows.order_by("synced_at").values_list("pk", flat=True)
        ids = list(rows.filter(is_silent, gone_at=None)[:SILENT_BATCH])
        # A replica that was behind may have answered 404. Rows that stay gone take only the room that is left.
        ids += rows.filter(long_ago("synced_at", GONE_EVERY), gone_at__isnull=False)[: SILENT_BATCH - len(ids)]
        _request(account, model, ids, RefreshReason.SILENT)


def _request_unconfirmed(model: type[Any], account: str, *, before: datetime) -> None:
    """Request a refresh of every row that the sweep did not confirm, a page at a time.

    It includes objects that the provider did not know before: the provider, or the API key, may have been wrong.
    """
    # A time in the future was written while our clock was ahead.
    unconfirmed = Q(synced_at__lt=before) | Q(synced_at__gt=timezone.now() + CLOCK_SLACK)
    rows = model._default_manager.filter(unconfirmed, account=account)
    for page in keyset.pages(rows, size=SILENT_BATCH):
        _request(account, model, [pk for (pk,) in page], RefreshReason.FULL_RESYNC)


def _request(account: str, model: type[Any], ids: Any, reason: str) -> None:
    reasons = {(account, str(model.kind), object_id): reason for object_id in ids}
    repeatable(lambda: projection.request_refreshes(reasons), using=router.db_for_write(DueRefresh))


def _is_unswept() -> Q:
    """Match accounts whose daily sweep is due."""
    return Q(swept_at=None) | long_ago("swept_at", SWEEP_EVERY)


def _claim_sweep(account: str, *, early: bool) -> Held | None:
    """Claim the daily sweep if it is due, or earlier with ``early``. If it does not end well, it is due again."""
    # A resync that is due or running compares everything that a sweep would.
    where = Q(resync_due_at=None)
    return SWEEP.take(ensured_state(account), where if early else where & _is_unswept(), swept_at=None)


def _daily_sweep(run: ReconciliationRun, held: Held) -> None:
    def step(kind: str, cursor: str) -> None:
        held.renew()
        check_deadline(run)
        report(run)

    with held:
        _sweep(run, horizon=timezone.now() - timedelta(days=conf.current().SWEEP_DAYS), step=step)
        held.release(swept_at=run.started_at)


def _sweep(
    run: ReconciliationRun,
    *,
    horizon: datetime | None,
    step: Callable[[str, str], None],
    heartbeat: Callable[[], None] = lambda: None,
    kind: str = "",
    cursor: str = "",
) -> None:
    """Compare every list down to the horizon.

    ``step`` is called after each page with the list and the page to go on with, ``heartbeat`` while a page is awaited.
    ``kind`` and ``cursor`` say where to continue.
    """
    kinds = [str(model.kind) for model in _LISTED]
    first = kinds.index(kind) if kind in kinds else 0
    for model in _LISTED[first:]:
        run.reads = str(model._meta.verbose_name_plural)
        for answer in _pages(run.account, model, horizon, heartbeat, cursor if model.kind == kind else ""):
            # Before it decides what is history: this may be the first answer of all.
            projection.note_contact(run.account, answer.answered_at)
            items = [item for item in answer.data.items if horizon is None or item.created_at >= horizon]
            left_out = [*answer.data.unreadable, *_compare(run, model, answer, items)]
            run.pages += 1
            if left_out:
                run.error = "\n".join(filter(None, [run.error, *left_out]))[:MAX_ERROR]
            if horizon is None and items:
                run.window_from = items[-1].created_at
            step(str(model.kind), answer.data.cursor or "")
            if len(items) < len(answer.data.items):  # the horizon is within this page
                break


def _pages(
    account: str, model: type[Any], horizon: datetime | None, heartbeat: Callable[[], None], cursor: str
) -> Iterator[Answer[PageOf[Any]]]:
    listed = get_client(account).of(str(model.kind))
    created_from = horizon if listed.by_time else None

    def walk(starting_after: str | None) -> Iterator[Answer[PageOf[Any]]]:
        return fetched_ahead(listed.pages(starting_after, created_from=created_from, background=True), heartbeat)

    return resumed_pages(walk, cursor)


def _compare(run: ReconciliationRun, model: type[Any], answer: Answer[PageOf[Any]], items: list[Any]) -> list[str]:
    """Process one page: insert absent objects, confirm equal ones, request a refresh of the others.

    Returns a line for each object that the database refuses.
    """
    refused: dict[str, str] = {}
    mirrored: dict[str, Mirror] = model._default_manager.in_bulk([item.id for item in items])
    equal: list[str] = []
    different: dict[str, dict[str, tuple[Any, Any]]] = {}
    absent: dict[str, Any] = {}
    for item in items:
        row = mirrored.get(item.id)
        if row is None:
            absent[item.id] = item
        elif differences := projection.differences(row, item):
            different[item.id] = differences
        else:
            equal.append(item.id)
    run.seen += len(items)
    if absent:
        refused = projection.write_new(
            run.account, list(absent.values()), answered_at=answer.answered_at, duration=answer.duration
        )
        run.recovered += len(absent) - len(refused)
    if equal:
        updated(model._default_manager.filter(pk__in=equal), synced_at=timezone.now(), gone_at=None)
    if different:
        pending = _with_pending_events(run.account, model, different)
        drifted = [
            object_id for object_id in different if object_id not in pending and _is_older(mirrored[object_id], answer)
        ]
        for object_id in drifted:
            add_drift(run, object_id, different[object_id])
        _request(run.account, model, drifted, RefreshReason.DRIFT)
        _request(run.account, model, different.keys() - drifted, RefreshReason.CHANGED_MEANWHILE)
    return [f"{object_id}: {why}" for object_id, why in refused.items()]


def _is_older(row: Mirror, answer: Answer[Any]) -> bool:
    """Return True if the row's state is clearly older than the list. A row that changed meanwhile has not drifted."""
    if answer.answered_at is None:
        return True
    return projection.against_answer(row.state_at, answer.answered_at, answer.duration) is projection.Order.OLDER


def _with_pending_events(account: str, model: type[Any], ids: Any) -> set[str]:
    """Return objects whose events are stored but not applied yet: they are behind, but have not drifted."""
    return set(
        Event.objects.filter(
            account=account, object_kind=model.kind, object_id__in=list(ids), state=EventState.PENDING
        ).values_list("object_id", flat=True)
    )


def _repair(
    run: ReconciliationRun, heartbeat: Callable[[], None] = lambda: None, *, deadline: float | None = None
) -> None:
    """Read due objects. A drifted object that is no longer due is repaired, even if another process read it."""
    refresh_due(run.account, deadline=deadline, heartbeat=heartbeat)
    remaining = DueRefresh.objects.filter(account=run.account, reason=RefreshReason.DRIFT).count()
    run.repaired = max(0, run.drifted - remaining)
