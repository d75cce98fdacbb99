"""Who works on an operation now. Two never do at the same time, and who comes late changes nothing.

A claim writes a token and an expiry; every outcome is written only where the token still stands. A process
that dies leaves its lease behind, and the operation is taken up again when that has run out.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from payments_integration import conf
from payments_integration.models import Operation, OperationState
from payments_integration.transactions import updated

#: Beyond the request's own deadline: waiting on 429, saving the answer, and clocks that disagree a little.
LEASE_MARGIN = 30.0
#: How far clocks of ours may be apart, or one of them be set back.
CLOCK_SLACK = timedelta(minutes=5)


class LeaseLost(Exception):
    """Another worker has taken the operation over; what we learned is left to it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send or resolve one operation, until the lease runs out."""

    operation: Operation
    token: str
    #: An earlier attempt may have been executed: a refusal now proves nothing, and an answer may be old.
    repeated: bool
    #: For how long it has been ours, whatever is done to the clock.
    since: float = field(default_factory=time.monotonic, compare=False)

    def ensure_time(self, wait: float) -> None:
        """Raise LeaseLost unless a request that may wait for ``wait`` seconds first ends within the lease.

        A process may stand still between its claim and its request for as long as the machine likes.
        """
        until, needed = self.operation.lease_until, timedelta(seconds=conf.current().REQUEST_DEADLINE + wait)
        if until is None or timezone.now() + needed > until or time.monotonic() - self.since > LEASE_MARGIN - wait:
            raise LeaseLost


def fingerprint(account: str) -> str:
    """Where an operation of this account is sent and under which key, as a hash."""
    entry = conf.account(account)
    return hashlib.sha256(f"{entry.base_url}\x00{entry.api_key}".encode()).hexdigest()


def sending_fields(operation: Operation, token: str, now: datetime) -> dict[str, Any]:
    """What must be committed before a request leaves."""
    fields: dict[str, Any] = {
        **_lease_fields(operation, token, now),
        "state": OperationState.UNKNOWN,
        "may_have_run": True,
        "last_sent_at": now,
    }
    if not operation.may_have_run:
        # Attempts that were certainly not executed do not count: the provider keeps no key of them.
        fields |= {"first_sent_at": now, "sent_to": fingerprint(operation.account)}
    return fields


def new_token() -> str:
    return uuid.uuid4().hex


def claim_to_send(operation: Operation, states: Collection[str]) -> Claim | None:
    """Take the operation for sending, as it was when it was read; None where another was faster."""
    token, now = new_token(), timezone.now()
    return _take(operation, states, token, now, sending_fields(operation, token, now))


def claim_to_resolve(operation: Operation, states: Collection[str]) -> Claim | None:
    """Take the operation without sending it."""
    token, now = new_token(), timezone.now()
    return _take(operation, states, token, now, _lease_fields(operation, token, now))


def free(now: datetime) -> Q:
    """Operations that nobody holds.

    A lease that ends later than any could was taken while a clock was ahead, and holds nothing back.
    """
    return Q(lease_until__isnull=True) | Q(lease_until__lt=now) | Q(lease_until__gt=now + _duration() + CLOCK_SLACK)


def release(claim: Claim, **values: Any) -> dict[str, Any]:
    """Write an outcome and give the lease back, in one statement; LeaseLost where it is another's by now.

    Returns what was written.
    """
    values |= {"lease_token": "", "lease_until": None}
    if not Operation.objects.filter(pk=claim.operation.pk, lease_token=claim.token).update(**values):
        raise LeaseLost
    return values


def _duration() -> timedelta:
    return timedelta(seconds=conf.current().REQUEST_DEADLINE + LEASE_MARGIN)


def _lease_fields(operation: Operation, token: str, now: datetime) -> dict[str, Any]:
    until = now + _duration()
    return {
        "lease_token": token,
        "lease_until": until,
        "attempts": operation.attempts + 1,
        # Should this process die, it is due again when the lease has run out.
        "next_attempt_at": until,
    }


def _take(
    operation: Operation, states: Collection[str], token: str, now: datetime, fields: dict[str, Any]
) -> Claim | None:
    repeated = operation.may_have_run
    # The decision was made on the row as it was read.
    as_read = Operation.objects.filter(free(now), pk=operation.pk, state__in=states).filter(
        attempts=operation.attempts, state=operation.state, may_have_run=repeated
    )
    if not updated(as_read, **fields):
        return None
    for name, value in fields.items():
        setattr(operation, name, value)
    return Claim(operation, token, repeated)
