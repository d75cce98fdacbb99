"""An order that is paid twice, in two tabs or by a late voucher, is reported until the surplus has gone back."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import ProgrammingError
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from payments_integration import handlers, health, inbox, projection, reconciliation, services
from payments_integration.models import AccountState, DoublePayment, Payment, Refund, deletion_allowed
from payments_integration.payable import doubles, queries
from payments_integration.signals import Reason
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.payable.payables import Invoice, Order
from tests.unit.payable.test_payable import DOCS

pytestmark = [pytest.mark.case(137), pytest.mark.django_db]


def paid(status: str = "succeeded", received: int = 10_000, **fields: Any) -> Payment:
    now = timezone.now()
    values = {"amount": 10_000, "currency": "CLP", "merchant_reference": "A-1", "synced_at": now, **fields}
    return rows.payment(status=status, amount_received=received, **values)


def reported(account: str = "default") -> list[tuple[str, str]]:
    """What a pass leaves as reported."""
    reconciliation.report_doubles(account)
    found = DoublePayment.objects.filter(account=account).order_by("pk")
    assert sorted(found.values_list("merchant_reference", "currency")) == sorted(
        (double.merchant_reference, double.currency) for double, _at in reconciliation.doubles_of(account)
    )
    return list(found.values_list("merchant_reference", "currency"))


def priced(monkeypatch: pytest.MonkeyPatch, price: Any) -> None:
    """As if the model of the orders knew what they cost."""
    monkeypatch.setattr(Order, "payments_price", lambda order: price)


def test_two_payments_that_hold_money_are_reported_once(attentions: list[dict[str, Any]]) -> None:
    first = paid(succeeded_at=timezone.now() - timedelta(hours=1))
    assert reported() == []
    second = paid(succeeded_at=timezone.now())
    assert [reported(), reported()] == [[("A-1", "CLP")]] * 2
    [seen] = attentions
    assert (seen["reason"], seen["sender"], seen["instance"]) == (Reason.PAID_TWICE, Payment, second)
    assert seen["message"] == f"A-1 was paid for 2 times: {first.pk}, {second.pk} hold money in CLP"


@pytest.mark.parametrize(
    "other",
    [
        {"merchant_reference": "a-1"},
        {"merchant_reference": "A-1 "},
        {"currency": "USD"},
        {"account": "second"},
        {"flow": "deposit_reference"},
        {"method_family": "deposit_reference"},
        {"status": "expired", "received": 0},
        {"status": "requires_action", "received": 0},
        {"status": "chargeback"},
        {"status": "on_hold"},
        {"refunded_amount": 10_000},
    ],
    ids=str,
)
def test_what_is_no_second_payment_is_not_reported(other: dict[str, Any]) -> None:
    paid()
    paid(**other)
    assert [reported(), reported("second")] == [[], []]


@pytest.mark.parametrize("reference", [None, ""])
def test_payments_without_a_reference_belong_to_no_order(reference: str | None) -> None:
    paid(merchant_reference=reference)
    paid(merchant_reference=reference)
    assert reported() == []


def test_two_transfers_to_a_deposit_reference_are_no_fault() -> None:
    for _ in range(2):
        paid(flow="deposit_reference", method_family="deposit_reference")
    assert reported() == []


@pytest.mark.parametrize("status", ["created", "processing", "succeeded"])
def test_an_order_leaves_the_list_when_one_payment_is_refunded(attentions: list[dict[str, Any]], status: str) -> None:
    payment = paid()
    paid()
    assert reported() == [("A-1", "CLP")]
    part = rows.refund(payment=payment, amount=4_000, currency="CLP", status=status)
    assert reported() == [("A-1", "CLP")]
    Refund.objects.filter(pk=part.pk).update(amount=10_000)
    assert reported() == []
    # The refund comes back, and the payment is read again.
    Refund.objects.filter(pk=part.pk).update(status="returned")
    Payment.objects.filter(pk=payment.pk).update(synced_at=timezone.now())
    assert reported() == [("A-1", "CLP")]
    assert len(attentions) == 2


def test_a_charged_back_payment_ends_it() -> None:
    payment = paid()
    paid()
    assert reported() == [("A-1", "CLP")]
    Payment.objects.filter(pk=payment.pk).update(status="chargeback")
    assert reported() == []


def test_instalments_of_an_order_that_knows_its_price_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    Order.objects.create(number="A-1")
    priced(monkeypatch, (10_000, "CLP"))
    paid("partially_paid", 4_000)
    paid("succeeded", 6_000, amount=6_000)
    assert reported() == []
    third = paid("succeeded", 6_000, amount=6_000)
    assert reported() == [("A-1", "CLP")]
    rows.refund(payment=third, amount=6_000, currency="CLP", status="succeeded")
    assert reported() == []


def test_a_part_of_the_surplus_is_still_a_surplus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a price, both payments hold money until one is refunded in full."""
    Order.objects.create(number="A-1")
    paid()
    second = paid(received=12_000)
    rows.refund(payment=second, amount=10_000, currency="CLP", status="succeeded")
    assert reported() == [("A-1", "CLP")]
    priced(monkeypatch, (12_000, "CLP"))
    assert reported() == []
    priced(monkeypatch, (11_999, "CLP"))
    Payment.objects.update(synced_at=timezone.now())
    assert reported() == [("A-1", "CLP")]


