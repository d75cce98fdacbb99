"""Merchant references as links to the merchant's own objects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.urls import path

from payments_integration.admin.shared.sections import Page
from payments_integration.contrib.backoffice.admin.model_admins import BackOfficePaymentAdmin
from payments_integration.contrib.backoffice.admin.sections import orders
from payments_integration.models import Payment
from payments_integration.payable import Payable, PayableQuerySet
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.payable.payables import Customer, Invoice, Order

# Another name than the default site's, by which the dashboard looks for its site.
site = admin.AdminSite(name="with-orders")
site.register(Payment, BackOfficePaymentAdmin)
site.register(Order)
urlpatterns = [path("admin/", site.urls)]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

BOSS = User(is_superuser=True, is_active=True)


def seen_by(user: Any = BOSS) -> Page:
    request = RequestFactory().get("/")
    request.user = user
    return Page(site, request)


def order_page(order: Order) -> str:
    return f"/admin/receivers/order/{order.pk}/change/"


@pytest.fixture
def hook(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Sets a function as ORDER_URL."""

    def use(function: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(f"{__name__}.hooked", function)
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ORDER_URL": f"{__name__}.hooked"}

    return use


def hooked(obj: Any) -> Any:
    return ""


def test_the_headline_links_to_the_order_in_this_admin() -> None:
    order = Order.objects.create(number="ORD-90001")
    payment = rows.payment(merchant_reference="ORD-90001", payer={"name": "Ana Soto"}, currency="CLP", amount=15_990)
    html = page(browser(User.objects.create_superuser("boss")), url("payment", "change", payment.pk))
    headline = html.split('class="pi-headline">')[1].split("</p>")[0]
    parts = [part.split("</span>")[0] for part in headline.split("<span>")[1:]]
    assert parts[0].endswith("CLP\xa015,990")
    assert parts[1].endswith("succeeded")
    assert parts[2] == "Ana Soto"
    assert parts[3] == f'<a href="{order_page(order)}">ORD-90001 →</a>'


def test_who_may_not_view_orders_gets_the_orders_own_address_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Order.objects.create(number="A-1")
    payment = rows.payment(merchant_reference="A-1")
    user = User.objects.create_user("viewer", is_staff=True)
    assert orders.order_link(seen_by(user), payment) == "A-1"
    monkeypatch.setattr(Order, "get_absolute_url", lambda self: f"/orders/{self.number}/", raising=False)
    assert orders.order_url(seen_by(user), payment) == "/orders/A-1/"
    user.user_permissions.add(Permission.objects.get(codename="view_order", content_type__app_label="receivers"))
    user = User.objects.get(pk=user.pk)
    assert orders.order_url(seen_by(user), payment).startswith("/admin/receivers/order/")


@isolate_apps("tests.factories.receivers")
def test_a_proxy_leads_to_the_page_of_the_packages_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Purchase(Payable, User):
        merchant_reference_field = "username"

        class Meta:
            app_label = "receivers"
            proxy = True

    packages = admin.AdminSite(name="packages")
    packages.register(User)
    monkeypatch.setattr(apps, "get_models", lambda: [Purchase])
    user = Purchase.objects.create(username="A-1")
    shown = Page(packages, seen_by().request)
    monkeypatch.setattr(orders.display, "change_url", lambda _site, model, pk: f"/{model.__name__}/{pk}/")
    assert orders.order_url(shown, rows.payment(merchant_reference="A-1")) == f"/User/{user.pk}/"


def test_an_order_is_found_as_payable_finds_it() -> None:
    order = Order.objects.create(number="A-1")
    of = rows.payment(merchant_reference="A-1")
    payout, deposit = rows.payout(merchant_reference="A-1"), rows.deposit_reference(merchant_reference="A-1")
    others = [
        rows.payment(merchant_reference="a-1"),
        rows.payment(merchant_reference="A-1", account="second"),
        rows.payment(merchant_reference="A-1", method_family="deposit_reference"),
        rows.payment(merchant_reference=None),
        rows.payment(merchant_reference=""),
        deposit,
    ]
    assert {orders.order_url(seen_by(), each) for each in (of, payout)} == {order_page(order)}
    assert {orders.order_url(seen_by(), each) for each in others} == {""}
    assert orders.order_link(seen_by(), None) == "–"


def test_deposits_belong_to_models_that_include_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Customer, "get_absolute_url", lambda self: f"/customers/{self.pk}/", raising=False)
    customer = Customer.objects.create()
    deposit = rows.deposit_reference(merchant_reference=str(customer.code))
    assert orders.order_url(seen_by(), deposit) == f"/customers/{customer.pk}/"


