"""After any exception, check if the call's operation is committed. If it is, its outcome is unknown.

An exception can come at any line: a lost connection, a time limit, another app's hook. The caller must never read "not
executed" while the ledger holds the operation. From the moment at which it may be committed, each exception leads to a
look into the ledger, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from django.db import IntegrityError, connections
from django.views.decorators.debug import sensitive_variables

from payments_integration.db import statements
from payments_integration.db.reconnecting import discard, fresh_connection, is_in_memory
from payments_integration.db.transactions import ledger_database
from payments_integration.exceptions import INTERRUPTIONS, ApprovalRequired, OutcomeUnknown
from payments_integration.models import Operation, OperationState

T = TypeVar("T")

#: In these states an error means what it says.
_WITHOUT_EFFECT = (OperationState.REJECTED, OperationState.CLOSED)

#: ``look(using, waits)``: the operation as the ledger has it. ``waits``: wait for a commit that is under way.
Look = Callable[[str, bool], Operation | None]


class CommitCheck:
    """What one call may have committed, and how to ask the ledger for it after an exception."""

    def __init__(self) -> None:
        self._using = ledger_database()
        #: A test case has a transaction around the call. Only this connection sees what is in it.
        self._is_test_case = connections[self._using].in_atomic_block
        #: The operation that may be committed.
        self._operation: Operation | None = None
        #: Asks the database if the operation is committed; None: it is.
        self._look: Look | None = None

    def expect_insert(self, operation: Operation) -> None:
        """Call before the operation is written for the first time."""
        self._operation, self._look = operation, partial(_inserted, operation)

    def expect_update(self, operation: Operation, **written: Any) -> None:
        """Call before a recorded operation is written. ``written`` holds values that only this call writes."""
        self._operation, self._look = operation, partial(_changed, operation, written)

    def note_committed(self, operation: Operation) -> None:
        """Note that the ledger has this operation of the call."""
        self._operation, self._look = operation, None

    def operation_in_doubt(self) -> Operation | None:
        """Return the call's operation after an exception, if the ledger has it or does not answer.

        Returns None if it ended without effect. Rolls back first what is open on the connection.
        """
        operation = self._operation
        if operation is None or operation.state in _WITHOUT_EFFECT:
            return None
        try:
            if not self._is_test_case:
                discard(self._using)
            if self._look is None:
                return operation
            is_shared = self._is_test_case or is_in_memory(self._using)
            with nullcontext() if is_shared else fresh_connection(self._using):
                found = self._look(self._using, not is_shared and _locks_rows(self._using))
        except INTERRUPTIONS:
            raise
        except BaseException:
            return operation  # no answer
        return None if found is None or found.state in _WITHOUT_EFFECT else found


@sensitive_variables()
def unknown_if_committed(run: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``run(*arguments, check)``. Raise OutcomeUnknown if its operation is committed.

    Any other error means "not executed". Interruptions are raised again, and the outcome is open.
    """
    check = CommitCheck()
    try:
        return run(*arguments, check)
    except (OutcomeUnknown, ApprovalRequired, *INTERRUPTIONS):
        raise
    except BaseException as error:
        operation = check.operation_in_doubt()
        if operation is None:
            raise
        raise OutcomeUnknown(operation, error) from error


def _inserted(operation: Operation, using: str, waits: bool) -> Operation | None:
    if waits:
        # An INSERT waits for a commit that is under way, a read does not. The INSERT is rolled back.
        try:
            if statements.insert_if_free(operation, using=using):
                return None
        except IntegrityError:
            pass  # MariaDB
    rows = Operation.objects.using(using).filter(account=operation.account)
    return rows.filter(idempotency_key=operation.idempotency_key).first()


def _changed(operation: Operation, written: dict[str, Any], using: str, waits: bool) -> Operation | None:
    rows = Operation.objects.using(using).filter(pk=operation.pk, **written)
    return (rows.select_for_update() if waits else rows).first()


def _locks_rows(using: str) -> bool:
    return bool(connections[using].features.has_select_for_update)
