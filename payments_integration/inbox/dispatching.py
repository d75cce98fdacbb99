"""Calling the merchant's receivers: once per item, in order per object, exactly once with their database work.

An item is an event, or a status change that an answer brought. A worker claims the object, then dispatches the
object's earliest item in a transaction that also marks it. If a receiver fails, the transaction is rolled back and the
item is retried later, and parked in the end. Later items of the object wait meanwhile; other objects go on. A process
that dies in a receiver counts as a failed attempt of that item.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, IntegrityError, connections, router, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.db.statements import is_any_in_state, of_account
from payments_integration.db.transactions import WriterPauses, is_transient, locked, repeatable, updated
from payments_integration.models import MIRRORS, Event, EventState, ObjectDispatch, ObjectKey, StatusChange
from payments_integration.reasons import Reason
from payments_integration.signals import call_attention, dispatching, event_received, status_changed

logger = logging.getLogger(__name__)

#: Objects read at a time.
_PAGE = 500
_FAR_AHEAD = timedelta(hours=1)
_MAX_TRACEBACK = 20_000
#: A claim on an object lasts so long; it is renewed before and after each item.
_CLAIM = timedelta(seconds=10)
_UNDISPATCHED = (EventState.APPLIED, EventState.HELD)
#: Events that another worker is applying now: a later batch may finish first. Failed attempts need an upgrade.
_TO_BE_APPLIED = Q(state=EventState.PENDING, attempts=0)

Item = Event | StatusChange
Lock = QuerySet[ObjectDispatch]


class _ReceiverFailed(Exception):
    """A receiver raised while an item was dispatched."""

    def __init__(self, item: Item, error: Exception) -> None:
        super().__init__(str(item.pk))
        self.item = item
        self.error = error


def dispatch(account: str | None = None, *, deadline: float | None = None) -> int:
    """Call receivers for all undispatched items; returns how many items were dispatched.

    Safe to run at any time, in several processes at once. ``deadline``: a ``time.monotonic()`` after which no further
    item is started.
    """
    using = router.db_for_write(Event)
    if not is_any_in_state(EventState.APPLIED, Event, StatusChange, using=using):
        return 0
    dispatched, pauses, has_rival = 0, WriterPauses(using), False
    for key in _objects_with_work(account):
        if deadline is not None and time.monotonic() >= deadline:
            break
        # Another process works on the same list: a read is cheaper than a claim on what it has dispatched meanwhile.
        if has_rival and not _is_anything_left(key):
            continue
        count = _dispatch_object(key, deadline, pauses)
        dispatched += count
        has_rival = has_rival or not count
    return dispatched


def key_of(item: Item) -> ObjectKey:
    """The object that an item belongs to."""
    return (item.account, item.object_kind, item.object_id)


def of_object(key: ObjectKey) -> Q:
    """Events, status changes and the claim of one object."""
    account, kind, object_id = key
    return Q(account=account, object_kind=kind, object_id=object_id)


def _objects_with_work(account: str | None) -> Iterator[ObjectKey]:
    """Objects with an undispatched item that need not wait, oldest first."""
    of_it = {name: OuterRef(name) for name in ("account", "object_kind", "object_id")}
    waiting = ObjectDispatch.objects.filter(**of_it, next_attempt_at__gt=timezone.now())
    for model, when in ((Event, "created_at"), (StatusChange, "at")):
        older = Event.objects.filter(_TO_BE_APPLIED, **of_it, created_at__lt=OuterRef(when))
        undispatched: QuerySet[Any] = model._default_manager.filter(~Exists(waiting), ~Exists(older))
        undispatched = of_account(undispatched.filter(state=EventState.APPLIED), account)
        last: tuple[Any, Any] | None = None
        while True:
            page = undispatched
            if last is not None:
                page = page.filter(Q(**{f"{when}__gt": last[0]}) | Q(**{when: last[0], "pk__gt": last[1]}))
            rows = list(
                page.order_by(when, "pk").values_list("account", "object_kind", "object_id", when, "pk")[:_PAGE]
            )
            yield from dict.fromkeys((row[0], row[1], row[2]) for row in rows)
            if len(rows) < _PAGE:
                break
            last = (rows[-1][3], rows[-1][4])


def _dispatch_object(key: ObjectKey, deadline: float | None, pauses: WriterPauses) -> int:
    """Dispatch an object's items one after the other; returns how many, 0 if another worker has the object."""
    lock = _claim(key)
    if lock is None:
        return 0
    dispatched, wait = 0, None
    more: bool | None = True
    try:
        while more and (deadline is None or time.monotonic() < deadline):
            more = _dispatch_next(key)
            dispatched += more is not None
            pauses.pause_if_due()
    except _ReceiverFailed as failure:
        wait = _record_failure(failure.item, failure.error)
    except Exception as error:
        if not is_transient(error):
            raise
        logger.info("Dispatch of %s is postponed: %s", key[2], type(error).__name__)
        wait = _first_wait()
    if more:
        _release(lock, wait)
        pauses.pause_if_due()
    return dispatched


