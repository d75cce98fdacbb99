"""The page that refunds a payment: a form, one call of the service, and its outcome in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from payments_integration import services
from payments_integration.admin import display, outcomes
from payments_integration.admin.buttons import new_key
from payments_integration.enums import AccountType, Country, DocumentType, MethodFamily
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment, Refund
from payments_integration.money import exponent, format_money, to_major, to_minor
from payments_integration.services.refunds import refundable_rest

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from payments_integration.admin.base import ReadOnlyAdmin

#: Digits, at most one separator of decimals: a thousands separator would make 1.000 pesos one peso.
_AMOUNT = re.compile(r"[0-9]{1,20}(?:[.,]([0-9]+))?")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:([.,' ])[0-9]{3})+(?:[.,][0-9]*)?")
_NEGATIVE = re.compile(r"[-\u2212][0-9., ]+")
#: The documents that people of a country have, the usual one first; a passport is usual everywhere.
_DOCUMENTS: dict[str, tuple[DocumentType, ...]] = {
    Country.CL: (DocumentType.RUT,),
    Country.CO: (DocumentType.CC, DocumentType.NIT, DocumentType.CE, DocumentType.PPT),
    Country.EC: (DocumentType.RUC, DocumentType.CC),
    Country.PE: (DocumentType.DNI, DocumentType.RUC, DocumentType.CE),
    Country.MX: (DocumentType.RFC, DocumentType.CURP),
    Country.BR: (DocumentType.CPF, DocumentType.CNPJ),
}
#: The form's field for each place that a message of the service begins with.
_PLACES = {
    "bank_code": "bank_code",
    "account_number": "account_number",
    "account_type": "account_type",
    "holder_name": "holder_name",
    "holder_document.type": "document_type",
    "holder_document.number": "document_number",
    "holder_document": "document_number",
}


class MoneyField(forms.CharField):
    """An amount typed in whole units of a currency, cleaned to minor units."""

    def __init__(self, *, currency: str, **kwargs: Any) -> None:
        super().__init__(max_length=40, **kwargs)
        self.currency = currency

    def clean(self, value: Any) -> int:
        typed = super().clean(value)
        found = _AMOUNT.fullmatch(typed)
        if found is None or len(found[1] or "") > exponent(self.currency):
            raise ValidationError(
                self._complaint(typed),
                code="invalid",
                params={
                    "example": to_major(123450, self.currency),
                    "currency": self.currency,
                    "decimals": exponent(self.currency),
                },
            )
        try:
            return to_minor(typed.replace(",", "."), self.currency)
        except ValueError as error:
            raise ValidationError(_("This amount is too large."), code="invalid") from error

    def _complaint(self, typed: str) -> StrOrPromise:
        if _NEGATIVE.fullmatch(typed):
            return _("The amount must be more than zero.")
        if _THOUSANDS.fullmatch(typed):
            return _("Write the amount without thousands separators, for example %(example)s.")
        if not _AMOUNT.fullmatch(typed):
            return _("Write the amount in digits, for example %(example)s.")
        if exponent(self.currency) == 0:
            return _("%(currency)s has no decimals: write a whole number, for example %(example)s.")
        return _("%(currency)s has %(decimals)d decimals, for example %(example)s.")


class RefundForm(forms.Form):
    """What to refund. Its checks are about typing; what may be refunded, the service decides."""

    reason = forms.CharField(
        label=_("Reason"), required=False, max_length=2000, widget=AdminTextareaWidget(attrs={"rows": 2})
    )
    #: Made with the page: however often it is sent, it is one refund.
    idempotency_key = forms.CharField(max_length=255, widget=forms.HiddenInput)

    def __init__(self, payment: Payment, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.payment = payment
        self.fields["amount"] = MoneyField(
            currency=payment.currency,
            label=_("Amount in %(currency)s") % {"currency": payment.currency},
            help_text=_("Without thousands separators, for example %(example)s.")
            % {"example": to_major(123450, payment.currency)},
            widget=AdminTextInputWidget(attrs={"inputmode": "decimal", "autocomplete": "off", "class": "pi-amount"}),
        )
        self.order_fields(["amount", "reason"])

    @property
    def destination(self) -> dict[str, Any] | None:
        """Where the money goes; None where it goes back to the card."""
        return None

    def place(self, argument: str, message: str) -> tuple[str | None, str]:
        """The field that a complaint of the service belongs to, and the complaint without its place."""
        return (argument if argument in self.fields else None), message


def document_types(country: str | None) -> list[DocumentType]:
    """Every type, those of the country first."""
    usual = (*_DOCUMENTS.get(country or "", ()), DocumentType.PASS)
    return [*usual, *(kind for kind in DocumentType if kind not in usual)]


class DestinationForm(RefundForm):
    """A refund that runs as a payout to the payer's bank account."""

    bank_code = forms.CharField(label=_("Bank code"), required=False, max_length=64, widget=AdminTextInputWidget)
    account_number = forms.CharField(label=_("Account number"), max_length=64, widget=AdminTextInputWidget)
    account_type = forms.ChoiceField(
        label=_("Account type"), required=False, choices=[("", display.EMPTY), *AccountType.choices]
    )
    holder_name = forms.CharField(label=_("Account holder"), max_length=255, widget=AdminTextInputWidget)
    document_type = forms.ChoiceField(label=_("Holder's document type"))
    document_number = forms.CharField(label=_("Holder's document number"), max_length=64, widget=AdminTextInputWidget)

    def __init__(self, payment: Payment, *args: Any, **kwargs: Any) -> None:
        super().__init__(payment, *args, **kwargs)
        cast("forms.ChoiceField", self.fields["document_type"]).choices = [
            ("", display.EMPTY),
            *((kind.value, kind.label) for kind in document_types(payment.country)),
        ]

    @property
    def destination(self) -> dict[str, Any]:
        values = self.cleaned_data
        optional = {name: values[name] for name in ("bank_code", "account_type") if values[name]}
        return {
            "type": "bank_account",
            **optional,
            "account_number": values["account_number"],
            "holder_name": values["holder_name"],
            "holder_document": {"type": values["document_type"], "number": values["document_number"]},
        }

    def place(self, argument: str, message: str) -> tuple[str | None, str]:
        where, colon, rest = message.partition(": ")
        if argument == "destination" and colon and where in _PLACES:
            return _PLACES[where], rest
        return super().place(argument, message)


