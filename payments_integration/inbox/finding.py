"""Find the items that a worker dispatches next: oldest first, of objects that are unclaimed and wait for nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.db.claims import NOW, Claims, expired, times_of
from payments_integration.db.statements import filter_account_last, in_index_order
from payments_integration.inbox.loading import TO_BE_APPLIED_STATES
from payments_integration.models import Event, EventState, ObjectDispatch, StatusChange
from payments_integration.sync import waiting_accounts

CLAIM = Claims(timedelta(seconds=10))
_LONGEST_RETRY = timedelta(seconds=conf.LONGEST_RETRY)


def next_items(
    model: Any, when: str, account: str | None, place: tuple[Any, Any] | None, size: int, using: str
) -> list[Sequence[Any]]:
    """Return object, time and key of the next items after a place, as unconverted database values."""
    now, refused = timezone.now(), tuple(waiting_accounts(account))
    sql, parameters = _next_items_sql(model, when, account is not None, place is not None, refused, size, using)
    given: dict[Any, Any] = {_ACCOUNT: account}
    if place is not None:
        # as the database returned it
        given |= {_prepared(_AT, using): place[0], _PLACE[model]: place[1]}
    given |= {_prepared(at, using): _prepared(time, using) for at, time in free_times(now).items()}
    with transaction.atomic(using=using):
        return in_index_order(sql, [given.get(value, value) for value in parameters], using=using)


#: Placeholders for the values of a call, in a statement that is built once.
_AT = datetime(1970, 3, 2, tzinfo=UTC)
_ACCOUNT = "\ufffd of this call"
_PLACE: dict[Any, Any] = {Event: "\ufffd after this key", StatusChange: -(2**62)}


@lru_cache(maxsize=64)
def _next_items_sql(
    model: Any, when: str, has_account: bool, has_place: bool, refused: tuple[str, ...], size: int, using: str
) -> tuple[str, tuple[Any, ...]]:
    """Build the statement once: Django takes longer to build it than PostgreSQL to answer it."""
    account, place = _ACCOUNT if has_account else None, (_AT, _PLACE[model]) if has_place else None
    items = _undispatched(model, when, account, place, refused=refused, now=NOW)
    names = ("account", "object_kind", "object_id", when, "pk")
    sql, parameters = items[:size].values_list(*names).query.get_compiler(using=using).as_sql()
    return str(sql), tuple(parameters)


def _prepared(time: datetime, using: str) -> Any:
    return connections[using].ops.adapt_datetimefield_value(time)


def _undispatched(
    model: Any,
    when: str,
    account: str | None,
    place: tuple[Any, Any] | None,
    *,
    refused: Collection[str],
    now: datetime,
) -> QuerySet[Any]:
    """Return undispatched items after a place in their order, without items that must wait."""
    of_it = {name: OuterRef(name) for name in ("account", "object_kind", "object_id")}
    taken = ObjectDispatch.objects.filter(~is_free(now), **of_it)
    older = Event.objects.filter(**of_it, created_at__lt=OuterRef(when))
    # Two exclusions: for one with two alternatives, PostgreSQL does not use the index on the object's states.
    items: QuerySet[Any] = model._default_manager.filter(
        ~Exists(taken), *(~Exists(older.filter(state)) for state in TO_BE_APPLIED_STATES)
    )
    items = filter_account_last(items.filter(state=EventState.APPLIED), account)
    # Their items wait while the key may be of another project.
    items = items.exclude(account__in=refused)
    if place is not None:
        # A range first: for two alternatives alone, PostgreSQL would read and sort all remaining rows twice.
        items = items.filter(Q(**{f"{when}__gt": place[0]}) | Q(pk__gt=place[1]), **{f"{when}__gte": place[0]})
    return items.order_by(when, "pk")


def undispatched() -> tuple[QuerySet[Event], QuerySet[StatusChange]]:
    """Return the items of all accounts that a worker can dispatch now, unless they wait for a read."""
    now, refused = timezone.now(), waiting_accounts()
    return (
        _undispatched(Event, "created_at", None, None, refused=refused, now=now),
        _undispatched(StatusChange, "at", None, None, refused=refused, now=now),
    )


def is_free(now: datetime) -> Q:
    """Match objects that no worker has and that wait for no retry."""
    retried = Q(next_attempt_at=None) | expired("next_attempt_at", _LONGEST_RETRY, now=now)
    return retried & CLAIM.free(now=now)


def free_times(now: datetime) -> dict[datetime, datetime]:
    """Map the times of ``is_free(NOW)`` to the times of a call."""
    return times_of(now, _LONGEST_RETRY, CLAIM.length)
