"""Orders that do not match their payments: which are found, and at what cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, models
from django.db.models import Q
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils import timezone

from example_project.shop.models import Order as ShopOrder
from payments_integration.contrib.backoffice import comparison
from payments_integration.models import Payment
from payments_integration.payable import Payable, models as payable_models, queries
from tests.factories import rows
from tests.unit.payable.payables import Customer, Invoice, Order, Sale

pytestmark = pytest.mark.django_db

SINCE = timezone.now() - timedelta(days=30)


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the models of these tests are compared."""
    monkeypatch.setattr(ShopOrder, "payments_paid", None)
    monkeypatch.setattr(Order, "payments_paid", Q(paid_at__isnull=False))


def paid(reference: str | None = "A-1", status: str = "succeeded", **fields: Any) -> Payment:
    at = timezone.now() - timedelta(hours=1)
    values = {"amount": 10_000, "amount_received": 10_000, "currency": "CLP", "created_at": at, **fields}
    return rows.payment(status=status, merchant_reference=reference, **values)


def unpaid(account: str = "default") -> list[tuple[str, str]]:
    """(payment, reference of its order)"""
    payments = comparison.newest_paid(account, SINCE)
    orders = comparison.orders_of(account, comparison.compared_models(account), payments)
    found = comparison.paid_for_and_unpaid(account, payments, orders)
    return [(payment.pk, row.reference) for payment, row in found]


def lost(account: str = "default") -> list[str]:
    """Payments whose order is gone."""
    payments = comparison.newest_paid(account, SINCE)
    orders = comparison.orders_of(account, comparison.models_of(account), payments)
    found = comparison.paid_without_order(payments, orders)
    return [payment.pk for payment in found]


def bought(order: Any, **fields: Any) -> Payment:
    """A paid payment that an attempt of the order began."""
    key = order.attempt_key()
    payment = paid(getattr(order, order.merchant_reference_field), **fields)
    rows.operation(
        state="done",
        operation="create_payment",
        result_id=payment.pk,
        account=payment.account,
        merchant_reference=payment.merchant_reference,
        idempotency_key=key,
    )
    return payment


def without(model: Any = Order, account: str = "default") -> list[str]:
    return [row.reference for row in comparison.paid_without_payment(model, account, SINCE)]


# Payments whose order is not paid


def test_a_payment_whose_order_is_not_paid_is_found() -> None:
    Order.objects.create(number="A-1")
    Order.objects.create(number="A-2", paid_at=timezone.now())
    mine = paid("A-1")
    paid("A-2")
    paid("A-3")  # of no order
    paid(None)
    assert unpaid() == [(mine.pk, "A-1")]


@pytest.mark.parametrize("status", ["chargeback", "partially_paid", "on_hold", "failed", "created"])
def test_only_money_that_came_in_full_and_stays_counts(status: str) -> None:
    Order.objects.create(number="A-1")
    paid(status=status)
    assert unpaid() == []


@pytest.mark.parametrize(
    ("refund", "found"),
    [
        ({"amount": 10_000, "status": "succeeded"}, False),
        ({"amount": 10_000, "status": "processing"}, False),
        ({"amount": 9_999, "status": "succeeded"}, True),
        ({"amount": 10_000, "status": "failed"}, True),
    ],
)
def test_a_payment_that_is_refunded_in_full_is_over(refund: dict[str, Any], found: bool) -> None:
    Order.objects.create(number="A-1")
    rows.refund(payment=paid(), currency="CLP", **refund)
    assert bool(unpaid()) is found


def test_a_refund_that_only_the_payment_knows_counts() -> None:
    Order.objects.create(number="A-1")
    paid(refunded_amount=10_000)
    assert unpaid() == []


def test_a_handler_has_some_time_first() -> None:
    Order.objects.create(number="A-1")
    paid(succeeded_at=timezone.now() - comparison.GRACE + timedelta(minutes=1))
    assert unpaid() == []


def test_those_that_have_time_hide_no_other_on_a_busy_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LIMIT", 2)
    Order.objects.create(number="A-1")
    mine = paid("A-1")
    for _ in range(2):
        paid("A-2", created_at=timezone.now())
    assert unpaid() == [(mine.pk, "A-1")]


def test_old_payments_are_left_out() -> None:
    Order.objects.create(number="A-1")
    paid(created_at=SINCE - timedelta(seconds=1))
    assert unpaid() == []


@pytest.mark.parametrize("number", ["a-1", "A-1 "])
def test_references_are_compared_byte_for_byte(number: str) -> None:
    Order.objects.create(number=number)
    paid("A-1")
    assert unpaid() == []


