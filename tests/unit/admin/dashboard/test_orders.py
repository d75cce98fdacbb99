"""Orders that do not match their payments: the tiles of the overview and their page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from example_project.shop.models import Order, Product
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.dashboard.test_dashboard import DASHBOARD, section, text

UNPAID, WITHOUT = "Payments whose order is not paid", "Paid orders without a payment"


@pytest.fixture(autouse=True)
def _no_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def ordered(reference: str, **fields: Any) -> Order:
    product, _ = Product.objects.get_or_create(slug="tea", defaults={"name": "Tea"})
    values = {"amount": 1050, "currency": "USD", "country": "EC", "method_code": "ec_card", "name": "Ana"}
    return Order.objects.create(
        submission=reference, reference=reference, product=product, **{**values, "email": "ana@shop.example", **fields}
    )


def paid(reference: str, **fields: Any) -> Payment:
    at = timezone.now() - timedelta(hours=1)
    return rows.payment(merchant_reference=reference, status="succeeded", created_at=at, succeeded_at=at, **fields)


def tiles(client: Client) -> dict[str, tuple[int, str]]:
    attention = section(page(client, DASHBOARD), "pi-attention")
    tile = r'<a href="([^"]+)"><span class="pi-count">(\d+)</span> <span class="pi-label">([^<]+)'
    found = re.findall(tile, attention)
    return {label: (int(number), address) for address, number, label in found}


def viewer(*labels: str) -> Client:
    """A staff member who may view the named models, as ``app.model``."""
    user = User.objects.create_user(f"viewer-{User.objects.count()}", is_staff=True)
    for label in labels:
        app, model = label.split(".")
        user.user_permissions.add(Permission.objects.get(codename=f"view_{model}", content_type__app_label=app))
    return browser(user)


def test_the_tiles_say_what_to_do_and_link_to_the_rows(boss: Client) -> None:
    ordered("ORD-1")
    payment = paid("ORD-1", amount=1050, amount_received=1050)
    lost = ordered("ORD-2", paid_at=timezone.now())
    matching = ordered("ORD-3", paid_at=timezone.now())
    other = paid(matching.reference)
    found = tiles(boss)
    assert (found[UNPAID][0], found[WITHOUT][0]) == (1, 1)
    shown = text(section(page(boss, DASHBOARD), "pi-attention"))
    assert "Mark the order as paid and deliver, or refund the payment." in shown
    assert "Find out why the order is marked as paid." in shown
    assert found[UNPAID][1] == found[WITHOUT][1] == f"{url('payment', 'orders')}?account=default"
    html = page(boss, found[UNPAID][1])
    assert "Compared: the newest 1,000 payments" in text(html)
    assert f'<a href="{url("payment", "change", payment.pk)}">{payment.pk}</a>' in html
    assert "USD 10.50 ORD-1" in text(html)
    assert f'<a href="/admin/shop/order/{lost.pk}/change/">ORD-2</a>' in html
    assert f">{other.pk}<" not in html
    assert "ORD-3" not in html


def test_without_a_difference_nothing_needs_to_be_done(boss: Client) -> None:
    assert tiles(boss)[UNPAID][0] == tiles(boss)[WITHOUT][0] == 0
    assert "Mark the order" not in page(boss, DASHBOARD)
    assert text(page(boss, url("payment", "orders"))).count("None.") == 2


def test_without_the_option_there_are_no_tiles(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "payments_paid", None)
    assert not {UNPAID, WITHOUT} & tiles(boss).keys()
    assert "No model says which of its rows are paid." in page(boss, url("payment", "orders"))


def test_each_part_needs_the_permission_to_view_its_rows(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    order = ordered("ORD-1")
    payment = paid("ORD-1")
    ordered("ORD-2", paid_at=timezone.now())
    both = viewer("payments_integration.payment", "shop.order")
    assert {UNPAID, WITHOUT} <= tiles(both).keys()
    only_payments = viewer("payments_integration.payment")
    assert UNPAID in tiles(only_payments)
    assert WITHOUT not in tiles(only_payments)
    html = page(only_payments, url("payment", "orders"))
    assert payment.pk in html
    assert "ORD-1" in html  # the payment's own merchant reference
    assert f"/shop/order/{order.pk}/" not in html
    assert "ORD-2" not in html
    only_orders = viewer("shop.order", "payments_integration.refund")
    assert not {UNPAID, WITHOUT} & tiles(only_orders).keys()
    assert only_orders.get(url("payment", "orders")).status_code == 403
    # A model that has no page in the admin.
    monkeypatch.delitem(admin.site._registry, Order)
    assert WITHOUT in tiles(both)
    assert WITHOUT not in tiles(only_payments)
    assert "ORD-2" in page(both, url("payment", "orders"))


def test_each_account_has_its_own_differences(boss: Client) -> None:
    ordered("ORD-2", paid_at=timezone.now())
    second = page(boss, f"{url('payment', 'orders')}?account=second")
    assert "No model says" in second
    assert '<a href="?account=default">' in second


@pytest.mark.parametrize("reference", ["<script>x</script>", "A\u202eB"])
def test_references_are_shown_as_text(boss: Client, reference: str) -> None:
    ordered(reference)
    paid(reference)
    html = page(boss, url("payment", "orders"))
    assert reference not in html


@pytest.mark.parametrize("method", ["post", "put"])
def test_the_page_is_read_only(boss: Client, method: str) -> None:
    call: Callable[..., Any] = getattr(boss, method)
    assert call(url("payment", "orders")).status_code == 405