def test_a_reference_of_several_rows_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PayableQuerySet.filter
    Order.objects.create(number="A-1")
    payment = rows.payment(merchant_reference="A-1")
    assert orders.order_url(seen_by(), payment)
    monkeypatch.setattr(PayableQuerySet, "filter", lambda self, **wanted: [*real(self, **wanted)] * 2)
    assert orders.order_url(seen_by(), payment) == ""


def test_a_link_costs_one_statement_per_model() -> None:
    payment = rows.payment(merchant_reference="no-such-order")
    with CaptureQueriesContext(connection) as queries:
        orders.order_url(seen_by(), payment)
    models = [model for model in apps.get_models() if issubclass(model, Payable) and not model._meta.proxy]
    # Those with another type of reference are not asked. Two are of the savepoint.
    assert len(queries) <= len(models) + 2


def test_numbers_beyond_the_column_find_nothing() -> None:
    invoice = Invoice.objects.create(brand="default")
    huge = rows.payment(merchant_reference="9" * 40)
    right = rows.payment(merchant_reference=str(invoice.pk))
    assert [orders.order_url(seen_by(), each) for each in (huge, right)] == ["", ""]


def test_the_setting_comes_first_and_may_leave_a_row_to_the_models(hook: Any) -> None:
    order = Order.objects.create(number="A-1")
    one, other = rows.payment(merchant_reference="A-1"), rows.payout(merchant_reference="A-1")
    hook(lambda obj: f"https://shop.example/{obj.kind}/{obj.merchant_reference}" if obj.pk == one.pk else None)
    assert orders.order_url(seen_by(), one) == "https://shop.example/payment/A-1"
    assert orders.order_url(seen_by(), other) == order_page(order)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "//evil.example", "/\\evil.example", "https://bank@evil.example/", "orders/1",
        "/a b", 7, "/a\nb", "data:text/html,x",
    ],
)  # fmt: skip
def test_only_web_addresses_become_links(hook: Any, caplog: pytest.LogCaptureFixture, address: Any) -> None:
    hook(lambda obj: address)
    assert orders.order_link(seen_by(), rows.payment(merchant_reference="<A>")) == "<A>"
    assert "no http" in caplog.text


@pytest.mark.parametrize("address", ["https://erp.example/o?a=1&b=2", "http://127.0.0.1/x", "/orders/1/?a=1", "/"])
def test_addresses_are_escaped(hook: Any, address: str) -> None:
    hook(lambda obj: address)
    shown = orders.order_link(seen_by(), rows.payment(merchant_reference="<A>"))
    assert shown == f'<a href="{address.replace("&", "&amp;")}">&lt;A&gt; →</a>'


def _fails(obj: Any) -> str:
    raise RuntimeError("no shop")


def _breaks_the_database(obj: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")
    return "/"


@pytest.mark.parametrize("function", [_fails, _breaks_the_database])
def test_a_function_that_fails_breaks_no_page(hook: Any, caplog: pytest.LogCaptureFixture, function: Any) -> None:
    hook(function)
    payment = rows.payment(merchant_reference="A-1")
    with caplog.at_level(logging.ERROR):
        html = page(browser(User.objects.create_superuser("boss")), url("payment", "change", payment.pk))
    assert "<span>A-1</span>" in html
    assert f"{__name__}.hooked" in caplog.text


def test_a_model_that_fails_breaks_no_page(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Order, "get_absolute_url", _fails, raising=False)
    Order.objects.create(number="A-1")
    assert orders.order_link(seen_by(AnonymousUser()), rows.payment(merchant_reference="A-1")) == "A-1"
    assert "no shop" in caplog.text


def test_the_name_in_the_headline_is_masked_and_erased(client: Client) -> None:
    payment = rows.payment(payer={"name": "Ana Soto"}, merchant_reference=None)
    gone = rows.payment(payer={"name": "Ana Soto"}, merchant_reference=None, erased_at=rows.AT)
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_payment"))
    for row, shown in ((payment, "•••"), (gone, "erased"), (rows.payment(payer={"name": 7}), "order-")):
        headline = page(browser(viewer), url("payment", "change", row.pk)).split("pi-headline")[1].split("</p>")[0]
        assert shown in headline
        assert "Ana" not in headline
