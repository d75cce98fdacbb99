"""Calling the merchant's receivers: once per item, in order per object, exactly once with their database work.

An item is an event, or a status change that an answer brought. A worker claims a page of objects and loads their
items, with a few statements for the whole page. Then it dispatches each object's items, oldest first, each in a
transaction that locks the object, calls the receivers and marks the item.

A claim lasts ten seconds, and the worker starts no item of a page in the second half of it. When a claim ends, other
workers may take the objects, but not the one in hand: its transaction has locked it. So a slow worker differs from a
dead one. Each claim names the object's next item, and each dispatch names the one after it. If a worker dies, the item
in hand has failed once more, and no other.

If a receiver fails, its transaction is rolled back, and the item is retried later and parked in the end. Later items
of the object wait meanwhile; other objects go on.
"""

from __future__ import annotations

import logging
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.db import DatabaseError, IntegrityError, InternalError, OperationalError, connections, router, transaction
from django.db.models import Exists, F, Max, Min, OuterRef, Q, QuerySet
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from payments_integration import conf, telemetry
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.statements import in_index_order, is_any_in_state, of_account
from payments_integration.db.transactions import WriterPauses, expired, is_transient, locked, repeatable, updated
from payments_integration.models import MIRRORS, Event, EventState, ObjectDispatch, ObjectKey, StatusChange
from payments_integration.projection import MAX_AHEAD, clock_offset, of_objects
from payments_integration.reasons import Reason
from payments_integration.signals import dispatching, event_received, status_changed

logger = logging.getLogger(__name__)

#: Items in the first page. A page that takes little time is followed by one of twice the size, up to BATCH_SIZE.
_FIRST_PAGE = 25
_PAGE_SECONDS = 1.0
#: Added to the version of a row whose personal data is erased, because an erasure does not count as a write.
_ERASED = 2**62
_MAX_TRACEBACK = 20_000
_CLAIM = timedelta(seconds=10)
#: Later items of the object wait for these events. Another worker may be applying a pending one, and a later batch may
#: finish first. One with failed attempts needs an upgrade.
_WAITING = Q(state=EventState.HELD) | Q(state=EventState.PENDING, attempts=0)

Item = Event | StatusChange


class _ReceiverFailed(Exception):
    """A receiver raised while an item was dispatched."""


class _ClaimLost(Exception):
    """Another worker has taken the object since."""


class _WorkChanged(Exception):
    """The object was written since its work was loaded."""


@dataclass(slots=True)
class _Work:
    """The items of a claimed object that can be dispatched, oldest first."""

    row: ObjectDispatch
    items: list[Item] = field(default_factory=list)
    #: The status changes that each event brought.
    changes: dict[str, list[StatusChange]] = field(default_factory=dict)
    #: The columns of the mirror row when the items were loaded, and its version; none if there is no row.
    values: Sequence[Any] = ()
    version: int | None = None
    #: ``created_at`` of the newest event that was dispatched before: earlier ones are stale.
    dispatched_to: datetime | None = None
    #: An event dated further ahead of its receipt makes no other event stale: all later ones would be. It includes the
    #: difference of the clocks, because ``received_at`` is ours.
    max_ahead: timedelta = MAX_AHEAD


@dataclass(slots=True)
class _Page:
    """Objects that a worker has claimed together."""

    using: str
    claim: str = field(default_factory=lambda: uuid.uuid4().hex)
    objects: list[_Work] = field(default_factory=list)
    #: Whether these are all items of the objects.
    is_whole: bool = True
    #: The monotonic time after which no item is started.
    until: float = field(default_factory=lambda: time.monotonic() + _CLAIM.total_seconds() / 2)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


def dispatch(account: str | None = None, *, deadline: float | None = None) -> int:
    """Call receivers for all undispatched items; returns how many items were dispatched.

    Safe to run at any time, in several processes at once. ``deadline``: a ``time.monotonic()`` after which no further
    item is started.
    """
    using = router.db_for_write(Event)
    if not is_any_in_state(EventState.APPLIED, Event, StatusChange, using=using):
        return 0
    pauses = WriterPauses(using)
    dispatched, again = 0, True
    while again:
        again = False
        for page in _pages(account, using, deadline):
            count, is_done = _dispatch_page(page, deadline, pauses)
            dispatched += count
            again = again or (count > 0 and not is_done)
    return dispatched


