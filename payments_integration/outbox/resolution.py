"""Resolve operations by hand: a person has one looked up or sent again, or says what happened.

Each function returns the operation as it is afterwards; ``state`` and ``note`` hold the outcome. Staff need the
permission (PermissionDenied). For other actors the caller decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import conf, permissions, sync, wakeup
from payments_integration.dates import moment
from payments_integration.db.claims import CLOCK_SLACK, ClaimLost
from payments_integration.db.transactions import refuse_transaction, updated
from payments_integration.enums import ID_PREFIXES
from payments_integration.exceptions import NoAnswer, PagingError, ProviderError, WireError
from payments_integration.models import MIRRORS, OPEN_OPERATION_STATES, Operation, OperationState
from payments_integration.outbox import ledger, look_ups, operations, outcomes, repeats, sending
from payments_integration.signals import is_dispatching
from payments_integration.sync import get_client
from payments_integration.validation.validator import MAX_LONG_TEXT, Validator, is_object_id

_OPEN = (OperationState.UNKNOWN, OperationState.NEEDS_PERSON)
_SENDABLE = (OperationState.DUE, OperationState.UNKNOWN, OperationState.NEEDS_PERSON)
RESOLVE = "change_operation"
CLOSE = "close_operation"

#: A request may still be executed this long after it left.
MAY_STILL_RUN = timedelta(minutes=15)
#: A person may close these: the operation was never sent, or was left to a person.
_CLOSABLE = (OperationState.DUE, OperationState.NEEDS_PERSON)


def look_up(operation: Operation | str, actor: object = None) -> Operation:
    """Search the provider for the result of an operation whose outcome is open.

    If nothing is found while the provider still knows its key, its outcome stays unknown, and a worker sends it again.

    Args:
        operation: An instance or its id.
        actor: Who asks, a user or text. Staff need the permission.

    Returns:
        The operation, with its new state and note.

    Raises:
        ValidationError: Its outcome is not open.
        PermissionDenied: The actor is staff and may not.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("look_up")
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    who = _name(actor)
    check_account(operation)
    _check_sent(operation)
    is_sent_again = operation.state == OperationState.UNKNOWN and sending.may_resend(operation)
    as_it_was = {"attempts": operation.attempts, "next_attempt_at": operation.next_attempt_at}
    write = partial(_write_if_found, as_it_was=as_it_was) if is_sent_again else look_ups.write_verdict
    with _claimed(operation, outcomes.claim_to_resolve(operation, _OPEN), who and f"{who} has it looked up") as claim:
        look_ups.resolve_by_reading(claim, write)
    operation.refresh_from_db()
    return operation


def _write_if_found(claim: outcomes.Claim, verdict: look_ups.Verdict, as_it_was: dict[str, Any]) -> None:
    """Leave what was not found to be sent again when it is due: its first request may still run, as its key shows."""
    if verdict.note == operations.NOT_FOUND:
        claim.release(**as_it_was, note=claim.operation.with_note(verdict.note))
    else:
        look_ups.write_verdict(claim, verdict)


