"""Writing what became of an operation.

Each outcome is one transaction, and only the holder of the lease writes it.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from payments_integration import projection, signals
from payments_integration.client import Answer
from payments_integration.exceptions import NoAnswer, ProviderError, UnsendableRequest
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.projection import Snapshot
from payments_integration.reasons import Reason
from payments_integration.services import guards, ledger, reads
from payments_integration.services.intents import Intent
from payments_integration.services.leases import Claim, release
from payments_integration.services.recipes import (
    CREATE_WEBHOOK_ENDPOINT,
    DELETE_WEBHOOK_ENDPOINT,
    RECIPES,
    ROTATE_WEBHOOK_SECRET,
)
from payments_integration.transactions import repeatable

logger = logging.getLogger(__name__)

FIRST_DELAY = 5.0
MAX_DELAY = 900.0
#: With the spread of ±20 %.
LONGEST_DELAY = MAX_DELAY * 1.2
_KEPT_REQUEST_IDS = 20
#: Longer than a key may be sent again, by more than any clock was wrong.
_DOUBT = timedelta(days=2)
_SECRET_OPERATIONS = (CREATE_WEBHOOK_ENDPOINT, ROTATE_WEBHOOK_SECRET)


def done(claim: Claim, answer: Answer[Any], before: Snapshot) -> Any:
    """A successful answer: the operation is closed and the mirror written in one transaction; returns the
    row.

    The answer to a repeated request may be old: it proves only which object it was, which is then read by
    GET.
    """
    operation, resource = claim.operation, answer.data
    secret = getattr(resource, "secret", None)
    recipe = RECIPES[operation.operation]

    attempts = itertools.count()

    def write() -> Any:
        if resource is None:
            projection.mark_endpoint_deleted(operation.account, operation.target_id)
            return None
        row = _write(claim, answer, before, is_first=not next(attempts))
        if secret:
            is_last = projection.store_secret(
                operation.account,
                resource.id,
                secret,
                asked_at=operation.first_sent_at,
                in_doubt=claim.repeated and _another_made_a_secret(operation, resource.id),
            )
            if not is_last:
                rotate_anew(operation, resource.id)
        elif claim.repeated and operation.operation in _SECRET_OPERATIONS:
            rotate_anew(operation, resource.id)
        return row

    row = _settle(
        claim,
        write,
        state=OperationState.DONE,
        result_kind=recipe.kind,
        result_id=getattr(resource, "id", operation.target_id),
        error=None,
        next_attempt_at=None,
        closed_at=timezone.now(),
        request_ids=_request_ids(operation, answer.request_id),
    )
    if claim.repeated and resource is not None:
        row = read_quietly(recipe.kind, operation.account, resource.id) or row
    if operation.operation in _SECRET_OPERATIONS:
        if not secret and not claim.repeated:
            _attention(operation, Reason.SECRET_MISSING, "the provider sent no signing secret; rotate it")
        # Shown once, to whoever asked; never a field, never in a repr.
        vars(row)["secret"] = secret
    return row


def linked(claim: Claim, object_id: str, why: str, *, resource: Any = None) -> bool:
    """The object that the operation made was found: link it, unless another operation did so first; then
    False.

    ``resource``: what a look-up read, to be mirrored if it is not yet.
    """
    operation = claim.operation
    recipe = RECIPES[operation.operation]

    def close() -> bool:
        # Holds the mirror row: of two that found the same object, the second one sees the first one's link.
        rows = MIRRORS[recipe.kind]._default_manager.filter(pk=object_id)
        if resource is not None:
            projection.record_identity(operation.account, resource)
        else:
            rows.select_for_update().get()
        # A write that changes nothing: under REPEATABLE READ PostgreSQL gives the second one the lock and shows it
        # what was before the first one's link. After a write it refuses, and the second one begins anew.
        rows.update(account=F("account"))
        if not recipe.on_target and _is_linked(operation, object_id):
            return False
        release(
            claim,
            state=OperationState.DONE,
            result_kind=recipe.kind,
            result_id=object_id,
            error=None,
            note=noted(operation, why),
            next_attempt_at=None,
            closed_at=timezone.now(),
        )
        if operation.operation in _SECRET_OPERATIONS:
            rotate_anew(operation, object_id)
        return True

    is_linked = repeatable(close, using=guards.database(), durable=True)
    operation.refresh_from_db()
    if is_linked and resource is not None:
        read_quietly(recipe.kind, operation.account, object_id)
    return is_linked


def deleted(claim: Claim) -> None:
    """The endpoint is not there any more: the deletion is done."""
    operation = claim.operation
    _finish(
        claim,
        "the endpoint is gone",
        lambda: projection.mark_endpoint_deleted(operation.account, operation.target_id),
    )


def superseded(claim: Claim) -> None:
    """A rotation whose secret is lost for good: another one takes its place."""
    operation = claim.operation
    _finish(
        claim,
        "its answer is lost; the secret is rotated anew",
        lambda: rotate_anew(operation, operation.target_id),
    )


def finished_on_target(claim: Claim, why: str) -> None:
    """A look-up showed that the operation's object is as the operation wanted it."""
    _finish(claim, why, lambda: None)