def key_of(item: Item) -> ObjectKey:
    """The object that an item belongs to."""
    return (item.account, item.object_kind, item.object_id)


def _pages(account: str | None, using: str, deadline: float | None) -> Iterator[_Page]:
    """Claims page after page, oldest items first. The next one is claimed when the caller is done with the last."""
    size, most = _FIRST_PAGE, conf.current().BATCH_SIZE
    for model, when in ((Event, "created_at"), (StatusChange, "at")):
        place: tuple[Any, Any] | None = None
        while deadline is None or time.monotonic() < deadline:
            size = min(size, most)
            started = time.monotonic()
            found = _undispatched(model, when, account, place)[:size]
            with transaction.atomic(using=using), in_index_order(using):
                rows = list(found.values_list("account", "object_kind", "object_id", when, "pk"))
            page = _claim({(row[0], row[1], row[2]) for row in rows}, using)
            if page.objects:
                yield page
            if len(rows) < size:
                break
            place = (rows[-1][3], rows[-1][4])
            taken = time.monotonic() - started
            size = size * 2 if taken < _PAGE_SECONDS else max(1, size // 2)


def _undispatched(model: Any, when: str, account: str | None, place: tuple[Any, Any] | None) -> QuerySet[Any]:
    """Undispatched items after a place in their order, without those that must wait."""
    of_it = {name: OuterRef(name) for name in ("account", "object_kind", "object_id")}
    waiting = ObjectDispatch.objects.filter(~_is_free(timezone.now()), **of_it)
    older = Event.objects.filter(_WAITING, **of_it, created_at__lt=OuterRef(when))
    items: QuerySet[Any] = model._default_manager.filter(~Exists(waiting), ~Exists(older))
    items = of_account(items.filter(state=EventState.APPLIED), account)
    if place is not None:
        # A range first: PostgreSQL would read all that is left twice for two alternatives, and sort it.
        items = items.filter(Q(**{f"{when}__gt": place[0]}) | Q(pk__gt=place[1]), **{f"{when}__gte": place[0]})
    return items.order_by(when, "pk")


def _is_free(now: datetime) -> Q:
    """Objects that no worker has and that wait for no retry. A claim lasts less than the longest retry."""
    return Q(next_attempt_at=None) | expired("next_attempt_at", timedelta(seconds=conf.LONGEST_RETRY), now=now)


def _claim(keys: set[ObjectKey], using: str) -> _Page:
    """Claim those of the objects that have work and that no other worker has, in one transaction."""
    if not keys:
        return _Page(using)
    # Lock rows are found by primary key: MariaDB also locks the gaps beside rows that it finds by another index.
    # They are committed before they are locked: other workers would wait for uncommitted ones.
    known = _lock_rows(keys)
    if len(known) < len(keys):
        known = repeatable(lambda: _with_new_lock_rows(keys), using=using, durable=True)

    def claim() -> tuple[_Page, list[telemetry.DispatchFailed]]:
        page, now = _Page(using), timezone.now()
        free = ObjectDispatch.objects.filter(_is_free(now), pk__in=known)
        rows = list(locked(free, skip_locked=True).order_by("pk"))
        culprits = _in_hand([row for row in rows if row.claim])
        deaths = [death for row in culprits if (death := _count_death(row)) is not None]
        page.objects, page.is_whole = _load([row for row in rows if row not in culprits], using)
        for work in page.objects:
            work.row.claim, work.row.in_hand = page.claim, _name(work.items[0])
            work.row.next_attempt_at = now + _CLAIM
        statements.update_many([work.row for work in page.objects])
        return page, deaths

    page, deaths = repeatable(claim, using=using, durable=True)
    for death in deaths:
        telemetry.happened(death)
    return page


def _lock_rows(keys: Iterable[ObjectKey]) -> list[int]:
    return list(ObjectDispatch.objects.filter(of_objects(keys)).values_list("pk", flat=True))


def _with_new_lock_rows(keys: set[ObjectKey]) -> list[int]:
    known = {row.key for row in ObjectDispatch.objects.filter(of_objects(keys))}
    statements.insert_many(
        [
            ObjectDispatch(account=account, object_kind=kind, object_id=object_id)
            for account, kind, object_id in sorted(keys - known)
        ]
    )
    return _lock_rows(keys)


def _in_hand(abandoned: list[ObjectDispatch]) -> list[ObjectDispatch]:
    """Those of the objects with an expired claim whose receivers ran when their worker died.

    A worker takes its objects in the order of their keys and clears the claim of each when it is done, so it was at
    the first. If that one is not among them, it is locked, and its worker is only slow.
    """
    if not abandoned:
        return []
    claims = ObjectDispatch.objects.filter(claim__in={row.claim for row in abandoned})
    first = set(claims.order_by().values("claim").annotate(first=Min("pk")).values_list("first", flat=True))
    return [row for row in abandoned if row.pk in first]


def _count_death(row: ObjectDispatch) -> telemetry.DispatchFailed | None:
    """Count a failed attempt of the item in hand, and release all that its worker had claimed. Call in a transaction.

    Returns what observers are told after the commit; None if the item is not to be dispatched any more.
    """
    model, pk = (
        (StatusChange, row.in_hand[len(_CHANGE) :]) if row.in_hand.startswith(_CHANGE) else (Event, row.in_hand)
    )
    item: Item | None = model._default_manager.filter(pk=pk, state=EventState.APPLIED).first()
    wait = (
        None if item is None else _count_failure(item, RuntimeError("the process died while a receiver ran for this"))
    )
    # Otherwise the next object of the claim would seem to be the one in hand.
    ObjectDispatch.objects.filter(claim=row.claim).update(claim="", in_hand="", next_attempt_at=None)
    ObjectDispatch.objects.filter(pk=row.pk).update(next_attempt_at=wait)
    return None if item is None else telemetry.DispatchFailed(item, is_parked=wait is None)


_CHANGE = "change "


def _name(item: Item) -> str:
    """How a claim names an item."""
    return item.pk if isinstance(item, Event) else f"{_CHANGE}{item.pk}"


def _load(rows: list[ObjectDispatch], using: str) -> tuple[list[_Work], bool]:
    """The objects that have items to dispatch, and whether these are all of their items."""
    works = {row.key: _Work(row) for row in rows}
    if not works:
        return [], True
    # Mirror rows and waiting events come first: what changes after that is noticed when the item is dispatched.
    _load_mirrors(works, using)
    of_them, most = of_objects(works), conf.current().BATCH_SIZE
    waiting = Event.objects.filter(of_them, _WAITING).order_by().values_list("account", "object_kind", "object_id")
    blocked_from = {(account, kind, pk): at for account, kind, pk, at in waiting.annotate(Min("created_at"))}
    events = list(_applied(Event, of_them).order_by("created_at", "pk")[:most])
    answered = list(_applied(StatusChange, of_them).order_by("at", "pk")[:most])
    is_whole = max(len(events), len(answered)) < most
    # An event goes before a change of the same time.
    items: list[Item] = sorted([*events, *answered], key=_at)
    for item in items:
        work, first_blocked = works[key_of(item)], blocked_from.get(key_of(item))
        if not is_whole and _at(item) > min(_at(found[-1]) for found in (events, answered) if len(found) == most):
            break  # earlier items than this one are not loaded
        if first_blocked is None or _at(item) < first_blocked:
            work.items.append(item)
            # Only a provider that is ahead of us adds to it. Our clock may have been set forward since the receipt:
            # then every event of before would count as ahead.
            offset: float = max(item.clock_offset or 0.0, 0.0)  # type: ignore[union-attr]
            work.max_ahead = MAX_AHEAD + timedelta(seconds=offset)
            work.changes[str(item.pk)] = [item] if isinstance(item, StatusChange) else []
    by_id = {event.pk: event for event in events}
    for change in StatusChange.objects.filter(event__in=by_id).order_by("pk"):
        change.event = by_id[str(change.event_id)]
        works[key_of(change.event)].changes.setdefault(change.event.pk, []).append(change)
    loaded = [work for work in works.values() if work.items]
    _load_staleness(loaded)
    return loaded, is_whole


def _applied(model: Any, of_them: Q) -> QuerySet[Any]:
    """Items to dispatch, each with ``clock_offset``: the provider's clock minus ours in seconds."""
    items: QuerySet[Any] = model._default_manager.filter(of_them, state=EventState.APPLIED)
    with_offset: QuerySet[Any] = items.annotate(clock_offset=clock_offset(OuterRef("account")))
    return with_offset


def _load_mirrors(works: dict[ObjectKey, _Work], using: str) -> None:
    for kind, model in MIRRORS.items():
        ids = [key[2] for key in works if key[1] == kind]
        column, names = _key_column(kind), statements.columns(model)
        account_at, key_at, version_at, erased_at = map(names.index, ("account", column, "version", "erased_at"))
        for values in statements.rows_in(model, column, ids, using) if ids else ():
            work = works.get((values[account_at], kind, values[key_at]))
            if work is not None:
                work.values, work.version = values, values[version_at] + (_ERASED if values[erased_at] else 0)


def _load_staleness(works: list[_Work]) -> None:
    if not works:
        return
    by_key = {work.row.key: work for work in works}
    earliest = min(_at(work.items[0]) for work in works)
    not_far_ahead = Q()
    for account, max_ahead in {work.row.account: work.max_ahead for work in works}.items():
        not_far_ahead |= Q(account=account, created_at__lt=F("received_at") + max_ahead)
    dispatched = Event.objects.filter(
        of_objects(by_key),
        not_far_ahead,
        state=EventState.DONE,
        dispatched_at__isnull=False,
        created_at__gt=earliest,
    )
    newest = dispatched.order_by().values_list("account", "object_kind", "object_id").annotate(Max("created_at"))
    for account, kind, object_id, created_at in newest:
        by_key[account, kind, object_id].dispatched_to = created_at


def _at(item: Item) -> datetime:
    return item.created_at if isinstance(item, Event) else item.at


def _dispatch_page(page: _Page, deadline: float | None, pauses: WriterPauses) -> tuple[int, bool]:
    """Dispatch the items of a page; returns how many, and whether all of them had their turn."""
    dispatched, is_done = 0, page.is_whole
    for work in page.objects:
        while work.items:
            if page.is_over or (deadline is not None and time.monotonic() >= deadline):
                updated(_claimed(page), claim="", in_hand="", next_attempt_at=None)
                return dispatched, False
            try:
                _dispatch_next(page, work)
            except _ClaimLost:
                is_done = False
                break
            except _WorkChanged:
                if not _load_again(page, work):
                    break
                continue
            except _ReceiverFailed as failure:
                _record_failure(page, work, failure.__cause__ or failure)
                break
            except IntegrityError as error:  # a deferred constraint of the merchant's tables, checked by the commit
                _record_failure(page, work, error)
                break
            except OperationalError as error:
                if not is_transient(error):
                    raise
                extra = _ids(work.items[0])
                logger.info("Dispatch of %s is postponed: %s", work.row, type(error).__name__, extra=extra)
                _release(page, work, _first_wait())
                break
            dispatched += 1
            work.items.pop(0)
            pauses.pause_if_due()
    return dispatched, is_done


def _dispatch_next(page: _Page, work: _Work) -> None:
    """Dispatch the object's next item and mark it, in one transaction. The last one releases the claim in that commit:
    a crash after it is not a failed attempt.
    """
    item = work.items[0]

    def dispatch_next() -> None:
        instance = _lock(page, work)
        # A receiver that catches a database error may have lost the transaction: a deadlock rolls back all of
        # MariaDB's, and only later writes would be committed. PostgreSQL refuses every statement after an error.
        connection = connections[page.using]
        savepoint = None if connection.vendor == "postgresql" else connection.savepoint()
        try:
            with telemetry.during(telemetry.Handling(item)):
                _send(item, work.changes[str(item.pk)], instance, is_stale=_is_stale(item, work))
        except Exception as error:
            raise _ReceiverFailed(str(item.pk)) from error
        try:
            if savepoint:
                connection.savepoint_commit(savepoint)
        except DatabaseError as error:
            raise _swallowed(error, item) from error
        try:
            if page.is_over:
                _release_others(page, work)
            _mark_dispatched(item, page.using, has_changes=bool(work.changes[str(item.pk)]))
        except (InternalError, TransactionManagementError) as error:
            raise _swallowed(error, item) from error

    repeatable(dispatch_next, using=page.using, durable=True, lost_races=False)
    telemetry.happened(telemetry.Dispatched(item))
    if isinstance(item, Event) and item.created_at < item.received_at + work.max_ahead:
        work.dispatched_to = max(work.dispatched_to or item.created_at, item.created_at)


def _swallowed(error: Exception, item: Item) -> _ReceiverFailed:
    error.add_note("A receiver has swallowed a database error that cost the whole transaction.")
    return _ReceiverFailed(str(item.pk))


def _is_stale(item: Item, work: _Work) -> bool:
    return work.dispatched_to is not None and work.dispatched_to > _at(item)


def _lock(page: _Page, work: _Work) -> Any | None:
    """Lock the object, name the item after the next one, and return the mirror row as it is now.

    Raises _ClaimLost, or _WorkChanged if the row was written or an earlier item came since the load. One statement on
    PostgreSQL, two elsewhere. On SQLite the write makes the transaction the only writer.
    """
    item, following = work.items[0], work.items[1] if len(work.items) > 1 else None
    model, using = MIRRORS.get(item.object_kind), page.using
    lock = statements.prepared_values(
        ObjectDispatch,
        using,
        claim=page.claim if following else "",
        in_hand=_name(following) if following else "",
        next_attempt_at=timezone.now() + _CLAIM if following else None,
    )
    lock += [work.row.pk, page.claim]
    # An event goes before a change of the same time.
    before = item.created_at if isinstance(item, Event) else item.at + timedelta(microseconds=1)
    check = [*key_of(item), *statements.prepared_values(Event, using, created_at=before)]
    if model is not None:
        check += [item.account, item.object_id]
    connection = connections[using]
    lock_sql, check_sql = _lock_sql(item.object_kind if model is not None else "", using)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"{lock_sql} RETURNING {check_sql}", lock + check)
        else:
            cursor.execute(lock_sql, lock)
            if cursor.rowcount:
                cursor.execute(f"SELECT {check_sql}", check)
        found = cursor.fetchone() if cursor.rowcount else None
    if found is None:
        raise _ClaimLost
    is_late, version = found
    if is_late or version != work.version:
        raise _WorkChanged
    return statements.from_values(model, work.values, using) if model is not None and work.values else None


