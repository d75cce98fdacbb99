"""The statistics of one account, in six queries. Each uses an index or reads a limited number of rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import (
    Case,
    DateTimeField,
    F,
    Field,
    IntegerField,
    Max,
    Q,
    QuerySet,
    Subquery,
    When,
)
from django.db.models.functions import Coalesce

from payments_integration.db.encryption import DecryptionError, decrypt
from payments_integration.exceptions import provider_error, recorded_error
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
from payments_integration.reconciliation import endpoint_problem

#: At most so many of the newest events are read, and none older than _SINCE.
_NEWEST = 1_000
_SINCE = timedelta(days=31)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
#: So many of the newest passes are read. For a kind that is not among them: its last pass and its last done one.
_RUNS = 100
_KINDS = (RunKind.EVENTS, RunKind.OBJECTS, RunKind.FULL, RunKind.BALANCES)
_SWEEPS = (RunKind.OBJECTS, RunKind.FULL)


def account_statistics(account: str, now: datetime) -> AccountStatistics:
    """Read the statistics of an account; ``now`` is our clock's time."""
    newest = _newest_events(account, now)
    state, waiting = account_backlog(account, now)
    backlog = (
        waiting["pending"],
        _joined(waiting["undispatched_events"], waiting["undispatched_changes"]),
        waiting["held"],
        waiting["refreshes"],
        waiting["operations"],
    )
    passes = _passes(account, now)
    return AccountStatistics(
        last_event_age_seconds=age(max((at for at, _, _ in newest), default=None), now),
        last_webhook_age_seconds=age(
            max((at for at, _, source in newest if source == EventSource.WEBHOOK), default=None), now
        ),
        webhooks_last_day=_count_by_source(newest, EventSource.WEBHOOK, now),
        recovered_last_day=_count_by_source(newest, EventSource.RECONCILIATION, now),
        webhook_lag=_lag(newest, state.clock_offset or 0.0, now),
        backlog=Backlog(_oldest(backlog), *backlog),
        operations=Operations(waiting["unknown"], waiting["needs_person"], waiting["awaiting_approval"]),
        events=Events(
            not_applied=waiting["not_applied"],
            parked=_joined(waiting["parked_events"], waiting["parked_changes"]),
            quarantined=waiting["quarantined"],
        ),
        provider_error=_provider_error(account, passes),
        refreshes_failing=waiting["refreshes_failing"].count,
        watermark_age_seconds=age(state.watermark, now),
        resync_due=state.resync_due_at is not None,
        # A process that is doing the resync moves this time into the future.
        resync_waits_seconds=age(state.resync_due_at, now) or None,
        clock_offset_seconds=state.clock_offset,
        runs=Runs(*(_run([row for row in passes if row.kind == kind], now) for kind in _KINDS)),
        drift=_drift(passes, now),
        endpoints=[
            _endpoint(row, now)
            for row in WebhookEndpoint.objects.filter(account=account, deleted_at=None).order_by("pk")
        ],
        erasures=waiting["erasures"],
    )


def _newest_events(account: str, now: datetime) -> list[tuple[datetime, datetime, str]]:
    """(received, created, source) of the newest events, without those created more than a day in the future."""
    recent = Event.objects.filter(account=account, created_at__gt=now - _SINCE, created_at__lt=now + _DAY)
    # A quarantined event has no time of the provider's.
    recent = recent.exclude(state=EventState.QUARANTINED).order_by("-created_at", "-id")
    return list(recent.values_list("received_at", "created_at", "source")[:_NEWEST])


def _count_by_source(newest: list[tuple[datetime, datetime, str]], source: str, now: datetime) -> int:
    return sum(1 for _, created_at, by in newest if by == source and created_at > now - _DAY)


def _lag(newest: list[tuple[datetime, datetime, str]], offset: float, now: datetime) -> Lag:
    """Events are created on the provider's clock and received on ours; ``offset`` is the difference."""
    lags = [
        max(0.0, (received_at - created_at).total_seconds() + offset)
        for received_at, created_at, by in newest
        if by == EventSource.WEBHOOK and created_at > now - _DAY
    ]
    return Lag(statistics.median(lags), max(lags)) if lags else Lag()


def _passes(account: str, now: datetime) -> list[ReconciliationRun]:
    """The last passes of each kind, and the last sweep within a week that found drift; newest first."""
    rows = ReconciliationRun.objects.filter(account=account).exclude(state=RunState.SKIPPED).defer("drift")
    newest = list(rows.filter(kind__in=_KINDS).order_by("-started_at")[:_RUNS])
    rare = [kind for kind in _KINDS if not any(row.kind == kind and row.state == RunState.DONE for row in newest)]
    wanted = [_last(rows.filter(kind=kind)) for kind in rare]
    wanted += [_last(rows.filter(kind=kind, state=RunState.DONE)) for kind in rare]
    drifted = _last(rows.filter(kind__in=_SWEEPS, started_at__gt=now - _WEEK, drifted__gt=0))
    # OR instead of IN: MariaDB does not allow LIMIT within IN.
    others = rows.filter(reduce(or_, (Q(pk=pk) for pk in (*wanted, drifted))))
    found = {row.pk: row for row in (*newest, *others)}
    return sorted(found.values(), key=lambda row: row.started_at, reverse=True)


def _drift(passes: list[ReconciliationRun], now: datetime) -> Drift:
    """The drift that the newest sweep with any drift found within a week."""
    sweeps = (row for row in passes if row.kind in _SWEEPS and row.started_at > now - _WEEK and row.drifted > 0)
    return next((Drift(row.drifted, row.repaired) for row in sweeps), Drift())


