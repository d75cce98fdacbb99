"""Keep every operation: committed before it is sent, unique by (account, key), never deleted."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections
from django.db.models import Q
from django.utils.translation import gettext as _

from payments_integration import conf, schemas, sync
from payments_integration.attention import call_attention
from payments_integration.client import LatestAnswer
from payments_integration.db import statements
from payments_integration.db.claims import new_token
from payments_integration.db.transactions import insert_and_commit, ledger_database, repeatable
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
from payments_integration.models.operations import operation_id_for
from payments_integration.outbox import claiming, operations
from payments_integration.outbox.commit_check import CommitCheck
from payments_integration.outbox.operations import Intent, Precondition
from payments_integration.signals import Reason, cause

#: Fields of the payer that differ from one attempt of the same intent to the next.
_NOT_COMPARED = ("ip", "device_id")


def find(intent: Intent) -> Operation | None:
    """Return the operation that the call's key belongs to. Raises IdempotencyMismatch if that was a different call.

    Also raises it if the key belongs to an operation of another alias of the same account at the provider. An
    operation whose key is free was never executed: any call of the same service function may take it.
    """
    if not intent.idempotency_key:
        return None
    if not statements.is_there(Operation, ledger_database(), idempotency_key=intent.idempotency_key):
        return None
    known = Operation.objects.filter(idempotency_key=intent.idempotency_key)
    operation = known.filter(account=intent.account).first()
    if operation is not None:
        return _same(operation, intent)
    sent_to = conf.fingerprint(intent.account)
    # After a change of the API key, the id alone still says for which account it was recorded.
    recorded_for = Q(pk=operation_id_for(sent_to, intent.idempotency_key))
    renamed = known.filter(Q(sent_to=sent_to) | recorded_for).first()
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
    reopenable: Reopenable | None = None,
    check: CommitCheck | None = None,
) -> tuple[Operation, bool]:
    """Record the intent. Returns its operation, and True if it is to be sent now as new.

    A call that is sent at once is committed when this returns, and claimed in the same commit, so that no other worker
    sends it. ``latest`` is the provider's latest answer, if there is one. A deferred call joins the caller's
    transaction, unclaimed. From the approval limit on, the operation is unclaimed until its approval.
    ``is_looked_up``: the caller has already looked the key up and found ``reopenable``, or nothing. The unique
    constraint catches a call in between.

    An operation that ``has_free_key`` is opened again. The same call sends the same bytes; a call with other
    arguments, such as another payment method, replaces them. ``check`` learns what may be committed, and what is.

    Raises PreconditionFailed and IdempotencyMismatch.
    """
    # Fixed before anything is written: it identifies what was committed although the database seemed to fail.
    intent = dataclasses.replace(intent, idempotency_key=intent.idempotency_key or str(uuid.uuid4()))
    call = operations.CALLS[intent.operation]
    # In a caller's transaction, the caller's commit decides.
    check = check or CommitCheck()
    must_look = not is_looked_up
    is_new = is_looked_up and not deferred and reopenable is None
    # Receivers of other apps may write more.
    needs_transaction = precondition is not None or call.needs_approval(intent) or statements.has_receivers(Operation)
    if is_new and not needs_transaction:
        if (operation := _recorded_alone(intent, latest, check)) is not None:
            return operation, True
        must_look = True

    def write() -> tuple[Operation, bool]:
        nonlocal must_look
        known = find(intent) if must_look else reopenable.operation if reopenable is not None else None
        # If this is repeated, another call with this key was faster, or the commit did take place.
        must_look = True
        if known is not None and not known.has_free_key:
            return known, False
        is_same = known is not None and is_same_call(known, intent)
        asked = intent if known is None else _for_known(intent, known, is_same=is_same)
        decided = precondition.decide(asked) if precondition is not None else asked
        operation = _build(decided, deferred=deferred)
        if known is not None:
            operation = _reopened(known, operation, is_same=is_same)
        if call.needs_approval(decided):
            if not operation.actor or intent.is_borrowed:
                # The requester cannot approve it.
                raise ValidationError({"actor": [_("This amount needs a second person's approval: say who asks.")]})
            operation.state = OperationState.AWAITING_APPROVAL
        elif not deferred:
            fields = claiming.sending_fields(operation, new_token(), latest)
            if known is not None and reopenable is not None and reopenable.key_is_known:
                # The provider's key is as old as its first attempt.
                fields |= {"first_sent_at": known.first_sent_at, "sent_after": known.sent_after}
            _set(operation, fields)
        if known is None:
            check.expect_insert(operation)
            statements.insert_like_save(operation)
        elif not _write_reopened(known, operation, check):
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
        # Two calls with one key: the database lets one insert. The other is repeated and finds that operation.
        about = {"account": intent.account}
        operation, is_new = repeatable(write, using=ledger_database(), durable=not deferred, about=about)
    except IntegrityError:
        known = _find_locked(intent)
        if known is None:
            raise
        operation, is_new = known, False
    check.note_committed(operation)
    return operation, is_new


def _recorded_alone(intent: Intent, latest: LatestAnswer | None, check: CommitCheck) -> Operation | None:
    """Record an operation that needs one row and nothing more: its INSERT commits it.

    Returns None if another call with this key was faster.
    """
    operation = _build(intent, deferred=False)
    _set(operation, claiming.sending_fields(operation, new_token(), latest))
    check.expect_insert(operation)
    try:
        insert_and_commit(operation, using=ledger_database())
    except IntegrityError:
        return None
    check.note_committed(operation)
    return operation


def _set(operation: Operation, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(operation, name, value)


def log_ids(operation: Operation) -> dict[str, str]:
    """Return ids for log records."""
    return {"account": operation.account, "operation_id": operation.pk}


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


@dataclass(frozen=True, slots=True)
class Reopenable:
    """An operation whose key is free, to be sent again."""

    operation: Operation
    #: The provider may still know the key, as long as from its first attempt. The key protects against a second
    #: object.
    key_is_known: bool


def with_key_of_cause(intent: Intent) -> Intent:
    """Return the intent with a key that is the same when the receivers that ask for it run again, if it has none."""
    because = cause()
    if because is None or intent.idempotency_key:
        return intent
    using = ledger_database()
    is_recorded = partial(_is_recorded, using)
    key = because.key(_arguments_hash(intent), connections[using], is_recorded)
    return dataclasses.replace(intent, idempotency_key=key)


def _is_recorded(using: str, key: str) -> bool:
    return statements.is_there(Operation, using, idempotency_key=key)


def is_same_call(operation: Operation, intent: Intent) -> bool:
    return (operation.operation, operation.arguments_hash) == (intent.operation, _arguments_hash(intent))


def _for_known(intent: Intent, known: Operation, *, is_same: bool) -> Intent:
    """Return the intent to decide about. The same call sends the recorded bytes."""
    if not is_same:
        return dataclasses.replace(intent, operation_id=known.pk)
    body = json.loads(known.request) if known.request else None
    return dataclasses.replace(intent, body=body, amount=known.amount, currency=known.currency, operation_id=known.pk)


def _reopened(known: Operation, asked: Operation, *, is_same: bool) -> Operation:
    """Return the operation as it is before it is sent, for the present caller, whose operation would be ``asked``."""
    operation = copy.copy(known)
    for name in _OF_THE_CALLER if is_same else (*_OF_THE_CALLER, *_ARGUMENTS):
        setattr(operation, name, getattr(asked, name))
    if not is_same:
        operation.note = operation.with_note("asked for again with other arguments")
    # The older cause counts: what an old event asks for is looked up before it is sent.
    operation.caused_at = min(filter(None, (known.caused_at, asked.caused_at)), default=None)
    operation.state = OperationState.DUE
    operation.approved_by, operation.approved_at = "", None
    operation.error = operation.closed_at = operation.next_attempt_at = None
    return operation


#: Decided by each call, even by one with the same arguments.
_OF_THE_CALLER = ("actor", "actor_id", "deferred", "sent_to")
_ARGUMENTS = (
    "arguments", "arguments_hash", "target_id", "amount", "currency", "merchant_reference", "body", "body_digest",
)  # fmt: skip


def _write_reopened(known: Operation, operation: Operation, check: CommitCheck) -> bool:
    """Write the reopened operation if the row is as it was read. Returns False if another call was faster."""
    # Recognise our own write: no two calls have the same token, and without a claim the state has changed.
    mark = {"claim_token": operation.claim_token} if operation.claim_token else {"state": operation.state}
    check.expect_update(operation, **mark)
    as_read = claiming.unclaimed(known, (known.state,)).filter(closed_at=known.closed_at, account=known.account)
    columns = [field.attname for field in operation._meta.concrete_fields if not field.primary_key]
    return bool(as_read.update(**{name: getattr(operation, name) for name in columns}))


def _build(intent: Intent, *, deferred: bool) -> Operation:
    # An approval is valid only for the account as it is configured now. This also recognises a renamed account.
    sent_to = conf.fingerprint(intent.account)
    because = cause()
    operation = Operation(
        id=intent.new_id,
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
        caused_at=because.at if because is not None else None,
        sent_to=sent_to,
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
    """Return a hash of operation and arguments, without the payer's ip and device_id. A repeated call must match."""
    compared = dict(intent.arguments)
    payer = {name: value for name, value in compared.pop("payer", {}).items() if name not in _NOT_COMPARED}
    if payer:
        compared["payer"] = payer
    content = json.dumps([intent.operation, compared], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def digest_of(body: bytes) -> str:
    """Return the fingerprint of a request, to compare the bytes to send with the recorded and shown ones."""
    return hashlib.sha256(body).hexdigest()


def _same(operation: Operation, intent: Intent) -> Operation:
    may_take = operation.has_free_key and operation.operation == intent.operation
    if not may_take and not is_same_call(operation, intent):
        known, asked = operation.arguments, intent.arguments
        other = sorted(name for name in {*known, *asked} if known.get(name) != asked.get(name))
        # After an erasure it has no arguments.
        names = f" with another {', '.join(other)}" if known and operation.operation == intent.operation else ""
        raise IdempotencyMismatch(
            f"this idempotency key belongs to a different call, operation {operation.pk} "
            f"({operation.operation}){names}; nothing was sent"
        )
    return operation


def _find_locked(intent: Intent) -> Operation | None:
    """Return the operation that won the race for the key. A plain read in the caller's transaction may not see it."""
    known = Operation.objects.filter(account=intent.account, idempotency_key=intent.idempotency_key)
    if connections[ledger_database()].in_atomic_block:
        # A locking read sees the newest committed row even under REPEATABLE READ (MariaDB).
        known = known.select_for_update()
    operation = known.first()
    return _same(operation, intent) if operation is not None else None
