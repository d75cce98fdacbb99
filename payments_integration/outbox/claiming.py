"""Claim operations: a worker claims one before it sends or resolves it, and writes the outcome under its claim."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.client import LatestAnswer
from payments_integration.db.claims import ClaimLost, Claims, new_token
from payments_integration.db.transactions import updated, updated_row
from payments_integration.models import Operation, OperationState

#: Added to the request's own deadline: waiting on 429, saving the answer, and clocks that disagree a little.
CLAIM_MARGIN = 30.0
#: The values of an operation that no worker has.
RELEASED = Claims(timedelta()).free_values()


class ClaimTooShort(ClaimLost):
    """The claim is too short for a request, so nothing was sent. Another worker takes the operation over."""


def claims() -> Claims:
    """Return how operations are claimed."""
    return Claims(timedelta(seconds=conf.current().REQUEST_DEADLINE + CLAIM_MARGIN))


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send or resolve one operation, until the claim ends."""

    operation: Operation
    token: str
    #: An earlier attempt may have been executed. Then a refusal now proves nothing, and an answer may be old.
    earlier_may_have_run: bool
    #: When it was claimed, on a clock that cannot be set. The function is looked up, because freezegun replaces it.
    since: float = field(default_factory=lambda: time.monotonic(), compare=False)  # noqa: PLW0108
    length: timedelta = field(default_factory=lambda: claims().length, compare=False)

    def ensure_time(self, wait: float) -> None:
        """Raise ClaimTooShort unless a request, after waiting for up to ``wait`` seconds, ends within the claim.

        A process may be stopped between its claim and its request for any length of time.
        """
        self.ensure_lasts(self.length.total_seconds() - CLAIM_MARGIN + wait)

    def ensure_lasts(self, seconds: float) -> None:
        """Raise ClaimTooShort unless the claim lasts this many seconds more, by either clock."""
        until = self.operation.claimed_until
        if until is None or timezone.now() + timedelta(seconds=seconds) > until:
            raise ClaimTooShort
        if time.monotonic() - self.since > self.length.total_seconds() - seconds:
            raise ClaimTooShort

    def release(self, **values: Any) -> None:
        """Write an outcome and end the claim, in one statement. Raises ClaimLost."""
        where = {"id": self.operation.pk, "claim_token": self.token}
        if not updated_row(Operation, where=where, values=RELEASED | values):
            raise ClaimLost("another worker has taken this operation")


def sending_fields(operation: Operation, token: str, latest: LatestAnswer | None = None) -> dict[str, Any]:
    """Return the fields to commit before a request leaves. ``latest`` is the provider's latest answer."""
    now = timezone.now()
    fields: dict[str, Any] = {
        **_claim_fields(operation, token),
        "state": OperationState.UNKNOWN,
        "may_have_run": True,
        "last_sent_at": now,
    }
    if not operation.may_have_run:
        # An attempt that was certainly not executed does not count: the provider does not know its key.
        fields |= {
            "first_sent_at": now,
            "sent_after": latest.date if latest is not None else None,
            "sent_to": conf.fingerprint(operation.account),
        }
    return fields


def claim_to_send(operation: Operation, states: Collection[str], latest: LatestAnswer | None = None) -> Claim | None:
    """Claim the operation for sending if it is as it was read. Returns None if another worker was faster.

    ``latest`` is the provider's latest answer, for a first attempt.
    """
    return _take(operation, states, sending_fields(operation, new_token(), latest))


def claim_to_resolve(operation: Operation, states: Collection[str]) -> Claim | None:
    """Claim the operation without sending it. Returns None if another worker was faster."""
    return _take(operation, states, _claim_fields(operation, new_token()))


def unclaimed(operation: Operation, states: Collection[str]) -> QuerySet[Operation]:
    """Match the operation's row if it is unchanged since the read, unclaimed, and in one of these states."""
    return Operation.objects.filter(claims().free(), pk=operation.pk, state__in=states, attempts=operation.attempts)


def _claim_fields(operation: Operation, token: str) -> dict[str, Any]:
    claimed = claims().values(token)
    # If this process dies, the operation is due again when the claim ends.
    return {**claimed, "attempts": operation.attempts + 1, "next_attempt_at": claimed["claimed_until"]}


def _take(operation: Operation, states: Collection[str], fields: dict[str, Any]) -> Claim | None:
    may_have_run = operation.may_have_run
    as_read = unclaimed(operation, states).filter(state=operation.state, may_have_run=may_have_run)
    if not updated(as_read, **fields):
        return None
    for name, value in fields.items():
        setattr(operation, name, value)
    return Claim(operation, fields["claim_token"], may_have_run)
