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
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Value, When
from django.utils import timezone

from payments_integration import conf, erasure, inbox, projection
from payments_integration.client import Answer, PageOf, get_client
from payments_integration.db.transactions import expired, long_ago, repeatable, updated
from payments_integration.enums import (
    OPEN_PAYMENT_STATUSES,
    OPEN_PAYOUT_STATUSES,
    OPEN_REFUND_STATUSES,
    Kind,
)
from payments_integration.models import (
    AccountState,
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
from payments_integration.reconciliation.due import refresh_due
from payments_integration.reconciliation.runs import (
    Progress,
    add_drift,
    check_deadline,
    ensure_state,
    fetched_ahead,
    recorded,
    report,
    resumed_pages,
)
from payments_integration.services import sync_balances

SWEEP_EVERY = timedelta(days=1)
#: Silent objects per kind and pass, the longest silent first.
SILENT_BATCH = 500
MAX_ERROR = 5000
#: A pass reads due objects for at most so many seconds, because a provider that hangs would block a worker for hours.
#: Every pass and every wake-up continues with the rest.
REPAIR_SECONDS = 240.0
#: How long a worker's claim on the daily sweep lasts; each page renews it.
SWEEP_CLAIM = timedelta(minutes=30)
#: How long a worker's claim on the full resync lasts; each page renews it. A failed resync is retried after it.
RESYNC_CLAIM = timedelta(minutes=30)
#: A full resync that was interrupted is resumed for so long. After that it starts again, because too much has changed.
RESUME_WITHIN = timedelta(days=1)
#: ``AccountState.resync_list`` when the lists are read: what they lack is read one by one.
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
    progress: Progress | None = None,
    deadline: float | None = None,
) -> ReconciliationRun:
    """Read silent and due objects, sweep the lists once a day, check the endpoints; returns the record of the pass.

    ``full``: compare every object (a full resync). The daily sweep also becomes one if a resync is due. ``deadline``
    (``time.monotonic()``): a request is waiting, so nothing starts after it and a due resync is left to the schedule.
    """
    conf.account(account)
    if full:
        return resync(account, progress=progress)
    if deadline is None and _sweep_is_due(account) and (run := resync_if_due(account, progress=progress)):
        return run
    with recorded(account, RunKind.OBJECTS) as run:
        _request_silent(account)
        if _claim_sweep(account):
            _daily_sweep(run, progress, deadline)
        _repair(run, deadline=min(deadline or math.inf, time.monotonic() + REPAIR_SECONDS))
        check_endpoints(account)
    inbox.dispatch(account, deadline=deadline)
    erasure.finish(account)
    return run


def resync_if_due(account: str, *, progress: Progress | None = None) -> ReconciliationRun | None:
    """Do the full resync that a long gap made due, unless another process is doing it; returns its record."""
    due = AccountState.objects.filter(expired("resync_due_at", RESYNC_CLAIM), pk=account)
    claimed = updated(due, resync_due_at=timezone.now() + RESYNC_CLAIM)
    return resync(account, progress=progress) if claimed else None


def resync(account: str, *, progress: Progress | None = None) -> ReconciliationRun:
    """Read the lists to their ends, then every known object that was not in them; returns the record of the pass.

    An interrupted one is resumed at its last page.
    """
    state = AccountState.objects.filter(pk=account)

    def save(**place: str) -> None:
        claimed_until = Value(timezone.now() + RESYNC_CLAIM)
        updated(state, resync_due_at=Case(When(resync_due_at__isnull=False, then=claimed_until)), **place)

    with recorded(account, RunKind.FULL) as run:

        def step(kind: str, cursor: str) -> None:
            save(resync_list=kind, resync_cursor=cursor)
            report(run, progress)

        def heartbeat() -> None:
            save()
            report(run, progress)

        ensure_state(account)
        begun, kind, cursor = _place(run)
        if progress is not None:
            run.expected = sum(model._default_manager.filter(account=account).count() for model in _LISTED)
        if kind != _LISTS_ARE_READ:
            _sweep(run, horizon=None, step=step, heartbeat=heartbeat, kind=kind, cursor=cursor)
        run.reads = "objects that the lists lack"
        step(_LISTS_ARE_READ, "")
        for model, _ in _OPEN:
            _request_unconfirmed(model, account, before=begun)
            _repair(run, heartbeat)
        sync_balances(account=account)
        check_endpoints(account)
        # Also if single objects could not be read: the record names them, and another resync would not help.
        updated(state, swept_at=begun, resync_due_at=None, resync_begun_at=None, resync_list="", resync_cursor="")
        updated(state.filter(first_synced_at=None), first_synced_at=timezone.now())
    inbox.dispatch(account)
    return run