@cache
def _lock_sql(kind: str, using: str) -> tuple[str, str]:
    """The UPDATE, and the columns that show whether an earlier event waits and which version the mirror row has."""
    quote, model = connections[using].ops.quote_name, MIRRORS.get(kind)
    version = "NULL"
    if model is not None:
        mirror, key = quote(model._meta.db_table), quote(_key_column(kind))
        state = f"m.version + CASE WHEN m.erased_at IS NULL THEN 0 ELSE {_ERASED} END"
        version = f"(SELECT {state} FROM {mirror} m WHERE m.account = %s AND m.{key} = %s)"  # noqa: S608  (names of ours)
    check = (
        f"EXISTS (SELECT 1 FROM {quote(Event._meta.db_table)} e"  # noqa: S608  (names of ours)
        " WHERE e.account = %s AND e.object_kind = %s AND e.object_id = %s"
        " AND e.state IN ('applied', 'held', 'pending')"
        f" AND (e.state <> 'pending' OR e.attempts = 0) AND e.created_at < %s), {version}"
    )
    table = quote(ObjectDispatch._meta.db_table)
    lock = f"UPDATE {table} SET claim = %s, in_hand = %s, next_attempt_at = %s WHERE id = %s AND claim = %s"  # noqa: S608
    return lock, check


