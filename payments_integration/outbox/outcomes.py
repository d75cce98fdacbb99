"""Claim an operation, and write what became of it under that claim.

A worker claims an operation before it sends or resolves it. Each outcome is one transaction, and only the holder of
the claim writes it. A function has the name of the state that it writes (``OperationState``); ``link`` and
``happened`` write done.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from payments_integration import projection, schemas, sync
from payments_integration.attention import call_attention
from payments_integration.client import Answer, LatestAnswer
from payments_integration.db.claims import ClaimLost, Claims, new_token
from payments_integration.db.statements import lock_row
from payments_integration.db.transactions import first_run, ledger_database, repeatable, updated, updated_row
from payments_integration.exceptions import (
    ApprovalRequired,
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    PagingError,
    PaymentsError,
    ProviderError,
    RateLimited,
    UnsendableRequest,
    closing_error,
    nothing_sent,
    provider_error,
    request_id_of,
)
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.outbox import ledger, operations
from payments_integration.outbox.operations import Intent
from payments_integration.projection import Snapshot
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason

logger = get_logger(__name__)

FIRST_DELAY = 5.0
MAX_DELAY = 900.0
#: With the spread of ±20 %.
LONGEST_DELAY = MAX_DELAY * 1.2
#: A deferred call that waits this long is reported.
QUIET_FOR = timedelta(minutes=5)
_KEPT_REQUEST_IDS = 20
#: The values of an operation that no worker has.
RELEASED = Claims(timedelta()).free_values()


class ClaimTooShort(ClaimLost):
    """The claim is too short for a request, so nothing was sent. Another worker takes the operation over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send or resolve one operation, until the claim ends."""

    operation: Operation
    token: str
    #: An earlier attempt may have been executed. Then a refusal now proves nothing, and an answer may be old.
    earlier_may_have_run: bool
    #: When it was claimed, on a clock that cannot be set. The function is looked up, because freezegun replaces it.
    since: float = field(default_factory=lambda: time.monotonic(), compare=False)  # noqa: PLW0108
    length: timedelta = field(default_factory=lambda: ledger.claims().length, compare=False)

    def ensure_time(self, wait: float) -> None:
        """Raise ClaimTooShort unless a request, after waiting for up to ``wait`` seconds, ends within the claim.

        A process may be stopped between its claim and its request for any length of time.
        """
        self.ensure_lasts(self.length.total_seconds() - ledger.CLAIM_MARGIN + wait)

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


def claim_to_send(operation: Operation, states: Collection[str], latest: LatestAnswer | None = None) -> Claim | None:
    """Claim the operation for sending if it is as it was read. Returns None if another worker was faster.

    ``latest`` is the provider's latest answer, for a first attempt.
    """
    return _take(operation, states, ledger.sending_fields(operation, new_token(), latest))


def claim_to_resolve(operation: Operation, states: Collection[str]) -> Claim | None:
    """Claim the operation without sending it. Returns None if another worker was faster."""
    return _take(operation, states, ledger.claim_fields(operation, new_token()))


def _take(operation: Operation, states: Collection[str], fields: dict[str, Any]) -> Claim | None:
    may_have_run = operation.may_have_run
    as_read = ledger.unclaimed(operation, states).filter(state=operation.state, may_have_run=may_have_run)
    if not updated(as_read, **fields):
        return None
    ledger.assign(operation, fields)
    return Claim(operation, fields["claim_token"], may_have_run)


def done(claim: Claim, answer: Answer[Any], before: Snapshot) -> tuple[Any, bool]:
    """Close the operation after a successful answer and write the mirror, in one transaction.

    Returns the row, and True if that left something to do at once: to dispatch, to read, or another call to send.
    If an earlier attempt may have run, the answer may be old. It proves only which object was made, and a GET reads
    that object. Raises WireError if the object belongs to another account or operation: nothing is written.
    """
    operation, resource, call = claim.operation, answer.data, operations.of(claim.operation)
    secret = getattr(resource, "secret", None)
    is_first_run = first_run()

    def write() -> tuple[Any, bool]:
        # When this transaction is repeated, an event may have created the row.
        is_new = is_first_run() and call.creates and not claim.earlier_may_have_run
        row = None if resource is None else _write_answer(claim, answer, before, is_new=is_new)
        # A row inserted by this transaction cannot belong to another operation. Any other row is locked here, so two
        # operations cannot both link to it.
        if call.creates and (
            (not is_new and _is_linked(operation, resource.id)) or _is_asked_for(operation, resource)
        ):
            raise schemas.WireError("the answer names another operation's object")
        further = call.after_answer(operation, resource, earlier_may_have_run=claim.earlier_may_have_run)
        _record(further)
        if call.answers_with_secret and not secret and not claim.earlier_may_have_run:
            _attention(operation, Reason.SECRET_MISSING, "the provider sent no signing secret; rotate it")
        return row, not is_new or row is None or further is not None or projection.leaves_work(row)

    object_id = getattr(resource, "id", operation.target_id)
    row, leaves_work = _settle(claim, _result(claim, call, object_id, request_id=answer.request_id), write)
    if claim.earlier_may_have_run and resource is not None:
        row = _read_quietly(call.kind, operation.account, resource.id) or row
    if call.answers_with_secret:
        # The caller sees it once. It is not a field, so no repr shows it.
        vars(row)["secret"] = secret
    return row, leaves_work


def link(claim: Claim, object_id: str, note: str, *, resource: Any = None) -> bool:
    """Link the operation to the object that it made. Returns False if another operation made it.

    ``resource`` is what a look-up read, to be mirrored if it is not yet.
    """
    operation, call = claim.operation, operations.of(claim.operation)

    def close() -> bool:
        if resource is not None:
            projection.record_identity(operation.account, resource, is_current=True)
        # Two operations that found one object: the second sees the link of the first.
        if lock_row(MIRRORS[call.kind], object_id) is None:
            raise LookupError(f"{object_id} is not mirrored")
        if call.creates and _is_linked(operation, object_id):
            return False
        claim.release(**_result(claim, call, object_id, note))
        _record(call.after_finding(operation, object_id))
        return True

    is_linked = repeatable(close, using=ledger_database(), durable=True, about=ledger.log_ids(operation))
    operation.refresh_from_db()
    if is_linked and resource is not None:
        _read_quietly(call.kind, operation.account, object_id)
    return is_linked


def happened(claim: Claim, note: str) -> None:
    """Close the operation: a look-up, or the provider's refusal, showed that the target is as it should be."""
    operation, call = claim.operation, operations.of(claim.operation)
    after = partial(call.after_finding, operation, operation.target_id)
    _settle(claim, _result(claim, call, operation.target_id, note), lambda: _record(after()))


