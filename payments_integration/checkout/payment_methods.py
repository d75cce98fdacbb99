"""Offer a payer the payment methods that fit, each with a drawing and a name in the payer's language.

The spec guarantees only a method's code ("Fields of a payment method record: not shown"). Every other field of the
provider's listing is used if it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.enums import MethodFamily
from payments_integration.payer import names
from payments_integration.payer.methods import listed_methods, listed_name
from payments_integration.schemas import PaymentMethod
from payments_integration.validation.text import StrOrPromise

_LOGOS = frozenset(family.value for family in MethodFamily)


@dataclass(frozen=True, slots=True)
class Method:
    """One payment method that a form offers."""

    code: str
    #: The name that the provider lists; empty if it lists none.
    listed_name: str
    #: One of MethodFamily, or empty.
    family: str
    #: Its purposes: ``payment``, ``payout`` or ``deposit_reference``.
    uses: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in the active language. Proper names are not translated."""
        return names.method_name(self.code, self.listed_name)

    @property
    def logo(self) -> str:
        """The static path of its family's drawing."""
        return logo_of(self.family)

    @property
    def label(self) -> SafeString:
        """The drawing and the name as HTML, for the label of a radio button."""
        image = '<img class="payments-logo" src="{}" alt="" width="40" height="28"> {}'
        return format_html(image, static(self.logo), self.name)


def methods(
    country: str,
    currency: str,
    amount: int | None = None,
    *,
    use: str = "payment",
    account: str = conf.DEFAULT_ACCOUNT,
) -> list[Method]:
    """Return the methods that the provider offers there now for ``amount`` minor units, in the provider's order.

    Reads them once a minute at most and keeps them in Django's cache. ``use`` is ``payment`` or ``deposit_reference``.
    Raises what ``services.list_payment_methods`` raises.
    """
    listed = listed_methods(country=country, currency=currency, amount=amount, account=account)
    found = (_method(record) for record in listed if record.extra.get("available") is not False)
    return [each for each in found if use in each.uses]


def method_field(found: Sequence[Method], label: StrOrPromise = "") -> forms.ChoiceField:
    """Return radio buttons with the drawings and names of these methods. The first one is selected."""
    return forms.ChoiceField(
        label=label or _("Pay with"),
        choices=[(method.code, method.label) for method in found],
        initial=found[0].code if found else None,
        widget=forms.RadioSelect,
        error_messages={"invalid_choice": _("This way of paying does not take this amount. Please choose another.")},
    )


def method_name(code: str) -> str:
    """Return a method's name in the active language: the name that was last listed, or words made from its code."""
    return names.method_name(code, listed_name(code))


def logo_of(family: str) -> str:
    """Return the static path of the drawing for a method's family; a neutral drawing for an unknown family."""
    return f"payments_integration/methods/{family if family in _LOGOS else 'other'}.svg"


def _method(record: PaymentMethod) -> Method:
    data = record.extra
    family, uses = _text(data.get("family")), data.get("uses")
    purposes = tuple(map(_text, uses)) if isinstance(uses, list) else _uses_of(family)
    return Method(record.code, _text(data.get("name")), family, purposes)


def _uses_of(family: str) -> tuple[str, ...]:
    """Return the purposes of a method whose listing does not name them. One of an unknown family may have both."""
    if family == MethodFamily.DEPOSIT_REFERENCE:
        return ("deposit_reference",)
    return ("payment",) if family in _LOGOS else ("payment", "deposit_reference")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
