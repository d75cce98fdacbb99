"""List the rows behind a problem, as lines for a terminal (``payments_health --explain``).

The lines name rows, codes and classes of errors. They leave out texts that may hold personal data: the admin shows
these, where its masks apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from payments_integration import conf, reconciliation
from payments_integration.dates import on_site
from payments_integration.exceptions import public_error
from payments_integration.health.backlogs import FAILING_ATTEMPTS
from payments_integration.health.examination import first_line
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


def _operations(*states: str) -> Callable[[str], Iterator[str]]:
    def lines(account: str) -> Iterator[str]:
        found = Operation.objects.filter(account=account, state__in=states).order_by("created_at", "pk")
        yield from map(_operation, found[:SHOWN])

    return lines


def _operation(row: Operation) -> str:
    money = f" of {format_money(row.amount, row.currency)}" if row.amount is not None else ""
    error = f"; the provider: {row.error.get('code')}" if row.error else ""
    asked = f"asked for at {_time(row.created_at)}, {row.attempts} attempts"
    return f"{row.pk}: {row.operation}{money}, {row.state}, {asked}{error}"


def _items(*states: str, only: Q | None = None, changes: bool = False) -> Callable[[str], Iterator[str]]:
    def lines(account: str) -> Iterator[str]:
        events = Event.objects.filter(only or Q(), account=account, state__in=states).order_by("created_at", "id")
        yield from map(_event, events[:SHOWN])
        if changes:
            found = StatusChange.objects.filter(account=account, state__in=states).order_by("at", "pk")
            yield from map(_change, found[:SHOWN])

    return lines


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


def _refreshes(**filters: Any) -> Callable[[str], Iterator[str]]:
    def lines(account: str) -> Iterator[str]:
        for row in DueRefresh.objects.filter(account=account, **filters).order_by("due_at")[:SHOWN]:
            failed = f"; attempt {row.attempts} failed: {first_line(row.error)}" if row.error else ""
            yield f"{row.object_kind} {row.object_id}: {row.reason}, due at {_time(row.due_at)}{failed}"

    return lines


def _runs(*kinds: str, **filters: Any) -> Callable[[str], Iterator[str]]:
    def lines(account: str) -> Iterator[str]:
        found: QuerySet[ReconciliationRun] = ReconciliationRun.objects.filter(account=account, **filters)
        if kinds:
            found = found.filter(kind__in=kinds)
        for row in found.exclude(state=RunState.SKIPPED).order_by("-started_at", "-pk")[:SHOWN_RUNS]:
            error = f": {first_line(public_error(row.error))}" if row.error else ""
            yield f"pass over {row.kind} at {_time(row.started_at)}, {row.pages} pages, {row.state}{error}"

    return lines


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
    yield from _operations(*OPEN_OPERATION_STATES)(account)


def explain_removed(accounts: Iterable[str]) -> list[str]:
    """Return a line for each open operation and unfinished event of accounts that the setting no longer has."""
    lines: list[str] = []
    for account in accounts:
        lines += _operations(*OPEN_OPERATION_STATES)(account)
        states = (EventState.PENDING, EventState.HELD, EventState.APPLIED, EventState.PARKED)
        lines += _items(*states, changes=True)(account)
    return lines


def _doubles(account: str) -> Iterator[str]:
    for double, found_at in reconciliation.doubles_of(account)[:SHOWN]:
        held = ", ".join(
            f"{payment.pk} of {format_money(payment.amount_received, payment.currency)}" for payment in double.payments
        )
        yield f"{double.merchant_reference}: {held}, found at {_time(found_at)}"


def _time(at: datetime) -> str:
    return on_site(at).isoformat(sep=" ", timespec="seconds")


_FAILED = {"state": RunState.FAILED}
_ROWS: dict[Reason, Callable[[str], Iterator[str]]] = {
    Reason.OPERATION_NEEDS_RESOLUTION: _operations(OperationState.NEEDS_PERSON),
    Reason.OPERATION_AWAITS_APPROVAL: _operations(OperationState.AWAITING_APPROVAL),
    Reason.OPERATION_UNKNOWN: _operations(OperationState.UNKNOWN),
    Reason.OPERATIONS_DUE: _operations(OperationState.DUE, OperationState.UNKNOWN),
    Reason.DISPATCH_PARKED: _items(EventState.PARKED, changes=True),
    Reason.EVENTS_UNDISPATCHED: _items(EventState.APPLIED, changes=True),
    Reason.EVENTS_PENDING: _items(EventState.PENDING, only=Q(attempts=0)),
    Reason.EVENT_NOT_APPLIED: _items(EventState.PENDING, only=Q(attempts__gt=0)),
    Reason.EVENT_QUARANTINED: _items(EventState.QUARANTINED),
    Reason.EVENTS_HELD: _items(EventState.HELD),
    Reason.REFRESHES_DUE: _refreshes(),
    Reason.REFRESHES_FAIL: _refreshes(attempts__gte=FAILING_ATTEMPTS),
    Reason.RUNS_STOPPED: _runs(),
    Reason.RUNS_FAIL: _runs(**_FAILED),
    Reason.API_KEY_REFUSED: _runs(**_FAILED),
    Reason.PROVIDER_UNREACHABLE: _runs(**_FAILED),
    Reason.WATERMARK_OLD: _runs(RunKind.EVENTS),
    Reason.NEVER_RECONCILED: _runs(RunKind.EVENTS),
    Reason.GAP_TOO_LONG: _runs(RunKind.FULL),
    Reason.ENDPOINT: _endpoints,
    Reason.NO_ENDPOINT: _endpoints,
    Reason.SECRET_MISSING: _endpoints,
    Reason.SECRET_UNREADABLE: _endpoints,
    Reason.DELIVERIES_MISSING: _recovered,
    Reason.ERASURE_UNFINISHED: _erasures,
    Reason.PAID_TWICE: _doubles,
}
