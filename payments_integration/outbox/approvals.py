"""Let a second person approve or reject an operation. The requester cannot approve it.

If an operation needs one is decided by its call, ``ProviderCall.needs_approval``, when the ledger records it.

The approval is for the recorded bytes; a change needs a rejection and a new request. The precondition is decided again
at approval, because days may have passed.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, permissions
from payments_integration.db.claims import new_token
from payments_integration.db.transactions import ledger_database, refuse_transaction, repeatable, updated
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger, look_ups, operations, outcomes, recovery, repeats, resolution, sending
from payments_integration.outbox.ledger import CommitCheck, unknown_if_committed
from payments_integration.outbox.operations import Intent, PreconditionFailed
from payments_integration.signals import is_dispatching
from payments_integration.sync import get_client
from payments_integration.validation.validator import Json

APPROVE = "approve_operation"

_WAITS = OperationState.AWAITING_APPROVAL


# The request holds personal data. Error reports leave out the variables of these frames.
@sensitive_variables()
def approve(operation: Operation | str, actor: object, comment: str = "", *, digest: str | None = None) -> Any:
    """Send an operation that waits for approval.

    Reads and checks the refundable rest, or the available balance, again. Looks up an operation that is older than an
    hour first, because a restored backup forgets approvals. If one object is certainly its result, it is linked
    instead, and nothing is sent.

    Args:
        operation: An instance or its id.
        actor: A user with ``approve_operation`` who is not the requester, superusers included.
        comment: A remark for the ledger.
        digest: The ``body_digest`` that the page showed; the approval is for these bytes only.

    Returns:
        The mirror row that the operation made.

    Raises:
        ValidationError: It cannot be approved as it is, or objects that the message names may be its result (see
            ``mark_others``). Nothing was sent, and it still waits.
        PermissionDenied: The actor may not. Nothing was sent, and it still waits.
        TransactionRefused: The call is inside a transaction. Nothing was sent, and it still waits.
        NoAnswer: Reading before the request failed and it still waits, or there was no connection and it is closed:
            see its state. Nothing was sent; the same for PagingError.
        ProviderError: Reading was refused and it still waits, or the provider refused the operation and it is over:
            see its state.
        OutcomeUnknown: Approved and kept, being resolved.
    """
    return unknown_if_committed(_approve, operation, actor, comment, digest)


@sensitive_variables()
def _approve(operation: Operation | str, actor: object, comment: str, digest: str | None, check: CommitCheck) -> Any:
    refuse_transaction("approve", is_dispatching=is_dispatching())
    operation = resolution.load(operation)
    who = resolution.decider(actor, comment, comment_required=False)
    if getattr(actor, "pk", None) is None:
        raise ValidationError({"actor": _("Only a user can approve.")})
    if permissions.is_borrowed(actor):
        # Perhaps the requester.
        raise ValidationError({"actor": _("You act in the name of another user. End that first.")})
    permissions.require(actor, APPROVE, operation)
    # before any request to the provider, and again under the lock
    _check(operation, actor, who, digest)
    verdict = repeats.find_result(operation)
    if verdict is not None:
        return _link_instead_of_sending(operation, verdict, who)
    intent = _intent(operation)
    precondition = operations.of(operation).precondition(intent)
    if precondition is not None:
        recovery.bring_up_to_date(precondition)
    client = get_client(operation.account)
    latest = sending.latest_answer(client)
    note = f"{who} approved it: {comment}" if comment else f"{who} approved it"
    token = new_token()

    def write() -> Operation:
        failure: PreconditionFailed | None = None
        try:
            # The precondition's lock comes first, as in recording.
            if precondition is not None:
                precondition.decide(intent)
        except PreconditionFailed as error:
            failure = error
        row = Operation.objects.select_for_update().get(pk=operation.pk)
        if row.claim_token == token:
            return row  # it was committed, and is repeated
        _check(row, actor, who, digest)
        if failure is not None:
            # Raised after the check: if another worker sent the operation, its state is the better message.
            raise failure
        # Claim it in the commit that approves it: if this process dies, it is resumed under the same key.
        fields = ledger.sending_fields(row, token, latest)
        approval = {"approved_by": who, "approved_at": fields["last_sent_at"]}
        fields |= approval | {"note": row.with_note(note)}
        ledger.assign(row, fields)
        check.expect_update(row, **approval)
        row.save(update_fields=fields)
        return row

    approved = repeatable(
        write, using=ledger_database(), durable=True, lost_races=False, about=ledger.log_ids(operation)
    )
    check.note_committed(approved)
    return sending.send_now(approved, client)


def _link_instead_of_sending(operation: Operation, verdict: look_ups.Verdict, who: str) -> Any:
    """Close an operation that was executed before the ledger forgot it. Returns the row of its result."""
    resolution.refuse_unclear(verdict)
    claim = outcomes.claim_to_resolve(operation, (_WAITS,))
    if claim is None:
        operation.refresh_from_db()
        _refuse_settled(operation)
    note = f"{who} wanted to approve it; {verdict.note}"
    if not look_ups.link_result(claim, dataclasses.replace(verdict, note=note)):
        # It still waits: a person who does not approve must not be able to send it.
        claim.release(state=_WAITS, next_attempt_at=None)
        resolution.refuse(_("The object belongs to another operation."))
    return outcomes.result(operation)


def reject(operation: Operation | str, actor: object, comment: str) -> Operation:
    """Close an operation that waits for approval: it will not be sent. A refund's amount can be refunded again.

    Args:
        operation: An instance or its id.
        actor: A user with ``approve_operation``, or the requester, who takes it back.
        comment: Why.

    Returns:
        The closed operation.

    Raises:
        ValidationError: It no longer waits, or there is no comment.
        PermissionDenied: The actor may not.
    """
    operation = resolution.load(operation)
    who = resolution.decider(actor, comment)
    takes_back = _is_requester(operation, actor, who)
    if not takes_back:
        if getattr(actor, "pk", None) is None:
            raise ValidationError({"actor": _("Only a user can reject what somebody else asked for.")})
        permissions.require(actor, APPROVE, operation)
    now = timezone.now()
    words = "took it back" if takes_back else "rejected it"
    note = operation.with_note(f"{who} {words}: {comment}")
    waiting = Operation.objects.filter(pk=operation.pk, state=_WAITS)
    if not updated(waiting, state=OperationState.CLOSED, closed_at=now, next_attempt_at=None, note=note):
        operation.refresh_from_db()
        _refuse_settled(operation)
    operation.refresh_from_db()
    return operation


def _check(operation: Operation, actor: object, who: str, digest: str | None) -> None:
    """Refuse an operation that this person may not approve as it is."""
    if operation.state != _WAITS:
        _refuse_settled(operation)
    if _is_requester(operation, actor, who) or _has_same_name(operation, actor):
        raise ValidationError({"actor": _("Another person must approve it: the person who asked for it cannot.")})
    resolution.check_account(operation)
    if operation.sent_to not in ("", conf.fingerprint(operation.account)):
        resolution.refuse(
            _("The account has another address or key at the provider since. Reject it, and ask for it again.")
        )
    if operation.body is None:
        resolution.refuse(_("What it asked for was erased; it can only be rejected."))
    shown = operation.body_digest if digest is None else digest
    if shown != operation.body_digest or ledger.digest_of(bytes(operation.body)) != operation.body_digest:
        resolution.refuse(_("It is not what was asked for: it was changed since. Reject it, and ask for it again."))
    if not operations.of(operation).matches_request(operation, _body(operation)):
        resolution.refuse(_("Its request and its record differ. Reject it, and ask for it again."))


def is_requester(operation: Operation, user: object) -> bool:
    """Return True if this user asked for the operation.

    Args:
        operation: An instance.
        user: A user; False for any other value.
    """
    return operation.actor_id != "" and operation.actor_id == permissions.user_id(user)


def _is_requester(operation: Operation, actor: object, who: str) -> bool:
    return is_requester(operation, actor) or who == operation.actor


def _has_same_name(operation: Operation, actor: Any) -> bool:
    """Return True if the requester has the name of this user: as text, or as another user of the same name."""
    asked, mine = operation.actor.casefold(), permissions.name_of(actor).casefold()
    pk, _colon, name = asked.partition(":")
    # A text may begin with the user's key. An ``actor_id`` tells the keys of two tables apart.
    return mine in (asked, name) or (not operation.actor_id and pk == str(actor.pk).casefold())


def _intent(operation: Operation) -> Intent:
    """Return the recorded operation as its precondition reads it."""
    return Intent(
        operation=operation.operation,
        account=operation.account,
        arguments={},
        body=_body(operation),
        target_id=operation.target_id,
        amount=operation.amount,
        currency=operation.currency,
        operation_id=operation.pk,
    )


def _body(operation: Operation) -> Json:
    body: Json = json.loads(bytes(operation.body or b"{}"))
    return body


def _refuse_settled(operation: Operation) -> NoReturn:
    state = operation.get_state_display()
    if operation.approved_by:
        words = _("%(who)s has approved it already; it stands at: %(state)s.")
        resolution.refuse(words % {"who": permissions.actor_name(operation.approved_by), "state": state})
    resolution.refuse(_("It does not wait for approval; it stands at: %(state)s.") % {"state": state})
