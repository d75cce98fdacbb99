"""The ledger: what was asked for, committed before it leaves, unique by (account, key), kept for ever."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.db import Error, IntegrityError, connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import wire
from payments_integration.exceptions import (
    PROVIDER_ERRORS,
    ApiError,
    ApprovalRequired,
    IdempotencyMismatch,
    OperationClosed,
    OutcomeUnknown,
    PaymentsError,
    ProviderError,
)
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.services import guards, leases, limits, reads
from payments_integration.services.intents import Intent
from payments_integration.services.recipes import DELETE_WEBHOOK_ENDPOINT
from payments_integration.transactions import repeatable

#: Of a SHA-256 in hex; the width of ``Operation.actor_id``.
_MAX_USER_ID = 64


def find(intent: Intent) -> Operation | None:
    """The operation that this call's key stands for already; IdempotencyMismatch for another call's."""
    if not intent.idempotency_key:
        return None
    operations = Operation.objects.filter(account=intent.account, idempotency_key=intent.idempotency_key)
    # Nearly every call is new, and to ask for a whole row costs Django three times as much as whether there is one.
    operation = operations.first() if operations.exists() else None
    return _same(operation, intent) if operation is not None else None


def record(intent: Intent, *, deferred: bool, is_looked_up: bool = False) -> tuple[Operation, bool]:
    """The operation of this intent, and whether it is new.

    Not deferred: committed when this returns, and claimed in the same commit, so that no other worker sends
    it. Deferred: recorded in the caller's transaction, unclaimed. Over its limit: unclaimed, and nobody sends it
    before it is approved. ``is_looked_up``: its key stood for nothing just now, and the database tells where that has
    changed. Raises Doubt, IdempotencyMismatch, and OutcomeUnknown where the database does not say whether it has
    committed.
    """
    # Fixed before anything is written: what was committed although the database seemed to fail is found by it.
    intent = dataclasses.replace(intent, idempotency_key=intent.idempotency_key or str(uuid.uuid4()))
    written: Operation | None = None
    looks = not is_looked_up or (intent.guard is not None and intent.guard.counts_operations)

    def write() -> tuple[Operation, bool]:
        nonlocal written, looks
        known = find(intent) if looks else None
        # Repeated, because another call with this key was faster, or because it was committed after all.
        looks = True
        if known is not None:
            return known, False
        decided = intent.guard.decide(intent) if intent.guard is not None else intent
        operation = _build(decided, deferred=deferred)
        if limits.must_wait(decided):
            if not operation.actor:
                # Whoever approves must be somebody else than who asked.
                raise ValidationError({"actor": [_("This amount needs a second person's approval: say who asks.")]})
            operation.state = OperationState.AWAITING_APPROVAL
            # It is approved for where it was asked for, or not at all.
            operation.sent_to = leases.fingerprint(operation.account)
        elif not deferred:
            fields = leases.sending_fields(operation, leases.new_token(), timezone.now())
            for name, value in fields.items():
                setattr(operation, name, value)
        operation.save(force_insert=True)
        written = operation
        return operation, True

    try:
        # Where two calls come with one key, the database lets one of them insert; the other finds it on
        # repeating.
        return repeatable(write, using=guards.database(), durable=not deferred)
    except IntegrityError:
        known = _find_locked(intent)
        if known is None:
            raise
        return known, False
    except Error as error:
        # Until it was written nothing can be committed; in a caller's transaction the caller commits.
        if written is None or guards.in_transaction():
            raise
        known = _committed_after_all(written, intent, error)
        if known is None:
            raise
        return known, False


def claim_of_new(operation: Operation) -> leases.Claim:
    """The claim that ``record`` committed together with the operation."""
    return leases.Claim(operation, operation.lease_token, repeated=False)


def replay(operation: Operation) -> Any:
    """What a repeated call with the same key gets. Nothing is sent, ever.

    Done: the mirror row as it is now; OutcomeUnknown where somebody deleted it and it cannot be read. Rejected: the
    same error. Closed: OperationClosed. Otherwise the outcome is still open: OutcomeUnknown, or ApprovalRequired.
    """
    if operation.state == OperationState.DONE:
        return result(operation)
    if operation.state == OperationState.REJECTED:
        raise error_of(operation)
    if operation.state == OperationState.CLOSED:
        raise OperationClosed(operation, f"operation {operation.pk} was closed; it did not happen and will not")
    if operation.state == OperationState.AWAITING_APPROVAL:
        raise ApprovalRequired(operation)
    raise OutcomeUnknown(operation)


def result(operation: Operation) -> Any:
    """The mirror row that a finished operation made or changed; None for a deletion."""
    if operation.operation == DELETE_WEBHOOK_ENDPOINT:
        return None
    row = MIRRORS[operation.result_kind]._default_manager.filter(pk=operation.result_id).first()
    if row is not None:
        return row
    # Rows are never deleted by this app; one that somebody deleted is read again.
    try:
        return reads.read(operation.result_kind, operation.account, operation.result_id)
    except (PaymentsError, wire.WireError) as error:
        # It happened. An error that says it did not would have it asked for once more.
        raise OutcomeUnknown(operation) from error


def error_fields(error: ProviderError) -> dict[str, Any]:
    """A refusal as it is kept: the envelope's fields and the status, nothing else."""
    return {
        "status_code": error.status_code,
        "type": error.type,
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "request_id": error.request_id,
    }