def _place(run: ReconciliationRun) -> tuple[datetime, str, str]:
    """When the resync was begun, and the list and page to go on with; empty: from the start."""
    account = AccountState.objects.filter(pk=run.account)
    recent = account.filter(resync_begun_at__isnull=False).exclude(long_ago("resync_begun_at", RESUME_WITHIN)).first()
    if recent is None or recent.resync_begun_at is None:
        begun = timezone.now()
        updated(account, resync_begun_at=begun, resync_list="", resync_cursor="")
        return begun, "", ""
    if recent.resync_list:
        after = f" after {recent.resync_cursor}" if recent.resync_cursor else ""
        run.resumed = f"the full resync of {recent.resync_begun_at:%Y-%m-%d %H:%M} ({recent.resync_list}{after})"
    return recent.resync_begun_at, recent.resync_list, recent.resync_cursor


def _request_silent(account: str) -> None:
    is_silent = long_ago("synced_at", timedelta(seconds=conf.current().SILENT_AFTER))
    for model, statuses in _OPEN:
        # Objects that are due already keep their retry times and leave room for others.
        requested = DueRefresh.objects.filter(account=account, object_kind=model.kind, object_id=OuterRef("pk"))
        silent = model._default_manager.filter(
            is_silent, ~Exists(requested), account=account, status__in=statuses, gone_at=None
        )
        _request(
            account,
            model,
            silent.order_by("synced_at").values_list("pk", flat=True)[:SILENT_BATCH],
            RefreshReason.SILENT,
        )


def _request_unconfirmed(model: type[Any], account: str, *, before: datetime) -> None:
    """Request a refresh of every row that the sweep did not confirm, a page at a time."""
    rows = model._default_manager.filter(account=account, synced_at__lt=before, gone_at=None)
    last = ""
    while ids := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:SILENT_BATCH]):
        _request(account, model, ids, RefreshReason.FULL_RESYNC)
        last = ids[-1]


def _request(account: str, model: type[Any], ids: Any, reason: str) -> None:
    reasons = {(account, str(model.kind), object_id): reason for object_id in ids}
    repeatable(lambda: projection.request_refreshes(reasons), using=router.db_for_write(DueRefresh))


def _sweep_is_due(account: str) -> bool:
    ensure_state(account)
    return _unswept(account).exists()


def _unswept(account: str) -> QuerySet[AccountState]:
    """The account's state, if its daily sweep is due."""
    return AccountState.objects.filter(Q(swept_at=None) | long_ago("swept_at", SWEEP_EVERY), pk=account)


def _claim_sweep(account: str) -> bool:
    """Whether the daily sweep is due and this process claimed it, so that the next pass does not sweep as well.

    The claim is a ``swept_at`` with which the sweep becomes due again after SWEEP_CLAIM.
    """
    ensure_state(account)
    # A resync that is due or running compares everything that a sweep would.
    unswept = _unswept(account).filter(resync_due_at=None)
    return bool(updated(unswept, swept_at=_sweep_due_after(SWEEP_CLAIM)))


