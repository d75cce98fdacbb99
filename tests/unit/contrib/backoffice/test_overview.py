"""The dashboard: what it counts, for whom and how often, and its links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.overview import statistics
from payments_integration.contrib.backoffice.admin.overview.money import LOOKS
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.contrib.finance.movements import backfill
from payments_integration.enums import PaymentStatus
from payments_integration.models import EventState, Payment
from tests.caches import DOWN, JSON
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.contrib.finance.books import movement

NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)
DASHBOARD = "/admin/payments_integration/"
TECHNICAL = "/admin/payments_integration/reconciliationrun/technical/"


@pytest.fixture(autouse=True)
def _now(settings: Any) -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


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


def test_technical_problems_are_lines_here_and_tiles_on_their_own_page(boss: Client) -> None:
    rows.event(state=EventState.PARKED, attempts=6, received_at=ago(days=2))
    rows.event(state=EventState.QUARANTINED, received_at=ago(days=2))
    html = page(boss, DASHBOARD)
    shown = text(section(html, "pi-attention"))
    assert "1 event is parked: a receiver keeps failing" in shown
    assert "1 event is in quarantine" in shown
    technical = text(section(page(boss, TECHNICAL), "pi-attention"))
    assert "1 Parked: a receiver keeps failing oldest: 2 days" in technical
    assert "1 Events in quarantine" in technical
    assert "0 Events that could not be applied" in technical
    assert "event is parked" not in technical
    address = f"{url('event', 'changelist')}?state=parked&amp;account=default"
    assert f'href="{address}"' in html
    assert len(boss.get(address.replace("&amp;", "&")).context["cl"].result_list) == 1


def test_problems_lead_to_the_changes_of_status_if_only_those_are_parked_or_wait(
    boss: Client, staff: Callable[..., Client]
) -> None:
    """Most handlers are called for changes, whose list is not in the menu."""
    pay = rows.payment(synced_at=NOW)
    rows.change(pay, status=pay.status, at=ago(days=2), recorded_at=ago(days=2), state=EventState.PARKED)
    rows.change(pay, status=pay.status, at=ago(days=2), recorded_at=ago(days=2), state=EventState.APPLIED)
    for state in ("parked", "applied"):
        changes = f'href="{url("statuschange", "changelist")}?state={state}&amp;account=default"'
        assert changes in page(boss, DASHBOARD)
        assert changes in page(boss, TECHNICAL)
    # Without the permission to see changes, there is a link too, and not one to the page itself.
    html = page(staff("view_event"), TECHNICAL)
    assert 'href=""' not in html
    assert f'href="{url("event", "changelist")}?state=parked&amp;account=default"' in html
    rows.event(state=EventState.PARKED, received_at=ago(days=2))
    for address in (DASHBOARD, TECHNICAL):
        assert f'href="{url("event", "changelist")}?state=parked&amp;account=default"' in page(boss, address)


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
    rows.account_state(account="default", watermark=ago(days=2))
    rows.payment()
    shown = text(section(page(boss, DASHBOARD), "pi-attention"))
    assert "! events are not complete up to now" in shown
    assert "1 webhook endpoint needs attention" in shown


def test_the_dashboard_takes_few_statements_without_a_cache(boss: Client) -> None:
    for state in (EventState.PARKED, EventState.PENDING, EventState.QUARANTINED):
        rows.event(state=state)
    rows.endpoint()
    cache.clear()
    with CaptureQueriesContext(connection) as counted:
        page(boss, DASHBOARD)
    # Two of them compare the shop's orders with their payments: see test_orders.
    assert len(counted) <= 17
    with CaptureQueriesContext(connection) as kept:
        page(boss, DASHBOARD)
    # One finds the list of what is parked.
    assert len(kept) <= 4


@pytest.mark.parametrize("caches", [DOWN, JSON], ids=["down", "json"])
def test_the_dashboard_needs_no_working_cache(boss: Client, settings: Any, caches: dict[str, Any]) -> None:
    rows.payment(currency="PEN", created_at=ago(hours=1))
    settings.CACHES = caches
    for _time in range(2):
        assert "pi-volume-PEN" in page(boss, DASHBOARD)
    # Groups without rows can be written as JSON, but the time returns as a text.
    for _time in range(2):
        assert statistics.gather("default", ["money_out"]).as_of == NOW


def test_a_site_that_shares_the_cache_shows_its_own_money(boss: Client, settings: Any) -> None:
    rows.payment(currency="PEN", created_at=ago(hours=1))
    assert "pi-volume-PEN" in page(boss, DASHBOARD)
    # Another site has another database and another account.
    Payment.objects.all()._raw_delete(Payment.objects.db)
    configured = settings.PAYMENTS_INTEGRATION
    other = {"default": {**configured["ACCOUNTS"]["default"], "API_KEY": "sk_live_production"}}
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": other}
    assert "pi-volume-PEN" not in page(boss, DASHBOARD)


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
    by_status = text(html.split('class="pi-by-status"')[1].split("<figure")[0])
    assert (
        "Today Yesterday 7 days 30 days succeeded USD 21.00 (2) USD 10.50 (1) USD 31.50 (3) USD 42.00 (4)" in by_status
    )
    assert "failed USD 0.99 (1) – USD 0.99 (1) USD 0.99 (1)" in by_status
    assert "quarked USD 0.07 (1) –" in by_status
    html = page(boss, f"{DASHBOARD}?currency=CLP")
    assert chart(html, "pi-volume-CLP")["decimals"] == 0
    assert "CLP\xa05,000" in html


def test_the_charts_show_a_status_in_the_colour_of_the_lists() -> None:
    script = finders.find("payments_backoffice/dashboard.js")
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
    moved(ago(hours=1), 123456)
    html = page(boss, DASHBOARD)
    names = re.findall(r'<canvas id="([^"]+)" role="img" aria-label="[^"]{20,}" data-chart="\1-data">', html)
    assert names == ["pi-flow-USD", "pi-volume-USD", "pi-methods"]
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
    """By the day when they were paid: a payment of 31 October that was paid on 1 November is November's."""
    late = rows.payment(created_at=ago(days=20), succeeded_at=ago(days=19))
    before = rows.payment(
        created_at=datetime(2026, 3, 31, 23, tzinfo=UTC), succeeded_at=datetime(2026, 4, 1, 1, tzinfo=UTC)
    )
    rows.payment(created_at=datetime(2026, 4, 30, 23, tzinfo=UTC), succeeded_at=datetime(2026, 5, 1, 1, tzinfo=UTC))
    address = f"{url('payment', 'changelist')}?succeeded_days=last-month&amp;account=default"
    assert f"""<a href="{address}">Last month's payments</a>""" in page(boss, DASHBOARD)
    listed = boss.get(address.replace("&amp;", "&")).context["cl"].result_list
    assert {row.pk for row in listed} == {before.pk}
    assert late.pk


