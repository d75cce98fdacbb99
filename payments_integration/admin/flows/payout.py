"""Provide the page that creates a payout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.exceptions import DisallowedModelAdminToField
from django.contrib.admin.options import IS_POPUP_VAR, TO_FIELD_VAR
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.flows.confirmation import (
    ASK_FOR_APPROVAL,
    NEEDS_APPROVAL,
    Confirmation,
    ConfirmationPage,
)
from payments_integration.admin.flows.forms import (
    BANK_ACCOUNT_FIELDS,
    MAX_TYPED,
    NEW_ACCOUNT,
    DestinationForm,
    Fact,
    KeyedForm,
    account_facts,
    destination_facts,
    destination_in_words,
    example,
    method_in_full,
    money_input,
    offer_accounts,
    parse_amount,
    text_input,
)
from payments_integration.admin.shared import display, twins
from payments_integration.admin.shared.buttons import Outcome, may_view
from payments_integration.admin.shared.display import explain
from payments_integration.enums import Country, Currency
from payments_integration.exceptions import PaymentsError, WireError
from payments_integration.models import Balance, Operation, Payout
from payments_integration.money import format_amount, format_money
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin


class PayoutForm(DestinationForm):
    class Media:
        js = ("payments_integration/payout.js",)

    account = forms.ChoiceField(label=gettext_lazy("Account at the provider"))
    country = forms.ChoiceField(
        label=gettext_lazy("Country of the recipient's bank"), choices=[("", display.EMPTY), *Country.choices]
    )
    currency = forms.ChoiceField(label=gettext_lazy("Currency"), choices=[("", display.EMPTY), *Currency.choices])
    # Converted to minor units in ``clean``, because that needs the currency.
    amount = forms.CharField(label=gettext_lazy("Amount"), max_length=MAX_TYPED, widget=money_input())
    method_code = forms.CharField(
        label=gettext_lazy("Method"),
        max_length=255,
        widget=text_input(),
        help_text=gettext_lazy("The code of a payment method that supports payouts."),
    )
    merchant_reference = forms.CharField(
        label=gettext_lazy("Merchant reference"),
        required=False,
        max_length=255,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("Your own reference. If left empty, the operation's id is used."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Nearly the same amount, so that the two do not look like a conversion.
        self.fields["amount"].help_text = _(
            "For example %(example)s (in CLP, which has no decimals: %(example_without)s)."
        ) % {"example": example(Currency.USD), "example_without": format_amount(1234, Currency.CLP)}
        offer_accounts(self)

    @property
    def account_alias(self) -> str:
        return str(self.cleaned_data.get("account") or next(iter(conf.aliases()), conf.DEFAULT_ACCOUNT))

    def clean(self) -> dict[str, Any]:
        # Parse the amount before the bank account is validated, so that all errors are shown at once.
        currency, typed = self.cleaned_data.get("currency"), self.cleaned_data.get("amount")
        if currency and typed:
            try:
                self.cleaned_data["amount"] = parse_amount(typed, currency)
            except ValidationError as error:
                self.add_error("amount", error)
        return super().clean()


class PayoutPage(ConfirmationPage):
    template = "admin/payments_integration/payout/add.html"
    title = gettext_lazy("New payout")
    groups = (
        (None, ("account", "country", "currency", "amount", "method_code", "merchant_reference")),
        (gettext_lazy("Where the money goes"), BANK_ACCOUNT_FIELDS),
    )

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        #: The balance that this request read from the provider.
        self.balance: Balance | None = None
        to_field = request.POST.get(TO_FIELD_VAR)
        if to_field and not model_admin.to_field_allowed(request, to_field):
            raise DisallowedModelAdminToField(f"The field {to_field} cannot be referenced.")

    def form(self, *args: Any, **kwargs: Any) -> PayoutForm:
        return PayoutForm(*args, **kwargs)

    def initial(self) -> dict[str, Any]:
        return {}

    def account(self, form: Any) -> str:
        return str(form.account_alias)

    def check(self, form: Any) -> None:
        amount, currency = form.cleaned_data["amount"], form.cleaned_data["currency"]
        try:
            self.balance = services.payout_cover(currency, account=form.account_alias)
        except (PaymentsError, WireError, ImproperlyConfigured) as error:
            form.add_error(None, explain(self.admin.admin_site, error))
            return
        if self.balance is None:
            return
        if self.balance.debt > 0:
            form.add_error(None, _("The provider makes no payouts while there is a debt in this currency."))
        if self.balance.available < amount:
            available = format_money(self.balance.available, currency)
            form.add_error("amount", _("Only %(available)s is available.") % {"available": available})

    def confirmation(self, form: PayoutForm) -> Confirmation:
        values = form.cleaned_data
        amount, currency = values["amount"], values["currency"]
        shown = format_money(amount, currency)
        recipient = destination_in_words(form.destination)
        waits = self.waits(form)
        return Confirmation(
            title=_("Send %(amount)s to %(person)s")
            % {"amount": shown, "person": display.text(form.destination["holder_name"])},
            sentence=_("%(amount)s will be sent to %(recipient)s.") % {"amount": shown, "recipient": recipient},
            button=ASK_FOR_APPROVAL if waits else _("Send %(amount)s") % {"amount": shown},
            facts=[
                *account_facts(form.account_alias),
                (_("Amount"), display.money(amount, currency)),
                (_("Country of the recipient's bank"), display.text(Country(values["country"]).label)),
                (_("Method"), method_in_full(values["method_code"])),
                *destination_facts(form.destination),
                (_("Merchant reference"), display.text(values["merchant_reference"])),
            ],
            notes=[
                *([NEEDS_APPROVAL] if waits else []),
                _("The provider's fee is added, and is known only afterwards."),
                NEW_ACCOUNT,
                *([] if self.balance else [_("The provider lists no balance in this currency; it may refuse.")]),
            ],
            balance=self._balance_facts(amount),
        )

    def waits(self, form: PayoutForm) -> bool:
        return services.operations.reaches_approval_limit(form.cleaned_data["amount"], form.cleaned_data["currency"])

    def twin(self, subject: PayoutForm) -> Operation | None:
        amount, currency = subject.cleaned_data["amount"], subject.cleaned_data["currency"]
        same = {"account": subject.account_alias, "amount": amount, "currency": currency}
        for operation in twins.recent("create_payout", self.since, self.keys, **same):
            # An erasure empties the arguments.
            if services.operations.is_same_bank_account(operation.arguments.get("destination"), subject.destination):
                return operation
        return None

    def warning(self, subject: PayoutForm, twin: Operation) -> str:
        words = _(
            "The same amount to the same bank account was asked for at {}: {}. "
            "Confirm only if it is to be paid once more."
        )
        return twins.warning(self.admin.admin_site, twin, words)

    def call(self, form: PayoutForm) -> Payout:
        values = form.cleaned_data
        return services.create_payout(
            amount=values["amount"],
            currency=values["currency"],
            country=values["country"],
            method_code=values["method_code"],
            destination=form.destination,
            merchant_reference=values["merchant_reference"] or None,
            account=form.account_alias,
            idempotency_key=values["idempotency_key"],
            actor=self.request.user,
        )

    def done(self, row: Payout) -> tuple[Payout, str, Outcome]:
        amount = format_money(row.amount, row.currency)
        message = format_html(
            _("The provider created payout {payout} of {amount}; its status is: {status}."),
            payout=display.admin_link(self.admin.admin_site, Payout, row.pk),
            amount=amount,
            status=display.text(dict(Payout.Status.choices).get(row.status, row.status)),
        )
        return row, _("Sent %(amount)s: %(id)s.") % {"amount": amount, "id": row.pk}, Outcome(message)

    def recorded(self, operation: Operation) -> tuple[Operation, str]:
        return operation, _("Payout asked for: operation %(id)s.") % {"id": operation.pk}

    def back(self, row: Payout | None = None) -> HttpResponse:
        if row is not None:
            if IS_POPUP_VAR in self.request.POST:
                return self.admin.response_add(self.request, row)
            return self.admin.back(self.request, row)
        return self.admin.to_list(self.request)

    def crumbs(self) -> list[tuple[str, StrOrPromise]]:
        return [(self.admin.visible_list_url(self.request), _("Payouts")), ("", self.title)]

    def context(self, form: KeyedForm) -> dict[str, Any]:
        # Not masked: the user typed the name, or may see it.
        person = display.text(form["holder_name"].value() or "")
        title = _("New payout to %(person)s") % {"person": person} if person != display.EMPTY else self.title
        amount = form["amount"]
        if may_view(self.admin.admin_site, self.request, Balance):
            amount.help_text = format_html("{}<br>{}", self._balances(), amount.help_text)
        return {
            "title": title,
            "list_url": self.admin.visible_list_url(self.request),
            "balance_facts": self._balance_facts(),
            "note": NEW_ACCOUNT,
        }

    def _balances(self) -> str:
        """Return the available amounts as far as the mirror knows. The review asks the provider."""
        names = dict(conf.account_choices())
        known = Balance.objects.filter(account__in=conf.aliases(), gone_at=None).order_by("account", "currency")
        amounts = [
            format_html(
                "{}{}",
                f"{names.get(each.account, each.account)}: " if len(names) > 1 else "",
                display.money(each.available, each.currency),
            )
            for each in known
        ]
        shown = format_html_join(" · ", "{}", ((amount,) for amount in amounts))
        return format_html(_("Available: {}"), shown or _("not known"))

    def _balance_facts(self, amount: int | None = None) -> list[Fact]:
        balance = self.balance
        if balance is None:
            return []
        names = {
            "available": _("Available"),
            "pending": _("Pending settlement"),
            "reserve": _("Reserve against chargebacks"),
            "hold": _("Held for payouts and refunds in progress"),
            "debt": _("Debt"),
        }
        found: list[Fact] = [
            (label, display.money(getattr(balance, name), balance.currency)) for name, label in names.items()
        ]
        if amount is not None:
            left = display.money(balance.available - amount, balance.currency)
            found.append((_("Available afterwards, before the fee"), left))
        return found