class RefundPage:
    """One request of the refund page; the view has checked the permission."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest, payment: Payment) -> None:
        self.admin = model_admin
        self.request = request
        self.payment = payment
        by_card = payment.method_family == MethodFamily.CARD
        self.form_class: type[RefundForm] = RefundForm if by_card else DestinationForm

    def respond(self) -> HttpResponse:
        if self.request.method == "GET":
            return self._page(self.form_class(self.payment, initial=self._initial()))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "POST"])
        form = self.form_class(self.payment, self.request.POST)
        if not form.is_valid():
            return self._page(form)
        return self._refund(form)

    def _refund(self, form: RefundForm) -> HttpResponse:
        try:
            refund = services.create_refund(
                self.payment,
                amount=form.cleaned_data["amount"],
                destination=form.destination,
                reason=form.cleaned_data["reason"] or None,
                idempotency_key=form.cleaned_data["idempotency_key"],
                actor=self.request.user,
            )
        except ValidationError as error:
            self._complain(form, error)
            return self._page(form)
        except (OutcomeUnknown, ApprovalRequired) as error:
            # Away from the form: it must not be sent again.
            self._log(_("Refund asked for: operation %(id)s.") % {"id": error.operation.pk})
            return self._leave(messages.WARNING, outcomes.explain(self.admin.admin_site, error))
        except IdempotencyMismatch as error:
            return self._leave(messages.WARNING, outcomes.explain(self.admin.admin_site, error))
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, outcomes.explain(self.admin.admin_site, error))
            # This refusal is this key's for ever; another try is another intent.
            form.data = {**self.request.POST.dict(), "idempotency_key": new_key()}
            return self._page(form)
        amount = format_money(refund.amount, refund.currency)
        self._log(_("Refunded %(amount)s: %(id)s.") % {"amount": amount, "id": refund.pk})
        done = format_html(
            str(_("Refund {} of {} was made; its status is: {}.")),
            display.admin_link(self.admin.admin_site, Refund, refund.pk),
            amount,
            display.text(refund.status),
        )
        return self._leave(messages.SUCCESS, done)

    def _complain(self, form: RefundForm, error: ValidationError) -> None:
        rest = self._rest()
        for argument, message in outcomes.complaints(error):
            name, shown = form.place(argument, message)
            if name == "amount" and form.cleaned_data.get("amount", 0) > rest > 0:
                # The service speaks of minor units; people do not.
                shown = _("At most %(rest)s can be refunded.") % {"rest": format_money(rest, self.payment.currency)}
            form.add_error(name, shown)

    def _log(self, message: str) -> None:
        self.admin.log_change(self.request, self.payment, message)

    def _leave(self, level: int, message: str) -> HttpResponse:
        self.admin.message_user(self.request, message, level)
        return self.admin.back(self.request, self.payment)

    def _initial(self) -> dict[str, Any]:
        rest = self._rest()
        payer = _dict(self.payment.payer)
        document = _dict(payer.get("document"))
        return {
            "amount": to_major(rest, self.payment.currency) if rest > 0 else "",
            "holder_name": payer.get("name") or "",
            "document_type": document.get("type") or "",
            "document_number": document.get("number") or "",
            "idempotency_key": new_key(),
        }

    def _rest(self) -> int:
        # Where rows are read under lock, that needs a transaction; nothing is sent within it.
        with transaction.atomic(using=router.db_for_write(Payment)):
            return refundable_rest(self.payment)

    def _page(self, form: RefundForm) -> HttpResponse:
        self.payment.refresh_from_db()
        site, payment = self.admin.admin_site, self.payment
        rest = self._rest()
        names = [name for name in form.fields if name != "idempotency_key"]
        split = [name for name in names if name in ("amount", "reason")]
        to = [name for name in names if name not in split]
        fieldsets: list[tuple[Any, dict[str, Any]]] = [(None, {"fields": split})]
        if to:
            fieldsets.append((_("Where the money goes"), {"fields": to}))
        context = {
            **site.each_context(self.request),
            "title": _("Refund payment"),
            "subtitle": str(payment.pk),
            "opts": self.admin.opts,
            "payment": payment,
            "payment_url": self.admin.object_url("change", payment),
            "may_view": self.admin.has_view_permission(self.request, payment),
            "summary": [
                (_("Status"), display.status(payment.status, Payment.Status)),
                (_("Merchant reference"), display.text(payment.merchant_reference)),
                (_("Method"), display.text(f"{payment.method_code} ({payment.method_family})")),
                (_("Received"), display.money(payment.amount_received, payment.currency)),
                (_("Refunded"), display.money(payment.refunded_amount or 0, payment.currency)),
                (_("Left to refund"), display.money(max(rest, 0), payment.currency)),
            ],
            "nothing_left": rest <= 0,
            "open_operations": [
                (display.admin_link(site, Operation, operation.pk), display.status(operation.state, OperationState))
                for operation in Operation.objects.filter(
                    target_id=payment.pk, operation="create_refund", state__in=OPEN_OPERATION_STATES
                ).order_by("-created_at")[:10]
            ],
            "form": form,
            "adminform": helpers.AdminForm(cast("Any", form), fieldsets, {}, (), model_admin=self.admin),
            "media": self.admin.media + form.media,
        }
        self.request.current_app = site.name
        return TemplateResponse(self.request, "admin/payments_integration/payment/refund.html", context)


def _dict(value: object) -> dict[str, Any]:
    """What the provider sends may have another shape than the spec's."""
    return value if isinstance(value, dict) else {}
