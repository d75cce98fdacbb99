"""Calling the merchant's receivers: once per item, in order per object, exactly once with their database work.

A worker claims a page of objects (``claiming``) and loads their items with a few statements (``loading``). Then it
calls the receivers of each object's items, oldest first, each in a transaction that locks the object and marks the
item (``calling``).

If a receiver fails, its transaction is rolled back, and the item is retried later and parked in the end
(``failures``). Later items of the object wait meanwhile; other objects go on. A worker whose pass is ended by an
exception releases what it has claimed.
"""

from __future__ import annotations

import logging
import time

from django.db import Error as AnyDatabaseError, IntegrityError, OperationalError, router

from payments_integration import telemetry
from payments_integration.db.statements import is_any_in_state
from payments_integration.db.transactions import WriterPauses, drop_if_broken, is_transient, repeatable
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.inbox.calling import ClaimLost, ReceiverFailed, WorkChanged, call_receivers
from payments_integration.inbox.claiming import (
    Page,
    load_again,
    pages,
    release,
    release_after_error,
    release_others,
    release_rest,
)
from payments_integration.inbox.failures import Failure, count_failure, first_wait
from payments_integration.inbox.loading import Work, ids_of
from payments_integration.models import Event, EventState, StatusChange

logger = logging.getLogger(__name__)


def dispatch(account: str | None = None, *, deadline: float | None = None) -> int:
    """Call receivers for all undispatched items; returns how many items were dispatched.

    Safe to run at any time, in several processes at once. ``deadline``: a ``time.monotonic()`` after which no further
    item is started. Errors of receivers and of their callbacks are recorded and not raised; SystemExit,
    KeyboardInterrupt and GeneratorExit are raised when the claim is released.
    """
    using = router.db_for_write(Event)
    if not is_any_in_state(EventState.APPLIED, Event, StatusChange, using=using):
        return 0
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
    """Dispatch the items of a page; returns how many, and whether all of them had their turn."""
    dispatched, is_done = 0, page.is_whole
    try:
        for work in page.objects:
            while work.items:
                if page.is_over or (deadline is not None and time.monotonic() >= deadline):
                    release_rest(page)
                    return dispatched, False
                try:
                    if not _dispatch_next(page, work):
                        break
                except ClaimLost:
                    is_done = False
                    break
                except WorkChanged:
                    if not load_again(page, work):
                        break
                    continue
                dispatched += 1
                work.note_dispatched(work.items[0])
                pauses.pause_if_due()
    except BaseException:
        release_after_error(page)
        raise
    return dispatched, is_done


def _dispatch_next(page: Page, work: Work) -> bool:
    """Dispatch the object's next item; False if it failed and the object waits."""
    item = work.items[0]
    try:
        call_receivers(page, work)
    except (ClaimLost, WorkChanged, *INTERRUPTIONS):
        raise
    except ReceiverFailed as failure:
        error = failure.__cause__ or failure
        _record_failure(page, work, error)
        if isinstance(error, INTERRUPTIONS):
            raise error from None
        return False
    except OperationalError as error:
        if not is_transient(error):
            raise
        logger.info("Dispatch of %s is postponed: %s", work.row, type(error).__name__, extra=ids_of(item))
        release(page, work, first_wait())
        return False
    except IntegrityError as error:  # a deferred constraint of the merchant's tables, checked by the commit
        _record_failure(page, work, error)
        return False
    except AnyDatabaseError:
        raise
    except BaseException as error:  # such as a time limit that ended between two lines of ours
        _record_failure(page, work, error)
        return False
    telemetry.happened(telemetry.Dispatched(item))
    return True


def _record_failure(page: Page, work: Work, error: BaseException) -> None:
    """Count the failure and release the object, after the rollback."""
    item = work.items[0]
    logger.error("A receiver failed for %s", item.pk, exc_info=error, extra=ids_of(item))
    drop_if_broken(page.using)

    def record() -> Failure | None:
        failure = count_failure(item, error)
        if not release(page, work, failure.retry_at if failure is not None else None):
            raise ClaimLost  # another worker has counted it
        if page.is_over:
            release_others(page, work)
        return failure

    try:
        failure = repeatable(record, using=page.using, durable=True, about=ids_of(item))
    except ClaimLost:
        return
    if failure is not None:
        telemetry.happened(telemetry.DispatchFailed(item, is_parked=failure.is_parked))
