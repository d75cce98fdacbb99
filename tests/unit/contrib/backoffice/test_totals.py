"""What the rows of a list add up to, per currency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration.admin.lists import filters
from payments_integration.contrib.backoffice.admin import totals
from payments_integration.contrib.backoffice.admin.overview import statistics
from payments_integration.contrib.backoffice.admin.totals import ADD_UP
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.contrib.backoffice.test_export import read as exported

Lines = dict[str, tuple[str, ...]]


def shown(client: Client, query: str = "", model: str = "payment") -> Lines | None:
    """The lines of the totals by currency; None if there are no totals and no link to them."""
    found = client.get(f"{url(model, 'changelist')}?{query}").context["cl"].totals
    if found is None:
        return None
    plain = [(currency, count, [_plain(text) for text in sums]) for currency, count, sums in found.lines]
    return {currency: (count, *sums) for currency, count, sums in plain}


def _plain(html: str) -> str:
    return html.partition(">")[2].partition("<")[0].replace("\xa0", " ")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MAX_ROWS", 3)


def test_the_filtered_rows_are_added_up_per_currency(boss: Client) -> None:
    for amount in (1000, 2000):
        rows.payment(amount=amount, amount_received=900, refunded_amount=50, currency="CLP", status="succeeded")
    rows.payment(amount=1250, amount_received=0, refunded_amount=None, currency="USD", status="succeeded")
    rows.payment(amount=7, currency="CLP", status="failed")
    assert shown(boss, "status=succeeded") == {
        "CLP": ("2", "CLP 1,800", "CLP 3,000", "CLP 100"), "USD": ("1", "USD 0.00", "USD 12.50", "USD 0.00"),
    }  # fmt: skip
    html = page(boss, f"{url('payment', 'changelist')}?status=succeeded")
    assert "CLP\xa03,000" in html.split("pi-totals")[1].split("</table>")[0]
    assert ADD_UP not in html


def test_what_is_above_the_payments_is_what_was_received(boss: Client) -> None:
    """Not what was asked for: that has the failed and the waiting payments too."""
    rows.payment(amount=1000, amount_received=900, refunded_amount=50, currency="CLP", status="succeeded")
    rows.payment(amount=7000, amount_received=0, refunded_amount=0, currency="CLP", status="failed")
    summary = page(boss, url("payment", "changelist")).split("pi-totals")[1].split("</summary>")[0]
    assert "Amount received" in summary
    assert "CLP\xa0900" in summary
    assert "8,000" not in summary


@pytest.mark.case(145)
def test_rows_that_are_gone_are_no_money(boss: Client) -> None:
    """The list and its export show them, and their amounts are in no totals."""
    now = timezone.now()
    rows.payment(amount=1000, amount_received=900, refunded_amount=50, currency="CLP", created_at=now)
    for make in (rows.payment, rows.payout, rows.refund):
        make(amount=7, currency="CLP", created_at=now, gone_at=now)
    assert shown(boss) == {"CLP": ("1", "CLP 900", "CLP 1,000", "CLP 50")}
    assert {row["amount"]: bool(row["gone_at"]) for row in exported(boss, "payment")} == {"1000": False, "7": True}
    # A list that has nothing else offers nothing to add up.
    assert shown(boss, model="payout") is shown(boss, model="refund") is None
    assert ADD_UP not in page(boss, url("payout", "changelist"))
    days = statistics.last_days()
    assert [group.amount for group in statistics._payments("default", days)] == [1000]
    assert statistics._money_out("default", days) == {"payouts": [], "refunds": []}


def test_payouts_and_refunds_have_totals_too(boss: Client) -> None:
    rows.payout(amount=1000, fee=30, currency="CLP")
    rows.payout(amount=1000, fee=None, currency="CLP")
    rows.refund(amount=500, currency="CLP")
    assert shown(boss, model="payout") == {"CLP": ("2", "CLP 2,000", "CLP 30")}
    assert shown(boss, model="refund") == {"CLP": ("1", "CLP 500")}
    rows.event()
    assert shown(boss, model="event") is None


def test_every_page_has_the_totals_of_all_pages(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.admin.base.ReadOnlyAdmin.list_per_page", 2)
    for _ in range(5):
        rows.payout(amount=100, fee=0, currency="CLP")
    older = boss.get(url("payout", "changelist")).context["cl"].older_url
    assert shown(boss, older.removeprefix("?"), model="payout") == {"CLP": ("5", "CLP 500", "CLP 0")}


def test_sums_beyond_int64_are_exact(boss: Client) -> None:
    for _ in range(2):
        rows.refund(amount=2**63 - 1, currency="CLP")
    assert shown(boss, model="refund") == {"CLP": ("2", "CLP 18,446,744,073,709,551,614")}


@pytest.mark.usefixtures("few")
def test_many_rows_are_added_up_only_when_asked(boss: Client) -> None:
    for _ in range(4):
        rows.refund(amount=100, currency="CLP", status="failed")
    rows.refund(amount=100, currency="USD", status="created")
    assert shown(boss, model="refund") == {}
    html = page(boss, f"{url('refund', 'changelist')}?status=failed")
    assert f'href="?{ADD_UP}=1&amp;status=failed"' in html
    assert shown(boss, f"status=failed&{ADD_UP}=1", model="refund") == {"CLP": ("4", "CLP 400")}
    assert shown(boss, "status=created", model="refund") == {"USD": ("1", "USD 1.00")}


@pytest.mark.usefixtures("few")
def test_adding_up_is_no_filter(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.admin.base.ReadOnlyAdmin.list_per_page", 2)
    for _ in range(5):
        rows.refund()
    response = boss.get(f"{url('refund', 'changelist')}?{ADD_UP}=1")
    listed = response.context["cl"]
    assert listed.older_url
    assert ADD_UP not in listed.older_url
    assert not listed.has_active_filters
    for spec in listed.filter_specs:
        assert not any(ADD_UP in choice["query_string"] for choice in spec.choices(listed))
    assert f'name="{ADD_UP}"' not in response.content.decode()
    exported = boss.get(f"{url('refund', 'export')}?{ADD_UP}=1")
    assert len(b"".join(exported.streaming_content).splitlines()) == 6  # type: ignore[arg-type]


def test_no_totals_of_a_search_that_did_not_find_everything(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_IDS", 2)
    for number in range(4):
        rows.refund(id=f"ref_cut{number}")
    assert shown(boss, "q=ref_cut1", model="refund")
    assert shown(boss, "q=ref_cut", model="refund") is None
    assert shown(boss, f"q=ref_cut&{ADD_UP}=1", model="refund") is None


def test_no_totals_of_nothing(boss: Client) -> None:
    assert shown(boss) is None
    rows.payment()
    assert shown(boss, "from=2001-01-01&to=2001-01-02") is None
    assert shown(boss, "from=x") is None


def test_several_filters_without_days_are_added_up_only_when_asked(boss: Client) -> None:
    """No index serves both, so the rows that match could be far apart."""
    rows.payment(status="succeeded", currency="CLP", country="CL")
    assert shown(boss, "status=succeeded&currency=CLP") == {}
    assert shown(boss, "status=succeeded&currency=CLP&to=2030-01-01") == {}
    assert shown(boss, f"status=succeeded&currency=CLP&{ADD_UP}=1")
    assert shown(boss, "status=succeeded&currency=CLP&from=2001-01-01")
    assert shown(boss, "currency=CLP")


@pytest.mark.parametrize("model", ["payment", "payout", "refund"])
def test_the_totals_are_one_statement_of_a_list_with_few(staff: Callable[..., Client], model: str) -> None:
    client = staff(f"view_{model}", "view_personal_data")
    maker: Any = rows.MAKERS[model]

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(client, f"{url(model, 'changelist')}?status=succeeded&succeeded_days=past-7&q=ana&from=2025-01-01")
            page(client, url(model, "changelist"))
        assert sum("SUM(" in query["sql"] for query in queries) <= 2
        return len(queries)

    maker()
    first = count()
    for _ in range(9):
        maker()
    assert count() == first
    with CaptureQueriesContext(connection) as queries:
        page(client, f"{url(model, 'changelist')}?q=pay")
    assert len(queries) <= 12, [query["sql"][:90] for query in queries]
