"""Everything that waits, counted in one statement: of each kind at most so many rows, in the order of an index."""

from __future__ import annotations

from datetime import datetime
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

from payments_integration.health.report import Waiting
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    StatusChange,
)

#: Counts stop here: what needs a person does so long before.
LIMIT = 10_000
#: Attempts after which an object that cannot be read is not just waiting for a passing trouble (over an hour).
FAILING_ATTEMPTS = 10

_STATE = ("watermark", "resync_due_at", "clock_offset")


class _Over(Subquery):
    """An aggregate over a column of a query, the query's slice included. ``QuerySet.aggregate`` takes it as one."""

    template = "(SELECT %(function)s(%(column)s) FROM (%(subquery)s) counted)"
    contains_aggregate = True

    def __init__(self, rows: QuerySet[Any, Any], function: str, column: str, output_field: Field[Any, Any]) -> None:
        super().__init__(rows, output_field=output_field, function=function, column=column)


def account_waiting(account: str, now: datetime) -> tuple[AccountState, dict[str, Waiting]]:
    """The account's state as far as health reads it (empty where there is none yet), and what waits, by name."""
    figures: dict[str, Any] = {f"state_{name}": Max(name) for name in _STATE}
    names: list[str] = []
    for rows, columns in _kinds(account, now):
        counted = rows.values(**columns)[:LIMIT]
        for name in columns:
            figures[name] = _Over(counted, "COUNT", name, IntegerField())
            figures[f"{name}_oldest"] = _Over(counted, "MIN", name, DateTimeField())
            names.append(name)
    found = AccountState.objects.filter(pk=account).aggregate(**figures)
    state = AccountState(account=account, **{name: found[f"state_{name}"] for name in _STATE})
    return state, {name: Waiting(found[name], age(found[f"{name}_oldest"], now)) for name in names}


def age(at: datetime | None, now: datetime) -> float | None:
    """Seconds since then; what is ahead of our clock is not older than nothing."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def _kinds(account: str, now: datetime) -> list[tuple[QuerySet[Any], dict[str, Any]]]:
    """Rows in the order of an index, and by name: since when such a row waits, null where it does not count."""
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
        (_events(account, EventState.APPLIED), {"untold_events": F("received_at")}),
        (_events(account, EventState.HELD), {"held": F("received_at")}),
        (_events(account, EventState.PARKED), {"parked_events": F("received_at")}),
        (_events(account, EventState.QUARANTINED), {"quarantined": F("received_at")}),
        # Changes of status that an answer brought are told by themselves.
        (_changes(account, EventState.APPLIED), {"untold_changes": F("recorded_at")}),
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
