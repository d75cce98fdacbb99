"""Provide the page that refunds a payment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import services
from payments_integration.admin.flows.confirmation import (
    ASK_FOR_APPROVAL,
    NEEDS_APPROVAL,
    Confirmation,
    ConfirmationPage,
)
from payments_integration.admin.flows.forms import (
    BANK_ACCOUNT_FIELDS,
    NEW_ACCOUNT,
    DestinationForm,
    KeyedForm,
    MoneyField,
    account_facts,
    destination_facts,
    destination_in_words,
    example,
)
from payments_integration.admin.shared import display, masking, people, twins
from payments_integration.admin.shared.buttons import AGAIN, Outcome
from payments_integration.admin.shared.display import explain
from payments_integration.admin.shared.sections import Page
from payments_integration.enums import MethodFamily
from payments_integration.exceptions import PaymentsError
from payments_integration.models import (
    Operation,
    OperationState,
    Payment,
    Refund,
    open_refund_operations,
    refundable_rest,
)
from payments_integration.money import format_amount, format_money
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin


#: The parameter that fills in the excess of an overpaid payment instead of everything that is left.
EXCESS = "excess"
REFUNDED_JUST_NOW = gettext_lazy(
    "A refund of this payment was asked for at {}: {}. Confirm only if more of it is to be refunded."
)


class ReasonForm(KeyedForm):
    reason = forms.CharField(
        label=gettext_lazy("Reason"), required=False, max_length=2000, widget=AdminTextareaWidget(attrs={"rows": 2})
    )


class RefundForm(ReasonForm):
    def __init__(self, payment: Payment, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"] = MoneyField(
            currency=payment.currency,
            label=_("Amount in %(currency)s") % {"currency": payment.currency},
            help_text=_("For example %(example)s.") % {"example": example(payment.currency)},
        )


class BankRefundForm(RefundForm, DestinationForm):
    """A refund that runs as a payout to the payer's bank account."""

    def __init__(self, payment: Payment, *args: Any, **kwargs: Any) -> None:
        super().__init__(payment, *args, country=payment.country, **kwargs)