def retry(operation: Operation | str, actor: object = None) -> Operation:
    """Send an operation again now, with the same key and bytes.

    Looks up an operation first if the ledger takes it for unsent, and it is older than an hour or was recorded under
    another API key: a restored backup forgets what was sent. If one object is certainly its result, it is linked
    instead, and nothing is sent.

    Args:
        operation: An instance or its id.
        actor: Who asks, a user or text. Staff need the permission.

    Returns:
        The operation, with its new state and note.

    Raises:
        ValidationError: It could move money twice. Allowed is an operation that was never sent, or went to the same
            place under the same key less than 23 hours ago. If it was never sent, the message names the objects that
            may be its result: see ``mark_others``.
        PermissionDenied: The actor is staff and may not.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("retry", is_dispatching=is_dispatching())
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    who = _name(actor)
    check_account(operation)
    _known_call(operation)
    if not sending.may_resend(operation):
        _refuse_expired()
    if _has_conflict(operation):
        refuse(_("It cannot be sent again: the provider knows its key for another request."))
    latest = None
    if not operation.may_have_run:
        with _reading():
            verdict = repeats.find_result(operation)
            if verdict is None:
                latest = sending.latest_answer(get_client(operation.account))
        if verdict is not None:
            return _link_instead_of_sending(operation, verdict, who and f"{who} wanted to send it")
    state = operation.state
    found = outcomes.claim_to_send(operation, _SENDABLE, latest)
    with _claimed(operation, found, who and f"{who} sends it again") as claim:
        try:
            sending.attempt(claim, get_client(operation.account), max_wait=sync.WORKER_WAIT)
        except sending.KeyExpired:
            claim.release(state=state, next_attempt_at=None)
            _refuse_expired()
    return operation


def mark_never_happened(operation: Operation | str, actor: object, comment: str) -> Operation:
    """Close an operation that was not executed, as a person has verified. It will not be sent.

    For operations that need a person or were never sent. Its last attempt left ``MAY_STILL_RUN`` ago or earlier: the
    provider may execute a request after its caller has stopped waiting. Reads the provider and the mirror first. If
    the operation was recorded within the last hour under the present API key and never sent, or its account is gone,
    it reads only the mirror.

    Args:
        operation: An instance or its id.
        actor: Who decides, a user or text. Staff need the permission.
        comment: How the person knows.

    Returns:
        The closed operation.

    Raises:
        ValidationError: The operation is another one, there is no comment, its last attempt may still run, the
            provider cannot be asked, or an object may be the operation's. The message names it: see ``mark_others``.
        PermissionDenied: The actor is staff and may not.
    """
    operation = load(operation)
    permissions.require_of_staff(actor, CLOSE, operation)
    who = decider(actor, comment)
    if operation.state in _CLOSABLE:
        _refuse_if_it_happened(operation)
        if _may_still_run(operation):
            message = _("It was sent a moment ago and may still be executed. Close it after %(time)s.")
            refuse(message % {"time": moment((operation.last_sent_at or timezone.now()) + MAY_STILL_RUN)})
    note = operation.with_note(f"{who} closed it as never happened: {comment}")
    closing = {"state": OperationState.CLOSED, "closed_at": timezone.now(), "next_attempt_at": None, "note": note}
    if not updated(ledger.unclaimed(operation, _CLOSABLE), **closing):
        refuse(_("It is not waiting for a person, or somebody is working on it now."))
    operation.refresh_from_db()
    return operation


def mark_others(operation: Operation | str, object_ids: Collection[str], actor: object, comment: str) -> Operation:
    """Record that objects which seem to be an operation's result belong to others, as a person has verified.

    For operations that were never sent, as far as the ledger knows, that need a person, or that ``has_free_key``. The
    objects no longer keep it from being sent or closed, and no look-up links it to one of them. Sends nothing now.

    Args:
        operation: An instance or its id.
        object_ids: The provider's ids of the objects.
        actor: Who decides, a user or text. Staff need the permission.
        comment: How the person knows.

    Returns:
        The operation, with its new note.

    Raises:
        ValidationError: It was sent and a worker still resolves it, it is closed, there is no comment, or an id names
            no such object.
        PermissionDenied: The actor is staff and may not.
    """
    operation = load(operation)
    permissions.require_of_staff(actor, CLOSE, operation)
    who = decider(actor, comment)
    call = _known_call(operation)
    if not object_ids:
        raise ValidationError({"object_ids": _("This is required.")})
    for object_id in object_ids:
        _check_id("object_ids", object_id, call)
    others = list(dict.fromkeys([*operation.other_objects, *object_ids]))
    note = operation.with_note(f"{who} says that {', '.join(object_ids)} is not its result: {comment}")
    at_rest = Q(may_have_run=False) | Q(state=OperationState.NEEDS_PERSON)
    states = {operation.state} if operation.has_free_key else OPEN_OPERATION_STATES
    rows = ledger.unclaimed(operation, states).filter(at_rest)
    if not call.creates or not updated(rows, other_objects=others, note=note):
        refuse(_("It may have been sent, or somebody is working on it now."))
    operation.refresh_from_db()
    return operation


def fitting_objects(operation: Operation) -> list[str]:
    """Return the mirrored objects that seem to be the result of an operation that is not settled or ``has_free_key``.

    For pages that show them before a person decides; a look-up and sending ask the provider as well. Sends no request.

    Args:
        operation: An instance.

    Returns:
        Ids.
    """
    call = operations.get(operation.operation)
    may_be_sent = operation.state in OPEN_OPERATION_STATES or operation.has_free_key
    if not may_be_sent or not isinstance(call, operations.Creation):
        return []
    if operation.may_have_run:
        return _mirrored_matches(operation, call)
    found = call.find_forgotten_in_mirror(operation)
    if not isinstance(found, operations.Candidates):
        return []
    return [item.id for item in look_ups.without_operation(operation, found)]


def mark_happened(operation: Operation | str, object_id: str, actor: object, comment: str) -> Operation:
    """Link an operation to the object that it made, as a person has found out. The object is read by GET first.

    Args:
        operation: An instance or its id.
        object_id: The provider's id of the object.
        actor: Who decides, a user or text. Staff need the permission.
        comment: How the person knows.

    Returns:
        The operation, done.

    Raises:
        ValidationError: The object does not fit, or belongs to another operation.
        PermissionDenied: The actor is staff and may not.
        NotFound: The provider does not know the object.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("mark_happened")
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    check_account(operation)
    who = decider(actor, comment)
    call = _known_call(operation)
    if not call.leaves_object:
        refuse(_("It leaves no object. Look it up instead."))
    # Never sent as far as the ledger knows, but perhaps before the database was restored.
    states = _OPEN if operation.may_have_run else _SENDABLE
    _check_id("object_id", object_id, call)
    if not _may_be_sent_before(operation, call) and object_id not in _mirrored_matches(operation, call):
        _check_sent(operation)
    if not call.creates and object_id != operation.target_id:
        refuse(_("It was about another object."))
    row = sync.read(call.kind, operation.account, object_id)
    if call.contradicts(operation, row) and not call.was_made_before(operation, row):
        refuse(_("The object has another amount, currency, payment or reference."))
    if not call.is_in_effect(row):
        status = dict(row.Status.choices).get(row.status, row.status)
        refuse(_("It did not happen: the object is %(status)s.") % {"status": status})
    with _claimed(operation, outcomes.claim_to_resolve(operation, states)) as claim:
        if not outcomes.link(claim, row.pk, f"{who} linked it to {object_id}: {comment}"):
            outcomes.needs_person(claim, f"{who} tried to link it to {object_id}, which belongs to another operation")
            refuse(_("The object belongs to another operation."))
    return operation


