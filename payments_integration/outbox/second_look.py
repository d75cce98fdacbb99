"""Look once more for what others asked for, between the record of a call and its request.

Two people who ask for the same at once find nothing before they press. Once both calls are committed, at least one of
them finds the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token

from django.core.exceptions import ValidationError
from django.utils import timezone

from payments_integration.db.transactions import updated_row
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger
from payments_integration.outbox.outcomes import RELEASED

_look: ContextVar[Callable[[Operation], None] | None] = ContextVar("payments_integration_second_look", default=None)


class SecondLook:
    """A context in which ``look`` is called with a new operation when it is committed.

    If it raises ValidationError, the operation is closed and not sent.
    """

    def __init__(self, look: Callable[[Operation], None]) -> None:
        self._wanted = look
        self._token: Token[Callable[[Operation], None] | None] | None = None

    def __enter__(self) -> None:
        self._token = _look.set(self._wanted)

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _look.reset(self._token)


def take(operation: Operation) -> bool:
    """Take the second look of the context. If it raises ValidationError, close the new operation and raise it.

    Returns False if the operation is no longer this call's to send or close: its row has the outcome.
    """
    look = _look.get()
    try:
        if look is not None:
            look(operation)
    except ValidationError:
        closing = RELEASED | {
            "state": OperationState.CLOSED,
            "closed_at": timezone.now(),
            "next_attempt_at": None,
            "may_have_run": False,
            "note": operation.with_note("it was not sent: the same was asked for at the same time"),
        }
        # One that waits for approval has no claim, and a person may have approved it during the look.
        as_recorded = {"id": operation.pk, "claim_token": operation.claim_token, "state": operation.state}
        if not updated_row(Operation, where=as_recorded, values=closing):
            operation.refresh_from_db()
            return False
        ledger.assign(operation, closing)
        raise
    return True
