"""The two ways to make a call: at once, and deferred to the end of the caller's transaction.

A service function as it is written validates its arguments and returns an Intent; :func:`sends` turns it into
the public function, which records the intent, sends it and returns the mirror row.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from django.db import connections, transaction
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, wakeup
from payments_integration.client import get_client
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation, OperationState
from payments_integration.services import guards, leases, ledger, resuming, sending
from payments_integration.services.intents import Doubt, Intent
from payments_integration.telling import is_telling

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
            outcome: R = perform(prepare(*args, **kwargs))
            return outcome

        public = wraps(prepare)(call)
        # What people and tools see is the call, not the preparation.
        public.__annotations__ = {**prepare.__annotations__, "return": result}
        signature = inspect.signature(prepare).replace(return_annotation=result)
        setattr(public, "__signature__", signature)  # noqa: B010  (functions declare no such attribute)
        _prepare[public] = prepare
        return public

    return decorate


def perform(intent: Intent) -> Any:
    """Record, send, and write the answer. Nothing is sent where the key stands for an operation already."""
    known = ledger.find(intent)
    if known is not None:
        return ledger.replay(known)
    get_client(intent.account)  # a wrong setting shows here, before anything is recorded
    if intent.guard is not None:
        intent.guard.before()
    try:
        operation, is_new = ledger.record(intent, deferred=False)
    except Doubt:
        if intent.guard is None:
            raise
        intent.guard.refresh()
        operation, is_new = ledger.record(intent, deferred=False)
    return sending.send_now(operation) if is_new else ledger.replay(operation)


@sensitive_variables()
def defer(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Operation:
    """Record a call of a service function in the caller's transaction, to be sent after that commits.

    ``defer(create_payout, amount=…, …)``. Validates like the function itself, except that it cannot refresh
    the mirror inside a transaction and takes its word. Returns the Operation; where the key stands for one
    already, that one. If the transaction rolls back, nothing is sent. What becomes of it shows in the
    Operation and in the mirror; a refusal by the provider raises nothing and calls ``attention``. Outside a
    transaction it is sent before this returns; while a receiver is told, and with autocommit off outside
    ``atomic``, it is sent by the next ``resume_operations``.

    Raises ValidationError, IdempotencyMismatch, TypeError for what is no service function that sends; outside
    a transaction also OutcomeUnknown, where the database does not say whether it was recorded.
    """
    prepare = _prepare.get(function)
    if prepare is None:
        raise TypeError(f"{getattr(function, '__name__', function)!r} cannot be deferred")
    intent = prepare(*args, **kwargs)
    conf.account(intent.account)
    within = guards.in_transaction()
    may_read = not within and not is_telling()
    if may_read and intent.guard is not None and ledger.find(intent) is None:
        intent.guard.before()
    try:
        operation, is_new = ledger.record(intent, deferred=True)
    except Doubt:
        if intent.guard is None or not may_read:
            raise
        intent.guard.refresh()
        operation, is_new = ledger.record(intent, deferred=True)
    if is_new and not is_telling():
        if not within:
            _send_deferred(operation.pk)
            operation.refresh_from_db()
        elif connections[guards.database()].in_atomic_block:
            transaction.on_commit(partial(_send_deferred, operation.pk), using=guards.database(), robust=True)
        # Else the caller commits by hand, with autocommit off, and Django tells nobody when.
    return operation


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