def possible_resolutions(operation: Operation) -> frozenset[str]:
    """Return the resolutions that are allowed now, from ``look_up`` to ``mark_never_happened``.

    For pages that offer them; each function checks again. Sends no request and checks no permission.

    Args:
        operation: An instance.

    Returns:
        Their names.
    """
    is_closable = operation.state in _CLOSABLE and not _may_still_run(operation)
    names = {"mark_never_happened"} if is_closable else set()
    call = operations.get(operation.operation)
    if call is None or operation.account not in conf.aliases():
        return frozenset(names)
    if operation.state in _OPEN and operation.may_have_run:
        names |= {"look_up", "mark_happened"} if call.leaves_object else {"look_up"}
    elif operation.state in _CLOSABLE and (_may_be_sent_before(operation, call) or _mirrored_matches(operation, call)):
        names.add("mark_happened")
    if operation.state in _SENDABLE and sending.may_resend(operation) and not _has_conflict(operation):
        names.add("retry")
    if operation.state == OperationState.NEEDS_PERSON and operation.may_have_run:
        # Otherwise what fits would keep it from being closed for ever.
        names |= {"mark_others"} if call.creates and _mirrored_matches(operation, call) else set()
    elif operation.state in OPEN_OPERATION_STATES and _may_be_sent_before(operation, call):
        names.add("mark_others")
    elif operation.has_free_key and fitting_objects(operation):
        # Otherwise what fits would keep the same call from being sent for ever.
        names.add("mark_others")
    return frozenset(names)


def _check_id(name: str, object_id: str, call: operations.ProviderCall) -> None:
    if not isinstance(object_id, str) or not is_object_id(object_id, ID_PREFIXES[call.kind]):
        message = _("This is not the id of a %(model)s.") % {"model": MIRRORS[call.kind]._meta.verbose_name}
        raise ValidationError({name: message})


def _may_be_sent_before(operation: Operation, call: operations.ProviderCall) -> bool:
    """Return True if the ledger takes it for unsent, but an object at the provider may be its result."""
    if not call.creates or operation.may_have_run:
        return False
    return repeats.needs_look_up(operation) or repeats.has_lost_result(operation)


def _link_instead_of_sending(operation: Operation, verdict: look_ups.Verdict, note: str) -> Operation:
    """Link an operation that must not be sent to its result. Refuse it if the result is not clear."""
    refuse_unclear(verdict)
    with _claimed(operation, outcomes.claim_to_resolve(operation, _SENDABLE), note) as claim:
        look_ups.write_verdict(claim, verdict)
    return operation


def refuse_unclear(verdict: look_ups.Verdict) -> None:
    """Refuse to send what may have been sent before. The message names the objects that may be its result."""
    if verdict.is_clear:
        return
    if not verdict.ids:
        refuse(_("It was not sent: %(why)s.") % {"why": verdict.note})
    message = _(
        "It was not sent: %(ids)s fits it, and it may have been executed before. Link it with “It happened”, or say "
        "with “These are others” that it is not its result."
    )
    refuse(message % {"ids": ", ".join(verdict.ids[:10])})


def load(operation: Operation | str) -> Operation:
    """Load the operation as it is now. A page may have shown an older state."""
    found = Operation.objects.filter(pk=operation.pk if isinstance(operation, Operation) else operation).first()
    if found is None:
        refuse(_("There is no such operation."))
    return found


def check_account(operation: Operation) -> None:
    """Refuse an operation whose account is no longer in the setting: the provider cannot be asked."""
    if operation.account not in conf.aliases():
        refuse(_("The account %(account)s is not configured any more.") % {"account": operation.account})


