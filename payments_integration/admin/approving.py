"""What waits for a second person: in words what would be sent, and the buttons to decide. The service decides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration import conf, services
from payments_integration.admin import display, masking, on_demand
from payments_integration.admin.buttons import Button, Outcome, Press, Tool, new_key
from payments_integration.admin.resolving import CommentForm, outcome, told
from payments_integration.enums import Country
from payments_integration.exceptions import ProviderError
from payments_integration.models import Balance, Operation, OperationState, Payment
from payments_integration.money import format_money

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin
    from payments_integration.admin.confirming import Fact

#: Members of a request that the panel has a line of its own for.
_SAID = ("amount", "currency", "country", "method_code", "merchant_reference", "destination", "reason", "payment_id")


class ApproveForm(forms.Form):
    comment = forms.CharField(
        label=gettext_lazy("Comment (optional)"),
        required=False,
        max_length=2000,
        widget=AdminTextareaWidget(attrs={"rows": 2}),
    )
    #: What the person was shown: another request is not approved by this page.
    digest = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)


class RejectForm(CommentForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["comment"].help_text = gettext_lazy("Why; it is kept with your name.")


@dataclass(frozen=True, slots=True)
class Panel:
    """What stands above an operation that waits."""

    template: ClassVar[str] = "admin/payments_integration/includes/approval.html"

    sentence: str
    facts: list[Fact]
    notes: list[str]
    tools: list[Tool]


def waits(operation: Operation) -> bool:
    return operation.state == OperationState.AWAITING_APPROVAL


def asked_by(operation: Operation, user: Any) -> bool:
    """Whether this user asked for it, for what the page offers; the service looks closer."""
    return operation.actor_id != "" and operation.actor_id == services.ledger.user_id(user)


def panel(model_admin: ReadOnlyAdmin, request: HttpRequest, operation: Operation, *, may_approve: bool) -> Panel:
    """``may_approve``: the user holds the permission. Who decides must see where the money goes."""
    sees = may_approve or model_admin.sees_personal(request)
    own = asked_by(operation, request.user)
    notes = [_("Nothing has been sent yet.")]
    if own:
        notes.append(_("You asked for it: another person must approve it. You can take it back."))
    elif not may_approve:
        notes.append(_("You have no permission to approve it."))
    body = _body(operation)
    if body is None:
        notes.append(_("What it asked for was erased; it can only be rejected."))
    tools = []
    if may_approve and not own and body is not None:
        tools.append(_tool(model_admin, APPROVE, operation))
    if own or may_approve:
        tools.append(_tool(model_admin, TAKE_BACK if own else REJECT, operation))
    return Panel(_sentence(operation), _facts(model_admin, operation, body or {}, sees), notes, tools)


def _tool(model_admin: ReadOnlyAdmin, button: Button, operation: Operation) -> Tool:
    url = model_admin.object_url(button.name, operation)
    return Tool(button.label, url, key=new_key(), form=button.unbound(operation))


def _sentence(operation: Operation) -> str:
    values = {
        "who": display.text(operation.actor),
        "at": display.moment(operation.created_at),
        "amount": format_money(operation.amount or 0, operation.currency),
    }
    if operation.operation == services.recipes.CREATE_REFUND:
        return _("%(who)s asked on %(at)s to refund %(amount)s to a bank account.") % values
    return _("%(who)s asked on %(at)s to send %(amount)s to a bank account.") % values


def _facts(model_admin: ReadOnlyAdmin, operation: Operation, body: dict[str, Any], sees: bool) -> list[Fact]:
    amount, currency = operation.amount or 0, operation.currency
    facts: list[Fact] = [
        (_("Amount"), display.money(amount, currency)),
        (_("In words"), on_demand.money.in_words(amount, currency)),
    ]
    facts += _recipient(body.get("destination"), sees)
    if operation.operation == services.recipes.CREATE_REFUND:
        facts += _refund_facts(model_admin, operation)
        reason = body.get("reason")
        facts.append((_("Reason"), display.text(reason if sees or not reason else masking.MASK)))
    else:
        facts += _payout_facts(operation, body)
    further = {name: value for name, value in body.items() if name not in _SAID}
    if further:
        facts.append((_("Further"), display.pretty_json(further if sees else masking.masked(further))))
    if len(conf.aliases()) > 1:
        facts.append((_("Account"), display.text(operation.account)))
    return facts


def _recipient(destination: Any, sees: bool) -> list[Fact]:
    if not destination:
        return []
    if not sees:
        return [(_("Recipient"), display.pretty_json(masking.field("destination", destination)))]
    try:
        return list(on_demand.destinations.facts(destination))
    except (KeyError, TypeError):
        # Of another version, or changed since; whoever decides must see it whole.
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
        # This refund is counted already, as everything that is promised.
        (_("Left to refund after it"), display.money(services.refunds.refundable_rest(payment), payment.currency)),
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
            _("{amount} (as of {at}); it is read anew before anything is sent"),
            amount=display.money(balance.available, balance.currency),
            at=display.moment(balance.synced_at),
        )
        facts.append((_("Available balance"), shown))
    return facts


def _body(operation: Operation) -> dict[str, Any] | None:
    """What would be sent; None where it was erased, or nobody can read it."""
    try:
        found = json.loads(bytes(operation.body or b""))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _approve(operation: Operation, press: Press) -> None:
    try:
        services.approve(operation, press.user, press.answers["comment"], digest=press.answers["digest"])
    except services.leases.LeaseLost:
        pass  # approved; another worker sends it, and the outcome below says how far that is
    except ProviderError:
        # A refusal of what was sent is an outcome; one of what was read before leaves it waiting.
        now = Operation.objects.filter(pk=operation.pk, approved_by__startswith=f"{press.user.pk}:").first()
        if now is None or now.state != OperationState.REJECTED:
            raise
    except ValidationError as error:
        raise _for_people(error, operation.currency) from error


def _reject(operation: Operation, press: Press) -> None:
    services.reject(operation, press.user, press.answers["comment"])


def _for_people(error: ValidationError, currency: str) -> ValidationError:
    """The service speaks of minor units; people do not."""
    if not hasattr(error, "error_dict"):
        return error
    complaints: dict[str, list[Any]] = {}
    for name, found in error.error_dict.items():
        for each in found:
            rest = (each.params or {}).get("rest")
            words = _("At most %(rest)s can be refunded.")
            said = words % {"rest": format_money(rest, currency)} if isinstance(rest, int) else each
            complaints.setdefault(name, []).append(said)
    return ValidationError(complaints)


def _approved(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.DONE:
        return Outcome(_("It was approved and sent; the provider made %(id)s.") % {"id": operation.result_id})
    return outcome(operation)


def _rejected(operation: Operation | None) -> Outcome:
    if operation is not None and operation.state == OperationState.CLOSED:
        return Outcome(_("It is closed; nothing was sent."), messages.SUCCESS)
    return outcome(operation)


APPROVE = Button(
    name="approve",
    label=gettext_lazy("Approve and send"),
    permission="approve",
    call=told(_approve),
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
    call=told(_reject),
    done=_rejected,
    logged=gettext_lazy("Rejected."),
    shown=waits,
    form=RejectForm,
)
#: Of whoever asked for it.
TAKE_BACK = Button(
    name="take-back",
    label=gettext_lazy("Take it back"),
    permission="take_back",
    call=told(_reject),
    done=_rejected,
    logged=gettext_lazy("Taken back."),
    shown=waits,
    form=RejectForm,
)
