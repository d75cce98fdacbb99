"""Provide the forms of the flow pages: amounts and bank accounts, as a person types them and in words."""

from __future__ import annotations

import re
from typing import Any, cast

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, money
from payments_integration.admin.shared import display
from payments_integration.admin.shared.display import validation_messages
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.enums import AccountType, Country, DocumentType
from payments_integration.validation import objects
from payments_integration.validation.text import StrOrPromise, typed as typed_text
from payments_integration.validation.validator import Validator

#: A label and its value.
Fact = tuple[StrOrPromise, str]

_DIGITS = re.compile(r"[0-9][0-9.,'\u2019\s]*")
_DECIMALS = re.compile(r"[0-9][0-9.,'\u2019\s]*[.,]([0-9]+)")
_NEGATIVE = re.compile(r"[-\u2212][0-9., ]+")
#: The maximum length of a typed amount.
MAX_TYPED = 40

#: The usual documents of each country, the most common first. A passport is usual everywhere.
_DOCUMENTS: dict[str, tuple[DocumentType, ...]] = {
    Country.CL: (DocumentType.RUT,),
    Country.CO: (DocumentType.CC, DocumentType.NIT, DocumentType.CE, DocumentType.PPT),
    Country.EC: (DocumentType.RUC, DocumentType.CC),
    Country.PE: (DocumentType.DNI, DocumentType.RUC, DocumentType.CE),
    Country.MX: (DocumentType.RFC, DocumentType.CURP),
    Country.BR: (DocumentType.CPF, DocumentType.CNPJ),
}
#: Maps each path at the start of a service's message to the form's field.
_FIELD_OF_PATH = {
    "bank_code": "bank_code",
    "account_number": "account_number",
    "account_type": "account_type",
    "holder_name": "holder_name",
    "holder_document.type": "document_type",
    "holder_document.number": "document_number",
    "holder_document": "document_number",
}
#: The fields of a bank account, in the order in which banks write them in letters.
BANK_ACCOUNT_FIELDS = (
    "holder_name", "document_type", "document_number", "bank_code", "account_number", "account_type",
)  # fmt: skip

#: Spec, "destination": destinations must be whitelisted, and a new one becomes active after 24 hours.
NEW_ACCOUNT = gettext_lazy(
    "The provider sends money only to bank accounts on your list at the provider. A new one becomes active after 24 "
    "hours; until then the provider may refuse."
)


class KeyedForm(TypedForm):
    """A form with an idempotency key. It checks what was typed; the service decides what is allowed."""

    #: Created with the page, so that a form that is sent twice is one intent.
    idempotency_key = forms.CharField(max_length=255, widget=forms.HiddenInput)

    def field_of(self, argument: str, message: str) -> tuple[str | None, str]:
        """Return the field that a message of the service belongs to, and the message to show there."""
        return (argument if argument in self.fields else None), message


def parse_amount(typed: str, currency: str) -> int:
    """Return the minor units of an amount typed as the pages show it.

    Raises ValidationError, which says what to write.
    """
    typed = typed_text(typed)
    try:
        amount = money.parse_amount(typed, currency)
    except ValueError as error:
        params = {"example": example(currency), "currency": currency, "decimals": money.exponent(currency)}
        raise ValidationError(_mistake(typed, currency), code="invalid", params=params) from error
    if amount == 0:
        raise ValidationError(_("The amount must be more than zero."), code="invalid")
    return amount


def example(currency: str) -> str:
    """Return an amount as a user can type it, with the separators of the active language."""
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


def text_input() -> forms.TextInput:
    """Return an input that the browser does not fill in with what was typed about another person."""
    return AdminTextInputWidget(attrs={"autocomplete": "off"})


def document_choices(country: str | None, given: str = "") -> list[tuple[str, StrOrPromise]]:
    """Return the choices of document types of the country. Without a country, each shows the countries that issue it.

    ``given``: a type that is always offered, because the person is known to have such a document.
    """
    if country in _DOCUMENTS:
        kinds = [*_DOCUMENTS[country], DocumentType.PASS]
        kinds += [kind for kind in DocumentType if kind == given and kind not in kinds]
        return [("", display.EMPTY), *((kind.value, kind.label) for kind in kinds)]
    issuers = {kind: ", ".join(str(Country(code).label) for code in _issued_in(kind)) for kind in DocumentType}
    ordered = sorted(DocumentType, key=lambda kind: (not issuers[kind], kind != DocumentType.PASS))
    return [
        ("", display.EMPTY),
        *((kind.value, f"{kind.label} ({issuers[kind]})" if issuers[kind] else kind.label) for kind in ordered),
    ]


def _issued_in(kind: str) -> list[str]:
    """Return the countries where a document type is usual; none for a passport, which is usual everywhere."""
    return [code for code, kinds in _DOCUMENTS.items() if kind in kinds]


class DocumentSelect(forms.Select):
    """Document types with their countries. A page may hide the types of other countries."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        countries = _DOCUMENTS if value == DocumentType.PASS else _issued_in(str(value))
        option["attrs"]["data-countries"] = " ".join(countries)
        return option


class DestinationForm(KeyedForm):
    """A bank account. The service's validation decides; its messages appear at the form's fields."""

    holder_name = forms.CharField(label=gettext_lazy("Account holder"), max_length=255, widget=text_input())
    document_type = forms.ChoiceField(label=gettext_lazy("Holder's document type"), widget=DocumentSelect)
    document_number = forms.CharField(
        label=gettext_lazy("Holder's document number"), max_length=64, widget=text_input()
    )
    bank_code = forms.CharField(label=gettext_lazy("Bank code"), required=False, max_length=64, widget=text_input())
    account_number = forms.CharField(label=gettext_lazy("Account number"), max_length=64, widget=text_input())
    account_type = forms.ChoiceField(
        label=gettext_lazy("Account type"), required=False, choices=[("", display.EMPTY), *AccountType.choices]
    )

    def __init__(self, *args: Any, country: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._country = country
        given = (self.data if self.is_bound else self.initial).get("document_type") or ""
        cast("forms.ChoiceField", self.fields["document_type"]).choices = document_choices(country, given)

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
        validator = Validator(conf.current().DOCUMENT_CHECKS)
        country = self._country or str(self.cleaned_data.get("country", ""))
        objects.destination(validator, "destination", self.destination, country)
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


def offer_accounts(form: forms.Form) -> None:
    """Offer the accounts in a form's field ``account``. A single one is not shown, and the form carries it.

    During a deployment, the page may come from a process with other accounts. A form that names one of those shows
    the choice, and an error if it was sent.
    """
    field, choices = cast("forms.ChoiceField", form.fields["account"]), conf.account_choices()
    field.choices = choices
    given = (form.data if form.is_bound else form.initial).get("account")
    if not choices:
        # The service's error says that there is none.
        del form.fields["account"]
    elif len(choices) == 1 and given in (None, "", choices[0][0]):
        field.widget, field.initial, field.required = forms.HiddenInput(), choices[0][0], False


def account_facts(account: str) -> list[Fact]:
    """Return the name of an account; nothing if there is only one."""
    name = display.text(conf.account_name(account))
    return [(_("Account at the provider"), name)] if len(conf.aliases()) > 1 else []


def method_in_full(code: str) -> str:
    """Return a method's name and code. A person reads both before money moves, and the code decides."""
    return display.text(f"{display.method_name(code)} ({code})")


def destination_in_words(destination: dict[str, Any]) -> str:
    """Return a bank account in one phrase."""
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
    """Return a bank account, line by line."""
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