def test_the_overview_leads_to_the_cash_book_and_the_lists(boss: Client) -> None:
    rows.payment()
    rows.balance()
    html = page(boss, DASHBOARD)
    for model in ("payment", "refund", "payout"):
        assert f'<a href="{url(model, "changelist")}?account=default">{model.capitalize()}s</a>' in html
    for name, words in (("yesterday", "Yesterday"), ("this-month", "This month"), ("last-month", "Last month")):
        address = f"/admin/payments_finance/movement/cash-book/?days={name}&amp;account=default"
        assert f'<a href="{address}">{words}</a>' in html


def moved(at: datetime, amount: int, kind: str = "payment", **fields: Any) -> None:
    values = {"currency": "USD", "booked_on": at.date(), "amount": amount, "kind": kind, **fields}
    movement(**{"occurred_on": values["booked_on"], **values})


def test_money_in_and_out_stays_apart_by_currency(boss: Client) -> None:
    at = ago(hours=1)
    moved(at, 1000)
    moved(at, 500, object_id="pay_2")
    moved(at, -30, "payment_fee")
    moved(at, -20, "payout_fee")
    moved(at, -500, "chargeback", object_id="pay_2")
    moved(ago(days=3), 300, object_id="pay_3")
    moved(at, -200, "refund")
    moved(at, -400, "payout")
    moved(at, -70, "payout", currency="CLP")
    moved(at, 9999, account="second")
    # Not money: it only waits, failed or went to the refund.
    rows.payment(created_at=at, status="failed", amount=4000, amount_received=4000)
    rows.refund(created_at=at, status="succeeded", amount=200)
    rows.refund(created_at=at, status="failed", amount=77)
    html = page(boss, DASHBOARD)
    usd = text(section(html, "pi-money"))
    assert "USD in the last 30 days" in usd
    assert "7 days 30 days Received USD 18.00 (3) USD 18.00 (3)" in usd
    assert "Fees USD 0.50 (2) USD 0.50 (2) Net USD 17.50 (5) USD 17.50 (5)" in usd
    # As in the cash book: it came, and was taken back.
    assert "Charged back USD 5.00 (1) USD 5.00 (1)" in usd
    assert "Refunded USD 2.00 (1) USD 2.00 (1)" in usd
    assert "Paid out USD 4.00 (1) USD 4.00 (1)" in usd
    assert "succeeded USD 2.00 (1) – USD 2.00 (1) USD 2.00 (1) failed USD 0.77 (1)" in usd
    assert "CLP 70" not in usd
    flow = {series["name"]: sum(series["values"]) for series in chart(html, "pi-flow-USD")["series"]}
    assert flow == {"Received": 1800, "Fees": 50, "Charged back": 500, "Refunded": 200, "Paid out": 400}
    assert "Paid out CLP 70 (1) CLP 70 (1)" in text(section(page(boss, f"{DASHBOARD}?currency=CLP"), "pi-money"))


