"""Keep every operation: committed before it is sent, unique by (account, key), never deleted.

An exception can come at any line: a lost connection, a time limit, another app's hook. The caller must never read "not
executed" while the ledger holds the operation. From the moment at which it may be committed, each exception leads to a
look into the ledger: ``unknown_if_committed``, and nowhere else.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import uuid
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, schemas
from payments_integration.attention import call_attention
from payments_integration.client import LatestAnswer
from payments_integration.db import statements
from payments_integration.db.claims import Claims, new_token
from payments_integration.db.reconnecting import discard, fresh_connection, is_in_memory
from payments_integration.db.transactions import insert_and_commit, ledger_database, repeatable
from payments_integration.exceptions import INTERRUPTIONS, ApprovalRequired, IdempotencyMismatch, OutcomeUnknown
from payments_integration.models import Operation, OperationState
from payments_integration.models.operations import operation_id_for
from payments_integration.outbox import operations
from payments_integration.outbox.operations import Intent, Precondition
from payments_integration.signals import Reason, cause

T = TypeVar("T")

#: Added to the request's own deadline: waiting on 429, saving the answer, and clocks that disagree a little.
CLAIM_MARGIN = 30.0
#: Fields of the payer that differ from one attempt of the same intent to the next.
_NOT_COMPARED = ("ip", "device_id")
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
                waits = not is_shared and connections[self._using].features.has_select_for_update
                found = self._look(self._using, waits)
        except INTERRUPTIONS:
            raise
        except BaseException as failure:
            # A TestCase that does not name the database keeps every statement from it; otherwise there is no answer.
            return None if type(failure).__name__ == "DatabaseOperationForbidden" else operation
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
    renamed = known.exclude(account=intent.account).filter(Q(sent_to=sent_to) | recorded_for).first()
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
        if known is not None and not is_same and reopenable is None:
            _refuse_if_mirrored(known)
        asked = intent if known is None else _for_known(intent, known, is_same=is_same)
        decided = precondition.decide(asked) if precondition is not None else asked
        operation = _build(decided, deferred=deferred)
        if known is not None:
            operation = _reopened(known, operation, is_same=is_same and operation.amount == known.amount)
        if call.needs_approval(decided):
            if not operation.actor or intent.is_borrowed:
                # The requester cannot approve it.
                raise ValidationError({"actor": [_("This amount needs a second person's approval: say who asks.")]})
            operation.state = OperationState.AWAITING_APPROVAL
        elif not deferred:
            fields = sending_fields(operation, new_token(), latest)
            if known is not None and reopenable is not None and reopenable.key_is_known:
                # The provider's key is as old as its first attempt.
                fields |= {"first_sent_at": known.first_sent_at, "sent_after": known.sent_after}
            assign(operation, fields)
        if known is None:
            check.expect_insert(operation)
            statements.insert_like_save(operation)
        elif not _write_reopened(known, operation, check):
            return _find_locked(intent) or known, False
        if operation.state == OperationState.AWAITING_APPROVAL:
            message = f"{operation.operation} {operation.pk} waits for a second person's approval"
            call_attention(operation, Reason.OPERATION_AWAITS_APPROVAL, message)
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
    assign(operation, sending_fields(operation, new_token(), latest))
    check.expect_insert(operation)
    try:
        insert_and_commit(operation, using=ledger_database())
    except IntegrityError:
        return None
    check.note_committed(operation)
    return operation


def sending_fields(operation: Operation, token: str, latest: LatestAnswer | None = None) -> dict[str, Any]:
    """Return the fields to commit before a request leaves. ``latest`` is the provider's latest answer."""
    now = timezone.now()
    fields: dict[str, Any] = {
        **claim_fields(operation, token),
        "state": OperationState.UNKNOWN,
        "may_have_run": True,
        "last_sent_at": now,
    }
    if not operation.may_have_run:
        fields["sent_to"] = conf.fingerprint(operation.account)
        # The provider may have kept the key of an attempt that it refused, for a day (spec, "Limits") and a little.
        since = operation.first_sent_at if operation.sent_after is not None else None
        if since is None or now - since > timedelta(hours=25):
            fields |= {"first_sent_at": now, "sent_after": latest.date if latest is not None else None}
    return fields


