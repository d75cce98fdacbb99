"""Orders and their payments: whose a payment is, and what the payments of an order come to."""

from __future__ import annotations

import pickle
import re
import sys
import uuid
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, models
from django.db.models.functions import Concat
from django.template import Context, Template
from django.test import override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils import timezone
from hypothesis import given, strategies as st
from pytest_django import DjangoAssertNumQueries

from payments_integration import handlers, inbox, services
from payments_integration.enums import (
    ENDED_PAYMENT_STATUSES,
    OPEN_PAYMENT_STATUSES,
    RECEIVED_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    PaymentStatus,
    RefundStatus,
)
from payments_integration.models import Payment, Refund
from payments_integration.money import format_money, to_minor
from payments_integration.payable import Payable, PayableManager, Totals, queries
from payments_integration.payable.totals import compute_totals
from payments_integration.services.refunds import refundable_rest
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.payable.payables import Customer, Invoice, Order

KNOWN = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
DOCS = Path(__file__).resolve().parents[3] / "docs" / "orders.md"


@pytest.fixture
def order(db: None) -> Order:
    return Order.objects.create(number="A-1")


def paid(status: str = "succeeded", received: int = 10_000, **fields: Any) -> Payment:
    values = {"amount": 10_000, "currency": "CLP", "merchant_reference": "A-1", **fields}
    return rows.payment(status=status, amount_received=received, **values)


def refunded(payment: Payment, amount: int, status: str = "succeeded", **fields: Any) -> Refund:
    return rows.refund(payment=payment, amount=amount, status=status, **{"currency": payment.currency, **fields})


def totals(order: Order) -> dict[str, int]:
    """Of its pesos, what is not 0."""
    found = order.totals_in("CLP")
    figures = {name: getattr(found, name) for name in (*Totals.__dataclass_fields__, "kept") if name != "currency"}
    return {name: value for name, value in figures.items() if value}


# Whose a payment is


def test_an_order_has_every_attempt_newest_first_and_their_refunds(order: Order) -> None:
    first, second = paid("failed", 0), paid()
    paid(merchant_reference="A-2")
    older, newer = refunded(second, 100), refunded(second, 200, "failed")
    assert list(order.payments) == [second, first]
    assert list(order.refunds) == [newer, older]
    assert list(order.payments.filter(status="failed")) == [first]


@pytest.mark.parametrize("number", [None, ""])
@pytest.mark.django_db
def test_an_order_without_a_reference_has_no_payments(number: str | None) -> None:
    order = Order.objects.create(number=number)
    for reference in (None, "", "None"):
        payment = paid(merchant_reference=reference)
        refunded(payment, 100)
        assert Order.objects.of(payment) is None
    assert not order.payments.exists()
    assert not order.refunds.exists()
    assert order.totals() == {}
    assert Order.objects.with_totals().get().totals() == {}
    assert not Order().payments.exists()


@pytest.mark.parametrize("other", ["a-1", "A-1 ", "Á-1", "A-10", "A"])
def test_references_that_differ_in_case_are_different_orders(order: Order, other: str) -> None:
    payment = paid(merchant_reference=other)
    refunded(payment, 100)
    assert not order.payments.exists()
    assert not order.refunds.exists()
    assert order.totals() == {}
    assert Order.objects.with_totals().get().totals() == {}
    assert Order.objects.of(payment) is None


def test_payments_of_another_account_do_not_count(order: Order) -> None:
    payment = paid(account="second")
    assert not order.payments.exists()
    assert order.totals() == {}
    assert Order.objects.with_totals().get().totals() == {}
    assert Order.objects.of(payment) is None


@pytest.mark.django_db
def test_a_row_can_name_its_account() -> None:
    one, two, unnamed = (Invoice.objects.create(brand=brand) for brand in ("default", "second", ""))
    for invoice in (one, two, unnamed):
        for account in ("default", "second"):
            paid(account=account, merchant_reference=str(invoice.pk))
    for invoice in (one, two):
        payment = invoice.payments.get()
        assert payment.account == invoice.brand
        assert Invoice.objects.of(payment) == invoice
    assert [invoice.totals_in("CLP").paid for invoice in Invoice.objects.with_totals().order_by("pk")] == [
        10_000,
        10_000,
        0,
    ]
    assert not unnamed.payments.exists()
    assert Invoice.objects.of(paid(account="other", merchant_reference=str(one.pk))) is None


class Brand(str, Enum):  # noqa: UP042  (as projects have it)
    SECOND = "second"


@pytest.mark.parametrize(("given", "alias"), [(7, "7"), (Brand.SECOND, "second")])
def test_an_account_is_the_text_that_the_database_holds(given: Any, alias: str) -> None:
    new = Invoice(pk=1, brand=given)
    assert new._is_of(Payment(account=alias, merchant_reference="1"))
    assert new._key() == (alias, "1")
    assert type(new._key()[0]) is str


@pytest.mark.parametrize("fields", [{"flow": "deposit_reference"}, {"method_family": "deposit_reference"}])
def test_a_deposit_does_not_count_for_an_order(order: Order, fields: dict[str, str]) -> None:
    deposit = paid(**fields)
    assert not order.payments.exists()
    assert order.totals() == {}
    assert Order.objects.with_totals().get().totals() == {}
    assert Order.objects.of(deposit) is None


@pytest.mark.django_db
def test_deposits_count_if_the_model_includes_them() -> None:
    customer = Customer.objects.create()
    deposit = paid(account="second", flow="deposit_reference", merchant_reference=str(customer.code))
    assert list(customer.payments) == [deposit]
    assert Customer.objects.of(deposit) == customer
    assert Customer.objects.with_totals().get().is_paid(10_000, "CLP")


