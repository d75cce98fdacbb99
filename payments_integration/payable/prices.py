"""Read the price that an order's model declares, in Python and in SQL, and check the declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import django
from django.core import checks
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import models
from django.db.models import BigIntegerField, Case, F, Func, Q, Value, When
from django.db.models.expressions import DatabaseDefault
from django.db.models.lookups import Exact, GreaterThanOrEqual, In

from payments_integration import money
from payments_integration.payable.text import ExactText

#: Any, because the module of the abstract model imports this one.
Payable = Any

#: The options that a model sets to declare its price, for messages.
DECLARE = 'payments_amount_field = "total" and payments_currency_field = "currency" (or payments_currency = "USD")'
#: What a model without such fields does, for messages.
_BY_METHOD = "define payments_price() instead of payments_amount_field"


def of(order: Payable) -> tuple[int, str] | None:
    """Return the price in the row's fields: minor units and currency. None if one of the fields is empty.

    Raises ValueError as ``money.to_minor`` does, and for a field of django-money in another currency.
    """
    model = type(order)
    if not model.payments_amount_field:
        return None
    names = model.payments_amount_field, model.payments_currency_field or "payments_currency"
    is_generated = any(isinstance(each, models.GeneratedField) and each.name in names for each in model._meta.fields)
    if is_generated and django.VERSION < (6, 0) and not order._state.adding:
        # Until Django 6.0, ``save`` leaves the former value in the instance.
        order = model._base_manager.using(order._state.db).filter(pk=order.pk).first() or order
    amount, currency = (value(order, name) for name in names)
    if amount is None or not currency:
        return None
    if hasattr(amount, "currency"):  # django-money's field returns the number with its currency
        if str(amount.currency) != currency:
            raise ValueError(f"{model._meta.label} {order.pk}: its price is {amount}, and its currency {currency}")
        amount = amount.amount
    return (money.to_minor(amount, currency) if _is_in_whole_units(model) else amount), currency


def value(row: Payable, name: str) -> Any:
    """Return a field's value; None for a ``db_default`` of a row that is not saved yet."""
    found = getattr(row, name)
    return None if isinstance(found, DatabaseDefault) else found


def column(model: type[models.Model], name: str) -> models.Field[Any, Any] | None:
    """Return the model's field, or the output field of a generated field; None if the model has no such column."""
    try:
        found = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    if not isinstance(found, models.Field):
        return None
    return found.output_field if isinstance(found, models.GeneratedField) else found


def target(field: Any) -> Any:
    """Return the field that holds the values of a relation's column; any other field is its own.

    So is a relation to a model that does not exist, as Django's own check says.
    """
    while field is not None and field.is_relation and not isinstance(field.related_model, str):
        field = field.target_field
    return field


def require(model: type[Payable]) -> None:
    """Raise ImproperlyConfigured if SQL cannot compare the model's rows with their payments."""
    label = model._meta.label
    if not model.payments_amount_field:
        raise ImproperlyConfigured(
            f"{label} does not say which of its fields have the price, which paid(), unpaid() and overpaid() compare "
            f"with the payments in SQL. Add to the model: {DECLARE}."
        )
    for problem in problems(model):
        raise ImproperlyConfigured(f"{label}: {problem.msg} {problem.hint}")


