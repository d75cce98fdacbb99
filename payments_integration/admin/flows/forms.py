"""The forms of the flow pages: amounts and bank accounts, as a person types them and in words."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import (
    get_language,
    gettext as _,
    gettext_lazy,
    ngettext,
    npgettext,
    override,
    to_locale,
)

from payments_integration import money
from payments_integration.admin.shared import display
from payments_integration.admin.shared.display import validation_messages
from payments_integration.enums import AccountType, Country, DocumentType
from payments_integration.validation import objects
from payments_integration.validation.validator import Validator

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: A label and its value.
Fact = tuple["StrOrPromise", str]

_DIGITS = re.compile(r"[0-9][0-9.,'\u2019\s]*")
_DECIMALS = re.compile(r"[0-9]+[.,]([0-9]+)")
_NEGATIVE = re.compile(r"[-\u2212][0-9., ]+")
#: The maximum length of a typed amount.
MAX_TYPED = 40
#: Before a noun, "uno" becomes "un" in Spanish: veintiún mil, treinta y un millones. num2words does not do that.
_UNO = re.compile(r"(veintiuno|uno)(?= (?:mil|(?:mi|bi|tri)ll))")
_UNO_AT_END = re.compile(r"(veintiuno|uno)$")
#: The languages in which amounts are written in full, with the numbers that have "de" before their noun.
_OF: dict[str, re.Pattern[str] | None] = {
    "en": None, "es": re.compile(r"ll(?:ón|ones)$"), "pt": re.compile(r"lh(?:ão|ões)$"),
}  # fmt: skip
#: Where Babel's name is not the one in use.
_CURRENCY_NAMES = {("pt", "BRL"): ("real", "reais"), ("pt", "PEN"): ("sol peruano", "sóis peruanos")}

#: The usual documents of each country, the most common first. A passport is usual everywhere.
_DOCUMENTS: dict[str, tuple[DocumentType, ...]] = {
    Country.CL: (DocumentType.RUT,),
    Country.CO: (DocumentType.CC, DocumentType.NIT, DocumentType.CE, DocumentType.PPT),
    Country.EC: (DocumentType.RUC, DocumentType.CC),
    Country.PE: (DocumentType.DNI, DocumentType.RUC, DocumentType.CE),
    Country.MX: (DocumentType.RFC, DocumentType.CURP),
    Country.BR: (DocumentType.CPF, DocumentType.CNPJ),
}
#: The form's field for each path that a message of the service begins with.
_FIELD_OF_PATH = {
    "bank_code": "bank_code",
    "account_number": "account_number",
    "account_type": "account_type",
    "holder_name": "holder_name",
    "holder_document.type": "document_type",
    "holder_document.number": "document_number",
    "holder_document": "document_number",
}
#: The fields of a bank account, in the order of a bank's letter.
BANK_ACCOUNT_FIELDS = (
    "holder_name",
    "document_type",
    "document_number",
    "bank_code",
    "account_number",
    "account_type",
)

#: Spec, "destination": destinations must be whitelisted, and a new one becomes active after 24 hours.
NEW_ACCOUNT = gettext_lazy(
    "The provider sends money only to bank accounts on your list at the provider. A new one becomes active after 24 "
    "hours; until then the provider may refuse."
)


class KeyedForm(forms.Form):
    """A form with an idempotency key. It checks what was typed; the service decides what is allowed."""

    #: Made with the page: a form that is sent twice is one intent.
    idempotency_key = forms.CharField(max_length=255, widget=forms.HiddenInput)

    def field_of(self, argument: str, message: str) -> tuple[str | None, str]:
        """The field that a message of the service belongs to, and the message to show there."""
        return (argument if argument in self.fields else None), message


def parse_amount(typed: str, currency: str) -> int:
    """The minor units of an amount typed as the pages show it. Raises ValidationError, which says what to write."""
    try:
        amount = money.parse_amount(typed, currency)
    except ValueError as error:
        params = {"example": example(currency), "currency": currency, "decimals": money.exponent(currency)}
        raise ValidationError(_mistake(typed, currency), code="invalid", params=params) from error
    if amount == 0:
        raise ValidationError(_("The amount must be more than zero."), code="invalid")
    return amount


def example(currency: str) -> str:
    """An amount as it can be typed: with the separators of the active language."""
    return money.format_amount(123450, currency)


def _mistake(typed: str, currency: str) -> str:
    if _NEGATIVE.fullmatch(typed):
        return _("The amount must be more than zero.")
    if not _DIGITS.fullmatch(typed):
        return _("Write the amount in digits, for example %(example)s.")
    decimals = _DECIMALS.fullmatch(typed)
    # Three digits after a separator may be decimals or thousands.
    if decimals is not None and len(decimals[1]) != 3 and len(decimals[1]) > money.exponent(currency):
        if money.exponent(currency) == 0:
            return _("%(currency)s has no decimals: write a whole number, for example %(example)s.")
        return _("%(currency)s has %(decimals)d decimals, for example %(example)s.")
    if len(re.sub(r"[^0-9]", "", typed)) >= len(str(money.INT64_MAX)):
        return _("This amount is too large.")
    return _("The amount can be read in more than one way. Write it like %(example)s.")


class MoneyField(forms.CharField):
    """An amount typed in the units of a currency, cleaned to minor units."""

    def __init__(self, *, currency: str, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_TYPED, "widget": money_input(), **kwargs})
        self.currency = currency

    def clean(self, value: Any) -> int:
        return parse_amount(super().clean(value), self.currency)


def money_input() -> forms.TextInput:
    return AdminTextInputWidget(attrs={"inputmode": "decimal", "autocomplete": "off", "class": "pi-amount"})


def amount_in_words(amount: int, currency: str) -> str:
    """An amount as on a cheque, in the active language: "twelve US dollars and fifty cents".

    In other languages than the app's own the hundredths are digits, and the currency is in brackets, so that its
    grammatical number does not have to fit. In English if num2words does not know the language or so large a number
    in it; "" if the extra ``words`` is not installed.
    """
    if find_spec("num2words") is None:
        return ""
    whole, rest = divmod(amount, 10 ** money.exponent(currency))
    locale = to_locale((get_language() or "en").lower())
    words = _number(whole, locale)
    if words is None:
        locale = "en"
        words = str(_number(whole, locale))
    if locale[:2] in _OF and currency in money.EXPONENTS:
        with override("en" if locale == "en" else get_language()):
            return _in_full(words, whole, rest, currency, locale)
    name = _currency_name(currency, 2 if rest else whole, locale)
    if money.exponent(currency) == 0:
        return _("%(number)s (%(currency)s)") % {"number": words, "currency": name}
    cents = f"{rest:0{money.exponent(currency)}d}/{10 ** money.exponent(currency)}"
    return _("%(number)s and %(cents)s (%(currency)s)") % {"number": words, "cents": cents, "currency": name}


def _in_full(words: str, whole: int, rest: int, currency: str, locale: str) -> str:
    """Units and hundredths, each with its noun."""
    of = _OF[locale[:2]]
    noun = _currency_name(currency, whole, locale)
    units = f"{_before_noun(words, locale)} {'de ' if of and of.search(words) else ''}{noun}"
    if not rest:
        return units
    cents = npgettext("PEN", "cent", "cents", rest) if currency == "PEN" else ngettext("cent", "cents", rest)
    number = _before_noun(str(_number(rest, locale)), locale)
    return _("%(units)s and %(cents)s") % {"units": units, "cents": f"{number} {cents}"}


def _currency_name(currency: str, count: int, locale: str) -> str:
    # Babel and num2words are heavy, so they are loaded with the first confirmation.
    from babel.core import Locale, UnknownLocaleError  # noqa: PLC0415
    from babel.numbers import get_currency_name  # noqa: PLC0415

    try:
        known = Locale.parse(locale)
    except (UnknownLocaleError, ValueError):
        known = Locale.parse("en")
    one, many = _CURRENCY_NAMES.get((locale[:2], currency), ("", ""))
    name = (one if count == 1 else many) or get_currency_name(currency, count=count, locale=known)
    return f"{name[:1].lower()}{name[1:]}" if locale[:2] == "pt" else name


def _before_noun(words: str, locale: str) -> str:
    """A number before a masculine noun: in Spanish "uno" becomes "un"."""
    return _UNO_AT_END.sub(_shortened, words) if locale.startswith("es") else words


def _shortened(found: re.Match[str]) -> str:
    return "veintiún" if found[0] == "veintiuno" else "un"


def _number(value: int, locale: str) -> str | None:
    """A whole number in words; None if num2words does not know them."""
    from num2words import num2words  # noqa: PLC0415

    try:
        words = str(num2words(value, lang=locale))
    except (NotImplementedError, OverflowError):
        return None
    return _UNO.sub(_shortened, words) if locale.startswith("es") else words


def document_types(country: str | None) -> list[DocumentType]:
    """Every document type, those of the country first."""
    usual = (*_DOCUMENTS.get(country or "", ()), DocumentType.PASS)
    return [*usual, *(kind for kind in DocumentType if kind not in usual)]


def document_choices(country: str | None) -> list[tuple[str, StrOrPromise]]:
    """The choices of document types. Without a country, each shows the countries that issue it."""
    if country is not None:
        return [("", display.EMPTY), *((kind.value, kind.label) for kind in document_types(country))]
    issuers = {
        kind: ", ".join(str(Country(code).label) for code, kinds in _DOCUMENTS.items() if kind in kinds)
        for kind in DocumentType
    }
    ordered = sorted(DocumentType, key=lambda kind: (not issuers[kind], kind != DocumentType.PASS))
    return [
        ("", display.EMPTY),
        *((kind.value, f"{kind.label} ({issuers[kind]})" if issuers[kind] else kind.label) for kind in ordered),
    ]


class DestinationForm(KeyedForm):
    """A bank account. The service's validation decides, with its messages at the form's fields."""

    holder_name = forms.CharField(
        label=gettext_lazy("Account holder"),
        max_length=255,
        widget=AdminTextInputWidget(attrs={"autocomplete": "off"}),
    )
    document_type = forms.ChoiceField(label=gettext_lazy("Holder's document type"))
    document_number = forms.CharField(
        label=gettext_lazy("Holder's document number"),
        max_length=64,
        widget=AdminTextInputWidget(attrs={"autocomplete": "off"}),
    )
    bank_code = forms.CharField(
        label=gettext_lazy("Bank code"), required=False, max_length=64, widget=AdminTextInputWidget
    )
    account_number = forms.CharField(
        label=gettext_lazy("Account number"), max_length=64, widget=AdminTextInputWidget(attrs={"autocomplete": "off"})
    )
    account_type = forms.ChoiceField(
        label=gettext_lazy("Account type"), required=False, choices=[("", display.EMPTY), *AccountType.choices]
    )

    def __init__(self, *args: Any, country: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._country = country
        cast("forms.ChoiceField", self.fields["document_type"]).choices = document_choices(country)

    @property
    def destination_country(self) -> str:
        """The country of the bank account, as far as it is known."""
        return self._country or str(self.cleaned_data.get("country", ""))

    @property
    def destination(self) -> dict[str, Any]:
        """The ``destination`` argument of the service."""
        values = self.cleaned_data
        optional = {name: values[name] for name in ("bank_code", "account_type") if values.get(name)}
        return {
            "type": "bank_account",
            **optional,
            "account_number": values.get("account_number"),
            "holder_name": values.get("holder_name"),
            "holder_document": {"type": values.get("document_type"), "number": values.get("document_number")},
        }

    def clean(self) -> dict[str, Any]:
        super().clean()
        validator = Validator()
        objects.destination(validator, "destination", self.destination, self.destination_country)
        try:
            validator.finish()
        except ValidationError as error:
            for argument, message in validation_messages(error):
                name, shown = self.field_of(argument, message)
                # The form has already reported missing and invalid fields.
                if name not in self.errors:
                    self.add_error(name, shown)
        return self.cleaned_data

    def field_of(self, argument: str, message: str) -> tuple[str | None, str]:
        path, colon, rest = message.partition(": ")
        if argument == "destination" and colon and path in _FIELD_OF_PATH:
            return _FIELD_OF_PATH[path], rest
        return super().field_of(argument, message)


def destination_values(destination: Any) -> dict[str, str]:
    """The values of the form's fields for a stored bank account; none for any other destination."""
    if not isinstance(destination, dict) or destination.get("type") != "bank_account":
        return {}
    document = destination.get("holder_document")
    document = document if isinstance(document, dict) else {}
    names = ("holder_name", "bank_code", "account_number", "account_type")
    found = {
        **{name: destination.get(name) for name in names},
        "document_type": document.get("type"),
        "document_number": document.get("number"),
    }
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def destination_in_words(destination: dict[str, Any]) -> str:
    """A bank account in one phrase."""
    document = destination["holder_document"]
    words = _("%(holder)s (%(document)s), account %(account)s") % {
        "holder": display.text(destination["holder_name"]),
        "document": display.text(f"{_document_type(document['type'])} {document['number']}"),
        "account": display.text(destination["account_number"]),
    }
    if bank := destination.get("bank_code"):
        words = _("%(recipient)s at bank %(bank)s") % {"recipient": words, "bank": display.text(bank)}
    return words


def destination_facts(destination: dict[str, Any]) -> list[Fact]:
    """A bank account, line by line."""
    document = destination["holder_document"]
    kind = destination.get("account_type")
    return [
        (_("Account holder"), display.text(destination["holder_name"])),
        (_("Holder's document"), display.text(f"{_document_type(document['type'])} {document['number']}")),
        (_("Bank code"), display.text(destination.get("bank_code"))),
        (_("Account number"), display.text(destination["account_number"])),
        (_("Account type"), display.text(dict(AccountType.choices).get(kind or "", kind))),
    ]


def _document_type(kind: str) -> object:
    return dict(DocumentType.choices).get(kind, kind)
