"""Write the files that ``payments_quickstart`` adds to the app of the model that payments are for."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from textwrap import dedent, indent
from typing import Any

from django.contrib.auth import get_user_model
from django.db import models

from payments_integration import money
from payments_integration.management.quickstart.order_model import OrderModel, field, has_atomic_requests
from payments_integration.payable import Payable

#: The country and a card method of the sandbox for each currency, to start with.
METHODS = {
    "CLP": ("CL", "cl_webpay_card"), "COP": ("CO", "co_card"), "USD": ("EC", "ec_card"),
    "PEN": ("PE", "pe_card"), "MXN": ("MX", "mx_card"), "BRL": ("BR", "br_card"),
}  # fmt: skip
#: The name of the proxy of an installed package's order.
PROXY = "PaidOrder"
#: The price of the test's order, in minor units.
TEST_PRICE = 11_990


_HANDLERS = '''\
"""What happens when a payment changes. payments_integration finds this module by its name."""

{imports}


@on_status(Payment, database_only=True)
@on_status(Refund, database_only=True)
def follow(obj, **kwargs):
    """Called once for each change of a payment or refund. Its database work commits exactly once.

    database_only: mails and requests belong into transaction.on_commit.
    """
{body}
'''


def proxy(order: OrderModel) -> str:
    """Return a proxy class that adds payments to the rows of an installed package's order, without a table."""
    lines = [
        f"from {order.model.__module__} import {order.name}",
        "from payments_integration.payable import Payable",
        "",
        "",
        f"class {PROXY}(Payable, {order.name}):",
        *(f"    {line}" for line in order.options),
        "",
        "    class Meta:",
        "        proxy = True",
        "",
    ]
    return "\n".join(lines)


def views(order: OrderModel) -> str:
    """Return a module with a view where the payer pays."""
    decorators, imports, lookup, note = [], [], "pk=pk", []
    if has_atomic_requests():
        imports.append("from django.db import transaction")
        decorators.append(
            "@transaction.non_atomic_requests  # ATOMIC_REQUESTS: no rollback could take the request back"
        )
    if order.owner:
        imports.insert(0, "from django.contrib.auth.decorators import login_required")
        decorators.append("@login_required")
        lookup = f"pk=pk, {order.owner}=request.user"
    else:
        note = ["    # Anyone who knows the key can ask to pay. If orders have customers, look for theirs only."]
    imports.insert(1 if order.owner else 0, "from django.core.exceptions import ValidationError")
    imports.append("from django.http import HttpResponse")
    codes = [order.constant] if order.constant else list(METHODS)
    lines = [
        '"""Where payers pay. Offer them a choice of methods here: services.list_payment_methods()."""',
        "",
        *imports,
        "from django.shortcuts import get_object_or_404, redirect",
        "from django.views.decorators.http import require_POST",
        "from payments_integration import checkout, services",
        "from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError",
        "",
        f"from {order.model.__module__} import {order.name}",
        "",
        "#: Country and method, by currency.",
        "METHODS = {",
        *(f'    "{code}": ("{METHODS[code][0]}", "{METHODS[code][1]}"),' for code in codes),
        "}",
        "",
        "",
        *decorators,
        "@require_POST",
        "def pay(request, pk):",
        '    """Ask for the payment, and send the payer to it. A second click finds the first one\'s payment."""',
        *note,
        f"    order = get_object_or_404({order.name}, {lookup})",
        "    amount, currency = order.payments_price()  # minor units",
        "    country, method = METHODS[currency]",
        f"    reference = str(order.{order.reference})",
        "    status = checkout.status_url(request, reference)",
        "    try:",
        "        payment = services.create_payment(",
        "            amount=amount,",
        "            currency=currency,",
        "            country=country,",
        "            method_code=method,",
        "            merchant_reference=reference,",
        "            return_url=checkout.return_url(request, reference),",
        "            idempotency_key=order.attempt_key(),",
        "            actor=request.user,",
        "        )",
        "    except (OutcomeUnknown, IdempotencyMismatch):",
        "        return redirect(status)  # there may be a payment: never offer a second one",
        "    except (PaymentsError, ValidationError) as error:  # refused, or the order is paid already",
        '        return HttpResponse(checkout.explain(error), status=409, content_type="text/plain; charset=utf-8")',
        "    return redirect(checkout.provider_page(payment) or status)",
        "",
    ]
    return "\n".join(lines)


def urls(order: OrderModel) -> str:
    package = order.model._meta.app_config.name
    return "\n".join(
        [
            "from django.urls import path",
            "",
            f"from {package}.payment_views import pay",
            "",
            'app_name = "pay"',
            f'urlpatterns = [path("<{_converter(order.model._meta.pk)}:pk>/", pay, name="order")]',
            "",
        ]
    )


