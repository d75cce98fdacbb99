"""Read the statistics of all accounts in seven statements. Each uses an index or reads a limited number of rows.

Every account has its own limits, so a busy account hides nothing of a quiet one. With more than forty accounts, two of
the statements become several; with more than 450, the others do too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from payments_integration.db import statements
from payments_integration.db.claims import CLOCK_SLACK
from payments_integration.db.sizes import in_parts
from payments_integration.exceptions import closing_error, recorded_error
from payments_integration.health.backlogs import age, read_backlogs
from payments_integration.health.report import (
    AccountStatistics,
    Backlog,
    Drift,
    Endpoint,
    Events,
    Lag,
    Operations,
    Recovered,
    Run,
    Runs,
    Waiting,
)
from payments_integration.models import (
    AccountState,
    Event,
    EventSource,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    RunKind,
    RunState,
    WebhookEndpoint,
)
from payments_integration.projection import has_unreadable_secret
from payments_integration.reconciliation import endpoint_problem, is_elsewhere
from payments_integration.sync import replaced_key

#: The number of newest events that are read. Events older than _SINCE are not read.
_NEWEST = 1_000
_SINCE = timedelta(days=31)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
#: The number of newest passes that are read. If a kind has no done pass among them, its last pass and its last done
#: pass are read separately.
_RUNS = 100
_KINDS = (RunKind.EVENTS, RunKind.OBJECTS, RunKind.FULL, RunKind.BALANCES)
_SWEEPS = (RunKind.OBJECTS, RunKind.FULL)
#: SQLite accepts at most 500 queries in one statement.
PARTS = 450


class _Pass(NamedTuple):
    """A ``ReconciliationRun`` with only the columns that health reads."""

    pk: int
    account: str
    kind: str
    state: str
    started_at: datetime
    error: str
    pages: int
    drifted: int
    repaired: int


#: An event as (received_at, created_at, source).
_Arrival = tuple[datetime, datetime, str]


def read_statistics(accounts: Sequence[str], now: datetime) -> dict[str, AccountStatistics]:
    """Return the statistics of these accounts, by alias. ``now`` is our clock's time."""
    newest = _newest_events(accounts, now)
    states = AccountState.objects.in_bulk(accounts)
    backlogs = read_backlogs(accounts, now)
    passes = _passes(accounts, now)
    answered = _last_answered(accounts, now)
    endpoints = _endpoints(accounts, now)
    found: dict[str, AccountStatistics] = {}
    for alias in accounts:
        state = states.get(alias) or AccountState(account=alias)
        arrivals, waiting, runs = newest[alias], backlogs[alias], passes[alias]
        backlog = (
            waiting["pending"],
            _joined(waiting["undispatched_events"], waiting["undispatched_changes"]),
            waiting["held"],
            waiting["refreshes"],
            _joined(waiting["due_recorded"], waiting["due_unknown"]),
        )
        found[alias] = AccountStatistics(
            last_event_age_seconds=age(max((at for at, _, _ in arrivals), default=None), now),
            last_webhook_age_seconds=age(
                max((at for at, _, source in arrivals if source == EventSource.WEBHOOK), default=None), now
            ),
            webhooks_last_day=_count_by_source(arrivals, EventSource.WEBHOOK, now),
            recovered_last_day=_count_by_source(arrivals, EventSource.RECONCILIATION, now),
            recovered_since_webhook=_recovered_since_webhook(arrivals),
            webhook_lag=_lag(arrivals, state.clock_offset or 0.0, now),
            backlog=Backlog(_oldest(backlog), *backlog),
            operations=Operations(
                waiting["recorded"], waiting["unknown"], waiting["needs_person"], waiting["awaiting_approval"]
            ),
            events=Events(
                not_applied=waiting["not_applied"],
                parked=_joined(waiting["parked_events"], waiting["parked_changes"]),
                quarantined=waiting["quarantined"],
            ),
            provider_error=_provider_error(answered.get(alias), runs),
            refreshes_failing=waiting["refreshes_failing"].count,
            contact_age_seconds=age(state.first_contact_at, now),
            watermark_age_seconds=age(state.watermark, now),
            resync_due=state.resync_due_at is not None,
            # While a process does the resync, or waits to retry it after an error, it does not wait for a process.
            resync_waits_seconds=(
                state.resync_due_at
                and age(max(state.resync_due_at, state.sweep_claimed_until or state.resync_due_at), now)
            )
            or None,
            clock_offset_seconds=state.clock_offset if state.doubtful_offset is None else state.doubtful_offset,
            key_replaced=replaced_key(state),
            runs=_runs(runs, now),
            drift=_drift(runs, now),
            endpoints=endpoints[alias],
            erasures=waiting["erasures"],
            paid_twice=waiting["paid_twice"],
        )
    return found