def rejected(claim: Claim, error: ProviderError) -> None:
    """Close the operation after the provider's refusal."""
    operation, call = claim.operation, operations.of(claim.operation)

    def write() -> None:
        if call.refusal_shows_effect(error):
            _record(call.after_finding(operation, operation.target_id))
        if operation.deferred:
            # No caller waits for the answer of a deferred operation.
            _attention(operation, Reason.DEFERRED_REJECTED, f"the provider refused it: {error.code}")

    outcome = _outcome(claim, OperationState.REJECTED, error=error, may_have_run=False)
    _settle(claim, outcome | {"error": error.fields()}, write)


def closed(claim: Claim, error: ProviderError | NoAnswer | UnsendableRequest) -> None:
    """Close the operation: it was not executed, and a worker will not send it.

    The caller gets the error. If another attempt may succeed, the key stays free (``Operation.has_free_key``). The
    times of the attempt stay, because the provider may know the key since then.
    """
    operation, text = claim.operation, _not_executed(error)

    def write() -> None:
        if operation.deferred and isinstance(error, UnsendableRequest):
            _attention(operation, Reason.DEFERRED_REJECTED, text)

    outcome = _outcome(claim, OperationState.CLOSED, text, error=error, may_have_run=False)
    if not isinstance(error, UnsendableRequest):
        outcome["error"] = error.fields()
    _settle(claim, outcome, write)


