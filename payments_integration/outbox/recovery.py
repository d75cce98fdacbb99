"""Finish operations that their caller could not finish: deferred, rate-limited, interrupted or unknown.

An unknown operation is sent again under its key while the provider knows that key. After that, or if it went to
another address, it is looked up (``look_ups``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

from django.core.exceptions import ImproperlyConfigured
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from payments_integration import conf, sync, wakeup
from payments_integration.db.claims import ClaimLost, expired
from payments_integration.db.statements import are_there
from payments_integration.db.transactions import ledger_database, refuse_transaction
from payments_integration.exceptions import (
    INTERRUPTIONS,
    NoAnswer,
    PagingError,
    ProviderError,
    WireError,
    request_id_of,
)
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger, look_ups, outcomes, repeats, sending
from payments_integration.outbox.operations import Precondition
from payments_integration.outbox.outcomes import Claim
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import is_dispatching
from payments_integration.sync import get_client

logger = get_logger(__name__)

RESUMABLE = (OperationState.DUE, OperationState.UNKNOWN)
#: After waiting this long, an operation is sent only by a person.
SEND_WITHIN = timedelta(hours=24)
DEFAULT_LIMIT = 200
#: A pass starts no further operation after this many seconds. The next pass continues.
PASS_SECONDS = 240.0
#: A call waits this many seconds for another operation on the same object that is being sent.
COMPETITOR_WAIT = 10.0


def resume_operations(
    account: str | None = None, *, limit: int = DEFAULT_LIMIT, deadline: float | None = None
) -> dict[str, int]:
    """Send, send again or look up the operations that are due.

    Args:
        account: An alias; without it all accounts. A person decides about operations of accounts that are no longer
            configured, after 24 hours.
        limit: Operations at most.
        deadline: A ``time.monotonic()`` after which no further operation is started; by default after four minutes.

    Returns:
        How many ended in which state. The keys are the values of OperationState, plus ``skipped`` (another worker
        holds it) and ``failed`` (an error on our side, logged; after 48 hours a person decides).

    Raises:
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("resume_operations", is_dispatching=is_dispatching())
    deadline = time.monotonic() + PASS_SECONDS if deadline is None else deadline
    sync.compare_keys(account)
    # Most passes end here: the query of the rest takes twenty times as long to build.
    if not any(are_there(*((Operation, state) for state in RESUMABLE), using=ledger_database())):
        return {}
    due = due_operations()
    if account is not None:
        due = due.filter(account=conf.account(account).alias)
    due = due.order_by(F("next_attempt_at").asc(nulls_first=True), "created_at", "pk")
    counts: dict[str, int] = {}
    touched: set[str] = set()
    for pk, alias in list(due.values_list("pk", "account")[:limit]):
        if stopping.is_over(deadline):
            break
        outcome = _resume_safely(pk)
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome not in ("skipped", "failed"):
            touched.add(alias)
    for alias in conf.aliases():
        if alias in touched:
            wakeup.wake(alias)
    return counts


def due_operations() -> QuerySet[Operation]:
    """Return the operations of all accounts that a worker should resume now."""
    now = timezone.now()
    due = Operation.objects.filter(ledger.claims().free(now=now), _due(now), state__in=RESUMABLE)
    # One deploy may lack an account by mistake: a person decides only if the next ones lack it too.
    due = due.filter(Q(account__in=conf.aliases()) | Q(created_at__lt=now - SEND_WITHIN))
    # Their operations wait while the account's API key may be of another project.
    return due.exclude(account__in=sync.waiting_accounts())


def resume(operation: Operation) -> bool:
    """Take one operation a step further. Returns False if another worker holds it or it is no longer due."""
    if operation.account not in conf.aliases():
        # Without its account nothing can be asked or sent.
        why = f"the account {operation.account} is not configured any more"
        return _without_sending(operation, RESUMABLE, partial(outcomes.needs_person, why=why))
    if not operation.may_have_run:
        # A call that took a free key may be of today, however old the operation is. It is tried at least once.
        is_tried_again = operation.first_sent_at is not None
        if timezone.now() - operation.created_at > SEND_WITHIN and not is_tried_again:
            why = "it could not be sent for 24 hours"
            return _without_sending(operation, RESUMABLE, partial(outcomes.needs_person, why=why))
        return send(operation, RESUMABLE)
    if sending.may_resend(operation):
        return send(operation, RESUMABLE)
    return _without_sending(operation, RESUMABLE, look_ups.resolve_by_reading)


def _without_sending(operation: Operation, states: Collection[str], write: Callable[[Claim], None]) -> bool:
    """Claim the operation and write an outcome without sending it. Returns False if another worker holds it."""
    claim = outcomes.claim_to_resolve(operation, states)
    if claim is not None:
        write(claim)
    return claim is not None


