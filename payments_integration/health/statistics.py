"""Read the statistics of all accounts in six statements. Each uses an index or reads a limited number of rows.

Every account has its own limits, so a busy account hides nothing of a quiet one. With more than forty accounts, two of
the statements become several; with more than 450, the others do too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from django.db.models import (
    Case,
    CharField,
    DateTimeField,
    F,
    Field,
    IntegerField,
    Max,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat

from payments_integration.db import statements
from payments_integration.exceptions import closing_error, recorded_error
from payments_integration.health.report import (
    AccountStatistics,
    Backlog,
    Drift,
    Endpoint,
    Events,
    Lag,
    Operations,
    Run,
    Runs,
    Waiting,
)
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    DoublePayment,
    DueRefresh,
    Erasure,
    Event,
    EventSource,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    RunKind,
    RunState,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.projection import has_unreadable_secret, replaced_key
from payments_integration.reconciliation import endpoint_problem

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
#: SQLite accepts at most 500 queries in one statement. PostgreSQL accepts at most 1,664 columns, and an account's
#: backlog takes 38.
_PARTS = 450
_BACKLOGS = 40


class _Pass(NamedTuple):
    """A ``ReconciliationRun`` with only the columns that health reads."""

    pk: int
    account: str
    kind: str
    state: str
    started_at: datetime
    error: str
    drifted: int
    repaired: int


#: An event as (received_at, created_at, source).
_Arrival = tuple[datetime, datetime, str]


def read_statistics(accounts: Sequence[str], now: datetime) -> dict[str, AccountStatistics]:
    """Return the statistics of these accounts, by alias. ``now`` is our clock's time."""
    newest = _newest_events(accounts, now)
    backlogs = _backlogs(accounts, now)
    passes = _passes(accounts, now)
    answered = _last_answered(accounts)
    endpoints = _endpoints(accounts, now)
    return {
        alias: _account_statistics(
            newest[alias], *backlogs[alias], passes[alias], answered.get(alias), endpoints[alias], now
        )
        for alias in accounts
    }


def _account_statistics(
    newest: list[_Arrival],
    state: AccountState,
    waiting: dict[str, Waiting],
    passes: list[_Pass],
    answered: _Answered | None,
    endpoints: list[Endpoint],
    now: datetime,
) -> AccountStatistics:
    backlog = (
        waiting["pending"],
        _joined(waiting["undispatched_events"], waiting["undispatched_changes"]),
        waiting["held"],
        waiting["refreshes"],
        waiting["operations"],
    )
    return AccountStatistics(
        last_event_age_seconds=age(max((at for at, _, _ in newest), default=None), now),
        last_webhook_age_seconds=age(
            max((at for at, _, source in newest if source == EventSource.WEBHOOK), default=None), now
        ),
        webhooks_last_day=_count_by_source(newest, EventSource.WEBHOOK, now),
        recovered_last_day=_count_by_source(newest, EventSource.RECONCILIATION, now),
        webhook_lag=_lag(newest, state.clock_offset or 0.0, now),
        backlog=Backlog(_oldest(backlog), *backlog),
        operations=Operations(
            waiting["recorded"], waiting["unknown"], waiting["needs_person"], waiting["awaiting_approval"]
        ),
        events=Events(
            not_applied=waiting["not_applied"],
            parked=_joined(waiting["parked_events"], waiting["parked_changes"]),
            quarantined=waiting["quarantined"],
        ),
        provider_error=_provider_error(answered, passes),
        refreshes_failing=waiting["refreshes_failing"].count,
        watermark_age_seconds=age(state.watermark, now),
        resync_due=state.resync_due_at is not None,
        # While a process does the resync, or waits to retry it after an error, it does not wait for a process.
        resync_waits_seconds=(
            state.resync_due_at
            and age(max(state.resync_due_at, state.sweep_claimed_until or state.resync_due_at), now)
        )
        or None,
        clock_offset_seconds=state.clock_offset,
        key_replaced=replaced_key(state),
        runs=Runs(*(_run([row for row in passes if row.kind == kind], now) for kind in _KINDS)),
        drift=_drift(passes, now),
        endpoints=endpoints,
        erasures=waiting["erasures"],
        paid_twice=waiting["paid_twice"],
    )


def _union(parts: Sequence[QuerySet[Any, Any]]) -> Iterator[tuple[Any, ...]]:
    for some in _batched(parts, _PARTS):
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


