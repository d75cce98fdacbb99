"""A fresh installation: three steps with their state on the overview and on the technical page, instead of zeros."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.contrib.backoffice.test_overview import DASHBOARD, TECHNICAL, section, text

pytestmark = pytest.mark.any_database

OPERATOR = ("view_payment", "view_webhookendpoint", "view_event", "view_reconciliationrun")


@pytest.fixture(autouse=True)
def _one_account(settings: Any) -> None:
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": []}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": account}}


def states(html: str) -> list[str]:
    cache.clear()
    return re.findall(r"</strong> <span[^>]*>([^<]+)</span>", section(html, "pi-setup"))


def reconciled() -> None:
    rows.account_state(account="default", watermark=timezone.now())


def test_a_fresh_installation_shows_three_steps_and_no_zeros(boss: Client) -> None:
    html = page(boss, DASHBOARD)
    assert states(html) == ["not yet", "not yet", "not yet"]
    shown = text(section(html, "pi-setup"))
    assert "payments_endpoints create https://testserver/payments/webhook/" in shown
    assert "payments_reconcile" in shown
    assert 'href="/admin/payments_integration/webhookendpoint/add/"' in section(html, "pi-setup")
    for absent in ("pi-todo", "pi-attention", "pi-today", "pi-money", "pi-balances"):
        assert absent not in html.split('id="content-main"')[0], absent
    assert states(page(boss, TECHNICAL)) == ["not yet", "not yet", "not yet"]


def test_each_step_has_its_state(boss: Client) -> None:
    rows.endpoint()
    assert states(page(boss, DASHBOARD)) == ["done", "not yet", "not yet"]
    rows.event(received_at=timezone.now(), created_at=timezone.now(), source="webhook")
    assert states(page(boss, DASHBOARD)) == ["done", "done", "not yet"]
    reconciled()
    for address in (DASHBOARD, TECHNICAL):
        assert "pi-setup" not in page(boss, address)
        cache.clear()
    assert "Nothing is to be done." in page(boss, DASHBOARD)


def test_a_secret_in_the_settings_is_done_but_is_no_address(boss: Client, settings: Any) -> None:
    assert "The provider knows your webhook address not yet" in text(section(page(boss, DASHBOARD), "pi-setup"))
    settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]["WEBHOOK_SECRETS"] = ["whsec_1"]
    assert states(page(boss, DASHBOARD)) == ["done", "not yet", "not yet"]
    shown = text(section(page(boss, DASHBOARD), "pi-setup"))
    assert "The secret of your webhooks is set done" in shown
    assert "The provider knows your webhook address" not in shown


def test_the_steps_stay_above_the_first_money_until_it_is_reconciled(boss: Client) -> None:
    rows.payment(created_at=timezone.now())
    html = page(boss, DASHBOARD)
    assert html.index("pi-setup") < html.index("pi-todo") < html.index("pi-money")
    cache.clear()
    reconciled()
    # The address is missing still: from now on that is a problem among others.
    html = page(boss, DASHBOARD)
    assert "pi-setup" not in html
    assert "no webhook endpoint is known" in text(section(html, "pi-attention"))


def test_other_problems_stand_beside_the_steps(boss: Client) -> None:
    now = timezone.now()
    rows.run(state="failed", started_at=now - timedelta(minutes=1), error="boom")
    html = page(boss, DASHBOARD)
    shown = text(section(html, "pi-attention"))
    assert "reconciliation keeps failing" in shown
    assert "never reconciled" not in shown
    assert "no webhook endpoint is known" not in shown


def test_the_steps_are_for_those_who_may_see_what_they_are_about(staff: Callable[..., Client]) -> None:
    for left_out in OPERATOR[1:]:
        client = staff(*(name for name in OPERATOR if name != left_out))
        assert "pi-setup" not in page(client, DASHBOARD)
    html = section(page(staff(*OPERATOR), DASHBOARD), "pi-setup")
    assert "payments_reconcile" in html
    # What they may not do has no button.
    assert "<button" not in html
    assert "<a " not in html
    html = section(page(staff(*OPERATOR, "run_reconciliation", "manage_webhookendpoint"), DASHBOARD), "pi-setup")
    assert "Register it" in html
    assert 'name="kind" value="events"' in html
    assert "csrfmiddlewaretoken" in html


def test_several_accounts_name_theirs(boss: Client, settings: Any) -> None:
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    accounts["br"] = {**accounts["default"], "API_KEY": "sk_test_br", "NAME": "Brasil"}
    html = section(page(boss, f"{DASHBOARD}?account=br"), "pi-setup")
    assert "payments_reconcile --account br" in html
    assert "/payments/webhook/br/ --account br" in html
    assert "webhookendpoint/add/?account=br" in html


def test_a_sandbox_makes_the_first_payment_itself(boss: Client, settings: Any) -> None:
    account = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    for base_url, is_sandbox in (("https://provider.example", False), ("http://127.0.0.1:8400", True)):
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {**account, "BASE_URL": base_url}}}
        html = page(boss, DASHBOARD)
        assert ("python manage.py payments_trigger payment.succeeded" in html) is is_sandbox


def test_the_steps_take_no_statement(boss: Client) -> None:
    def count() -> int:
        cache.clear()
        with CaptureQueriesContext(connection) as counted:
            page(boss, DASHBOARD)
        return len(counted)

    with_steps = count()
    reconciled()
    rows.balance()
    assert with_steps <= count()


def test_the_admins_index_leads_to_the_overview(boss: Client, staff: Callable[..., Client]) -> None:
    link = '<a href="/admin/payments_backoffice/overview/"'
    index = page(boss, "/admin/")
    assert link in index
    assert "Overview</a>" in index
    assert boss.get("/admin/payments_backoffice/overview/").headers["Location"] == DASHBOARD
    assert link in page(staff("view_refund"), "/admin/")
    # The page behind it would not be found.
    other = staff("view_note")
    assert link not in page(other, "/admin/")
    assert other.get("/admin/payments_backoffice/overview/").status_code == 403


def test_the_empty_list_of_payments_leads_to_the_steps(boss: Client) -> None:
    link = f'<a href="{reverse("admin:app_list", args=["payments_integration"])}">overview</a> shows what is left'
    assert link in page(boss, url("payment", "changelist"))
    # Where a filter or a search finds nothing, that is not the reason.
    for query in ("status=failed", "q=nobody"):
        assert link not in page(boss, f"{url('payment', 'changelist')}?{query}")
    rows.payment()
    assert link not in page(boss, url("payment", "changelist"))
