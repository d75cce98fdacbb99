"""The SELECTs of a worker: the items that it dispatches next, and what it needs to know of their objects.

Their SQL is built once: Django takes longer to build it than PostgreSQL to answer it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db import connections, transaction
from django.db.models import Exists, F, Max, Min, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.db.claims import NOW, Claims, expired, times_of
from payments_integration.db.statements import built_once, filter_account_last, in_index_order, instance, stand_ins
from payments_integration.db.transactions import locked
from payments_integration.models import (
    Event,
    EventState,
    ObjectDispatch,
    ObjectKey,
    Shape,
    StatusChange,
    keys_of,
    of_objects,
    shape_of,
)
from payments_integration.projection import clock_offset
from payments_integration.sync import waiting_accounts

#: Later items of the object wait for these events: another worker may be applying a pending one, and a later batch may
#: finish first. An event that could not be applied needs an upgrade, so nothing waits for it.
TO_BE_APPLIED_STATES = (Q(state=EventState.HELD), Q(state=EventState.PENDING, attempts=0))
TO_BE_APPLIED = TO_BE_APPLIED_STATES[0] | TO_BE_APPLIED_STATES[1]
#: The states of an event that was dispatched once: a replayed one waits again, and may be parked.
_ONCE_DONE = (EventState.DONE, EventState.APPLIED, EventState.PARKED)

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


def rows_of(keys: Iterable[ObjectKey], using: str) -> list[int]:
    """Return the primary keys of the ``ObjectDispatch`` rows of these objects."""
    shape, given = shape_of(keys)
    return [pk for [pk] in _keys_of_rows(shape, using=using, given=given)]


@built_once
def _keys_of_rows(shape: Shape) -> QuerySet[Any, Any]:
    return ObjectDispatch.objects.filter(of_objects(keys_of(shape))).values_list("pk")


def lock_free(keys: Collection[int], now: datetime, using: str) -> list[ObjectDispatch]:
    """Lock and return the free rows with these primary keys, except rows that another worker has locked."""
    if not keys:
        return []
    given = dict(zip(_row_stand_ins(len(keys)), keys, strict=True))
    found = _free(len(keys), using=using, given=given, times=free_times(now))
    return [instance(ObjectDispatch, values, using) for values in found]


@built_once
def _free(count: int) -> QuerySet[ObjectDispatch]:
    free = ObjectDispatch.objects.filter(is_free(NOW), pk__in=_row_stand_ins(count))
    return locked(free, skip_locked=True).order_by("pk")


def _row_stand_ins(count: int) -> range:
    return range(-count, 0)


@built_once
def first_waiting(shape: Shape) -> QuerySet[Any, Any]:
    waiting = Event.objects.filter(of_objects(keys_of(shape)), TO_BE_APPLIED).order_by()
    return waiting.values_list("account", "object_kind", "object_id").annotate(Min("created_at"))


def applied_items(model: Any, when: str, shape: Shape, given: dict[str, str], most: int, using: str) -> list[Any]:
    """Return items to dispatch, each with ``clock_offset``: the provider's clock minus ours in seconds."""
    items = []
    for *values, offset in _applied(model, when, shape, most, using=using, given=given):
        item = instance(model, values, using)
        item.clock_offset = offset
        items.append(item)
    return items


@built_once
def _applied(model: Any, when: str, shape: Shape, most: int) -> QuerySet[Any]:
    items: QuerySet[Any] = model._default_manager.filter(of_objects(keys_of(shape)), state=EventState.APPLIED)
    items = items.annotate(clock_offset=clock_offset(OuterRef("account")))
    return items.order_by(when, "pk")[:most]


def brought_by(events: Collection[str], using: str) -> list[StatusChange]:
    """Return the status changes that these events brought."""
    if not events:
        return []
    given = dict(zip(stand_ins(len(events)), events, strict=True))
    found = _changes_of(len(events), using=using, given=given)
    return [instance(StatusChange, values, using) for values in found]


@built_once
def _changes_of(count: int) -> QuerySet[StatusChange]:
    return StatusChange.objects.filter(event__in=stand_ins(count)).order_by("pk")


#: The time of the earliest item, in SQL that is built once.
EARLIEST = datetime(1970, 3, 1, tzinfo=UTC)


@built_once
def newest_dispatched(shape: Shape, max_ahead: tuple[tuple[str, timedelta], ...]) -> QuerySet[Any, Any]:
    not_far_ahead = Q()
    for account, most in max_ahead:
        not_far_ahead |= Q(account=account, created_at__lt=F("received_at") + most)
    dispatched = Event.objects.filter(
        of_objects(keys_of(shape)),
        not_far_ahead,
        state__in=_ONCE_DONE,
        dispatched_at__isnull=False,
        created_at__gt=EARLIEST,
    )
    return dispatched.order_by().values_list("account", "object_kind", "object_id").annotate(Max("created_at"))
