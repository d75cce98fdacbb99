"""The two ways to make a call: at once, and deferred to the end of the caller's transaction.

A service function as it is written validates its arguments and returns an Intent; :func:`sends` turns it into
the public function, which records the intent, sends it and returns the mirror row.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, signals, wakeup
from payments_integration.client import get_client
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.models import Operation, OperationState
from payments_integration.reasons import Reason
from payments_integration.services import guards, leases, ledger, permissions, resuming, sending
from payments_integration.services.intents import Doubt, Intent
from payments_integration.telling import is_telling
from payments_integration.wire import WireError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_prepare: dict[Callable[..., Any], Callable[..., Intent]] = {}


def sends(result: type[R]) -> Callable[[Callable[P, Intent]], Callable[P, R]]:
    """Make a function that prepares an intent into one that carries it out and returns a ``result``."""

    def decorate(prepare: Callable[P, Intent]) -> Callable[P, R]:
        # The arguments hold personal data: error reports show the frames from here on without them.
        @sensitive_variables()
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            guards.refuse_transaction(prepare.__name__)
            outcome: R = perform(_prepared(prepare, args, kwargs))
            return outcome

        public = wraps(prepare)(call)
        # What people and tools see is the call, not the preparation.
        public.__annotations__ = {**prepare.__annotations__, "return": result}
        signature = inspect.signature(prepare).replace(return_annotation=result)
        setattr(public, "__signature__", signature)  # noqa: B010  (functions declare no such attribute)
        _prepare[public] = prepare
        return public

    return decorate


@cache
def _subject(prepare: Callable[..., Intent]) -> str:
    """The argument that a call is about; "" where there is none."""
    first = next(iter(inspect.signature(prepare).parameters.values()))
    return first.name if first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else ""


@sensitive_variables()
def _prepared(prepare: Callable[..., Intent], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Intent:
    """The intent of a call by whoever makes it, who must be allowed to: asked before anything else."""
    actor = kwargs.get("actor")
    subject = _subject(prepare)
    permissions.check(prepare.__name__, actor, (args[0] if args else kwargs.get(subject)) if subject else None)
    intent = prepare(*args, **kwargs)
    return dataclasses.replace(intent, actor_id=ledger.user_id(actor))


def perform(intent: Intent) -> Any:
    """Record, send, and write the answer. Nothing is sent where the key stands for an operation already, or where a
    second person must approve first.
    """
    known = ledger.find(intent)
    if known is not None:
        return ledger.replay(known)
    get_client(intent.account)  # a wrong setting shows here, before anything is recorded
    operation, is_new = _recorded(intent, deferred=False, may_read=True)
    if not is_new:
        return ledger.replay(operation)
    if operation.state == OperationState.AWAITING_APPROVAL:
        _ask_for_approval(operation)
        raise ApprovalRequired(operation)
    return sending.send_now(operation)


@sensitive_variables()
def _recorded(intent: Intent, *, deferred: bool, may_read: bool) -> tuple[Operation, bool]:
    """As ``ledger.record``, of a call that was not known. ``may_read``: its guard may bring the mirror up to date."""
    guard = intent.guard
    try:
        if may_read and guard is not None:
            guard.before()
        try:
            # A call at once was looked up before, a deferred one only where it has a guard.
            return ledger.record(intent, deferred=deferred, is_looked_up=not deferred)
        except Doubt:
            if guard is None or not may_read:
                raise
            guard.refresh()
            return ledger.record(intent, deferred=deferred)
    except (OutcomeUnknown, IdempotencyMismatch):
        raise
    except (ValidationError, PaymentsError, WireError):
        # The same call may have come twice at once, and the other one been recorded meanwhile. Then nobody may be
        # told that it did not happen.
        known = ledger.find(intent)
        if known is None:
            raise
        return known, False


@sensitive_variables()
def defer(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Operation:
    """Record a call of a service function in the caller's transaction, to be sent after that commits.

    ``defer(create_payout, amount=…, …)``. Validates like the function itself, except that it cannot refresh
    the mirror inside a transaction and takes its word, and leaves it to the provider whether the balance covers a
    payout. Returns the Operation; where the key stands for one already, that one; over its limit it waits for
    approval, and nothing is raised. If the transaction rolls back, nothing is sent. What becomes of it shows in the
    Operation and in the mirror; a refusal by the provider raises nothing and calls ``attention``. Outside a
    transaction it is sent before this returns; while a receiver is told, and with autocommit off outside
    ``atomic``, it is sent by the next ``resume_operations``.

    Raises ValidationError, IdempotencyMismatch, TypeError for what is no service function that sends; outside
    a transaction also OutcomeUnknown, where the database does not say whether it was recorded.
    """
    prepare = _prepare.get(function)
    if prepare is None:
        raise TypeError(f"{getattr(function, '__name__', function)!r} cannot be deferred")
    intent = _prepared(prepare, args, kwargs)
    if intent.guard is not None and not intent.guard.when_deferred:
        intent = dataclasses.replace(intent, guard=None)
    conf.account(intent.account)
    within = guards.in_transaction()
    may_read = not within and not is_telling()
    known = ledger.find(intent) if may_read and intent.guard is not None else None
    operation, is_new = (known, False) if known else _recorded(intent, deferred=True, may_read=may_read)
    by_hand = within and not connections[guards.database()].in_atomic_block
    if is_new and operation.state == OperationState.AWAITING_APPROVAL:
        if not within:
            _ask_for_approval(operation)
        elif not by_hand:
            transaction.on_commit(partial(_ask_for_approval, operation), using=guards.database(), robust=True)
    elif is_new and not is_telling():
        if not within:
            _send_deferred(operation.pk)
            operation.refresh_from_db()
        elif not by_hand:
            transaction.on_commit(partial(_send_deferred, operation.pk), using=guards.database(), robust=True)
        # Else the caller commits by hand, with autocommit off, and Django tells nobody when.
    return operation


def _ask_for_approval(operation: Operation) -> None:
    """Tell somebody. Once it has been committed: until then nothing waits."""
    signals.call_attention(
        Operation,
        Reason.OPERATION_AWAITS_APPROVAL,
        account=operation.account,
        message=f"{operation.operation} {operation.pk} waits for a second person's approval",
        instance=operation,
    )


def _send_deferred(pk: str) -> None:
    """Send what was committed.

    Nobody waits for the outcome: it is logged, and what failed is resumed later.
    """
    try:
        operation = Operation.objects.get(pk=pk)
        if resuming.send(operation, (OperationState.DUE,)):
            wakeup.wake(operation.account)
    except leases.LeaseLost:
        logger.info("Operation %s was taken over by another worker", pk)
    except OutcomeUnknown:
        logger.info("The outcome of operation %s is not known yet", pk)
    except Exception:
        logger.exception("Sending operation %s failed; it will be resumed", pk)
