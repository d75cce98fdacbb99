"""Claim a page of objects: only one worker dispatches their items until the claim ends.

A claim lasts ten seconds, and the worker starts no item in its second half. When a claim ends, other workers may take
its objects, except the one in hand, which its worker's transaction has locked. This tells a slow worker from a dead
one.

The objects of a claim have turns. The worker releases each object in the commit that ends its turn, so the claimed
object with the lowest turn is in hand. Each claimed object names its next item, and each dispatch names the one after
it. If a worker dies, only the item in hand counts a failed attempt.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import compress
from typing import Any, NamedTuple

from django.db import Error as AnyDatabaseError, OperationalError, connections, transaction
from django.db.models import Min, Q, QuerySet
from django.utils import timezone

from payments_integration import conf, telemetry
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.border import end_session, restore_session
from payments_integration.db.claims import new_token
from payments_integration.db.transactions import (
    drop_if_broken,
    first_run,
    is_transient,
    repeatable,
    updated,
    updated_row,
)
from payments_integration.inbox.finding import CLAIM, lock_free, next_items, rows_of
from payments_integration.inbox.loading import Item, Work, load
from payments_integration.models import (
    MIRRORS,
    Event,
    EventState,
    Grouping,
    ObjectDispatch,
    ObjectKey,
    StatusChange,
    of_objects,
)
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason, are_database_only, event_received, status_changed

logger = get_logger(__name__)

#: The models of items, and the state of an undispatched item.
UNDISPATCHED = ((Event, EventState.APPLIED), (StatusChange, EventState.APPLIED))
_MAX_TRACEBACK = 20_000
#: Items in the first page. After a fast page the next one is twice as large, up to BATCH_SIZE.
FIRST_PAGE = 25
_PAGE_SECONDS = 1.0
#: Items that share a transaction (``groups``).
MOST_IN_GROUP = 25

#: An object without an item in hand: if its worker dies, no item has failed.
NAMELESS: dict[str, Any] = {"event_in_hand": "", "change_in_hand": 0}
UNCLAIMED: dict[str, Any] = {**CLAIM.free_values(), "turn": 0, **NAMELESS}
#: What an object is set to when it has no items left.
DONE: dict[str, Any] = {**UNCLAIMED, "grouping": Grouping.SINGLE, "next_attempt_at": None}


@dataclass(slots=True)
class Page:
    """Objects that a worker has claimed together."""

    using: str
    token: str = field(default_factory=new_token)
    #: Objects that are dispatched in groups come first, ordered by kind.
    objects: list[Work] = field(default_factory=list)
    #: True if ``objects`` has all of their items.
    is_whole: bool = True
    #: The size of the next group.
    most_in_group: int = MOST_IN_GROUP
    #: True if each object names its next item from the start, False if only when its turn comes.
    names_items: bool = True
    #: The monotonic time after which no item is started.
    until: float = field(default_factory=lambda: time.monotonic() + CLAIM.length.total_seconds() / 2)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def is_last(self, work: Work) -> bool:
        """Return True if no item comes after the next one of this object."""
        return len(work.items) == 1 and not any(each.items for each in self.objects if each is not work)


def naming(item: Item) -> dict[str, Any]:
    """Return the values with which a claimed object names the item that its worker dispatches next."""
    if isinstance(item, Event):
        return {**NAMELESS, "event_in_hand": item.id}
    return {**NAMELESS, "change_in_hand": item.id}


def pages(account: str | None, using: str, deadline: float | None) -> Iterator[Page]:
    """Claim page after page, oldest items first. Claims the next page when the caller has finished the last one."""
    size, most = FIRST_PAGE, conf.current().BATCH_SIZE
    # One statement, after which most calls are over.
    found = statements.are_there(*UNDISPATCHED, using=using)
    for model, when in compress(((Event, "created_at"), (StatusChange, "at")), found):
        place: tuple[Any, Any] | None = None
        while not stopping.is_over(deadline):
            restore_session(connections[using])
            size = min(size, most)
            started = time.monotonic()
            rows = next_items(model, when, account, place, size, using)
            page = claim({(row[0], row[1], row[2]) for row in rows}, using)
            if page.objects:
                yield page
            if len(rows) < size:
                break
            place = (rows[-1][3], rows[-1][4])
            taken = time.monotonic() - started
            size = size * 2 if taken < _PAGE_SECONDS else max(1, size // 2)


def claim(keys: set[ObjectKey], using: str) -> Page:
    """Claim the objects that have work and that no other worker has, in one transaction."""
    if not keys:
        return Page(using)
    # Find the rows to lock by primary key: by another index, MariaDB also locks the gaps beside them. Commit new rows
    # before locking them: other workers would wait for uncommitted ones.
    known, is_first_run = rows_of(keys, using), first_run()

    def with_new() -> list[int]:
        # If another worker has inserted one of them since, the retry reads them.
        names = ("account", "object_kind", "object_id")
        are_all_new = not known and is_first_run()
        there = () if are_all_new else ObjectDispatch.objects.filter(of_objects(keys)).values_list(*names)
        missing = [ObjectDispatch(**dict(zip(names, key, strict=True))) for key in sorted(keys.difference(there))]
        statements.insert_many(missing, keys=False)
        return rows_of(keys, using)

    if len(known) < len(keys):
        known = repeatable(with_new, using=using, durable=True)

    def take() -> tuple[Page, list[telemetry.DispatchFailed]]:
        page, now = Page(using), timezone.now()
        rows = lock_free(known, now, using)
        left_in_hand = _left_in_hand([row for row in rows if row.claim_token])
        failed = {row.pk: death for row in left_in_hand if (death := _count_death(row, rows)) is not None}
        deaths = list(failed.values())
        # An item that has failed waits for its next attempt.
        page.objects, page.is_whole = load([row for row in rows if row.pk not in failed], using)
        _group(page.objects)
        claimed = {**CLAIM.values(page.token, now=now), "next_attempt_at": None}
        for turn, work in enumerate(page.objects):
            for name, value in {**claimed, **naming(work.items[0]), "turn": turn}.items():
                setattr(work.row, name, value)
        statements.update_many([work.row for work in page.objects])
        return page, deaths

    page, deaths = repeatable(take, using=using, durable=True)
    for death in deaths:
        telemetry.happened(death)
    return page


def _left_in_hand(abandoned: list[ObjectDispatch]) -> list[ObjectDispatch]:
    """Return the objects with an expired claim whose receivers ran when their worker died.

    If the object with the lowest turn of a claim is not returned, it is locked, and its worker is only slow.
    """
    if not abandoned:
        return []
    claims = ObjectDispatch.objects.filter(claim_token__in={row.claim_token for row in abandoned})
    first = set(claims.order_by().values_list("claim_token").annotate(Min("turn")))
    return [row for row in abandoned if (row.claim_token, row.turn) in first]


def _group(works: list[Work]) -> None:
    """Decide which objects are dispatched in groups, and put them first."""
    is_declared = cache(_is_declared)
    for work in works:
        if work.row.grouping == Grouping.ALONE:
            continue
        work.is_grouped = all(
            is_declared(
                item.object_kind,
                item.type if isinstance(item, Event) else None,
                tuple(change.status for change in work.changes[str(item.id)]),
            )
            for item in work.items
        )
        work.row.grouping = Grouping.GROUPED if work.is_grouped else Grouping.SINGLE
    # A group has objects of one kind.
    works.sort(key=lambda work: (not work.is_grouped, work.row.object_kind))


def _is_declared(kind: str, event_type: str | None, statuses: tuple[str, ...]) -> bool:
    """Return True if all receivers are ``database_only``. ``event_type`` is None if an answer brought the change."""
    sender = MIRRORS.get(kind, Event)
    return (event_type is None or are_database_only(event_received, sender, event_type)) and all(
        are_database_only(status_changed, sender, status) for status in statuses
    )


class Failure(NamedTuple):
    """A failed attempt that was counted."""

    #: None: it was the last attempt, and the item is parked.
    retry_at: datetime | None

    @property
    def is_parked(self) -> bool:
        return self.retry_at is None


def count_failure(item: Item, error: BaseException) -> Failure | None:
    """Record a failed attempt. Returns None if the item no longer waits. Call in a transaction."""
    waits = conf.current().RECEIVER_RETRIES
    attempts = item.attempts + 1
    is_parked = attempts > len(waits)
    text = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    waiting = type(item)._default_manager.filter(pk=item.id, state=EventState.APPLIED)
    if not waiting.update(
        attempts=attempts,
        error=text.replace("\x00", "\ufffd"),
        state=EventState.PARKED if is_parked else EventState.APPLIED,
    ):
        return None
    if not is_parked:
        return Failure(timezone.now() + timedelta(seconds=waits[attempts - 1]))
    message = f"Receivers keep failing for {item}; it is parked after {attempts} attempts. Fix them and replay it."
    call_attention(item, Reason.DISPATCH_PARKED, message)
    return Failure(None)


def _count_death(row: ObjectDispatch, locked_rows: list[ObjectDispatch]) -> telemetry.DispatchFailed | None:
    """Count a failed attempt of the item in hand and release its worker's claim. Call in a transaction.

    If the worker died over a group, the item at fault is unknown. No item counts a failure, and the objects of the
    claim are dispatched alone. Returns what to report to observers after the commit, or None if no item failed.
    """
    claimed = ObjectDispatch.objects.filter(claim_token=row.claim_token)
    if row.grouping == Grouping.GROUPED:
        logger.warning("A worker died over a group: its objects are dispatched alone", extra={"account": row.account})
        claimed.filter(grouping=Grouping.GROUPED).update(grouping=Grouping.ALONE)
        for other in locked_rows:
            if other.claim_token == row.claim_token and other.grouping == Grouping.GROUPED:
                other.grouping = Grouping.ALONE
        claimed.update(**UNCLAIMED, next_attempt_at=None)
        return None
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
    claimed.update(**UNCLAIMED, next_attempt_at=None)
    if item is None or failure is None:
        return None
    ObjectDispatch.objects.filter(pk=row.pk).update(next_attempt_at=failure.retry_at)
    return telemetry.DispatchFailed(item, is_parked=failure.is_parked)


def release(page: Page, work: Work, next_attempt_at: datetime | None, **values: Any) -> bool:
    """Release one object; False if another worker has taken it.

    A receiver that committed by hand, as MariaDB does before ``ALTER TABLE``, has released it. It waits nevertheless.
    """
    mine = Q(claim_token=page.token) | Q(claim_token="", next_attempt_at=None)
    rows = ObjectDispatch.objects.filter(mine, pk=work.row.id)
    return bool(updated(rows, **UNCLAIMED, next_attempt_at=next_attempt_at, **values))


def separate(group: Sequence[Work]) -> None:
    """Have objects dispatched alone whose claim a receiver of their group has committed away by hand."""
    rows = ObjectDispatch.objects.filter(pk__in=[work.row.id for work in group], claim_token="")
    updated(rows, grouping=Grouping.ALONE)


def release_rest(page: Page) -> None:
    updated(_claimed(page), **UNCLAIMED, next_attempt_at=None)


def release_after_error(page: Page) -> None:
    """Release the page while an exception ends its worker's pass."""
    connection = connections[page.using]
    try:
        drop_if_broken(page.using)
        try:
            release_rest(page)
        except AnyDatabaseError:
            if connection.in_atomic_block:
                raise
            # A receiver may have changed the session, such as its search_path.
            end_session(connection)
            release_rest(page)
    except AnyDatabaseError as error:
        logger.warning("A claim could not be released (%s); it ends by itself", type(error).__name__)


