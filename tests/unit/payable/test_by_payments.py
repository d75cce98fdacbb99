"""``paid()``, ``unpaid()`` and ``overpaid()``: the same decisions as the instance methods, in SQL."""

from __future__ import annotations

import itertools
import re
import sys
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, models, transaction
from django.db.models.query_utils import DeferredAttribute
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext, isolate_apps
from hypothesis import given, settings, strategies as st
from pytest_django import DjangoAssertNumQueries

from payments_integration.enums import PaymentStatus, RefundStatus
from payments_integration.models import OperationState
from payments_integration.payable import Payable, sql
from payments_integration.payable.admin import PaidFilter, PaymentColumns
from tests.factories import rows
from tests.unit.payable.payables import Booking, Order, Sale, Ticket

DOCS = Path(__file__).resolve().parents[3] / "docs" / "orders.md"
LATER = rows.AT + timedelta(seconds=1)
_numbers = itertools.count(1)


def answers(row: Payable) -> tuple[bool, bool, bool] | None:
    """In which of paid, unpaid and overpaid the instance methods put a row; None: in none, as it has no price."""
    try:
        price = row.payments_price()
        if price is None:
            return None
        amount, currency = price
        is_paid, overpaid = row.is_paid(amount, currency), row.totals_in(currency).overpaid(amount)
        assert is_paid == (row.totals_in(currency).missing(amount) == 0)
    except ValueError:  # a price that is refused
        is_paid, overpaid = False, 0
    return is_paid, not is_paid, overpaid > 0


def assert_same(model: Any) -> None:
    found = [
        set(getattr(model.objects, name)().values_list("pk", flat=True)) for name in ("paid", "unpaid", "overpaid")
    ]
    for row in model.objects.all():
        expected = answers(row) or (False, False, False)
        assert tuple(row.pk in keys for keys in found) == expected, vars(row)


# Small figures, so that sums meet prices and refunds meet payments.
AMOUNTS = st.sampled_from([0, 1, 50, 100, 150, 200, 300])
# Mostly what belongs together: otherwise few examples would have anything to decide.
CURRENCIES = st.sampled_from(["USD", "USD", "USD", "USD", "CLP", "usd", "ARS", "USD "])
ACCOUNTS = st.sampled_from(["default", "default", "default", "second", "Default"])
REFUNDS = st.fixed_dictionaries(
    {
        "status": st.sampled_from([*RefundStatus.values, "strange", "Succeeded"]),
        "amount": AMOUNTS,
        "currency": st.sampled_from([None, None, None, "USD", "CLP"]),
        "account": st.sampled_from([None, None, None, "default", "second"]),
        "state_at": st.sampled_from([rows.AT, LATER]),
    }
)
PAYMENTS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(
            [*["succeeded", "overpaid"] * 5, *PaymentStatus.values, "strange", "SUCCEEDED"]
        ),
        "amount": AMOUNTS,
        "amount_received": AMOUNTS,
        "refunded_amount": st.none() | AMOUNTS,
        "currency": CURRENCIES,
        "account": ACCOUNTS,
        "flow": st.sampled_from(["hosted", "hosted", None, None, "deposit_reference"]),
        "method_family": st.sampled_from(["card", "card", "card", "deposit_reference"]),
        "refunds": st.lists(REFUNDS, max_size=3),
        "promised": st.lists(
            st.tuples(AMOUNTS, st.sampled_from([OperationState.DUE, OperationState.DONE, OperationState.UNKNOWN])),
            max_size=2,
        ),
    }
)  # fmt: skip
PAIRS = st.lists(PAYMENTS, max_size=4)


def pay(reference: str, payments: list[dict[str, Any]]) -> None:
    for values in payments:
        fields = {name: value for name, value in values.items() if name not in ("refunds", "promised")}
        payment = rows.payment(merchant_reference=reference, **fields)
        for refund in values["refunds"]:
            own = {"currency": payment.currency, "account": payment.account}
            given_ = {name: value for name, value in refund.items() if value is not None}
            rows.refund(payment_id=payment.pk, **{**own, **given_})
        for amount, state in values["promised"]:
            rows.operation(target_id=payment.pk, amount=amount, state=state, account=payment.account)


