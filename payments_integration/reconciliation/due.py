"""The work of a wake-up: events, operations, and refreshes: a GET outside any transaction, then a write."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import router
from django.db.models import F
from django.utils import timezone

from payments_integration import conf, inbox, projection, services, sync
from payments_integration.attention import send_overdue
from payments_integration.client import at_most
from payments_integration.db import statements
from payments_integration.db.transactions import RetryDeadline, deleted, expired, updated
from payments_integration.exceptions import INTERRUPTIONS, NotFound, PaymentsError, recorded_error, request_id_of
from payments_integration.models import DueRefresh, Event
from payments_integration.schemas import WireError
from payments_integration.signals import pass_ended

#: A step starts nothing new after so many seconds; the next wake-up continues. Each step has its own limit, so that a
#: long backlog of one kind does not delay the others.
STEP_SECONDS = 120.0


def process_due(
    account: str | None = None, *, deadline: float | None = None, turn_seconds: float | None = None
) -> bool:
    """Apply events, dispatch those that wait for no read, read what the others wait for and dispatch them.

    Then send and resolve operations, read the other objects that are due, and dispatch what changed.

    ``deadline`` (``time.monotonic()``): a request is waiting for this call, so operations are left to the schedule.
    Without it each step stops after STEP_SECONDS and leaves the rest to the next call. ``turn_seconds``: or after so
    many seconds, if it has got anything done by then. Returns whether a step stopped then: more may be waiting.
    """
    is_more = False

    def limited(step: Callable[..., int], **options: Any) -> int:
        nonlocal is_more
        if deadline is not None:
            return step(account, deadline=deadline, **options)
        if turn_seconds is not None:
            end = time.monotonic() + turn_seconds
            done = step(account, deadline=end, **options)
            if done or time.monotonic() < end:
                is_more = is_more or time.monotonic() >= end
                return done
        return step(account, deadline=time.monotonic() + STEP_SECONDS, **options)

    with RetryDeadline(deadline, using=router.db_for_write(Event)):
        limited(inbox.process)
        if deadline is None:
            inbox.release_overdue(account)
            send_overdue(account)
        limited(inbox.dispatch)
        hurry = deadline is not None
        if limited(refresh_due, only_awaited=True, hurry=hurry):
            limited(inbox.dispatch)
        if deadline is None:
            services.resume_operations(account=account)
        if limited(refresh_due, hurry=hurry):
            limited(inbox.dispatch)
    if deadline is None:
        try:
            pass_ended.send_robust(sender=None)
        except INTERRUPTIONS:
            raise
        except BaseException:  # Django contains only an Exception
            logger.exception("A receiver of pass_ended failed", extra={"account": account})
    return is_more


logger = logging.getLogger(__name__)

#: While one process reads an object, other processes skip it.
CLAIM = timedelta(seconds=90)
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)
_PAGE = 100
#: Seconds that a GET waits for the rate limit.
RATE_LIMIT_WAIT = 120.0
#: Seconds that a GET gets at least when a request is waiting.
MIN_HURRY = 1.0


def refresh_due(
    account: str | None = None,
    *,
    deadline: float | None = None,
    hurry: bool = False,
    only_awaited: bool = False,
    heartbeat: Callable[[], None] = lambda: None,
) -> int:
    """Read every object that is due by GET; returns how many were read.

    Failures are recorded and retried later. ``deadline``: no GET starts after this ``time.monotonic()``. ``hurry``: a
    request waits until the deadline, so no GET may outlast it. ``only_awaited``: read only the objects whose handlers
    wait for it. ``heartbeat`` is called before each GET.
    """
    done = 0
    begun = timezone.now()
    if statements.is_empty(DueRefresh, using=router.db_for_write(DueRefresh)):
        return done
    while True:
        due = DueRefresh.objects.filter(expired("due_at", LONGEST_WAIT, now=begun))
        if account is not None:
            due = due.filter(account=account)
        if only_awaited:
            due = due.filter(projection.is_awaited())
        page = list(due.order_by("due_at", "pk")[:_PAGE])
        for row in page:
            if deadline is not None and time.monotonic() >= deadline:
                return done
            heartbeat()
            if deadline is None or not hurry:
                done += _refresh(row)
            else:
                with at_most(max(MIN_HURRY, deadline - time.monotonic())):
                    done += _refresh(row, hurry=True)
        if len(page) < _PAGE:
            return done


def _refresh(row: DueRefresh, *, hurry: bool = False) -> bool:
    as_read = DueRefresh.objects.filter(pk=row.pk, due_at=row.due_at, marks=row.marks)
    if not updated(as_read, due_at=timezone.now() + CLAIM):
        return False
    if row.account not in conf.current().ACCOUNTS:
        _postpone(row, f"the account {row.account} is not configured any more")
        return False
    try:
        _read(row, hurry=hurry)
    except NotFound as error:
        # The row is marked as gone. While handlers wait, the provider may only be behind: it is asked again.
        if DueRefresh.objects.filter(projection.is_awaited(), pk=row.pk).exists():
            _postpone(row, recorded_error(error))
            return False
    except (PaymentsError, WireError) as error:
        extra = {"account": row.account, "request_id": request_id_of(error)}
        logger.info("Reading %s failed: %s", row, error, extra=extra)
        _postpone(row, recorded_error(error))
        return False
    # If another refresh was requested meanwhile, the row stays and is due again.
    if deleted(DueRefresh.objects.filter(pk=row.pk, marks=row.marks)):
        return True
    updated(DueRefresh.objects.filter(pk=row.pk), due_at=_next_attempt(row), attempts=F("attempts") + 1)
    return False


def _read(row: DueRefresh, *, hurry: bool) -> None:
    wait = 0.0 if hurry else RATE_LIMIT_WAIT
    sync.read(row.object_kind, row.account, row.object_id, background=not hurry, wait=wait)


def _postpone(row: DueRefresh, error: str) -> None:
    updated(DueRefresh.objects.filter(pk=row.pk), due_at=_next_attempt(row), attempts=F("attempts") + 1, error=error)


def _next_attempt(row: DueRefresh) -> Any:
    return timezone.now() + min(FIRST_WAIT * 2 ** min(row.attempts, 20), LONGEST_WAIT)