@pytest.mark.parametrize(
    "price", [None, (10_000, "USD"), (Decimal(10_000), "CLP"), (-1, "CLP"), (10_000, "clp"), "CLP"], ids=str
)
def test_an_order_without_a_usable_price_is_reported(monkeypatch: pytest.MonkeyPatch, price: Any) -> None:
    Order.objects.create(number="A-1")
    priced(monkeypatch, price)
    paid()
    paid()
    assert reported() == [("A-1", "CLP")]


@pytest.mark.parametrize("error", [RuntimeError("no price list"), asyncio.CancelledError("no price list")])
def test_a_price_that_fails_is_logged_and_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fails(order: Order) -> tuple[int, str]:
        raise error

    Order.objects.create(number="A-1")
    monkeypatch.setattr(Order, "payments_price", fails)
    paid()
    paid()
    assert reported() == [("A-1", "CLP")]
    assert "no price list" in caplog.text


def test_a_table_that_cannot_be_read_is_logged_and_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one whose migration was not applied yet. The pass goes on, and compares the lists."""

    def fails(*args: Any) -> None:
        raise ProgrammingError("no such column")

    priced(monkeypatch, (10_000, "CLP"))
    monkeypatch.setattr(doubles, "PayableQuerySet", fails)
    paid()
    paid()
    assert reported() == [("A-1", "CLP")]
    assert "no such column" in caplog.text


def test_the_order_of_another_account_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    invoice = Invoice.objects.create(brand="second")
    monkeypatch.setattr(Invoice, "payments_price", lambda invoice: (20_000, "CLP"))
    for account in ("default", "second"):
        paid(merchant_reference=str(invoice.pk), account=account)
        paid(merchant_reference=str(invoice.pk), account=account)
    assert reported("default") == [(str(invoice.pk), "CLP")]
    assert reported("second") == []


def test_what_was_before_the_installation_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    begins_at = timezone.now() - timedelta(days=1)
    monkeypatch.setattr(projection, "dispatch_begins_at", lambda account: begins_at)
    for days in (3, 2):
        paid(succeeded_at=timezone.now() - timedelta(days=days))
    assert reported() == []
    # A payment of today for the order of then.
    paid(succeeded_at=timezone.now())
    assert reported() == [("A-1", "CLP")]


def test_a_pass_reads_only_the_payments_that_were_written_since_the_last_one(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    assert reported() == []
    AccountState.objects.update(doubles_sought_at=timezone.now())
    long_ago = timezone.now() - timedelta(hours=2)
    paid(synced_at=long_ago)
    paid(synced_at=long_ago)
    assert reported() == []
    # The clock was ahead when it was written.
    AccountState.objects.update(doubles_sought_at=timezone.now() + timedelta(days=1))
    paid(merchant_reference="A-2")
    paid(merchant_reference="A-2")
    assert reported() == [("A-2", "CLP")]
    DoublePayment.objects.all().delete()
    with deletion_allowed():
        Payment.objects.all().delete()
    with django_assert_num_queries(5):
        reconciliation.report_doubles("default")


def test_many_are_read_in_sets(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    priced(monkeypatch, (10_000, "CLP"))
    monkeypatch.setattr(queries, "CHUNK", 20)
    for number in range(30):
        Order.objects.create(number=f"A-{number}")
        paid(merchant_reference=f"A-{number}")
        paid(merchant_reference=f"A-{number}")
    wanted = [(f"A-{number}", "CLP") for number in range(30)]
    # Two of them look for rows of Sale, which knows its price as well. The refunds of forty payments are two sets.
    with django_assert_max_num_queries(15):
        assert len(doubles.find_doubles("default", wanted)) == 30


def test_a_shop_whose_references_name_customers_switches_it_off(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "REPORT_DOUBLE_PAYMENTS": False}
    paid()
    paid()
    assert reported() == []


def test_health_reports_it_until_it_is_over() -> None:
    first, second = paid(), paid()
    reconciliation.report_doubles("default")
    report = health.examine("default").accounts["default"]
    [problem] = [problem for problem in report.problems if problem.code == Reason.PAID_TWICE]
    assert (problem.count, report.statistics.paid_twice.count) == (1, 1)
    [line] = health.explain("default", Reason.PAID_TWICE)
    assert line.startswith("A-1: ")
    assert all(f"{payment.pk} of CLP\xa010,000" in line for payment in (first, second))
    rows.refund(payment=second, amount=10_000, currency="CLP", status="succeeded")
    reconciliation.report_doubles("default")
    assert Reason.PAID_TWICE not in {
        problem.code for problem in health.examine("default").accounts["default"].problems
    }


def test_two_tabs_and_a_refund(
    payments_sandbox: ProviderSandbox, woken: list[str], attentions: list[dict[str, Any]]
) -> None:
    """A payer pays in both tabs; the passes that every site runs report it, and the refund ends it."""
    body = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    both = [services.create_payment(**body, merchant_reference="A-1") for _tab in range(2)]
    for payment in both:
        payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    reconciliation.reconcile_objects("default")
    assert [seen["reason"] for seen in attentions if seen["reason"] == Reason.PAID_TWICE] == [Reason.PAID_TWICE]
    payments_sandbox.engine.fund("CLP", 10_000)
    refund = services.create_refund(both[0])
    payments_sandbox.engine.succeed_refund(refund.pk)
    payments_sandbox.settle()
    inbox.dispatch()
    reconciliation.reconcile_objects("default")
    assert not DoublePayment.objects.exists()


def test_the_documented_handler_gives_the_surplus_back_once(
    payments_sandbox: ProviderSandbox, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    monkeypatch.setitem(sys.modules, "shop.models", SimpleNamespace(Order=Order))
    section = DOCS.read_text().partition("\n## Orders that were paid twice\n")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(code, {"__name__": "shop.payment_handlers"})
    order = Order.objects.create(number="A-1")
    body = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    both = [services.create_payment(**body, merchant_reference="A-1") for _tab in range(2)]
    for payment in both:
        payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.engine.fund("CLP", 10_000)
    payments_sandbox.settle()
    services.resume_operations()
    [refund] = Refund.objects.all()
    assert refund.amount == 10_000
    assert order.is_paid(10_000, "CLP")
    assert reported() == []