def _key_column(kind: str) -> str:
    return "currency" if kind == "balance" else "id"


def _send(item: Item, changes: list[StatusChange], instance: Any | None, *, is_stale: bool) -> None:
    sender: type[Any] = MIRRORS.get(item.object_kind, Event)
    event = item if isinstance(item, Event) else None
    with dispatching(item.created_at if isinstance(item, Event) else item.at):
        if event is not None:
            event_received.send(
                sender=sender,
                event=event,
                instance=instance,
                previous_status=event.previous_status,
                is_stale=is_stale,
            )
        for change in changes if instance is not None else ():
            status_changed.send(
                sender=sender,
                instance=instance,
                previous_status=change.previous_status,
                status=change.status,
                event=event,
                status_change=change,
                is_stale=is_stale,
            )


def _mark_dispatched(item: Item, using: str, *, has_changes: bool) -> None:
    """Mark the item: one statement on PostgreSQL, elsewhere one more if an event has brought a change of status."""
    now = timezone.now()
    connection = connections[using]
    if isinstance(item, Event) and has_changes and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_mark_both_sql(using), [now, item.pk, now, item.pk])
        return
    if isinstance(item, Event) and has_changes:
        statements.update_row(StatusChange, using, {"event": item.pk}, dispatched_at=now)
    statements.update_row(type(item), using, {"pk": item.pk}, state=EventState.DONE, dispatched_at=now, error="")