def _check_sent(operation: Operation) -> operations.ProviderCall:
    """Return the operation's call. Refuses one that was never sent, or is of another version of the app."""
    if not operation.may_have_run and operation.state in OPEN_OPERATION_STATES:
        refuse(_("It was never sent; there is nothing to look up."))
    return _known_call(operation)


def _known_call(operation: Operation) -> operations.ProviderCall:
    call = operations.get(operation.operation)
    if call is None:
        refuse(_("This version of the app does not know the operation %(name)s.") % {"name": operation.operation})
    return call


def _may_still_run(operation: Operation) -> bool:
    """Return True if a request may still run at the provider. No list shows its object yet."""
    sent = operation.last_sent_at if operation.may_have_run else None
    # A time in the future was written while our clock was ahead, so it proves nothing.
    return sent is not None and -CLOCK_SLACK <= timezone.now() - sent < MAY_STILL_RUN


def _refuse_if_it_happened(operation: Operation) -> None:
    """Refuse to close an operation while the provider or the mirror has an object that may be its own."""
    call = operations.get(operation.operation)
    if call is None:
        return  # another version of the app recorded it, and this one cannot look it up
    is_looked_up = operation.may_have_run or _may_be_sent_before(operation, call)
    if is_looked_up and operation.account in conf.aliases():
        refuse_transaction("mark_never_happened")
        with _reading():
            finding = call.look_up(get_client(operation.account), operation)
        if isinstance(finding, operations.Happened):
            refuse(_("It happened: %(why)s. Look it up instead.") % {"why": finding.note})
        if isinstance(finding, operations.Candidates):
            _refuse_match(_matches(operation, call, finding))
    _refuse_match(_mirrored_matches(operation, call))


def _refuse_match(ids: list[str]) -> None:
    if ids:
        message = _(
            "It may have happened: %(ids)s fits it. Link it with “It happened”, or say with “These are others” that "
            "it is not its result."
        )
        refuse(message % {"ids": ", ".join(ids)})


def _mirrored_matches(operation: Operation, call: operations.ProviderCall) -> list[str]:
    finding = call.look_up_in_mirror(operation)
    return _matches(operation, call, finding) if isinstance(finding, operations.Candidates) else []


def _matches(operation: Operation, call: operations.ProviderCall, found: operations.Candidates) -> list[str]:
    """Return the ids of objects that may be the operation's, by our own clock if the provider's is not known."""
    since = (operation.first_sent_at or operation.created_at) - CLOCK_SLACK
    return [
        item.id
        for item in look_ups.without_operation(operation, found)
        if call.is_certain(operation, item) or (operation.sent_after is None and item.created_at >= since)
    ]


@contextmanager
def _reading() -> Iterator[None]:
    """Refuse with a message if the provider cannot be read."""
    try:
        yield
    except (ProviderError, NoAnswer, PagingError, WireError) as error:
        why = error.code if isinstance(error, ProviderError) else type(error).__name__
        message = _("The provider cannot be asked now (%(why)s). Nothing was changed; try again later.")
        raise ValidationError({"operation": message % {"why": why}}) from error


def _refuse_expired() -> NoReturn:
    refuse(_("It cannot be sent again: the provider may have forgotten its key. Look it up instead."))


def _has_conflict(operation: Operation) -> bool:
    """Return True if the provider knows the key for another request."""
    return isinstance(operation.error, dict) and operation.error.get("code") == "idempotency_conflict"


@contextmanager
def _claimed(operation: Operation, claim: outcomes.Claim | None, note: str = "") -> Iterator[outcomes.Claim]:
    """Act under this claim, and note who acts. Refuse with a message if another worker has the operation."""
    if claim is None:
        state = operation.get_state_display()
        refuse(_("It is not open (%(state)s), or somebody is working on it now.") % {"state": state})
    try:
        if note:
            # The outcome adds its own line.
            operation.note = operation.with_note(note)
            updated(Operation.objects.filter(pk=operation.pk, claim_token=claim.token), note=operation.note)
        yield claim
    except ClaimLost:
        refuse(_("It took too long, and somebody else is working on it now."))
    wakeup.wake(operation.account)


def decider(actor: object, comment: str, *, comment_required: bool = True) -> str:
    """Return the name of the person who decides. Raises ValidationError without a person, or for the comment."""
    validator = Validator()
    who = validator.actor("actor", actor)
    if not who:
        validator.fail("actor", _("Say who decides."), "required")
    if comment or comment_required:
        validator.text("comment", comment, max_length=MAX_LONG_TEXT, required=True)
    validator.finish()
    return who


def _name(actor: object) -> str:
    validator = Validator()
    who = validator.actor("actor", actor)
    validator.finish()
    return who


def refuse(message: str) -> NoReturn:
    """Raise the ValidationError of an operation that cannot be resolved in this way."""
    raise ValidationError({"operation": message})
