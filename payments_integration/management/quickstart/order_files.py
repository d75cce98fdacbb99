"""Write the files that ``payments_quickstart`` adds to the app of the model that payments are for."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DEFAULT_DB_ALIAS, models, router
from django.template import Context, Engine
from django.urls import get_script_prefix

from payments_integration import money
from payments_integration.db.transactions import ledger_database
from payments_integration.management.quickstart.order_model import OrderModel, atomic_databases, field
from payments_integration.payable import Payable, prices

#: The country and a card method of the sandbox for each currency, to start with.
METHODS = {
    "CLP": ("CL", "cl_webpay_card"), "COP": ("CO", "co_card"), "USD": ("EC", "ec_card"),
    "PEN": ("PE", "pe_card"), "MXN": ("MX", "mx_card"), "BRL": ("BR", "br_card"),
}  # fmt: skip
#: The name of the proxy of an installed package's order.
PROXY = "PaidOrder"
#: The price of the test's order, in minor units.
TEST_PRICE = 11_990
_TEMPLATES = Engine(dirs=[str(Path(__file__).parent / "templates")], autoescape=False)


def proxy(order: OrderModel) -> str:
    """Return a proxy class that adds payments to the rows of an installed package's order, without a table."""
    return _rendered("proxy.py-tpl", order.model, proxy=PROXY, options=order.options)


def views(order: OrderModel) -> str:
    """Return a module with a view where the payer pays."""
    return _rendered(
        "payment_views.py-tpl",
        order.model,
        owner=order.owner,
        customer=order.customer,
        reference=order.reference,
        methods=_methods(order),
        atomic=atomic_databases(),
    )


def urls(order: OrderModel) -> str:
    converter = _converter(prices.target(order.model._meta.pk))
    return _rendered("payment_urls.py-tpl", order.model, package=order.app.name, converter=converter)


def tests(order: OrderModel) -> str:
    """Return a test module for the whole way of an order. Both Django's runner and pytest find it."""
    allowed = dict(getattr(field(order.model, order.currency), "flatchoices", ()))
    code = order.constant or next((code for code in METHODS if code in allowed), "USD")
    price = f'Decimal("{money.to_major(TEST_PRICE, code)}")' if order.is_decimal else str(TEST_PRICE)
    given = _needed(order.model)
    if order.amount:
        given[order.amount] = price
    if order.currency:
        given[order.currency] = f'"{code}"'
    if order.owner:
        given[order.owner] = "user"
    user = _user() if order.owner else ""
    values = ", ".join(f"{name}={value}" for name, value in given.items())
    both = f"{user}, {values}"
    return _rendered(
        "test_payments.py-tpl",
        order.model,
        owner=order.owner,
        has_view=order.has_view,
        prefix=get_script_prefix().rstrip("/"),
        methods=_methods(order),
        reference=order.reference,
        user=user,
        values=values,
        price=f'({TEST_PRICE}, "{code}")' if order.amount else "order.payments_price()",
        is_priced=bool(order.amount),
        has_date="=date(" in both,
        has_decimal="Decimal(" in both,
        has_time="timezone." in both,
        has_paid_at=field(order.model, "paid_at") is not None,
        is_routed={ledger_database(), router.db_for_write(order.model)} != {DEFAULT_DB_ALIAS},
    )


def handlers(model: type[models.Model] | None, order: OrderModel | None = None) -> str:
    """Return a module with a handler for payments and refunds. It marks an order if the model has the fields for it.

    With ``order``, the model is a Payable with a price when the module is imported.
    """
    payable: Any = model if model is not None and issubclass(model, Payable) else None
    price, unpriced = "", ""
    if order is not None:
        unpriced = _unpriced(order.amount, order.currency)
    elif payable and payable._knows_price():
        unpriced = _unpriced(payable.payments_amount_field, payable.payments_currency_field)
    elif payable:
        price = _arguments_of_is_paid(payable)
    ledger, orders = ledger_database(), router.db_for_write(model) if model is not None else DEFAULT_DB_ALIAS
    return _rendered(
        "payment_handlers.py-tpl",
        model,
        is_payable=payable or order is not None,
        unpriced=unpriced,
        price="*price" if unpriced else price,
        is_whole_units="to_minor" in price,
        has_paid_at=model is not None and field(model, "paid_at") is not None,
        elsewhere=orders if orders != ledger else "",
        ledger=ledger,
    )


def _unpriced(amount: str, currency: str) -> str:
    """Return what may be empty in a row without a price."""
    return " or ".join(filter(None, (amount, currency))) if amount else "payments_price()"


def _rendered(template: str, model: type[models.Model] | None, **values: Any) -> str:
    named = {"name": model.__name__, "module": model.__module__} if model is not None else {"name": "Order"}
    return _TEMPLATES.get_template(template).render(Context(values | named, autoescape=False, use_l10n=False))


def _methods(order: OrderModel) -> list[tuple[str, str, str]]:
    codes = [order.constant] if order.constant else list(METHODS)
    return [(code, *METHODS[code]) for code in codes]


def _converter(key: Any) -> str:
    if isinstance(key, models.UUIDField):
        return "uuid"
    return "int" if isinstance(key, models.IntegerField) else "str"


def _user() -> str:
    """Return the arguments for a user. Texts may be empty, except the name to log in with."""
    model = get_user_model()
    texts = (models.CharField, models.TextField)
    others = {name: value for name, value in _needed(model).items() if not isinstance(field(model, name), texts)}
    given = {model.USERNAME_FIELD: '"ana@example.com"', **others}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _needed(model: type[models.Model]) -> dict[str, str]:
    """Return the other fields that a row must have, each with an example value as Python source."""
    found = {}
    for each in model._meta.concrete_fields:
        has_value = each.has_default() or each.null or getattr(each, "auto_now", False) or each.auto_created
        if has_value or getattr(each, "auto_now_add", False) or isinstance(each, models.GeneratedField):
            continue
        if each.primary_key and isinstance(each, models.AutoField):
            continue
        found[each.name] = _example(each)
    return found


def _example(each: Any) -> str:
    if isinstance(each, models.DateTimeField):
        return "timezone.now()"
    if isinstance(each, models.DateField):
        return repr(date(2026, 1, 1)).removeprefix("datetime.")
    if isinstance(each, models.DecimalField):
        return f'Decimal("{Decimal(1)}")'
    if isinstance(each, models.BooleanField):
        return "False"
    if isinstance(each, models.IntegerField | models.FloatField):
        return str(_first_choice(each, 1))
    if isinstance(each, models.EmailField):
        return '"ana@example.com"'
    if isinstance(each, models.CharField | models.TextField):
        return repr(str(_first_choice(each, "x")))
    if isinstance(each, models.JSONField):
        return "{}"
    return "..."  # only the project knows a value


def _first_choice(each: Any, otherwise: int | str) -> Any:
    # Choices may begin with a label for "none chosen".
    first = next((value for value, _label in each.flatchoices if value not in (None, "")), otherwise)
    return getattr(first, "value", first)  # of an Enum


def _arguments_of_is_paid(model: type[Payable]) -> str:
    """Return the arguments for ``is_paid`` of a model that declares no price; empty if its fields tell none."""
    currency = "order.currency" if field(model, "currency") is not None else "obj.currency"
    amount = field(model, "amount")
    if isinstance(amount, models.IntegerField):
        return f"order.amount, {currency}"
    if isinstance(amount, models.DecimalField):
        return f"to_minor(order.amount, {currency}), {currency}"
    return ""
