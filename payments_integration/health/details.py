"""List the rows behind a problem, as lines for a terminal (``payments_health --explain``).

The lines name rows, codes and classes of errors. They leave out texts that may hold personal data: the admin shows
these, where its masks apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from payments_integration import conf, reconciliation
from payments_integration.dates import on_site
from payments_integration.exceptions import public_error
from payments_integration.health.backlogs import FAILING_ATTEMPTS
from payments_integration.health.examination import UNFINISHED, first_line
from payments_integration.models import (
    OPEN_OPERATION_STATES,
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
from payments_integration.money import format_money
from payments_integration.signals import Reason

#: The number of rows that are shown of each kind, oldest first.
SHOWN = 5
#: The number of passes that are shown, newest first.
SHOWN_RUNS = 3

_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?P<error>[A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)


def explain(account: str, code: Reason) -> list[str]:
    """Return a line for each row behind a problem of an account; none if the problem's message says it all."""
    find = _ROWS.get(code)
    return list(find(account)) if find is not None else []


def _operations(account: str, *, states: Iterable[str]) -> Iterator[str]:
    found = Operation.objects.filter(account=account, state__in=states).order_by("created_at", "pk")
    return map(_operation, found[:SHOWN])


def _operation(row: Operation) -> str:
    money = f" of {format_money(row.amount, row.currency)}" if row.amount is not None else ""
    error = f"; the provider: {row.error.get('code')}" if row.error else ""
    asked = f"asked for at {_time(row.created_at)}, {row.attempts} attempts"
    return f"{row.pk}: {row.operation}{money}, {row.state}, {asked}{error}"


def _events(account: str, **filters: Any) -> Iterator[str]:
    return map(_event, Event.objects.filter(account=account, **filters).order_by("created_at", "id")[:SHOWN])


def _items(account: str, *, states: Iterable[str]) -> Iterator[str]:
    """Yield the events in these states, then the changes of status."""
    yield from _events(account, state__in=states)
    changes = StatusChange.objects.filter(account=account, state__in=states).order_by("at", "pk")
    yield from map(_change, changes[:SHOWN])


def _event(row: Event) -> str:
    about = f" {row.type} of {row.object_id}" if row.object_id else ""
    # Before an event is applied, the text is our own reason. It holds no personal data: ``attention`` sends it too.
    is_reason = row.error and row.state in (EventState.QUARANTINED, EventState.PENDING)
    why = f"; {first_line(row.error)}" if is_reason else _failure(row)
    return f"{row.pk}:{about} received at {_time(row.received_at)} by {row.source}{why}"


def _change(row: StatusChange) -> str:
    name = f"change {row.pk}: {row.object_id} became {row.status}"
    return f"{name} at {_time(row.at)}{_failure(row)}"


def _failure(row: Any) -> str:
    """Return where a receiver failed according to the row's traceback, without the error's message."""
    frame = error = None
    for frame in _FRAME.finditer(row.error):
        # Take the first line after the frame: later lines belong to the message.
        error = _ERROR.search(row.error, frame.end())
    if frame is None or error is None:
        return ""
    return f"; attempt {row.attempts} failed: {error['error']} in {frame['file']}, line {frame['line']}"


def _refreshes(account: str, **filters: Any) -> Iterator[str]:
    for row in DueRefresh.objects.filter(account=account, **filters).order_by("due_at")[:SHOWN]:
        failed = f"; attempt {row.attempts} failed: {first_line(row.error)}" if row.error else ""
        yield f"{row.object_kind} {row.object_id}: {row.reason}, due at {_time(row.due_at)}{failed}"


def _runs(account: str, **filters: Any) -> Iterator[str]:
    found = ReconciliationRun.objects.filter(account=account, **filters).exclude(state=RunState.SKIPPED)
    for row in found.order_by("-started_at", "-pk")[:SHOWN_RUNS]:
        error = f": {first_line(public_error(row.error))}" if row.error else ""
        yield f"pass over {row.kind} at {_time(row.started_at)}, {row.pages} pages, {row.state}{error}"


