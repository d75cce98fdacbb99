"""Call the merchant's receivers: once per item, in order per object, exactly once with their database work.

A worker claims a page of objects (``claiming``) and loads their items with a few statements (``loading``). Then it
calls the receivers of each object's items, oldest first. Each item has a transaction that locks the object and marks
the item (``calling``). Items whose receivers are all declared ``database_only`` share one (``groups``).

If a receiver fails, its transaction is rolled back. The item is retried later and finally parked. Later items of the
object wait; other objects go on. If an exception ends a worker's pass, the worker releases what it has claimed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.db import DatabaseError, Error as AnyDatabaseError, OperationalError, connections, router
from django.utils import timezone

from payments_integration import conf, telemetry
from payments_integration.attention import name_trouble
from payments_integration.db.border import end_session
from payments_integration.db.claims import ClaimLost
from payments_integration.db.transactions import WriterPauses, drop_if_broken, is_transient, repeatable
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.inbox.calling import ReceiverFailed, WorkChanged, call_receivers, is_refused
from payments_integration.inbox.claiming import (
    Failure,
    Page,
    count_failure,
    load_again,
    pages,
    release,
    release_after_error,
    release_others,
    release_rest,
    separate,
)
from payments_integration.inbox.groups import GroupFailed, call_group, first_group
from payments_integration.inbox.loading import Item, Work, ids_of
from payments_integration.models import Event, Grouping
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)
T = TypeVar("T")


def dispatch(account: str | None = None, *, deadline: float | None = None) -> int:
    """Call receivers for all undispatched items, and return how many items were dispatched.

    Safe to run at any time, in several processes at once. No item is started after ``deadline``
    (``time.monotonic()``). Errors of receivers and of their callbacks are recorded, not raised. SystemExit,
    KeyboardInterrupt and GeneratorExit are raised after the claim is released.
    """
    try:
        return _dispatch(account, deadline)
    except DatabaseError as error:
        name_trouble(error, account)
        raise


def _dispatch(account: str | None, deadline: float | None) -> int:
    using = router.db_for_write(Event)
    pauses = WriterPauses(using)
    dispatched, again = 0, True
    while again:
        again = False
        for page in pages(account, using, deadline):
            count, is_done = _dispatch_page(page, deadline, pauses)
            dispatched += count
            again = again or (count > 0 and not is_done)
    return dispatched


def _dispatch_page(page: Page, deadline: float | None, pauses: WriterPauses) -> tuple[int, bool]:
    """Dispatch the items of a page. Returns how many, and True if all of them had their turn."""
    dispatched, is_done = 0, page.is_whole
    objects = deque(page.objects)
    try:
        while objects:
            if page.is_over or stopping.is_over(deadline):
                release_rest(page)
                return dispatched, False
            if group := first_group(page, objects):
                dispatched += _dispatch_group(page, group)
            else:
                work = objects[0]
                try:
                    if not _dispatch_next(page, work):
                        objects.popleft()
                        continue
                except ClaimLost:
                    is_done = False
                    objects.popleft()
                    continue
                except WorkChanged:
                    if not load_again(page, work):
                        objects.popleft()
                    continue
                dispatched += 1
                work.note_dispatched(work.items[0])
            while objects and not objects[0].items:
                objects.popleft()
            pauses.pause_if_due()
    except BaseException:
        release_after_error(page)
        raise
    return dispatched, is_done


def _dispatch_group(page: Page, group: list[Work]) -> int:
    """Dispatch items of several objects together, or one by one if that fails. Returns how many."""
    item = group[0].items[0]
    cause: BaseException
    try:
        done = call_group(page, group)
    except WorkChanged:
        return 0  # some are no longer in a group
    except GroupFailed as failure:
        item, cause = failure.item, failure.__cause__ or failure
        if isinstance(cause, INTERRUPTIONS):
            # Otherwise it would fail again before the earlier items of its object.
            _record_failure(page, failure.work, item, cause, grouping=Grouping.ALONE)
            raise cause from None
    except INTERRUPTIONS:
        raise
    except AnyDatabaseError as error:
        if not (is_transient(error) or is_refused(error)):
            raise
        cause = error
    except BaseException as error:
        cause = error
    else:
        for work, item in done:
            work.note_dispatched(item)
            telemetry.happened(telemetry.Dispatched(item))
        return len(done)
    # The error's message may show a row, so it is left out.
    logger.info("A group is dispatched one by one after %s", type(cause).__name__, extra=ids_of(item))
    drop_if_broken(page.using)
    _after_receivers(page, lambda: separate(group))
    for work in group:
        work.is_grouped = False
    return 0


def _dispatch_next(page: Page, work: Work) -> bool:
    """Dispatch the object's next item. Returns False if it failed and the object waits."""
    item = work.items[0]
    try:
        call_receivers(page, work)
    except (ClaimLost, WorkChanged, *INTERRUPTIONS):
        raise
    except ReceiverFailed as failure:
        error = failure.__cause__ or failure
        _record_failure(page, work, item, error)
        if isinstance(error, INTERRUPTIONS):
            raise error from None
        return False
    except OperationalError as error:
        if not is_transient(error):
            raise
        logger.info("Dispatch of %s is postponed: %s", item, type(error).__name__, extra=ids_of(item))
        # The item met a conflict, but did not fail.
        wait = next(iter(conf.current().RECEIVER_RETRIES), 10)
        release(page, work, timezone.now() + timedelta(seconds=wait))
        return False
    except AnyDatabaseError:
        raise
    except BaseException as error:
        # Such as a time limit that ended between two of our lines. Or a receiver has changed the session, for example
        # its row factory: every later item would fail as well.
        if not connections[page.using].in_atomic_block:
            end_session(connections[page.using])
        _record_failure(page, work, item, error)
        return False
    telemetry.happened(telemetry.Dispatched(item))
    return True


def _record_failure(page: Page, work: Work, item: Item, error: BaseException, **values: Any) -> None:
    """Count the failure and release the object, after the rollback."""
    logger.error("A receiver failed for %s", item, exc_info=error, extra=ids_of(item))
    drop_if_broken(page.using)

    def record() -> Failure | None:
        failure = count_failure(item, error)
        if not release(page, work, failure.retry_at if failure is not None else None, **values):
            raise ClaimLost  # another worker counted it
        if page.is_over:
            release_others(page, work)
        return failure

    try:
        failure = _after_receivers(
            page, lambda: repeatable(record, using=page.using, durable=True, about=ids_of(item))
        )
    except ClaimLost:
        return
    if failure is not None:
        telemetry.happened(telemetry.DispatchFailed(item, is_parked=failure.is_parked))


def _after_receivers(page: Page, write: Callable[[], T]) -> T:
    """Write after a failure, through a new session if a receiver left this one unusable, as ``LOCK TABLES`` does."""
    connection = connections[page.using]
    try:
        return write()
    except AnyDatabaseError:
        if connection.in_atomic_block:
            raise
        end_session(connection)
        return write()