@cache
def _mark_both_sql(using: str) -> str:
    quote = connections[using].ops.quote_name
    change, event = quote(StatusChange._meta.db_table), quote(Event._meta.db_table)
    return (
        f"WITH changes AS (UPDATE {change} SET dispatched_at = %s WHERE event_id = %s)"  # noqa: S608  (names of ours)
        f" UPDATE {event} SET state = 'done', dispatched_at = %s, error = '' WHERE id = %s"
    )


def _load_again(page: _Page, work: _Work) -> bool:
    """Load the object's items again; returns whether there are any, under the same claim."""
    found, is_whole = _load([work.row], page.using)
    page.is_whole = page.is_whole and is_whole
    if not found:
        _release(page, work, None)
        return False
    [fresh] = found
    work.items, work.changes, work.dispatched_to = fresh.items, fresh.changes, fresh.dispatched_to
    work.values, work.version, work.max_ahead = fresh.values, fresh.version, fresh.max_ahead
    return bool(updated(_claimed(page).filter(pk=work.row.pk), in_hand=_name(work.items[0])))


def _claimed(page: _Page) -> QuerySet[ObjectDispatch]:
    return ObjectDispatch.objects.using(page.using).filter(claim=page.claim)


def _release(page: _Page, work: _Work, next_attempt_at: datetime | None) -> bool:
    """Release one object; False if another worker has taken it."""
    mine = _claimed(page).filter(pk=work.row.pk)
    return bool(updated(mine, claim="", in_hand="", next_attempt_at=next_attempt_at))


