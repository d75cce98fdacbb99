"""The status that an order's payments give it."""

from __future__ import annotations

from typing import Any

import pytest

from payments_integration.models import Payment
from payments_integration.payable import OrderStatus, decide_status
from tests.factories import rows
from tests.unit.payable.payables import Sale

pytestmark = pytest.mark.django_db

KEY = "order-default-S-1-1"


@pytest.fixture
def sale() -> Sale:
    sale = Sale.objects.create(number="S-1", amount=10_000, currency="MXN")
    rows.operation(operation="create_payment", idempotency_key=KEY, merchant_reference="S-1", state="done")
    return sale


def payment(**fields: Any) -> Payment:
    received = 10_000 if fields.get("status", "succeeded") in ("succeeded", "chargeback") else 0
    values = {"status": "succeeded", "amount": 10_000, "amount_received": received, "currency": "MXN"}
    return rows.payment(**{**values, "merchant_reference": "S-1", **fields})


def refund(of: Payment, amount: int, status: str = "succeeded") -> None:
    rows.refund(payment_id=of.pk, amount=amount, currency=of.currency, status=status)


class TestMoneyInAnotherCurrency:
    def test_it_does_not_matter_once_it_was_given_back(self, sale: Sale) -> None:
        foreign = payment(currency="CLP")
        payment()
        for status in ("processing", "failed"):
            refund(foreign, 10_000, status)
            assert decide_status(sale, KEY) == (OrderStatus.REVIEW, "money came in CLP, not in MXN")
        refund(foreign, 10_000)
        assert decide_status(sale, KEY) == (OrderStatus.PAID, "")

    @pytest.mark.parametrize("status", [OrderStatus.REFUNDED, OrderStatus.CHARGEBACK])
    def test_without_other_money_the_order_says_where_it_went(self, sale: Sale, status: str) -> None:
        foreign = payment(currency="CLP", status=status if status == "chargeback" else "succeeded")
        if status == OrderStatus.REFUNDED:
            refund(foreign, 10_000)
        assert decide_status(sale, KEY) == (status, "")
        again = payment(status="requires_action")
        assert decide_status(sale, KEY) == (OrderStatus.NEW, "")
        Payment.objects.filter(pk=again.pk).update(status="expired")
        assert decide_status(sale, KEY) == (OrderStatus.EXPIRED, "")
