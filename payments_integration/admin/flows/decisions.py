"""Let a person decide about an operation: its approval by a second person, and the resolution of an open outcome.

Each button calls one service. ``panels`` says which buttons are offered, and what the person must know first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import services
from payments_integration.admin.shared import display, masking
from payments_integration.admin.shared.buttons import Button, Outcome, Press
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.exceptions import NoAnswer, ProviderError
from payments_integration.models import MIRRORS, Mirror, Operation, OperationState
from payments_integration.money import format_money
from payments_integration.permissions import with_names


class CommentForm(TypedForm):
    comment = forms.CharField(
        label=gettext_lazy("Comment"),
        max_length=2000,
        widget=AdminTextareaWidget(attrs={"rows": 2}),
        help_text=gettext_lazy("How you know it. It is stored with your name."),
    )


class HappenedForm(CommentForm):
    object_id = forms.CharField(
        label=gettext_lazy("Id of the object"), max_length=255, widget=AdminTextInputWidget(attrs={"class": ""})
    )
    field_order = ("object_id", "comment")


class OthersForm(CommentForm):
    object_ids = forms.CharField(
        label=gettext_lazy("Ids of the objects"), max_length=2000, widget=AdminTextInputWidget(attrs={"class": ""})
    )
    field_order = ("object_ids", "comment")


class RejectForm(CommentForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["comment"].help_text = gettext_lazy("Why. It is stored with your name.")


class ApproveForm(CommentForm):
    #: The digest of the request that the page shows, so that no other request is approved.
    digest = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        comment = self.fields["comment"]
        comment.label, comment.help_text, comment.required = gettext_lazy("Comment (optional)"), "", False


#: After a refusal, an operation has one of these states, and the error.
_REFUSED = (OperationState.REJECTED, OperationState.CLOSED)
#: Says what a look-up found. The operation's note says the same in English.
NOT_FOUND = gettext_lazy("The provider was asked, and nothing that fits was found.")


def was_not_found(operation: Operation) -> bool:
    """Return True if the last look-up found nothing at the provider."""
    is_open = operation.state in (OperationState.NEEDS_PERSON, OperationState.UNKNOWN)
    return is_open and operation.note.endswith(services.operations.NOT_FOUND)


def outcome(operation: Operation | None) -> Outcome:
    """Return the operation's state as a message, which says why if the operation is open or was refused."""
    if operation is None:
        return Outcome(_("The operation no longer exists."), messages.ERROR)
    state = dict(OperationState.choices).get(operation.state, operation.state)
    words = _("The operation's state is: %(state)s.") % {"state": display.text(state)}
    detail = ""
    is_refused = operation.state in _REFUSED and isinstance(operation.error, dict)
    if is_refused and operation.error is not None:
        # Leave out its message: not everyone who resolves operations may see it. The page shows it to users who may.
        values = (operation.error.get(name) for name in ("code", "request_id"))
        detail = " · ".join(str(value) for value in values if value)
    elif was_not_found(operation):
        words += f" {NOT_FOUND}"
    elif operation.note and operation.state not in (OperationState.DONE, OperationState.CLOSED):
        detail = [line for line in operation.note.splitlines() if not line.startswith(" ")][-1]
    if detail:
        words += f" {display.text(with_names(masking.note(detail, operation.arguments)))}"
    resolved = operation.state in (OperationState.DONE, OperationState.CLOSED) and not is_refused
    return Outcome(words, messages.SUCCESS if resolved else messages.WARNING)


def _approve(operation: Operation, press: Press) -> None:
    try:
        services.approve(operation, press.user, press.answers["comment"], digest=press.answers["digest"])
    except (ProviderError, NoAnswer):
        # If the provider refused the request itself, that is the outcome. If it refused a read before the request, the
        # operation still waits.
        now = Operation.objects.filter(pk=operation.pk, approved_by__startswith=f"{press.user.pk}:").first()
        if now is None or now.state not in _REFUSED:
            raise


