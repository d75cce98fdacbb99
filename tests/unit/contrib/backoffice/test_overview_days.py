"""The overview's first numbers: today and yesterday against the same weekdays of the last weeks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.cache import cache
from django.test import Client
from django.utils import translation

from payments_integration.contrib.finance.models import MovementKind
from tests.factories import rows
from tests.unit.admin.conftest import page
from tests.unit.contrib.backoffice.test_overview import DASHBOARD, moved, section, text

#: A Wednesday.
NOW = datetime(2026, 5, 20, 12, 40, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _now(settings: Any) -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def on(days: int, hour: int, amount: int, kind: str = "payment", **fields: Any) -> None:
    """Money that moved so many days ago, at an hour."""
    at = (NOW - timedelta(days=days)).replace(hour=hour, minute=0)
    moved(at, amount, kind, occurred_at=at, **fields)


def figures(html: str, day: str) -> dict[tuple[str, str], str]:
    """The text of each figure by currency and heading."""
    found = {}
    for row in re.findall(r'<tr>\s*<th scope="row">(.*?)</tr>', section(html, f"pi-{day}"), re.DOTALL):
        currency = row.split("<")[0]
        for heading, cell in re.findall(r'<td data-label="([^"]+)">(.*?)</td>', row, re.DOTALL):
            found[currency, heading] = text(cell).strip()
    return found


def test_each_kind_stands_beside_what_is_usual(boss: Client) -> None:
    for days in (7, 14, 21, 28):
        on(days, 9, 100_00 + days)
        on(days, 9, -2_00, MovementKind.PAYMENT_FEE)
        on(days, 9, -1_00, MovementKind.PAYOUT_FEE)
        on(days, 9, -50_00, MovementKind.PAYOUT)
    on(8, 9, 999_00)  # a Tuesday
    on(0, 9, 120_00)
    on(0, 9, -4_00, MovementKind.PAYMENT_FEE)
    on(0, 9, -7_00, MovementKind.REFUND)
    today = figures(page(boss, DASHBOARD), "today")
    assert today == {
        ("USD", "Received"): "120.00 usual 100.18 (+20 %)",
        ("USD", "Fees"): "4.00 usual 3.00",
        ("USD", "Net"): "116.00 usual 97.18",
        ("USD", "Refunded"): "7.00 usual 0.00",
        ("USD", "Paid out"): "0.00 usual 50.00",
    }


def test_the_usual_of_today_ends_at_the_same_time_of_the_day(boss: Client) -> None:
    """Otherwise every morning would look like a bad day."""
    for days in (7, 8):
        on(days, 12, 100_00)
        on(days, 13, 300_00)
    html = page(boss, DASHBOARD)
    assert "Today until 12:40 p.m." in html
    assert figures(html, "today")["USD", "Received"] == "0.00 usual 100.00 (−100 %)"
    assert "Yesterday, Tuesday" in html
    assert figures(html, "yesterday")["USD", "Received"] == "0.00 usual 400.00 (−100 %)"


def test_the_same_time_is_that_of_the_sites_clocks(boss: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/Santiago"
    at = NOW - timedelta(days=7)
    for minutes, amount in ((-1, 100_00), (1, 300_00)):
        moved(at + timedelta(minutes=minutes), amount, occurred_at=at + timedelta(minutes=minutes))
    html = page(boss, DASHBOARD)
    assert "Today until 8:40 a.m." in html
    assert figures(html, "today")["USD", "Received"].startswith("0.00 usual 100.00")


def test_weeks_before_the_first_money_do_not_count(boss: Client) -> None:
    on(15, 9, 100_00)
    on(7, 9, 200_00)
    html = page(boss, DASHBOARD)
    assert figures(html, "today")["USD", "Received"].startswith("0.00 usual 100.00")
    assert "the average of the same weekday in the last 2 weeks" in html


def test_a_change_is_written_as_the_amount_beside_it(boss: Client) -> None:
    on(7, 9, 100_00)
    on(0, 9, 2_000_00)
    with translation.override("es"):
        html = page(boss, DASHBOARD)
    assert "2.000,00" in html
    assert "(+1.900\xa0%)" in html


def test_in_the_first_week_nothing_is_usual(boss: Client) -> None:
    on(6, 9, 100_00)
    on(0, 9, 100_00)
    html = page(boss, DASHBOARD)
    assert "What is usual is known after a week." in html
    assert figures(html, "today")["USD", "Received"] == "100.00"
    assert "Nothing moved." in section(html, "pi-yesterday")


def test_currencies_stay_apart_and_only_those_with_money_have_a_row(boss: Client) -> None:
    on(0, 9, 100_00)
    on(0, 9, 5_000, currency="CLP")
    on(1, 9, 7_000, currency="CLP")
    rows.payment(currency="PEN", created_at=NOW - timedelta(hours=1))
    html = page(boss, DASHBOARD)
    assert {currency for currency, _ in figures(html, "today")} == {"CLP", "USD"}
    assert {currency for currency, _ in figures(html, "yesterday")} == {"CLP"}
    assert figures(html, "yesterday")["CLP", "Received"] == "7,000"


def test_chargebacks_have_a_column_if_there_was_one(boss: Client) -> None:
    on(0, 9, 100_00)
    assert ("USD", "Charged back") not in figures(page(boss, DASHBOARD), "today")
    on(1, 9, -100_00, MovementKind.CHARGEBACK)
    cache.clear()
    assert figures(page(boss, DASHBOARD), "yesterday")["USD", "Charged back"] == "100.00"


def test_sums_of_a_part_of_a_day_may_leave_int64(boss: Client) -> None:
    for number in range(2):
        on(7, 9, 2**63 - 1, currency="CLP", object_id=f"pay_{number}")
    assert "usual 18,446,744,073,709,551,614" in figures(page(boss, DASHBOARD), "today")["CLP", "Received"]


def test_each_day_leads_to_its_cash_book(boss: Client) -> None:
    on(0, 9, 100_00)
    html = page(boss, DASHBOARD)
    for day in ("today", "yesterday"):
        address = f"/admin/payments_finance/movement/cash-book/?days={day}&amp;account=default"
        assert f'<h2 id="pi-{day}"><a href="{address}">' in html
