"""Count what waits in each account, and since when: in one statement for forty accounts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import router
from django.db.models import Case, DateTimeField, F, Field, IntegerField, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce
from django.db.models.sql import Query

from payments_integration.db.claims import NOW
from payments_integration.db.sizes import in_parts
from payments_integration.db.statements import built_once, stand_ins, values_query
from payments_integration.health.report import Waiting
from payments_integration.models import (
    AccountState,
    DoublePayment,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    StatusChange,
)

#: Counts stop here, because a backlog needs attention long before it is this large.
LIMIT = 10_000
#: The accounts of one statement. PostgreSQL accepts at most 1,664 columns, and an account's backlog takes 36.
_ACCOUNTS = 40
#: Attempts, over an hour in all, after which a failing read is a problem and no longer a passing outage.
FAILING_ATTEMPTS = 10


class SlicedAggregate(Subquery):
    """An aggregate over a column of a sliced query."""

    template = "(SELECT %(function)s(%(column)s) FROM (%(subquery)s) counted)"

    def __init__(self, rows: QuerySet[Any, Any], function: str, column: str, output_field: Field[Any, Any]) -> None:
        super().__init__(rows, output_field=output_field, function=function, column=column)


def read_backlogs(accounts: Sequence[str], now: datetime) -> dict[str, dict[str, Waiting]]:
    """Return the waiting rows of each account, by name."""
    using = router.db_for_write(AccountState)
    names = [name for _, columns in _kinds("") for name in columns]
    backlogs: dict[str, dict[str, Waiting]] = {}
    for some in in_parts(accounts, _ACCOUNTS):
        given = dict(zip(stand_ins(len(some)), some, strict=True))
        [values] = _backlogs(len(some), LIMIT, using=using, given=given, times={NOW: now})
        pairs = iter(zip(values[::2], values[1::2], strict=True))
        for alias in some:
            backlogs[alias] = {
                name: Waiting(count, age(oldest, now)) for name, (count, oldest) in zip(names, pairs, strict=False)
            }
    return backlogs


@built_once
def _backlogs(accounts: int, most: int) -> Query:
    """Return the query for this many accounts: the count, up to ``most``, and the oldest time of each column."""
    return values_query(
        *(
            aggregate
            for account in stand_ins(accounts)
            for rows, columns in _kinds(account)
            for counted in [rows.values(**columns)[:most]]
            for name in columns
            for aggregate in (
                SlicedAggregate(counted, "COUNT", name, IntegerField()),
                SlicedAggregate(counted, "MIN", name, DateTimeField()),
            )
        )
    )


def age(at: datetime | None, now: datetime) -> float | None:
    """Return the seconds since ``at``; 0 if it is in the future."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def _kinds(account: str) -> list[tuple[QuerySet[Any], dict[str, Any]]]:
    """Return querysets in the order of an index, each with its columns by name.

    A column holds the time since which a row waits, or null if the row does not count.
    """
    sent = Coalesce("first_sent_at", "created_at")
    due = _if(Q(next_attempt_at=None) | Q(next_attempt_at__lte=NOW), Coalesce("next_attempt_at", "created_at"))
    pending = {"pending": _if(Q(attempts=0), "received_at"), "not_applied": _if(Q(attempts__gt=0), "received_at")}
    refreshes = {
        "refreshes": _if(Q(due_at__lte=NOW) & (Q(claimed_until=None) | Q(claimed_until__lte=NOW)), "due_at"),
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
        # By state, so that many operations of one state hide none of another.
        (_operations(account, OperationState.DUE), {"recorded": sent, "due_recorded": due}),
        (_operations(account, OperationState.UNKNOWN), {"unknown": sent, "due_unknown": due}),
        (_operations(account, OperationState.NEEDS_PERSON), {"needs_person": sent}),
        (_operations(account, OperationState.AWAITING_APPROVAL), {"awaiting_approval": sent}),
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


def _operations(account: str, state: str) -> QuerySet[Operation]:
    return Operation.objects.filter(account=account, state=state).order_by()


def _if(condition: Q, since: Any) -> Case:
    return Case(When(condition, then=since), output_field=DateTimeField())