def claim_fields(operation: Operation, token: str) -> dict[str, Any]:
    claimed = claims().values(token)
    # If this process dies, the operation is due again when the claim ends.
    return {**claimed, "attempts": operation.attempts + 1, "next_attempt_at": claimed["claimed_until"]}


def unclaimed(operation: Operation, states: Collection[str]) -> QuerySet[Operation]:
    """Match the operation's row if it is unclaimed, in one of these states, and as it was read, with the same note."""
    rows = Operation.objects.filter(claims().free(), pk=operation.pk, state__in=states)
    return rows.filter(attempts=operation.attempts, note=operation.note)


def claims() -> Claims:
    return Claims(timedelta(seconds=conf.current().REQUEST_DEADLINE + CLAIM_MARGIN))


def assign(operation: Operation, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(operation, name, value)


def log_ids(operation: Operation) -> dict[str, str]:
    return {"account": operation.account, "operation_id": operation.pk}


@dataclass(frozen=True, slots=True)
class Reopenable:
    """An operation whose key is free, to be sent again."""

    operation: Operation
    #: The provider may still know the key, as long as from its first attempt. The key protects against a second
    #: object.
    key_is_known: bool


def is_same_call(operation: Operation, intent: Intent) -> bool:
    """Return True if the intent is for the operation's call. Its ``return_url`` may differ: the first one stays."""
    # No money depends on that address, which changes with the page's language and host, and with SECRET_KEY.
    recorded = operation.arguments or intent.arguments  # after an erasure, only the hash is left
    compared = {name: value for name, value in intent.arguments.items() if name != "return_url"}
    compared |= {name: value for name, value in recorded.items() if name == "return_url"}
    same = dataclasses.replace(intent, arguments=compared)
    return (operation.operation, operation.arguments_hash) == (intent.operation, arguments_hash(same))


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
        is_less = known.arguments_hash == asked.arguments_hash
        what = "for all that is left now" if is_less else "with other arguments"
        operation.note = operation.with_note(f"asked for again {what}")
    # The older cause counts: what an old event asks for is looked up before it is sent.
    operation.caused_at = min(filter(None, (known.caused_at, asked.caused_at)), default=None)
    operation.state = OperationState.DUE
    operation.approved_by, operation.approved_at = "", None
    operation.error = operation.closed_at = operation.next_attempt_at = None
    return operation


def _refuse_if_mirrored(known: Operation) -> None:
    """Raise ValidationError if the mirror has an object that a ledger, since lost, may have made under the free key.

    A worker looks for the new arguments only.
    """
    finding = operations.of(known).look_up_in_mirror(known)
    ids = {item.id for item in finding.items} if isinstance(finding, operations.Candidates) else set()
    made = Operation.objects.filter(account=known.account, operation=known.operation, result_id__in=ids)
    if found := ids - {*known.other_objects, *made.values_list("result_id", flat=True)}:
        raise perhaps_executed(known, ", ".join(sorted(found)[:10]))


def perhaps_executed(operation: Operation, why: str) -> ValidationError:
    """Return the error of a call whose free key may have been used before."""
    message = _(
        "This may have been executed before: %(why)s. If it was not, say so with “These are others” on the page "
        "of the operation %(operation)s, or use another key."
    )
    return ValidationError({"idempotency_key": [message % {"why": why, "operation": operation.pk}]})


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
    as_read = unclaimed(known, (known.state,)).filter(closed_at=known.closed_at, account=known.account)
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
        arguments_hash=arguments_hash(intent),
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


def arguments_hash(intent: Intent) -> str:
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
        other = sorted(name for name in {*known, *asked} - {"return_url"} if known.get(name) != asked.get(name))
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
