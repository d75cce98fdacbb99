"""What a person decides about an operation: look it up, send it again, say what happened.

Each returns the operation as it is afterwards; its ``state`` and ``note`` tell the outcome. A member of staff must
have the permission (PermissionDenied); for others the caller has decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import conf, permissions, wakeup
from payments_integration.models import Operation, OperationState
from payments_integration.services import leases, lookups, outcomes, reads, sending
from payments_integration.services.checks import Checks
from payments_integration.services.guards import refuse_transaction
from payments_integration.services.permissions import CLOSE, RESOLVE
from payments_integration.services.recipes import RECIPES
from payments_integration.transactions import updated

_OPEN = (OperationState.UNKNOWN, OperationState.NEEDS_PERSON)
_SENDABLE = (OperationState.DUE, OperationState.UNKNOWN, OperationState.NEEDS_PERSON)
#: Never sent, or so unclear that a person was asked: a person may close it.
_CLOSABLE = (OperationState.DUE, OperationState.NEEDS_PERSON)


def look_up(operation: Operation | str, actor: object = None) -> Operation:
    """Search the provider for the result of an operation of open outcome. ``actor``: a user or text.

    Raises ValidationError where it is not open.
    """
    refuse_transaction("look_up")
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    who = _name(actor)
    check_account(operation)
    if not operation.may_have_run and operation.state in (OperationState.DUE, OperationState.AWAITING_APPROVAL):
        _refuse(_("It was never sent; there is nothing to look up."))
    claim = _claimed(operation, leases.claim_to_resolve(operation, _OPEN))
    _note(claim, who and f"{who} has it looked up")
    with _not_taken_over():
        lookups.look_up(claim)
    wakeup.wake(operation.account)
    return operation


def retry(operation: Operation | str, actor: object = None) -> Operation:
    """Send it again now, with the same key and bytes. ``actor``: a user or text.

    Raises ValidationError unless that cannot move money twice: it was never sent, or went to the same place
    under the same key less than 23 hours ago.
    """
    refuse_transaction("retry")
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    who = _name(actor)
    check_account(operation)
    if not sending.may_resend(operation):
        _refuse(_("It cannot be sent again: the provider may have forgotten its key. Look it up instead."))
    if (operation.error or {}).get("code") == "idempotency_conflict":
        _refuse(_("It cannot be sent again: the provider knows its key for another request."))
    claim = _claimed(operation, leases.claim_to_send(operation, _SENDABLE))
    _note(claim, who and f"{who} sends it again")
    with _not_taken_over():
        sending.attempt(claim, max_wait=sending.BACKGROUND_WAIT)
    wakeup.wake(operation.account)
    return operation


def mark_never_happened(operation: Operation | str, actor: object, comment: str) -> Operation:
    """Close it: a person has made sure that it was not executed. It will not be sent.

    For operations that wait for a person or were never sent. Raises ValidationError for others, and without a
    comment.
    """
    operation = load(operation)
    permissions.require_of_staff(actor, CLOSE, operation)
    who = words(actor, comment)
    now = timezone.now()
    note = outcomes.noted(operation, f"{who} closed it as never happened: {comment}")
    as_read = Operation.objects.filter(leases.free(now), pk=operation.pk, state__in=_CLOSABLE).filter(
        attempts=operation.attempts
    )
    if not updated(as_read, state=OperationState.CLOSED, closed_at=now, next_attempt_at=None, note=note):
        _refuse(_("It is not waiting for a person, or somebody is working on it now."))
    operation.refresh_from_db()
    return operation


def mark_happened(operation: Operation | str, object_id: str, actor: object, comment: str) -> Operation:
    """Link it to the object that it made, which a person has found. The object is read by GET first.

    Raises ValidationError where the object does not fit or belongs to another operation, NotFound, NoAnswer.
    """
    refuse_transaction("mark_happened")
    operation = load(operation)
    permissions.require_of_staff(actor, RESOLVE, operation)
    check_account(operation)
    who = words(actor, comment)
    recipe = RECIPES[operation.operation]
    if recipe.on_target and object_id != operation.target_id:
        _refuse(_("It was about another object."))
    row = reads.read(recipe.kind, operation.account, object_id)
    if operation.amount is not None and not recipe.on_target:
        same = (row.amount, row.currency) == (operation.amount, operation.currency)
        if not same or getattr(row, "payment_id", operation.target_id) != operation.target_id:
            _refuse(_("The object has another amount, currency or payment."))
    claim = _claimed(operation, leases.claim_to_resolve(operation, _OPEN))
    if not outcomes.linked(claim, row.pk, f"{who} linked it to {object_id}: {comment}"):
        outcomes.person(claim, f"{who} tried to link it to {object_id}, which belongs to another operation")
        _refuse(_("The object belongs to another operation."))
    wakeup.wake(operation.account)
    return operation


def load(operation: Operation | str) -> Operation:
    """The operation as it is now: what a page showed may be old."""
    found = Operation.objects.filter(pk=operation.pk if isinstance(operation, Operation) else operation).first()
    if found is None:
        _refuse(_("There is no such operation."))
    return found


def check_account(operation: Operation) -> None:
    """Refuse what needs the provider where its account has been taken out of the setting."""
    if operation.account not in conf.aliases():
        _refuse(_("The account %(account)s is not configured any more.") % {"account": operation.account})


def _claimed(operation: Operation, claim: leases.Claim | None) -> leases.Claim:
    if claim is None:
        state = operation.get_state_display()
        _refuse(_("It is not open (%(state)s), or somebody is working on it now.") % {"state": state})
    return claim


@contextmanager
def _not_taken_over() -> Iterator[None]:
    """What took longer than its lease is another worker's by now: to a person that is a refusal."""
    try:
        yield
    except leases.LeaseLost:
        _refuse(_("It took too long, and somebody else is working on it now."))


def words(actor: object, comment: str) -> str:
    """Who decides; both who and why must be said."""
    checks = Checks()
    who = checks.actor("actor", actor)
    if not who:
        checks.fail("actor", _("Say who decides."), "required")
    checks.text("comment", comment, max_length=2000, required=True)
    checks.finish()
    return who


def _name(actor: object) -> str:
    checks = Checks()
    who = checks.actor("actor", actor)
    checks.finish()
    return who


def _note(claim: leases.Claim, text: str) -> None:
    """Keep who brings it on, in words, while it is ours; its outcome adds to them."""
    if not text:
        return
    claim.operation.note = outcomes.noted(claim.operation, text)
    updated(Operation.objects.filter(pk=claim.operation.pk, lease_token=claim.token), note=claim.operation.note)


def _refuse(message: str) -> NoReturn:
    raise ValidationError({"operation": message})
