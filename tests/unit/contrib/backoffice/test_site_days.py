"""Whoever looks, a payment counts on the same day: also if a middleware activates each user's own time zone."""

from __future__ import annotations

import csv
import io
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from payments_integration.contrib.backoffice.admin.overview import statistics
from payments_integration.contrib.receipts.views import facts
from payments_integration.health.details import explain
from payments_integration.management.arguments import time_argument
from payments_integration.signals import Reason
from tests.factories import rows
from tests.unit.admin.conftest import url
from tests.unit.admin.lists.test_filters import found
from tests.unit.contrib.backoffice.test_overview import DASHBOARD, chart, page

USERS = ["UTC", "America/Santiago", "America/Tijuana", "Pacific/Kiritimati"]
#: In October for Tijuana, in November for the site and for Santiago.
LATE = datetime(2026, 11, 1, 3, 30, tzinfo=UTC)
NOW = datetime(2026, 11, 1, 4, tzinfo=UTC)

pytestmark = [pytest.mark.case(135), pytest.mark.django_db]


class Zone:
    """A middleware as many projects have one."""

    zone = ""

    def __init__(self, get_response: Callable[..., Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        with timezone.override(self.zone):
            response = self.get_response(request)
            # A streamed file is made while the zone is active, as under servers that read it in the request's thread.
            if response.streaming:
                response.streaming_content = iter(list(response.streaming_content))
            return response


@pytest.fixture(params=USERS)
def user_zone(request: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    settings.TIME_ZONE = "America/Santiago"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.Zone"]
    monkeypatch.setattr(Zone, "zone", request.param)
    return str(request.param)


@pytest.fixture
def october(user_zone: str) -> dict[str, str]:
    """A payment of the site's October, and one of its November."""
    end = datetime(2026, 11, 1, 2, 59, tzinfo=UTC)
    return {
        name: rows.payment(
            created_at=at, succeeded_at=at, status="succeeded", currency="CLP", amount=1_000, amount_received=1_000
        ).pk
        for name, at in (("october", end), ("november", LATE))
    }


def exported(client: Client, query: str) -> list[dict[str, str]]:
    response = client.get(f"{url('payment', 'export')}?{query}")
    text = b"".join(response.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(text)))


@time_machine.travel(NOW, tick=False)
@pytest.mark.parametrize(
    "query",
    [
        "from=2026-10-01&to=2026-10-31",
        "days=last-month",
        "days=yesterday",
        "succeeded_from=2026-10-31&succeeded_to=2026-10-31",
    ],
)
def test_a_filtered_list_and_its_file_hold_the_sites_days(boss: Client, october: dict[str, str], query: str) -> None:
    assert found(boss, query) == {october["october"]}
    (row,) = exported(boss, query)
    assert (row["id"], row["created_at"]) == (october["october"], "2026-10-31 23:59:00")


@time_machine.travel(NOW, tick=False)
def test_the_list_the_page_and_the_name_of_the_file_have_the_sites_times(
    boss: Client, october: dict[str, str]
) -> None:
    for where in (url("payment", "changelist"), url("payment", "change", october["october"])):
        html = page(boss, where)
        assert "Times are in the time zone America/Santiago." in html
        assert "2026-10-31 23:59:00" in html.replace('<span class="pi-date">2026-10-31</span>', "2026-10-31")
    name = boss.get(url("payment", "export"))["Content-Disposition"]
    assert name == 'attachment; filename="payment-2026-11-01.csv"'


@time_machine.travel(NOW, tick=False)
def test_the_overview_counts_the_sites_days(boss: Client, october: dict[str, str]) -> None:
    html = page(boss, DASHBOARD)
    data = chart(html, "pi-volume-CLP")
    assert data["series"][0]["values"][-2:] == [1_000, 1_000]
    assert data["zone"] == "America/Santiago"
    links = [part.split('"')[0] for part in html.split('href="') if "from=2026-10-31" in part]
    listed = [found(boss, link.split("?")[1].replace("&amp;", "&")) for link in links if "to=2026-10-31" in link]
    assert listed
    assert all(ids == {october["october"]} for ids in listed)


@time_machine.travel(NOW, tick=False)
def test_the_cash_book_of_last_month_is_that_of_the_site(boss: Client, user_zone: str) -> None:
    html = page(boss, reverse("admin:payments_finance_movement_cash-book") + "?days=last-month")
    assert 'value="2026-10-01"' in html
    assert 'value="2026-10-31"' in html
    assert "in the time zone America/Santiago" in html
    assert "2026-11-04 01:00:00" in html


@time_machine.travel(NOW, tick=False)
def test_two_users_share_the_cached_overview(user_zone: str, django_assert_num_queries: Any) -> None:
    statistics.gather("default", ["payments"])
    with timezone.override(user_zone), django_assert_num_queries(0):
        statistics.gather("default", ["payments"])


def test_the_history_has_the_sites_times(boss: Client, user_zone: str) -> None:
    row = rows.event(state="parked")
    with time_machine.travel(LATE, tick=False):
        boss.post(url("event", "replay", row.pk))
    assert "2026-11-01 00:30:00" in page(boss, url("event", "history", row.pk))


def test_a_receipt_has_the_day_of_its_country_on_its_page_as_in_its_mail(user_zone: str) -> None:
    payment = rows.payment(status="succeeded", succeeded_at=LATE, country="CL")
    with timezone.override(user_zone):
        assert facts(payment)["paid_in_words"] == "Nov. 1, 2026, 12:30 a.m. (UTC-03:00)"


def test_commands_read_and_write_the_sites_times(user_zone: str) -> None:
    rows.operation(state="needs_person", created_at=LATE)
    with timezone.override(user_zone):
        assert time_argument("2026-11-01").astimezone(UTC) == datetime(2026, 11, 1, 3, tzinfo=UTC)
        assert "asked for at 2026-11-01 00:30:00-03:00" in explain("default", Reason.OPERATION_NEEDS_RESOLUTION)[0]
    with pytest.raises(ArgumentTypeError):
        time_argument("01.11.2026")


def test_an_operations_note_has_the_times_of_its_page(user_zone: str) -> None:
    with timezone.override(user_zone), time_machine.travel(LATE, tick=False):
        assert rows.operation(note="").with_note("found") == "2026-11-01 00:30:00: found"
