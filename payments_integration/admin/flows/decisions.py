"""What a person decides about an operation: its approval by a second person, and the resolution of an open outcome.

Each button calls one service. The panel above an operation that waits for approval says in words what will be sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.shared import display, masking
from payments_integration.admin.shared.buttons import Button, Outcome, Press, Tool, new_key
from payments_integration.enums import Country, Kind
from payments_integration.exceptions import NoAnswer, ProviderError
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    Balance,
    Operation,
    OperationState,
    Payment,
    refundable_rest,
)
from payments_integration.money import format_money
from payments_integration.permissions import with_names

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin
    from payments_integration.admin.flows.forms import Fact

#: So long after an object of another ledger was seen, the pages warn.
WARN_FOR = timedelta(days=30)
#: Members of the request that have a line of their own.
_SHOWN = ("amount", "currency", "country", "method_code", "merchant_reference", "destination", "reason", "payment_id")


class CommentForm(forms.Form):
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


@dataclass(frozen=True, slots=True)
class ApprovalPanel:
    """The panel above an operation that waits for approval."""

    template: ClassVar[str] = "admin/payments_integration/includes/approval.html"

    sentence: str
    facts: list[Fact]
    notes: list[str]
    tools: list[Tool]


def waits(operation: Operation) -> bool:
    return operation.state == OperationState.AWAITING_APPROVAL


def approval_panel(
    model_admin: ReadOnlyAdmin, request: HttpRequest, operation: Operation, *, may_approve: bool
) -> ApprovalPanel:
    """``may_approve``: the user has the permission, and then sees the bank account that the money goes to."""
    sees = may_approve or model_admin.sees_personal(request)
    own = services.is_requester(operation, request.user)
    notes = [_("Nothing has been sent yet.")]
    if own:
        notes.append(_("You asked for it, so another person must approve it. You can take it back."))
    elif not may_approve:
        notes.append(_("You have no permission to approve it."))
    body = _body(operation)
    if body is None:
        notes.append(_("Its request was erased. It can only be rejected."))
    tools = []
    if may_approve and not own and body is not None:
        tools.append(_tool(model_admin, APPROVE, operation))
    if own or may_approve:
        tools.append(_tool(model_admin, TAKE_BACK if own else REJECT, operation))
    return ApprovalPanel(_sentence(operation), _facts(model_admin, operation, body or {}, sees), notes, tools)


def warnings(operation: Operation) -> list[str]:
    """What a person must know before an operation is approved, sent again or settled."""
    if operation.state not in OPEN_OPERATION_STATES:
        return []
    found = []
    since = timezone.now() - WARN_FOR
    state = AccountState.objects.filter(account=operation.account, unknown_operation_at__gte=since).first()
    if state is not None:
        words = _(
            "The provider has an object of the operation %(id)s, which is not in this ledger: a backup was restored, "
            "or another installation uses this account. What is asked for here may have been executed already: look "
            "in the provider's dashboard first."
        )
        found.append(words % {"id": state.unknown_operation})
    if ids := services.fitting_objects(operation):
        found.append(_("It may have been executed already: %(ids)s fits it.") % {"ids": ", ".join(ids)})
    return found


def _tool(model_admin: ReadOnlyAdmin, button: Button, operation: Operation) -> Tool:
    url = model_admin.object_url(button.name, operation)
    return Tool(button.label, url, key=new_key(), form=button.unbound(operation))


def _sentence(operation: Operation) -> str:
    values = {
        "who": display.actor(operation.actor),
        "at": display.moment(operation.created_at),
        "amount": format_money(operation.amount or 0, operation.currency),
    }
    call = services.operations.get(operation.operation)
    request = call.approval_request if call is not None else ""
    return str(request or _("%(who)s asked on %(at)s for %(amount)s.")) % values


def _facts(model_admin: ReadOnlyAdmin, operation: Operation, body: dict[str, Any], sees: bool) -> list[Fact]:
    # Loaded with the first operation that waits, not at start-up.
    from payments_integration.admin.flows.forms import amount_in_words  # noqa: PLC0415

    amount, currency = operation.amount or 0, operation.currency
    facts: list[Fact] = [
        (_("Amount"), display.money(amount, currency)),
        (_("In words"), amount_in_words(amount, currency)),
    ]
    facts += _recipient(body.get("destination"), sees)
    call = services.operations.get(operation.operation)
    if call is not None and call.target == Kind.PAYMENT:
        facts += _refund_facts(model_admin, operation)
        reason = body.get("reason")
        facts.append((_("Reason"), display.text(reason if sees or not reason else masking.MASK)))
    else:
        facts += _payout_facts(operation, body)
    further = {name: value for name, value in body.items() if name not in _SHOWN}
    if further:
        facts.append((_("Further fields"), display.pretty_json(further if sees else masking.masked(further))))
    if len(conf.aliases()) > 1:
        facts.append((_("Account"), display.text(operation.account)))
    return facts


def _recipient(destination: Any, sees: bool) -> list[Fact]:
    if not destination:
        return []
    if not sees:
        return [(_("Recipient"), display.pretty_json(masking.field("destination", destination)))]
    from payments_integration.admin.flows.forms import destination_facts  # noqa: PLC0415

    try:
        return destination_facts(destination)
    except (KeyError, TypeError):
        # Recorded by another version. The person who decides must see all of it.
        return [(_("Recipient"), display.pretty_json(destination))]


def _refund_facts(model_admin: ReadOnlyAdmin, operation: Operation) -> list[Fact]:
    link = display.admin_link(model_admin.admin_site, Payment, operation.target_id)
    payment = Payment.objects.filter(pk=operation.target_id).first()
    if payment is None:
        return [(_("Payment"), link)]
    return [
        (_("Payment"), link),
        (_("Merchant reference"), display.text(payment.merchant_reference)),
        (_("Received"), display.money(payment.amount_received, payment.currency)),
        # This refund is already subtracted, like every open operation.
        (_("Left to refund after it"), display.money(refundable_rest(payment), payment.currency)),
    ]


def _payout_facts(operation: Operation, body: dict[str, Any]) -> list[Fact]:
    country = body.get("country")
    facts: list[Fact] = [
        (_("Country"), display.text(dict(Country.choices).get(str(country), country))),
        (_("Method"), display.text(body.get("method_code"))),
        (_("Merchant reference"), display.text(body.get("merchant_reference"))),
    ]
    balance = Balance.objects.filter(account=operation.account, currency=operation.currency).first()
    if balance is not None:
        shown = format_html(
            _("{amount} (as of {at}); it is refreshed before anything is sent"),
            amount=display.money(balance.available, balance.currency),
            at=display.moment(balance.synced_at),
        )
        facts.append((_("Available balance"), shown))
    return facts


def _body(operation: Operation) -> dict[str, Any] | None:
    """The request that will be sent; None if it was erased or is not a JSON object."""
    try:
        found = json.loads(bytes(operation.body or b""))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _allows(resolution: str, operation: Operation) -> bool:
    """Whether the operation's state allows this function of ``services``."""
    return resolution in services.possible_resolutions(operation)


