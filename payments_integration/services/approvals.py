"""Approval by a second person: what waits is sent, or closed, by somebody else than who asked for it.

What is approved is the request as it was recorded, byte by byte: a change is a rejection and a new request. What it
must fit into is looked at once more, because days may have passed.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.db import Error, connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import permissions
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation, OperationState
from payments_integration.services import guards, leases, ledger, outcomes, people, sending
from payments_integration.services.checks import MAX_LONG_TEXT, Checks, Json
from payments_integration.services.intents import Doubt, Guard, Intent
from payments_integration.services.payouts import CoverGuard
from payments_integration.services.permissions import APPROVE
from payments_integration.services.recipes import CREATE_PAYOUT, CREATE_REFUND
from payments_integration.services.refunds import RestGuard
from payments_integration.transactions import repeatable, updated

_WAITS = OperationState.AWAITING_APPROVAL


# What it asks for holds personal data: error reports show the frames from here on without them.
@sensitive_variables()
def approve(operation: Operation | str, actor: object, comment: str = "", *, digest: str | None = None) -> Any:
    """Send what waited for approval; returns the mirror row that it made.

    ``actor``: a user with ``approve_operation`` who is not the one who asked, superusers included. ``digest``: the
    ``body_digest`` of what they were shown. The refundable rest, or the available balance, is read anew and checked
    again.

    Raises ValidationError (nothing sent; it waits on if it did), PermissionDenied, TransactionRefused, NoAnswer and
    ProviderError where reading fails (it waits on) or the provider refuses it (closed; ``operation.state`` tells),
    and OutcomeUnknown (approved and kept, being resolved).
    """
    guards.refuse_transaction("approve")
    operation = people.load(operation)
    who = _checked(actor, comment, required=False)
    if getattr(actor, "pk", None) is None:
        raise ValidationError({"actor": _("Only a user can approve.")})
    permissions.require(actor, APPROVE, operation)
    # All of it before the provider is asked anything, and again under the lock.
    _check(operation, actor, who, digest)
    guard = _guard(operation)
    guard.refresh()
    note = f"{who} approved it: {comment}" if comment else f"{who} approved it"
    token = leases.new_token()

    def write() -> Operation:
        doubt: Doubt | None = None
        try:
            # Its lock comes first, as where a refund is recorded.
            guard.decide(_intent(operation))
        except Doubt as error:
            doubt = error
        row = Operation.objects.select_for_update().get(pk=operation.pk)
        if row.lease_token == token:
            return row  # committed after all, and repeated
        _check(row, actor, who, digest)
        if doubt is not None:
            raise doubt  # and not where what was sent already is in its own way
        now = timezone.now()
        # Claimed in the commit that approves it: should this process die, it is resumed under the same key.
        fields = leases.sending_fields(row, token, now) | {
            "approved_by": who,
            "approved_at": now,
            "note": outcomes.noted(row, note),
        }
        for name, value in fields.items():
            setattr(row, name, value)
        row.save(update_fields=fields)
        return row

    try:
        approved = repeatable(write, using=guards.database(), durable=True, lost_races=False)
    except Error as error:
        found = _committed_after_all(operation, token, error)
        if found is None:
            raise
        approved = found
    return sending.send_now(approved)


def reject(operation: Operation | str, actor: object, comment: str) -> Operation:
    """Close what waits for approval: it will not be sent. Returns the operation; a refund's amount is free again.

    ``actor``: a user with ``approve_operation``, or whoever asked for it, who takes it back. ``comment``: why.
    Raises ValidationError, PermissionDenied.
    """
    operation = people.load(operation)
    who = _checked(actor, comment, required=True)
    takes_back = _asked(operation, actor, who)
    if not takes_back:
        if getattr(actor, "pk", None) is None:
            raise ValidationError({"actor": _("Only a user can reject what somebody else asked for.")})
        permissions.require(actor, APPROVE, operation)
    now = timezone.now()
    words = "took it back" if takes_back else "rejected it"
    note = outcomes.noted(operation, f"{who} {words}: {comment}")
    waiting = Operation.objects.filter(pk=operation.pk, state=_WAITS)
    if not updated(waiting, state=OperationState.CLOSED, closed_at=now, next_attempt_at=None, note=note):
        operation.refresh_from_db()
        _refuse_settled(operation)
    operation.refresh_from_db()
    return operation


def _checked(actor: object, comment: str, *, required: bool) -> str:
    """Who decides, as it is kept."""
    checks = Checks()
    who = checks.actor("actor", actor)
    if not who:
        checks.fail("actor", _("Say who decides."), "required")
    if comment or required:
        checks.text("comment", comment, max_length=MAX_LONG_TEXT, required=True)
    checks.finish()
    return who


def _check(operation: Operation, actor: object, who: str, digest: str | None) -> None:
    """Refuse what this person may not approve as it is."""
    if operation.state != _WAITS:
        _refuse_settled(operation)
    if _asked(operation, actor, who) or _has_same_name(operation, actor):
        raise ValidationError({"actor": _("Another person must approve it than the one who asked for it.")})
    people.check_account(operation)
    if operation.sent_to not in ("", leases.fingerprint(operation.account)):
        _refuse(_("The account has another address or key at the provider since. Reject it, and ask for it anew."))
    if operation.body is None:
        _refuse(_("What it asked for was erased; it can only be rejected."))
    shown = operation.body_digest if digest is None else digest
    if shown != operation.body_digest or ledger.digest_of(bytes(operation.body)) != operation.body_digest:
        _refuse(_("It is not what was asked for: it was changed since. Reject it, and ask for it anew."))
    body, is_refund = _body(operation), operation.operation == CREATE_REFUND
    about = (body.get("payment_id"), operation.currency) if is_refund else ("", body.get("currency"))
    if body.get("amount") != operation.amount or about != (operation.target_id, operation.currency):
        _refuse(_("Its request and its record differ. Reject it, and ask for it anew."))


def _asked(operation: Operation, actor: object, who: str) -> bool:
    """Whether this is who asked for it."""
    pk = getattr(actor, "pk", None)
    is_user = pk is not None and operation.actor_id != "" and operation.actor_id == ledger.user_id(actor)
    return is_user or who == operation.actor


def _has_same_name(operation: Operation, actor: Any) -> bool:
    """Whether who asked goes by the name of this user: as text, or under an account of the same name."""
    asked, mine = operation.actor.casefold(), str(actor.get_username()).casefold()
    pk, _colon, name = asked.partition(":")
    return mine in (asked, name) or pk == str(actor.pk).casefold()


def _guard(operation: Operation) -> Guard:
    """What must still hold; the operation does not stand in its own way."""
    if operation.operation == CREATE_PAYOUT:
        return CoverGuard(operation.account, operation.currency, operation.amount or 0)
    return RestGuard(operation.account, operation.target_id, takes_all=False, recorded=operation.pk)


def _intent(operation: Operation) -> Intent:
    """As a guard reads it."""
    return Intent(
        operation=operation.operation,
        account=operation.account,
        arguments={},
        body=_body(operation),
        target_id=operation.target_id,
        amount=operation.amount,
        currency=operation.currency,
    )


def _body(operation: Operation) -> Json:
    body: Json = json.loads(bytes(operation.body or b"{}"))
    return body


def _committed_after_all(operation: Operation, token: str, error: Error) -> Operation | None:
    """The operation, where its approval stands although committing it seemed to fail; None where it does not.

    Raises OutcomeUnknown where the database cannot tell.
    """
    using = guards.database()
    try:
        connections[using].close_if_unusable_or_obsolete()
        with transaction.atomic(using=using, durable=True):
            # Under a lock: that waits for a commit that is still under way.
            return Operation.objects.select_for_update().filter(pk=operation.pk, lease_token=token).first()
    except Error:
        raise OutcomeUnknown(operation) from error


def _refuse_settled(operation: Operation) -> NoReturn:
    state = operation.get_state_display()
    if operation.approved_by:
        words = _("%(who)s has approved it already; it stands at: %(state)s.")
        _refuse(words % {"who": operation.approved_by, "state": state})
    _refuse(_("It does not wait for approval; it stands at: %(state)s.") % {"state": state})


def _refuse(message: str) -> NoReturn:
    raise ValidationError({"operation": message})