def _union(parts: Sequence[QuerySet[Any, Any]]) -> Iterator[tuple[Any, ...]]:
    for some in in_parts(parts, PARTS):
        yield from statements.union_of(some, using=some[0].db, convert=True)


def _newest_events(accounts: Sequence[str], now: datetime) -> dict[str, list[_Arrival]]:
    """Return the newest events of each account, without events created more than a day in the future."""
    recent = Event.objects.filter(created_at__gt=now - _SINCE, created_at__lt=now + _DAY)
    # A quarantined event has no creation time from the provider.
    recent = recent.exclude(state=EventState.QUARANTINED).order_by("-created_at", "-id")
    columns = recent.values_list("account", "received_at", "created_at", "source")
    found: dict[str, list[_Arrival]] = {alias: [] for alias in accounts}
    for alias, *arrival in _union([columns.filter(account=alias)[:_NEWEST] for alias in accounts]):
        found[alias].append(tuple(arrival))
    return found


def _count_by_source(newest: list[_Arrival], source: str, now: datetime) -> int:
    return sum(1 for _, created_at, by in newest if by == source and created_at > now - _DAY)


def _recovered_since_webhook(newest: list[_Arrival]) -> Recovered:
    """``newest``: by creation, the newest first."""
    times = [at for at, _, _ in takewhile(lambda arrival: arrival[2] == EventSource.RECONCILIATION, newest)]
    return Recovered(len(times), (max(times) - min(times)).total_seconds()) if times else Recovered()


def _lag(newest: list[_Arrival], offset: float, now: datetime) -> Lag:
    """Return the lag of the newest deliveries. ``offset`` is the provider's clock minus ours, in seconds."""
    lags = [
        max(0.0, (received_at - created_at).total_seconds() + offset)
        for received_at, created_at, by in newest
        if by == EventSource.WEBHOOK and created_at > now - _DAY
    ]
    return Lag(statistics.median(lags), max(lags)) if lags else Lag()


def _passes(accounts: Sequence[str], now: datetime) -> dict[str, list[_Pass]]:
    """Return the last passes of each kind, sweeps, and the last sweep with drift within a week, by account.

    The newest comes first.
    """
    # A pass in the future was recorded while our clock was ahead, and would hide all passes until then.
    rows = ReconciliationRun.objects.filter(started_at__lte=now + CLOCK_SLACK).exclude(state=RunState.SKIPPED)
    rows = rows.order_by("-started_at", "-pk")
    columns = rows.values_list(*_Pass._fields)
    newest = _by_account(_union([columns.filter(account=alias, kind__in=_KINDS)[:_RUNS] for alias in accounts]))
    wanted = []
    for alias in accounts:
        own = columns.filter(account=alias)
        done = {row.kind for row in newest[alias] if row.state == RunState.DONE}
        for kind in _KINDS:
            if kind not in done:
                wanted += [own.filter(kind=kind)[:1], own.filter(kind=kind, state=RunState.DONE)[:1]]
        swept = own.filter(kind=RunKind.OBJECTS, pages__gt=0)
        wanted += [swept[:1], swept.filter(state=RunState.DONE)[:1]]
        wanted.append(own.filter(kind__in=_SWEEPS, started_at__gt=now - _WEEK, drifted__gt=0)[:1])
    others = _by_account(_union(wanted))
    return {
        alias: sorted({*newest[alias], *others[alias]}, key=lambda row: (row.started_at, row.pk), reverse=True)
        for alias in accounts
    }