def _lag(newest: list[_Arrival], offset: float, now: datetime) -> Lag:
    """Return the lag of the newest deliveries. ``offset`` is the provider's clock minus ours, in seconds."""
    lags = [
        max(0.0, (received_at - created_at).total_seconds() + offset)
        for received_at, created_at, by in newest
        if by == EventSource.WEBHOOK and created_at > now - _DAY
    ]
    return Lag(statistics.median(lags), max(lags)) if lags else Lag()


def _passes(accounts: Sequence[str], now: datetime) -> dict[str, list[_Pass]]:
    """Return the last passes of each kind, and the last sweep with drift within a week, by account, newest first."""
    rows = ReconciliationRun.objects.exclude(state=RunState.SKIPPED).order_by("-started_at", "-pk")
    columns = rows.values_list(*_Pass._fields)
    newest = _by_account(_union([columns.filter(account=alias, kind__in=_KINDS)[:_RUNS] for alias in accounts]))
    wanted = []
    for alias in accounts:
        own = columns.filter(account=alias)
        done = {row.kind for row in newest[alias] if row.state == RunState.DONE}
        for kind in _KINDS:
            if kind not in done:
                wanted += [own.filter(kind=kind)[:1], own.filter(kind=kind, state=RunState.DONE)[:1]]
        wanted.append(own.filter(kind__in=_SWEEPS, started_at__gt=now - _WEEK, drifted__gt=0)[:1])
    others = _by_account(_union(wanted))
    return {
        alias: sorted({*newest[alias], *others[alias]}, key=lambda row: (row.started_at, row.pk), reverse=True)
        for alias in accounts
    }


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


def _last_answered(accounts: Sequence[str]) -> dict[str, _Answered]:
    # A closed operation has an error if the provider refused it, or could not be reached.
    is_answered = Q(state__in=(OperationState.DONE, OperationState.REJECTED)) | Q(
        state=OperationState.CLOSED, error__isnull=False
    )
    answered = Operation.objects.filter(is_answered)
    answered = answered.exclude(closed_at=None).order_by("-created_at", "-id")
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
        found[row.account].append(_endpoint(row, now))
    return found


def _run(rows: list[_Pass], now: datetime) -> Run:
    """Summarise the passes of one kind, which come newest first."""
    failures = 0
    for row in rows:
        if row.state == RunState.DONE:
            return Run(age(rows[0].started_at, now), rows[0].state, rows[0].error, age(row.started_at, now), failures)
        failures += row.state == RunState.FAILED
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


#: Counts stop here, because a backlog needs attention long before it is this large.
LIMIT = 10_000
#: Attempts, over an hour in all, after which a failing read is a problem and no longer a passing outage.
FAILING_ATTEMPTS = 10

T = TypeVar("T")

_STATE = ("watermark", "resync_due_at", "sweep_claimed_until", "clock_offset")
#: All facts about the key in one column, because a statement has few columns to spare.
_KEY = Concat(
    Case(When(has_test_key=True, then=Value("test")), When(has_test_key=False, then=Value("live")), default=Value("")),
    Value(","), "key_hash", Value(","), "refused_key_hash", Value(","),
    Case(When(forgetting_since__isnull=False, then=Value("forgetting")), default=Value("")),
    output_field=CharField(),
)  # fmt: skip


class SlicedAggregate(Subquery):
    """An aggregate over a column of a sliced query, for use in ``QuerySet.aggregate``."""

    template = "(SELECT %(function)s(%(column)s) FROM (%(subquery)s) counted)"
    contains_aggregate = True

    def __init__(self, rows: QuerySet[Any, Any], function: str, column: str, output_field: Field[Any, Any]) -> None:
        super().__init__(rows, output_field=output_field, function=function, column=column)


