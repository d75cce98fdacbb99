"""Amounts as people type them and as they are written on a cheque."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import get_language, to_locale
from django.utils.translation import gettext_lazy as _

from payments_integration.money import exponent, to_major, to_minor

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Digits, at most one separator of decimals: a thousands separator would make 1.000 pesos one peso.
_AMOUNT = re.compile(r"[0-9]{1,20}(?:[.,]([0-9]+))?")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:([.,' ])[0-9]{3})+(?:[.,][0-9]*)?")
_NEGATIVE = re.compile(r"[-\u2212][0-9., ]+")
#: The length of what may be typed as an amount.
MAX_TYPED = 40
#: Before a noun "uno" is "un": veintiún mil, treinta y un millones. The library leaves it as it is.
_UNO = re.compile(r"(veintiuno|uno)(?= (?:mil|(?:mi|bi|tri)ll))")


def parse(typed: str, currency: str) -> int:
    """Minor units of an amount typed in whole units. Raises a ValidationError that says what is wrong with it."""
    found = _AMOUNT.fullmatch(typed)
    if found is None or len(found[1] or "") > exponent(currency):
        params = {
            "example": to_major(123450, currency), "currency": currency, "decimals": exponent(currency),
        }  # fmt: skip
        raise ValidationError(_complaint(typed, currency), code="invalid", params=params)
    try:
        amount = to_minor(typed.replace(",", "."), currency)
    except ValueError as error:
        raise ValidationError(_("This amount is too large."), code="invalid") from error
    if amount == 0:
        raise ValidationError(_("The amount must be more than zero."), code="invalid")
    return amount


def _complaint(typed: str, currency: str) -> StrOrPromise:
    if _NEGATIVE.fullmatch(typed):
        return _("The amount must be more than zero.")
    if _THOUSANDS.fullmatch(typed):
        return _("Write the amount without thousands separators, for example %(example)s.")
    if not _AMOUNT.fullmatch(typed):
        return _("Write the amount in digits, for example %(example)s.")
    if exponent(currency) == 0:
        return _("%(currency)s has no decimals: write a whole number, for example %(example)s.")
    return _("%(currency)s has %(decimals)d decimals, for example %(example)s.")


class MoneyField(forms.CharField):
    """An amount typed in whole units of a currency, cleaned to minor units."""

    def __init__(self, *, currency: str, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_TYPED, "widget": money_input(), **kwargs})
        self.currency = currency

    def clean(self, value: Any) -> int:
        return parse(super().clean(value), self.currency)


def money_input() -> forms.TextInput:
    return AdminTextInputWidget(attrs={"inputmode": "decimal", "autocomplete": "off", "class": "pi-amount"})


def in_words(amount: int, currency: str) -> str:
    """An amount as on a cheque, in the language that is active: "one thousand and 50/100 (US dollars)".

    In English where the language, or so large a number in it, has no words. The currency stands apart, so that
    no grammar of numbers and nouns has to fit.
    """
    # Their data is heavy; loaded when something is first confirmed.
    from babel.core import Locale, UnknownLocaleError  # noqa: PLC0415
    from babel.numbers import get_currency_name  # noqa: PLC0415

    whole, rest = divmod(amount, 10 ** exponent(currency))
    locale = to_locale((get_language() or "en").lower())
    words = _number(whole, locale)
    if words is None:
        locale = "en"
        words = str(_number(whole, locale))
    try:
        known = Locale.parse(locale)
    except (UnknownLocaleError, ValueError):
        known = Locale.parse("en")
    name = get_currency_name(currency, count=2 if rest else whole, locale=known)
    if exponent(currency) == 0:
        return _("%(number)s (%(currency)s)") % {"number": words, "currency": name}
    cents = f"{rest:0{exponent(currency)}d}/{10 ** exponent(currency)}"
    return _("%(number)s and %(cents)s (%(currency)s)") % {"number": words, "cents": cents, "currency": name}


def _number(value: int, locale: str) -> str | None:
    """A whole number in words; None where they are not known."""
    from num2words import num2words  # noqa: PLC0415

    try:
        words = str(num2words(value, lang=locale))
    except (NotImplementedError, OverflowError):
        return None
    if locale.startswith("es"):
        words = _UNO.sub(lambda found: "veintiún" if found[0] == "veintiuno" else "un", words)
    return words
