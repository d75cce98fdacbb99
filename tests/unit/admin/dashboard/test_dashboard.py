"""The dashboard: what it counts, for whom and how often, and its links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from payments_integration.admin.dashboard import concerns, page as dashboard_page, statistics
from payments_integration.admin.dashboard.money import LOOKS
from payments_integration.admin.shared import display
from payments_integration.enums import PaymentStatus
from payments_integration.models import EventState, OperationState
from tests.factories import rows
from tests.unit.admin.conftest import page, url

NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)
DASHBOARD = "/admin/payments_integration/"
TECHNICAL = "/admin/payments_integration/accountstate/technical/"


@pytest.fixture(autouse=True)
def _now(settings: Any) -> Iterator[None]:
    cache.clear()
    with time_machine.travel(NOW, tick=False):
        yield
    cache.clear()


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def text(html: str) -> str:
    """The text of a page, without markup and with plain spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.replace("\xa0", " ")))


def chart(html: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="{name}-data" type="application/json">(.*?)</script>', html)
    assert found is not None, name
    data: dict[str, Any] = json.loads(found[1])
    return data


def section(html: str, name: str) -> str:
    return html.split(f'<section aria-labelledby="{name}"')[1].split("</section>")[0]


def test_the_app_index_is_the_dashboard_and_lists_the_models(boss: Client) -> None:
    html = page(boss, DASHBOARD)
    assert reverse("admin:app_list", args=["payments_integration"]) == DASHBOARD
    assert 'id="pi-dashboard"' in html
    assert f'href="{url("payment", "changelist")}"' in html
    assert "As of 2026-05-20 12:00:00" in html


def test_tiles_are_at_the_top_and_link_to_their_rows(boss: Client) -> None:
    for state in (OperationState.NEEDS_PERSON, OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL):
        rows.operation(state=state, created_at=ago(hours=3))
    rows.operation(state=OperationState.UNKNOWN, created_at=ago(minutes=1), first_sent_at=ago(seconds=40))
    rows.event(state=EventState.PARKED, attempts=6, received_at=ago(days=2))
    rows.event(state=EventState.QUARANTINED, received_at=ago(days=2))
    html = page(boss, DASHBOARD)
    shown = text(section(html, "pi-attention"))
    # Technical problems are lines here, and tiles on their own page.
    assert "1 event is parked: a receiver keeps failing" in shown
    assert "1 event is in quarantine" in shown
    technical = text(section(page(boss, TECHNICAL), "pi-attention"))
    assert "1 Parked: a receiver keeps failing oldest: 2 days" in technical
    assert "1 Events in quarantine" in technical
    assert "0 Events that could not be applied" in technical
    assert "event is parked" not in technical
    assert "2 Operations that a person must decide oldest: 3 hours" in shown
    assert "1 Operations that wait for approval oldest: 3 hours" in shown
    assert "1 Operations with an unknown outcome oldest: 40 s" in shown
    for model, query in (("operation", "state=needs_person"), ("event", "state=parked")):
        address = f"{url(model, 'changelist')}?{query}&amp;account=default"
        assert f'href="{address}"' in html
        listed = boss.get(address.replace("&amp;", "&")).context["cl"].result_list
        assert len(listed) == (2 if model == "operation" else 1)


def test_finance_tiles_count_by_the_day_of_the_status_and_link_to_their_rows(boss: Client) -> None:
    def became(obj: Any, status: str, at: datetime) -> Any:
        type(obj).objects.filter(pk=obj.pk).update(status=status, synced_at=at)
        rows.change(obj, status=status, at=at)
        return obj.pk

    old, before, lately = ago(days=200), ago(days=40), ago(days=3)
    expected = {
        # The payment is far older than its chargeback.
        "Chargebacks in the last 30 days": {became(rows.payment(created_at=old), "chargeback", lately)},
        "Payments on hold": {
            rows.payment(created_at=old, status="on_hold").pk,
            rows.payment(created_at=lately, status="on_hold").pk,
        },
        "Refunds that failed or came back in the last 30 days": {
            became(rows.refund(created_at=old), "failed", lately),
            became(rows.refund(created_at=lately), "returned", lately),
        },
        "Payouts that failed or came back in the last 30 days": {
            became(rows.payout(created_at=old), "returned", lately)
        },
    }
    became(rows.payment(created_at=old), "chargeback", before)
    became(rows.payment(created_at=old, account="second"), "chargeback", lately)
    # It was charged back before, and read again lately.
    again = rows.payment(created_at=old)
    became(again, "chargeback", before)
    type(again).objects.filter(pk=again.pk).update(synced_at=lately)
    became(rows.refund(created_at=old), "returned", before)
    became(rows.payout(created_at=lately), "succeeded", lately)
    became(rows.payment(created_at=lately), "failed", lately)
    attention = section(page(boss, DASHBOARD), "pi-attention")
    tiles = re.findall(
        r'<a href="([^"]+)"><span class="pi-count">(\d+)</span> <span class="pi-label">([^<]+)', attention
    )
    found = {label: (address.replace("&amp;", "&"), int(number)) for address, number, label in tiles}
    for label, keys in expected.items():
        address, number = found[label]
        assert number == len(keys), label
        assert {row.pk for row in boss.get(address).context["cl"].result_list} == keys, label


def test_finance_tiles_count_no_further_than_a_thousand(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (concerns, dashboard_page):
        monkeypatch.setattr(module, "LIMIT", 2)
    for _ in range(3):
        rows.payment(status="on_hold")
    assert "2 or more Payments on hold" in text(section(page(boss, DASHBOARD), "pi-attention"))


def test_a_list_of_a_status_since_a_wrong_day_is_empty(boss: Client) -> None:
    pay = rows.payment(synced_at=NOW)
    rows.change(pay, status=pay.status, at=NOW)
    address = url("payment", "changelist")
    for day, number in (("2026-05-20", 1), ("2026-05-21", 0), ("yesterday", 0), ("9999-99-99", 0), ("", 1)):
        shown = boss.get(address, {"status": "succeeded", "status_since": day})
        assert len(shown.context["cl"].result_list) == number, day
    # Without a status the day is ignored.
    shown = boss.get(address, {"status_since": "2026-05-21"})
    assert len(shown.context["cl"].result_list) == 1
    assert "status since" not in shown.content.decode()


def test_every_problem_of_health_has_a_label(boss: Client) -> None:
    rows.endpoint(gone_at=NOW)
    shown = text(section(page(boss, DASHBOARD), "pi-attention"))
    assert "! events were never reconciled" in shown
    assert "1 webhook endpoint needs attention" in shown


def test_the_dashboard_takes_few_statements_without_a_cache(boss: Client) -> None:
    for state in (EventState.PARKED, EventState.PENDING, EventState.QUARANTINED):
        rows.event(state=state)
    rows.endpoint()
    cache.clear()
    with CaptureQueriesContext(connection) as counted:
        page(boss, DASHBOARD)
    # Two of them compare the shop's orders with their payments: see test_orders.
    assert len(counted) <= 15
    with CaptureQueriesContext(connection) as kept:
        page(boss, DASHBOARD)
    assert len(kept) <= 3


def test_volume_is_counted_by_day_currency_and_status(boss: Client) -> None:
    for fields in (
        {"created_at": ago(hours=1)},
        {"created_at": ago(hours=11, minutes=59)},
        {"created_at": ago(hours=12, seconds=1)},  # yesterday
        {"created_at": ago(hours=1), "status": "failed", "amount": 99, "amount_received": 0},
        {"created_at": ago(hours=1), "status": "quarked", "amount": 7, "amount_received": 0},
        {"created_at": ago(days=29)},
        {"created_at": ago(days=30)},  # not of these days any more
        {"created_at": ago(hours=1), "account": "second"},
        {"created_at": ago(hours=1), "currency": "CLP", "amount": 5000, "amount_received": 5000},
    ):
        rows.payment(**{"currency": "USD", "amount": 1050, "amount_received": 1050, **fields})
    html = page(boss, DASHBOARD)
    data = chart(html, "pi-volume-USD")
    assert len(data["labels"]) == 30
    assert (data["labels"][0], data["labels"][-1]) == ("April 21", "May 20")
    by_name = {series["name"]: series["values"] for series in data["series"]}
    assert set(by_name) == {"succeeded", "failed", "quarked"}
    assert by_name["succeeded"][0] == 1050
    assert by_name["succeeded"][-2:] == [1050, 2100]
    assert sum(by_name["succeeded"]) == 4200
    assert by_name["failed"][-1] == 99
    assert len({series["look"] for series in data["series"]}) == 3
    by_status = text(html.split('class="pi-by-status"')[2].split("<figure")[0])
    assert "succeeded USD 10.50 (1) USD 21.00 (2) USD 31.50 (3) USD 42.00 (4)" in by_status
    assert "failed – USD 0.99 (1) USD 0.99 (1) USD 0.99 (1)" in by_status
    assert "quarked – USD 0.07 (1)" in by_status
    assert chart(html, "pi-volume-CLP")["decimals"] == 0
    assert "CLP\xa05,000" in html


def test_the_charts_show_a_status_in_the_colour_of_the_lists() -> None:
    script = finders.find("payments_integration/dashboard.js")
    assert isinstance(script, str)
    looks = re.findall(r'\["(\w+)", "(\w+)"\]', Path(script).read_text().split("const LOOKS = [")[1].split("];")[0])
    assert set(LOOKS) == set(PaymentStatus.values)
    assert len({looks[look] for look in LOOKS.values()}) == len(LOOKS)
    colours = {"good": {"green"}, "bad": {"red"}, "quiet": {"grey"}, "open": {"amber", "blue"}}
    for status, look in LOOKS.items():
        tone = re.findall(r"pi-status-(\w+)", display.status(status, PaymentStatus))[0]
        assert looks[look][0] in colours[tone], status


def test_the_numbers_of_each_chart_are_in_a_table_too(boss: Client) -> None:
    rows.payment(created_at=ago(hours=1), amount=123456, amount_received=123456)
    html = page(boss, DASHBOARD)
    names = re.findall(r'<canvas id="([^"]+)" role="img" aria-label="[^"]{20,}" data-chart="\1-data">', html)
    assert names == ["pi-volume-USD", "pi-flow-USD", "pi-methods"]
    assert html.count("<canvas") == len(names)
    for name in names:
        data = chart(html, name)
        table = html.split(f'id="{name}-data"')[1].split("<details open")[1].split("</details>")[0]
        for label in data["labels"]:
            assert f'<th scope="row">{label}</th>' in table, name
        for series in data["series"]:
            for value in filter(None, series["texts"]):
                assert value in table, name
    # Nothing that a strict policy would stop.
    assert not re.search(r"<script(?![^>]*(src=|application/json))", html.split('id="pi-dashboard"')[1])
    assert not re.search(r"\s(on\w+|style)=", html.split('id="pi-dashboard"')[1])


def test_the_payments_of_last_month_have_a_link(boss: Client) -> None:
    address = f"{url('payment', 'changelist')}?days=last-month&amp;account=default"
    assert f"""<a href="{address}">Last month's payments</a>""" in page(boss, DASHBOARD)


def test_money_in_and_out_stays_apart_by_currency_and_counts_nothing_twice(boss: Client) -> None:
    at = ago(hours=1)
    pay = rows.payment(created_at=at, amount=1000, amount_received=1000)
    rows.payment(created_at=at, status="chargeback", amount=500, amount_received=500)
    # What may go back to its payer, and what came with an attempt that failed, is not the merchant's.
    rows.payment(created_at=at, status="on_hold", amount=4000, amount_received=4000)
    rows.payment(created_at=at, status="failed", amount=4000, amount_received=4000)
    rows.payment(created_at=ago(days=3), status="partially_paid", amount=900, amount_received=300)
    rows.refund(payment=pay, created_at=at, status="succeeded", amount=200)
    rows.refund(payment=pay, created_at=at, status="failed", amount=77)
    rows.payout(created_at=at, status="succeeded", currency="USD", amount=400)
    rows.payout(created_at=at, status="succeeded", currency="USD", amount=200, refund_id="ref_1")
    rows.payout(created_at=at, status="created", currency="USD", amount=9999)
    rows.payout(created_at=at, status="succeeded", currency="CLP", amount=70)
    html = page(boss, DASHBOARD)
    clp, usd = (text(part) for part in re.split(r'<h3 id="pi-currency-\d"', html)[1:3])
    assert "Yesterday Today 7 days 30 days Received – USD 15.00 (2) USD 18.00 (3) USD 18.00 (3)" in usd
    # As in the monthly statement: it came, and was taken back.
    assert "Charged back – USD 5.00 (1) USD 5.00 (1) USD 5.00 (1)" in usd
    assert "Refunded – USD 2.00 (1) USD 2.00 (1) USD 2.00 (1)" in usd
    assert "Paid out, without refunds – USD 4.00 (1) USD 4.00 (1) USD 4.00 (1)" in usd
    assert "Paid out, without refunds – CLP 70 (1) CLP 70 (1) CLP 70 (1)" in clp
    assert "succeeded – USD 2.00 (1) USD 2.00 (1) USD 2.00 (1) failed – USD 0.77 (1)" in usd
    flow = {series["name"]: sum(series["values"]) for series in chart(html, "pi-flow-USD")["series"]}
    assert flow == {"Received": 1800, "Charged back": 500, "Refunded": 200, "Paid out, without refunds": 400}


def test_what_was_refunded_before_a_chargeback_is_not_charged_back(boss: Client) -> None:
    at = ago(hours=1)
    rows.payment(created_at=at, status="chargeback", amount=500, amount_received=500, refunded_amount=120)
    shown = text(page(boss, DASHBOARD))
    assert "Received – USD 5.00 (1)" in shown
    assert "Charged back – USD 3.80 (1)" in shown


def test_periods_are_calendar_days(boss: Client) -> None:
    midnight = NOW.replace(hour=0)
    for at in (
        midnight,  # today
        midnight - timedelta(seconds=1),  # yesterday
        midnight - timedelta(days=1),
        midnight - timedelta(days=1, seconds=1),  # the day before
        midnight - timedelta(days=6),  # the first of 7 days
        midnight - timedelta(days=6, seconds=1),
        midnight - timedelta(days=29),  # the first of 30 days
        midnight - timedelta(days=29, seconds=1),
    ):
        rows.payment(created_at=at, amount=100, amount_received=100)
    assert "Received USD 2.00 (2) USD 1.00 (1) USD 5.00 (5) USD 7.00 (7)" in text(page(boss, DASHBOARD))


def test_every_amount_links_to_exactly_its_rows(boss: Client) -> None:
    for at in (ago(hours=1), ago(days=1), ago(days=5), ago(days=20), ago(days=50)):
        pay = rows.payment(created_at=at)
        for status in ("partially_paid", "overpaid", "chargeback", "on_hold", "failed", "created"):
            rows.payment(created_at=at, status=status)
        for status in ("succeeded", "failed", "created"):
            rows.refund(payment=pay, created_at=at, status=status, currency="USD")
            rows.payout(created_at=at, status=status, currency="USD")
    html = page(boss, DASHBOARD)
    links = re.findall(r'<a href="([^"]+)" aria-label="([^"]+): (\d+)">\(\3\)</a>', html)
    assert len(links) == 4 * (4 + 7 + 3 + 3)
    for address, name, number in links:
        listed = boss.get(address.replace("&amp;", "&")).context["cl"].result_list
        assert len(listed) == int(number), (name, address)
    assert {name for _, name, number in links if number == "4"} >= {"Received, Yesterday", "Received, Today"}


def test_the_success_rate_by_method_counts_ended_payments(boss: Client) -> None:
    at = ago(days=1)
    for status, count in (("succeeded", 4), ("overpaid", 1), ("chargeback", 1), ("failed", 1), ("expired", 1),
                          ("canceled", 1), ("processing", 5), ("created", 2)):  # fmt: skip
        for _ in range(count):
            rows.payment(created_at=at, status=status, method_code="cl_webpay")
    rows.payment(created_at=at, status="failed", method_code="br_pix")
    rows.payment(created_at=at, status="failed", method_code="new_pay")
    rows.payment(created_at=at, status="created", method_code="mx_cash")
    data = chart(page(boss, DASHBOARD), "pi-methods")
    # By name, with the country that the code names.
    assert data["labels"] == ["Webpay (CL)", "Pix (BR)", "New pay"]
    assert data["series"][0]["texts"] == ["66.7 % (6 of 9)", "0.0 % (0 of 1)", "0.0 % (0 of 1)"]
    assert data["series"][0]["values"] == [667, 0, 0]


def test_a_kind_of_money_that_did_not_move_has_no_row(boss: Client) -> None:
    rows.payment(created_at=ago(hours=1), status="created", currency="PEN")
    rows.payment(created_at=ago(hours=1), currency="USD")
    rows.refund(created_at=ago(days=29), status="succeeded", currency="USD")
    pen, usd = (
        re.findall(r'<th scope="row">([^<]+)</th>', part.split("<details")[0])
        for part in re.split(r'<h3 id="pi-currency-\d"', page(boss, DASHBOARD))[1:3]
    )
    assert pen == ["Received"]
    assert usd == ["Received", "Refunded"]


def test_charts_stand_beside_the_tables_of_few_currencies_only(boss: Client) -> None:
    def is_in_fold(currency: str) -> bool:
        """In the fold it comes before the chart by status, else after the fold."""
        html = page(boss, DASHBOARD)
        return html.index(f'id="pi-flow-{currency}"') < html.index(f'id="pi-volume-{currency}"')

    currencies = ("CLP", "PEN", "MXN", "USD")
    for currency in currencies[:3]:
        rows.payment(created_at=ago(hours=1), currency=currency)
    assert not any(map(is_in_fold, currencies[:3]))
    rows.payment(created_at=ago(hours=1), currency="USD")
    cache.clear()
    assert all(map(is_in_fold, currencies))


def test_the_webhook_delay_is_shown_on_one_clock(boss: Client) -> None:
    rows.account_state(account="default", clock_offset=5.0, watermark=ago(minutes=3))
    for late in (7, 10, 60):
        created = ago(hours=1)
        rows.event(created_at=created, received_at=created + timedelta(seconds=late), source="webhook")
    rows.event(created_at=ago(hours=1), received_at=NOW, source="reconciliation")
    shown = text(section(page(boss, TECHNICAL), "pi-deliveries"))
    assert "Webhook delay, median 15 s" in shown
    assert "longest of the last day 65 s" in shown
    assert "Delivered by webhook in the last day 3" in shown
    assert "Found by reconciliation in the last day 1" in shown
    assert "Events are complete up to 3 minutes ago" in shown
    assert "The provider's clock minus ours +5.0 s" in shown.replace("&#x27;", "'")
    # A number never stands on another line than its unit.
    html = page(boss, TECHNICAL)
    assert all(value in html for value in ("15\xa0s", "3\xa0minutes", "+5.0\xa0s"))


def test_reconciliation_drift_and_endpoints_are_shown(boss: Client) -> None:
    rows.run(kind="objects", started_at=ago(hours=2), finished_at=NOW, drifted=4, repaired=3)
    rows.run(kind="events", state="failed", started_at=ago(minutes=4), error="boom")
    rows.endpoint(secret_token="", secret_since=None)
    html = page(boss, TECHNICAL)
    runs = text(section(html, "pi-runs"))
    assert "events failed 4 minutes ago" in runs
    assert "objects done 2 hours ago" in runs
    assert "4 objects differed, 3 were repaired" in runs
    endpoints = text(section(html, "pi-endpoints"))
    assert "https://shop.example/payments/webhook/ active needs attention not known" in endpoints
    assert rows.SECRET not in html


def test_balances_are_shown_in_their_currencies(boss: Client) -> None:
    rows.balance(currency="CLP", available=777)
    rows.balance(currency="USD", account="second")
    shown = text(section(page(boss, DASHBOARD), "pi-balances"))
    assert "CLP CLP 777" in shown
    assert "USD" not in shown


def test_each_account_has_its_own_dashboard(boss: Client) -> None:
    rows.payment(created_at=ago(hours=1), account="second", currency="PEN")
    assert "pi-volume-PEN" not in page(boss, DASHBOARD)
    html = page(boss, f"{DASHBOARD}?account=second")
    assert "pi-volume-PEN" in html
    assert '<a href="?account=second" aria-current="page">second</a>' in html
    assert f'href="{TECHNICAL}?account=second"' in html
    technical = page(boss, f"{TECHNICAL}?account=second")
    assert '<a href="?account=second" aria-current="page">second</a>' in technical
    assert '<input type="hidden" name="account" value="second">' in technical
    assert re.search(r'href="[^"]*currency=PEN&amp;[^"]*account=second"', html)
    assert "pi-volume-PEN" not in page(boss, f"{DASHBOARD}?account=unknown")


def test_with_one_account_the_dashboard_offers_no_choice(boss: Client, settings: Any) -> None:
    accounts = {"default": settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    html = page(boss, DASHBOARD)
    assert "pi-accounts" not in html
    assert "account=" not in html.split("pi-dashboard")[1].split("content-main")[0].replace('name="account"', "")


def test_without_an_account_the_dashboard_says_so(boss: Client, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {}
    for address in (DASHBOARD, TECHNICAL):
        assert "No account is configured." in page(boss, address)


def test_empty_panels_say_so(boss: Client) -> None:
    html = page(boss, DASHBOARD)
    assert "No payments, refunds or payouts in the last 30 days." in html
    assert "pi-methods" not in html
    assert "No webhook endpoint is known." in page(boss, TECHNICAL)


#: The panels of the overview and of the technical state that each permission opens.
PANELS: dict[str, tuple[set[str], set[str]]] = {
    "view_payment": ({"pi-attention", "pi-money", "pi-currency-1", "pi-methods-heading"}, set()),
    "view_payout": ({"pi-attention", "pi-money", "pi-currency-1"}, set()),
    "view_refund": ({"pi-attention", "pi-money", "pi-currency-1"}, set()),
    "view_balance": ({"pi-balances"}, set()),
    "view_event": ({"pi-attention"}, {"pi-attention", "pi-deliveries", "pi-backlog"}),
    "view_operation": ({"pi-attention"}, {"pi-backlog"}),
    "view_reconciliationrun": ({"pi-attention"}, {"pi-runs"}),
    "view_webhookendpoint": ({"pi-attention"}, {"pi-attention", "pi-endpoints"}),
    "view_accountstate": ({"pi-attention"}, {"pi-attention", "pi-deliveries"}),
    "view_duerefresh": ({"pi-attention"}, {"pi-backlog"}),
    "view_statuschange": (set(), set()),
    "view_depositreference": (set(), set()),
}


@pytest.mark.case(88)
@pytest.mark.parametrize("permission", PANELS)
def test_each_panel_needs_the_permission_to_view_its_rows(staff: Callable[..., Client], permission: str) -> None:
    pay = rows.payment(created_at=ago(hours=1), amount=111, amount_received=111)
    rows.refund(payment=pay, created_at=ago(hours=1), status="succeeded", currency="USD", amount=222)
    rows.payout(created_at=ago(hours=1), status="succeeded", currency="USD", amount=333)
    rows.balance(currency="USD", available=44400)
    rows.endpoint()
    # What another one had counted before is there, and not for this one.
    page(staff(*PANELS), DASHBOARD)
    client = staff(permission)
    html = page(client, DASHBOARD)
    panels, technical_panels = PANELS[permission]
    assert panels_of(html) == panels
    is_technical = "pi-attention" in panels and "pi-money" not in panels
    assert (TECHNICAL in html) is is_technical
    answer = client.get(TECHNICAL)
    assert answer.status_code == (200 if is_technical else 403)
    technical = answer.content.decode() if answer.status_code == 200 else ""
    assert panels_of(technical) == technical_panels
    amounts = {
        "view_payment": "USD 1.11",
        "view_refund": "USD 2.22",
        "view_payout": "USD 3.33",
        "view_balance": "USD 444.00",
    }
    assert {name for name, amount in amounts.items() if amount in text(html)} == ({permission} & amounts.keys())
    for words, needed in (
        ("Operations that a person must decide", "view_operation"),
        ("Chargebacks", "view_payment"),
        ("Payments on hold", "view_payment"),
        ("Refunds that failed", "view_refund"),
        ("Payouts that failed", "view_payout"),
        ("Operations to send or resolve", "view_operation"),
        ("Events in quarantine", "view_event"),
        ("Events to apply", "view_event"),
        ("Objects to refresh", "view_duerefresh"),
        ("events were never reconciled", "view_accountstate"),
        ("Events are complete up to", "view_accountstate"),
    ):
        assert (words in html + technical) is (permission == needed), words
    assert "Run now" not in html + technical
    for shown in (html.split('id="content-main"')[0], technical.split('id="pi-technical"')[-1]):
        linked = set(re.findall(r'href="/admin/payments_integration/(\w+)/', shown.replace(TECHNICAL, "")))
        assert linked <= {permission.removeprefix("view_")}


def panels_of(html: str) -> set[str]:
    return set(re.findall(r'<section (?:class="[^"]+" )?aria-labelledby="([a-z0-9-]+)"', html))


def test_run_now_is_offered_with_the_permission(staff: Callable[..., Client]) -> None:
    html = page(staff("view_reconciliationrun", "run_reconciliation"), TECHNICAL)
    form = section(html, "pi-run-now")
    assert f'action="{url("reconciliationrun", "run")}"' in form
    assert re.findall(r'name="kind" value="(\w+)"', form) == ["events", "objects", "balances"]
    assert 'name="csrfmiddlewaretoken"' in form


def count(client: Client) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        page(client, DASHBOARD)
    return [query["sql"] for query in queries]


def test_statistics_are_counted_once_a_minute(boss: Client) -> None:
    page(boss, DASHBOARD)
    assert len(count(boss)) <= 3
    rows.payment(created_at=ago(minutes=1), currency="PEN")
    assert "pi-volume-PEN" not in page(boss, DASHBOARD)
    with time_machine.travel(NOW + timedelta(seconds=statistics.CACHE_SECONDS + 1), tick=False):
        assert "pi-volume-PEN" in page(boss, DASHBOARD)


def test_the_dashboard_takes_as_many_queries_for_many_rows_as_for_few(boss: Client) -> None:
    def fill() -> None:
        for currency in ("USD", "CLP"):
            for days in range(3):
                pay = rows.payment(created_at=ago(days=days), currency=currency)
                rows.refund(payment=pay, created_at=ago(days=days), currency=currency)
                rows.payout(created_at=ago(days=days), currency=currency)
                rows.event(pay, created_at=ago(days=days), received_at=ago(days=days))

    fill()
    page(boss, DASHBOARD)
    cache.clear()
    few = count(boss)
    fill()
    fill()
    cache.clear()
    assert len(count(boss)) == len(few)
    assert len(few) <= 30
    # Of the big tables only the last days are read, by an index.
    for table in ("payment", "payout", "refund"):
        asked = [
            sql for sql in few
            if f'FROM "payments_integration_{table}"' in sql.replace("`", '"') and "GROUP BY" in sql
        ]  # fmt: skip
        assert len(asked) == 1
        assert "created_at" in asked[0].split("WHERE")[1]


def test_days_are_right_where_clocks_change_at_midnight() -> None:
    with timezone.override(ZoneInfo("America/Santiago")), time_machine.travel(datetime(2025, 9, 10, 12, tzinfo=UTC)):
        days = statistics.last_days()
        lengths = {
            bound.date(): (after.astimezone(UTC) - bound.astimezone(UTC)).total_seconds() / 3600
            for bound, after in zip(days.bounds, days.bounds[1:], strict=False)
        }
        assert len(days) == 30
        assert {hours for day, hours in lengths.items() if day.isoformat() != "2025-09-07"} == {24.0}
        assert 23.0 in lengths.values()


@pytest.mark.django_db
def test_a_payment_late_at_night_counts_on_the_day_of_the_time_zone(boss: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/Santiago"
    # Three in the morning in UTC is still yesterday there.
    rows.payment(created_at=NOW.replace(hour=3))
    values = chart(page(boss, DASHBOARD), "pi-volume-USD")["series"][0]["values"]
    assert (values[-2], values[-1]) == (1050, 0)


def test_odd_rows_do_not_break_the_dashboard(boss: Client) -> None:
    for row in rows.odd_rows():
        if hasattr(row, "created_at") and row._meta.model_name in ("payment", "payout", "refund"):
            type(row).objects.filter(pk=row.pk).update(created_at=ago(hours=1))
    html = page(boss, DASHBOARD)
    assert "<script>alert" not in html
    assert "quarked" in html


@pytest.mark.case(112)
def test_amounts_that_leave_int64_together_are_added(boss: Client) -> None:
    largest = 2**63 - 1
    for number in range(2):
        pay = rows.payment(
            pk=f"pay_{number}", status="succeeded", currency="CLP", amount=largest, amount_received=largest,
            created_at=ago(hours=1),
        )  # fmt: skip
        rows.payout(pk=f"pout_{number}", status="succeeded", currency="CLP", amount=largest, created_at=ago(hours=1))
        rows.refund(
            pk=f"ref_{number}",
            payment=pay,
            status="succeeded",
            currency="CLP",
            amount=largest,
            created_at=ago(hours=1),
        )
    rows.payment(status="succeeded", currency="USD", amount=-5, amount_received=-7, created_at=ago(hours=1))
    [group] = [group for group in statistics.gather("default", ["payments"]).payments if group.currency == "USD"]
    assert (group.amount, group.received) == (-5, -7)
    cache.clear()
    shown = text(page(boss, DASHBOARD))
    assert shown.count("18,446,744,073,709,551,614") >= 3
    for model in ("payment", "payout", "refund"):
        assert "9,223,372,036,854,775,807" in text(page(boss, url(model, "changelist")))
        assert boss.get(url(model, "export")).status_code == 200
    for pk in ("pay_0", "pay_1"):
        assert "9,223,372,036,854,775,807" in text(page(boss, url("payment", "change", pk)))
