"""What a payer does in the shop, in a few words."""

from __future__ import annotations

import re

from django.test import Client, override_settings

from example_project.shop.models import Order
from payments_integration.models import Operation, Payment
from payments_integration.payable import attempts
from payments_integration.testing import ProviderSandbox

#: An account to give money back to.
DESTINATION = {
    "type": "bank_account", "account_number": "123456789", "holder_name": "Ana Díaz",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}  # fmt: skip
PAGE = "/buy/mug/?market=CL-CLP"


def filled_in(browser: Client, page: str = PAGE, **fields: str) -> dict[str, str]:
    html = browser.get(page).content.decode()
    submission = re.search(r'name="submission" value="([0-9a-f]{32})"', html)
    assert submission is not None
    return {
        "submission": submission[1],
        "market": page.rpartition("=")[2],
        "name": "Ana Díaz",
        "email": "ana@example.com",
        "quantity": "2",
        "method_code": "cl_webpay_card",
        **fields,
    }


def bought(browser: Client, page: str = PAGE, *, flow: str = "hosted", **fields: str) -> Order:
    """``flow``: the shop's setting."""
    data = filled_in(browser, page, **fields)
    with override_settings(SHOP_FLOW=flow):
        assert browser.post(page, data).status_code == 302
    return Order.objects.get(submission=data["submission"])


def seen(browser: Client, order: Order) -> str:
    """The order's page."""
    return browser.get(order.get_absolute_url()).content.decode()


def status(order: Order) -> str:
    order.refresh_from_db()
    return order.status


def form(order: Order, number: int) -> str:
    """What the form of an attempt, counted from 1, has in its hidden field."""
    return attempts.sign(f"order-default-{order.reference}-{number}")


def pay_again(browser: Client, order: Order, **fields: str) -> str:
    """Another attempt by the form; returns where it leads."""
    page = f"{order.get_absolute_url()}pay/"
    attempt = re.search(r'name="attempt" value="([^"]+)"', browser.get(page).content.decode())
    assert attempt is not None
    answer = browser.post(page, {"attempt": attempt[1], "method_code": "cl_khipu", **fields})
    assert answer.status_code == 302
    return str(answer["Location"])


def way_back(order: Order) -> str:
    """The path of the address that the provider sends the payer back to."""
    operation = Operation.objects.get(idempotency_key=order.key)
    return str(operation.arguments["return_url"]).removeprefix("http://localhost")


def expired(shop: ProviderSandbox, browser: Client, **fields: str) -> tuple[Order, Payment]:
    """An order whose first attempt ran out."""
    order = bought(browser, **fields)
    payment = Payment.objects.get(merchant_reference=order.reference)
    shop.engine.expire(payment.pk)
    shop.settle()
    return order, payment