def _claim(key: ObjectKey) -> Lock | None:
    """Claim the object and commit that; None if it must wait or another worker has it.

    A claim that has run out without its row being locked belongs to a process that died: a failed attempt.
    """
    _ensure_lock(key)
    now, lock = timezone.now(), _lock_of(key)

    def claim() -> ObjectDispatch | None:
        before = locked(lock, skip_locked=True).first()
        if before is None or (before.next_attempt_at is not None and before.next_attempt_at > now):
            return None
        _renew(lock)
        return before

    before = repeatable(claim, using=router.db_for_write(ObjectDispatch), durable=True)
    if before is None:
        return None
    if before.running and (item := _earliest(key)) is not None and item.state == EventState.APPLIED:
        _release(lock, _record_failure(item, RuntimeError("the process died while a receiver ran for this")))
        return None
    return lock


def _ensure_lock(key: ObjectKey) -> None:
    """Insert the lock's row and commit it before it is locked: others would wait for an uncommitted row."""
    if ObjectDispatch.objects.filter(of_object(key)).exists():
        return
    account, kind, object_id = key
    try:
        with transaction.atomic(using=router.db_for_write(ObjectDispatch), durable=True):
            ObjectDispatch.objects.create(account=account, object_kind=kind, object_id=object_id)
    except IntegrityError:
        pass  # another process was first


def _dispatch_next(key: ObjectKey) -> bool | None:
    """Dispatch the object's earliest item and mark it, in one transaction; returns whether there is another.

    None: there was nothing to dispatch. The claim is released in the same commit as the last item, so a crash after
    it does not count as a failed attempt of the next event.
    """
    using, lock = router.db_for_write(Event), _lock_of(key)

    def dispatch_next() -> bool | None:
        # Locked while receivers run. On SQLite the write that follows makes this the only writer.
        # Waits for the lock: another worker may be checking it, and the item must still be marked.
        if locked(lock).first() is None:
            return None
        _renew(lock)
        item = _earliest(key)
        if item is None or item.state != EventState.APPLIED:
            _release(lock, None)
            return None
        try:
            _send_whole(item, using)
        except Exception as error:
            raise _ReceiverFailed(item, error) from error
        _mark_dispatched(item)
        if not _is_anything_left(key):
            _release(lock, None)
            return False
        _renew(lock)  # the receivers may have taken longer than the claim
        return True

    return repeatable(dispatch_next, using=using, durable=True, lost_races=False)


def _send_whole(item: Item, using: str) -> None:
    """Call the receivers, and check that their transaction still exists afterwards.

    A receiver that catches a database error may have lost it: a deadlock rolls back MariaDB's whole transaction, and
    only what is written after that would be committed.
    """
    connection = connections[using]
    savepoint = connection.savepoint() or ""  # a database without savepoints ignores both calls
    _send(item)
    try:
        connection.savepoint_commit(savepoint)
    except DatabaseError as error:
        error.add_note("A receiver has swallowed a database error that cost the whole transaction.")
        raise