def test_a_payment_leads_to_its_order(order: Order, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    payment = paid()
    refund = refunded(payment, 100)
    with django_assert_num_queries(1):
        assert Order.objects.of(payment) == order
    with django_assert_num_queries(2):
        assert Order.objects.of(refund) == order
    assert Order.objects.filter(amount=1).of(payment) is None
    assert Order.objects.select_for_update().of(payment) == order


def test_a_payment_of_no_order_leads_to_none(order: Order) -> None:
    assert Order.objects.of(None) is None
    assert Order.objects.of(paid(merchant_reference="op_0123456789abcdef0123456789abcdef")) is None
    assert Order.objects.of(rows.refund(payment_id="pay_not_here_yet")) is None
    assert Order.objects.of(rows.refund(payment=None)) is None


@pytest.mark.parametrize("reference", ["{}x", "0{}", " {}", "+{}", "op_{}", "9" * 30, "{}.0", "x"])
@pytest.mark.django_db
def test_a_number_matches_only_its_plain_form(reference: str) -> None:
    invoice = Invoice.objects.create(brand="default")
    assert Invoice.objects.of(paid(merchant_reference=str(invoice.pk))) == invoice
    assert Invoice.objects.of(paid(merchant_reference=reference.format(invoice.pk))) is None


@pytest.mark.django_db
def test_a_uuid_matches_only_its_plain_form() -> None:
    customer = Customer.objects.create()
    assert Customer.objects.of(paid(merchant_reference=str(customer.code))) == customer
    assert Customer.objects.of(paid(merchant_reference=customer.code.hex)) is None
    assert Customer.objects.of(paid(merchant_reference=str(uuid.uuid4()))) is None


@pytest.mark.django_db
@pytest.mark.promise(5)
@pytest.mark.parametrize("written", [KNOWN.hex, str(KNOWN).upper()])
def test_a_new_row_has_the_reference_that_it_has_when_it_is_read_again(written: str) -> None:
    new: Any = Customer.objects.create(code=written)
    key = new.attempt_key()
    assert (key, key.merchant_reference) == (Customer.objects.get().attempt_key(), str(KNOWN))
    paid(merchant_reference=str(KNOWN))
    assert new.is_paid(10_000, "CLP")


@pytest.mark.django_db
@pytest.mark.promise(5)
def test_a_new_row_whose_reference_sql_computes_has_none_until_it_is_read_again(order: Order) -> None:
    """The text of an expression is the same for every row, and so would be the payment."""
    order.number = Concat(models.Value("A-"), "id", output_field=models.CharField())  # type: ignore[assignment]
    assert (order._key(), list(order.payments)) == (("default", ""), [])
    with pytest.raises(ValueError, match="needs an order with an account and a merchant_reference"):
        order.attempt_key()
    order.save()
    order.refresh_from_db()
    assert order.attempt_key() == f"order-default-A-{order.pk}-1"


@isolate_apps("tests.factories.receivers")
def test_a_number_that_no_column_holds_finds_no_row_of_a_relation() -> None:
    """Another system's payments may have such references. A database would refuse the number."""

    class ByColumn(Payable):
        cart = models.OneToOneField(User, models.CASCADE, related_name="+")
        merchant_reference_field = "cart_id"

        class Meta:
            app_label = "receivers"

    assert ByColumn.objects.of(Payment(account="default", merchant_reference="9" * 30)) is None
    assert list(queries.conditions(ByColumn, ["9" * 30])) == []


@isolate_apps("tests.factories.receivers")
@pytest.mark.parametrize("reference", ["A-1", "9" * 30])
def test_a_text_that_is_no_number_finds_no_row_of_a_generated_one(reference: str) -> None:
    class ByNumber(Payable):
        number = models.GeneratedField(
            expression=models.F("id") + 1000, output_field=models.IntegerField(), db_persist=False
        )
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    assert ByNumber.objects.of(Payment(account="default", merchant_reference=reference)) is None


@isolate_apps("tests.factories.receivers")
def test_a_new_row_has_no_reference_and_price_until_the_database_makes_them() -> None:
    """The admin's form for a new row may show the columns of its payments."""

    class ByDatabase(Payable):
        code = models.UUIDField(unique=True, db_default=models.Value(KNOWN))
        total = models.IntegerField(db_default=models.Value(0))
        merchant_reference_field = "code"
        currency = models.CharField(max_length=3, db_default=models.Value("CLP"))
        payments_amount_field = "total"
        payments_currency_field = "currency"

        class Meta:
            app_label = "receivers"

    new, saved = ByDatabase(), ByDatabase(code=KNOWN, total=5, currency="CLP")
    assert (new._key(), new.payments_price()) == (("default", ""), None)
    assert ByDatabase(total=5).payments_price() is ByDatabase(currency="CLP").payments_price() is None
    assert (saved._key(), saved.payments_price()) == (("default", str(KNOWN)), (5, "CLP"))


@isolate_apps("tests.factories.receivers")
@pytest.mark.django_db(transaction=True)
def test_the_price_of_a_generated_field_is_that_of_the_saved_row() -> None:
    class ByProduct(Payable):
        number = models.CharField(max_length=9, unique=True)
        units = models.IntegerField()
        total = models.GeneratedField(
            expression=models.F("units") * 1000, output_field=models.BigIntegerField(), db_persist=True
        )
        merchant_reference_field = "number"
        payments_amount_field = "total"
        payments_currency = "CLP"

        class Meta:
            app_label = "receivers"

    with connection.schema_editor() as editor:
        editor.create_model(ByProduct)
    try:
        ByProduct.objects.create(number="A-1", units=1)
        order = ByProduct.objects.get()
        order.units = 5
        order.save()
        assert order.payments_price() == (5000, "CLP")
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(ByProduct)


def test_a_model_without_a_reference_field_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "merchant_reference_field", "")
    with pytest.raises(ImproperlyConfigured, match="Name a field of Order, such as merchant_reference_field"):
        Order().attempt_key()


