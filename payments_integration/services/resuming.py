"""Bringing operations to an end that their callers could not: deferred, limited, crashed or unknown ones."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db.models import F, Q
from django.utils import timezone

from payments_integration import conf, wakeup
from payments_integration.models import Operation, OperationState
from payments_integration.services import leases, lookups, outcomes, sending
from payments_integration.services.guards import refuse_transaction

logger = logging.getLogger(__name__)

#: States that are worked on without a person.
RESUMABLE = (OperationState.DUE, OperationState.UNKNOWN)
#: What was recorded and could not be sent for so long is no longer sent by itself.
SEND_WITHIN = timedelta(hours=24)
DEFAULT_LIMIT = 200
#: A pass starts nothing further after so many seconds: jobs are short, and the next pass goes on.
PASS_SECONDS = 240.0


def resume_operations(
    account: str | None = None, *, limit: int = DEFAULT_LIMIT, deadline: float | None = None
) -> dict[str, int]:
    """Work off what is due: send, send again, or look up. Returns how many ended up in which state.

    Keys of the result: the values of OperationState, plus ``skipped`` (another worker holds it) and
    ``failed`` (an error of ours, logged; after 48 hours it is for a person). Without ``account`` also those of
    accounts that are not configured any more: they are for a person. ``limit``: operations at most.
    ``deadline``: a ``time.monotonic()`` after which no further one is started; by default after four minutes.
    Raises TransactionRefused in a transaction.
    """
    refuse_transaction("resume_operations")
    now = timezone.now()
    deadline = time.monotonic() + PASS_SECONDS if deadline is None else deadline
    due = Operation.objects.filter(leases.free(now), _due(now), state__in=RESUMABLE)
    if account is not None:
        due = due.filter(account=conf.account(account).alias)
    due = due.order_by(F("next_attempt_at").asc(nulls_first=True), "created_at", "pk")
    counts: dict[str, int] = {}
    touched: set[str] = set()
    for pk, alias in list(due.values_list("pk", "account")[:limit]):
        if time.monotonic() >= deadline:
            break
        outcome = _resume_safely(pk)
        counts[outcome] = counts.get(outcome, 0) + 1
        touched.add(alias)
    for alias in conf.aliases():
        if alias in touched:
            wakeup.wake(alias)
    return counts


def _due(now: datetime) -> Q:
    """Operations whose time has come; a time further ahead than any wait is one of a clock that was wrong."""
    latest = now + timedelta(seconds=outcomes.LONGEST_DELAY) + leases.CLOCK_SLACK
    return Q(next_attempt_at__isnull=True) | Q(next_attempt_at__lte=now) | Q(next_attempt_at__gt=latest)


def resume(operation: Operation) -> bool:
    """Take one operation a step further; False where another worker holds it or it is not due for that any
    more.
    """
    if operation.account not in conf.aliases():
        # Nothing can be asked or sent, and nobody else would ever tell.
        return _hand_over(operation, f"the account {operation.account} is not configured any more")
    if operation.state == OperationState.DUE:
        if timezone.now() - operation.created_at > SEND_WITHIN:
            return _hand_over(operation, "it could not be sent for 24 hours")
        return send(operation, RESUMABLE)
    if sending.may_resend(operation):
        return send(operation, RESUMABLE)
    claim = leases.claim_to_resolve(operation, RESUMABLE)
    if claim is not None:
        lookups.look_up(claim)
    return claim is not None


def send(operation: Operation, states: tuple[OperationState, ...]) -> bool:
    """Claim and send; False where another worker was faster."""
    claim = leases.claim_to_send(operation, states)
    if claim is not None:
        sending.attempt(claim, max_wait=sending.BACKGROUND_WAIT)
    return claim is not None


def _hand_over(operation: Operation, why: str) -> bool:
    """Leave it to a person; False where another worker holds it."""
    claim = leases.claim_to_resolve(operation, RESUMABLE)
    if claim is not None:
        outcomes.person(claim, why)
    return claim is not None


def _resume_safely(pk: str) -> str:
    """One operation's trouble does not stop the others."""
    try:
        operation = Operation.objects.get(pk=pk)
    except Exception:
        logger.exception("Reading operation %s failed", pk)
        return "failed"
    try:
        if operation.state not in RESUMABLE or not resume(operation):
            return "skipped"
        return str(operation.state)
    except leases.LeaseLost:
        return "skipped"
    except ImproperlyConfigured:
        raise
    except Exception as error:
        logger.exception("Resuming operation %s failed", pk)
        return _failed(operation, error)


def _failed(operation: Operation, error: Exception) -> str:
    """After an error of ours: its lease stays until it runs out, and it is tried again, but not for ever."""
    since = operation.first_sent_at or operation.created_at
    if operation.state not in RESUMABLE or timezone.now() - since <= lookups.GIVE_UP_AFTER:
        return "failed"
    claim = leases.Claim(operation, operation.lease_token, repeated=operation.may_have_run)
    try:
        # The error's text may repeat what the operation holds; its type does not.
        outcomes.person(claim, f"an error of ours keeps it from an end: {type(error).__name__}")
    except Exception:
        logger.exception("Operation %s could not be handed to a person", operation.pk)
        return "failed"
    return str(operation.state)
