"""Build the panel above an operation whose outcome is open: who, how much, to whom, and what to do next.

The panel says what to look for at the provider, offers the button that the findings suggest, and folds the others.
``approvals`` has the panel of an operation that waits for approval.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.flows import approvals, decisions
from payments_integration.admin.shared import display, masking, people
from payments_integration.admin.shared.buttons import Tool, may_view
from payments_integration.enums import Kind
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    AccountState,
    Operation,
    OperationState,
    Payment,
)
from payments_integration.money import format_money
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin
    from payments_integration.admin.flows.forms import Fact

#: Pages warn for this time after an object of another ledger was seen.
WARN_FOR = timedelta(days=30)
#: Our clock and the provider's may differ by this much, so a person must search the dashboard with this margin.
MARGIN = timedelta(minutes=5)
_TITLES = {
    OperationState.UNKNOWN: gettext_lazy("It is not known whether this happened"),
    OperationState.NEEDS_PERSON: gettext_lazy("Decide whether this happened"),
    OperationState.DUE: gettext_lazy("Not sent yet"),
    OperationState.CLOSED: gettext_lazy("Not sent yet"),
}
#: Why a resolution is suggested.
_ADVICE = {
    "look_up": gettext_lazy("Have the provider asked first. That only reads, and sends nothing."),
    "mark_happened": gettext_lazy("What is named above fits. If the provider's dashboard shows it too, link it."),
    "mark_never_happened": gettext_lazy(
        "Nothing that fits was found. If the provider's dashboard does not show it either, say so: then it can be "
        "asked for again."
    ),
    "mark_others": gettext_lazy("If what fits was made by something else, say so."),
}
_SAME = gettext_lazy("If that is the same payout, close this one. Otherwise send it: see “Other decisions”.")
_SEND = gettext_lazy("Nothing that fits is known. If it is still wanted and the dashboard does not show it, send it.")
_SEND_AGAIN = gettext_lazy(
    "Nothing that fits was found. The provider still knows its key, so sending it again cannot do it twice."
)


@dataclass(frozen=True, slots=True)
class DecisionPanel:
    """The panel above an operation whose outcome is open. Without ``main``, nothing is suggested."""

    template: ClassVar[str] = "admin/payments_integration/includes/decision.html"

    title: StrOrPromise
    sentence: str
    notes: list[str]
    facts: list[Fact]
    #: What to look for in the provider's dashboard.
    search: list[Fact]
    #: What the app knows, as sentences.
    findings: list[str]
    #: Why the main button is suggested.
    advice: StrOrPromise = ""
    main: Tool | None = None
    folded: list[Tool] = field(default_factory=list)


def panel(model_admin: ReadOnlyAdmin, request: HttpRequest, operation: Operation) -> Any:
    """Return the panel of an operation; None if there is nothing to decide."""
    if operation.state not in OPEN_OPERATION_STATES and not operation.has_free_key:
        return None
    fitting = services.fitting_objects(operation)
    allowed = services.possible_resolutions(operation)
    tools = {
        name: approvals.tool(model_admin, request, button, operation, fitting)
        for name, button in decisions.RESOLUTIONS.items()
        if name in allowed and model_admin.may_press(button, request, operation)
    }
    same = _asked_by_user(operation)
    if operation.state == OperationState.AWAITING_APPROVAL:
        found = approvals.panel(model_admin, request, operation, fitting, list(tools.values()))
        return replace(found, notes=[*_same(model_admin, same), *found.notes])
    return _decision(model_admin, request, operation, fitting, same, tools) if allowed else None


def warnings(operation: Operation) -> list[str]:
    """Return what a person must know before an operation is approved, sent again or settled."""
    if operation.state not in OPEN_OPERATION_STATES:
        return []
    removed = display.removed(operation.account)
    found = [removed] if removed else []
    since = timezone.now() - WARN_FOR
    state = AccountState.objects.filter(account=operation.account, unknown_operation_at__gte=since).first()
    if state is None:
        return found
    words = _(
        "The provider has an object of the operation %(id)s, which is not in this ledger: a backup was restored, "
        "or another installation uses this account. What is asked for here may have been executed already: look "
        "in the provider's dashboard first."
    )
    return [*found, words % {"id": state.unknown_operation}]


def _decision(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    operation: Operation,
    fitting: list[str],
    same: Operation | None,
    tools: dict[str, Tool],
) -> DecisionPanel:
    sees, body = model_admin.sees_personal(request), approvals.body_of(operation) or {}
    # The person who decides must be able to find it in the provider's dashboard, as an approver must know the account.
    sees_recipient = sees or bool(tools)
    sees_payment = may_view(model_admin.admin_site, request, Payment)
    payment = approvals.payment_of(operation) if sees_payment else None
    first = next((name for name in _suggested(operation, fitting, same) if name in tools), "")
    notes = _notes(operation)
    if not tools:
        notes.append(_("You have no permission to decide it."))
    return DecisionPanel(
        title=_TITLES[OperationState(operation.state)],
        sentence=_headline(operation, body, payment, sees, sees_recipient),
        notes=notes,
        facts=_decision_facts(model_admin, operation, body, payment, sees_recipient),
        search=_search(operation, body, sees_recipient),
        findings=[*_same(model_admin, same), *_findings(model_admin, request, operation, fitting, same)],
        advice=_advice(operation, first, same) if first else "",
        main=tools.get(first),
        folded=[tool for name, tool in tools.items() if name != first],
    )


def _asked_by_user(operation: Operation) -> Operation | None:
    """Return an operation with which a user asked for what a program asks for here."""
    call = services.operations.get(operation.operation)
    rows = None if call is None or operation.may_have_run else call.same_by_user(operation)
    return None if rows is None else rows.first()


def _suggested(operation: Operation, fitting: list[str], same: Operation | None) -> list[str]:
    """Return the resolutions that the known facts suggest, the best one first."""
    if same is not None:
        return ["mark_never_happened"]
    if fitting:
        return ["mark_happened", "look_up", "mark_others"]
    if operation.may_have_run and not decisions.was_not_found(operation):
        return ["look_up"]
    return ["retry", "mark_never_happened"]


def _advice(operation: Operation, name: str, same: Operation | None) -> StrOrPromise:
    if same is not None:
        return _SAME
    if name == "retry":
        return _SEND_AGAIN if operation.may_have_run else _SEND
    return _ADVICE[name]


def _notes(operation: Operation) -> list[str]:
    if not operation.may_have_run:
        return [_("It was never sent, as far as is known here.")]
    words = [_("It was sent, and the answer was lost. Do not ask for it again before this is settled.")]
    if operation.state == OperationState.UNKNOWN and operation.next_attempt_at:
        at = display.moment(operation.next_attempt_at)
        words.append(_("The app goes on by itself at %(at)s.") % {"at": at})
    return words


def _headline(
    operation: Operation, body: dict[str, Any], payment: Payment | None, sees: bool, sees_recipient: bool
) -> str:
    """Return how much, and to or from whom."""
    if operation.amount is None:
        return display.operation_name(operation.operation)
    amount = format_money(operation.amount, operation.currency)
    person = _person(body, payment, sees, sees_recipient)
    if not person:
        return f"{display.operation_name(operation.operation)} · {amount}"
    call = services.operations.get(operation.operation)
    comes_in = call is not None and call.kind in (Kind.PAYMENT, Kind.DEPOSIT_REFERENCE)
    words = _("%(amount)s from %(person)s") if comes_in else _("%(amount)s to %(person)s")
    return words % {"amount": amount, "person": person}


def _person(body: dict[str, Any], payment: Payment | None, sees: bool, sees_recipient: bool) -> str:
    if payment is not None and people.is_erased(payment, "payer"):
        return str(display.ERASED)
    if recipient := people.name_in(body.get("destination")):
        return display.text(recipient if sees_recipient else masking.MASK)
    values = (body.get("payer"), payment.payer if payment is not None else None)
    name = next(filter(None, map(people.name_in, values)), "")
    return display.text(name if sees else masking.MASK) if name else ""


def _decision_facts(
    model_admin: ReadOnlyAdmin,
    operation: Operation,
    body: dict[str, Any],
    payment: Payment | None,
    sees_recipient: bool,
) -> list[Fact]:
    who = display.requester(model_admin.admin_site, operation)
    asked = _("%(who)s, %(at)s") % {"who": who, "at": display.moment(operation.created_at)}
    facts: list[Fact] = [(_("Asked for"), display.operation_name(operation.operation)), (_("Asked by"), asked)]
    facts += approvals.recipient(body.get("destination"), sees_recipient)
    if approvals.is_refund(operation):
        facts.append((_("Payment"), display.admin_link(model_admin.admin_site, Payment, operation.target_id)))
        if payment is not None:
            facts.append((_("Merchant reference"), display.text(payment.merchant_reference)))
        if body and not body.get("destination"):
            facts.append((_("Goes to"), _("the card that was charged")))
    if code := body.get("method_code"):
        facts.append((_("Method"), display.method_name(str(code))))
    return facts


def _search(operation: Operation, body: dict[str, Any], sees_recipient: bool) -> list[Fact]:
    """Return what a person can look for in the provider's dashboard."""
    call = services.operations.get(operation.operation)
    facts: list[Fact] = [
        (_("Kind"), display.kind_word(call.kind) if call is not None else display.text(operation.operation)),
        (_("Amount"), display.money(operation.amount, operation.currency) if operation.amount is not None else ""),
        (_("Reference"), display.text(operation.merchant_reference) if operation.merchant_reference else ""),
        (_("Id"), display.text(operation.target_id) if call is not None and not call.creates else ""),
        (_("Of the payment"), display.text(operation.target_id) if approvals.is_refund(operation) else ""),
    ]
    account = (body.get("destination") or {}) if isinstance(body.get("destination"), dict) else {}
    if number := account.get("account_number"):
        facts.append((_("To the account"), display.text(number if sees_recipient else masking.MASK)))
    since = (operation.sent_after or operation.first_sent_at or operation.created_at) - MARGIN
    if operation.may_have_run and operation.last_sent_at:
        until = operation.last_sent_at + MARGIN
        time = _("from %(since)s to %(until)s") % {"since": display.moment(since), "until": display.moment(until)}
    else:
        time = _("since %(since)s") % {"since": display.moment(since)}
    # If there is only one account, its alias says nothing.
    account = conf.account_name(operation.account) if operation.account in conf.aliases() else operation.account
    is_known = len(conf.aliases()) < 2 and account == operation.account
    return [*facts, (_("Time"), time), (_("Account at the provider"), "" if is_known else display.text(account))]


