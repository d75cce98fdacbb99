"""Writing what became of an operation.

Each outcome is one transaction, and only the holder of the lease writes it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from payments_integration import projection, schemas, sync
from payments_integration.attention import call_attention
from payments_integration.client import Answer
from payments_integration.db.statements import lock_row
from payments_integration.db.transactions import ledger_database, repeatable
from payments_integration.exceptions import (
    NoAnswer,
    PagingError,
    ProviderError,
    RateLimited,
    UnsendableRequest,
    nothing_sent,
    request_id_of,
)
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.outbox import ledger, operations
from payments_integration.outbox.intents import Intent
from payments_integration.outbox.ledger import Claim, release
from payments_integration.projection import Snapshot
from payments_integration.reasons import Reason

logger = logging.getLogger(__name__)

FIRST_DELAY = 5.0
MAX_DELAY = 900.0
#: With the spread of ±20 %.
LONGEST_DELAY = MAX_DELAY * 1.2
_KEPT_REQUEST_IDS = 20
#: The fields of an operation that no attempt can have executed: the next attempt is its first.
_UNSENT: dict[str, Any] = {"may_have_run": False, "first_sent_at": None, "sent_after": None}


def done(claim: Claim, answer: Answer[Any], before: Snapshot) -> Any:
    """A successful answer: close the operation and write the mirror in one transaction; returns the row.

    The answer to a repeated request may be old. It proves only which object was made, and a GET reads that object.
    Raises WireError if the object belongs to another account or operation: nothing is written.
    """
    operation, resource, call = claim.operation, answer.data, operations.of(claim.operation)
    secret = getattr(resource, "secret", None)
    lacks_secret = call.answers_with_secret and not secret and not claim.repeated
    is_repeated = False

    def write() -> Any:
        nonlocal is_repeated
        is_first, is_repeated = not is_repeated, True
        row = None if resource is None else _write_answer(claim, answer, before, is_first=is_first)
        # No operation has an object whose row was just inserted. Otherwise the row is locked by now, so that of two
        # operations with one object the second sees the first one's result.
        is_new = is_first and not claim.repeated
        if call.creates and (
            (not is_new and _is_linked(operation, resource.id)) or _is_asked_for(operation, resource)
        ):
            raise schemas.WireError("the answer names another operation's object")
        _record(call.after_answer(operation, resource, repeated=claim.repeated))
        if lacks_secret:
            _attention(operation, Reason.SECRET_MISSING, "the provider sent no signing secret; rotate it")
        return row

    row = _settle(
        claim,
        write,
        state=OperationState.DONE,
        result_kind=call.kind,
        result_id=getattr(resource, "id", operation.target_id),
        error=None,
        next_attempt_at=None,
        closed_at=timezone.now(),
        request_ids=_request_ids(operation, answer.request_id),
    )
    if claim.repeated and resource is not None:
        row = _read_quietly(call.kind, operation.account, resource.id) or row
    if call.answers_with_secret:
        # The caller sees it once. It is no field, so that no repr shows it.
        vars(row)["secret"] = secret
    return row


def link(claim: Claim, object_id: str, note: str, *, resource: Any = None) -> bool:
    """Close the operation as the one that made this object; False if another operation did.

    ``resource``: what a look-up read, to be mirrored if it is not yet.
    """
    operation, call = claim.operation, operations.of(claim.operation)

    def close() -> bool:
        if resource is not None:
            projection.record_identity(operation.account, resource, is_current=True)
        # Of two operations that found one object, the second sees the first one's link.
        if lock_row(MIRRORS[call.kind], object_id, ledger_database()) is None:
            raise LookupError(f"{object_id} is not mirrored")
        if call.creates and _is_linked(operation, object_id):
            return False
        release(claim, **_done_without_answer(claim, object_id, note))
        _record(call.after_finding(operation, object_id))
        return True

    is_linked = repeatable(close, using=ledger_database(), durable=True, about=ledger.log_ids(operation))
    operation.refresh_from_db()
    if is_linked and resource is not None:
        _read_quietly(call.kind, operation.account, object_id)
    return is_linked


def happened(claim: Claim, note: str) -> None:
    """A look-up, or the provider's refusal, showed that the target is as the operation wanted it."""
    operation, call = claim.operation, operations.of(claim.operation)
    _settle(
        claim,
        lambda: _record(call.after_finding(operation, operation.target_id)),
        **_done_without_answer(claim, operation.target_id, note),
    )


