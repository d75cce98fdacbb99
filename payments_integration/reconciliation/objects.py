"""Objects against the provider: those that are silent too long, and sweeps over the lists.

Some changes have no event (refund.canceled, deposit references) and an event may be gone for good. A sweep walks a
list from the newest down to a horizon, inserts what is absent and compares every field of the rest. A difference is
drift: it is recorded field by field, then repaired by reading the object.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import Exists, OuterRef
from django.utils import timezone

from payments_integration import conf, erasure, inbox, projection
from payments_integration.client import Answer, PageOf, get_client
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
    Refund,
    RunKind,
)
from payments_integration.reconciliation.endpoints import check_endpoints
from payments_integration.reconciliation.fetching import ahead
from payments_integration.reconciliation.leases import ensure_state, expired
from payments_integration.reconciliation.refreshing import refresh_due
from payments_integration.reconciliation.runs import Progress, add_drift, check_time, recorded
from payments_integration.services import sync_balances
from payments_integration.transactions import repeatable, updated

DRIFT = "drift"
SWEEP_EVERY = timedelta(days=1)
#: Per kind and pass: the longest silent first, the rest next time.
SILENT_BATCH = 500
MAX_ERROR = 5000
#: Reading what is due ends after so many seconds: a provider that hangs would keep a worker for hours. Every pass and
#: every wake-up goes on with the rest.
REPAIR_SECONDS = 240.0
#: A day's sweep of which nothing was heard for so long is dead.
SWEEP_CLAIM = timedelta(minutes=30)
#: A full resync of which nothing was heard for so long is dead, and one that failed is begun anew.
RESYNC_CLAIM = timedelta(minutes=30)

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
    """Due refreshes, silent objects, once a day a sweep over the lists, endpoints; returns the record.

    ``full``: the lists down to their ends, then every object that is known and was not in them; also in place of the
    day's sweep where a resync is still due. ``deadline`` (``time.monotonic()``): somebody waits, so nothing is begun
    after it, and a resync that is due is left to the schedule.
    """
    conf.account(account)
    if full:
        return resync(account, progress=progress)
    if deadline is None and _sweep_is_due(account) and (run := resync_if_due(account, progress=progress)):
        return run
    with recorded(account, RunKind.OBJECTS) as run:
        _ask_silent(account)
        if _claim_sweep(account):
            _sweep_of_the_day(run, progress, deadline)
        _repair(run, deadline=min(deadline or math.inf, time.monotonic() + REPAIR_SECONDS))
        check_endpoints(account)
    inbox.tell(account, deadline=deadline)
    erasure.finish(account)
    return run


def resync_if_due(account: str, *, progress: Progress | None = None) -> ReconciliationRun | None:
    """Do the full resync that a long gap left due, unless somebody is at it; returns its record."""
    due = AccountState.objects.filter(expired("resync_due_at", RESYNC_CLAIM), pk=account)
    claimed = updated(due, resync_due_at=timezone.now() + RESYNC_CLAIM)
    return resync(account, progress=progress) if claimed else None


def resync(account: str, *, progress: Progress | None = None) -> ReconciliationRun:
    """Make every object that the provider lists, and every object known by id, equal to the provider's."""
    state = AccountState.objects.filter(pk=account)

    def beat() -> None:
        updated(state.exclude(resync_due_at=None), resync_due_at=timezone.now() + RESYNC_CLAIM)

    def step(run: ReconciliationRun) -> None:
        beat()
        if progress is not None:
            progress(run)

    with recorded(account, RunKind.FULL) as run:
        ensure_state(account)
        begun = timezone.now()
        _sweep(run, horizon=None, progress=step)
        for model, _ in _OPEN:
            _ask_unconfirmed(model, account, before=begun)
            _repair(run, beat)
        sync_balances(account=account)
        check_endpoints(account)
        # Also where single objects could not be read: they are named in the record, and no repetition mends them.
        updated(state, swept_at=begun, resync_due_at=None)
    inbox.tell(account)
    return run


def reconcile_balances(account: str = conf.DEFAULT_ACCOUNT) -> ReconciliationRun:
    """Read the balances; returns the record."""
    conf.account(account)
    with recorded(account, RunKind.BALANCES) as run:
        run.seen = len(sync_balances(account=account))
    return run


def _ask_silent(account: str) -> None:
    quiet_since = timezone.now() - timedelta(seconds=conf.current().SILENT_AFTER)
    for model, statuses in _OPEN:
        # Those that are marked already keep their waits, and do not crowd out the others.
        marked = DueRefresh.objects.filter(account=account, object_kind=model.kind, object_id=OuterRef("pk"))
        silent = model._default_manager.filter(
            ~Exists(marked), account=account, status__in=statuses, synced_at__lt=quiet_since, gone_at=None
        )
        _ask(account, model, silent.order_by("synced_at").values_list("pk", flat=True)[:SILENT_BATCH], "silent")


def _ask_unconfirmed(model: type[Any], account: str, *, before: datetime) -> None:
    """Have every row read that the sweep did not confirm, a page at a time."""
    rows = model._default_manager.filter(account=account, synced_at__lt=before, gone_at=None)
    last = ""
    while ids := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:SILENT_BATCH]):
        _ask(account, model, ids, "full_resync")
        last = ids[-1]