def _is_sweep(row: _Pass) -> bool:
    # Only a sweep reads pages. A resumed resync may have read them before.
    return row.kind == RunKind.FULL or (row.kind == RunKind.OBJECTS and row.pages > 0)


def _by_account(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[_Pass]]:
    found: dict[str, list[_Pass]] = defaultdict(list)
    for row in map(_Pass._make, rows):
        found[row.account].append(row)
    return found


def _drift(passes: list[_Pass], now: datetime) -> Drift:
    """Return the drift of the newest sweep that found any within a week."""
    sweeps = (row for row in passes if row.kind in _SWEEPS and row.started_at > now - _WEEK and row.drifted > 0)
    return next((Drift(row.drifted, row.repaired) for row in sweeps), Drift())


#: The time when the newest answered operation was closed, and its error if there was one.
_Answered = tuple[datetime, dict[str, Any] | None]


def _last_answered(accounts: Sequence[str], now: datetime) -> dict[str, _Answered]:
    # A closed operation has an error if the provider refused it, or could not be reached.
    is_answered = Q(state__in=(OperationState.DONE, OperationState.REJECTED)) | Q(
        state=OperationState.CLOSED, error__isnull=False
    )
    # A time in the future was recorded while our clock was ahead, as in ``_passes``.
    answered = Operation.objects.filter(is_answered, closed_at__lte=now + CLOCK_SLACK)
    answered = answered.order_by("-created_at", "-id")
    columns = answered.values_list("account", "closed_at", "error")
    newest = _union([columns.filter(account=alias)[:1] for alias in accounts])
    return {alias: (closed_at, error) for alias, closed_at, error in newest}


def _provider_error(answered: _Answered | None, passes: list[_Pass]) -> str:
    """Return the error of the newest ended pass or answered operation, or "" if it succeeded."""
    ended = next((row for row in passes if row.state in (RunState.DONE, RunState.FAILED)), None)
    if answered is not None:
        closed_at, error = answered
        if ended is None or closed_at > ended.started_at:
            return recorded_error(closing_error(error)) if error else ""
    return ended.error if ended is not None else ""


def _endpoints(accounts: Sequence[str], now: datetime) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = {alias: [] for alias in accounts}
    for row in WebhookEndpoint.objects.filter(account__in=accounts, deleted_at=None).order_by("pk"):
        if not is_elsewhere(row):
            found[row.account].append(_endpoint(row, now))
    return found


def _runs(rows: list[_Pass], now: datetime) -> Runs:
    of_kinds = [[row for row in rows if row.kind == kind] for kind in _KINDS]
    sweeps = [row for row in rows if _is_sweep(row)]
    return Runs(*(_run(chosen, now) for chosen in [*of_kinds, sweeps]))


def _run(rows: list[_Pass], now: datetime) -> Run:
    """Summarise the passes of one kind, which come newest first."""
    failures = 0
    for row in rows:
        if row.state == RunState.DONE:
            return Run(age(rows[0].started_at, now), rows[0].state, rows[0].error, age(row.started_at, now), failures)
        # If a pass is not the last one and is still running, its process was killed.
        failures += row.state == RunState.FAILED or row is not rows[0]
    return Run(age(rows[0].started_at, now), rows[0].state, rows[0].error, None, failures) if rows else Run()


def _endpoint(row: WebhookEndpoint, now: datetime) -> Endpoint:
    left = (row.previous_secret_until - now).total_seconds() if row.previous_secret_until else 0.0
    return Endpoint(
        id=row.pk,
        url=row.url,
        status=row.status,
        problem=endpoint_problem(row),
        secret_is_known=bool(row.secret_token),
        secret_is_readable=not has_unreadable_secret(row),
        secret_age_seconds=age(row.secret_since, now),
        previous_secret_seconds_left=left if left > 0 else None,
    )


def _joined(*waiting: Waiting) -> Waiting:
    return Waiting(sum(item.count for item in waiting), _oldest(waiting))


def _oldest(waiting: Iterable[Waiting]) -> float | None:
    return max((item.age_seconds for item in waiting if item.age_seconds is not None), default=None)
