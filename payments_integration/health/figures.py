"""The figures of one account: five queries, each over an index or over at most so many rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet, Subquery

from payments_integration.encryption import DecryptionError, decrypt
from payments_integration.health.report import (
    AccountFigures,
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
from payments_integration.health.waiting import account_waiting, age
from payments_integration.models import (
    Event,
    EventSource,
    EventState,
    ReconciliationRun,
    RunKind,
    RunState,
    WebhookEndpoint,
)
from payments_integration.reconciliation import complaint

#: The newest events that are looked at, and how far back they go.
_NEWEST = 1_000
_SINCE = timedelta(days=31)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
#: The newest passes that are looked at; of a kind that is not among them, the last one and the last that was done.
_RUNS = 100
_KINDS = (RunKind.EVENTS, RunKind.OBJECTS, RunKind.FULL, RunKind.BALANCES)
_SWEEPS = (RunKind.OBJECTS, RunKind.FULL)


def account_figures(account: str, now: datetime) -> AccountFigures:
    """Read them; ``now``: our clock."""
    newest = _newest_events(account, now)
    state, waiting = account_waiting(account, now)
    backlog = (
        waiting["pending"],
        _joined(waiting["untold_events"], waiting["untold_changes"]),
        waiting["held"],
        waiting["refreshes"],
        waiting["operations"],
    )
    runs, drift = _runs(account, now)
    return AccountFigures(
        last_event_age_seconds=age(max((at for at, _, _ in newest), default=None), now),
        last_webhook_age_seconds=age(
            max((at for at, _, source in newest if source == EventSource.WEBHOOK), default=None), now
        ),
        webhooks_last_day=_brought(newest, EventSource.WEBHOOK, now),
        recovered_last_day=_brought(newest, EventSource.RECONCILIATION, now),
        webhook_lag=_lag(newest, state.clock_offset or 0.0, now),
        backlog=Backlog(_oldest(backlog), *backlog),
        operations=Operations(waiting["unknown"], waiting["needs_person"], waiting["awaiting_approval"]),
        events=Events(
            not_applied=waiting["not_applied"],
            parked=_joined(waiting["parked_events"], waiting["parked_changes"]),
            quarantined=waiting["quarantined"],
        ),
        refreshes_failing=waiting["refreshes_failing"].count,
        watermark_age_seconds=age(state.watermark, now),
        resync_due=state.resync_due_at is not None,
        # Who is at it moves the time ahead.
        resync_waits_seconds=age(state.resync_due_at, now) or None,
        clock_offset_seconds=state.clock_offset,
        runs=runs,
        drift=drift,
        endpoints=[
            _endpoint(row, now)
            for row in WebhookEndpoint.objects.filter(account=account, deleted_at=None).order_by("pk")
        ],
        erasures=waiting["erasures"],
    )


def _newest_events(account: str, now: datetime) -> list[tuple[datetime, datetime, str]]:
    """(received, created, source) of the newest; a time that is ahead of every clock is none of them."""
    recent = Event.objects.filter(account=account, created_at__gt=now - _SINCE, created_at__lt=now + _DAY)
    # What is in quarantine has no time of the provider's.
    recent = recent.exclude(state=EventState.QUARANTINED).order_by("-created_at", "-id")
    return list(recent.values_list("received_at", "created_at", "source")[:_NEWEST])


def _brought(newest: list[tuple[datetime, datetime, str]], source: str, now: datetime) -> int:
    return sum(1 for _, created_at, by in newest if by == source and created_at > now - _DAY)


def _lag(newest: list[tuple[datetime, datetime, str]], offset: float, now: datetime) -> Lag:
    """Created on the provider's clock, received on ours."""
    lags = [
        max(0.0, (received_at - created_at).total_seconds() + offset)
        for received_at, created_at, by in newest
        if by == EventSource.WEBHOOK and created_at > now - _DAY
    ]
    return Lag(statistics.median(lags), max(lags)) if lags else Lag()


def _runs(account: str, now: datetime) -> tuple[Runs, Drift]:
    """The passes of each kind, and what the newest sweep that found any drift, a week back, found."""
    rows = ReconciliationRun.objects.filter(account=account).exclude(state=RunState.SKIPPED).defer("drift")
    newest = list(rows.filter(kind__in=_KINDS).order_by("-started_at")[:_RUNS])
    rare = [kind for kind in _KINDS if not any(row.kind == kind and row.state == RunState.DONE for row in newest)]
    wanted = [_last(rows.filter(kind=kind)) for kind in rare]
    wanted += [_last(rows.filter(kind=kind, state=RunState.DONE)) for kind in rare]
    drifted = _last(rows.filter(kind__in=_SWEEPS, started_at__gt=now - _WEEK, drifted__gt=0))
    # Not "in": MariaDB has no LIMIT there.
    others = rows.filter(reduce(or_, (Q(pk=pk) for pk in (*wanted, drifted))))
    found = {row.pk: row for row in (*newest, *others)}
    runs = sorted(found.values(), key=lambda row: row.started_at, reverse=True)
    sweeps = (row for row in runs if row.kind in _SWEEPS and row.started_at > now - _WEEK and row.drifted > 0)
    return (
        Runs(*(_run([row for row in runs if row.kind == kind], now) for kind in _KINDS)),
        next((Drift(row.drifted, row.repaired) for row in sweeps), Drift()),
    )


def _last(rows: QuerySet[ReconciliationRun]) -> Subquery:
    return Subquery(rows.order_by("-started_at").values("pk")[:1])


def _run(rows: list[ReconciliationRun], now: datetime) -> Run:
    """Of the passes of one kind, the newest first."""
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
        complaint=complaint(row),
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