def _provider_error(account: str, passes: list[ReconciliationRun]) -> str:
    """The error with which the newest ended pass or answered operation ended; "" if it succeeded."""
    answered = Operation.objects.filter(account=account, state__in=(OperationState.DONE, OperationState.REJECTED))
    operation = answered.exclude(closed_at=None).order_by("-created_at", "-id").only("closed_at", "error").first()
    ended = next((row for row in passes if row.state in (RunState.DONE, RunState.FAILED)), None)
    if operation is not None and operation.closed_at and (ended is None or operation.closed_at > ended.started_at):
        return recorded_error(provider_error(operation.error)) if operation.error else ""
    return ended.error if ended is not None else ""


def _last(rows: QuerySet[ReconciliationRun]) -> Subquery:
    return Subquery(rows.order_by("-started_at").values("pk")[:1])


def _run(rows: list[ReconciliationRun], now: datetime) -> Run:
    """Summarise the passes of one kind, which come newest first."""
    failures = 0
    for row in rows:
        if row.state == RunState.DONE:
            return Run(age(rows[0].started_at, now), rows[0].state, rows[0].error, age(row.started_at, now), failures)
        failures += row.state == RunState.FAILED
    return Run(age(rows[0].started_at, now), rows[0].state, rows[0].error, None, failures) if rows else Run()


def _endpoint(row: WebhookEndpoint, now: datetime) -> Endpoint:
    left = (row.previous_secret_until - now).total_seconds() if row.previous_secret_until else 0.0
    tokens = [row.secret_token, row.previous_secret_token if left > 0 else ""]
    return Endpoint(
        id=row.pk,
        url=row.url,
        status=row.status,
        problem=endpoint_problem(row),
        secret_is_known=bool(row.secret_token),
        secret_is_readable=all(_is_readable(token) for token in tokens if token),
        secret_age_seconds=age(row.secret_since, now),
        previous_secret_seconds_left=left if left > 0 else None,
    )


def _is_readable(token: str) -> bool:
    try:
        decrypt(token)
    except DecryptionError:
        return False
    return True


def _joined(*waiting: Waiting) -> Waiting:
    return Waiting(sum(item.count for item in waiting), _oldest(waiting))


def _oldest(waiting: Iterable[Waiting]) -> float | None:
    return max((item.age_seconds for item in waiting if item.age_seconds is not None), default=None)


#: Counts stop here: a backlog needs attention long before.
LIMIT = 10_000
#: Attempts (over an hour) after which a failing read counts as a problem instead of a passing outage.
FAILING_ATTEMPTS = 10

_STATE = ("watermark", "resync_due_at", "clock_offset")


class SlicedAggregate(Subquery):
    """An aggregate over a column of a sliced query, for use in ``QuerySet.aggregate``."""

    template = "(SELECT %(function)s(%(column)s) FROM (%(subquery)s) counted)"
    contains_aggregate = True

    def __init__(self, rows: QuerySet[Any, Any], function: str, column: str, output_field: Field[Any, Any]) -> None:
        super().__init__(rows, output_field=output_field, function=function, column=column)


def account_backlog(account: str, now: datetime) -> tuple[AccountState, dict[str, Waiting]]:
    """The fields of the account's state that health reads (empty if it has no row yet), and what waits, by name."""
    aggregates: dict[str, Any] = {f"state_{name}": Max(name) for name in _STATE}
    names: list[str] = []
    for rows, columns in _kinds(account, now):
        counted = rows.values(**columns)[:LIMIT]
        for name in columns:
            aggregates[name] = SlicedAggregate(counted, "COUNT", name, IntegerField())
            aggregates[f"{name}_oldest"] = SlicedAggregate(counted, "MIN", name, DateTimeField())
            names.append(name)
    found = AccountState.objects.filter(pk=account).aggregate(**aggregates)
    state = AccountState(account=account, **{name: found[f"state_{name}"] for name in _STATE})
    return state, {name: Waiting(found[name], age(found[f"{name}_oldest"], now)) for name in names}


def age(at: datetime | None, now: datetime) -> float | None:
    """Seconds since then, 0 for a time in the future."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def _kinds(account: str, now: datetime) -> list[tuple[QuerySet[Any], dict[str, Any]]]:
    """Rows in the order of an index, with columns by name: since when a row waits, or null if it does not count."""
    due = Q(state__in=(OperationState.DUE, OperationState.UNKNOWN)) & (
        Q(next_attempt_at=None) | Q(next_attempt_at__lte=now)
    )
    sent = Coalesce("first_sent_at", "created_at")
    pending = {"pending": _if(Q(attempts=0), "received_at"), "not_applied": _if(Q(attempts__gt=0), "received_at")}
    operations = {
        "unknown": _if(Q(state=OperationState.UNKNOWN), sent),
        "needs_person": _if(Q(state=OperationState.NEEDS_PERSON), sent),
        "awaiting_approval": _if(Q(state=OperationState.AWAITING_APPROVAL), sent),
        "operations": _if(due, Coalesce("next_attempt_at", "created_at")),
    }
    refreshes = {
        "refreshes": _if(Q(due_at__lte=now), "due_at"),
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
    ]


def _events(account: str, state: str) -> QuerySet[Event]:
    return Event.objects.filter(account=account, state=state).order_by("created_at", "id")


def _changes(account: str, state: str) -> QuerySet[StatusChange]:
    return StatusChange.objects.filter(account=account, state=state).order_by("at")


def _if(condition: Q, since: Any) -> Case:
    return Case(When(condition, then=since), output_field=DateTimeField())