def send(operation: Operation, states: tuple[OperationState, ...]) -> bool:
    """Claim and send the operation. Returns False if another worker was faster.

    It is looked up instead if the provider may have forgotten its key, and looked up first if the ledger may have
    forgotten an attempt. A person decides about an obstacle (``repeats``).
    """
    latest = None
    try:
        verdict = repeats.find_obstacle(operation)
        if verdict is None and not operation.may_have_run:
            latest = sending.latest_answer(get_client(operation.account))
    except (ProviderError, NoAnswer, PagingError) as error:
        return _without_sending(operation, states, partial(outcomes.due, error=error))
    except WireError as error:
        verdict = look_ups.Verdict(f"what was found cannot be read: {error}")
    if verdict is not None:
        return _without_sending(operation, states, partial(look_ups.write_verdict, verdict=verdict))
    claim = outcomes.claim_to_send(operation, states, latest)
    if claim is not None:
        try:
            sending.attempt(claim, get_client(operation.account), max_wait=sync.WORKER_WAIT)
        except sending.KeyExpired:
            look_ups.resolve_by_reading(claim)
    return claim is not None


def reopenable(operation: Operation, *, is_same_call: bool) -> ledger.Reopenable | None:
    """Return an operation whose key is free, to be sent as a first attempt; or None if it was executed.

    An executed one is linked to its object. While the key is younger than 23 hours at the provider, it protects
    the same call. Otherwise the operation is looked up as before any late first send. Raises ValidationError if
    something may be its object, and what reading raises.
    """
    is_same_place = operation.sent_to == conf.fingerprint(operation.account)
    if is_same_call and is_same_place and sending.is_key_known(operation):
        return ledger.Reopenable(operation, key_is_known=True)
    verdict = repeats.find_result(operation)
    if verdict is None:
        return ledger.Reopenable(operation, key_is_known=False)
    claim = outcomes.claim_to_resolve(operation, (OperationState.CLOSED,)) if verdict.is_clear else None
    if claim is None:
        raise ledger.perhaps_executed(operation, verdict.note)
    look_ups.write_verdict(claim, verdict)
    return None


def bring_up_to_date(precondition: Precondition, *, until: float | None = None) -> None:
    """Read at the provider everything that a precondition decides on. ``until``: see ``link_competitors``."""
    precondition.refresh()
    link_competitors(precondition, until=until)


def link_competitors(precondition: Precondition, *, until: float | None = None) -> None:
    """Link operations of unknown outcome to the objects that were just read, so that none counts twice.

    Waits for an operation that is being sent, until ``until`` (``time.monotonic()``, by default 10 s from now). An
    operation that cannot be linked counts twice. That may refuse the caller's refund, but never lets it exceed the
    rest.
    """
    until = time.monotonic() + COMPETITOR_WAIT if until is None else until
    for operation in precondition.competitors():
        while _is_held(operation) and time.monotonic() < until:
            time.sleep(0.1)
            operation.refresh_from_db()
        if operation.state == OperationState.UNKNOWN:
            try:
                look_ups.link_if_found(operation)
            except (ProviderError, NoAnswer, PagingError, WireError) as error:
                extra = {**ledger.log_ids(operation), "request_id": request_id_of(error)}
                logger.info("Operation %s could not be looked up: %s", operation.pk, type(error).__name__, extra=extra)


def _is_held(operation: Operation) -> bool:
    return not Operation.objects.filter(ledger.claims().free(), pk=operation.pk).exists()


def _due(now: datetime) -> Q:
    """Match operations whose time has come."""
    longest = timedelta(seconds=outcomes.LONGEST_DELAY)
    return Q(next_attempt_at__isnull=True) | expired("next_attempt_at", longest, now=now)


def _resume_safely(pk: str) -> str:
    """Resume one operation, so that its error does not stop the others."""
    try:
        operation = Operation.objects.get(pk=pk)
    except Exception:
        logger.exception("Reading operation %s failed", pk, extra={"operation_id": pk})
        return "failed"
    try:
        if operation.state not in RESUMABLE or not resume(operation):
            return "skipped"
        return str(operation.state)
    except ClaimLost:
        return "skipped"
    except (*INTERRUPTIONS, ImproperlyConfigured):
        raise
    except BaseException as error:  # also CancelledError, and the time-outs of gevent
        extra = {**ledger.log_ids(operation), "request_id": request_id_of(error)}
        logger.exception("Resuming operation %s failed", pk, extra=extra)
        return _failed(operation, error)


def _failed(operation: Operation, error: BaseException) -> str:
    """Try again when the operation's claim has ended, for 48 hours at most, after an error on our side."""
    since = operation.first_sent_at or operation.created_at
    if operation.state not in RESUMABLE or timezone.now() - since <= look_ups.GIVE_UP_AFTER:
        return "failed"
    claim = Claim(operation, operation.claim_token, earlier_may_have_run=operation.may_have_run)
    try:
        # The error's text may repeat what the operation holds; its type does not.
        outcomes.needs_person(claim, f"an error on our side keeps it from an end: {type(error).__name__}")
    except Exception:
        logger.exception("Operation %s could not be handed to a person", operation.pk, extra=ledger.log_ids(operation))
        return "failed"
    return str(operation.state)
