"""Take an intent over from a service: record it, then send it at once or after the caller's transaction."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, wakeup
from payments_integration.client import Client
from payments_integration.db import statements
from payments_integration.db.claims import ClaimLost
from payments_integration.db.transactions import (
    drop_if_broken,
    in_transaction,
    ledger_database,
    refuse_hidden_transaction,
    refuse_receiver_outside,
    refuse_transaction_elsewhere,
)
from payments_integration.exceptions import (
    INTERRUPTIONS,
    IdempotencyMismatch,
    NoAnswer,
    OutcomeUnknown,
    PaymentsError,
    RateLimited,
)
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger, operations, outcomes, recovery, second_look, sending
from payments_integration.outbox.ledger import CommitCheck
from payments_integration.outbox.operations import Intent, Precondition, PreconditionFailed
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import WireError
from payments_integration.signals import cause, is_dispatching
from payments_integration.sync import get_client, require_same_key

logger = get_logger(__name__)


def submit(intent: Intent, check: CommitCheck) -> Any:
    """Record the intent, send it, and return the mirror row.

    Sends nothing if its key has an operation that no temporary refusal closed, or before approval (ApprovalRequired).
    """
    known = None if intent.key_is_new else ledger.find(intent)
    if known is not None and not known.has_free_key:
        check.note_committed(known)
        return outcomes.outcome_of(known)
    client = get_client(intent.account)  # a wrong setting raises here, before anything is recorded
    reopenable = None
    if known is not None:
        reopenable = recovery.reopenable(known, is_same_call=ledger.is_same_call(known, intent))
        if reopenable is None:
            known = ledger.find(intent) or known  # raises if it was executed for other arguments
            check.note_committed(known)
            return outcomes.outcome_of(known)
    call = operations.CALLS[intent.operation]
    if call.may_be_a_repeat(intent):
        # A worker looks before it sends (``repeats``).
        return outcomes.outcome_of(submit_later(intent, check))
    precondition = call.precondition(intent)
    operation, is_new = _recorded(
        intent, precondition, client=client, may_read=True, reopenable=reopenable, check=check
    )
    if is_new:
        is_new = second_look.take(operation)
    if not is_new or operation.state == OperationState.AWAITING_APPROVAL:
        return outcomes.outcome_of(operation)
    return sending.send_now(operation, client)


def submit_later(intent: Intent, check: CommitCheck) -> Operation:
    """Record the intent in the caller's transaction, and return its operation. It is sent after the commit."""
    intent = _with_key_of_cause(intent)
    conf.account(intent.account)
    require_same_key(intent.account)
    precondition = operations.CALLS[intent.operation].precondition(intent)
    if precondition is not None and not precondition.when_deferred:
        precondition = None
    refuse_hidden_transaction()
    within = in_transaction()
    if not within:
        refuse_transaction_elsewhere()
    if because := cause():
        refuse_receiver_outside(is_elsewhere=because.thread != threading.get_ident())
    may_read = not within and not is_dispatching()
    known = ledger.find(intent) if may_read and precondition is not None else None
    if known is not None and not known.has_free_key:
        check.note_committed(known)
        return known
    operation, is_new = _recorded(
        # Inside a transaction, the caller's commit decides, and the caller sees if it fails.
        intent, precondition, client=None, may_read=may_read, check=None if within else check
    )  # fmt: skip
    # With autocommit off, the caller commits and Django calls no hook: the schedule sends it.
    caller_commits = within and not connections[ledger_database()].in_atomic_block
    if is_new and operation.state != OperationState.AWAITING_APPROVAL and not is_dispatching():
        if not within:
            _send_deferred(operation.pk)
            operation.refresh_from_db()
        elif not caller_commits:
            transaction.on_commit(partial(_send_deferred, operation.pk), using=ledger_database(), robust=True)
    return operation


def _with_key_of_cause(intent: Intent) -> Intent:
    """Return the intent with a key that is the same when the receivers that ask for it run again, if it has none."""
    because = cause()
    if because is None or intent.idempotency_key:
        return intent
    using = ledger_database()

    def is_recorded(key: str) -> bool:
        return statements.is_there(Operation, using, idempotency_key=key)

    key = because.key(ledger.arguments_hash(intent), connections[using], is_recorded)
    return replace(intent, idempotency_key=key)


@sensitive_variables()
def _recorded(
    intent: Intent,
    precondition: Precondition | None,
    *,
    client: Client | None,
    may_read: bool,
    reopenable: ledger.Reopenable | None = None,
    check: CommitCheck | None = None,
) -> tuple[Operation, bool]:
    """Record a call that was not known, as ``ledger.record``. Without a ``client`` it is deferred.

    ``may_read``: the mirror may be brought up to date.
    """
    deferred = client is None
    until = time.monotonic() + recovery.COMPETITOR_WAIT
    try:
        if may_read and precondition is not None and precondition.prepare():
            recovery.link_competitors(precondition, until=until)
        latest = None
        if client is not None:
            # A first attempt is safe without an answer. Without a ``Date`` there is no second one.
            with suppress(NoAnswer, RateLimited):
                latest = sending.latest_answer(client)
        record = partial(
            ledger.record, intent, precondition, deferred=deferred, latest=latest, reopenable=reopenable, check=check
        )
        try:
            # A call at once was looked up before, a deferred one only if it has a precondition.
            return record(is_looked_up=not deferred)
        except PreconditionFailed:
            if precondition is None or not may_read:
                raise
            # A concurrent call with this key may have taken what this one asks for.
            known = _found(intent)
            if known is not None:
                return known, False
            recovery.bring_up_to_date(precondition, until=until)
            return record()
    except (OutcomeUnknown, IdempotencyMismatch):
        raise
    except (ValidationError, PaymentsError, WireError):
        # A concurrent call with this key may have been recorded. Then this error would wrongly mean "not executed".
        known = _found(intent)
        if known is None:
            raise
        return known, False


def _found(intent: Intent) -> Operation | None:
    """Return the operation that a concurrent call with this key has recorded."""
    known = ledger.find(intent)
    return None if known is None or known.has_free_key else known


def _send_deferred(pk: str) -> None:
    """Send a committed operation. No caller waits: errors are logged, and the schedule resumes it."""
    try:
        operation = Operation.objects.get(pk=pk)
        if recovery.send(operation, (OperationState.DUE,)):
            wakeup.wake(operation.account)
    except ClaimLost:
        logger.info("Operation %s was taken over by another worker", pk, extra={"operation_id": pk})
    except OutcomeUnknown:
        logger.info("The outcome of operation %s is not known yet", pk, extra={"operation_id": pk})
    except INTERRUPTIONS:
        raise
    except BaseException:  # also CancelledError, and the time-outs of gevent
        logger.exception("Sending operation %s failed; it will be resumed", pk, extra={"operation_id": pk})
        # A server that ends while Django connects leaves autocommit off: the caller's next call would be refused.
        drop_if_broken(ledger_database())