def apart(test: Any) -> None:
    """Each example has the tables for itself."""
    with transaction.atomic():
        test()
        transaction.set_rollback(True)


SALES = st.tuples(st.none() | st.sampled_from([-1, 0, 50, 100, 150, 200, 300]), st.none() | CURRENCIES | st.just(""))
DECIMALS = [
    Decimal(text) for text in ("-0.5", "0", "0.01", "0.5", "1.005", "1", "1.5", "2", "3", "100", "150.5", "200")
]


@given(found=st.lists(st.tuples(SALES, PAIRS), min_size=1, max_size=3))
@settings(max_examples=40)
@pytest.mark.django_db
def test_a_price_in_minor_units_is_compared_as_by_the_methods(found: list[Any]) -> None:
    def example() -> None:
        for number, ((amount, currency), payments) in enumerate(found):
            # References that only a byte comparison tells apart, and none.
            Sale.objects.create(number=("a", "A", "a ")[number], amount=amount, currency=currency)
            pay(("A", "a", "a ")[number], payments)
        for nothing in (None, ""):
            Sale.objects.create(number=nothing, amount=0, currency="CLP")
        rows.payment(merchant_reference="", currency="CLP")
        assert_same(Sale)

    apart(example)


@given(
    found=st.lists(
        st.tuples(st.none() | st.sampled_from(DECIMALS), CURRENCIES, st.none() | ACCOUNTS, PAIRS), max_size=3
    )
)
@settings(max_examples=40)
@pytest.mark.django_db
def test_a_price_in_whole_units_is_compared_as_by_the_methods(found: list[Any]) -> None:
    def example() -> None:
        for total, currency, brand, payments in found:
            row = Booking.objects.create(total=total, currency=currency, brand=brand)
            pay(str(row.pk), payments)
            pay(row.pk.hex, payments)
        assert_same(Booking)

    apart(example)


@given(
    found=st.lists(
        st.tuples(st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(100), Decimal(200)]), PAIRS), max_size=3
    )
)
@settings(max_examples=40)
@pytest.mark.django_db
def test_one_currency_for_all_rows(found: list[Any]) -> None:
    def example() -> None:
        for total, payments in found:
            row = Ticket.objects.create(total=total)
            pay(str(row.pk), payments)
            pay(f"0{row.pk}", payments)
        assert_same(Ticket)

    apart(example)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("payment", "refunds", "promised", "expected"),
    [
        ({}, [], 0, {"paid"}),
        ({"amount_received": 99}, [], 0, {"unpaid"}),
        ({"amount_received": 101}, [], 0, {"paid", "overpaid"}),
        ({"amount_received": 150}, [], 50, {"paid"}),
        ({"amount_received": 150}, [{"amount": 50, "status": "processing"}], 0, {"paid"}),
        ({"refunded_amount": 100}, [], 0, {"unpaid"}),
        ({"refunded_amount": None}, [{"amount": 100}], 0, {"unpaid"}),
        ({"refunded_amount": 100}, [{"amount": 100, "status": "returned"}], 0, {"unpaid"}),
        ({"refunded_amount": 100}, [{"amount": 100, "status": "returned", "state_at": LATER}], 0, {"paid"}),
        ({}, [{"amount": 100, "account": "second"}], 0, {"paid"}),
        ({}, [{"amount": 100, "currency": "USD"}], 0, {"paid"}),
        ({}, [{"amount": 100, "status": "failed"}], 0, {"paid"}),
        ({"status": "chargeback"}, [], 0, {"unpaid"}),
        ({"status": "on_hold"}, [], 0, {"unpaid"}),
        ({"currency": "clp"}, [], 0, {"unpaid"}),
        ({"account": "second"}, [], 0, {"unpaid"}),
        ({"flow": "deposit_reference"}, [], 0, {"unpaid"}),
        ({"merchant_reference": "a"}, [], 0, {"unpaid"}),
    ],
)
def test_each_rule_decides(
    payment: dict[str, Any], refunds: list[dict[str, Any]], promised: int, expected: set[str]
) -> None:
    """An order of 100 pesos with one payment."""
    row = Sale.objects.create(number="A", amount=100, currency="CLP")
    fields = {"amount": 100, "amount_received": 100, "currency": "CLP", "merchant_reference": "A", **payment}
    made = rows.payment(**fields)
    for refund in refunds:
        rows.refund(payment_id=made.pk, **{"status": "succeeded", "currency": "CLP", **refund})
    if promised:
        rows.operation(target_id=made.pk, amount=promised, state=OperationState.DUE)
    assert_same(Sale)
    assert {name for name in ("paid", "unpaid", "overpaid") if getattr(Sale.objects, name)().exists()} == expected, row


