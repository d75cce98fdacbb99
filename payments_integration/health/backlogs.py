"""Count what waits in each account, and since when: in one statement for forty accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

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

from payments_integration.health.report import Waiting
from payments_integration.models import (
    OPEN_OPERATION_STATES,
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
#: The accounts of one statement. PostgreSQL accepts at most 1,664 columns, and an account's backlog takes 38.
_ACCOUNTS = 40
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


def read_backlogs(accounts: Sequence[str], now: datetime) -> dict[str, tuple[AccountState, dict[str, Waiting]]]:
    """Return two values by account: its state and its waiting rows by name.

    The state has only the fields that health reads. They are empty if the account has no row.
    """
    backlogs: dict[str, tuple[AccountState, dict[str, Waiting]]] = {}
    for some in batched(accounts, _ACCOUNTS):
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


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Return slices of at most ``size`` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _if(condition: Q, since: Any) -> Case:
    return Case(When(condition, then=since), output_field=DateTimeField())