def _lock_of(key: ObjectKey) -> Lock:
    """The object's lock by its primary key. Call before the transaction.

    Under REPEATABLE READ, MariaDB locks also the gap beside a row that it finds by another index: the lock of a
    neighbouring object could not be inserted while a receiver runs. And a read in the transaction before the lock
    would fix its snapshot too early.
    """
    return ObjectDispatch.objects.filter(
        pk=ObjectDispatch.objects.filter(of_object(key)).values_list("pk", flat=True).first() or 0
    )


def _renew(lock: Lock) -> None:
    lock.update(running=True, next_attempt_at=timezone.now() + _CLAIM)


def _release(lock: Lock, next_attempt_at: datetime | None) -> None:
    updated(lock, running=False, next_attempt_at=next_attempt_at)


def _is_anything_left(key: ObjectKey) -> bool:
    return (
        Event.objects.filter(of_object(key), state__in=_UNDISPATCHED).exists()
        or StatusChange.objects.filter(of_object(key), state=EventState.APPLIED).exists()
    )


def _earliest(key: ObjectKey) -> Item | None:
    """The object's next item. One that is HELD or not applied yet is not dispatched, and later items wait for it."""
    event = (
        Event.objects.filter(of_object(key), Q(state__in=_UNDISPATCHED) | _TO_BE_APPLIED)
        .order_by("created_at", "pk")
        .first()
    )
    change = StatusChange.objects.filter(of_object(key), state=EventState.APPLIED).order_by("at", "pk").first()
    if event is None or change is None:
        return event or change
    return event if event.created_at <= change.at else change


def _send(item: Item) -> None:
    sender, instance = _instance(item)
    at = item.created_at if isinstance(item, Event) else item.at
    is_stale = Event.objects.filter(
        # A time far ahead of the clock is ignored: all later events would be stale.
        of_object(key_of(item)),
        created_at__gt=at,
        created_at__lt=F("received_at") + _FAR_AHEAD,
        dispatched_at__isnull=False,
    ).exists()
    with dispatching():
        if isinstance(item, StatusChange):
            _send_change(sender, instance, item, None, is_stale)
            return
        event_received.send(
            sender=sender,
            event=item,
            instance=instance,
            previous_status=item.previous_status,
            is_stale=is_stale,
        )
        for change in item.status_changes.order_by("pk") if instance is not None else ():
            _send_change(sender, instance, change, item, is_stale)


def _send_change(sender: type[Any], instance: Any, change: StatusChange, event: Event | None, is_stale: bool) -> None:
    status_changed.send(
        sender=sender,
        instance=instance,
        previous_status=change.previous_status,
        status=change.status,
        event=event,
        status_change=change,
        is_stale=is_stale,
    )


def _instance(item: Item) -> tuple[type[Any], Any | None]:
    model = MIRRORS.get(item.object_kind)
    if model is None:
        return Event, None
    column = "currency" if item.object_kind == "balance" else "pk"
    return model, model._default_manager.filter(account=item.account, **{column: item.object_id}).first()


def _mark_dispatched(item: Item) -> None:
    now = timezone.now()
    type(item)._default_manager.filter(pk=item.pk).update(state=EventState.DONE, dispatched_at=now, error="")
    if isinstance(item, Event):
        item.status_changes.update(dispatched_at=now)


def _record_failure(item: Item, error: Exception) -> datetime | None:
    """Record the failure after the rollback; returns when to retry, None if the item is parked."""
    logger.error("A receiver failed for %s", item.pk, exc_info=error)
    waits = conf.current().RECEIVER_RETRIES
    attempts = item.attempts + 1
    parked = attempts > len(waits)
    text = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    updated(
        type(item)._default_manager.filter(pk=item.pk, state=EventState.APPLIED),
        attempts=attempts,
        error=text.replace("\x00", "\ufffd"),
        state=EventState.PARKED if parked else EventState.APPLIED,
    )
    if not parked:
        return timezone.now() + timedelta(seconds=waits[attempts - 1])
    call_attention(
        type(item),
        Reason.DISPATCH_PARKED,
        account=item.account,
        message=f"Receivers keep failing for {item}; it is parked after {attempts} attempts. Fix them and replay it.",
        instance=item,
    )
    return None


def _first_wait() -> datetime:
    waits = conf.current().RECEIVER_RETRIES
    return timezone.now() + timedelta(seconds=waits[0] if waits else 10)