def error_of(operation: Operation) -> ProviderError:
    """The provider's refusal, built anew from what was kept."""
    kept = operation.error or {}
    kind = PROVIDER_ERRORS.get(kept.get("type", ""), ApiError)
    return kind(
        kept.get("message", ""),
        status_code=kept.get("status_code", 0),
        code=kept.get("code", ""),
        request_id=kept.get("request_id", ""),
        param=kept.get("param"),
        type=kept.get("type"),
    )


def _build(intent: Intent, *, deferred: bool) -> Operation:
    operation = Operation(
        account=intent.account,
        operation=intent.operation,
        arguments=intent.arguments,
        arguments_hash=intent.arguments_hash,
        target_id=intent.target_id,
        amount=intent.amount,
        currency=intent.currency,
        idempotency_key=intent.idempotency_key,
        actor=intent.actor,
        actor_id=intent.actor_id,
        deferred=deferred,
    )
    body = dict(intent.body) if intent.body is not None else None
    if body is not None:
        if intent.fills_reference:
            # Look-ups search by it.
            body.setdefault("merchant_reference", operation.pk)
        operation.merchant_reference = body.get("merchant_reference", "")
    operation.body = wire.encode(body) if body is not None else b""
    operation.body_digest = digest_of(operation.body)
    return operation


def user_id(actor: object) -> str:
    """By which a user is known again, whatever they are called; "" for text and for nobody."""
    pk = getattr(actor, "pk", None)
    text = "" if pk is None else str(pk)
    # What begins alike is not the same user: a long key stands as its hash, which is as long as the column.
    return text if len(text) < _MAX_USER_ID else hashlib.sha256(text.encode()).hexdigest()


def digest_of(body: bytes) -> str:
    """By which a request is known again: what leaves is what was recorded and shown."""
    return hashlib.sha256(body).hexdigest()


def _same(operation: Operation, intent: Intent) -> Operation:
    if (operation.operation, operation.arguments_hash) != (intent.operation, intent.arguments_hash):
        raise IdempotencyMismatch(
            f"this idempotency key belongs to a different call, operation {operation.pk} "
            f"({operation.operation}); nothing was sent"
        )
    return operation


def _find_locked(intent: Intent) -> Operation | None:
    """Find what won the race for the key, though the caller's transaction may not see it by a plain read."""
    operations = Operation.objects.filter(account=intent.account, idempotency_key=intent.idempotency_key)
    if connections[guards.database()].in_atomic_block:
        # A locking read sees the newest committed row even under REPEATABLE READ (MariaDB).
        operations = operations.select_for_update()
    operation = operations.first()
    return _same(operation, intent) if operation is not None else None


def _committed_after_all(operation: Operation, intent: Intent, error: Error) -> Operation | None:
    """What stands under the operation's key although committing it seemed to fail; None where nothing does.

    A connection can break after COMMIT was sent and before its answer came. Then the operation stands, claimed,
    and will be sent. Raises OutcomeUnknown where the database cannot tell.
    """
    using = guards.database()
    try:
        connections[using].close_if_unusable_or_obsolete()
        try:
            # Inserted once more and taken back: that waits for a commit that is still under way, and reading
            # does not.
            with transaction.atomic(using=using, durable=True):
                operation.save(force_insert=True)
                transaction.set_rollback(True, using=using)
        except IntegrityError:
            return find(intent)
    except Error:
        raise OutcomeUnknown(operation) from error
    return None
