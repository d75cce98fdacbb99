"""The buy form. Which methods it offers depends on where the payer is."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms

from example_project.shop.checkout import CURRENCIES, Choice, flows
from example_project.shop.models import Price
from example_project.shop.money import show_money
from payments_integration.enums import Country

#: "PE-USD": a country and one of its currencies.
MARKETS = [
    (f"{country}-{currency}", f"{Country(country).label} ({currency})")
    for country, currencies in CURRENCIES.items()
    for currency in currencies
]
DEFAULT_MARKET = MARKETS[0][0]
MOST = 10


def new_submission() -> str:
    """Shown with the form and sent back with it: the same form is the same purchase."""
    return uuid.uuid4().hex


class BuyForm(forms.Form):
    submission = forms.RegexField(regex=r"\A[0-9a-f]{32}\Z", widget=forms.HiddenInput)
    market = forms.ChoiceField(label="You pay from", choices=MARKETS)
    quantity = forms.TypedChoiceField()
    name = forms.CharField(label="Your name", max_length=100)
    email = forms.EmailField(label="E-mail")
    method_code = forms.ChoiceField(label="Pay with", widget=forms.RadioSelect)
    flow = forms.ChoiceField(label="Where", choices=flows, initial="hosted", widget=forms.RadioSelect)

    def __init__(self, *args: Any, price: Price, methods: list[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Another country has other prices and methods: the page is made anew, and keeps what was typed.
        self.fields["market"].widget.attrs["onchange"] = "this.form.submit()"
        self.fields["quantity"] = forms.TypedChoiceField(
            coerce=int,
            choices=[(n, f"{n} for {show_money(n * price.amount, price.currency)}") for n in range(1, MOST + 1)],
        )
        self.fields["method_code"] = forms.ChoiceField(
            label="Pay with",
            choices=[(method.code, method.name) for method in methods],
            initial=methods[0].code if methods else None,
            widget=forms.RadioSelect,
        )
        self.fields["name"].widget.attrs["autocomplete"] = "name"
        self.fields["email"].widget.attrs["autocomplete"] = "email"