@pytest.mark.django_db
def test_prices_at_the_edge() -> None:
    for number, (amount, currency) in enumerate([(0, "CLP"), (0, "ARS"), (-1, "CLP"), (None, "CLP"), (1, "")]):
        Sale.objects.create(number=str(number), amount=amount, currency=currency)
    for total, currency in (("1.005", "USD"), ("0.5", "CLP"), ("0", "ARS"), ("0", "USD"), (None, "USD")):
        row = Booking.objects.create(total=total and Decimal(total), currency=currency, brand="default")
        if total in ("1.005", "0.5"):
            # Enough, if the price were rounded.
            rows.payment(merchant_reference=str(row.pk), currency=currency, amount_received=200)
    rows.payment(merchant_reference="", currency="CLP")
    assert_same(Sale)
    assert_same(Booking)
    assert [Sale.objects.paid().count(), Sale.objects.unpaid().count()] == [1, 2]
    assert [Booking.objects.paid().count(), Booking.objects.unpaid().count()] == [1, 3]


@pytest.mark.django_db
def test_an_account_may_be_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Booking, "payments_account_field", "id")
    row = Booking.objects.create(total=1, currency="USD")
    rows.payment(merchant_reference=str(row.pk), account=str(row.pk), currency="USD", amount_received=100)
    assert_same(Booking)
    assert list(Booking.objects.paid()) == [row]


@isolate_apps("tests.factories.receivers")
def test_an_account_may_be_the_uuid_of_another_row() -> None:
    class OfShop(Payable):
        number = models.CharField(max_length=9, unique=True)
        shop = models.ForeignKey(Booking, models.CASCADE, related_name="+")
        merchant_reference_field = "number"
        payments_account_field = "shop_id"

        class Meta:
            app_label = "receivers"

    assert sql._text(OfShop, "shop_id").is_uuid
    assert not sql._text(OfShop, "number").is_uuid


# Used as filters


def sale(number: str, received: int, **fields: Any) -> Sale:
    row = Sale.objects.create(**{"number": number, "amount": 100, "currency": "CLP", **fields})
    rows.payment(
        merchant_reference=number, amount=100, amount_received=received, currency="CLP",
        status="succeeded" if received else "failed",
    )  # fmt: skip
    return row