def tests(order: OrderModel) -> str:
    """Return a test module for the whole way of an order. Both Django's runner and pytest find it."""
    code = order.constant or "USD"
    values = {**_needed(order), order.amount: _price(order, code)}
    if order.currency:
        values[order.currency] = f'"{code}"'
    imports, user = [], []
    if order.owner:
        imports.append("from django.contrib.auth import get_user_model")
        user = [
            f"        user = get_user_model().objects.create({_user()})",
            "        self.client.force_login(user)",
        ]
        values[order.owner] = "user"
    decimal = ["from decimal import Decimal", ""] if any("Decimal(" in value for value in values.values()) else []
    dates = ["from datetime import date", ""] if any("date(" in value for value in values.values()) else []
    if any("timezone." in value for value in values.values()):
        imports.append("from django.utils import timezone")
    has_paid_at = any(each.name == "paid_at" for each in order.model._meta.concrete_fields)
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    lines = [
        '"""An order is paid, and refunded, against a sandbox of the provider in this process."""',
        "",
        *dates[:-1],
        *decimal[:-1],
        *([""] if dates or decimal else []),
        *imports,
        "from django.test import TestCase",
        "from django.urls import reverse",
        "from payments_integration import services",
        "from payments_integration.testing import ProviderSandbox",
        "",
        f"from {order.model.__module__} import {order.name}",
        "",
        "",
        "class PaymentTests(TestCase):",
        "    def setUp(self):",
        "        self.sandbox = self.enterContext(ProviderSandbox())",
        "",
        "    def test_an_order_is_paid_and_refunded(self):",
        *user,
        f"        order = {order.name}.objects.create({given})",
        "        # secure: a return address is https, and SECURE_SSL_REDIRECT would answer first",
        '        answer = self.client.post(reverse("pay:order", args=[order.pk]), secure=True)',
        "        payment = order.payments.get()",
        "        self.assertRedirects(answer, payment.checkout_url, fetch_redirect_response=False)",
        f'        self.assertEqual((payment.amount, payment.currency), ({TEST_PRICE}, "{code}"))',
        "",
        "        self.sandbox.engine.pay(payment.pk)",
        "        self.sandbox.settle()  # the webhooks arrive, and the handlers are called",
        "        order.refresh_from_db()",
        "        self.assertTrue(order.is_paid(*order.payments_price()))",
        *(["        self.assertIsNotNone(order.paid_at)"] if has_paid_at else []),
        "",
        "        refund = services.create_refund(payment)",
        "        self.sandbox.engine.succeed_refund(refund.pk)",
        "        self.sandbox.settle()",
        "        order.refresh_from_db()",
        "        self.assertFalse(order.is_paid(*order.payments_price()))",
        *(["        self.assertIsNone(order.paid_at)"] if has_paid_at else []),
        "",
    ]
    return "\n".join(lines)


def _converter(key: Any) -> str:
    if isinstance(key, models.UUIDField):
        return "uuid"
    return "int" if isinstance(key, models.IntegerField) else "str"


def _price(order: OrderModel, code: str) -> str:
    if not order.is_decimal:
        return str(TEST_PRICE)
    return f'Decimal("{money.to_major(TEST_PRICE, code)}")'


def _user() -> str:
    """Return the arguments for a user of the project's model: its login name."""
    model: Any = get_user_model()
    return f'{model.USERNAME_FIELD}="ana@example.com"'


def _needed(order: OrderModel) -> dict[str, str]:
    """Return the other fields that a row must have, each with an example value as Python source."""
    found = {}
    for each in order.model._meta.concrete_fields:
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
        return "1"
    if isinstance(each, models.EmailField):
        return '"ana@example.com"'
    if isinstance(each, models.CharField | models.TextField):
        return repr(str(each.choices[0][0])) if each.choices else '"x"'
    if isinstance(each, models.JSONField):
        return "{}"
    return "..."  # only the project knows a value


def handlers(model: type[models.Model] | None, *, is_priced: bool = False) -> str:
    """Return a module with a handler for payments and refunds. It marks an order if the model has the fields for it.

    ``is_priced`` is True if the model will be a Payable with a price when the module is imported.
    """
    imports = [
        "from payments_integration.handlers import on_status",
        "from payments_integration.models import Payment, Refund",
    ]
    if model is None or not (is_priced or issubclass(model, Payable)):
        name = model.__name__ if model is not None else "Order"
        body = f"""\
            # Mark your order here. If {name} inherits from Payable, this finds it, and it knows whether it is paid:
            # order = {name}.objects.select_for_update().of(obj)
            logger.info("%s is %s", obj.pk, obj.status)
        """
        imports = ["import logging", "", *imports, "", "logger = logging.getLogger(__name__)"]
        return _HANDLERS.format(imports="\n".join(imports), body=indent(dedent(body).rstrip(), "    "))
    imports += ["", f"from {model.__module__} import {model.__name__}"]
    price = "*order.payments_price()" if is_priced else _arguments_of_is_paid(model)  # type: ignore[arg-type]
    if "to_minor" in price:
        imports.insert(2, "from payments_integration.money import to_minor")
    lines = [
        f"order = {model.__name__}.objects.select_for_update().of(obj)",
        "if order is None:",
        "    return  # a deposit, or another system's payment",
    ]
    if not price:
        lines.append(
            "...  # Ask order.is_paid(minor units, currency). Mark the order as paid, or as not paid any more."
        )
    elif field(model, "paid_at") is not None:
        imports.insert(0, "from django.utils import timezone")
        lines += [
            f"is_paid = order.is_paid({price})",
            "if is_paid != (order.paid_at is not None):",
            "    order.paid_at = timezone.now() if is_paid else None",
            '    order.save(update_fields=["paid_at"])',
        ]
    else:
        lines += [
            f"if order.is_paid({price}):",
            "    ...  # Mark the order as paid here.",
            "else:",
            "    ...  # Mark it as not paid: no money came yet, or all of it was refunded or charged back.",
        ]
    return _HANDLERS.format(imports="\n".join(imports), body=indent("\n".join(lines), "    "))


def _arguments_of_is_paid(model: type[Payable]) -> str:
    """Return the arguments for ``is_paid``; empty if the model does not say what it costs."""
    if model._knows_price():
        return "*order.payments_price()"
    currency = "order.currency" if field(model, "currency") is not None else "obj.currency"
    amount = field(model, "amount")
    if isinstance(amount, models.IntegerField):
        return f"order.amount, {currency}"
    if isinstance(amount, models.DecimalField):
        return f"to_minor(order.amount, {currency}), {currency}"
    return ""
