"""The shop's forms. The payment methods that they offer depend on the payer's country and on the amount."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from example_project.shop.models import Price
from payments_integration.checkout import Method, method_field
from payments_integration.enums import Country
from payments_integration.money import format_for_payer

#: A country and one of its currencies.
MARKETS = ("CL-CLP", "CO-COP", "EC-USD", "PE-PEN", "PE-USD", "MX-MXN", "BR-BRL")
DEFAULT_MARKET = MARKETS[0]
MAX_QUANTITY = 10


def markets() -> list[tuple[str, str]]:
    """With the country's name in the reader's language: ``Peru (USD)``."""
    return [(market, f"{Country(market[:2]).label} ({market[3:]})") for market in MARKETS]


def new_submission() -> str:
    """A hidden value of the form: the same form is the same purchase."""
    return uuid.uuid4().hex


class Person(forms.Form):
    name = forms.CharField(
        label=_("Your name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    email = forms.EmailField(label=_("E-mail"), widget=forms.EmailInput(attrs={"autocomplete": "email"}))


class BuyForm(Person):
    submission = forms.RegexField(regex=r"\A[0-9a-f]{32}\Z", widget=forms.HiddenInput)
    #: What the page's button said, in minor units: nobody pays another amount.
    price = forms.IntegerField(required=False, widget=forms.HiddenInput)
    # Another country has other prices and methods: the script sends the form, and the page keeps the other fields.
    market = forms.ChoiceField(
        label=_("You pay from"), choices=markets, widget=forms.Select(attrs={"data-sends-form": ""})
    )

    def __init__(self, *args: Any, price: Price, country: str, methods: list[Method], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        numbers = range(1, MAX_QUANTITY + 1)
        totals = [format_for_payer(number * price.amount, price.currency, country) for number in numbers]
        self.fields["quantity"] = forms.TypedChoiceField(
            label=_("Quantity"),
            coerce=int,
            choices=[(n, _("%(count)s for %(price)s") % {"count": n, "price": totals[n - 1]}) for n in numbers],
            # For the script, which writes the total on the button.
            widget=forms.Select(attrs={"data-unit": price.amount, "data-totals": "|".join(totals)}),
        )
        self.fields["method_code"] = method_field(methods)


class PayAgainForm(forms.Form):
    #: The signed key of the attempt that this form begins: a form sent twice is one attempt.
    attempt = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, methods: list[Method], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["method_code"] = method_field(methods)


class DepositForm(Person):
    market = forms.ChoiceField(label=_("You transfer from"), choices=markets)

    field_order = ["market", "name", "email"]