def due(claim: Claim, error: ProviderError | NoAnswer | PagingError) -> None:
    """Send the operation later, as if for the first time.

    A person hears of it once: at once if access was refused, which lasts until the API key is replaced; otherwise
    after ``QUIET_FOR``.
    """
    operation, text = claim.operation, _not_executed(error)
    is_access = isinstance(error, ProviderError) and not isinstance(error, RateLimited)
    told = f"{text}; it is sent again by itself"
    is_new = told not in operation.note and (is_access or timezone.now() - operation.created_at > QUIET_FOR)

    def write() -> None:
        if is_new:
            _attention(operation, Reason.DEFERRED_REFUSED, told)

    outcome = _outcome(
        claim, OperationState.DUE, told if is_new else text, error=error,
        may_have_run=False, first_sent_at=None, sent_after=None,
    )  # fmt: skip
    _settle(claim, outcome, write)


def unknown(claim: Claim, why: ProviderError | NoAnswer | str) -> None:
    """Resolve the operation later: it may have been executed."""
    operation, error = claim.operation, None if isinstance(why, str) else why
    if isinstance(why, ProviderError):
        # The envelope's message may be long and in any language. Code and status are enough.
        reason = f"answered {why.code} (HTTP {why.status_code}); an attempt may have been executed"
    else:
        reason = str(why)
    logger.warning(
        "Operation %s (%s) has an unknown outcome: %s",
        operation.pk,
        operation.operation,
        reason,
        extra={**ledger.log_ids(operation), "request_id": request_id_of(error) if error else ""},
    )
    _settle(claim, _outcome(claim, OperationState.UNKNOWN, reason[:500], error=error))


def needs_person(claim: Claim, why: str, error: ProviderError | None = None) -> None:
    """Leave the operation to a person, and call ``attention``."""
    outcome = _outcome(claim, OperationState.NEEDS_PERSON, why, error=error)
    if error is not None:
        outcome["error"] = error.fields()
    _settle(claim, outcome, partial(_attention, claim.operation, Reason.OPERATION_NEEDS_RESOLUTION, why))


def late(claim: Claim) -> None:
    """Follow up a request that left although another worker has the operation. That worker's outcome counts."""
    _record(operations.of(claim.operation).after_late_attempt(claim.operation))


def outcome_of(operation: Operation) -> Any:
    """Return or raise what a call with the key of a recorded operation should. Sends nothing.

    DONE: the mirror row as it is now; OutcomeUnknown if the row was deleted and cannot be read again. REJECTED: the
    same error. CLOSED: OperationClosed, or the same error if its key is free. In any other state the outcome is open:
    OutcomeUnknown or ApprovalRequired.
    """
    if operation.state == OperationState.DONE:
        return result(operation)
    if operation.state == OperationState.REJECTED:
        raise provider_error(operation.error or {})
    if operation.has_free_key:
        raise closing_error(operation.error or {})
    if operation.state == OperationState.CLOSED:
        raise OperationClosed(operation, f"operation {operation.pk} was closed; it did not happen and will not")
    if operation.state == OperationState.AWAITING_APPROVAL:
        raise ApprovalRequired(operation)
    raise OutcomeUnknown(operation)


def result(operation: Operation) -> Any:
    """Return the mirror row that a finished operation made or changed; None for a deletion."""
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


def _write_answer(claim: Claim, answer: Answer[Any], before: Snapshot, *, is_new: bool) -> Any:
    operation = claim.operation
    if claim.earlier_may_have_run:
        return projection.record_identity(operation.account, answer.data)
    return projection.write_answer(
        operation.account,
        answer.data,
        answered_at=answer.answered_at,
        duration=answer.duration,
        before=before,
        is_new=is_new,
    )


def _record(further: Intent | None) -> None:
    """Record a further call in the same transaction, so no crash separates the two. The next resumption sends it."""
    if further is not None:
        ledger.record(further, deferred=True)


