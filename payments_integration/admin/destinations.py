"""Where money goes: the form for a bank account, and the account in words before anything is sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration.admin import display, outcomes
from payments_integration.admin.confirming import Fact, KeyedForm
from payments_integration.enums import AccountType, Country, DocumentType
from payments_integration.services import shapes
from payments_integration.services.checks import Checks

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

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
#: The fields, in the order in which a person reads them off a letter of the bank.
FIELDS = ("holder_name", "document_type", "document_number", "bank_code", "account_number", "account_type")

#: Spec, "destination": addresses must be whitelisted, and a new one becomes active after 24 hours.
NEW_ACCOUNT = gettext_lazy(
    "The provider sends money only to accounts on your list there, and one that was newly added becomes active after "
    "24 hours: until then it may refuse."
)


def document_types(country: str | None) -> list[DocumentType]:
    """Every type, those of the country first."""
    usual = (*_DOCUMENTS.get(country or "", ()), DocumentType.PASS)
    return [*usual, *(kind for kind in DocumentType if kind not in usual)]


def document_choices(country: str | None) -> list[tuple[str, StrOrPromise]]:
    """Every type; while the country is not known, each with the countries that issue it."""
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
    """A bank account. What may stand in it, the service's own checks decide, at their fields."""

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
        """Where the account is, as far as is known."""
        return self._country or str(self.cleaned_data.get("country", ""))

    @property
    def destination(self) -> dict[str, Any]:
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
        checks = Checks()
        shapes.destination(checks, "destination", self.destination, self.destination_country)
        try:
            checks.finish()
        except ValidationError as error:
            for argument, message in outcomes.complaints(error):
                name, shown = self.place(argument, message)
                # What is missing or misspelt was said already.
                if name not in self.errors:
                    self.add_error(name, shown)
        return self.cleaned_data

    def place(self, argument: str, message: str) -> tuple[str | None, str]:
        where, colon, rest = message.partition(": ")
        if argument == "destination" and colon and where in _PLACES:
            return _PLACES[where], rest
        return super().place(argument, message)


def in_words(destination: dict[str, Any]) -> str:
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


def facts(destination: dict[str, Any]) -> list[Fact]:
    """A bank account line by line."""
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
