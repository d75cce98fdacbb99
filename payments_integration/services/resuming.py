"""Bringing operations to an end that their callers could not: deferred, limited, crashed or unknown ones."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

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
    ``failed`` (an error of ours, logged). ``limit``: operations at most. ``deadline``: a ``time.monotonic()``
    after which no further one is started; by default after four minutes. Raises TransactionRefused in a
    transaction.
    """
    refuse_transaction("resume_operations")
    now = timezone.now()
    deadline = time.monotonic() + PASS_SECONDS if deadline is None else deadline
    due = (
        Operation.objects.filter(leases.free(now), account__in=conf.aliases(account), state__in=RESUMABLE)
        .filter(Q(next_attempt_at__isnull=True) | Q(next_attempt_at__lte=now))
        .order_by(F("next_attempt_at").asc(nulls_first=True), "created_at", "pk")
    )
    counts: dict[str, int] = {}
    touched: dict[str, None] = {}
    for pk, alias in list(due.values_list("pk", "account")[:limit]):
        if time.monotonic() >= deadline:
            break
        outcome = _resume_safely(pk)
        counts[outcome] = counts.get(outcome, 0) + 1
        touched[alias] = None
    for alias in touched:
        wakeup.wake(alias)
    return counts


def resume(operation: Operation) -> bool:
    """Take one operation a step further; False where another worker holds it or it is not due for that any
    more.
    """
    if operation.state == OperationState.DUE:
        if timezone.now() - operation.created_at > SEND_WITHIN:
            claim = leases.claim_to_resolve(operation, RESUMABLE)
            if claim is not None:
                outcomes.person(claim, "it could not be sent for 24 hours")
            return claim is not None
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


def _resume_safely(pk: str) -> str:
    """One operation's trouble does not stop the others."""
    try:
        operation = Operation.objects.get(pk=pk)
        if operation.state not in RESUMABLE or not resume(operation):
            return "skipped"
        return str(operation.state)
    except leases.LeaseLost:
        return "skipped"
    except ImproperlyConfigured:
        raise
    except Exception:
        # Its lease stays until it runs out; then it is tried again.
        logger.exception("Resuming operation %s failed", pk)
        return "failed"
