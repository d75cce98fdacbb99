"""Telling the merchant's code: once per event, in order per object, exactly with its database work.

Per object, under a lock of its own: the earliest untold item is told in a transaction that also marks it. A failing
receiver rolls its transaction back; the item is tried again after a while and in the end parked. Later items of the
object wait meanwhile; other objects go on.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, connections, router, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from payments_integration import conf
from payments_integration.models import MIRRORS, Event, EventState, StatusChange, Telling
from payments_integration.signals import call_attention, event_received, status_changed
from payments_integration.telling import telling
from payments_integration.transactions import claim, is_transient

logger = logging.getLogger(__name__)

#: Objects looked up at a time.
_PAGE = 500
_FAR_AHEAD = timedelta(hours=1)
_MAX_TRACEBACK = 20_000

Item = Event | StatusChange
ObjectKey = tuple[str, str, str]


def tell(account: str | None = None, *, deadline: float | None = None) -> int:
    """Tell receivers whatever is untold; returns how many items were told.

    Safe to run anywhere at any time, also beside itself. ``deadline``: a ``time.monotonic()`` after which nothing
    further is begun.
    """
    told = 0
    for key in _objects_with_work(account):
        while deadline is None or time.monotonic() < deadline:
            if not _tell_next(key):
                break
            told += 1
        else:
            break
    return told


def replay(item: Item) -> None:
    """Have a parked (or told) event or change told once more; it is stale if a newer one was told since."""
    type(item)._default_manager.filter(pk=item.pk, state__in=(EventState.PARKED, EventState.DONE)).update(
        state=EventState.APPLIED, attempts=0, error="", told_at=None
    )
    Telling.objects.filter(_of(_key(item))).update(next_attempt_at=None)


def _objects_with_work(account: str | None) -> Iterator[ObjectKey]:
    """The objects that have something untold and are not waiting after a failure, oldest first."""
    waiting = Telling.objects.filter(
        account=OuterRef("account"),
        object_kind=OuterRef("object_kind"),
        object_id=OuterRef("object_id"),
        next_attempt_at__gt=timezone.now(),
    )
    for model, when in ((Event, "created_at"), (StatusChange, "at")):
        untold = model._default_manager.filter(~Exists(waiting), state=EventState.APPLIED)
        if account is not None:
            untold = untold.filter(account=account)
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


def _tell_next(key: ObjectKey) -> bool:
    """Tell the object's earliest untold item. False: nothing left, or not now."""
    using = router.db_for_write(Event)
    item: Item | None = None
    try:
        with transaction.atomic(using=using, durable=True):
            if not _lock(key, using):
                return False
            item = _earliest(key)
            if item is None:
                return False
            _send(item)
            # Told and the receivers' work commit together, or neither.
            _mark_told(item)
    except Exception as error:
        if item is None or is_transient(error):
            logger.info("Telling %s is put off: %s", key, type(error).__name__)
            return False
        _record_failure(key, item, error)
        return False
    return True


def _lock(key: ObjectKey, using: str) -> bool:
    """Take the object's telling lock within the transaction; False: somebody has it, or it must wait."""
    lock = claim(Telling.objects.filter(_of(key))).first()
    if lock is None:
        # Absent, or held by another: only the first case inserts. The loser of a race looks again later.
        if Telling.objects.filter(_of(key)).exists():
            return False
        try:
            with transaction.atomic(using=using):
                account, kind, object_id = key
                lock = Telling.objects.create(account=account, object_kind=kind, object_id=object_id)
        except IntegrityError:
            return False
    elif connections[using].vendor == "sqlite":
        # No row locks there: a first write makes this transaction the only writer, whatever mode it began in.
        Telling.objects.filter(pk=lock.pk).update(next_attempt_at=lock.next_attempt_at)
    return lock.next_attempt_at is None or lock.next_attempt_at <= timezone.now()


def _earliest(key: ObjectKey) -> Item | None:
    event = Event.objects.filter(_of(key), state=EventState.APPLIED).order_by("created_at", "pk").first()
    change = StatusChange.objects.filter(_of(key), state=EventState.APPLIED).order_by("at", "pk").first()
    if event is None or change is None:
        return event or change
    return event if event.created_at <= change.at else change


def _send(item: Item) -> None:
    sender, instance = _instance(item)
    with telling():
        if isinstance(item, StatusChange):
            _send_change(sender, instance, item, None)
            return
        newer_told = Event.objects.filter(
            # A time far ahead of the clock orders nothing, or every event after it would be stale.
            _of(_key(item)),
            created_at__gt=item.created_at,
            created_at__lt=F("received_at") + _FAR_AHEAD,
            told_at__isnull=False,
        )
        event_received.send(
            sender=sender,
            event=item,
            instance=instance,
            previous_status=item.previous_status,
            is_stale=newer_told.exists(),
        )
        for change in item.status_changes.order_by("pk") if instance is not None else ():
            _send_change(sender, instance, change, item)


def _send_change(sender: type[Any], instance: Any, change: StatusChange, event: Event | None) -> None:
    status_changed.send(
        sender=sender,
        instance=instance,
        previous_status=change.previous_status,
        status=change.status,
        event=event,
        status_change=change,
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


def _record_failure(key: ObjectKey, item: Item, error: Exception) -> None:
    """Note the failure after the rollback: wait, or park the item when it has been tried often enough."""
    logger.error("A receiver failed for %s", item.pk, exc_info=error)
    waits = conf.current().RECEIVER_RETRIES
    attempts = item.attempts + 1
    parked = attempts > len(waits)
    text = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    next_attempt_at = None if parked else timezone.now() + timedelta(seconds=waits[attempts - 1])
    with transaction.atomic(using=router.db_for_write(Event)):
        # Only if it still stands where we left it: another process may have told it since.
        updated = (
            type(item)
            ._default_manager.filter(pk=item.pk, state=EventState.APPLIED, attempts=item.attempts)
            .update(
                attempts=attempts,
                error=text.replace("\x00", "\ufffd"),
                state=EventState.PARKED if parked else EventState.APPLIED,
            )
        )
        if updated:
            _set_next_attempt(key, next_attempt_at)
    if updated and parked:
        call_attention(
            type(item),
            "telling_parked",
            account=item.account,
            message=f"Receivers keep failing for {item}; it is parked after {attempts} tries; replay it when mended.",
            instance=item,
        )


def _set_next_attempt(key: ObjectKey, at: Any) -> None:
    account, kind, object_id = key
    # The failed transaction may have been the one that made the lock's row.
    if not Telling.objects.filter(_of(key)).update(next_attempt_at=at):
        Telling.objects.create(account=account, object_kind=kind, object_id=object_id, next_attempt_at=at)


def _key(item: Item) -> ObjectKey:
    return (item.account, item.object_kind, item.object_id)


def _of(key: ObjectKey) -> Q:
    account, kind, object_id = key
    return Q(account=account, object_kind=kind, object_id=object_id)