#: An operation has one of these, and the error, after a refusal.
_REFUSED = (OperationState.REJECTED, OperationState.CLOSED)


def _initial(operation: Operation) -> dict[str, Any]:
    call = services.operations.get(operation.operation)
    return {"object_id": operation.target_id} if call is not None and not call.creates else {}


def outcome(operation: Operation | None) -> Outcome:
    """The operation's state as a message, with the provider's error or the last line of its note."""
    if operation is None:
        return Outcome(_("The operation no longer exists."), messages.ERROR)
    state = dict(OperationState.choices).get(operation.state, operation.state)
    words = _("The operation's state is: %(state)s.") % {"state": display.text(state)}
    detail = ""
    is_refused = operation.state in _REFUSED and isinstance(operation.error, dict)
    if is_refused and operation.error is not None:
        values = (operation.error.get(name) for name in ("code", "message", "request_id"))
        detail = " · ".join(str(value) for value in values if value)
    elif operation.note:
        detail = [line for line in operation.note.splitlines() if not line.startswith(" ")][-1]
    if detail:
        # It may quote the arguments, which not everyone who resolves operations may see.
        words += f" {display.text(with_names(masking.without(detail, operation.arguments)))}"
    resolved = operation.state in (OperationState.DONE, OperationState.CLOSED) and not is_refused
    return Outcome(words, messages.SUCCESS if resolved else messages.WARNING)


def _approve(operation: Operation, press: Press) -> None:
    try:
        services.approve(operation, press.user, press.answers["comment"], digest=press.answers["digest"])
    except (ProviderError, NoAnswer):
        # If the request itself was refused, that is the outcome. If a read before it was, the operation still waits.
        now = Operation.objects.filter(pk=operation.pk, approved_by__startswith=f"{press.user.pk}:").first()
        if now is None or now.state not in _REFUSED:
            raise
    except ValidationError as error:
        raise _with_major_units(error, operation.currency) from error


