"""The movements and the monthly statement in the admin: who sees them, and that its figures are the journal's."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.models import BalanceChange
from tests.factories import rows
from tests.unit.admin.conftest import boss as boss, browser, page, url  # the fixture is imported
from tests.unit.contrib.finance.books import movement

pytestmark = pytest.mark.django_db

LIST = "/admin/payments_finance/movement/"
STATEMENT = f"{LIST}statement/"


@pytest.fixture(autouse=True)
def _march() -> Iterator[None]:
    with time_machine.travel("2026-03-02T12:00:00Z"):
        yield


def staff(*codenames: str) -> Client:
    user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
    found = Permission.objects.filter(codename__in=codenames)
    assert found.count() == len(codenames)
    user.user_permissions.set(found)
    return browser(user)


def figures(client: Client, **query: str) -> dict[tuple[str, str, str], str]:
    """The file of figures: (account, currency, figure) to the amount."""
    response: Any = client.get(STATEMENT, {"month": "2026-01", "file": "statement", **query})
    assert response.headers["Content-Disposition"] == 'attachment; filename="statement-2026-01.csv"'
    lines = csv.DictReader(io.StringIO(response.getvalue().decode()))
    return {(line["account"], line["currency"], line["figure"]): line["amount"] for line in lines}


def balance(account: str = "default") -> None:
    row = rows.balance(currency="USD", account=account)
    BalanceChange.objects.all().delete()
    for at, available in (("2025-12-31T12:00:00+00:00", 10000), ("2026-01-31T12:00:00+00:00", 12000)):
        BalanceChange.objects.create(balance=row, at=at, available=available, pending=0, reserve=0, hold=0, debt=0)


def business() -> None:
    balance()
    movement(occurred_on="2026-01-10", currency="USD", amount=5000)
    movement(occurred_on="2026-01-10", currency="USD", amount=-150, kind=MovementKind.PAYMENT_FEE)
    movement(occurred_on="2026-01-20", currency="USD", amount=-2850, kind=MovementKind.PAYOUT, object_id="pout_1")
    movement(occurred_on="2025-12-20", booked_on="2026-01-21", currency="USD", amount=700, object_id="pay_2")
    movement(occurred_on="2026-01-22", booked_on="2026-02-21", currency="USD", amount=40, object_id="pay_3")


def test_the_paths_are_those_of_the_admin() -> None:
    assert reverse("admin:payments_finance_movement_changelist") == LIST
    assert reverse("admin:payments_finance_movement_statement") == STATEMENT


def test_the_file_of_figures_adds_up(boss: Client) -> None:
    business()
    found = {figure: amount for (_, _, figure), amount in figures(boss).items()}
    assert found == {
        "opening_balance": "100.00",
        "payment": "57.00",
        "payment_fee": "-1.50",
        "payout": "-28.50",
        "movements": "27.00",
        "occurred_before": "-7.00",
        "recorded_after": "0.40",
        "unexplained": "-0.40",
        "closing_balance": "120.00",
    }
    sums = ("opening_balance", "movements", "occurred_before", "recorded_after", "unexplained")
    assert sum(Decimal(found[name]) for name in sums) == Decimal(found["closing_balance"])


def test_the_page_shows_the_same_figures(boss: Client) -> None:
    business()
    html = page(boss, f"{STATEMENT}?month=2026-01")
    assert "January 2026" in html
    for amount in ("100.00", "57.00", "1.50", "28.50", "27.00", "7.00", "0.40", "120.00"):
        assert f"{amount}</" in html, amount
    assert "top-ups, withdrawals" in html


def test_the_page_names_the_account_only_where_there_are_several(boss: Client, settings: Any) -> None:
    business()

    def headings() -> list[str]:
        return re.findall(r'<h3 id="pi-statement-\d+">([^<]+)</h3>', page(boss, f"{STATEMENT}?month=2026-01"))

    assert headings() == ["default USD"]
    accounts = {"default": settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    assert headings() == ["USD"]


def test_the_page_offers_the_journal_of_the_command(boss: Client) -> None:
    business()
    for name, suffix in (("csv", "csv"), ("beancount", "beancount"), ("hledger", "journal")):
        out = io.StringIO()
        call_command(
            "payments_journal", since="2026-01-01", until="2026-02-01", format=name, stdout=out, stderr=io.StringIO()
        )
        assert f'href="?month=2026-01&amp;file={name}"' in page(boss, f"{STATEMENT}?month=2026-01")
        response: Any = boss.get(STATEMENT, {"month": "2026-01", "file": name})
        assert response.headers["Content-Disposition"] == f'attachment; filename="journal-2026-01.{suffix}"'
        assert response.getvalue().decode() == out.getvalue()


def test_a_journal_that_cannot_be_written_is_a_message(boss: Client) -> None:
    movement(occurred_on="2026-01-10", currency="odd<b>")
    html = page(boss, f"{STATEMENT}?month=2026-01&file=beancount")
    assert "The currency &quot;odd&lt;b&gt;&quot; cannot be written in this format." in html


def test_it_begins_with_the_last_month_and_leads_to_its_neighbours(boss: Client) -> None:
    html = page(boss, STATEMENT)
    assert 'value="2026-02"' in html
    assert 'href="?month=2026-01"' in html
    assert 'href="?month=2026-03"' in html
    assert "movements may be added until" in html
    assert "movements may be added until" not in page(boss, f"{STATEMENT}?month=2026-01")


def test_it_shows_one_account_or_all(boss: Client) -> None:
    balance()
    balance("second")
    assert {account for account, _, _ in figures(boss)} == {"default", "second"}
    assert {account for account, _, _ in figures(boss, account="second")} == {"second"}
    html = page(boss, f"{STATEMENT}?month=2026-01&account=second")
    assert "second USD" in html
    assert "default USD" not in html
    assert 'href="?month=2025-12&amp;account=second"' in html


def test_without_a_mirrored_balance_it_says_so(boss: Client) -> None:
    movement(occurred_on="2026-01-10")
    assert "no balance known" in page(boss, f"{STATEMENT}?month=2026-01")
    assert figures(boss)["default", "CLP", "closing_balance"] == ""


def test_a_month_without_anything(boss: Client) -> None:
    assert "No movements and no balances." in page(boss, f"{STATEMENT}?month=2026-01")


@pytest.mark.parametrize("month", ["", "2026-13", "0001-01", "9999-12", "x", "2026-01-01"])
def test_a_month_that_is_none_is_an_error_of_the_form(boss: Client, month: str) -> None:
    html = page(boss, f"{STATEMENT}?month={month}&file=csv")
    assert "errornote" in html


def test_the_statement_needs_the_permission_to_view_movements_and_balances() -> None:
    for codenames, status in (
        ((), 403),
        (("view_movement",), 403),
        (("view_balance",), 403),
        (("view_movement", "view_balance"), 200),
    ):
        client = staff(*codenames)
        for query in ("", "?file=statement", "?file=csv"):
            assert client.get(STATEMENT + query).status_code == status, (codenames, query)
    assert Client().get(STATEMENT).status_code == 302


def test_the_list_links_to_the_statement_where_it_is_allowed() -> None:
    assert STATEMENT not in page(staff("view_movement"), LIST)
    assert STATEMENT in page(staff("view_movement", "view_balance"), LIST)


def test_the_statement_is_only_read(boss: Client) -> None:
    assert boss.post(STATEMENT).status_code == 405


def test_movements_are_listed_shown_and_exported_and_never_changed(boss: Client) -> None:
    payment = rows.payment(id="pay_1")
    one = movement(occurred_on="2026-01-10")
    assert f'href="{url("payment", "change", payment.pk)}"' in page(boss, LIST)
    assert ">2026-01-10<" in page(boss, f"{LIST}{one.pk}/change/")
    exported: Any = boss.get(f"{LIST}export/")
    assert b"pay_1" in exported.getvalue()
    for address in (f"{LIST}add/", f"{LIST}{one.pk}/delete/"):
        assert boss.get(address).status_code == 403
    assert boss.post(f"{LIST}{one.pk}/change/", {"amount": 1}).status_code == 403
    assert Movement.objects.get().amount == 1000
    assert staff("view_movement").get(LIST).status_code == 200
    assert staff("view_balance").get(LIST).status_code == 403


def test_the_list_has_pages(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order begins with a day."""
    monkeypatch.setattr(admin.site.get_model_admin(Movement), "list_per_page", 2)
    for day in (10, 10, 11, 12, 13):
        movement(occurred_on=f"2026-01-{day}", object_id=f"pay_{day}")
    response: Any = boss.get(LIST)
    seen = [row.booked_on.day for row in response.context["cl"].result_list]
    while response.context["cl"].older_url:
        response = boss.get(LIST + response.context["cl"].older_url)
        seen += [row.booked_on.day for row in response.context["cl"].result_list]
    assert seen == [13, 12, 11, 10, 10]
