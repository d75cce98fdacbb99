"""The ledger: every operation, committed before it is sent, unique by (account, key), kept for ever.

Leases allow one worker at a time per operation. A claim writes a token and an expiry, and every outcome is written
only while the token is unchanged: a worker that comes too late changes nothing. If a process dies, another worker
claims the operation when the lease has run out.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import conf, schemas, sync
from payments_integration.attention import call_attention
from payments_integration.client import LatestAnswer
from payments_integration.db.transactions import expired, ledger_database, repeatable, updated
from payments_integration.exceptions import (
    ApprovalRequired,
    IdempotencyMismatch,
    OperationClosed,
    OutcomeUnknown,
    PaymentsError,
    closing_error,
    provider_error,
)
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.outbox import operations
from payments_integration.outbox.guard import Progress
from payments_integration.outbox.intents import Intent, Precondition
from payments_integration.reasons import Reason
from payments_integration.signals import dispatched_at

#: These fields of the payer differ from one attempt of the same intent to the next.
_NOT_COMPARED = ("ip", "device_id")


def find(intent: Intent) -> Operation | None:
    """The operation that the call's key belongs to; raises IdempotencyMismatch if that was a different call.

    Raises it too if the key belongs to an operation of another alias of the same account at the provider.
    """
    if not intent.idempotency_key:
        return None
    known = Operation.objects.filter(idempotency_key=intent.idempotency_key)
    # Most keys are new, and Django answers EXISTS in a third of the time of a row.
    if not known.exists():
        return None
    operation = known.filter(account=intent.account).first()
    if operation is not None:
        return _same(operation, intent)
    renamed = known.filter(sent_to=fingerprint(intent.account)).first()
    if renamed is not None:
        old, new = renamed.account, intent.account
        raise IdempotencyMismatch(
            f"this idempotency key belongs to operation {renamed.pk} of the account {old}, which has the address and "
            f"API key of {new}; nothing was sent. If you renamed it, run payments_rename_account {old} {new}"
        )
    return None


def record(
    intent: Intent,
    precondition: Precondition | None = None,
    *,
    deferred: bool,
    latest: LatestAnswer | None = None,
    is_looked_up: bool = False,
    reopened: Reopened | None = None,
    progress: Progress | None = None,
) -> tuple[Operation, bool]:
    """The operation of this intent, and whether it is to be sent now as new.

    A call at once is committed when this returns, and claimed in the same commit, so that no other worker sends it;
    ``latest`` is the provider's latest answer, if there is one. A deferred call joins the caller's transaction,
    unclaimed. From the approval limit on, the operation is unclaimed until its approval. ``is_looked_up``: the caller
    has already looked the key up and found ``reopened``, or nothing; the unique constraint catches a call in between.

    An operation whose key is free (``is_free``) is taken again as it was read: the same bytes under the same key.
    ``progress`` learns what may be committed, and what is.

    Raises PreconditionFailed and IdempotencyMismatch.
    """
    # Fixed before anything is written: it identifies what was committed although the database seemed to fail.
    intent = dataclasses.replace(intent, idempotency_key=intent.idempotency_key or str(uuid.uuid4()))
    call = operations.CALLS[intent.operation]
    # In a caller's transaction, the caller's commit decides.
    progress = progress or Progress()
    must_look = not is_looked_up

    def write() -> tuple[Operation, bool]:
        nonlocal must_look
        known = find(intent) if must_look else reopened.operation if reopened is not None else None
        # If this is repeated, another call with this key was faster, or the commit took place after all.
        must_look = True
        if known is not None and not is_free(known):
            return known, False
        asked = intent if known is None else _as_recorded(intent, known)
        decided = precondition.decide(asked) if precondition is not None else asked
        operation = _build(decided, deferred=deferred) if known is None else _again(known, intent, deferred=deferred)
        if call.needs_approval(decided):
            if not operation.actor:
                # The approver must be another person than the requester.
                raise ValidationError({"actor": [_("This amount needs a second person's approval: say who asks.")]})
            operation.state = OperationState.AWAITING_APPROVAL
        elif not deferred:
            fields = sending_fields(operation, new_token(), timezone.now(), latest)
            if known is not None and reopened is not None and reopened.key_is_known:
                # The provider's key is as old as its first attempt.
                fields |= {"first_sent_at": known.first_sent_at, "sent_after": known.sent_after}
            for name, value in fields.items():
                setattr(operation, name, value)
        if known is None:
            progress.may_be_inserted(operation)
            operation.save(force_insert=True)
        elif not _take_again(known, operation, progress):
            return _find_locked(intent) or known, False
        if operation.state == OperationState.AWAITING_APPROVAL:
            call_attention(
                Operation,
                Reason.OPERATION_AWAITS_APPROVAL,
                account=operation.account,
                message=f"{operation.operation} {operation.pk} waits for a second person's approval",
                instance=operation,
            )
        return operation, True

    try:
        # Of two calls with one key, the database lets one insert; the other is repeated and finds it.
        about = {"account": intent.account}
        operation, is_new = repeatable(write, using=ledger_database(), durable=not deferred, about=about)
    except IntegrityError:
        known = _find_locked(intent)
        if known is None:
            raise
        operation, is_new = known, False
    progress.is_committed(operation)
    return operation, is_new


def log_ids(operation: Operation) -> dict[str, str]:
    """For log records."""
    return {"account": operation.account, "operation_id": operation.pk}


def claim_of_new(operation: Operation) -> Claim:
    """The claim that ``record`` committed together with the operation."""
    return Claim(operation, operation.lease_token, repeated=False)


def replay(operation: Operation) -> Any:
    """The result of a repeated call with the same key. It never sends anything.

    Done: the mirror row as it is now; OutcomeUnknown if the row was deleted and cannot be read again. Rejected: the
    same error. Closed: OperationClosed, or the same error if its key is free. Otherwise the outcome is open:
    OutcomeUnknown, or ApprovalRequired.
    """
    if operation.state == OperationState.DONE:
        return result(operation)
    if operation.state == OperationState.REJECTED:
        raise provider_error(operation.error or {})
    if is_free(operation):
        raise closing_error(operation.error or {})
    if operation.state == OperationState.CLOSED:
        raise OperationClosed(operation, f"operation {operation.pk} was closed; it did not happen and will not")
    if operation.state == OperationState.AWAITING_APPROVAL:
        raise ApprovalRequired(operation)
    raise OutcomeUnknown(operation)


def result(operation: Operation) -> Any:
    """The mirror row that a finished operation made or changed; None for a deletion."""
    call = operations.get(operation.operation)
    if call is not None and not call.leaves_object:
        return None
    row = MIRRORS[operation.result_kind]._default_manager.filter(pk=operation.result_id).first()
    if row is not None:
        return row
    # This app never deletes rows. A row that was deleted by hand is read again.
    try:
        return sync.read(operation.result_kind, operation.account, operation.result_id)
    except (PaymentsError, schemas.WireError) as error:
        # It happened. Any other error would say that it did not, and the caller would ask again.
        raise OutcomeUnknown(operation, error) from error


@dataclass(frozen=True, slots=True)
class Reopened:
    """An operation whose key is free, to be sent again."""

    operation: Operation
    #: The provider may still know the key: it protects against a second object, for as long as from the first attempt.
    key_is_known: bool


def is_free(operation: Operation) -> bool:
    """Whether the same call may be sent again under its key."""
    return operation.has_free_key


def _as_recorded(intent: Intent, known: Operation) -> Intent:
    """The intent with the request as it was recorded: what is decided about is what is sent."""
    body = json.loads(known.request) if known.request else None
    return dataclasses.replace(intent, body=body, amount=known.amount, currency=known.currency, recorded=known.pk)


def _again(known: Operation, intent: Intent, *, deferred: bool) -> Operation:
    """The operation as it is before it is sent, for the caller of now."""
    operation = copy.copy(known)
    operation.state = OperationState.DUE
    operation.deferred = deferred
    operation.actor, operation.actor_id = intent.actor, intent.actor_id
    operation.approved_by, operation.approved_at = "", None
    operation.sent_to = fingerprint(operation.account)
    operation.error = operation.closed_at = operation.next_attempt_at = None
    return operation


#: What ``_again`` and sending change.
_TAKEN_AGAIN = (
    "state", "deferred", "actor", "actor_id", "approved_by", "approved_at", "error", "closed_at", "next_attempt_at",
    "may_have_run", "first_sent_at", "last_sent_at", "sent_after", "sent_to", "attempts", "lease_token", "lease_until",
)  # fmt: skip


def _take_again(known: Operation, operation: Operation, progress: Progress) -> bool:
    """Write it, if the row is as it was read; False if another call was faster."""
    # No two calls have the same token; one that claims nothing is told by what it has not got any more.
    mark = {"lease_token": operation.lease_token} if operation.lease_token else {"state": operation.state}
    progress.may_be_changed(operation, **mark)
    as_read = Operation.objects.filter(
        free(timezone.now()), pk=known.pk, state=known.state, attempts=known.attempts, closed_at=known.closed_at
    )
    return bool(as_read.update(**{name: getattr(operation, name) for name in _TAKEN_AGAIN}))


def _build(intent: Intent, *, deferred: bool) -> Operation:
    operation = Operation(
        account=intent.account,
        operation=intent.operation,
        arguments=intent.arguments,
        arguments_hash=_arguments_hash(intent),
        target_id=intent.target_id,
        amount=intent.amount,
        currency=intent.currency,
        idempotency_key=intent.idempotency_key,
        actor=intent.actor,
        actor_id=intent.actor_id,
        deferred=deferred,
        caused_at=dispatched_at(),
        # An approval is valid only for the account as it is configured now, and a renamed account is recognised.
        sent_to=fingerprint(intent.account),
    )
    body = dict(intent.body) if intent.body is not None else None
    if body is not None:
        if intent.fills_reference:
            # Look-ups search for it.
            body.setdefault("merchant_reference", operation.pk)
        operation.merchant_reference = body.get("merchant_reference", "")
    operation.body = schemas.encode(body) if body is not None else b""
    operation.body_digest = digest_of(operation.body)
    return operation


def _arguments_hash(intent: Intent) -> str:
    """A repeated call must match it: operation and arguments, without the payer's ip and device_id."""
    compared = dict(intent.arguments)
    payer = {name: value for name, value in compared.pop("payer", {}).items() if name not in _NOT_COMPARED}
    if payer:
        compared["payer"] = payer
    content = json.dumps([intent.operation, compared], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def digest_of(body: bytes) -> str:
    """The fingerprint of a request: the bytes that are sent are those that were recorded and shown."""
    return hashlib.sha256(body).hexdigest()


def _same(operation: Operation, intent: Intent) -> Operation:
    if (operation.operation, operation.arguments_hash) != (intent.operation, _arguments_hash(intent)):
        raise IdempotencyMismatch(
            f"this idempotency key belongs to a different call, operation {operation.pk} "
            f"({operation.operation}); nothing was sent"
        )
    return operation


def _find_locked(intent: Intent) -> Operation | None:
    """The operation that won the race for the key; the caller's transaction may not see it by a plain read."""
    known = Operation.objects.filter(account=intent.account, idempotency_key=intent.idempotency_key)
    if connections[ledger_database()].in_atomic_block:
        # A locking read sees the newest committed row even under REPEATABLE READ (MariaDB).
        known = known.select_for_update()
    operation = known.first()
    return _same(operation, intent) if operation is not None else None


#: Beyond the request's own deadline: waiting on 429, saving the answer, and clocks that disagree a little.
LEASE_MARGIN = 30.0


class LeaseLost(Exception):
    """Another worker has taken the operation over; this one writes nothing more."""


class LeaseTooShort(LeaseLost):
    """The lease does not last for a request, so it was not sent; another worker takes the operation over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send or resolve one operation, until the lease runs out."""

    operation: Operation
    token: str
    #: An earlier attempt may have been executed: a refusal now proves nothing, and an answer may be old.
    repeated: bool
    #: When it was claimed, on a clock that cannot be set.
    since: float = field(default_factory=time.monotonic, compare=False)

    def ensure_time(self, wait: float) -> None:
        """Raise LeaseTooShort unless a request, after waiting for up to ``wait`` seconds, ends within the lease.

        A process may be stopped between its claim and its request for any length of time.
        """
        self.ensure_lasts(conf.current().REQUEST_DEADLINE + wait)

    def ensure_lasts(self, seconds: float) -> None:
        """Raise LeaseTooShort unless the lease lasts for so many seconds more, by either clock."""
        until, lasts = self.operation.lease_until, _duration().total_seconds()
        if until is None or timezone.now() + timedelta(seconds=seconds) > until:
            raise LeaseTooShort
        if time.monotonic() - self.since > lasts - seconds:
            raise LeaseTooShort


def fingerprint(account: str) -> str:
    """A hash of the address and API key under which this account's operations are sent."""
    return conf.fingerprint(account)


def sending_fields(
    operation: Operation, token: str, now: datetime, latest: LatestAnswer | None = None
) -> dict[str, Any]:
    """The fields that must be committed before a request leaves. ``latest``: the provider's latest answer."""
    fields: dict[str, Any] = {
        **_lease_fields(operation, token, now),
        "state": OperationState.UNKNOWN,
        "may_have_run": True,
        "last_sent_at": now,
    }
    if not operation.may_have_run:
        # An attempt that was certainly not executed does not count: the provider does not know its key.
        fields |= {
            "first_sent_at": now,
            "sent_after": latest.date if latest is not None else None,
            "sent_to": fingerprint(operation.account),
        }
    return fields


def new_token() -> str:
    return uuid.uuid4().hex


def claim_to_send(operation: Operation, states: Collection[str], latest: LatestAnswer | None = None) -> Claim | None:
    """Claim the operation for sending, as it was when it was read; None if another worker was faster.

    ``latest``: the provider's latest answer, for a first attempt.
    """
    token, now = new_token(), timezone.now()
    return _take(operation, states, token, now, sending_fields(operation, token, now, latest))


def claim_to_resolve(operation: Operation, states: Collection[str]) -> Claim | None:
    """Claim the operation without sending it; None if another worker was faster."""
    token, now = new_token(), timezone.now()
    return _take(operation, states, token, now, _lease_fields(operation, token, now))


def free(now: datetime) -> Q:
    """Operations without a valid lease."""
    return Q(lease_until__isnull=True) | expired("lease_until", _duration(), now=now)


def release(claim: Claim, **values: Any) -> dict[str, Any]:
    """Write an outcome and end the lease, in one statement; returns the fields written.

    Raises LeaseLost if another worker holds it now.
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
        # If this process dies, the operation is due again when the lease has run out.
        "next_attempt_at": until,
    }


def _take(
    operation: Operation, states: Collection[str], token: str, now: datetime, fields: dict[str, Any]
) -> Claim | None:
    repeated = operation.may_have_run
    # Only if the row is unchanged since the caller read it.
    as_read = Operation.objects.filter(free(now), pk=operation.pk, state__in=states).filter(
        attempts=operation.attempts, state=operation.state, may_have_run=repeated
    )
    if not updated(as_read, **fields):
        return None
    for name, value in fields.items():
        setattr(operation, name, value)
    return Claim(operation, token, repeated)
