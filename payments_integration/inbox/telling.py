"""Telling the merchant's code: once per event, in order per object, exactly with its database work.

Per object, under a lock of its own: the earliest untold item is told in a transaction that also marks it. A failing
receiver rolls its transaction back; the item is tried again after a while and in the end parked. Later items of the
object wait meanwhile; other objects go on. A process that dies over a receiver counts as a failure of the item.
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

from payments_integration import conf, permissions
from payments_integration.inbox.receiving import read_again
from payments_integration.models import MIRRORS, Event, EventState, StatusChange, Telling
from payments_integration.reasons import Reason
from payments_integration.signals import call_attention, event_received, status_changed
from payments_integration.statements import is_any_in_state, of_account
from payments_integration.telling import telling
from payments_integration.transactions import Turns, claim, hold, is_transient, repeatable, updated

logger = logging.getLogger(__name__)

#: Objects looked up at a time.
_PAGE = 500
_FAR_AHEAD = timedelta(hours=1)
_MAX_TRACEBACK = 20_000
#: Whoever tells an object says so for this long at a time; nobody else begins before.
_CLAIM = timedelta(seconds=10)
_UNTOLD = (EventState.APPLIED, EventState.HELD)
#: Stored before, and another process is at it: of two batches the later one may be done first. Not what only an
#: upgrade can apply.
_TO_BE_APPLIED = Q(state=EventState.PENDING, attempts=0)

Item = Event | StatusChange
ObjectKey = tuple[str, str, str]
Lock = QuerySet[Telling]


class _ReceiverFailed(Exception):
    """A receiver raised while an item was told."""

    def __init__(self, item: Item, error: Exception) -> None:
        super().__init__(str(item.pk))
        self.item = item
        self.error = error


def tell(account: str | None = None, *, deadline: float | None = None) -> int:
    """Tell receivers whatever is untold; returns how many items were told.

    Safe to run anywhere at any time, also beside itself. ``deadline``: a ``time.monotonic()`` after which nothing
    further is begun.
    """
    using = router.db_for_write(Event)
    if not is_any_in_state(EventState.APPLIED, Event, StatusChange, using=using):
        return 0
    told, turns, in_company = 0, Turns(using), False
    for key in _objects_with_work(account):
        if deadline is not None and time.monotonic() >= deadline:
            break
        # Another process tells the same list: one look at what it has told meanwhile is cheaper than to lock that.
        if in_company and not _is_anything_left(key):
            continue
        count = _tell_object(key, deadline, turns)
        told += count
        in_company = in_company or not count
    return told


def release(account: str, before: datetime | None = None) -> int:
    """Let what reconciliation brought be told: everything older is in now. Returns how many events.

    ``before``: where the list that was read ends; None: it had no end. What a pass that failed has brought of a later
    time stays: older pages of it are missing.
    """
    complete = of_account(Event.objects.filter(state=EventState.HELD), account)
    if before is not None:
        complete = complete.filter(created_at__lt=before)
    return updated(complete, state=EventState.APPLIED)


def replay(item: Item, actor: object = None) -> None:
    """Have a parked (or told) event or change told once more; it is stale if a newer one was told since.

    A quarantined body is read again instead, as after an upgrade. ``actor``: a user or text; raises PermissionDenied
    for a member of staff without ``replay_event``.
    """
    permissions.require_of_staff(actor, "replay_event", item)
    if isinstance(item, Event) and item.state == EventState.QUARANTINED:
        read_again(item)
        return
    if not item.object_kind:
        return  # it was never understood, and its body is erased
    over = type(item)._default_manager.filter(pk=item.pk, state__in=(EventState.PARKED, EventState.DONE))
    updated(over, state=EventState.APPLIED, attempts=0, error="", told_at=None)
    updated(Telling.objects.filter(_of(_key(item)), running=False), next_attempt_at=None)


def _objects_with_work(account: str | None) -> Iterator[ObjectKey]:
    """The objects that have something untold and need not wait, oldest first."""
    waiting = Telling.objects.filter(
        account=OuterRef("account"),
        object_kind=OuterRef("object_kind"),
        object_id=OuterRef("object_id"),
        next_attempt_at__gt=timezone.now(),
    )
    for model, when in ((Event, "created_at"), (StatusChange, "at")):
        older = Event.objects.filter(
            _TO_BE_APPLIED,
            account=OuterRef("account"),
            object_kind=OuterRef("object_kind"),
            object_id=OuterRef("object_id"),
            created_at__lt=OuterRef(when),
        )
        untold: QuerySet[Any] = model._default_manager.filter(~Exists(waiting), ~Exists(older))
        untold = of_account(untold.filter(state=EventState.APPLIED), account)
        last: tuple[Any, Any] | None = None
        while True:
            page = untold
            if last is not None:
                page = page.filter(Q(**{f"{when}__gt": last[0]}) | Q(**{when: last[0], "pk__gt": last[1]}))
            rows = list(
                page.order_by(when, "pk").values_list("account", "object_kind", "object_id", when, "pk")[:_PAGE]
            )
            yield from dict.fromkeys((row[0], row[1], row[2]) for row in rows)
            if len(rows) < _PAGE:
                break
            last = (rows[-1][3], rows[-1][4])


def _tell_object(key: ObjectKey, deadline: float | None, turns: Turns) -> int:
    """Tell an object's items one after the other; returns how many, 0 also where somebody else does."""
    lock = _begin(key)
    if lock is None:
        return 0
    told, wait = 0, None
    more: bool | None = True
    try:
        while more and (deadline is None or time.monotonic() < deadline):
            more = _tell_next(key)
            told += more is not None
            turns.give()
    except _ReceiverFailed as failure:
        wait = _record_failure(failure.item, failure.error)
    except Exception as error:
        if not is_transient(error):
            raise
        logger.info("Telling %s is put off: %s", key[2], type(error).__name__)
        wait = _first_wait()
    if more:
        _end(lock, wait)
        turns.give()
    return told