def problems(model: Any) -> Iterator[checks.CheckMessage]:
    """Yield E020 if an option of the price does not fit the model's fields."""
    name = model.payments_amount_field
    if not name:
        return
    amount = column(model, name)
    if not isinstance(amount, models.IntegerField | models.DecimalField):
        yield wrong(
            model,
            f"payments_amount_field names {name!r}, which is neither an integer field nor a DecimalField.",
            "Name the field with the price: an integer in minor units, or a DecimalField in whole units. "
            f"If none has it, {_BY_METHOD}.",
        )
    money_field: Any = amount
    if hasattr(money_field, "currency_field_name"):  # of django-money
        own_currency = money_field.currency_field_name or f"{name}_currency"
        if model.payments_currency_field != own_currency:
            yield wrong(
                model,
                f"payments_amount_field names {name!r}, and each of its amounts has a currency, which SQL would "
                "not compare.",
                f'Add payments_currency_field = "{own_currency}".',
            )
    # A row of a child is a row of its parent too, where SQL compares it.
    family = [each for each in model._meta.apps.get_models() if issubclass(each, model)]
    if own := [each._meta.label for each in family if each._has_own_price()]:
        yield wrong(
            model,
            f"payments_amount_field is set, and {', '.join(own)} overrides payments_price(). paid(), unpaid() "
            "and overpaid() would compare the field with the payments, and not what the method returns.",
            "Keep the whole price in the field, and remove the method. Or remove payments_amount_field, and do "
            "without paid(), unpaid() and overpaid().",
        )
    children = [each for each in family if each._meta.concrete_model is not model._meta.concrete_model]
    if other := [each._meta.label for each in children if _declaration(each) != _declaration(model)]:
        yield wrong(
            model,
            f"{', '.join(other)} declares another price than its parent. paid(), unpaid() and overpaid() of the "
            "parent would compare the parent's price with the payments of the same rows.",
            "Set payments_amount_field, payments_currency_field and payments_currency in the parent only.",
        )
    if model.payments_currency_field:
        currency = column(model, model.payments_currency_field)
        if not isinstance(currency, models.CharField | models.TextField):
            yield wrong(
                model,
                f"payments_currency_field names {model.payments_currency_field!r}, which is no text field.",
                f"Name a field that has the ISO code as text. If none has it, such as a relation, {_BY_METHOD}.",
            )
    elif model.payments_currency not in money.EXPONENTS:
        yield wrong(
            model,
            "payments_amount_field is set, and nothing says in which currency the amount is.",
            'Add payments_currency_field = "currency", or one currency for all rows, '
            f'such as payments_currency = "USD": one of {", ".join(money.EXPONENTS)}.',
        )


def _declaration(model: type[Payable]) -> tuple[str, str, str]:
    """Return the options of the price. One currency for all rows counts only without a field, as in ``of``."""
    field = model.payments_currency_field
    return model.payments_amount_field, field, "" if field else model.payments_currency


def wrong(model: Any, message: str, hint: str) -> checks.CheckMessage:
    """Return an E020: an option of the model names something that does not exist or does not fit."""
    return checks.Error(message, hint=hint, obj=model, id="payments_integration.E020")


def currency_of(model: type[Payable], outer: type[F] = F) -> Any:
    """Return the row's currency as exact text. Inside a subquery, ``outer`` is OuterRef."""
    if not model.payments_currency_field:
        return Value(model.payments_currency)
    return ExactText(outer(model.payments_currency_field))


def is_known(model: type[Payable]) -> Q:
    """Return the condition of rows that have a price, right or wrong."""
    known = Q(**{f"{model.payments_amount_field}__isnull": False})
    if name := model.payments_currency_field:
        known &= Q(**{f"{name}__isnull": False}) & ~Q(Exact(ExactText(F(name)), Value("")))
    return known


def is_right(model: type[Payable]) -> Q:
    """Return the condition of rows whose price Python accepts. Ignores the currency of a price in minor units."""
    amount = F(model.payments_amount_field)
    right = Q(GreaterThanOrEqual(amount, Value(0)))
    if _is_in_whole_units(model):
        # ``to_minor`` refuses another currency, and an amount that would lose a digit when rounded.
        rounded = by_exponent(
            model,
            lambda decimals: Func(
                amount, template=f"ROUND(%(expressions)s, {decimals})", output_field=models.DecimalField()
            ),
        )
        right &= Q(Exact(rounded, amount))
    return right


def minor(model: type[Payable]) -> Any:
    """Return the row's amount in minor units, as an expression."""
    amount = F(model.payments_amount_field)
    if not _is_in_whole_units(model):
        return amount
    # Round, because SQLite stores decimals as floats.
    return by_exponent(
        model,
        lambda decimals: Func(
            amount, template=f"ROUND(%(expressions)s * {10**decimals})", output_field=BigIntegerField()
        ),
    )


def by_exponent(model: type[Payable], make: Callable[[int], Any], default: Any = None) -> Any:
    """Return ``make(decimals)`` for the decimals of the row's currency; ``default`` if the spec does not have it."""
    if not model.payments_currency_field:
        return make(money.exponent(model.payments_currency))
    codes: dict[int, list[str]] = {}
    for code, decimals in money.EXPONENTS.items():
        codes.setdefault(decimals, []).append(code)
    currency = currency_of(model)
    return Case(*(When(In(currency, some), then=make(decimals)) for decimals, some in codes.items()), default=default)


def _is_in_whole_units(model: type[Payable]) -> bool:
    return isinstance(column(model, model.payments_amount_field), models.DecimalField)