def rejected(claim: Claim, error: ProviderError) -> None:
    """A refusal, and no earlier attempt can have been executed: it did not happen and will not."""
    operation, call = claim.operation, operations.of(claim.operation)

    def write() -> None:
        if call.shows_effect(error):
            _record(call.after_finding(operation, operation.target_id))
        if operation.deferred:
            # No caller waits for the answer of a deferred operation.
            _attention(operation, Reason.DEFERRED_REJECTED, f"the provider refused it: {error.code}")

    _settle(
        claim,
        write,
        state=OperationState.REJECTED,
        may_have_run=False,
        error=error.fields(),
        next_attempt_at=None,
        closed_at=timezone.now(),
        request_ids=_request_ids(operation, error.request_id),
    )


def unsent(claim: Claim, error: UnsendableRequest) -> None:
    """The client refused to send it: closed. If an earlier attempt left, a person decides."""
    if claim.repeated:
        needs_person(claim, f"it cannot be sent again: {error}")
        return
    _settle(
        claim,
        state=OperationState.CLOSED,
        may_have_run=False,
        note=with_note(claim.operation, f"it could not be sent: {error}"),
        next_attempt_at=None,
        closed_at=timezone.now(),
    )


def closed(claim: Claim, error: ProviderError | NoAnswer) -> None:
    """Refused because of access or rate, or no connection: not executed, and the caller gets the error.

    Its key stays free: the same call is sent (``ledger.is_free``). The times of the attempt stay, because the provider
    may know the key since.
    """
    operation = claim.operation
    _settle(
        claim,
        state=OperationState.CLOSED,
        may_have_run=False,
        error=error.fields(),
        note=with_note(operation, _not_executed(error)),
        next_attempt_at=None,
        closed_at=timezone.now(),
        request_ids=_request_ids(operation, error.request_id),
    )


def due_again(claim: Claim, error: ProviderError | NoAnswer | PagingError) -> None:
    """No attempt can have been executed, or nothing was sent: sent later, as if for the first time.

    A person hears of a refusal of access, once: it may last until the API key is replaced.
    """
    operation, text = claim.operation, _not_executed(error)
    is_new = isinstance(error, ProviderError) and not isinstance(error, RateLimited) and text not in operation.note

    def write() -> None:
        if is_new:
            _attention(operation, Reason.DEFERRED_REFUSED, f"{text}; it is sent again by itself")

    _settle(
        claim,
        write,
        state=OperationState.DUE,
        **_UNSENT,
        note=with_note(operation, text),
        next_attempt_at=_next_attempt(operation, error),
        request_ids=_request_ids(operation, request_id_of(error)),
    )


def unknown(claim: Claim, why: ProviderError | NoAnswer | str) -> None:
    """It may have been executed: resolved later."""
    operation = claim.operation
    request_id = "" if isinstance(why, str) else why.request_id
    if isinstance(why, ProviderError):
        # The envelope's message may be long and in any language; code and status are enough.
        reason = f"answered {why.code} (HTTP {why.status_code}); an attempt may have been executed"
    else:
        reason = str(why)
    logger.warning(
        "Operation %s (%s) has an unknown outcome: %s",
        operation.pk,
        operation.operation,
        reason,
        extra={"account": operation.account, "operation_id": operation.pk, "request_id": request_id},
    )
    _settle(
        claim,
        state=OperationState.UNKNOWN,
        note=with_note(operation, reason[:500]),
        next_attempt_at=_next_attempt(operation, why),
        request_ids=_request_ids(operation, request_id),
    )


def needs_person(claim: Claim, why: str, error: ProviderError | None = None) -> None:
    """A person must decide; ``attention`` reports it."""
    operation = claim.operation
    _settle(
        claim,
        lambda: _attention(operation, Reason.OPERATION_NEEDS_RESOLUTION, why),
        state=OperationState.NEEDS_PERSON,
        note=with_note(operation, why),
        error=error.fields() if error is not None else operation.error,
        next_attempt_at=None,
        request_ids=_request_ids(operation, error.request_id if error is not None else ""),
    )