def test_a_payment_with_two_matching_rows_is_an_error(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose reference is not unique is warned about; what comes of it is an error, not the first row."""
    Order.objects.create(number="A-2", currency="A-1")
    Order.objects.create(number="A-3", currency="A-1")
    monkeypatch.setattr(Order, "merchant_reference_field", "currency")
    with pytest.raises(Order.MultipleObjectsReturned):
        Order.objects.of(paid())


# What an order's payments come to


def test_totals_without_payments_are_zero(order: Order) -> None:
    assert order.totals() == {}
    assert totals(order) == {}
    assert not order.is_paid(1, "CLP")
    assert order.is_paid(0, "CLP")


@pytest.mark.parametrize("status", ["failed", "expired", "canceled"])
def test_a_failed_attempt_counts_for_nothing(order: Order, status: str) -> None:
    paid(status, 0)
    assert totals(order) == {}


def test_the_attempt_that_was_paid_counts(order: Order) -> None:
    for status in ("failed", "expired", "canceled"):
        paid(status, 0)
    paid()
    expected = {"asked", "received", "kept", "paid", "refundable"}
    assert totals(order) == dict.fromkeys(expected, 10_000)
    assert order.is_paid(10_000, "CLP")
    assert not order.is_paid(10_001, "CLP")


@pytest.mark.case(131)
@pytest.mark.parametrize("amount", [Decimal("119.90"), Decimal(2), 2.0, True, "200", None], ids=str)
@pytest.mark.parametrize("question", ["is_paid", "missing", "overpaid"])
def test_an_amount_that_is_not_in_minor_units_is_refused(order: Order, question: str, amount: Any) -> None:
    """Two dollars would pay for an order of 119.90."""
    paid(amount=200, received=200, currency="USD")
    with pytest.raises(TypeError, match=r"pass \d+ for USD \S+: money\.to_minor\(Decimal"):
        getattr(order.totals_in("USD"), question)(amount)
    with pytest.raises(TypeError, match="to_minor"):
        order.is_paid(amount, "USD")
    assert not order.is_paid(to_minor(Decimal("119.90"), "USD"), "USD")


@pytest.mark.case(131)
@pytest.mark.parametrize("currency", ["usd", "Usd", "USDT", "", None], ids=str)
def test_a_currency_that_is_none_of_the_spec_is_refused(order: Order, currency: Any) -> None:
    paid(amount=200, received=200, currency="USD")
    for ask in (lambda: order.is_paid(200, currency), lambda: order.totals_in(currency)):
        with pytest.raises(ValueError, match="a currency is one of CLP, COP, PEN, MXN, BRL, USD, not"):
            ask()
    assert order.is_paid(200, "USD")
    assert not order.is_paid(200, "CLP")


def test_a_currency_that_the_provider_added_has_totals(order: Order) -> None:
    paid(amount=200, received=200, currency="EUR")
    assert order.is_paid(200, "EUR")


def test_an_expired_attempt_that_was_paid_late_counts(order: Order) -> None:
    late = paid("expired", 0)
    assert not order.is_paid(10_000, "CLP")
    Payment.objects.filter(pk=late.pk).update(status="succeeded", amount_received=10_000)
    assert order.is_paid(10_000, "CLP")


@pytest.mark.parametrize("status", ["created", "requires_action", "processing", "authorized"])
def test_an_open_attempt_is_in_progress_and_not_paid(order: Order, status: str) -> None:
    """One of a status that this version does not know as well: it may still be paid."""
    paid(status, 0)
    assert totals(order) == {"asked": 10_000, "in_progress": 10_000}
    assert order.totals_in("CLP").missing(10_000) == 10_000


def test_a_gone_payment_is_not_in_progress(order: Order) -> None:
    paid("created", 0, gone_at=timezone.now())
    paid(gone_at=timezone.now())
    assert order.totals_in("CLP").in_progress == 0
    assert order.is_paid(10_000, "CLP")


def test_a_partial_payment_counts_its_received_amount(order: Order) -> None:
    paid("partially_paid", 4_000)
    assert totals(order) == {
        "asked": 10_000,
        "received": 4_000,
        "kept": 4_000,
        "paid": 4_000,
        "refundable": 4_000,
        "in_progress": 6_000,
    }
    assert order.totals_in("CLP").missing(10_000) == 6_000
    paid(received=6_000, amount=6_000)
    assert order.totals_in("CLP").missing(10_000) == 0


def test_an_overpaid_amount_can_be_refunded_once(order: Order) -> None:
    payment = paid("overpaid", 15_000)
    assert order.totals_in("CLP").overpaid(10_000) == 5_000
    assert order.totals_in("CLP").missing(10_000) == 0
    refund = refunded(payment, 5_000, "processing")
    assert order.totals_in("CLP").overpaid(10_000) == 0
    assert order.totals_in("CLP").kept == 15_000
    Refund.objects.filter(pk=refund.pk).update(status="succeeded")
    assert order.totals_in("CLP").overpaid(10_000) == 0
    assert order.totals_in("CLP").kept == 10_000
    assert order.is_paid(10_000, "CLP")


def test_an_order_paid_twice_is_overpaid_until_one_payment_is_refunded(order: Order) -> None:
    paid()
    second = paid()
    assert order.totals_in("CLP").overpaid(10_000) == 10_000
    refunded(second, 10_000)
    assert order.totals_in("CLP").overpaid(10_000) == 0
    assert order.is_paid(10_000, "CLP")


def test_money_under_review_is_not_the_merchants(order: Order) -> None:
    paid("on_hold")
    assert totals(order) == {"asked": 10_000, "held": 10_000}
    assert not order.is_paid(1, "CLP")


@pytest.mark.parametrize("status", ["failed", "expired", "canceled", "processing", "disputed"])
def test_money_of_a_failed_attempt_is_held_and_does_not_pay(order: Order, status: str) -> None:
    paid(status, 3_000)
    found = totals(order)
    assert found["held"] == 3_000
    assert not {"received", "kept", "paid", "refundable"} & set(found)


def test_a_partial_refund_leaves_the_order_paid(order: Order) -> None:
    refunded(paid(), 2_000)
    assert totals(order) == {
        "asked": 10_000,
        "received": 10_000,
        "refunded": 2_000,
        "kept": 8_000,
        "paid": 10_000,
        "refundable": 8_000,
    }
    assert order.is_paid(10_000, "CLP")


@pytest.mark.parametrize("status", ["succeeded", "created", "processing", "queued"])
def test_a_full_refund_in_progress_makes_the_order_unpaid(order: Order, status: str) -> None:
    payment = paid()
    refunded(payment, 4_000)
    refunded(payment, 6_000, status)
    assert not order.is_paid(1, "CLP")
    assert order.totals_in("CLP").refundable == 0
    assert order.totals_in("CLP").kept == (0 if status == "succeeded" else 6_000)
    paid(received=6_000)
    assert order.totals_in("CLP").missing(10_000) == 4_000


@pytest.mark.parametrize("status", ["failed", "canceled", "returned"])
def test_a_failed_refund_counts_for_nothing(order: Order, status: str) -> None:
    refunded(paid(), 10_000, status)
    assert not {"refunded", "refunding"} & set(totals(order))
    assert order.is_paid(10_000, "CLP")


def test_the_larger_of_the_two_refunded_figures_counts(order: Order) -> None:
    ahead, behind, unsaid = paid(refunded_amount=3_000), paid(refunded_amount=0), paid(refunded_amount=None)
    refunded(ahead, 1_000)  # the others are not mirrored
    refunded(behind, 2_000)  # the payment is read again soon
    refunded(unsaid, 500)
    assert order.totals_in("CLP").refunded == 3_000 + 2_000 + 500


def test_a_refund_that_came_back_is_not_refunded_before_the_payment_is_read_again(order: Order) -> None:
    payment = paid(refunded_amount=10_000)
    back = refunded(payment, 9_000, "returned")
    assert order.totals_in("CLP").refunded == 10_000, "the payment's row is as new"
    Refund.objects.filter(pk=back.pk).update(state_at=rows.AT + timedelta(seconds=1))
    assert order.totals_in("CLP").refunded == 1_000
    assert order.is_paid(10_000, "CLP")


def test_a_chargeback_takes_the_amount_that_was_not_refunded(order: Order) -> None:
    charged = paid("chargeback")
    assert totals(order) == {"asked": 10_000, "received": 10_000, "charged_back": 10_000}
    refunded(charged, 2_000)
    assert totals(order) == {"asked": 10_000, "received": 10_000, "refunded": 2_000, "charged_back": 8_000}
    assert not order.is_paid(1, "CLP")
    paid()
    assert order.is_paid(10_000, "CLP")
    assert order.totals_in("CLP").overpaid(10_000) == 0


def test_a_refund_in_progress_of_a_chargeback_leaves_nothing_refundable(order: Order) -> None:
    refunded(paid("chargeback"), 2_000, "processing")
    assert order.totals_in("CLP").charged_back == 10_000
    assert order.totals_in("CLP").refundable == 0


def test_currencies_are_never_added(order: Order) -> None:
    paid("partially_paid", 4_000)
    paid("partially_paid", 600, amount=1_000, currency="USD")
    found = order.totals()
    assert list(found) == ["CLP", "USD"]
    assert (found["CLP"].paid, found["USD"].paid) == (4_000, 600)
    assert not order.is_paid(4_600, "CLP")
    assert order.totals_in("PEN") == Totals("PEN")


def test_a_refund_in_another_currency_counts_in_its_own_currency(order: Order) -> None:
    payment = paid()
    refunded(payment, 100, currency="USD")
    refunded(payment, 200, "processing", currency="USD")
    assert order.totals_in("CLP").refundable == 10_000
    assert (order.totals_in("USD").refunded, order.totals_in("USD").refunding) == (100, 200)


def test_erased_rows_count(order: Order) -> None:
    payment = paid(erased_at=timezone.now())
    refunded(payment, 1_000, erased_at=timezone.now())
    assert (order.totals_in("CLP").received, order.totals_in("CLP").refunded) == (10_000, 1_000)
    assert Order.objects.of(payment) == order


@pytest.mark.parametrize("amount", [-1, -(2**40)])
def test_an_amount_is_not_negative(amount: int) -> None:
    for ask in (Totals("CLP").is_paid, Totals("CLP").missing, Totals("CLP").overpaid):
        with pytest.raises(ValueError, match="negative"):
            ask(amount)


def test_every_status_of_the_spec_is_counted() -> None:
    came_or_not = RECEIVED_PAYMENT_STATUSES | VAIN_PAYMENT_STATUSES | {"chargeback"}
    assert came_or_not == ENDED_PAYMENT_STATUSES | {"partially_paid"}
    assert not RECEIVED_PAYMENT_STATUSES & VAIN_PAYMENT_STATUSES
    assert set(PaymentStatus.values) == ENDED_PAYMENT_STATUSES | OPEN_PAYMENT_STATUSES
    assert not ENDED_PAYMENT_STATUSES & OPEN_PAYMENT_STATUSES


AMOUNTS = st.integers(0, 1_000)
ATTEMPTS = st.lists(
    st.tuples(
        st.sampled_from([*PaymentStatus.values, "unheard_of"]),
        AMOUNTS,
        AMOUNTS,
        st.none() | AMOUNTS,
        st.lists(st.tuples(st.sampled_from([*RefundStatus.values, "unheard_of"]), AMOUNTS), max_size=3),
    ),
    max_size=4,
)


@given(ATTEMPTS, AMOUNTS)
def test_the_totals_are_consistent(attempts: list[Any], amount: int) -> None:
    payments, refunds, came = [], [], 0
    for number, (status, asked, received, given_back, some) in enumerate(attempts):
        payments.append(
            Payment(pk=f"pay_{number}", status=status, amount=asked, amount_received=received,
                    refunded_amount=given_back, currency="CLP", state_at=rows.AT)
        )  # fmt: skip
        done = sum(value for what, value in some if what == "succeeded")
        came += max(received, done, given_back or 0)
        refunds += [
            Refund(payment_id=f"pay_{number}", status=what, amount=value, currency="CLP", state_at=rows.AT)
            for what, value in some
        ]
    found = compute_totals(payments, refunds).get("CLP", Totals("CLP"))
    assert min(getattr(found, name) for name in (*Totals.__dataclass_fields__, "kept") if name != "currency") >= 0
    assert found.received + found.held == came
    assert found.refundable <= found.kept <= found.received
    assert found.refundable <= found.paid <= found.received
    assert not (found.missing(amount) and found.overpaid(amount))
    assert found.is_paid(amount) == (found.missing(amount) == 0)


# As the provider has it


@pytest.mark.django_db
def test_the_totals_equal_the_providers(payments_sandbox: ProviderSandbox, woken: list[str]) -> None:
    order = Order.objects.create(number="A-1")
    engine = payments_sandbox.engine

    def attempt(method: str = "cl_webpay_card") -> Payment:
        payment = services.create_payment(
            amount=10_000, currency="CLP", country="CL", method_code=method, merchant_reference="A-1"
        )
        payments_sandbox.settle()
        return payment

    late, charged, good = attempt(), attempt(), attempt()
    engine.expire(late.pk)
    payments_sandbox.settle()
    assert order.totals_in("CLP").in_progress == 20_000
    for payment in (late, charged, good):
        engine.pay(payment.pk)
    payments_sandbox.settle()
    assert order.totals_in("CLP").paid == 30_000
    for payment, amount in ((late, 10_000), (charged, 3_000), (good, 1_000)):
        refund = services.create_refund(payment, amount=amount)
        assert order.totals_in("CLP").refunding == amount
        engine.succeed_refund(refund.pk)
        payments_sandbox.settle()
    engine.chargeback(charged.pk)
    payments_sandbox.settle()
    assert order.refunds.count() == 3
    assert totals(order) == {
        "asked": 30_000,
        "received": 30_000,
        "refunded": 14_000,
        "charged_back": 7_000,
        "kept": 9_000,
        "paid": 10_000,
        "refundable": 9_000,
    }
    assert order.totals_in("CLP").refundable == refundable_rest(Payment.objects.get(pk=good.pk))
    assert {payment.pk for payment in order.payments} == {late.pk, charged.pk, good.pk}


@pytest.mark.django_db
def test_a_payment_without_a_reference_belongs_to_no_order(
    payments_sandbox: ProviderSandbox, woken: list[str]
) -> None:
    Order.objects.create(number="A-1")
    payment = services.create_payment(amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card")
    assert payment.merchant_reference
    assert Order.objects.of(payment) is None


# Lists


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.django_db
def test_a_list_with_totals_takes_three_statements(
    django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    Order.objects.bulk_create(Order(number=f"A-{number}") for number in range(count))
    for number in range(count):
        refunded(paid(merchant_reference=f"A-{number}"), number)
        paid("failed", 0, merchant_reference=f"A-{number}")
    with django_assert_num_queries(3):
        orders = list(Order.objects.with_totals().order_by("pk"))
        figures = [(order.totals_in("CLP").refunded, order.is_paid(10_000, "CLP")) for order in orders]
    assert figures == [(number, True) for number in range(count)]


def test_one_order_takes_two_statements(order: Order, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    refunded(paid(), 100)
    with django_assert_num_queries(2):
        order.totals()
    with django_assert_num_queries(1):
        list(order.payments)
    with django_assert_num_queries(1):
        list(order.refunds)


@pytest.mark.django_db
def test_a_long_list_is_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr("payments_integration.payable.queries.CHUNK", 2)
    Order.objects.bulk_create(Order(number=f"A-{number}") for number in range(5))
    for number in range(5):
        paid(merchant_reference=f"A-{number}")
    with django_assert_num_queries(7):
        assert all(order.is_paid(10_000, "CLP") for order in Order.objects.with_totals())


def test_payments_are_found_by_the_index_of_references(order: Order) -> None:
    for number in range(300):
        refunded(paid(merchant_reference=f"B-{number}"), 1_000)
    with CaptureQueriesContext(connection) as captured:
        order.totals()
        list(order.payments)
        list(order.refunds)
    plans = [explained(query["sql"]) for query in captured]
    assert len(plans) == 4
    for plan in plans:
        assert "pi_payment_reference" in plan
        assert "SCAN" not in plan


def explained(sql: str) -> str:
    """How a database would go about it."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE payments_integration_payment, payments_integration_refund")
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{sql}")
        return "; ".join(str(row) for row in cursor.fetchall())