def _ask(account: str, model: type[Any], ids: Any, reason: str) -> None:
    reasons = {(account, str(model.kind), object_id): reason for object_id in ids}
    repeatable(lambda: projection.request_refreshes(reasons), using=router.db_for_write(DueRefresh))


def _sweep_is_due(account: str) -> bool:
    ensure_state(account)
    swept_at = AccountState.objects.values_list("swept_at", flat=True).get(pk=account)
    return swept_at is None or timezone.now() - swept_at >= SWEEP_EVERY


def _claim_sweep(account: str) -> bool:
    """Whether the day's sweep is due and ours: it may take longer than it is to the next pass, which must not join in.

    The claim is a ``swept_at`` by which the sweep is due again once nothing was heard of it for long enough.
    """
    ensure_state(account)
    state = AccountState.objects.get(pk=account)
    if state.swept_at is not None and timezone.now() - state.swept_at < SWEEP_EVERY:
        return False
    # Where a resync is due or under way, it compares all that a sweep would.
    as_read = AccountState.objects.filter(pk=account, swept_at=state.swept_at, resync_due_at=None)
    return bool(updated(as_read, swept_at=_sweep_due_after(SWEEP_CLAIM)))


def _sweep_of_the_day(run: ReconciliationRun, progress: Progress | None, deadline: float | None) -> None:
    state = AccountState.objects.filter(pk=run.account)

    def step(run: ReconciliationRun) -> None:
        updated(state, swept_at=_sweep_due_after(SWEEP_CLAIM))
        check_time(run, deadline)
        if progress is not None:
            progress(run)

    try:
        _sweep(run, horizon=timezone.now() - timedelta(days=conf.current().SWEEP_DAYS), progress=step)
    except BaseException:
        updated(state, swept_at=_sweep_due_after(timedelta()))
        raise
    updated(state, swept_at=run.started_at)


def _sweep_due_after(wait: timedelta) -> datetime:
    return timezone.now() - SWEEP_EVERY + wait


def _sweep(run: ReconciliationRun, *, horizon: datetime | None, progress: Progress | None) -> None:
    for model in _LISTED:
        for answer in _pages(run.account, model, horizon):
            items = [item for item in answer.data.items if horizon is None or item.created_at >= horizon]
            _compare(run, model, answer, items)
            run.pages += 1
            if answer.data.unreadable:
                run.error = "\n".join(filter(None, [run.error, *answer.data.unreadable]))[:MAX_ERROR]
            if progress is not None:
                progress(run)
            if len(items) < len(answer.data.items):  # the horizon lies in this page
                break


def _pages(account: str, model: type[Any], horizon: datetime | None) -> Iterator[Answer[PageOf[Any]]]:
    client = get_client(account)
    pages: Iterator[Answer[PageOf[Any]]]
    match model.kind:
        case Kind.PAYMENT:
            pages = client.payments.pages(created_from=horizon, background=True)
        case Kind.PAYOUT:
            pages = client.payouts.pages(background=True)
        case _:
            pages = client.refunds.pages(background=True)
    return ahead(pages, lambda: None)


def _compare(run: ReconciliationRun, model: type[Any], answer: Answer[PageOf[Any]], items: list[Any]) -> None:
    """One page: insert what is absent, confirm what is equal, have the rest read."""
    held: dict[str, Mirror] = model._default_manager.in_bulk([item.id for item in items])
    equal: list[str] = []
    different: dict[str, dict[str, tuple[Any, Any]]] = {}
    for item in items:
        row = held.get(item.id)
        if row is None:
            projection.write_answer(
                run.account,
                item,
                answered_at=answer.answered_at,
                duration=answer.duration,
                before=projection.ABSENT,
            )
            run.recovered += 1
        elif differences := projection.differences(row, item):
            different[item.id] = differences
        else:
            equal.append(item.id)
    run.seen += len(items)
    if equal:
        updated(model._default_manager.filter(pk__in=equal), synced_at=timezone.now(), gone_at=None)
    if different:
        on_their_way = _pending(run.account, model, different)
        adrift = [
            object_id
            for object_id in different
            if object_id not in on_their_way and _was_settled(held[object_id], answer)
        ]
        for object_id in adrift:
            add_drift(run, object_id, different[object_id])
        _ask(run.account, model, adrift, DRIFT)
        _ask(run.account, model, different.keys() - adrift, "changed_meanwhile")


def _was_settled(row: Mirror, answer: Answer[Any]) -> bool:
    """Whether the row's state is clearly older than the list: one that changed meanwhile is not adrift."""
    if answer.answered_at is None:
        return True
    return row.state_at + projection.MARGIN < answer.answered_at - timedelta(seconds=answer.duration)


def _pending(account: str, model: type[Any], ids: Any) -> set[str]:
    """Objects whose events are stored and not applied yet: behind, but not adrift."""
    return set(
        Event.objects.filter(
            account=account, object_kind=model.kind, object_id__in=list(ids), state=EventState.PENDING
        ).values_list("object_id", flat=True)
    )


def _repair(run: ReconciliationRun, beat: Callable[[], None] = lambda: None, *, deadline: float | None = None) -> None:
    """Read what is due; what was adrift and is not marked any more counts as repaired, whoever read it."""
    refresh_due(run.account, deadline=deadline, beat=beat)
    adrift = DueRefresh.objects.filter(account=run.account, reason=DRIFT).count()
    run.repaired = max(0, run.drifted - adrift)