def late(claim: Claim) -> None:
    """The request left, but another worker holds or has settled the operation: what that one writes is the outcome."""
    _record(operations.of(claim.operation).after_late_attempt(claim.operation))


def with_note(operation: Operation, text: str) -> str:
    """The operation's note with another dated line, unless the last line says the same.

    Further lines of a comment are indented, so that none of them can pass for an entry.
    """
    text = "\n    ".join(text.splitlines())
    if operation.note.endswith(f": {text}"):
        return operation.note
    line = f"{timezone.now():%Y-%m-%d %H:%M:%S %Z}: {text}"
    return f"{operation.note}\n{line}".strip()


def _write_answer(claim: Claim, answer: Answer[Any], before: Snapshot, *, is_first: bool) -> Any:
    """``is_first``: this transaction has not run before. On a repeat, an event may have created the row already."""
    operation = claim.operation
    if claim.repeated:
        return projection.record_identity(operation.account, answer.data)
    return projection.write_answer(
        operation.account,
        answer.data,
        answered_at=answer.answered_at,
        duration=answer.duration,
        before=before,
        is_new=is_first and operations.of(operation).creates,
    )


def _record(further: Intent | None) -> None:
    """Record a further call; the next resumption sends it. A crash cannot separate it from what it follows."""
    if further is not None:
        ledger.record(further, deferred=True)


def _done_without_answer(claim: Claim, object_id: str, note: str) -> dict[str, Any]:
    return {
        "state": OperationState.DONE,
        "result_kind": operations.of(claim.operation).kind,
        "result_id": object_id,
        "error": None,
        "note": with_note(claim.operation, note),
        "next_attempt_at": None,
        "closed_at": timezone.now(),
    }


def _settle(claim: Claim, then: Callable[[], Any] = lambda: None, **values: Any) -> Any:
    """Write an outcome, and ``then`` what belongs to it, in one transaction; returns the result of ``then``."""

    def close() -> Any:
        written = release(claim, **values)
        return written, then()

    about = ledger.log_ids(claim.operation)
    written, outcome = repeatable(close, using=ledger_database(), durable=True, about=about)
    # As committed. Only the holder of the lease writes it, so there is nothing to read again.
    for name, value in written.items():
        setattr(claim.operation, name, value)
    return outcome


def _read_quietly(kind: str, account: str, object_id: str) -> Any | None:
    """GET after a repeated request. If it fails, the object stays marked and the schedule reads it."""
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
    # A locking read: under REPEATABLE READ a plain one would not see a link that was committed meanwhile.
    return others.select_for_update().first() is not None


def _is_asked_for(operation: Operation, resource: Any) -> bool:
    """Whether the object has the merchant reference of another operation, whose own answer may still come."""
    reference = getattr(resource, "merchant_reference", None)
    if not reference or reference == operation.merchant_reference:
        return False
    others = Operation.objects.filter(
        account=operation.account, operation=operation.operation, merchant_reference=reference
    )
    return others.exists()


def _next_attempt(operation: Operation, why: Exception | str) -> datetime:
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(max(operation.attempts - 1, 0), 20))
    delay *= random.uniform(0.8, 1.2)  # noqa: S311  (spreading, not secrecy)
    asked = why.retry_after if isinstance(why, ProviderError) else None
    return timezone.now() + timedelta(seconds=min(max(delay, asked or 0.0), LONGEST_DELAY))


def _not_executed(error: ProviderError | NoAnswer | PagingError) -> str:
    """Why an attempt was certainly not executed. Without the envelope's message: it may quote an argument."""
    if isinstance(error, ProviderError):
        return f"the provider refused it: {error.code} (HTTP {error.status_code})"
    return nothing_sent(error)


def _request_ids(operation: Operation, request_id: str) -> list[str]:
    known: list[str] = list(operation.request_ids)
    return [*known, request_id][-_KEPT_REQUEST_IDS:] if request_id else known


def _attention(operation: Operation, reason: Reason, message: str) -> None:
    call_attention(
        Operation,
        reason,
        account=operation.account,
        message=f"{operation.operation} {operation.pk}: {message}",
        instance=operation,
    )
