"""What a person decides about an operation whose outcome is open: four buttons, each one call of a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration import services
from payments_integration.admin import display, masking
from payments_integration.admin.buttons import Button, Call, Outcome, Press
from payments_integration.exceptions import WireError
from payments_integration.models import Operation, OperationState

_OPEN = (OperationState.UNKNOWN, OperationState.NEEDS_PERSON)
_UNSENT_OR_OPEN = (OperationState.DUE, *_OPEN)
_CLOSABLE = (OperationState.DUE, OperationState.NEEDS_PERSON)


class CommentForm(forms.Form):
    comment = forms.CharField(
        label=gettext_lazy("Comment"),
        max_length=2000,
        widget=AdminTextareaWidget(attrs={"rows": 2}),
        help_text=gettext_lazy("How you know; it is kept with your name."),
    )


class HappenedForm(CommentForm):
    object_id = forms.CharField(
        label=gettext_lazy("Id of the object"), max_length=255, widget=AdminTextInputWidget(attrs={"class": ""})
    )
    field_order = ("object_id", "comment")


def can_be_looked_up(operation: Operation) -> bool:
    return operation.state in _OPEN and operation.may_have_run


def can_be_sent_again(operation: Operation) -> bool:
    if operation.state not in _UNSENT_OR_OPEN or operation.operation not in services.recipes.RECIPES:
        return False
    if isinstance(operation.error, dict) and operation.error.get("code") == "idempotency_conflict":
        return False
    try:
        return services.sending.may_resend(operation)
    except ImproperlyConfigured:
        return False  # its account is no longer configured


def can_have_happened(operation: Operation) -> bool:
    # What was deleted cannot be shown; a look-up finds that it is gone.
    recipes = services.recipes
    is_known = operation.operation in recipes.RECIPES and operation.operation != recipes.DELETE_WEBHOOK_ENDPOINT
    return operation.state in _OPEN and operation.may_have_run and is_known


def can_be_closed(operation: Operation) -> bool:
    return operation.state in _CLOSABLE


def _initial(operation: Operation) -> dict[str, Any]:
    recipe = services.recipes.RECIPES.get(operation.operation)
    return {"object_id": operation.target_id} if recipe is not None and recipe.on_target else {}


def outcome(operation: Operation | None) -> Outcome:
    """Where the operation stands now, with the last line of its note."""
    if operation is None:
        return Outcome(_("The operation is gone."), messages.ERROR)
    state = dict(OperationState.choices).get(operation.state, operation.state)
    words = _("The operation stands at: %(state)s.") % {"state": display.text(state)}
    said = ""
    if operation.state == OperationState.REJECTED and isinstance(operation.error, dict):
        told = (operation.error.get(name) for name in ("code", "message", "request_id"))
        said = " · ".join(str(value) for value in told if value)
    elif operation.note:
        said = [line for line in operation.note.splitlines() if not line.startswith(" ")][-1]
    if said:
        # It may quote what was sent, and not everybody who settles operations may see that.
        words += f" {display.text(masking.without(said, operation.arguments))}"
    settled = operation.state in (OperationState.DONE, OperationState.CLOSED)
    return Outcome(words, messages.SUCCESS if settled else messages.WARNING)


def told(call: Callable[[Operation, Press], object]) -> Call:
    """What the services do not call a refusal, as one."""

    def calling(operation: Operation, press: Press) -> object:
        try:
            return call(operation, press)
        except services.leases.LeaseLost as error:
            raise ValidationError(_("Somebody else has taken it over meanwhile; see its note.")) from error
        except WireError as error:
            raise ValidationError(_("What the provider answered cannot be taken in: %s") % error) from error

    return calling


LOOK_UP = Button(
    name="look-up",
    label=gettext_lazy("Look up"),
    permission="resolve",
    call=told(lambda operation, press: services.look_up(operation, press.user)),
    done=outcome,
    logged=gettext_lazy("Looked up at the provider."),
    shown=can_be_looked_up,
)
SEND_AGAIN = Button(
    name="send-again",
    label=gettext_lazy("Send again with the same key"),
    permission="resolve",
    call=told(lambda operation, press: services.retry(operation, press.user)),
    done=outcome,
    logged=gettext_lazy("Sent again with the same key."),
    shown=can_be_sent_again,
    question=gettext_lazy("The same request leaves now. What was executed before is not executed twice."),
)
HAPPENED = Button(
    name="happened",
    label=gettext_lazy("It happened"),
    permission="resolve",
    call=told(
        lambda operation, press: services.mark_happened(
            operation, press.answers["object_id"], press.user, press.answers["comment"]
        )
    ),
    done=outcome,
    logged=gettext_lazy("Marked as happened."),
    shown=can_have_happened,
    question=gettext_lazy("The object is read from the provider and linked to this operation."),
    form=HappenedForm,
    initial=_initial,
)
NEVER_HAPPENED = Button(
    name="never-happened",
    label=gettext_lazy("It never happened"),
    permission="close",
    call=told(lambda operation, press: services.mark_never_happened(operation, press.user, press.answers["comment"])),
    done=outcome,
    logged=gettext_lazy("Marked as never happened."),
    shown=can_be_closed,
    question=gettext_lazy("It is closed for ever, and what it asked for may be asked for anew. Make sure first."),
    form=CommentForm,
)