def _endpoints(account: str) -> Iterator[str]:
    for row in WebhookEndpoint.objects.filter(account=account, deleted_at=None).order_by("pk")[:SHOWN]:
        secret = f"stored at {_time(row.secret_since)}" if row.secret_token and row.secret_since else "not stored"
        yield f"{row.pk}: {row.url}, {row.status}, {len(row.events)} event types, secret {secret}"
    yield f"secrets in the account's WEBHOOK_SECRETS: {len(conf.account(account).webhook_secrets)}"


def _recovered(account: str) -> Iterator[str]:
    yield from _endpoints(account)
    found = Event.objects.filter(account=account, source=EventSource.RECONCILIATION).order_by("-created_at", "-id")
    yield from map(_event, found[:SHOWN])


def _erasures(account: str) -> Iterator[str]:
    for row in Erasure.objects.filter(account=account, done_at=None).order_by("requested_at")[:SHOWN]:
        yield f"{row.object_kind} {row.object_id}, requested at {_time(row.requested_at)}"
    yield from _operations(account, states=OPEN_OPERATION_STATES)


def explain_removed(accounts: Iterable[str]) -> list[str]:
    """Return a line for each open operation and unfinished event of accounts that the setting no longer has."""
    lines: list[str] = []
    for account in accounts:
        lines += _operations(account, states=OPEN_OPERATION_STATES)
        lines += _items(account, states=UNFINISHED)
    return lines


def _doubles(account: str) -> Iterator[str]:
    for double, found_at in reconciliation.doubles_of(account)[:SHOWN]:
        held = ", ".join(
            f"{payment.pk} of {format_money(payment.amount_received, payment.currency)}" for payment in double.payments
        )
        yield f"{double.merchant_reference}: {held}, found at {_time(found_at)}"


def _time(at: datetime) -> str:
    return on_site(at).isoformat(sep=" ", timespec="seconds")


_failed_runs = partial(_runs, state=RunState.FAILED)
_event_runs = partial(_runs, kind=RunKind.EVENTS)
_ROWS: dict[Reason, Callable[[str], Iterator[str]]] = {
    Reason.OPERATION_NEEDS_RESOLUTION: partial(_operations, states=[OperationState.NEEDS_PERSON]),
    Reason.OPERATION_AWAITS_APPROVAL: partial(_operations, states=[OperationState.AWAITING_APPROVAL]),
    Reason.OPERATION_UNKNOWN: partial(_operations, states=[OperationState.UNKNOWN]),
    Reason.OPERATIONS_DUE: partial(_operations, states=[OperationState.DUE, OperationState.UNKNOWN]),
    Reason.DISPATCH_PARKED: partial(_items, states=[EventState.PARKED]),
    Reason.EVENTS_UNDISPATCHED: partial(_items, states=[EventState.APPLIED]),
    Reason.EVENTS_PENDING: partial(_events, state=EventState.PENDING, attempts=0),
    Reason.EVENT_NOT_APPLIED: partial(_events, state=EventState.PENDING, attempts__gt=0),
    Reason.EVENT_QUARANTINED: partial(_events, state=EventState.QUARANTINED),
    Reason.EVENTS_HELD: partial(_events, state=EventState.HELD),
    Reason.REFRESHES_DUE: _refreshes,
    Reason.REFRESHES_FAIL: partial(_refreshes, attempts__gte=FAILING_ATTEMPTS),
    Reason.RUNS_STOPPED: _runs,
    # A pass whose process was killed stays running.
    Reason.RUNS_FAIL: partial(_runs, state__in=(RunState.FAILED, RunState.RUNNING)),
    Reason.API_KEY_REFUSED: _failed_runs,
    Reason.PROVIDER_UNREACHABLE: _failed_runs,
    Reason.WATERMARK_OLD: _event_runs,
    Reason.NEVER_RECONCILED: _event_runs,
    Reason.GAP_TOO_LONG: partial(_runs, kind=RunKind.FULL),
    Reason.ENDPOINT: _endpoints,
    Reason.NO_ENDPOINT: _endpoints,
    Reason.SECRET_MISSING: _endpoints,
    Reason.SECRET_UNREADABLE: _endpoints,
    Reason.DELIVERIES_MISSING: _recovered,
    Reason.ERASURE_UNFINISHED: _erasures,
    Reason.PAID_TWICE: _doubles,
}