class RefundPage(ConfirmationPage):
    """Refund one payment, up to ``refundable_rest``: to its card, or to a bank account that the user types."""

    template = "admin/payments_integration/payment/refund.html"
    title = gettext_lazy("Refund payment")
    groups = ((None, ("amount", "reason")), (gettext_lazy("Where the money goes"), BANK_ACCOUNT_FIELDS))

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest, payment: Payment) -> None:
        super().__init__(model_admin, request)
        self.payment = payment
        self.by_card = payment.method_family == MethodFamily.CARD

    def form(self, *args: Any, **kwargs: Any) -> RefundForm:
        return (RefundForm if self.by_card else BankRefundForm)(self.payment, *args, **kwargs)

    def initial(self) -> dict[str, Any]:
        rest = refundable_rest(self.payment)
        amount = min(self._wanted(rest) or rest, rest)
        initial = {"amount": format_amount(amount, self.payment.currency) if amount > 0 else ""}
        # Suggest the payer as the holder of the bank account, if the user may see who paid.
        if not self.by_card and self._sees_payer():
            payer = _dict(self.payment.payer)
            document = _dict(payer.get("document"))
            initial["holder_name"] = payer.get("name") or ""
            initial["document_type"] = document.get("type") or ""
            initial["document_number"] = document.get("number") or ""
        return initial

    def check(self, form: KeyedForm) -> None:
        amount = form.cleaned_data["amount"]
        try:
            rest = services.refundable(self.payment, at_least=amount)
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, explain(self.admin.admin_site, error))
            return
        self.payment.refresh_from_db()
        if amount > rest:
            words = _("At most %(rest)s can be refunded.") if rest > 0 else _("Nothing is left to refund.")
            form.add_error("amount", words % {"rest": format_money(rest, self.payment.currency)})

    def confirmation(self, form: RefundForm) -> Confirmation:
        currency, amount = self.payment.currency, form.cleaned_data["amount"]
        shown, rest = format_money(amount, currency), refundable_rest(self.payment)
        destination = _destination(form)
        card = _("the card that was charged")
        waits = self.waits(form)
        words = {"amount": shown, "recipient": destination_in_words(destination) if destination else card}
        person = display.text(destination["holder_name"]) if destination else self._payer()
        return Confirmation(
            title=_refund_of(shown, person),
            sentence=_("%(amount)s will be sent back to %(recipient)s.") % words,
            button=ASK_FOR_APPROVAL if waits else _("Refund %(amount)s") % {"amount": shown},
            facts=[
                *account_facts(self.payment.account),
                (_("Payment"), display.text(self.payment.pk)),
                (_("Merchant reference"), display.text(self.payment.merchant_reference)),
                (_("Amount"), display.money(amount, currency)),
                *(destination_facts(destination) if destination else [(_("Goes to"), card)]),
                (_("Reason"), display.text(form.cleaned_data["reason"])),
                (_("Left to refund now"), display.money(rest, currency)),
                (_("Left to refund afterwards"), display.money(rest - amount, currency)),
            ],
            notes=[*([NEEDS_APPROVAL] if waits else []), *([NEW_ACCOUNT] if destination else [])],
        )

    def waits(self, form: RefundForm) -> bool:
        reaches_limit = services.operations.reaches_approval_limit
        return not self.by_card and reaches_limit(form.cleaned_data["amount"], self.payment.currency)

    def twin(self, subject: RefundForm) -> Operation | None:
        return twins.refund(self.payment, self.since, self.keys)

    def warning(self, subject: RefundForm, twin: Operation) -> str:
        return twins.warning(self.admin.admin_site, twin, REFUNDED_JUST_NOW)

    def call(self, form: RefundForm) -> Refund:
        return services.create_refund(
            self.payment,
            amount=form.cleaned_data["amount"],
            destination=_destination(form),
            reason=form.cleaned_data["reason"] or None,
            idempotency_key=form.cleaned_data["idempotency_key"],
            actor=self.request.user,
        )

    def done(self, row: Refund) -> tuple[Payment, str, Outcome]:
        amount = format_money(row.amount, row.currency)
        message = format_html(
            _("The provider created refund {refund} of {amount}; its status is: {status}."),
            refund=display.admin_link(self.admin.admin_site, Refund, row.pk),
            amount=amount,
            status=display.text(dict(Refund.Status.choices).get(row.status, row.status)),
        )
        return self.payment, _("Refunded %(amount)s: %(id)s.") % {"amount": amount, "id": row.pk}, Outcome(message)

    def recorded(self, operation: Operation) -> tuple[Payment, str]:
        return self.payment, _("Refund asked for: operation %(id)s.") % {"id": operation.pk}

    def back(self, row: Refund | None = None) -> HttpResponse:
        return self.admin.back(self.request, self.payment)

    def crumbs(self) -> list[tuple[str, StrOrPromise]]:
        site, may_view = self.admin.admin_site, self.admin.has_view_permission(self.request, self.payment)
        return [
            ((display.list_url(site, Payment) if may_view else ""), _("Payments")),
            ((self.admin.object_url("change", self.payment) if may_view else ""), display.text(self.payment.pk)),
            ("", _("Refund")),
        ]

    def context(self, form: KeyedForm) -> dict[str, Any]:
        self.payment.refresh_from_db()
        site, payment = self.admin.admin_site, self.payment
        rest = refundable_rest(payment)
        open_operations = open_refund_operations(payment.account).filter(target_id=payment.pk).order_by("-created_at")
        excess, all_of_it = self._excess(rest), format_money(max(rest, 0), payment.currency)
        title = _("Refund up to %(amount)s to %(person)s") if self._payer() else _("Refund up to %(amount)s")
        return {
            "title": title % {"amount": all_of_it, "person": self._payer()},
            "excess": format_money(excess, payment.currency) if excess else "",
            "is_excess": EXCESS in self.request.GET,
            "all_of_it": all_of_it,
            "payment_url": self.admin.object_url("change", payment),
            "may_view": self.admin.has_view_permission(self.request, payment),
            "summary": [
                *account_facts(payment.account),
                (_("Status"), display.status(payment.status, Payment.Status)),
                (_("Merchant reference"), display.text(payment.merchant_reference)),
                (_("Method"), display.method_name(payment.method_code)),
                (_("Received"), display.money(payment.amount_received, payment.currency)),
                (_("Paid too much"), display.money(excess, payment.currency) if excess else ""),
                (_("Refunded"), display.money(payment.refunded_amount or 0, payment.currency)),
                (_("Left to refund"), display.money(max(rest, 0), payment.currency)),
            ],
            "nothing_left": rest <= 0,
            "open_operations": [
                (display.admin_link(site, Operation, operation.pk), display.status(operation.state, OperationState))
                for operation in open_operations[:10]
            ],
            "note": None if self.by_card else NEW_ACCOUNT,
        }

    def _wanted(self, rest: int) -> int:
        """Return the amount that a link to this page named; 0 for everything that is left."""
        if EXCESS in self.request.GET:
            return self._excess(rest)
        again = self.request.GET.get(AGAIN)
        of_payment = Refund.objects.filter(account=self.payment.account, payment_id=self.payment.pk) if again else ()
        return next((refund.amount for refund in of_payment if refund.pk == again), 0)

    def _excess(self, rest: int) -> int:
        """Return the excess that is still left to refund; 0 if the payer did not pay too much."""
        return max(0, rest - self.payment.amount)

    def _payer(self) -> str:
        """Return the payer's name: masked if the user may not see it, or "" if it is not known."""
        name = people.name(Page(self.admin.admin_site, self.request), self.payment, "payer")
        return name if self._sees_payer() else name and masking.MASK

    def _sees_payer(self) -> bool:
        """Return True if the user may see the payment and personal data. A refund needs neither."""
        may_view = self.admin.has_view_permission(self.request, self.payment)
        return may_view and self.admin.sees_personal(self.request)


def _refund_of(amount: str, person: str) -> str:
    words = _("Refund %(amount)s to %(person)s") if person else _("Refund %(amount)s")
    return words % {"amount": amount, "person": person}


def _destination(form: RefundForm) -> dict[str, Any] | None:
    """Return the bank account that the money goes to; None if it goes back to the card."""
    return form.destination if isinstance(form, BankRefundForm) else None


def _dict(value: object) -> dict[str, Any]:
    """Return a dict from the provider; empty if the provider sent a value of another type."""
    return value if isinstance(value, dict) else {}
