"""Balances: their history as a chart and a table, and refreshing them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration.contrib.backoffice.admin.balance_changes import CHART_CHANGES
from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.models import Balance
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

REFRESH_ALL = "/admin/payments_integration/balance/refresh-all/"


def test_the_newest_changes_are_in_the_chart_and_its_table(boss: Client) -> None:
    row = rows.balance(currency="CLP", available=777)
    BalanceChange.objects.bulk_create(
        BalanceChange(
            account=row.account, currency=row.currency, at=rows.AT + timedelta(minutes=number),
            available=1000 + number, pending=0, reserve=0, hold=0, debt=number,
        )
        for number in range(1, CHART_CHANGES + 60)
    )  # fmt: skip
    rows.balance(currency="USD", available=55)
    with CaptureQueriesContext(connection) as queries:
        html = page(boss, url("balance", "change", row.pk))
    assert len(queries) <= 12
    found = re.search(r'<script id="pi-balance-data" type="application/json">(.*?)</script>', html)
    assert found is not None
    data = json.loads(found[1])
    assert [series["name"] for series in data["series"]] == ["available", "pending", "reserve", "hold", "debt"]
    available = data["series"][0]
    assert len(available["values"]) == len(data["moments"]) == CHART_CHANGES
    assert available["values"] == sorted(available["values"])
    assert available["values"][-1] == 1000 + CHART_CHANGES + 59
    assert data["moments"][-1] - data["moments"][0] == (CHART_CHANGES - 1) * 60_000
    assert data["decimals"] == 0
    assert f"<td>CLP\xa01,{CHART_CHANGES + 59}</td>" in html
    assert html.count('<tr><th scope="row">2025-03-04') == CHART_CHANGES
    assert "vendor/chart.js/chart.umd.min.js" in html


def test_a_balance_without_history_shows_none(boss: Client) -> None:
    row = rows.balance()
    BalanceChange.objects.all().delete()
    html = page(boss, url("balance", "change", row.pk))
    assert "<canvas" not in html
    assert "None." in html


@pytest.mark.django_db(transaction=True)
def test_refreshing_balances_reads_every_account(payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = browser(User.objects.create_superuser("boss"))
    payments_sandbox.engine.fund("CLP", 4321)
    assert f'action="{REFRESH_ALL}"' in page(client, url("balance", "changelist"))
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    response = client.post(REFRESH_ALL, follow=True)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    assert "of the account default were refreshed" in response.content.decode()
    assert Balance.objects.get(account="default", currency="CLP").available == 4321


def test_an_account_that_cannot_be_read_is_reported_and_the_others_are_refreshed(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens where the settings point.
    response = boss.post(REFRESH_ALL, follow=True)
    messages = [str(message) for message in response.context["messages"]]
    assert [text.split(":")[0] for text in messages] == ["default", "second"]


@pytest.mark.case(88)
def test_refreshing_balances_needs_the_permission_to_view_them(
    staff: Callable[..., Client], nothing_called: list[str]
) -> None:
    assert staff("view_payment").post(REFRESH_ALL).status_code == 403
    assert nothing_called == []
    client = staff("view_balance")
    assert client.get(REFRESH_ALL).status_code == 302
    assert client.post(REFRESH_ALL).status_code == 302
    assert nothing_called == ["sync_balances", "sync_balances"]
    assert Client().post(REFRESH_ALL).status_code == 302
    assert nothing_called == ["sync_balances", "sync_balances"]