def _begin(key: ObjectKey) -> Lock | None:
    """Say, and commit, that the object is being told now; None where it must wait or somebody else is at it.

    Who said so before and let the time pass without holding the lock has died: that counts as a failed attempt.
    """
    _ensure_lock(key)
    now, lock = timezone.now(), _lock_of(key)

    def begin() -> Telling | None:
        held = claim(lock).first()
        if held is None or (held.next_attempt_at is not None and held.next_attempt_at > now):
            return None
        _keep(lock)
        return held

    before = repeatable(begin, using=router.db_for_write(Telling), durable=True)
    if before is None:
        return None
    if before.running and (item := _earliest(key)) is not None and item.state == EventState.APPLIED:
        _end(lock, _record_failure(item, RuntimeError("the process died while this was told")))
        return None
    return lock


def _ensure_lock(key: ObjectKey) -> None:
    """Make the lock's row, committed before anybody holds it: an uncommitted one would have the others wait."""
    if Telling.objects.filter(_of(key)).exists():
        return
    account, kind, object_id = key
    try:
        with transaction.atomic(using=router.db_for_write(Telling), durable=True):
            Telling.objects.create(account=account, object_kind=kind, object_id=object_id)
    except IntegrityError:
        pass  # another process was first


def _tell_next(key: ObjectKey) -> bool | None:
    """Tell the object's earliest untold item, in one transaction with its mark; returns whether there is another.

    None: there was nothing to tell. With the last one the lock is given back in the same commit: who dies after
    that has died over nothing, and the next event of the object must not count it as a failure.
    """
    using, lock = router.db_for_write(Event), _lock_of(key)

    def tell_next() -> bool | None:
        # Held while receivers run. A first write also makes this the only writer where there are no row locks
        # (SQLite), whatever mode the transaction began in.
        # Waited for: others may be looking whether it is free, and our mark must not stay behind for that.
        if hold(lock).first() is None:
            return None
        _keep(lock)
        item = _earliest(key)
        if item is None or item.state != EventState.APPLIED:
            _end(lock, None)
            return None
        try:
            _send_whole(item, using)
        except Exception as error:
            raise _ReceiverFailed(item, error) from error
        _mark_told(item)
        if not _is_anything_left(key):
            _end(lock, None)
            return False
        _keep(lock)  # the receivers may have taken longer than the claim
        return True

    return repeatable(tell_next, using=using, durable=True, lost_races=False)


def _send_whole(item: Item, using: str) -> None:
    """Call the receivers, and make sure that their database work still stands afterwards.

    One that swallows a database error may have lost it all: a deadlock takes MariaDB's whole transaction back, and
    what is written after that would be committed without what was written before.
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
    """The object's lock by its primary key, to be looked up before a transaction.

    Under REPEATABLE READ MariaDB locks also the gap beside what it finds by another index: while a receiver runs, no
    neighbour could have its lock made. And a read within the transaction, before the lock, would fix what it sees.
    """
    return Telling.objects.filter(pk=Telling.objects.filter(_of(key)).values_list("pk", flat=True).first() or 0)


def _keep(lock: Lock) -> None:
    lock.update(running=True, next_attempt_at=timezone.now() + _CLAIM)


def _end(lock: Lock, next_attempt_at: datetime | None) -> None:
    updated(lock, running=False, next_attempt_at=next_attempt_at)


def _is_anything_left(key: ObjectKey) -> bool:
    return (
        Event.objects.filter(_of(key), state__in=_UNTOLD).exists()
        or StatusChange.objects.filter(_of(key), state=EventState.APPLIED).exists()
    )


def _earliest(key: ObjectKey) -> Item | None:
    """The object's next item; one that is HELD or to be applied is not told yet, and what comes after it waits too."""
    event = Event.objects.filter(_of(key), Q(state__in=_UNTOLD) | _TO_BE_APPLIED).order_by("created_at", "pk").first()
    change = StatusChange.objects.filter(_of(key), state=EventState.APPLIED).order_by("at", "pk").first()
    if event is None or change is None:
        return event or change
    return event if event.created_at <= change.at else change


def _send(item: Item) -> None:
    sender, instance = _instance(item)
    at = item.created_at if isinstance(item, Event) else item.at
    is_stale = Event.objects.filter(
        # A time far ahead of the clock orders nothing, or every event after it would be stale.
        _of(_key(item)),
        created_at__gt=at,
        created_at__lt=F("received_at") + _FAR_AHEAD,
        told_at__isnull=False,
    ).exists()
    with telling():
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


def _mark_told(item: Item) -> None:
    now = timezone.now()
    type(item)._default_manager.filter(pk=item.pk).update(state=EventState.DONE, told_at=now, error="")
    if isinstance(item, Event):
        item.status_changes.update(told_at=now)


def _record_failure(item: Item, error: Exception) -> datetime | None:
    """Note the failure, after the rollback; returns when to try again, None when the item is parked."""
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
        Reason.TELLING_PARKED,
        account=item.account,
        message=f"Receivers keep failing for {item}; it is parked after {attempts} tries; replay it when mended.",
        instance=item,
    )
    return None


def _first_wait() -> datetime:
    waits = conf.current().RECEIVER_RETRIES
    return timezone.now() + timedelta(seconds=waits[0] if waits else 10)


def _key(item: Item) -> ObjectKey:
    return (item.account, item.object_kind, item.object_id)


def _of(key: ObjectKey) -> Q:
    account, kind, object_id = key
    return Q(account=account, object_kind=kind, object_id=object_id)