def release_others(page: Page, work: Work | None = None) -> None:
    """Release the rest of a page in the transaction of a slow item.

    If the worker died after that commit, another one would take the next object for the object in hand.
    """
    others = _claimed(page) if work is None else _claimed(page).exclude(pk=work.row.id)
    _write(page, others, **UNCLAIMED, next_attempt_at=None)


def unname_all(page: Page) -> None:
    """Let no object name its next item, in the transaction of an item with callbacks.

    They run after the commit and may outlast the claim. Another worker would take that for a death over the next item.
    """
    _write(page, _claimed(page), **NAMELESS)


def _write(page: Page, rows: QuerySet[ObjectDispatch], **values: Any) -> None:
    try:
        with transaction.atomic(using=page.using):
            rows.update(**values)
    except OperationalError as error:
        # Under REPEATABLE READ: another worker has taken some of them. MariaDB may have rolled back more than this.
        if not is_transient(error) or connections[page.using].needs_rollback:
            raise


def load_again(page: Page, work: Work) -> bool:
    """Load the object's items again, under the same claim. Returns True if there are any."""
    found, is_whole = load([work.row], page.using)
    page.is_whole = page.is_whole and is_whole
    if not found:
        release(page, work, None)
        return False
    [fresh] = found
    work.items, work.changes, work.dispatched_to = fresh.items, fresh.changes, fresh.dispatched_to
    work.values, work.seen, work.max_ahead, work.is_grouped = fresh.values, fresh.seen, fresh.max_ahead, False
    return name_next(page, work)


def name_next(page: Page, work: Work) -> bool:
    """Name the object's next item; False if another worker has taken the object."""
    mine = {"id": work.row.id, "claim_token": page.token}
    return bool(updated_row(ObjectDispatch, where=mine, values=naming(work.items[0])))


def _claimed(page: Page) -> QuerySet[ObjectDispatch]:
    return ObjectDispatch.objects.using(page.using).filter(claim_token=page.token)
