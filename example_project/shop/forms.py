"""The shop's forms. The payment methods that they offer depend on the payer's country and on the amount."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from example_project.shop.models import Price
from example_project.shop.provider import CURRENCIES, Choice, flows
from payments_integration.enums import Country
from payments_integration.money import format_for_payer

DEFAULT_MARKET = "CL-CLP"
MAX_QUANTITY = 10


def markets() -> list[tuple[str, str]]:
    """``PE-USD``: a country and one of its currencies, with the country's name in the reader's language."""
    return [
        (f"{country}-{currency}", f"{Country(country).label} ({currency})")
        for country, currencies in CURRENCIES.items()
        for currency in currencies
    ]


def new_submission() -> str:
    """A hidden value of the form: the same form is the same purchase."""
    return uuid.uuid4().hex


def _method_field(methods: list[Choice]) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=_("Pay with"),
        choices=[(method.code, method.name) for method in methods],
        initial=methods[0].code if methods else None,
        widget=forms.RadioSelect,
        error_messages={"invalid_choice": _("This way of paying does not take this amount. Please choose another.")},
    )


def _flow_field() -> forms.ChoiceField:
    return forms.ChoiceField(label=_("Where to pay"), choices=flows, initial="hosted", widget=forms.RadioSelect)


class Person(forms.Form):
    name = forms.CharField(label=_("Your name"), max_length=100)
    email = forms.EmailField(label=_("E-mail"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs["autocomplete"] = "name"
        self.fields["email"].widget.attrs["autocomplete"] = "email"


class BuyForm(Person):
    submission = forms.RegexField(regex=r"\A[0-9a-f]{32}\Z", widget=forms.HiddenInput)
    #: The price of one piece that the page showed.
    price = forms.IntegerField(required=False, widget=forms.HiddenInput)
    # Another country has other prices and methods: the script sends the form, and the page keeps the other fields.
    market = forms.ChoiceField(
        label=_("You pay from"), choices=markets, widget=forms.Select(attrs={"data-sends-form": ""})
    )
    quantity = forms.TypedChoiceField(coerce=int)

    def __init__(self, *args: Any, price: Price, country: str, methods: list[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["quantity"] = forms.TypedChoiceField(
            label=_("Quantity"),
            coerce=int,
            choices=[
                (
                    n,
                    _("%(count)s for %(price)s")
                    % {"count": n, "price": format_for_payer(n * price.amount, price.currency, country)},
                )
                for n in range(1, MAX_QUANTITY + 1)
            ],
        )
        self.fields["method_code"] = _method_field(methods)
        self.fields["flow"] = _flow_field()


class PayAgainForm(forms.Form):
    #: The signed key of the attempt that this form begins: a form sent twice is one attempt.
    attempt = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, methods: list[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["method_code"] = _method_field(methods)
        self.fields["flow"] = _flow_field()


class DepositForm(Person):
    market = forms.ChoiceField(label=_("You transfer from"), choices=markets)

    field_order = ["market", "name", "email"]