def test_numbers_and_uuids_match_their_plain_form_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "payments_paid", None)
    monkeypatch.setattr(Invoice, "payments_paid", Q(brand="paid"))
    monkeypatch.setattr(Customer, "payments_paid", Q(pk__lt=0))
    invoice, customer = Invoice.objects.create(brand="default"), Customer.objects.create()
    number, code = str(invoice.pk), str(customer.code)
    for reference in (f"0{number}", code.replace("-", ""), code.upper(), "9" * 30, "-1", "x", f"{number}.0"):
        paid(reference)
    assert unpaid() == []
    expected = {(paid(number).pk, number), (paid(code).pk, code)}
    assert set(unpaid()) == expected


def test_the_account_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Invoice, "payments_paid", Q(pk__lt=0))
    Order.objects.create(number="A-1")
    paid("A-1", account="second")
    assert unpaid("default") == unpaid("second") == []
    number = str(Invoice.objects.create(brand="second").pk)
    paid(number, account="default")
    other = paid(number, account="second")
    assert (unpaid("default"), unpaid("second")) == ([], [(other.pk, number)])
    # The model's rows are of any account.
    monkeypatch.setattr(Order, "payments_account", None)
    assert {reference for _, reference in unpaid("second")} == {number, "A-1"}


@pytest.mark.parametrize(("model", "field"), [(Invoice, "id"), (Customer, "code")])
def test_an_account_may_be_a_number_or_a_uuid(monkeypatch: pytest.MonkeyPatch, model: Any, field: str) -> None:
    monkeypatch.setattr(model, "payments_paid", Q(pk__lt=0))
    monkeypatch.setattr(model, "payments_account_field", field)
    name = str(getattr(model.objects.create(), field))
    payment = paid(name, account=name)
    paid(name)
    assert (unpaid(), unpaid(name)) == ([], [(payment.pk, name)])


def test_deposits_count_only_if_the_model_includes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    Order.objects.create(number="A-1")
    paid("A-1", flow="deposit_reference")
    assert unpaid() == []
    monkeypatch.setattr(Order, "payments_include_deposits", True)
    assert len(unpaid()) == 1


# Payments whose order is gone


@pytest.mark.parametrize("marks_paid", [True, False])
def test_a_paid_payment_is_found_when_its_order_is_deleted(monkeypatch: pytest.MonkeyPatch, marks_paid: bool) -> None:
    if not marks_paid:
        monkeypatch.setattr(Order, "payments_paid", None)
    first, other = (Order.objects.create(number=f"A-{number}") for number in (1, 2))
    payment = bought(first)
    bought(other)
    assert lost() == []
    first.delete()
    assert lost() == [payment.pk]
    rows.refund(payment=payment, currency="CLP", amount=10_000, status="succeeded")
    assert lost() == []


def test_an_order_that_the_manager_hides_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Visible(models.Manager[Order]):
        def get_queryset(self) -> models.QuerySet[Order]:
            return super().get_queryset().exclude(number="A-1")

    payment = bought(Order.objects.create(number="A-1"))
    visible = Visible()
    visible.model = Order
    monkeypatch.setattr(Order._meta, "default_manager", visible)
    assert lost() == [payment.pk]


@pytest.mark.parametrize("key", ["order-A-1", "gift-A-1-1", "order-default-A-11-1", "order-default-A-1-x"])
def test_payments_with_keys_of_their_own_need_no_order(key: str) -> None:
    payment = paid("A-1")
    rows.operation(
        state="done",
        operation="create_payment",
        result_id=payment.pk,
        merchant_reference="A-1",
        idempotency_key=key,
    )
    paid("A-2")  # without an operation
    assert lost() == []


@isolate_apps("tests.factories.receivers")
def test_a_row_of_another_package_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Purchase(Payable, User):
        merchant_reference_field = "username"

        class Meta:
            app_label = "receivers"
            proxy = True

    monkeypatch.setattr(apps, "get_models", lambda: [Order, Purchase])
    purchase = Purchase.objects.create(username="A-1")
    payment = bought(purchase)
    assert lost() == []
    purchase.delete()
    assert lost() == [payment.pk]


def test_a_row_of_another_model_may_have_the_reference() -> None:
    order = Order.objects.create(number=str(Invoice.objects.create(brand="default").pk))
    bought(order)
    order.delete()
    assert lost() == []
    Invoice.objects.all().delete()
    assert len(lost()) == 1


# Paid orders without a payment


