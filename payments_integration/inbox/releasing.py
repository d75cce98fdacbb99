"""Let items be dispatched: events that a pass holds back, items that a person replays, and history."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import router
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import permissions
from payments_integration.attention import call_attention
from payments_integration.db.claims import expired
from payments_integration.db.sizes import in_parts
from payments_integration.db.statements import filter_account_last
from payments_integration.db.transactions import repeatable, updated
from payments_integration.inbox.loading import Item
from payments_integration.inbox.processing import is_wanted
from payments_integration.inbox.receiving import read_again
from payments_integration.models import AccountState, Event, EventState, ObjectDispatch, StatusChange, of_objects
from payments_integration.signals import Reason
from payments_integration.sync import waiting_accounts

#: Objects per transaction of ``dispatch_history``, and rows per statement: a balance may have any number of events.
_PAGE = 200
_KEYS = 500
#: An event waits no longer than this for passes that never complete its window.
LONGEST_HOLD = timedelta(hours=1)


def release(account: str, before: datetime | None = None, *, since: datetime | None = None) -> int:
    """Let held events created before ``before`` and from ``since`` on (None: all) be dispatched, and return how many.

    Reconciliation calls this when everything older has been received. Later events of a failed pass stay held, because
    older pages are missing.
    """
    complete = filter_account_last(Event.objects.filter(state=EventState.HELD), account)
    if before is not None:
        complete = complete.filter(created_at__lt=before)
    if since is not None:
        complete = complete.filter(created_at__gte=since)
    return updated(complete, state=EventState.APPLIED)


def release_overdue(account: str | None = None) -> int:
    """Let all held events of an account be dispatched once one was held for LONGEST_HOLD, and return how many.

    Their pass keeps failing, and later events of the objects wait for them. Releasing all of them together keeps their
    order. Events that the pass finds later are stale. While a pass is running, it may still complete the window, so
    its events are held. Takes one statement if nothing is overdue.
    """
    now = timezone.now()
    # A receipt further ahead than that was recorded while our clock was wrong.
    held_for_long = Q(received_at__lte=now - LONGEST_HOLD) | Q(received_at__gt=now + LONGEST_HOLD)
    overdue = filter_account_last(Event.objects.filter(held_for_long, state=EventState.HELD), account)
    running = AccountState.objects.filter(
        ~expired("claimed_until", LONGEST_HOLD, now=now), claimed_until__isnull=False
    )
    overdue = overdue.exclude(account__in=waiting_accounts(account)).exclude(account__in=running.values("pk"))
    released = 0
    for name in list(overdue.order_by().values_list("account", flat=True).distinct()):
        released += repeatable(partial(_release_with_attention, name), using=router.db_for_write(Event), durable=True)
    return released


def _release_with_attention(account: str) -> int:
    if count := release(account):
        message = (
            f"Reconciliation has not completed its window for an hour, so {count} held events are dispatched now."
        )
        message += " Older ones that it finds later are stale."
        call_attention(Event(account=account), Reason.EVENTS_HELD, message)
    return count


def replay(item: Item, actor: object = None, *, seen_at: datetime | None = None) -> bool:
    """Dispatch a parked or dispatched event or change again. It is stale if a newer event was dispatched since.

    A quarantined event is parsed again instead, as after an upgrade. ``actor`` is a user or text. ``seen_at`` is when
    the actor saw the item: if it was dispatched since, as after the first of two clicks, nothing is done and False is
    returned. Raises PermissionDenied for a member of staff without ``replay_event``.
    """
    permissions.require_of_staff(actor, "replay_event", item)
    if isinstance(item, Event) and item.state == EventState.QUARANTINED:
        read_again(item)
        return True
    if not item.object_kind:
        return True  # it was never understood, and its body is erased
    finished = type(item)._default_manager.filter(pk=item.id, state__in=(EventState.PARKED, EventState.DONE))
    if seen_at is not None:
        finished = finished.exclude(state=EventState.DONE, dispatched_at__gte=seen_at)
    # ``dispatched_at`` stays: until the item is dispatched again, older events of the object are stale.
    is_released = bool(updated(finished, state=EventState.APPLIED, attempts=0, error=""))
    updated(ObjectDispatch.objects.filter(of_objects([item.object_key]), claim_token=""), next_attempt_at=None)
    return is_released or seen_at is None


def dispatch_history(account: str, since: datetime) -> int:
    """Let everything that was never dispatched be dispatched now. Returns how many events and changes.

    That is everything that the provider dates from ``since`` on, that is done, and that a receiver wants now: history,
    and items that no receiver wanted when they came. An item is stale if a newer event of its object was dispatched
    before.
    """
    return sum(_dispatch_objects(model, account, since) for model in (Event, StatusChange))


def _dispatch_objects(model: Any, account: str, since: datetime) -> int:
    """Release all items of an object in one transaction, so that they are dispatched in order."""
    count, last = 0, ("", "")
    names = ("object_kind", "object_id")
    while True:
        after = Q(object_kind__gt=last[0]) | Q(object_kind=last[0], object_id__gt=last[1])
        left = _never_dispatched(model, since).filter(after, account=account).order_by(*names)
        keys = list(left.values_list(*names).distinct()[:_PAGE])
        if not keys:
            return count
        release = partial(_release_objects, account, since, keys)
        count += repeatable(release, using=router.db_for_write(Event), durable=True)
        last = keys[-1]


def _never_dispatched(model: Any, since: datetime) -> QuerySet[Any]:
    if model is Event:
        # If the first row was lost after its dispatch, only the status change of the second copy shows that.
        told = Exists(StatusChange.objects.filter(event=OuterRef("pk"), dispatched_at__isnull=False))
        return Event.objects.filter(~told, state=EventState.DONE, dispatched_at=None, created_at__gte=since)
    return StatusChange.objects.filter(state=EventState.DONE, dispatched_at=None, at__gte=since, event=None)


def _release_objects(account: str, since: datetime, keys: list[tuple[str, str]]) -> int:
    of_them = of_objects((account, kind, object_id) for kind, object_id in keys)
    changes = _never_dispatched(StatusChange, since).filter(of_them).values_list("pk", "object_kind", "status")
    wanted = [pk for pk, kind, status in changes if is_wanted(kind, None, status)]
    released = _release_rows(StatusChange, since, wanted)
    events = list(_never_dispatched(Event, since).filter(of_them).values_list("pk", "object_kind", "type"))
    brought: dict[str | None, str] = {}
    for page in in_parts([pk for pk, _, _ in events], _KEYS):
        brought |= dict(StatusChange.objects.filter(event__in=page).values_list("event", "status"))
    wanted = [pk for pk, kind, event_type in events if is_wanted(kind, event_type, brought.get(pk))]
    return released + _release_rows(Event, since, wanted)


def _release_rows(model: Any, since: datetime, keys: list[Any]) -> int:
    return sum(
        _never_dispatched(model, since).filter(pk__in=page).update(state=EventState.APPLIED)
        for page in in_parts(keys, _KEYS)
    )