def _approved(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.DONE:
        words = _("%(amount)s was approved and sent. The provider created %(id)s.")
        amount = format_money(operation.amount or 0, operation.currency)
        return Outcome(words % {"amount": amount, "id": operation.result_id})
    return outcome(operation)


def _made(operation: Operation) -> Mirror | None:
    """Return the object that an approval created, to show it to the approver; None while it is not known."""
    model = MIRRORS.get(operation.result_kind)
    if model is None or operation.state != OperationState.DONE:
        return None
    made: Mirror | None = model._default_manager.filter(pk=operation.result_id).first()
    return made


def _rejected(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.CLOSED:
        return Outcome(_("It is closed. Nothing was sent."), messages.SUCCESS)
    return outcome(operation)


#: A decision about an open outcome. It sends nothing that can be doubled, so it needs no twin.
_resolution = partial(Button, permission="change_operation", twin=None, done=outcome)
LOOK_UP = _resolution(
    name="look-up",
    label=gettext_lazy("Look up"),
    call=lambda operation, press: services.look_up(operation, press.user),
    logged=gettext_lazy("Looked up at the provider."),
)
SEND_AGAIN = _resolution(
    name="send-again",
    label=gettext_lazy("Send again with the same key"),
    call=lambda operation, press: services.retry(operation, press.user),
    logged=gettext_lazy("Sent again with the same key."),
    question=gettext_lazy(
        "If an object at the provider may be its result, nothing is sent. Otherwise the same request is sent now, "
        "under the same key."
    ),
)
HAPPENED = _resolution(
    name="happened",
    label=gettext_lazy("It happened"),
    call=lambda operation, press: services.mark_happened(
        operation, press.answers["object_id"], press.user, press.answers["comment"]
    ),
    logged=gettext_lazy("Marked as happened."),
    question=gettext_lazy("The object is read from the provider and linked to this operation."),
    form=HappenedForm,
)
NEVER_HAPPENED = _resolution(
    name="never-happened",
    label=gettext_lazy("It never happened"),
    permission="close_operation",
    call=lambda operation, press: services.mark_never_happened(operation, press.user, press.answers["comment"]),
    logged=gettext_lazy("Marked as never happened."),
    question=gettext_lazy("The operation is closed for ever, and a new one may then do the same. Make sure first."),
    form=CommentForm,
)
OTHERS = _resolution(
    name="others",
    label=gettext_lazy("These are others"),
    permission="close_operation",
    call=lambda operation, press: services.mark_others(
        operation, press.answers["object_ids"].replace(",", " ").split(), press.user, press.answers["comment"]
    ),
    done=gettext_lazy("These objects do not keep it from being sent any more. Nothing was sent."),
    logged=gettext_lazy("Objects that fit it were marked as others."),
    question=gettext_lazy(
        "Say so only of objects that were not made by this operation. If you are wrong, the money is moved twice."
    ),
    form=OthersForm,
)
APPROVE = Button(
    name="approve",
    label=gettext_lazy("Approve and send"),
    permission="approve_operation",
    call=_approve,
    twin=None,
    done=_approved,
    leads_to=_made,
    logged=gettext_lazy("Approved."),
    form=ApproveForm,
    initial=lambda operation: {"digest": operation.body_digest},
)
REJECT = Button(
    name="reject",
    label=gettext_lazy("Reject"),
    permission="approve_operation",
    call=lambda operation, press: services.reject(operation, press.user, press.answers["comment"]),
    twin=None,
    done=_rejected,
    logged=gettext_lazy("Rejected."),
    form=RejectForm,
)
#: Shown only to the person who asked for it.
TAKE_BACK = replace(REJECT, name="take-back", label=gettext_lazy("Take it back"), logged=gettext_lazy("Taken back."))
#: The buttons of an open outcome, by the function of ``services`` that each calls.
RESOLUTIONS: dict[str, Button] = {
    "look_up": LOOK_UP,
    "retry": SEND_AGAIN,
    "mark_happened": HAPPENED,
    "mark_others": OTHERS,
    "mark_never_happened": NEVER_HAPPENED,
}
BUTTONS = (*RESOLUTIONS.values(), APPROVE, REJECT, TAKE_BACK)
