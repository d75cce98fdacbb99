"""The menu above every page of ours, and the search beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import include, path, reverse

from payments_integration.contrib.backoffice.admin import menu as menus
from payments_integration.contrib.backoffice.admin.model_admins import BackOfficePaymentAdmin
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database


def menu(html: str) -> list[str]:
    """The labels of the menu's links, in their order; the current one has a star."""
    shown = html.partition('<div class="pi-menu">')[2].partition("</nav>")[0]
    found = re.findall(r'<a href="[^"]+"( aria-current="page")?>([^<]+)</a>', shown)
    return [label + ("*" if current else "") for current, label in found]


def test_the_menu_has_the_places_of_a_day_and_then_the_technical_pages(boss: Client) -> None:
    assert menu(page(boss, url("payment", "changelist"))) == [
        "Overview", "To do", "Payments*", "Refunds", "Payouts", "Deposits", "Balances", "Cash book",
        "Events", "Operations", "Receipts by mail", "Reconciliation runs", "Technical state", "Webhook endpoints",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "current"),
    [
        (reverse("admin:app_list", args=["payments_integration"]), "Overview*"),
        (reverse("admin:payments_finance_movement_cash-book"), "Cash book*"),
        (reverse("admin:payments_finance_movement_changelist"), "Cash book*"),
        (url("payout", "add"), "Payouts*"),
        (url("reconciliationrun", "technical"), "Technical state*"),
        (url("reconciliationrun", "changelist"), "Reconciliation runs*"),
        (url("payment", "search"), None),
    ],
)
def test_the_menu_says_where_the_reader_is(boss: Client, where: str, current: str | None) -> None:
    assert [label for label in menu(page(boss, where)) if label.endswith("*")] == ([current] if current else [])


def test_the_folded_technical_pages_say_where_the_reader_is(boss: Client) -> None:
    current = '<summary aria-current="true">Technical</summary>'
    assert current in page(boss, url("event", "changelist"))
    assert current not in page(boss, url("payment", "changelist"))


def test_a_row_belongs_to_its_list(boss: Client) -> None:
    assert "Refunds*" in menu(page(boss, url("refund", "change", rows.refund().pk)))


def test_the_menu_has_only_what_the_user_may_see(staff: Callable[..., Client]) -> None:
    assert menu(page(staff("view_payment"), url("payment", "changelist"))) == ["Overview", "To do", "Payments*"]
    html = page(staff("view_event"), url("event", "changelist"))
    assert menu(html) == ["Overview", "Events*", "Technical state"]
    # Events are not searched.
    assert "pi-search" not in html


def test_every_page_has_one_search(boss: Client) -> None:
    action = f'action="{url("payment", "search")}"'
    for where in (url("balance", "changelist"), url("payment", "change", rows.payment().pk), url("payout", "add")):
        html = page(boss, where)
        assert action in html
        assert html.count('id="pi-search"') == 1, where
    html = page(boss, url("payment", "search") + "?q=ana")
    assert action not in html
    assert html.count('id="pi-search"') == 1


def test_a_window_for_choosing_a_row_has_no_menu(boss: Client) -> None:
    assert 'class="pi-menu"' not in page(boss, url("payment", "changelist") + "?_popup=1")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("where", ["", "payment/", "payment/search/?q=ana"])
def test_a_site_with_the_name_of_the_usual_one_has_its_own_menu(
    boss: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, where: str, is_first: bool
) -> None:
    site = admin.AdminSite()
    site.register(Payment, BackOfficePaymentAdmin)
    # Django keeps the sites in a set, in any order.
    monkeypatch.setattr(menus, "all_sites", [site, admin.site] if is_first else [admin.site, site])
    routes = [path("desk/", site.urls), path("payments/", include("payments_integration.urls"))]
    settings.ROOT_URLCONF = type("Routes", (), {"urlpatterns": routes})
    html = page(boss, f"/desk/payments_integration/{where}")
    assert [label.strip("*") for label in menu(html)] == ["Overview", "Payments"]
    # An entry of the other site would have no address.
    assert 'href=""' not in html.partition('<div class="pi-menu">')[2].partition("</nav>")[0]
