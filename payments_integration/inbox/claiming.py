"""Claims: a worker takes a page of objects at once, and only it dispatches their items until the claim ends.

A claim lasts ten seconds, and the worker starts no item of a page in the second half of it. When a claim ends, other
workers may take the objects, but not the one in hand: its transaction has locked it. So a slow worker differs from a
dead one.

The objects of a claim have turns, and the worker releases each in the commit that ends it. So the claimed object with
the lowest turn is in hand. Each claimed object names its next item, and each dispatch names the one after it. If a
worker dies, the item in hand has failed once more, and no other.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as AnyDatabaseError, OperationalError, transaction
from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.utils import timezone

from payments_integration import conf, telemetry
from payments_integration.db import statements
from payments_integration.db.statements import in_index_order, of_account
from payments_integration.db.transactions import drop_if_broken, expired, is_transient, locked, repeatable, updated
from payments_integration.inbox.failures import count_failure
from payments_integration.inbox.loading import WAITING, Item, Work, load
from payments_integration.models import Event, EventState, ObjectDispatch, ObjectKey, StatusChange
from payments_integration.projection import of_objects

logger = logging.getLogger(__name__)

CLAIM = timedelta(seconds=10)
#: Items in the first page. A page that takes little time is followed by one of twice the size, up to BATCH_SIZE.
FIRST_PAGE = 25
_PAGE_SECONDS = 1.0

#: The values of an object that no worker has claimed.
UNCLAIMED: dict[str, Any] = {"claim": "", "turn": 0, "event_in_hand": "", "change_in_hand": 0}


@dataclass(slots=True)
class Page:
    """Objects that a worker has claimed together."""

    using: str
    claim: str = field(default_factory=lambda: uuid.uuid4().hex)
    objects: list[Work] = field(default_factory=list)
    #: Whether these are all items of the objects.
    is_whole: bool = True
    #: The monotonic time after which no item is started.
    until: float = field(default_factory=lambda: time.monotonic() + CLAIM.total_seconds() / 2)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


def naming(item: Item) -> dict[str, Any]:
    """The values with which a claimed object names the item that its worker dispatches next."""
    if isinstance(item, Event):
        return {"event_in_hand": item.pk, "change_in_hand": 0}
    return {"event_in_hand": "", "change_in_hand": item.pk}


def pages(account: str | None, using: str, deadline: float | None) -> Iterator[Page]:
    """Claim page after page, oldest items first. The next one is claimed when the caller is done with the last."""
    size, most = FIRST_PAGE, conf.current().BATCH_SIZE
    for model, when in ((Event, "created_at"), (StatusChange, "at")):
        place: tuple[Any, Any] | None = None
        while deadline is None or time.monotonic() < deadline:
            size = min(size, most)
            started = time.monotonic()
            found = _undispatched(model, when, account, place)[:size]
            with transaction.atomic(using=using), in_index_order(using):
                rows = list(found.values_list("account", "object_kind", "object_id", when, "pk"))
            page = claim({(row[0], row[1], row[2]) for row in rows}, using)
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
    older = Event.objects.filter(WAITING, **of_it, created_at__lt=OuterRef(when))
    items: QuerySet[Any] = model._default_manager.filter(~Exists(waiting), ~Exists(older))
    items = of_account(items.filter(state=EventState.APPLIED), account)
    if place is not None:
        # A range first: PostgreSQL would read all that is left twice for two alternatives, and sort it.
        items = items.filter(Q(**{f"{when}__gt": place[0]}) | Q(pk__gt=place[1]), **{f"{when}__gte": place[0]})
    return items.order_by(when, "pk")


def _is_free(now: datetime) -> Q:
    """Objects that no worker has and that wait for no retry. A claim lasts less than the longest retry."""
    return Q(next_attempt_at=None) | expired("next_attempt_at", timedelta(seconds=conf.LONGEST_RETRY), now=now)


def claim(keys: set[ObjectKey], using: str) -> Page:
    """Claim those of the objects that have work and that no other worker has, in one transaction."""
    if not keys:
        return Page(using)
    # Lock rows are found by primary key: MariaDB also locks the gaps beside rows that it finds by another index.
    # They are committed before they are locked: other workers would wait for uncommitted ones.
    known = _lock_rows(keys)
    if len(known) < len(keys):
        known = repeatable(lambda: _with_new_lock_rows(keys), using=using, durable=True)

    def take() -> tuple[Page, list[telemetry.DispatchFailed]]:
        page, now = Page(using), timezone.now()
        free = ObjectDispatch.objects.filter(_is_free(now), pk__in=known)
        rows = list(locked(free, skip_locked=True).order_by("pk"))
        left_in_hand = _left_in_hand([row for row in rows if row.claim])
        deaths = [death for row in left_in_hand if (death := _count_death(row)) is not None]
        page.objects, page.is_whole = load([row for row in rows if row not in left_in_hand], using)
        for turn, work in enumerate(page.objects):
            for name, value in naming(work.items[0]).items():
                setattr(work.row, name, value)
            work.row.claim, work.row.turn, work.row.next_attempt_at = page.claim, turn, now + CLAIM
        statements.update_many([work.row for work in page.objects])
        return page, deaths

    page, deaths = repeatable(take, using=using, durable=True)
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


def _left_in_hand(abandoned: list[ObjectDispatch]) -> list[ObjectDispatch]:
    """Those of the objects with an expired claim whose receivers ran when their worker died.

    If the object with the lowest turn of a claim is not among them, it is locked, and its worker is only slow.
    """
    if not abandoned:
        return []
    claims = ObjectDispatch.objects.filter(claim__in={row.claim for row in abandoned})
    first = set(claims.order_by().values_list("claim").annotate(Min("turn")))
    return [row for row in abandoned if (row.claim, row.turn) in first]


def _count_death(row: ObjectDispatch) -> telemetry.DispatchFailed | None:
    """Count a failed attempt of the item in hand, and release all that its worker had claimed. Call in a transaction.

    Returns what observers are told after the commit; None if the item is not to be dispatched any more.
    """
    items: QuerySet[Any] = (
        Event.objects.filter(pk=row.event_in_hand)
        if row.event_in_hand
        else StatusChange.objects.filter(pk=row.change_in_hand)
    )
    item: Item | None = items.filter(state=EventState.APPLIED).first()
    failure = (
        None if item is None else count_failure(item, RuntimeError("the process died while a receiver ran for this"))
    )
    # Otherwise the next object of the claim would seem to be the one in hand.
    ObjectDispatch.objects.filter(claim=row.claim).update(**UNCLAIMED, next_attempt_at=None)
    if item is None or failure is None:
        return None
    ObjectDispatch.objects.filter(pk=row.pk).update(next_attempt_at=failure.retry_at)
    return telemetry.DispatchFailed(item, is_parked=failure.is_parked)


def release(page: Page, work: Work, next_attempt_at: datetime | None) -> bool:
    """Release one object; False if another worker has taken it."""
    mine = _claimed(page).filter(pk=work.row.pk)
    return bool(updated(mine, **UNCLAIMED, next_attempt_at=next_attempt_at))


def release_rest(page: Page) -> None:
    """Release the objects whose turn has not come."""
    updated(_claimed(page), **UNCLAIMED, next_attempt_at=None)


def release_after_error(page: Page) -> None:
    """Release the page while an exception ends its worker's pass."""
    try:
        drop_if_broken(page.using)
        release_rest(page)
    except AnyDatabaseError as error:
        logger.warning("A claim could not be released (%s); it ends by itself", type(error).__name__)


def release_others(page: Page, work: Work) -> None:
    """Release the rest of a page in the transaction of a slow item.

    After its commit, another worker could take the next object for the one that this worker had in hand when it died.
    """
    try:
        with transaction.atomic(using=page.using):
            _claimed(page).exclude(pk=work.row.pk).update(**UNCLAIMED, next_attempt_at=None)
    except OperationalError as error:
        # At REPEATABLE READ: another worker has taken some of them since.
        if not is_transient(error):
            raise


def load_again(page: Page, work: Work) -> bool:
    """Load the object's items again; returns whether there are any, under the same claim."""
    found, is_whole = load([work.row], page.using)
    page.is_whole = page.is_whole and is_whole
    if not found:
        release(page, work, None)
        return False
    [fresh] = found
    work.items, work.changes, work.dispatched_to = fresh.items, fresh.changes, fresh.dispatched_to
    work.values, work.seen, work.max_ahead = fresh.values, fresh.seen, fresh.max_ahead
    return bool(updated(_claimed(page).filter(pk=work.row.pk), **naming(work.items[0])))


def _claimed(page: Page) -> QuerySet[ObjectDispatch]:
    return ObjectDispatch.objects.using(page.using).filter(claim=page.claim)