def _daily_sweep(run: ReconciliationRun, progress: Progress | None, deadline: float | None) -> None:
    state = AccountState.objects.filter(pk=run.account)

    def step(kind: str, cursor: str) -> None:
        updated(state, swept_at=_sweep_due_after(SWEEP_CLAIM))
        check_deadline(run, deadline)
        report(run, progress)

    try:
        _sweep(run, horizon=timezone.now() - timedelta(days=conf.current().SWEEP_DAYS), step=step)
    except BaseException:
        updated(state, swept_at=_sweep_due_after(timedelta()))
        raise
    updated(state, swept_at=run.started_at)


def _sweep_due_after(wait: timedelta) -> datetime:
    return timezone.now() - SWEEP_EVERY + wait


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
    ``kind`` and ``cursor``: go on there.
    """
    kinds = [str(model.kind) for model in _LISTED]
    first = kinds.index(kind) if kind in kinds else 0
    for model in _LISTED[first:]:
        run.reads = str(model._meta.verbose_name_plural)
        for answer in _pages(run.account, model, horizon, heartbeat, cursor if model.kind == kind else ""):
            # Before it decides what is history: this may be the first answer of all.
            projection.note_contact(run.account, answer.answered_at)
            items = [item for item in answer.data.items if horizon is None or item.created_at >= horizon]
            _compare(run, model, answer, items)
            run.pages += 1
            if answer.data.unreadable:
                run.error = "\n".join(filter(None, [run.error, *answer.data.unreadable]))[:MAX_ERROR]
            if horizon is None and items:
                run.window_from = items[-1].created_at
            step(str(model.kind), answer.data.cursor or "")
            if len(items) < len(answer.data.items):  # the horizon is within this page
                break


def _pages(
    account: str, model: type[Any], horizon: datetime | None, heartbeat: Callable[[], None], cursor: str
) -> Iterator[Answer[PageOf[Any]]]:
    client = get_client(account)

    def walk(starting_after: str | None) -> Iterator[Answer[PageOf[Any]]]:
        pages: Iterator[Answer[PageOf[Any]]]
        match model.kind:
            case Kind.PAYMENT:
                pages = client.payments.pages(starting_after, created_from=horizon, background=True)
            case Kind.PAYOUT:
                pages = client.payouts.pages(starting_after, background=True)
            case _:
                pages = client.refunds.pages(starting_after, background=True)
        return fetched_ahead(pages, heartbeat)

    return resumed_pages(walk, cursor)


def _compare(run: ReconciliationRun, model: type[Any], answer: Answer[PageOf[Any]], items: list[Any]) -> None:
    """One page: insert absent objects, confirm equal ones, request a refresh of the others."""
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
    run.recovered += len(absent)
    if absent:
        projection.write_new(
            run.account, list(absent.values()), answered_at=answer.answered_at, duration=answer.duration
        )
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


def _is_older(row: Mirror, answer: Answer[Any]) -> bool:
    """Whether the row's state is clearly older than the list: one that changed meanwhile has not drifted."""
    if answer.answered_at is None:
        return True
    return row.state_at + projection.MARGIN < answer.answered_at - timedelta(seconds=answer.duration)


def _with_pending_events(account: str, model: type[Any], ids: Any) -> set[str]:
    """Objects whose events are stored and not applied yet: they are behind, but have not drifted."""
    return set(
        Event.objects.filter(
            account=account, object_kind=model.kind, object_id__in=list(ids), state=EventState.PENDING
        ).values_list("object_id", flat=True)
    )


def _repair(
    run: ReconciliationRun, heartbeat: Callable[[], None] = lambda: None, *, deadline: float | None = None
) -> None:
    """Read due objects. A drifted object that is not due any more is repaired, also if another process read it."""
    refresh_due(run.account, deadline=deadline, heartbeat=heartbeat)
    remaining = DueRefresh.objects.filter(account=run.account, reason=RefreshReason.DRIFT).count()
    run.repaired = max(0, run.drifted - remaining)