def test_money_counts_on_the_day_when_it_moved(boss: Client) -> None:
    """A payment that was created yesterday and paid today is today's, in the money as in the cash book."""
    at = ago(hours=1)
    pay = rows.payment(created_at=ago(days=1), succeeded_at=at, state_at=at, amount=700, amount_received=700)
    backfill()
    assert Movement.objects.get().object_id == pay.pk
    html = page(boss, DASHBOARD)
    assert chart(html, "pi-flow-USD")["series"][0]["values"][-2:] == [0, 700]
    assert ">7.00</a>" in section(html, "pi-today")
    assert ">7.00</a>" not in section(html, "pi-yesterday")


def test_periods_are_calendar_days(boss: Client) -> None:
    today = NOW.replace(hour=0)
    for days in (0, 1, 1, 2, 6, 7, 29, 30):
        moved(today - timedelta(days=days), 100)
    html = page(boss, DASHBOARD)
    assert "Received USD 5.00 (5) USD 7.00 (7)" in text(html)
    assert ">1.00</a>" in section(html, "pi-today")
    assert ">2.00</a>" in section(html, "pi-yesterday")


def test_every_amount_links_to_exactly_its_rows(boss: Client) -> None:
    for at in (ago(hours=1), ago(days=1), ago(days=5), ago(days=20), ago(days=50)):
        pay = rows.payment(created_at=at)
        for status in ("partially_paid", "overpaid", "chargeback", "on_hold", "failed", "created"):
            rows.payment(created_at=at, status=status)
        for status in ("succeeded", "failed", "created"):
            rows.refund(payment=pay, created_at=at, status=status, currency="USD")
            rows.payout(created_at=at, status=status, currency="USD")
        for kind in MovementKind:
            moved(at, 100, kind)
            moved(at, 100, kind, currency="CLP")
            moved(at, 100, kind, account="second")
    html = page(boss, DASHBOARD)
    links = re.findall(r'<a href="([^"]+)" aria-label="([^"]+): (\d+)">\(\3\)</a>', html)
    assert len(links) == 2 * 6 + 4 * (7 + 3 + 3)
    for address, name, number in links:
        listed = boss.get(address.replace("&amp;", "&")).context["cl"].result_list
        assert len(listed) == int(number), (name, address)
    days = re.findall(r'<a class="pi-money" href="([^"]+)" aria-label="([^"]+)"', html)
    assert len(days) == 2 * 2 * 6
    for address, name in days:
        listed = boss.get(address.replace("&amp;", "&")).context["cl"].result_list
        # An amount of 100 each; fees and what is left of them are of several kinds.
        assert len(listed) == {"Fees": 2, "Net": 3}.get(name.split(", ")[-1].split(":")[0], 1), (name, address)


