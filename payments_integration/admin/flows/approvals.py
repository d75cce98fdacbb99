"""Say in words what an operation that waits for approval will send. ``panels`` shares some of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from payments_integration import services
from payments_integration.admin.flows import decisions
from payments_integration.admin.flows.forms import account_facts, destination_facts, method_in_full
from payments_integration.admin.shared import display, masking, people
from payments_integration.admin.shared.buttons import Button, Tool, may_view, new_key, typed_in
from payments_integration.enums import Country, Kind
from payments_integration.models import Balance, Operation, Payment, refundable_rest
from payments_integration.money import format_money

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin
    from payments_integration.admin.flows.forms import Fact

#: The members of the request that have a line of their own.
_SHOWN = ("amount", "currency", "country", "method_code", "merchant_reference", "destination", "reason", "payment_id")


@dataclass(frozen=True, slots=True)
class ApprovalPanel:
    """The panel above an operation that waits for approval."""

    template: ClassVar[str] = "admin/payments_integration/includes/approval.html"

    sentence: str
    facts: list[Fact]
    notes: list[str]
    tools: list[Tool]
    folded: list[Tool]


def panel(
    model_admin: ReadOnlyAdmin, request: HttpRequest, operation: Operation, fitting: list[str], folded: list[Tool]
) -> ApprovalPanel:
    """Return the panel. A user who may approve the operation sees what the decision needs.

    This is the bank account that the money goes to, the available balance, and the payment of a refund.
    """
    may_approve = model_admin.may_press(decisions.APPROVE, request, operation)
    sees = may_approve or model_admin.sees_personal(request)
    own = services.is_requester(operation, request.user)
    notes = [_("Nothing has been sent yet."), *may_have_run(fitting)]
    if own:
        notes.append(_("You asked for it, so another person must approve it. You can take it back."))
    elif not may_approve:
        notes.append(_("You have no permission to approve it."))
    body = body_of(operation)
    if body is None:
        notes.append(_("Its request was erased. It can only be rejected."))
    tools = []
    if may_approve and not own and body is not None and not display.removed(operation.account):
        tools.append(tool(model_admin, request, decisions.APPROVE, operation, fitting))
    if own or may_approve:
        button = decisions.TAKE_BACK if own else decisions.REJECT
        tools.append(tool(model_admin, request, button, operation, fitting))

    def sees_rows(model: type[Model]) -> bool:
        return may_approve or may_view(model_admin.admin_site, request, model)

    facts = _request_facts(model_admin, operation, body or {}, sees, sees_rows)
    return ApprovalPanel(_asked(model_admin.admin_site, operation), facts, notes, tools, folded)


def may_have_run(fitting: list[str]) -> list[str]:
    return [_("It may have been executed already: %(ids)s fits it.") % {"ids": ", ".join(fitting)}] if fitting else []


def _asked(site: AdminSite, operation: Operation) -> str:
    values = {
        "who": display.requester(site, operation),
        "at": display.moment(operation.created_at),
        "amount": format_money(operation.amount or 0, operation.currency),
    }
    call = services.operations.get(operation.operation)
    request = call.approval_request if call is not None else ""
    return str(request or _("%(who)s asked on %(at)s for %(amount)s.")) % values


# Shared with the panel of an open outcome


def tool(
    model_admin: ReadOnlyAdmin, request: HttpRequest, button: Button, operation: Operation, fitting: list[str]
) -> Tool:
    call = services.operations.get(operation.operation)
    known: dict[str, Any] = {}
    if button is decisions.OTHERS:
        known["object_ids"] = ", ".join(fitting)
    elif button is decisions.HAPPENED and call is not None and not call.creates:
        known["object_id"] = operation.target_id
    elif button is decisions.HAPPENED and len(fitting) == 1:
        known["object_id"] = fitting[0]
    is_first = button is decisions.SEND_AGAIN and not operation.may_have_run
    return Tool(
        _("Send it now") if is_first else button.label,
        model_admin.object_url(button.name, operation),
        question=button.question,
        key=new_key(),
        form=button.unbound(request, operation, **known),
        is_refused=bool(typed_in(request, button.name)),
    )


def is_refund(operation: Operation) -> bool:
    call = services.operations.get(operation.operation)
    return call is not None and call.creates and call.target == Kind.PAYMENT


def payment_of(operation: Operation) -> Payment | None:
    return Payment.objects.filter(pk=operation.target_id).first() if is_refund(operation) else None


def _request_facts(
    model_admin: ReadOnlyAdmin,
    operation: Operation,
    body: dict[str, Any],
    sees: bool,
    sees_rows: Callable[[type[Model]], bool],
) -> list[Fact]:
    amount, currency = operation.amount or 0, operation.currency
    facts: list[Fact] = [(_("Amount"), display.money(amount, currency))]
    facts += recipient(body.get("destination"), sees)
    if is_refund(operation):
        facts += _refund_facts(model_admin, operation, sees_payment=sees_rows(Payment))
        reason = body.get("reason")
        facts.append((_("Reason"), display.text(reason if sees or not reason else masking.MASK)))
    else:
        facts += _payout_facts(operation, body, sees_balance=sees_rows(Balance))
    further = {name: value for name, value in body.items() if name not in _SHOWN}
    if further:
        facts.append((_("Further fields"), display.pretty_json(further if sees else masking.masked(further))))
    return facts + account_facts(operation.account)


def recipient(destination: Any, sees: bool) -> list[Fact]:
    if not destination:
        return []
    if not sees:
        return [(_("Recipient"), people.as_html(masking.field("destination", destination)))]
    try:
        return destination_facts(destination)
    except (KeyError, TypeError):
        # Another version recorded it. The person who decides must see all of it.
        return [(_("Recipient"), display.pretty_json(destination))]


def _refund_facts(model_admin: ReadOnlyAdmin, operation: Operation, *, sees_payment: bool) -> list[Fact]:
    link = display.admin_link(model_admin.admin_site, Payment, operation.target_id)
    payment = payment_of(operation) if sees_payment else None
    if payment is None:
        return [(_("Payment"), link)]
    return [
        (_("Payment"), link),
        (_("Merchant reference"), display.text(payment.merchant_reference)),
        (_("Received"), display.money(payment.amount_received, payment.currency)),
        # This refund is already subtracted, as every open operation is.
        (_("Left to refund after it"), display.money(refundable_rest(payment), payment.currency)),
    ]


def _payout_facts(operation: Operation, body: dict[str, Any], *, sees_balance: bool) -> list[Fact]:
    country = body.get("country")
    facts: list[Fact] = [
        (_("Country"), display.text(dict(Country.choices).get(str(country), country))),
        (_("Method"), method_in_full(str(body.get("method_code") or ""))),
        (_("Merchant reference"), display.text(body.get("merchant_reference"))),
    ]
    rows = Balance.objects.filter(account=operation.account, currency=operation.currency, gone_at=None)
    balance = rows.first() if sees_balance else None
    if balance is not None:
        shown = format_html(
            _("{amount} (as of {at}); it is refreshed before anything is sent"),
            amount=display.money(balance.available, balance.currency),
            at=display.moment(balance.synced_at),
        )
        facts.append((_("Available balance"), shown))
    return facts


def body_of(operation: Operation) -> dict[str, Any] | None:
    """Return the request that will be sent; None if it was erased or is not a JSON object."""
    try:
        found = json.loads(bytes(operation.body or b""))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