@pytest.mark.django_db
def test_they_are_filters_like_any_other(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    unpaid = [sale(f"U-{number}", 0) for number in range(5)]
    paid = sale("P-1", 100, sold_on=date(2026, 1, 2))
    over = sale("O-1", 150)
    with django_assert_num_queries(1):
        assert Sale.objects.unpaid().count() == 5
    with django_assert_num_queries(1):
        assert list(Sale.objects.unpaid().order_by("number")[2:4]) == unpaid[2:4]
    with django_assert_num_queries(1):
        assert list(Sale.objects.filter(sold_on=paid.sold_on).paid().values_list("number", flat=True)) == ["P-1"]
    assert list(Sale.objects.paid().exclude(sold_on=paid.sold_on)) == [over]
    assert Sale.objects.paid().filter(pk=paid.pk).exists()
    assert set(Sale.objects.paid() | Sale.objects.unpaid()) == set(Sale.objects.all())
    assert not (Sale.objects.paid() & Sale.objects.unpaid()).exists()
    assert list(Sale.objects.filter(pk__in=Sale.objects.overpaid().values("pk"))) == [over]
    assert [row.totals_in("CLP").paid for row in Sale.objects.overpaid().with_totals()] == [150]
    assert Sale.objects.unpaid().update(sold_on=date(2026, 1, 3)) == 5


@pytest.mark.django_db
def test_a_short_list_reads_only_the_payments_of_its_rows() -> None:
    day = date(2026, 2, 1)
    for number in range(300):
        # Also the payment of another account is found by the index.
        rows.payment(merchant_reference=f"Y-{number}", currency="CLP")
    Sale.objects.bulk_create(Sale(number=f"Y-{number}", amount=100, currency="CLP") for number in range(300))
    Sale.objects.filter(number__in=["Y-1", "Y-2"]).update(sold_on=day)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # So few rows are read in a row, whatever there is.
            cursor.execute("ANALYZE")
            cursor.execute("SET LOCAL enable_seqscan = off")
        for found in (Sale.objects.paid(), Sale.objects.unpaid(), Sale.objects.overpaid()):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                assert found.filter(sold_on=day).count() <= 2
            [statement] = captured.captured_queries
            prefix = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            cursor.execute(f"{prefix} {statement['sql'].replace('%', '%%')}")
            plan = "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())
            payments = [line for line in plan.splitlines() if "pi_payment_reference" in line]
            assert payments, plan
            assert "SCAN payments_integration" not in plan, plan
            assert "Seq Scan on payments_integration" not in plan, plan


@pytest.mark.django_db
def test_the_admins_list_can_be_filtered() -> None:
    unpaid, paid, over = sale("U-1", 0), sale("P-1", 100), sale("O-1", 150)

    class Page(admin.ModelAdmin):  # type: ignore[type-arg]
        list_filter = (PaidFilter, "sold_on")

    def listed(**query: str) -> set[Sale]:
        request = RequestFactory().get("/", query)
        request.user = User(is_staff=True, is_superuser=True)
        return set(Page(Sale, admin.site).get_changelist_instance(request).get_queryset(request))

    everything = {unpaid, paid, over}
    assert listed() == everything
    assert listed(paid="yes") == {paid, over}
    assert listed(paid="no", sold_on__gte="2026-01-01") == {unpaid}
    assert listed(paid="no", sold_on__gte="2026-01-02") == set()
    assert listed(paid="over") == {over}
    assert listed(paid="strange") == everything

    class Unpriced(admin.ModelAdmin):  # type: ignore[type-arg]
        list_filter = (PaidFilter,)

    request = RequestFactory().get("/")
    request.user = User(is_staff=True, is_superuser=True)
    with pytest.raises(ImproperlyConfigured, match="payments_amount_field"):
        Unpriced(Order, admin.site).get_changelist_instance(request)


@pytest.mark.django_db
@pytest.mark.urls("tests.unit.admin.test_plain")
def test_an_admin_site_without_payments_has_the_columns_without_links() -> None:
    class Page(PaymentColumns, admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    sale("P-1", 100)
    page, request = Page(Sale, admin.AdminSite(name="plain")), RequestFactory().get("/")
    request.user = User(is_active=True, is_superuser=True)
    row = page.get_queryset(request).get()
    payment = row.payments.get()
    assert page.payment_link(row) == page.payment_links(row) == f"{payment.pk} (succeeded)"


def test_an_order_with_a_wrong_price_is_shown_with_what_is_wrong() -> None:
    """An old order in euros answered the whole list of orders with an error of the server."""

    class Page(PaymentColumns, admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    page = Page(Booking, admin.AdminSite(name="plain"))
    shown = [
        page.payment_price(Booking(total=Decimal(total), currency=currency))
        for total, currency in (("119.90", "USD"), ("119.90", "EUR"), ("119.90", "CLP"))
    ]
    assert shown[0] == "USD\xa0119.90"
    assert shown[1].startswith("- (a currency is one of ")
    assert shown[2].startswith("- (CLP has 0 decimals, and 119.90 has more")
    assert page.payment_price(Booking(total=119.9, currency="USD")).startswith("- (an amount is a Decimal")


def filtered(found: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The queryset after a click on "paid"."""
    monkeypatch.setattr(PaidFilter, "value", lambda _filter: "yes")
    request, model = RequestFactory().get("/"), found.model
    return PaidFilter(request, {}, model, admin.ModelAdmin(model, admin.site)).queryset(request, found)


@pytest.mark.django_db
def test_the_admins_filter_keeps_the_queryset_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnRows(models.QuerySet[Sale]):
        pass

    paid, _ = sale("P-1", 100), sale("U-1", 0)
    given_ = OwnRows(Sale, hints={"instance": paid}).prefetch_related("lines")
    found = filtered(given_, monkeypatch)
    assert type(found) is OwnRows
    assert (found._prefetch_related_lookups, found._hints) == (("lines",), {"instance": paid})
    assert list(found.prefetch_related(None)) == [paid]


class ReadsElsewhere:
    """Sends reads to a replica. Bookings are in a database of their own."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "shop" if model is Booking else "default"


@pytest.mark.django_db
def test_the_admins_filter_reads_the_rows_beside_the_payments(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paid = sale("P-1", 100)
    settings.DATABASE_ROUTERS = [ReadsElsewhere()]
    assert Sale.objects.all().db == "replica"
    assert list(filtered(Sale.objects.all(), monkeypatch)) == [paid]
    with pytest.raises(ImproperlyConfigured, match="from the database 'replica', and the payments from 'default'"):
        filtered(Booking.objects.all(), monkeypatch)


@pytest.mark.django_db
def test_the_admins_columns_of_rows_in_another_database_read_each_rows_payment(settings: Any) -> None:
    class Page(PaymentColumns, admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    paid = sale("P-1", 100)
    request = RequestFactory().get("/")
    request.user = User(is_active=True, is_superuser=True)
    settings.DATABASE_ROUTERS = [ReadsElsewhere()]
    site = admin.AdminSite(name="plain")
    found = {model: Page(model, site).get_queryset(request) for model in (Sale, Booking)}
    assert [found[Sale].db, found[Booking].db] == ["replica", "replica"]
    assert "_newest_payment" in found[Sale].query.annotations
    assert list(found[Booking].query.annotations) == ["_may_open_payments"]
    payment = paid.payments.get()
    assert Page(Sale, site).payment_link(paid) == f"{payment.pk} (succeeded)"
    assert Page(Sale, site).payment_link(Sale(number="P-2")) == "-"


# The model says what it costs


def test_the_declared_field_is_the_price() -> None:
    assert Sale(amount=100, currency="CLP").payments_price() == (100, "CLP")
    assert Booking(total=Decimal("119.90"), currency="USD").payments_price() == (11_990, "USD")
    assert Ticket(total=Decimal("990.00")).payments_price() == (990, "CLP")
    assert Sale(amount=None, currency="CLP").payments_price() is None
    assert Sale(amount=1, currency="").payments_price() is None
    with pytest.raises(ValueError, match=r"CLP has 0 decimals, and 0\.50 has more: round it first"):
        Ticket(total=Decimal("0.50")).payments_price()


@pytest.mark.parametrize("name", ["paid", "unpaid", "overpaid"])
def test_a_model_without_a_price_is_told_what_to_declare(name: str) -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        getattr(Order.objects, name)()
    assert "receivers.Order does not say which of its fields have the price" in str(raised.value)
    assert 'Add to the model: payments_amount_field = "total" and payments_currency_field' in str(raised.value)


def test_rows_of_another_database_are_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="from the database 'elsewhere', and the payments from 'default'"):
        Sale.objects.using("elsewhere").unpaid()


@isolate_apps("tests.factories.receivers")
def test_a_field_beside_a_price_of_ones_own_is_refused() -> None:
    """SQL reads the field only. Then an order whose shipping is paid would be overpaid by it."""

    class Parcel(Payable):
        number = models.CharField(max_length=9, unique=True)
        total = models.BigIntegerField()
        shipping = models.BigIntegerField(default=0)
        merchant_reference_field = "number"
        payments_amount_field = "total"
        payments_currency = "CLP"

        class Meta:
            app_label = "receivers"

        def __str__(self) -> str:
            return ""

    assert Parcel.check() == []

    class Shipped(Parcel):
        class Meta:
            app_label = "receivers"

        def payments_price(self) -> tuple[int, str]:
            return self.total + self.shipping, "CLP"

    models_of_rows: list[Any] = [Parcel, Shipped]
    for model in models_of_rows:
        [problem] = model.check()
        assert problem.id == "payments_integration.E020"
        assert "receivers.Shipped overrides payments_price()" in problem.msg
        for name in ("paid", "unpaid", "overpaid"):
            with pytest.raises(ImproperlyConfigured, match="overrides payments_price"):
                getattr(model.objects, name)()


@isolate_apps("tests.factories.receivers")
@pytest.mark.parametrize(
    "options",
    [
        {"payments_amount_field": "fee"},
        {"payments_amount_field": ""},
        {"payments_currency": "USD"},
        {"payments_currency_field": "fee_currency"},
    ],
)
def test_a_child_with_another_price_than_its_parent_is_refused(options: dict[str, str]) -> None:
    """Its row would be unpaid at the child's price, and paid and overpaid at the parent's."""

    class Basket(Payable):
        number = models.CharField(max_length=9, unique=True)
        total = models.BigIntegerField(default=0)
        merchant_reference_field = "number"
        payments_amount_field = "total"
        payments_currency = "CLP"

        class Meta:
            app_label = "receivers"

        def __str__(self) -> str:
            return ""

    class Gift(Basket):
        class Meta:
            app_label = "receivers"

    assert Basket.check() == Gift.check() == []

    class Membership(Basket):
        fee = models.BigIntegerField()
        fee_currency = models.CharField(max_length=3)

        class Meta:
            app_label = "receivers"

    for name, value in options.items():
        setattr(Membership, name, value)
    [problem] = Basket.check()
    assert problem.id == "payments_integration.E020"
    assert problem.msg.startswith("receivers.Membership declares another price than its parent.")
    for call in (Basket.objects.paid, Basket.objects.unpaid, Basket.objects.overpaid):
        with pytest.raises(ImproperlyConfigured, match="declares another price"):
            call()


class MoneyAttribute(DeferredAttribute):
    def __get__(self, instance: Any, cls: Any = None) -> Any:
        found = super().__get__(instance, cls)
        if instance is None or found is None:
            return found
        return SimpleNamespace(amount=found, currency=instance.total_currency)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class MoneyField(models.DecimalField):
    """As django-money's: the column is a decimal, and the row's value an object with its currency."""

    descriptor_class = MoneyAttribute
    currency_field_name = None


@isolate_apps("tests.factories.receivers")
def test_a_field_of_django_money_has_the_price() -> None:
    class Bill(Payable):
        number = models.CharField(max_length=9, unique=True)
        total = MoneyField(max_digits=9, decimal_places=2, null=True)
        total_currency = models.CharField(max_length=3)
        merchant_reference_field = "number"
        payments_amount_field = "total"
        payments_currency_field = "total_currency"

        class Meta:
            app_label = "receivers"

        def __str__(self) -> str:
            return ""

    class InPesos(Bill):
        payments_currency_field = ""
        payments_currency = "CLP"

        class Meta:
            app_label = "receivers"
            proxy = True

    assert Bill.check() == []
    (problem,) = InPesos.check()
    assert (problem.id, problem.hint) == (
        "payments_integration.E020", 'Add payments_currency_field = "total_currency".',
    )  # fmt: skip
    with pytest.raises(ImproperlyConfigured, match="each of its amounts has a currency"):
        InPesos.objects.paid()
    assert Bill(total=Decimal("119.90"), total_currency="USD").payments_price() == (11_990, "USD")
    assert Bill(total=None, total_currency="USD").payments_price() is None
    assert InPesos(total=Decimal(990), total_currency="CLP").payments_price() == (990, "CLP")
    with pytest.raises(ValueError, match="and its currency CLP"):
        InPesos(total=Decimal("119.90"), total_currency="USD").payments_price()


@isolate_apps("tests.factories.receivers")
def test_options_of_the_price_are_checked() -> None:
    def model(**names: Any) -> Any:
        meta = type("Meta", (), {"app_label": "receivers"})
        fields = {
            "__module__": __name__,
            "Meta": meta,
            "__str__": str,
            "number": models.CharField(max_length=9, unique=True),
        }
        return type(f"Made{next(_numbers)}", (Payable,), {"merchant_reference_field": "number", **fields, **names})

    def found(**names: Any) -> list[str]:
        return [f"{problem.id}: {problem.msg}" for problem in model(**names).check()]

    total = {"total": models.DecimalField(max_digits=9, decimal_places=2)}
    assert found(**total, payments_amount_field="total", payments_currency="USD") == []
    [warned] = found(total=models.DecimalField(max_digits=9, decimal_places=2))
    assert "W021" in warned
    for options, words in (
        ({"payments_amount_field": "sum", "payments_currency": "USD"}, "payments_amount_field names 'sum'"),
        ({"payments_amount_field": "number", "payments_currency": "USD"}, "payments_amount_field names 'number'"),
        ({"payments_amount_field": "cents"}, "nothing says in which currency"),
        ({"payments_amount_field": "cents", "payments_currency": "usd"}, "nothing says in which currency"),
        ({"payments_amount_field": "cents", "payments_currency_field": "id"}, "payments_currency_field names 'id'"),
    ):
        [problem] = found(cents=models.BigIntegerField(), **options)
        assert problem.startswith("payments_integration.E020"), problem
        assert words in problem
        with pytest.raises(ImproperlyConfigured, match=words):
            model(cents=models.BigIntegerField(), **options).objects.paid()
    # A FloatField or a table of currencies is in the shop already: to name another field is no way out.
    wrong = model(total=models.FloatField(), payments_amount_field="total", payments_currency_field="id")
    assert ["define payments_price() instead" in str(each.hint) for each in wrong.check()] == [True, True]
    dated = model(
        day=models.DateField(unique=True), cents=models.BigIntegerField(),
        merchant_reference_field="day", payments_amount_field="cents", payments_currency="USD",
    )  # fmt: skip
    with pytest.raises(ImproperlyConfigured, match="a text, an integer or a UUID, and 'day' is none"):
        dated.objects.paid()


@pytest.mark.django_db
def test_the_documented_examples_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    section = DOCS.read_text().partition("## Paid, unpaid and overpaid orders")[2]
    filtered, page = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2]
    monkeypatch.setitem(sys.modules, "shop.models", SimpleNamespace(Order=Sale))
    day = date(2026, 11, 25)
    found = sale("U-1", 0, sold_on=day)
    sale("P-1", 100, sold_on=day)
    sale("U-2", 0)
    exec(filtered.replace("created_at__date", "sold_on"), {})
    assert capsys.readouterr().out == f"1 <PayableQuerySet [<Sale: {found}>]>\n"
    exec(page, {})
    try:
        assert PaidFilter in admin.site.get_model_admin(Sale).list_filter
    finally:
        admin.site.unregister(Sale)
