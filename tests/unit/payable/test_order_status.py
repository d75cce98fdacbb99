"""The status that an order's payments give it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.backends.cache import SessionStore
from django.test import RequestFactory

from payments_integration.checkout import order_page
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


class TestAPartAfterARefund:
    @pytest.fixture
    def refunded(self, sale: Sale) -> Payment:
        first = payment()
        refund(first, 10_000)
        return first

    def test_the_payer_is_asked_for_the_rest(self, sale: Sale, refunded: Payment) -> None:
        part = payment(status="partially_paid", amount_received=4_000)
        status, note = decide_status(sale, KEY)
        assert (status, note) == (OrderStatus.PARTIALLY_PAID, "")
        request = RequestFactory().get("/")
        request.session = SessionStore()
        assert order_page(request, sale, status, KEY).asked == part

    @pytest.mark.parametrize("refund_status", ["processing", "succeeded"])
    def test_not_if_the_part_is_refunded_too(self, sale: Sale, refunded: Payment, refund_status: str) -> None:
        refund(payment(status="partially_paid", amount_received=4_000), 1_000, refund_status)
        assert decide_status(sale, KEY) == (OrderStatus.PARTIALLY_REFUNDED, "")

    def test_nor_without_an_open_attempt(self, sale: Sale, refunded: Payment) -> None:
        payment(amount=4_000, amount_received=4_000)
        assert decide_status(sale, KEY) == (OrderStatus.PARTIALLY_REFUNDED, "")

    def test_a_new_attempt_without_money_leaves_the_order_refunded(self, sale: Sale, refunded: Payment) -> None:
        payment(status="requires_action")
        assert decide_status(sale, KEY) == (OrderStatus.REFUNDED, "")

    def test_a_part_that_is_being_refunded_is_reviewed(self, sale: Sale) -> None:
        refund(payment(status="partially_paid", amount_received=4_000), 1_000, "processing")
        assert decide_status(sale, KEY) == (OrderStatus.REVIEW, "what came is being refunded")
