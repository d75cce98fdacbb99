"""Find the model that payments are for, and which of its fields they need."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.core.management import CommandError
from django.db import models

from payments_integration import money
from payments_integration.management.quickstart.gaps import is_own
from payments_integration.payable import Payable, prices
from payments_integration.payable.models import hidden_names, sharing_numbers

#: Usual names of models that payments are for, the likeliest first, in English, Spanish and Portuguese.
ORDERS = (
    "Order", "Invoice", "Purchase", "Booking", "Reservation", "Sale", "Donation",
    "Pedido", "Orden", "Factura", "Fatura", "Compra", "Reserva", "Venta", "Venda", "Donacion", "Doacao",
)  # fmt: skip
#: Usual names of the fields with an order's number, price and currency, the likeliest first.
NUMBERS = ("number", "order_number", "reference", "code", "numero", "referencia", "codigo")
AMOUNTS = (
    "amount", "total", "total_amount", "amount_total", "grand_total", "total_price", "price", "total_incl_tax",
    "monto", "importe", "valor_total", "valor", "precio", "preco",
)  # fmt: skip
CURRENCIES = ("currency", "currency_code", "moneda", "moeda")


@dataclass(frozen=True, slots=True)
class OrderModel:
    """The model's fields that payments need."""

    model: type[models.Model]
    reference: str
    #: The field with the price; empty if the model's own ``payments_price()`` tells it.
    amount: str
    #: The field with the currency; empty if all rows have ``constant``.
    currency: str
    constant: str
    #: The field with the user who placed the order; empty if there is none.
    owner: str

    @property
    def name(self) -> str:
        return self.model.__name__

    @property
    def app(self) -> AppConfig:
        return apps.get_app_config(self.model._meta.app_label)

    @property
    def is_payable(self) -> bool:
        return issubclass(self.model, Payable)

    @property
    def is_decimal(self) -> bool:
        return isinstance(field(self.model, self.amount), models.DecimalField)

    @property
    def has_view(self) -> bool:
        """False if orders have customers and the project, as an API, no sessions that tell the view who they are."""
        return not self.owner or any("session" in name.lower() for name in settings.MIDDLEWARE)

    @property
    def customer(self) -> str:
        """The field with the user who placed the order if it is empty for guests; empty if there is none."""
        return "" if self.owner else _owner(self.model, is_null=True)

    @property
    def options(self) -> list[str]:
        """The lines that the class needs and does not have yet."""
        wanted = {
            "merchant_reference_field": self.reference,
            "payments_amount_field": self.amount,
            "payments_currency_field": self.currency,
            "payments_currency": self.constant,
        }
        if self.is_payable and self.model._knows_price():  # type: ignore[attr-defined]
            wanted = {"merchant_reference_field": self.reference}
        return [
            f'{name} = "{value}"'
            for name, value in wanted.items()
            if value and not (self.is_payable and getattr(self.model, name))
        ]


def chosen(root: Path, named: str) -> type[models.Model]:
    """Return the model that --order names, or the only candidate. If there are several, ask the person."""
    if named:
        return model_named("--order", named)
    own = [found for found in apps.get_app_configs() if is_own(Path(found.path), root)]
    labels = {model._meta.label: model for model in candidates(own)}
    if not labels:
        raise CommandError("No model of yours has the name of an order. Name the one: --order app.Model")
    if len(labels) > 1 and sys.stdin.isatty():
        answer = input(f"What are payments for: {', '.join(labels)}? ").strip()
        labels = {label: model for label, model in labels.items() if label == answer}
    if len(labels) != 1:
        names = " or ".join(f"--order {model._meta.label}" for model in candidates(own))
        raise CommandError(f"Several models may be what payments are for. Name one: {names}")
    return next(iter(labels.values()))


def model_named(option: str, name: str) -> type[models.Model]:
    try:
        return apps.get_model(name)
    except (LookupError, ValueError) as error:
        # Without exactly one dot, Django's error is about unpacking a list.
        why = str(error).rstrip(".") if name.count(".") == 1 else "one dot separates the app's label and the model"
        raise CommandError(f"{option} {name}: {why}. Name it as app.Model.") from error


def candidates(own: list[AppConfig]) -> list[type[models.Model]]:
    """Return the models that payments may be for, likeliest first: every ``Payable``, otherwise by name."""
    found = [model for app in own for model in app.get_models()]
    payables = [model for model in found if issubclass(model, Payable)]
    likely = [model for name in ORDERS for model in found if model.__name__.endswith(name)]
    return list(dict.fromkeys(sorted(payables, key=lambda model: model not in likely) or likely))