def _reject(operation: Operation, press: Press) -> None:
    services.reject(operation, press.user, press.answers["comment"])


def _with_major_units(error: ValidationError, currency: str) -> ValidationError:
    """The service's error, with the refundable rest as a person reads it instead of in minor units."""
    if not hasattr(error, "error_dict"):
        return error
    errors: dict[str, list[Any]] = {}
    for name, found in error.error_dict.items():
        for each in found:
            rest = (each.params or {}).get("rest")
            words = _("At most %(rest)s can be refunded.")
            shown = words % {"rest": format_money(rest, currency)} if isinstance(rest, int) else each
            errors.setdefault(name, []).append(shown)
    return ValidationError(errors)


def _approved(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.DONE:
        return Outcome(_("It was approved and sent. The provider created %(id)s.") % {"id": operation.result_id})
    return outcome(operation)


def _rejected(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.CLOSED:
        return Outcome(_("It is closed. Nothing was sent."), messages.SUCCESS)
    return outcome(operation)


LOOK_UP = Button(
    name="look-up",
    label=gettext_lazy("Look up"),
    permission="resolve",
    call=lambda operation, press: services.look_up(operation, press.user),
    twin=None,
    done=outcome,
    logged=gettext_lazy("Looked up at the provider."),
    shown=partial(_allows, "look_up"),
)
SEND_AGAIN = Button(
    name="send-again",
    label=gettext_lazy("Send again with the same key"),
    permission="resolve",
    call=lambda operation, press: services.retry(operation, press.user),
    twin=None,
    done=outcome,
    logged=gettext_lazy("Sent again with the same key."),
    shown=partial(_allows, "retry"),
    question=gettext_lazy(
        "If an object at the provider may be its result, nothing is sent. Otherwise the same request is sent now, "
        "under the same key."
    ),
)
HAPPENED = Button(
    name="happened",
    label=gettext_lazy("It happened"),
    permission="resolve",
    call=lambda operation, press: services.mark_happened(
        operation, press.answers["object_id"], press.user, press.answers["comment"]
    ),
    twin=None,
    done=outcome,
    logged=gettext_lazy("Marked as happened."),
    shown=partial(_allows, "mark_happened"),
    question=gettext_lazy("The object is read from the provider and linked to this operation."),
    form=HappenedForm,
    initial=_initial,
)
NEVER_HAPPENED = Button(
    name="never-happened",
    label=gettext_lazy("It never happened"),
    permission="close",
    call=lambda operation, press: services.mark_never_happened(operation, press.user, press.answers["comment"]),
    twin=None,
    done=outcome,
    logged=gettext_lazy("Marked as never happened."),
    shown=partial(_allows, "mark_never_happened"),
    question=gettext_lazy("The operation is closed for ever, and a new one may then do the same. Make sure first."),
    form=CommentForm,
)
OTHERS = Button(
    name="others",
    label=gettext_lazy("These are others"),
    permission="close",
    call=lambda operation, press: services.mark_others(
        operation, press.answers["object_ids"].replace(",", " ").split(), press.user, press.answers["comment"]
    ),
    twin=None,
    done=gettext_lazy("These objects do not keep it from being sent any more. Nothing was sent."),
    logged=gettext_lazy("Objects that fit it were marked as others."),
    shown=partial(_allows, "mark_others"),
    question=gettext_lazy(
        "Say so only of objects that were not made by this operation. If you are wrong, the money is moved twice."
    ),
    form=OthersForm,
    initial=lambda operation: {"object_ids": ", ".join(services.fitting_objects(operation))},
)
APPROVE = Button(
    name="approve",
    label=gettext_lazy("Approve and send"),
    permission="approve",
    call=_approve,
    twin=None,
    done=_approved,
    logged=gettext_lazy("Approved."),
    shown=waits,
    form=ApproveForm,
    initial=lambda operation: {"digest": operation.body_digest},
)
REJECT = Button(
    name="reject",
    label=gettext_lazy("Reject"),
    permission="approve",
    call=_reject,
    twin=None,
    done=_rejected,
    logged=gettext_lazy("Rejected."),
    shown=waits,
    form=RejectForm,
)
#: Only for the person who asked for it.
TAKE_BACK = replace(
    REJECT,
    name="take-back",
    label=gettext_lazy("Take it back"),
    permission="take_back",
    logged=gettext_lazy("Taken back."),
)