def _release_others(page: _Page, work: _Work) -> None:
    """Release the rest of a page in the transaction of a slow item.

    After its commit, another worker could take the next object for the one that this worker had in hand when it died.
    """
    try:
        with transaction.atomic(using=page.using):
            _claimed(page).exclude(pk=work.row.pk).update(claim="", in_hand="", next_attempt_at=None)
    except OperationalError as error:
        # At REPEATABLE READ: another worker has taken some of them since.
        if not is_transient(error):
            raise


def _record_failure(page: _Page, work: _Work, error: BaseException) -> None:
    """Count the failure and release the object, after the rollback."""
    item = work.items[0]
    logger.error("A receiver failed for %s", item.pk, exc_info=error, extra=_ids(item))

    def record() -> datetime | None:
        wait = _count_failure(item, error)
        if not _release(page, work, wait):
            raise _ClaimLost  # another worker has counted it
        if page.is_over:
            _release_others(page, work)
        return wait

    with suppress(_ClaimLost):
        next_attempt = repeatable(record, using=page.using, durable=True)
        telemetry.happened(telemetry.DispatchFailed(item, is_parked=next_attempt is None))


def _count_failure(item: Item, error: BaseException) -> datetime | None:
    """Record a failed attempt; returns when to retry, None if the item is parked. Call in a transaction."""
    waits = conf.current().RECEIVER_RETRIES
    attempts = item.attempts + 1
    is_parked = attempts > len(waits)
    text = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    type(item)._default_manager.filter(pk=item.pk, state=EventState.APPLIED).update(
        attempts=attempts,
        error=text.replace("\x00", "\ufffd"),
        state=EventState.PARKED if is_parked else EventState.APPLIED,
    )
    if not is_parked:
        return timezone.now() + timedelta(seconds=waits[attempts - 1])
    call_attention(
        type(item),
        Reason.DISPATCH_PARKED,
        account=item.account,
        message=f"Receivers keep failing for {item}; it is parked after {attempts} attempts. Fix them and replay it.",
        instance=item,
    )
    return None


def _ids(item: Item) -> dict[str, str]:
    """For log records."""
    extra = {"account": item.account}
    if isinstance(item, Event):
        extra["event_id"] = item.pk
    return extra


def _first_wait() -> datetime:
    waits = conf.current().RECEIVER_RETRIES
    return timezone.now() + timedelta(seconds=waits[0] if waits else 10)