def _same(model_admin: ReadOnlyAdmin, same: Operation | None) -> list[str]:
    if same is None:
        return []
    words = _("{who} has asked for the same payout: {operation}, {at}.")
    site = model_admin.admin_site
    who, link = display.requester(site, same), display.admin_link(site, Operation, same.pk)
    return [format_html(words, who=who, operation=link, at=display.moment(same.created_at))]


def _findings(
    model_admin: ReadOnlyAdmin, request: HttpRequest, operation: Operation, fitting: list[str], same: Operation | None
) -> list[str]:
    """Return what the app knows about the outcome."""
    call = services.operations.get(operation.operation)
    found: list[str] = []
    if call is not None and fitting and may_view(model_admin.admin_site, request, MIRRORS[call.kind]):
        rows = MIRRORS[call.kind]._default_manager.filter(pk__in=fitting)
        found += [_fitting(model_admin, row) for row in rows[:10]]
    elif fitting:
        found += approvals.may_have_run(fitting)
    elif decisions.was_not_found(operation):
        found.append(str(decisions.NOT_FOUND))
    elif same is None:
        found.append(_("Nothing that fits it has reached this app."))
    return found


def _fitting(model_admin: ReadOnlyAdmin, row: Any) -> str:
    return format_html(
        _("{object} fits it: {amount}, {status}, {at}."),
        object=display.admin_link(model_admin.admin_site, type(row), row.pk),
        amount=display.money(row.amount, row.currency),
        status=display.status_word(row.kind, row.status),
        at=display.moment(row.created_at),
    )