def test_without_the_right_to_see_movements_the_money_has_no_links(staff: Callable[..., Client]) -> None:
    moved(ago(hours=1), 100)
    html = page(staff("view_payment"), DASHBOARD)
    assert "Received USD 1.00 (1)" in text(html)
    assert '<span class="pi-money">1.00</span>' in section(html, "pi-today")
    assert "payments_finance" not in html


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
    moved(ago(hours=1), 100)
    moved(ago(days=29), -100, "refund")

    def kinds(currency: str) -> list[str]:
        html = section(page(boss, f"{DASHBOARD}?currency={currency}"), "pi-money")
        return re.findall(r'<th scope="row">([^<]+)</th>', html.split("<caption", 2)[1].split("<details")[0])

    assert kinds("PEN") == ["Received"]
    assert kinds("USD") == ["Received", "Net", "Refunded"]


def test_the_month_of_one_currency_is_shown_and_the_others_are_a_click_away(boss: Client) -> None:
    currencies = ["CLP", "COP", "PEN", "MXN", "BRL", "USD"]
    for currency in currencies:
        moved(ago(hours=1), 100, currency=currency)
    moved(ago(hours=1), 100, currency="PEN")
    html = page(boss, DASHBOARD)
    assert re.findall(r'<canvas id="pi-flow-(\w+)"', html) == ["PEN"]
    links = re.findall(r'href="(\?account=default&amp;currency=(\w+))#pi-money"', html)
    assert [currency for _, currency in links] == currencies
    for address, currency in links:
        shown = page(boss, DASHBOARD + address.replace("&amp;", "&"))
        assert re.findall(r'<canvas id="pi-flow-(\w+)"', shown) == [currency]
        assert f'currency={currency}#pi-money" aria-current="page">{currency}</a>' in shown
    # An address that somebody wrote.
    assert 'id="pi-flow-PEN"' in page(boss, f"{DASHBOARD}?currency=%3Cb%3E")


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
    rows.balance()
    html = page(boss, DASHBOARD)
    assert "No money has moved in the last 30 days." in html
    assert "pi-methods" not in html
    assert "No webhook endpoint is known." in page(boss, TECHNICAL)


MONEY = {"pi-today", "pi-yesterday", "pi-money"}
#: The panels of the overview and of the technical state that each permission opens.
PANELS: dict[str, tuple[set[str], set[str]]] = {
    "view_payment": ({"pi-todo", *MONEY, "pi-methods-heading"}, set()),
    "view_payout": ({"pi-todo", *MONEY}, set()),
    "view_refund": ({"pi-todo", *MONEY}, set()),
    "view_balance": ({"pi-balances"}, set()),
    "view_event": (set(), {"pi-attention", "pi-deliveries", "pi-backlog"}),
    "view_operation": ({"pi-todo"}, {"pi-backlog"}),
    "view_reconciliationrun": ({"pi-attention"}, {"pi-runs"}),
    "view_webhookendpoint": ({"pi-attention"}, {"pi-attention", "pi-endpoints"}),
    # The index shows no app to users who see none of its lists.
    "view_accountstate": (set(), {"pi-attention", "pi-deliveries"}),
    "view_duerefresh": (set(), {"pi-backlog"}),
    "view_statuschange": (set(), set()),
    "view_depositreference": (set(), set()),
}


#: Movements of every kind: the kind, the amount as it is shown, and in minor units.
MOVED = (
    ("payment", "71,234.01", 7_123_401),
    ("payment_fee", "7,711.12", -771_112),
    ("chargeback", "6,622.23", -662_223),
    ("refund", "5,533.34", -553_334),
    ("payout", "4,444.45", -444_445),
    ("payout_fee", "1,253.15", -125_315),
)
#: What each permission shows of them.
SEES_MOVED = {
    "view_payment": {"71,234.01", "7,711.12", "6,622.23"},
    "view_refund": {"5,533.34"},
    "view_payout": {"4,444.45", "1,253.15"},
}