def test_with_totals_works_with_slices_filters_and_first(
    order: Order, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    paid()
    wanted = Order.objects.with_totals().order_by("pk")
    with django_assert_num_queries(3):
        assert wanted.filter(currency="CLP")[:1][0].is_paid(10_000, "CLP")
    with django_assert_num_queries(3):
        found = wanted.first()
        assert found is not None
        assert found.totals_in("CLP").paid == 10_000
    with django_assert_num_queries(1):
        assert list(wanted.values_list("number", flat=True)) == ["A-1"]
    with django_assert_num_queries(1):
        assert not list(wanted.filter(number="none"))


def test_prefetched_totals_are_kept_until_a_refresh(order: Order) -> None:
    payment = paid("processing", 0)
    seen = Order.objects.with_totals().get()
    Payment.objects.filter(pk=payment.pk).update(status="succeeded", amount_received=10_000)
    assert not seen.is_paid(10_000, "CLP")
    assert order.is_paid(10_000, "CLP")
    seen.refresh_from_db()
    assert seen.is_paid(10_000, "CLP")


def test_a_copy_of_a_row_with_prefetched_totals_is_not_paid(order: Order) -> None:
    paid()
    copied = Order.objects.with_totals().get()
    copied.pk, copied._state.adding, copied.number = None, True, "A-2"
    copied.save()
    assert not copied.is_paid(10_000, "CLP")


def test_changing_the_returned_totals_does_not_change_the_row(order: Order) -> None:
    paid()
    seen = Order.objects.with_totals().get()
    seen.totals().clear()
    assert seen.is_paid(10_000, "CLP")


def test_templates_show_totals(order: Order) -> None:
    paid()
    template = Template("{{ order.totals.CLP.kept }}{% for code, all in order.totals.items %} {{ code }}{% endfor %}")
    assert template.render(Context({"order": order})) == "10000 CLP"


# System checks


@pytest.mark.parametrize("model", [Order, Invoice, Customer])
@pytest.mark.django_db
def test_correct_models_pass_the_checks(model: type[models.Model]) -> None:
    assert model.check(databases=["default"]) == []


def found_ids(model: type[models.Model]) -> list[str]:
    return [str(message.id).rpartition(".")[2] for message in model.check()]


@isolate_apps("tests.factories.receivers")
def test_options_that_name_missing_fields_are_check_errors() -> None:
    class Unnamed(Payable):
        class Meta:
            app_label = "receivers"

    class Misspelt(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "nummer"

        class Meta:
            app_label = "receivers"

    class Elsewhere(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        payments_account = "third"

        class Meta:
            app_label = "receivers"

    assert [found_ids(model) for model in (Unnamed, Misspelt, Elsewhere)] == [["E020"], ["E020"], ["E020"]]
    with override_settings(PAYMENTS_INTEGRATION={"PROCESSING": "wrong"}):
        assert found_ids(Elsewhere) == []  # the setting's own checks speak
    with override_settings(PAYMENTS_INTEGRATION={}):
        assert found_ids(Elsewhere) == []  # W001: there is no account


@isolate_apps("tests.factories.receivers")
def test_a_reference_that_is_a_relation_is_a_check_error() -> None:
    class Related(Payable):
        cart = models.OneToOneField("auth.User", models.CASCADE)
        merchant_reference_field = "cart"

        class Meta:
            app_label = "receivers"

    class ByColumn(Payable):
        cart = models.OneToOneField("auth.User", models.CASCADE)
        merchant_reference_field = "cart_id"

        class Meta:
            app_label = "receivers"

    class OfAccount(Payable):
        number = models.CharField(max_length=9, unique=True)
        cart = models.OneToOneField("auth.User", models.CASCADE)
        merchant_reference_field = "number"
        payments_account_field = "cart"

        class Meta:
            app_label = "receivers"

    for model in (Related, OfAccount):
        problem = next(message for message in model.check() if message.id == "payments_integration.E020")
        assert "cart_id" in str(problem.hint)
    assert "E020" not in found_ids(ByColumn)


@isolate_apps("tests.factories.receivers")
def test_amounts_in_whole_units_are_warned_about() -> None:
    class Guessed(Payable):
        number = models.CharField(max_length=9, unique=True)
        amount = models.DecimalField(max_digits=12, decimal_places=2)
        weight = models.FloatField()
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    class Converted(Payable):
        number = models.CharField(max_length=9, unique=True)
        amount = models.DecimalField(max_digits=12, decimal_places=2)
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

        def payments_price(self) -> tuple[int, str]:
            return to_minor(self.amount, "USD"), "USD"

    assert [found_ids(model) for model in (Guessed, Converted, Order)] == [["W021"], [], []]
    [warning] = Guessed.check()
    assert warning.msg.startswith("amount, weight: not whole numbers")
    assert 'money.to_minor(Decimal("119.90"), "USD")' in (warning.hint or "")
    # The price of an order of 119.90 is 11990, and a payment of 2.00 does not pay for it.
    assert Converted(amount=Decimal("119.90")).payments_price() == (11_990, "USD")


@isolate_apps("tests.factories.receivers")
def test_fields_that_hide_a_part_of_payable_are_check_errors() -> None:
    class Hiding(Payable):
        number = models.CharField(max_length=9, unique=True)
        is_paid = models.BooleanField(default=False)
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    class Hidden(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    class Slip(models.Model):
        hidden = models.ForeignKey(Hidden, models.CASCADE, related_name="payments")

        class Meta:
            app_label = "receivers"

        def __str__(self) -> str:
            return ""

    assert found_ids(Hiding) == ["E021"]
    assert found_ids(Hidden) == ["E021"]


@isolate_apps("tests.factories.receivers")
def test_properties_and_methods_that_hide_a_part_of_payable_are_check_errors() -> None:
    class Totaled:
        def totals(self) -> int:
            return 0

    class Hiding(Totaled, Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        payments: Any = None

        class Meta:
            app_label = "receivers"

        @property
        def is_paid(self) -> bool:  # type: ignore[override]
            return True

    class Base(Payable):
        """What the project is meant to say or may extend is no error."""

        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        payments_paid = models.Q(pk__gt=0)

        class Meta:
            app_label = "receivers"
            abstract = True

        def payments_price(self) -> tuple[int, str]:
            return 1, "CLP"

        def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
            super().refresh_from_db(*args, **kwargs)

    class Told(Base):
        class Meta:
            app_label = "receivers"

    assert found_ids(Hiding) == ["E021"] * 3
    assert {problem.msg.partition(" ")[0] for problem in Hiding.check()} == {"'payments'", "'is_paid'", "'totals'"}
    assert found_ids(Told) == []


@isolate_apps("tests.factories.receivers")
def test_a_reference_that_is_not_unique_is_warned_about() -> None:
    class Loose(Payable):
        number = models.CharField(max_length=9)
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    class PerBrand(Payable):
        number = models.CharField(max_length=9)
        brand = models.CharField(max_length=9)
        merchant_reference_field = "number"
        payments_account_field = "brand"

        class Meta:
            app_label = "receivers"
            constraints = [models.UniqueConstraint(fields=["brand", "number"], name="per_brand")]

    class PerYear(Payable):
        number = models.CharField(max_length=9)
        year = models.IntegerField()
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"
            constraints = [models.UniqueConstraint(fields=["year", "number"], name="per_year")]

    class ByKey(Payable):
        pk = models.CompositePrimaryKey("brand", "number")
        number = models.CharField(max_length=9)
        brand = models.CharField(max_length=9)
        merchant_reference_field = "number"
        payments_account_field = "brand"

        class Meta:
            app_label = "receivers"

    class PerShop(Payable):
        number = models.CharField(max_length=9)
        shop = models.ForeignKey(PerBrand, models.CASCADE)
        merchant_reference_field = "number"
        payments_account_field = "shop_id"

        class Meta:
            app_label = "receivers"
            unique_together = [["shop", "number"]]

    found = [found_ids(model) for model in (Loose, PerBrand, PerYear, ByKey, PerShop)]
    assert found == [["W020"], [], ["W020"], [], []]


@isolate_apps("tests.factories.receivers")
def test_a_price_that_is_no_method_and_a_manager_without_of_are_found() -> None:
    class Priced(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

        @property
        def payments_price(self) -> tuple[int, str]:  # type: ignore[override]
            return 1, "USD"

    class Plain(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        objects = models.Manager()  # type: ignore[assignment]

        class Meta:
            app_label = "receivers"

    class Both(Plain):
        payables = PayableManager()

        class Meta:
            app_label = "receivers"

    class Kept(models.QuerySet["Mixed"]):
        pass

    class Mixed(Payable):
        """A manager with of(), whose queryset lacks it: each of() would raise AttributeError."""

        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        objects = PayableManager.from_queryset(Kept)()  # type: ignore[assignment]

        class Meta:
            app_label = "receivers"

    class Tenants(PayableManager["Tenant"]):
        def get_queryset(self) -> Any:
            raise RuntimeError("no tenant")

    class Tenant(Payable):
        number = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "number"
        objects = Tenants()  # type: ignore[assignment]

        class Meta:
            app_label = "receivers"

    found = [found_ids(model) for model in (Priced, Plain, Both, Mixed, Tenant)]
    assert found == [["E020"], ["W022"], [], ["W022"], []]


@pytest.mark.django_db
def test_a_cached_row_reads_its_totals_anew() -> None:
    Order.objects.create(number="A-1")
    (order,) = Order.objects.with_totals()
    assert not order.is_paid(10_000, "CLP")
    rows.payment(status="succeeded", merchant_reference="A-1", amount=10_000, amount_received=10_000, currency="CLP")
    assert not order.is_paid(10_000, "CLP"), "as it was read"
    assert pickle.loads(pickle.dumps(order)).is_paid(10_000, "CLP")


@isolate_apps("tests.factories.receivers")
def test_models_that_find_other_payments_for_the_same_rows_are_warned_about() -> None:
    """The ledger has a key per account and reference: an order could be paid through the parent and the child."""

    class Base(Payable):
        number = models.CharField(max_length=9, unique=True)
        brand = models.CharField(max_length=9)
        merchant_reference_field = "id"

        class Meta:
            app_label = "receivers"

    class Alike(Base):
        class Meta:
            app_label = "receivers"
            proxy = True

    class Linked(Base):
        merchant_reference_field = "base_ptr_id"

        class Meta:
            app_label = "receivers"

    found = {model.__name__: found_ids(model) for model in (Alike, Base, Linked)}
    assert found == {"Alike": [], "Base": [], "Linked": []}

    class OfAccount(Base):
        payments_account = "second"

        class Meta:
            app_label = "receivers"

    class OfBrand(Base):
        payments_account_field = "brand"

        class Meta:
            app_label = "receivers"
            proxy = True

    class Renumbered(Base):
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    found = {
        model.__name__: [str(message.msg) for message in model.check() if "are also" in str(message.msg)]
        for model in (Alike, Base, Linked, OfAccount, OfBrand, Renumbered)
    }
    also = (
        "Its rows are also rows of {}, with another account or reference: such a row has other payments there, and "
        "can be paid twice."
    )
    assert found == {
        "Alike": [],
        "Base": [],
        "Linked": [],
        "OfAccount": [also.format("receivers.Alike, receivers.Base")],
        "OfBrand": [also.format("receivers.Alike, receivers.Base, receivers.Linked, receivers.OfAccount")],
        "Renumbered": [also.format("receivers.Alike, receivers.Base, receivers.OfBrand")],
    }


@isolate_apps("tests.factories.receivers")
def test_a_reference_to_a_model_that_does_not_exist_is_djangos_error() -> None:
    class Base(Payable):
        number = models.CharField(max_length=9, unique=True)
        lost = models.OneToOneField("receivers.Lost", on_delete=models.CASCADE)
        merchant_reference_field = "lost_id"

        class Meta:
            app_label = "receivers"

    class Child(Base):
        merchant_reference_field = "number"

        class Meta:
            app_label = "receivers"

    assert found_ids(Child) == ["W020"]
    assert found_ids(Base) == ["E300"]


@isolate_apps("tests.factories.receivers")
def test_two_models_whose_references_are_numbers_are_warned_about() -> None:
    class Numbered(Payable):
        merchant_reference_field = "id"

        class Meta:
            app_label = "receivers"
            abstract = True

    class Bill(Numbered):
        class Meta:
            app_label = "receivers"

    class Ticket(Numbered):
        class Meta:
            app_label = "receivers"

    class Elsewhere(Numbered):
        payments_account = None

        class Meta:
            app_label = "receivers"

    class OldTicket(Ticket):
        class Meta:
            app_label = "receivers"
            proxy = True

    class Ours(Numbered, User):
        class Meta:
            app_label = "receivers"
            proxy = True

    class Reminder(Payable):
        bill = models.OneToOneField(Bill, on_delete=models.CASCADE)
        merchant_reference_field = "bill_id"

        class Meta:
            app_label = "receivers"

    class Named(Payable):
        name = models.CharField(max_length=9, unique=True)
        merchant_reference_field = "name"

        class Meta:
            app_label = "receivers"

    found = {
        model.__name__: [str(message.msg) for message in model.check()]
        for model in (Bill, Elsewhere, Named, OldTicket, Ours, Reminder, Ticket)
    }
    share = "Its references are numbers, as those of {}: two rows with the same number would share their payments."
    assert found == {
        "Bill": [],
        "Elsewhere": [share.format("receivers.Bill")],
        "Named": [],
        "OldTicket": [],
        "Ours": [share.format("receivers.Bill, receivers.Elsewhere")],
        # A bill's reminder is paid by the bill's payments, on purpose.
        "Reminder": [share.format("receivers.Elsewhere, receivers.Ours")],
        "Ticket": [share.format("receivers.Bill, receivers.Elsewhere, receivers.Ours, receivers.Reminder")],
    }
    Ticket.payments_account = "another"
    Elsewhere.payments_account = "default"
    assert not [message for message in Ticket.check() if message.id == "payments_integration.W020"]


# The documentation


@pytest.mark.django_db
def test_the_documented_examples_run(
    payments_sandbox: ProviderSandbox,
    woken: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    model, create, _priced, handle, ask, listing, _filtered, _page, _status, _columns, _surplus = re.findall(
        r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "tests.factories.receivers.models"}
    with isolate_apps("tests.factories.receivers"):
        exec(model, names)
    assert names["Order"].check() == []
    assert {field.name for field in names["Order"]._meta.fields} == {field.name for field in Order._meta.fields}
    monkeypatch.setitem(sys.modules, "shop.models", SimpleNamespace(Order=Order))

    exec(handle, names)
    order = names["order"] = Order.objects.create(number="A-1", amount=10_000, currency="CLP")

    def says() -> str:
        order.refresh_from_db()
        exec(ask, names)
        return str(names["message"])

    assert says() == "10000 to pay"
    exec(create, names)
    payments_sandbox.settle()
    assert (says(), order.paid_at) == ("please wait", None)
    payments_sandbox.engine.pay(names["payment"].pk)
    payments_sandbox.settle()
    assert says() == "paid"
    assert order.paid_at is not None

    payments_sandbox.engine.fund("CLP", 10_000)  # the fee was taken off
    refund = services.create_refund(names["payment"])
    payments_sandbox.engine.succeed_refund(refund.pk)
    payments_sandbox.settle()
    assert (says(), order.paid_at) == ("10000 to pay", None)
    payments_sandbox.engine.clock.advance(60)
    payments_sandbox.engine.return_refund(refund.pk)
    payments_sandbox.deliver()
    inbox.process("default")
    inbox.dispatch("default")
    assert says() == "paid"
    assert order.paid_at is not None, "dispatched before the payment was read again"

    exec(listing, names)
    assert capsys.readouterr().out == "A-1 10000\n"


def test_the_documented_tables_have_every_name() -> None:
    page = DOCS.read_text()
    figures = {name for name in Totals.__dataclass_fields__ if name != "currency"} | {"kept"}
    assert (
        set(re.findall(r"^\| `(\w+)` \|", page.partition("## Totals")[2].partition("###")[0], re.MULTILINE)) == figures
    )
    statuses = page.partition("### What counts")[2]
    assert set(PaymentStatus.values) <= set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", statuses, re.MULTILINE)))
    )


@pytest.mark.case(105)
@pytest.mark.django_db
@pytest.mark.parametrize("counted", [0, 3_000], ids=["counts succeeded refunds", "counts refunds in progress"])
@pytest.mark.parametrize("status", ["succeeded", "chargeback"])
def test_order_payment_and_page_have_one_refundable_rest(
    order: Order, admin_client: Any, counted: int, status: str
) -> None:
    payment = paid(status, refunded_amount=counted)
    refunded(payment, 3_000, "processing")
    rows.operation(operation="create_refund", state="unknown", target_id=payment.pk, amount=2_000, currency="CLP")
    rows.operation(operation="create_refund", state="awaiting_approval", target_id=payment.pk, amount=1_000)
    rows.operation(operation="create_refund", state="due", account="second", target_id=payment.pk, amount=1_000)
    rest = 4_000 if status == "succeeded" else 0
    assert max(0, refundable_rest(payment)) == payment.refundable_amount == rest
    assert order.totals_in("CLP").refundable == rest
    assert (order.totals_in("CLP").paid > 0) == (status == "succeeded"), "what is only asked for is still paid"
    address = f"/admin/payments_integration/payment/{quote(payment.pk)}"
    page = admin_client.get(f"{address}/change/").content.decode()
    row = re.search(r">Left<.*?</tr>", page, re.DOTALL)
    assert row is not None
    assert format_money(rest, "CLP") in unescape(row[0])
    assert (f"payment/{quote(payment.pk)}/refund/" in page) == bool(rest)
    if rest:
        assert format_money(rest, "CLP") in unescape(admin_client.get(f"{address}/refund/").content.decode())


@pytest.mark.django_db
def test_the_documented_price_in_whole_units_is_converted(payments_sandbox: ProviderSandbox, woken: list[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[2]
    # What the example leaves out.
    fields = """
    number = models.CharField(max_length=32, unique=True)
    total = models.DecimalField(max_digits=12, decimal_places=2)
    currency = models.CharField(max_length=3)
    merchant_reference_field = "number"
    """
    names: dict[str, Any] = {"__name__": "tests.factories.receivers.models", "models": models}
    with isolate_apps("tests.factories.receivers"):
        exec(example.replace("    …", fields), names)
    assert names["Order"].check() == []
    order = names["Order"](number="A-7", total=Decimal("119.90"), currency="USD")
    amount, currency = order.payments_price()
    payment = services.create_payment(
        amount=amount, currency=currency, country="EC", method_code="ec_card", merchant_reference=order.number
    )
    assert (payment.amount, order.is_paid(*order.payments_price())) == (11_990, False)
    payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    assert order.is_paid(*order.payments_price())
