"""Do the work of a wake-up: events, operations, and refreshes (a GET outside any transaction, then a write)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error as AnyDatabaseError, OperationalError, router
from django.db.models import F, Q, QuerySet, Value
from django.utils import timezone

from payments_integration import conf, inbox, projection, services, sync
from payments_integration.attention import name_trouble, send_overdue
from payments_integration.client import at_most
from payments_integration.db.claims import ClaimLost, Claims, Held, expired
from payments_integration.db.refusals import condemns, described
from payments_integration.db.statements import are_there, filter_account
from payments_integration.db.transactions import RaceLost, RetryDeadline, deleted, is_transient
from payments_integration.exceptions import INTERRUPTIONS, NotFound, PaymentsError, recorded_error, request_id_of
from payments_integration.models import DueAttention, DueRefresh, Event, EventState, OperationState
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import WireError
from payments_integration.signals import pass_ended

logger = get_logger(__name__)

#: A step starts nothing new after this many seconds; the next wake-up continues. Each step has its own limit, so that
#: a long backlog of one kind does not delay the others.
STEP_SECONDS = 120.0
#: While one process reads an object, other processes skip it.
READ = Claims(timedelta(seconds=90))
#: After a failed read, the object is read again after the first of these, then after twice as long, up to the second.
FIRST_BACKOFF = timedelta(seconds=5)
LONGEST_BACKOFF = timedelta(hours=1)
_PAGE = 100
#: Seconds that a GET waits for the rate limit.
RATE_LIMIT_WAIT = 120.0
#: Seconds that a GET gets at least when a request is waiting.
MIN_HURRY = 1.0


def process_due(
    account: str | None = None,
    *,
    deadline: float | None = None,
    turn_seconds: float | None = None,
    done: Counter[str] | None = None,
) -> bool:
    """Apply events, dispatch items that wait for no read, then read what the other items wait for and dispatch them.

    After that, send and resolve operations, read the other objects that are due, and dispatch what changed.

    ``deadline`` (``time.monotonic()``): a request is waiting for this call, so operations are left to the schedule.
    Without it each step stops after STEP_SECONDS and leaves the rest to the next call. ``turn_seconds``: a step also
    stops after this many seconds, if it has got anything done by then. Returns True if a step did so: more may be
    waiting. If the process is asked to stop, no further step begins. ``done`` counts what each step got done, and as
    ``open`` the operations that were tried and are still open.
    """
    is_more = False
    counts = Counter[str]() if done is None else done

    def counted(what: str, step: Callable[..., int], **options: Any) -> int:
        nonlocal is_more
        if stopping.is_requested():
            return 0
        seconds = STEP_SECONDS if turn_seconds is None else turn_seconds
        end = time.monotonic() + seconds if deadline is None else deadline
        number = step(account, deadline=end, **options)
        if deadline is None and turn_seconds is not None and time.monotonic() >= end:
            is_more = is_more or bool(number)
            # A turn in which it got nothing done is too short for it.
            number = number or step(account, deadline=time.monotonic() + STEP_SECONDS, **options)
        counts[what] += number
        return number

    try:
        _take_steps(account, deadline, counted, counts)
    except DatabaseError as error:
        is_conflict = isinstance(error, OperationalError) and (isinstance(error, RaceLost) or is_transient(error))
        if deadline is None or time.monotonic() < deadline or not is_conflict:
            name_trouble(error, account)
            raise
        logger.info(
            "A conflict (%s) came after the deadline; the schedule does the rest",
            type(error).__name__,
            extra={"account": account},
        )
    if deadline is None:
        for receiver, result in pass_ended.send_robust(sender=None):
            if isinstance(result, BaseException):
                logger.error("A receiver failed: %r", receiver, exc_info=result, extra={"account": account})
    return is_more


def _take_steps(
    account: str | None, deadline: float | None, counted: Callable[..., int], counts: Counter[str]
) -> None:
    # Before anything is applied: events that arrive after the key was replaced may be another project's.
    sync.compare_keys(account, deadline=deadline)
    using = router.db_for_write(Event)
    with RetryDeadline(deadline, using=using):
        hurry = deadline is not None
        counted("applied", inbox.process, hurry=hurry)
        # One statement, after which most wake-ups are over.
        *found, is_any_held, is_any_attention, is_any_due = are_there(
            *inbox.UNDISPATCHED, (Event, EventState.HELD), (DueAttention, None), (DueRefresh, None), using=using
        )
        if deadline is None and is_any_held:
            found.append(bool(inbox.release_overdue(account)))
        if deadline is None and is_any_attention:
            send_overdue(account)
        if any(found):
            counted("dispatched", inbox.dispatch)
        if is_any_due and counted("read", refresh_due, only_awaited=True, hurry=hurry):
            counted("dispatched", inbox.dispatch)
        if deadline is None and not stopping.is_requested():
            counted("operations", _resume_operations, counts=counts)
            # An operation may have asked for a read.
            [is_any_due] = are_there((DueRefresh, None), using=using)
        if is_any_due and counted("read", refresh_due, hurry=hurry):
            counted("dispatched", inbox.dispatch)


def _resume_operations(account: str | None, *, deadline: float, counts: Counter[str]) -> int:
    """Take operations a step further, and return how many. ``counts["open"]``: the open ones of these."""
    outcomes = services.resume_operations(account=account, deadline=deadline)
    # While the provider is down, or refuses the API key, an attempt ends nothing.
    counts["open"] += sum(outcomes.get(state, 0) for state in (OperationState.DUE, OperationState.UNKNOWN))
    return sum(count for outcome, count in outcomes.items() if outcome not in ("skipped", "failed"))


def waiting_work() -> set[tuple[str, str]]:
    """Return the accounts that have work for ``process_due`` now, each with the kind of work. One statement.

    May name work that ``process_due`` cannot do yet, such as a dispatch that waits for a read.
    """
    reads = DueRefresh.objects.filter(READ.free(), expired("due_at", LONGEST_BACKOFF))
    reads = reads.exclude(account__in=sync.waiting_accounts())
    events, changes = inbox.undispatched()
    parts: list[QuerySet[Any, Any]] = [
        rows.order_by().values_list("account", Value(kind)).distinct()
        for kind, rows in (
            ("apply", inbox.unapplied()),
            ("dispatch", events),
            ("dispatch", changes),
            ("operation", services.due_operations()),
            ("read", reads),
        )
    ]
    compared = {(alias, "compare") for alias in sync.uncompared_accounts()}
    return compared | set(parts[0].union(*parts[1:]))


def refresh_due(
    account: str | None = None,
    *,
    deadline: float | None = None,
    hurry: bool = False,
    only_awaited: bool = False,
    heartbeat: Callable[[], None] = lambda: None,
) -> int:
    """Read every object that is due by GET, and return how many were read.

    Failures are recorded and retried later. No GET starts after ``deadline`` (``time.monotonic()``). ``hurry``: a
    request waits until the deadline, so no GET may outlast it. ``only_awaited``: read only the objects whose handlers
    wait for it. ``heartbeat`` is called before each GET.
    """
    done = 0
    begun = timezone.now()
    try:
        while True:
            due = DueRefresh.objects.filter(READ.free(), expired("due_at", LONGEST_BACKOFF, now=begun))
            due = filter_account(due, account)
            # Their objects wait while the key may be of another project.
            due = due.exclude(account__in=sync.waiting_accounts(account))
            if only_awaited:
                due = due.filter(projection.is_awaited())
            page = list(due.order_by("due_at", "pk")[:_PAGE])
            for row in page:
                if stopping.is_over(deadline):
                    return done
                heartbeat()
                if deadline is None or not hurry:
                    done += _refresh(row)
                else:
                    with at_most(max(MIN_HURRY, deadline - time.monotonic())):
                        done += _refresh(row, hurry=True)
            if len(page) < _PAGE:
                return done
    except DatabaseError as error:
        name_trouble(error, account)
        raise


def _refresh(row: DueRefresh, *, hurry: bool = False) -> bool:
    held = READ.take(DueRefresh.objects.filter(pk=row.pk), Q(due_at=row.due_at, marks=row.marks))
    if held is None:
        return False
    if row.account not in conf.current().ACCOUNTS:
        _postpone(held, row, error=f"the account {row.account} is not configured any more")
        return False
    try:
        wait = 0.0 if hurry else RATE_LIMIT_WAIT
        sync.read(row.object_kind, row.account, row.object_id, background=not hurry, wait=wait)
    except NotFound as error:
        # The row is marked as gone. While handlers wait, the provider may only be behind: it is asked again.
        if held.row.filter(projection.is_awaited()).exists():
            _postpone(held, row, error=recorded_error(error))
            return False
    except (PaymentsError, WireError) as error:
        extra = {"account": row.account, "request_id": request_id_of(error)}
        logger.info("Reading %s failed: %s", row, error, extra=extra)
        _postpone(held, row, error=recorded_error(error))
        return False
    except (*INTERRUPTIONS, ImproperlyConfigured):
        # Otherwise the object's handlers would wait until the claim ends.
        with suppress(ClaimLost, AnyDatabaseError):
            held.release()
        raise
    except BaseException as error:
        # The messages are not stored: they may show the object.
        if condemns(error):
            logger.error("%s cannot be stored: %s", row, described(error), extra={"account": row.account})
            _postpone(held, row, error=f"the database refuses it: {described(error)}")
        elif isinstance(error, AnyDatabaseError):
            raise
        else:  # such as an error of another app's receiver of saved rows
            logger.exception("%s cannot be stored", row, extra={"account": row.account})
            _postpone(held, row, error=f"it cannot be stored: {type(error).__name__}")
        return False
    # If another refresh was requested meanwhile, the row stays and is due again.
    if deleted(held.row.filter(marks=row.marks)):
        return True
    _postpone(held, row)
    return False


def _postpone(held: Held, row: DueRefresh, **values: str) -> None:
    """Read the object again later. If another process is reading it by now, that process decides."""
    due_at = timezone.now() + min(FIRST_BACKOFF * 2 ** min(row.attempts, 20), LONGEST_BACKOFF)
    with suppress(ClaimLost):
        held.release(due_at=due_at, attempts=F("attempts") + 1, **values)