def _finish(claim: Claim, why: str, then: Callable[[], object]) -> None:
    operation = claim.operation
    _settle(
        claim,
        then,
        state=OperationState.DONE,
        result_kind=RECIPES[operation.operation].kind,
        result_id=operation.target_id,
        error=None,
        note=noted(operation, why),
        next_attempt_at=None,
        closed_at=timezone.now(),
    )


def rejected(claim: Claim, error: ProviderError) -> None:
    """A refusal, and no earlier attempt that may have been executed: it did not happen and will not."""
    operation = claim.operation

    def write() -> None:
        if operation.operation == DELETE_WEBHOOK_ENDPOINT and error.status_code == 404:
            projection.mark_endpoint_deleted(operation.account, operation.target_id)

    _settle(
        claim,
        write,
        state=OperationState.REJECTED,
        may_have_run=False,
        error=ledger.error_fields(error),
        next_attempt_at=None,
        closed_at=timezone.now(),
        request_ids=_request_ids(operation, error.request_id),
    )
    if operation.deferred:
        # Nobody waits for the answer of a deferred operation.
        _attention(operation, Reason.DEFERRED_REJECTED, f"the provider refused it: {error.code}")


def unsent(claim: Claim, error: UnsendableRequest) -> None:
    """The client refused to send it: closed, or, where an earlier attempt left, for a person."""
    if claim.repeated:
        person(claim, f"it cannot be sent again: {error}")
        return
    _settle(
        claim,
        state=OperationState.CLOSED,
        may_have_run=False,
        note=noted(claim.operation, f"it could not be sent: {error}"),
        next_attempt_at=None,
        closed_at=timezone.now(),
    )


def due_again(claim: Claim, error: ProviderError) -> None:
    """Too many requests, and nothing ever left that may have been executed: sent later, as if for the first
    time.
    """
    operation = claim.operation
    _settle(
        claim,
        state=OperationState.DUE,
        may_have_run=False,
        first_sent_at=None,
        sent_to="",
        next_attempt_at=_next_attempt(operation, error),
        request_ids=_request_ids(operation, error.request_id),
    )


def unknown(claim: Claim, why: ProviderError | NoAnswer | str) -> None:
    """It may have been executed: resolved later."""
    operation = claim.operation
    request_id = "" if isinstance(why, str) else why.request_id
    if isinstance(why, ProviderError):
        # The envelope's message may be long and in any language; code and status say what there is to know.
        reason = f"answered {why.code} (HTTP {why.status_code}); an attempt may have been executed"
    else:
        reason = str(why)
    logger.warning("Operation %s (%s) has an unknown outcome: %s", operation.pk, operation.operation, reason)
    _settle(
        claim,
        state=OperationState.UNKNOWN,
        note=noted(operation, reason[:500]),
        next_attempt_at=_next_attempt(operation, why),
        request_ids=_request_ids(operation, request_id),
    )


def person(claim: Claim, why: str, error: ProviderError | None = None) -> None:
    """A person must decide; ``attention`` tells them."""
    operation = claim.operation
    _settle(
        claim,
        state=OperationState.NEEDS_PERSON,
        note=noted(operation, why),
        error=ledger.error_fields(error) if error is not None else operation.error,
        next_attempt_at=None,
        request_ids=_request_ids(operation, error.request_id if error is not None else ""),
    )
    _attention(operation, Reason.OPERATION_NEEDS_PERSON, why)