def _result(
    claim: Claim, call: operations.ProviderCall, object_id: str, note: str = "", *, request_id: str = ""
) -> dict[str, Any]:
    """Return the fields of an operation that is done."""
    outcome = _outcome(claim, OperationState.DONE, note, request_id=request_id)
    return outcome | {"result_kind": call.kind, "result_id": object_id, "error": None}


def _outcome(
    claim: Claim,
    state: OperationState,
    note: str = "",
    *,
    error: Exception | None = None,
    request_id: str = "",
    **values: Any,
) -> dict[str, Any]:
    """Return the fields of an operation after an attempt or a look-up. ``error`` is what ended it."""
    operation, ids = claim.operation, list(claim.operation.request_ids)
    values |= {"state": state, "next_attempt_at": None}
    if state in (OperationState.DUE, OperationState.UNKNOWN):
        values["next_attempt_at"] = _next_attempt(operation, error)
    elif state != OperationState.NEEDS_PERSON:
        values["closed_at"] = timezone.now()
    if note:
        values["note"] = operation.with_note(note)
    if request_id := request_id or (request_id_of(error) if error else ""):
        values["request_ids"] = [*ids, request_id][-_KEPT_REQUEST_IDS:]
    return values


def _settle(claim: Claim, outcome: dict[str, Any], then: Callable[[], Any] = lambda: None) -> Any:
    """Write an outcome, and ``then`` what belongs to it, in one transaction. Returns the result of ``then``."""

    def close() -> Any:
        claim.release(**outcome)
        return then()

    about = ledger.log_ids(claim.operation)
    result = repeatable(close, using=ledger_database(), durable=True, about=about)
    # As committed. Only the holder of the claim writes it, so there is nothing to read again.
    ledger.assign(claim.operation, outcome | RELEASED)
    return result


def _read_quietly(kind: str, account: str, object_id: str) -> Any | None:
    """Read the object by GET after a repeated request. If that fails, it stays marked and the schedule reads it."""
    try:
        return sync.read(kind, account, object_id, background=True)
    except (ProviderError, NoAnswer) as error:
        extra = {"account": account, "request_id": error.request_id}
        logger.info("Reading %s failed (%s); it stays marked", object_id, type(error).__name__, extra=extra)
        return None


def _is_linked(operation: Operation, object_id: str) -> bool:
    others = Operation.objects.filter(
        account=operation.account, operation=operation.operation, result_id=object_id
    ).exclude(pk=operation.pk)
    # A locking read: under REPEATABLE READ a plain read would not see a link that was committed meanwhile.
    return others.select_for_update().first() is not None


def _is_asked_for(operation: Operation, resource: Any) -> bool:
    """Return True if the object has the merchant reference of another operation, whose own answer may still come."""
    reference = getattr(resource, "merchant_reference", None)
    if not reference or reference == operation.merchant_reference:
        return False
    others = Operation.objects.filter(
        account=operation.account, operation=operation.operation, merchant_reference=reference
    )
    return others.exists()


def _next_attempt(operation: Operation, error: Exception | None) -> datetime:
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(max(operation.attempts - 1, 0), 20))
    delay *= random.uniform(0.8, 1.2)  # noqa: S311  (spreading, not secrecy)
    asked = error.retry_after if isinstance(error, ProviderError) else None
    return timezone.now() + timedelta(seconds=min(max(delay, asked or 0.0), LONGEST_DELAY))


def _not_executed(error: ProviderError | NoAnswer | PagingError | UnsendableRequest) -> str:
    """Return why an attempt was certainly not executed, without the envelope's message, which may quote arguments."""
    if isinstance(error, UnsendableRequest):
        return f"it could not be sent: {error}"
    if isinstance(error, ProviderError):
        return f"the provider refused it: {error.code} (HTTP {error.status_code})"
    return nothing_sent(error)


def _attention(operation: Operation, reason: Reason, message: str) -> None:
    call_attention(operation, reason, f"{operation.operation} {operation.pk}: {message}")