def test_a_paid_order_whose_money_never_came_is_found() -> None:
    for number in ("A-1", "A-2", "A-3", "A-4", "A-5", "A-6"):
        Order.objects.create(number=number, paid_at=timezone.now())
    Order.objects.create(number="A-7")
    Order.objects.create(number=None, paid_at=timezone.now())
    paid("A-1")
    paid("A-2", "failed", amount_received=0)
    paid("A-3", account="second")
    # Normal business: refunded by hand, charged back, under review.
    rows.refund(payment=paid("A-4"), currency="CLP", amount=10_000, status="succeeded")
    paid("A-5", "chargeback")
    paid("A-6", "on_hold")
    assert without() == ["A-3", "A-2"]


def test_what_costs_nothing_needs_no_money(monkeypatch: pytest.MonkeyPatch) -> None:
    """The to-do list would say: do not deliver."""
    monkeypatch.setattr(Sale, "payments_paid", Q(pk__isnull=False))
    for number, amount in (("A-1", 5), ("A-2", 0), ("A-3", None)):
        Sale.objects.create(number=number, amount=amount, currency="CLP")
    assert without(Sale) == ["A-3", "A-1"]


def test_only_the_newest_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LIMIT", 2)
    for number in ("A-1", "A-2", "A-3"):
        Order.objects.create(number=number, paid_at=timezone.now())
    assert without() == ["A-3", "A-2"]
    Order.objects.create(number="A-4")
    assert without() == ["A-3"]


def test_rows_with_a_time_are_compared_as_long_as_payments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order._meta, "get_latest_by", "paid_at")
    now = timezone.now()
    for number, days in (("A-1", 1), ("A-2", 31), ("A-3", 2)):
        Order.objects.create(number=number, paid_at=now - timedelta(days=days))
    assert without() == ["A-1", "A-3"]
    monkeypatch.setattr(Order._meta, "get_latest_by", ["-paid_at", "pk"])
    assert without() == ["A-3", "A-1"]


def test_an_account_may_be_any(monkeypatch: pytest.MonkeyPatch) -> None:
    Order.objects.create(number="A-1", paid_at=timezone.now())
    paid("A-1", account="second")
    assert without() == ["A-1"]
    monkeypatch.setattr(Order, "payments_account", None)
    assert without() == []


# Cost


def test_a_model_without_the_option_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "payments_paid", None)
    with CaptureQueriesContext(connection) as asked:
        assert comparison.compared_models("default") == []
        assert comparison.paid_for_and_unpaid("default", [], []) == []
    assert len(asked) == 0


def test_many_rows_take_few_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LIMIT", 4)
    monkeypatch.setattr(queries, "CHUNK", 2)
    for number in range(9):
        Order.objects.create(number=f"A-{number}")
        paid(f"A-{number}")
        Order.objects.create(number=f"B-{number}", paid_at=timezone.now())
    with CaptureQueriesContext(connection) as asked:
        found = unpaid()
        others = comparison.paid_without_payment(Order, "default", SINCE)
    assert (len(found), len(others)) == (4, 2)
    # The payments, their orders and refunds in two parts each; the newest orders, their payments.
    assert len(asked) <= 1 + 2 + 2 + 1 + 1


# The option


@pytest.mark.parametrize(
    "condition",
    [Q(payed_at__isnull=False), Q(paid_at__isnul=False), Q(paid_at="soon"), Q(pk__in=5), {"paid_at": None}, "paid"],
)
def test_a_wrong_condition_is_a_check_error(monkeypatch: pytest.MonkeyPatch, condition: Any) -> None:
    assert Order.check(databases=["default"]) == []
    monkeypatch.setattr(Order, "payments_paid", condition)
    assert [message.id for message in Order.check(databases=["default"])] == ["payments_integration.E020"]


@isolate_apps("tests.factories.receivers")
def test_the_rows_of_a_child_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parent(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        payments_paid = Q(number="1")

        class Meta:
            app_label = "receivers"

    class Child(Parent):
        class Meta:
            app_label = "receivers"

    class Proxy(Parent):
        class Meta:
            app_label = "receivers"
            proxy = True

    class Ours(Payable, User):
        """Of a table of an installed package."""

        merchant_reference_field = "username"
        payments_paid = Q(username="1")

        class Meta:
            app_label = "receivers"
            proxy = True

    class Late(Ours):
        class Meta:
            app_label = "receivers"
            proxy = True

    monkeypatch.setattr(payable_models, "apps", Parent._meta.apps)
    assert comparison.compared_models("default") == [Parent, Ours]
    assert comparison.compared_models("second") == []