def _backlogs(accounts: Sequence[str], now: datetime) -> dict[str, tuple[AccountState, dict[str, Waiting]]]:
    """Return two values by account: its state and its waiting rows by name.

    The state has only the fields that health reads. They are empty if the account has no row.
    """
    backlogs: dict[str, tuple[AccountState, dict[str, Waiting]]] = {}
    for some in _batched(accounts, _BACKLOGS):
        aggregates: dict[str, Any] = {}
        for number, alias in enumerate(some):
            for name in _STATE:
                aggregates[f"state_{name}_{number}"] = Max(name, filter=Q(pk=alias))
            aggregates[f"key_{number}"] = Max(_KEY, filter=Q(pk=alias))
            for rows, columns in _kinds(alias, now):
                counted = rows.values(**columns)[:LIMIT]
                for name in columns:
                    aggregates[f"{name}_{number}"] = SlicedAggregate(counted, "COUNT", name, IntegerField())
                    aggregates[f"{name}_oldest_{number}"] = SlicedAggregate(counted, "MIN", name, DateTimeField())
        found = AccountState.objects.filter(pk__in=some).aggregate(**aggregates)
        for number, alias in enumerate(some):
            values = {name: found[f"state_{name}_{number}"] for name in _STATE}
            state = AccountState(account=alias, **values, **_key_values(found[f"key_{number}"], now))
            names = [name for _, columns in _kinds(alias, now) for name in columns]
            backlogs[alias] = (
                state,
                {
                    name: Waiting(found[f"{name}_{number}"], age(found[f"{name}_oldest_{number}"], now))
                    for name in names
                },
            )
    return backlogs


def _key_values(key: str | None, now: datetime) -> dict[str, Any]:
    """Return the fields of the state that ``_KEY`` holds.

    ``forgetting_since`` is ``now`` instead of the real time, which is not needed here.
    """
    kind, key_hash, refused_key_hash, forgetting = (key or ",,,").split(",")
    return {
        "has_test_key": {"test": True, "live": False}.get(kind),
        "key_hash": key_hash,
        "refused_key_hash": refused_key_hash,
        "forgetting_since": now if forgetting else None,
    }


def age(at: datetime | None, now: datetime) -> float | None:
    """Return the seconds since ``at``; 0 if it is in the future."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def _kinds(account: str, now: datetime) -> list[tuple[QuerySet[Any], dict[str, Any]]]:
    """Return querysets in the order of an index, each with its columns by name.

    A column holds the time since which a row waits, or null if the row does not count.
    """
    due = Q(state__in=(OperationState.DUE, OperationState.UNKNOWN)) & (
        Q(next_attempt_at=None) | Q(next_attempt_at__lte=now)
    )
    sent = Coalesce("first_sent_at", "created_at")
    pending = {"pending": _if(Q(attempts=0), "received_at"), "not_applied": _if(Q(attempts__gt=0), "received_at")}
    operations = {
        "recorded": _if(Q(state=OperationState.DUE), sent),
        "unknown": _if(Q(state=OperationState.UNKNOWN), sent),
        "needs_person": _if(Q(state=OperationState.NEEDS_PERSON), sent),
        "awaiting_approval": _if(Q(state=OperationState.AWAITING_APPROVAL), sent),
        "operations": _if(due, Coalesce("next_attempt_at", "created_at")),
    }
    refreshes = {
        "refreshes": _if(Q(due_at__lte=now) & (Q(claimed_until=None) | Q(claimed_until__lte=now)), "due_at"),
        "refreshes_failing": _if(Q(attempts__gte=FAILING_ATTEMPTS), "due_at"),
    }
    return [
        (_events(account, EventState.PENDING), pending),
        (_events(account, EventState.APPLIED), {"undispatched_events": F("received_at")}),
        (_events(account, EventState.HELD), {"held": F("received_at")}),
        (_events(account, EventState.PARKED), {"parked_events": F("received_at")}),
        (_events(account, EventState.QUARANTINED), {"quarantined": F("received_at")}),
        # Status changes that an answer brought are dispatched without an event.
        (_changes(account, EventState.APPLIED), {"undispatched_changes": F("recorded_at")}),
        (_changes(account, EventState.PARKED), {"parked_changes": F("recorded_at")}),
        (Operation.objects.filter(account=account, state__in=OPEN_OPERATION_STATES).order_by(), operations),
        (DueRefresh.objects.filter(account=account).order_by("due_at"), refreshes),
        (
            Erasure.objects.filter(account=account, done_at=None).order_by("requested_at"),
            {"erasures": F("requested_at")},
        ),
        (DoublePayment.objects.filter(account=account).order_by(), {"paid_twice": F("found_at")}),
    ]


def _events(account: str, state: str) -> QuerySet[Event]:
    return Event.objects.filter(account=account, state=state).order_by("created_at", "id")


def _changes(account: str, state: str) -> QuerySet[StatusChange]:
    return StatusChange.objects.filter(account=account, state=state).order_by("at")


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Return slices of at most ``size`` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _if(condition: Q, since: Any) -> Case:
    return Case(When(condition, then=since), output_field=DateTimeField())
