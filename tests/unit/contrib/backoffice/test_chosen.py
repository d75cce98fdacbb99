"""The tabs above the list of payments, with the number of their rows, and a chip for each filter that is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from payments_integration.contrib.backoffice.admin import chosen
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def changes(client: Client, query: str = "") -> Any:
    response = client.get(url("payment", "changelist") + query)
    assert response.status_code == 200, query
    return response.context["cl"]


def tabs(client: Client, query: str = "") -> dict[str, str]:
    return {str(tab.label): tab.count for tab in changes(client, query).tabs}


@pytest.fixture
def payments(db: None) -> None:
    for status in ("succeeded", "overpaid", "created", "on_hold", "failed", "expired", "chargeback"):
        rows.payment(status=status, country="CL")
    rows.refund(payment=rows.payment(status="succeeded", country="PE", refunded_amount=5))
    rows.refund(payment=rows.payment(status="succeeded", country="PE", refunded_amount=0))


@pytest.mark.usefixtures("payments")
def test_each_tab_shows_how_many_rows_it_leads_to(boss: Client) -> None:
    # No index bounds what would be read to count refunded payments.
    expected = {"All": "9", "Paid": "4", "Waiting": "2", "Failed": "2", "Refunded": "", "Disputed": "1"}
    found = changes(boss)
    assert {str(tab.label): tab.count for tab in found.tabs} == expected
    assert [str(tab.label) for tab in found.tabs if tab.is_current] == ["All"]
    for tab in found.tabs:
        there = changes(boss, tab.url)
        assert str(len(there.result_list)) == (tab.count or "1"), tab
        assert [other.label for other in there.tabs if other.is_current] == [tab.label]
        # From there, each tab leads to the same rows.
        assert [other.url for other in there.tabs] == [other.url for other in found.tabs]
        # A tab says itself what it shows.
        assert there.chips == []


@pytest.mark.usefixtures("payments")
def test_tabs_keep_the_other_filters_and_count_within_them(boss: Client) -> None:
    rows.payment(status="failed", created_at=timezone.now())
    assert tabs(boss, "?days=today&status=failed")["Failed"] == "1"
    found = changes(boss, "?days=today&country=CL&q=pay")
    assert all("days=today" in tab.url and "country=CL" in tab.url and "q=pay" in tab.url for tab in found.tabs)
    assert "refunded" not in found.tabs[1].url


@pytest.mark.usefixtures("payments")
def test_a_tab_has_no_number_where_counting_could_read_the_whole_table(boss: Client) -> None:
    assert set(tabs(boss, "?country=PE").values()) == {""}
    assert set(tabs(boss, "?status=failed&status_since=2020-01-01").values()) == {""}
    # However long ago the days begin, and of another time than the index has.
    assert set(tabs(boss, "?country=PE&from=2000-01-01").values()) == {""}
    assert set(tabs(boss, "?succeeded_days=past-30").values()) == {""}
    # A search bounds what is looked at, and the index finds the days of creation.
    assert tabs(boss, "?from=2000-01-01")["All"] != ""
    assert tabs(boss, "?country=PE&q=order-none")["All"] == "0"


@pytest.mark.usefixtures("payments")
def test_counting_stops(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "MOST", 3)
    assert tabs(boss) == {
        "All": "3+", "Paid": "3+", "Waiting": "2", "Failed": "2", "Refunded": "", "Disputed": "1",
    }  # fmt: skip


@pytest.mark.usefixtures("payments")
def test_the_numbers_take_no_statement_of_their_own(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url("payment", "changelist"))
        return len(queries)

    count()
    with_numbers = count()
    monkeypatch.setattr(chosen, "counts", lambda *args: {})
    assert count() == with_numbers


@pytest.mark.usefixtures("payments")
def test_a_chip_removes_its_filter_and_no_other(boss: Client) -> None:
    found = changes(boss, "?status=failed,created&country=CL&from=2000-01-01&to=2030-01-01&q=x")
    assert [chip.label for chip in found.chips] == [
        "“x”", "Status: failed, created", "Country: Chile",
        "Day: 2000-01-01 → 2030-01-01",
    ]  # fmt: skip
    without = found.chips[3].url
    assert "from=" not in without
    assert "to=" not in without
    assert all(part in without for part in ("status=failed", "country=CL", "q=x"))
    assert found.plain_url == "?"
    assert [chip.label for chip in changes(boss, "?days=today").chips] == ["Day: Today"]
    assert changes(boss, "?status=&country=").chips == []


@pytest.mark.parametrize("model", ["receiptmail", "statuschange", "webhookendpoint"])
def test_a_list_without_tabs_has_chips_too(boss: Client, model: str) -> None:
    app = "payments_receipts" if model == "receiptmail" else "payments_integration"
    where = reverse(f"admin:{app}_{model}_changelist")
    name = "status" if model == "webhookendpoint" else "state"
    assert [chip.names for chip in boss.get(f"{where}?{name}=x").context["cl"].chips] == [(name,)]
    assert 'class="pi-chips"' in page(boss, f"{where}?{name}=x")


def test_a_chip_shows_nothing_that_is_not_text(boss: Client) -> None:
    html = page(boss, url("payment", "changelist") + "?country=<b>%E2%80%AE")
    assert "<b>\u202e" not in html
    assert "Country: &lt;b&gt;" in html


def test_a_list_has_the_name_of_its_rows_as_its_title(staff: Callable[..., Client]) -> None:
    html = page(staff("view_payment"), url("payment", "changelist"))
    assert "<h1>Payments</h1>" in html
    assert "Select payment" not in html