def read_quietly(kind: str, account: str, object_id: str) -> Any | None:
    """GET after a repeated request.

    Where it fails, the object is marked to be read, and the schedule does it.
    """
    try:
        return reads.read(kind, account, object_id, background=True)
    except (ProviderError, NoAnswer) as error:
        logger.info("Reading %s failed (%s); it stays marked", object_id, type(error).__name__)
        return None


def _another_made_a_secret(operation: Operation, endpoint_id: str) -> bool:
    """Whether another operation brought a secret of this endpoint in days in which the provider may have carried this
    one out: the times of both are our clock's, which may have been set in between.
    """
    now = timezone.now()
    others = Operation.objects.filter(
        account=operation.account,
        operation=ROTATE_WEBHOOK_SECRET,
        state=OperationState.DONE,
        result_id=endpoint_id,
        closed_at__range=(now - _DOUBT, now + _DOUBT),
    )
    return others.exclude(pk=operation.pk).exists()


def rotate_anew(operation: Operation, endpoint_id: str) -> None:
    """Record a rotation that brings a new secret in place of one that was lost; the next resumption sends it.

    In the transaction that closes the operation: a crash cannot come in between.
    """
    intent = Intent(
        operation=ROTATE_WEBHOOK_SECRET,
        account=operation.account,
        arguments={"endpoint": endpoint_id},
        target_id=endpoint_id,
        idempotency_key=f"{operation.pk}-again",
        actor=operation.actor,
        actor_id=operation.actor_id,
    )
    ledger.record(intent, deferred=True)


def noted(operation: Operation, text: str) -> str:
    """The operation's note with a dated line more, unless the last one says the same.

    Further lines of a comment are indented: none of them can pass for an entry of its own.
    """
    text = "\n    ".join(text.splitlines())
    if operation.note.endswith(f": {text}"):
        return operation.note
    line = f"{timezone.now():%Y-%m-%d %H:%M:%S %Z}: {text}"
    return f"{operation.note}\n{line}".strip()


def _write(claim: Claim, answer: Answer[Any], before: Snapshot, *, is_first: bool) -> Any:
    """``is_first``: the transaction is not repeated, so nobody is known to have been faster."""
    operation = claim.operation
    if claim.repeated:
        return projection.record_identity(operation.account, answer.data)
    return projection.write_answer(
        operation.account,
        answer.data,
        answered_at=answer.answered_at,
        duration=answer.duration,
        before=before,
        is_new=is_first and not RECIPES[operation.operation].on_target,
    )


def _settle(claim: Claim, then: Callable[[], Any] = lambda: None, **values: Any) -> Any:
    """Write an outcome, and ``then`` what goes with it, in one transaction; returns what ``then`` does."""

    def close() -> Any:
        written = release(claim, **values)
        return written, then()

    written, outcome = repeatable(close, using=guards.database(), durable=True)
    # As it was committed. Read anew it would be the same: nobody but the holder of the lease writes it.
    for name, value in written.items():
        setattr(claim.operation, name, value)
    return outcome


def _is_linked(operation: Operation, object_id: str) -> bool:
    others = Operation.objects.filter(
        account=operation.account, operation=operation.operation, result_id=object_id
    ).exclude(pk=operation.pk)
    # A locking read: under REPEATABLE READ a plain one would not see a link committed meanwhile.
    return others.select_for_update().first() is not None


def _next_attempt(operation: Operation, why: ProviderError | NoAnswer | str) -> datetime:
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(max(operation.attempts - 1, 0), 20))
    delay *= random.uniform(0.8, 1.2)  # noqa: S311  (spreading, not secrecy)
    asked = why.retry_after if isinstance(why, ProviderError) else None
    return timezone.now() + timedelta(seconds=min(max(delay, asked or 0.0), LONGEST_DELAY))


def _request_ids(operation: Operation, request_id: str) -> list[str]:
    known: list[str] = list(operation.request_ids)
    return [*known, request_id][-_KEPT_REQUEST_IDS:] if request_id else known


def _attention(operation: Operation, reason: Reason, message: str) -> None:
    signals.call_attention(
        Operation,
        reason,
        account=operation.account,
        message=f"{operation.operation} {operation.pk}: {message}",
        instance=operation,
    )