def read(model: type[models.Model], *, amount: str | None, currency: str | None) -> OrderModel:
    """Return the model's fields that payments need. Raises CommandError with the option to add if one is unclear."""
    label = model._meta.label
    if not issubclass(model, Payable) and (hidden := hidden_names(model)):
        raise CommandError(
            f"{label} has {', '.join(map(repr, hidden))}, which Payable uses for something else. Give the field, "
            "property, method or related_name another name first (with db_column, the table stays as it is)."
        )
    reference = getattr(model, "merchant_reference_field", "")
    if not reference:
        reference = _reference(model)
        if others := sharing_numbers(model, reference):
            raise CommandError(
                f"The reference of {label} would be its {reference!r}, a number, as that of {', '.join(others)}: two "
                "rows with the same number would share their payments. Add a unique text field "
                f'"{NUMBERS[0]}" with a prefix, such as "{model._meta.model_name}-7", to {label} first.'
            )
    known: Any = model if issubclass(model, Payable) and model._knows_price() else None
    if known and not known.payments_amount_field and not amount:
        return OrderModel(model, reference, "", "", currency if currency in money.EXPONENTS else "", _owner(model))
    chosen = amount or (known.payments_amount_field if known else "") or _amount(model)
    if not isinstance(field(model, chosen), models.IntegerField | models.DecimalField):
        raise CommandError(
            f"{label} has no integer field and no DecimalField {chosen!r}. Name the field with the price: "
            f"--amount {' or '.join(_numeric(model)) or 'FIELD'}.{_floats(model)}"
        )
    if known and not currency:
        currency = known.payments_currency or known.payments_currency_field
    code, constant = "", ""
    if currency in money.EXPONENTS:
        constant = currency
    else:
        code = currency or next((name for name in CURRENCIES if field(model, name) is not None), "")
        if not isinstance(field(model, code), models.CharField):
            raise CommandError(
                f"{label} has no text field {code or 'currency'!r}. Name the field with the currency, or one currency "
                f"for all orders: --currency FIELD, or --currency {' or '.join(money.EXPONENTS)}."
            )
    return OrderModel(model, reference, chosen, code, constant, _owner(model))


def _amount(model: type[models.Model]) -> str:
    numeric = _numeric(model)
    named = [name for name in AMOUNTS if name in numeric]
    decimals = [name for name in numeric if isinstance(field(model, name), models.DecimalField)]
    found = named or (decimals if len(decimals) == 1 else [])
    if not found:
        raise CommandError(
            f"Which field of {model._meta.label} has the price? Name it: --amount {' or '.join(numeric) or 'FIELD'}. "
            "If none has it, make the model a Payable with a payments_price() of its own: docs/orders.md."
            f"{_floats(model)}"
        )
    return found[0]


def _floats(model: type[models.Model]) -> str:
    found = [each.name for each in model._meta.concrete_fields if isinstance(each, models.FloatField)]
    way = " is a FloatField, which rounds money. Make it a DecimalField(max_digits=12, decimal_places=2) first."
    return f" {found[0]!r}{way}" if found else ""


def _numeric(model: type[models.Model]) -> list[str]:
    """Return the fields that may have a price: integers in minor units, or decimals in whole units."""
    return [
        each.name
        for each in model._meta.concrete_fields
        if isinstance(each, models.IntegerField | models.DecimalField) and not each.primary_key
    ]


def _reference(model: type[models.Model]) -> str:
    for name in NUMBERS:
        found = field(model, name)
        is_plain = isinstance(found, models.CharField | models.IntegerField | models.UUIDField)
        if is_plain and found.unique and not found.null and not found.blank:
            return name
    key: Any = model._meta.pk
    target = prices.target(key)
    if isinstance(target, models.CharField | models.IntegerField | models.UUIDField):
        # A child has its parent's key as a field too. paid() compares it, but not the column of a relation.
        return str(target.name if field(model, target.name) is target else key.attname)
    raise CommandError(f"The key of {model._meta.label} is no integer, UUID or text: docs/orders.md says what to do.")


def _owner(model: type[models.Model], *, is_null: bool = False) -> str:
    user = settings.AUTH_USER_MODEL.lower()  # there may be no such model
    owners = [
        each.name
        for each in model._meta.concrete_fields
        if isinstance(each, models.ForeignKey)
        and each.null is is_null
        and each.related_model._meta.label_lower == user
    ]
    return owners[0] if len(owners) == 1 else ""


def field(model: type[models.Model], name: str) -> Any:
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        return None


def atomic_databases() -> list[str]:
    """Return the aliases of the databases with ATOMIC_REQUESTS."""
    return [alias for alias, database in settings.DATABASES.items() if database.get("ATOMIC_REQUESTS")]
