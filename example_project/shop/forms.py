"""The buy form. Which methods it offers depends on where the payer is."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms

from example_project.shop.checkout import CURRENCIES, Choice, flows
from payments_integration.enums import Country

#: "PE-USD": a country and one of its currencies.
MARKETS = [
    (f"{country}-{currency}", f"{Country(country).label} ({currency})")
    for country, currencies in CURRENCIES.items()
    for currency in currencies
]
DEFAULT_MARKET = MARKETS[0][0]


def new_submission() -> str:
    """Shown with the form and sent back with it: the same form is the same purchase."""
    return uuid.uuid4().hex


class MarketForm(forms.Form):
    market = forms.ChoiceField(label="You pay from", choices=MARKETS)


class BuyForm(forms.Form):
    submission = forms.RegexField(regex=r"\A[0-9a-f]{32}\Z", widget=forms.HiddenInput)
    quantity = forms.IntegerField(min_value=1, max_value=10, initial=1)
    name = forms.CharField(label="Your name", max_length=100)
    email = forms.EmailField(label="E-mail")
    method_code = forms.ChoiceField(label="Pay with", widget=forms.RadioSelect)
    flow = forms.ChoiceField(label="Where", choices=flows, initial="hosted", widget=forms.RadioSelect)

    def __init__(self, *args: Any, methods: list[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["method_code"] = forms.ChoiceField(
            label="Pay with",
            choices=[(method.code, method.name) for method in methods],
            initial=methods[0].code if methods else None,
            widget=forms.RadioSelect,
        )
        self.fields["name"].widget.attrs["autocomplete"] = "name"
        self.fields["email"].widget.attrs["autocomplete"] = "email"