@pytest.mark.any_database
@pytest.mark.case(88)
@pytest.mark.parametrize("permission", PANELS)
def test_each_panel_needs_the_permission_to_view_its_rows(staff: Callable[..., Client], permission: str) -> None:
    pay = rows.payment(created_at=ago(hours=1), amount=111, amount_received=111)
    rows.refund(payment=pay, created_at=ago(hours=1), status="succeeded", currency="USD", amount=222)
    rows.payout(created_at=ago(hours=1), status="succeeded", currency="USD", amount=333)
    rows.balance(currency="USD", available=44400)
    for kind, _shown, amount in MOVED:
        moved(ago(hours=1), amount, kind)
    rows.endpoint()
    # What another one had counted before is there, and not for this one.
    page(staff(*PANELS), DASHBOARD)
    client = staff(permission)
    overview = client.get(DASHBOARD)
    html = overview.content.decode() if overview.status_code == 200 else ""
    panels, technical_panels = PANELS[permission]
    assert panels_of(html) == panels
    is_technical = bool(technical_panels)
    assert (TECHNICAL in html) is (is_technical and overview.status_code == 200)
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
    assert {shown for _kind, shown, _amount in MOVED if shown in text(html)} == SEES_MOVED.get(permission, set())
    assert "8,964.27" not in html, "the fees of payments and payouts, added up"
    assert "Net" not in html
    for words, needed in (
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


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("permissions", "fees", "headings"),
    [
        (("view_payment",), "7,711.12", ["Received", "Fees", "Charged back"]),
        (("view_refund", "view_payout"), "1,253.15", ["Fees", "Refunded", "Paid out"]),
        (("view_payment", "view_payout"), "8,964.27", ["Received", "Fees", "Net", "Charged back", "Paid out"]),
        (
            ("view_payment", "view_movement"),
            "8,964.27",
            ["Received", "Fees", "Net", "Refunded", "Charged back", "Paid out"],
        ),
    ],
)
def test_money_in_and_out_has_the_kinds_whose_rows_the_user_may_see(
    permissions: tuple[str, ...], fees: str, headings: list[str]
) -> None:
    for kind, _shown, amount in MOVED:
        moved(ago(hours=1), amount, kind)
    user = User.objects.create_user("ana", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    html = page(browser(user), DASHBOARD)
    today, month = section(html, "pi-today"), section(html, "pi-money")
    assert re.findall(r'<th scope="col">(.*?)</th>', today)[1:] == headings
    assert [name for name in re.findall(r'<th scope="row">(.*?)</th>', month) if name in headings] == headings
    series = [one["name"] for one in chart(html, "pi-flow-USD")["series"]]
    assert series == [name for name in headings if name != "Net"]
    assert fees in today
    assert fees in month
    assert ("Net is what was received" in html) is ("Net" in headings)


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


def test_days_are_right_where_clocks_change_at_midnight(settings: Any) -> None:
    settings.TIME_ZONE = "America/Santiago"
    with time_machine.travel(datetime(2025, 9, 10, 12, tzinfo=UTC)):
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
        moved(ago(hours=1), largest, currency="CLP")
    rows.payment(status="succeeded", currency="USD", amount=-5, created_at=ago(hours=1))
    [group] = [group for group in statistics.gather("default", ["payments"]).payments if group.currency == "USD"]
    assert group.amount == -5
    cache.clear()
    shown = text(page(boss, DASHBOARD))
    assert shown.count("18,446,744,073,709,551,614") >= 3
    for model in ("payment", "payout", "refund"):
        assert "9,223,372,036,854,775,807" in text(page(boss, url(model, "changelist")))
        assert boss.get(url(model, "export")).status_code == 200
    for pk in ("pay_0", "pay_1"):
        assert "9,223,372,036,854,775,807" in text(page(boss, url("payment", "change", pk)))
