"""The cash book: its figures, their links, its files, and who sees it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any
from zipfile import ZipFile

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import translation

from payments_integration.contrib.backoffice.admin import export
from payments_integration.contrib.finance.balances import changes_of
from payments_integration.contrib.finance.models import MovementKind
from payments_integration.models import AccountState, Balance
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.contrib.finance.books import movement

pytestmark = pytest.mark.django_db

LIST = "/admin/payments_finance/movement/"
BOOK = f"{LIST}cash-book/"
JANUARY = "from=2026-01-01&to=2026-01-31"


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


def balance(account: str = "default", currency: str = "USD") -> Balance:
    row = rows.balance(currency=currency, account=account)
    changes_of(row).delete()
    for at, available in (("2025-12-31T12:00:00+00:00", 10000), ("2026-01-31T12:00:00+00:00", 12000)):
        rows.balance_change(row, at=at, available=available)
    return row


def business() -> Balance:
    row = balance()
    movement(occurred_on="2026-01-10", currency="USD", amount=5000)
    movement(occurred_on="2026-01-10", currency="USD", amount=-150, kind=MovementKind.PAYMENT_FEE)
    movement(occurred_on="2026-01-20", currency="USD", amount=-2850, kind=MovementKind.PAYOUT, object_id="pout_1")
    movement(occurred_on="2026-01-20", currency="USD", amount=-50, kind=MovementKind.PAYOUT_FEE, object_id="pout_1")
    movement(occurred_on="2025-12-20", booked_on="2026-01-21", currency="USD", amount=700, object_id="pay_2")
    movement(occurred_on="2026-01-22", booked_on="2026-02-21", currency="USD", amount=40, object_id="pay_3")
    return row


def lines(html: str, table: str = "pi-cash-all") -> dict[str, dict[str, list[str]]]:
    """The rows of a table: their cells' amounts by row and column."""
    found: dict[str, dict[str, list[str]]] = {}
    body = html.split(f'aria-labelledby="{table}"')[1].split("<tbody>")[1].split("</table>")[0]
    for row in body.split("<tr>")[1:]:
        name = re.sub(r"<[^>]+>", "", row.split("</th>")[0]).strip()
        cells = re.findall(r'<td data-label="([^"]+)">(.*?)</td>', row, re.DOTALL)
        found[name] = {heading: re.findall(r">([^<>]+)</", cell) for heading, cell in cells}
    return found


def number(shown: str) -> Decimal:
    return Decimal(shown.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def figures(client: Client, **query: str) -> list[dict[str, str]]:
    response: Any = client.get(BOOK, {"from": "2026-01-01", "to": "2026-01-31", "format": "csv-point", **query})
    text = response.getvalue().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_path_is_that_of_the_admin() -> None:
    assert reverse("admin:payments_finance_movement_cash-book") == BOOK


def test_the_whole_period_leads_from_the_opening_to_the_closing_balance(boss: Client) -> None:
    business()
    html = page(boss, f"{BOOK}?{JANUARY}")
    assert "January 2026" in html
    assert lines(html) == {
        "USD": {
            "Opening balance": ["100.00"],
            "Received": ["57.00"],
            "Fees": ["\N{MINUS SIGN}2.00"],
            "Refunded": [],
            "Charged back": [],
            "Paid out": ["\N{MINUS SIGN}28.50"],
            # Booked here and of December, and of January and booked in February.
            "Other months": ["\N{MINUS SIGN}7.00", "0.40"],
            "Unexplained": ["0.10"],
            "Closing balance": ["120.00"],
        }
    }
    amounts = [number(amount) for cell in list(lines(html)["USD"].values())[:-1] for amount in cell]
    assert sum(amounts) == Decimal("120.00")
    assert "top-ups, withdrawals" in html
    assert "recorded later" in html


def test_each_day_that_moved_is_a_line(boss: Client) -> None:
    business()
    found = lines(page(boss, f"{BOOK}?{JANUARY}"), "pi-cash-1")
    assert list(found) == ["Jan. 10, 2026", "Jan. 20, 2026", "Jan. 21, 2026", "Jan. 22, 2026", "Jan. 31, 2026"]
    assert found["Jan. 10, 2026"]["Received"] == ["50.00"]
    assert found["Jan. 10, 2026"]["Unexplained"] == ["\N{MINUS SIGN}48.50"]
    assert found["Jan. 20, 2026"]["Fees"] == ["\N{MINUS SIGN}0.50"]
    assert found["Jan. 21, 2026"]["Other months"] == ["\N{MINUS SIGN}7.00"]
    assert found["Jan. 22, 2026"]["Other months"] == ["0.40"]


def test_every_figure_links_to_exactly_its_movements(boss: Client) -> None:
    business()
    movement(occurred_on="2026-01-10", currency="CLP", amount=900, object_id="pay_4")
    movement(occurred_on="2026-01-10", currency="USD", amount=900, object_id="pay_5", account="second")
    for query in (
        JANUARY,
        f"{JANUARY}&account=default",
        "from=2026-01-10&to=2026-01-10",
        "from=2025-12-01&to=2026-03-01",
    ):
        html = page(boss, f"{BOOK}?{query}")
        links = re.findall(rf'<a class="pi-money" href="({LIST}\?[^"]+)" aria-label="[^"]+: ([^"]+)"', html)
        assert links, query
        for address, shown in links:
            listed: Any = boss.get(unescape(address))
            found = listed.context["cl"].result_list
            total = sum(row.amount for row in found)
            # What the balance has had before is taken away again.
            if "occurred_to" in address and "occurred_from" not in address:
                total = -total
            decimals = 0 if found[0].currency == "CLP" else 2
            assert number(shown) == Decimal(total) / 10**decimals, (query, address)


def test_yesterday_is_explained_on_one_page(boss: Client) -> None:
    row = balance()
    rows.balance_change(row, at="2026-03-01T09:00:00+00:00", available=12300)
    movement(occurred_on="2026-03-01", currency="USD", amount=250)
    html = page(boss, f"{BOOK}?days=yesterday")
    assert "March 1, 2026" in html
    found = lines(html)["USD"]
    assert (found["Received"], found["Unexplained"], found["Closing balance"]) == (["2.50"], ["0.50"], ["123.00"])
    # There is nothing to show day by day.
    assert 'id="pi-cash-1"' not in html
    # What is unexplained leads to the changes of that day.
    assert f'href="{url("balance", "change", row.pk)}?until=2026-03-02T00%3A00%3A00%2B00%3A00"' in html


def test_the_closing_balance_is_the_providers(boss: Client) -> None:
    row = balance()
    changes_of(row).filter(at__month=1).update(pending=20, reserve=300, hold=4000, debt=5)
    found = lines(page(boss, f"{BOOK}?{JANUARY}"), "pi-cash-sum")
    assert found == {
        "default USD": {
            "Available": ["120.00"], "+ Pending": ["0.20"], "+ Reserve": ["3.00"], "+ Hold": ["40.00"],
            "− Debt": ["0.05"], "= Closing balance": ["163.15"],
        }
    }  # fmt: skip


def test_it_shows_one_account_or_all_and_names_them(boss: Client, settings: Any) -> None:
    balance()
    balance("second")
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    named = {**accounts, "second": {**accounts["second"], "NAME": "Shop in Brazil"}}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": named}
    html = page(boss, f"{BOOK}?{JANUARY}")
    assert lines(html)["USD"]["Closing balance"] == ["240.00"]
    assert set(lines(html, "pi-cash-sum")) == {"default USD", "Shop in Brazil USD"}
    one = page(boss, f"{BOOK}?{JANUARY}&account=second")
    assert lines(one)["USD"]["Closing balance"] == ["120.00"]
    assert set(lines(one, "pi-cash-sum")) == {"Shop in Brazil USD"}
    assert 'href="?from=2025-12-01&amp;to=2025-12-31&amp;account=second"' in one
    assert {line["account"] for line in figures(boss)} == {"default", "second"}
    assert {line["account"] for line in figures(boss, account="second")} == {"second"}


def test_an_account_of_another_process_is_not_replaced_by_all(boss: Client, settings: Any) -> None:
    balance()
    accounts = {"default": settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    assert 'name="account"' not in page(boss, f"{BOOK}?{JANUARY}")
    assert "Select a valid choice." in page(boss, f"{BOOK}?{JANUARY}&account=second")


def test_the_button_of_a_balance_in_an_unknown_currency_leads_to_its_book(boss: Client) -> None:
    html = page(boss, url("balance", "change", balance(currency="ARS").pk))
    [link] = [unescape(link) for link in re.findall(r'href="([^"]*cash-book/\?[^"]*)"', html)]
    assert set(lines(page(boss, link))) == {"ARS"}


def test_a_book_of_one_account_does_not_link_to_the_balance_of_another(boss: Client) -> None:
    address = url("balance", "change", balance().pk)
    movement(account="second", occurred_on="2026-01-10", currency="USD")
    assert address in page(boss, f"{BOOK}?{JANUARY}&account=default")
    assert address not in page(boss, f"{BOOK}?{JANUARY}&account=second")


def test_it_shows_one_currency(boss: Client) -> None:
    balance()
    balance(currency="CLP")
    assert set(lines(page(boss, f"{BOOK}?{JANUARY}"))) == {"CLP", "USD"}
    assert set(lines(page(boss, f"{BOOK}?{JANUARY}&currency=CLP"))) == {"CLP"}
    assert {line["currency"] for line in figures(boss, currency="CLP")} == {"CLP"}


def test_it_says_which_rule_it_uses_and_whether_the_month_is_closed(boss: Client) -> None:
    html = page(boss, f"{BOOK}?days=last-month")
    assert "Money counts on the day when it moved, in the time zone UTC." in html
    assert "movements may be added until 2026-03-04 01:00:00" in html
    html = page(boss, f"{BOOK}?{JANUARY}")
    assert "These months are closed" in html
    assert "movements may be added until" not in html


def test_it_does_not_call_balances_stored_while_reconciliation_is_behind(boss: Client) -> None:
    balance()
    behind = AccountState.objects.create(account="default", watermark=datetime(2026, 1, 20, tzinfo=UTC))
    html = page(boss, f"{BOOK}?{JANUARY}")
    assert "These months are closed, but their balances are not stored yet and may change." in html
    assert "their balances are stored and stay" not in html
    assert "their balances are stored and stay" in page(boss, f"{BOOK}?{JANUARY}&account=second")
    behind.watermark = datetime(2026, 2, 1, tzinfo=UTC)
    behind.save()
    assert "their balances are stored and stay" in page(boss, f"{BOOK}?{JANUARY}")


def test_it_begins_with_this_month_and_leads_to_its_neighbours(boss: Client) -> None:
    html = page(boss, BOOK)
    assert '<a href="?days=this-month" aria-current="page">This month</a>' in html
    # Before a month that has just begun is a whole month, not its last two days.
    assert 'href="?from=2026-02-01&amp;to=2026-02-28"' in html
    html = page(boss, f"{BOOK}?days=last-month")
    assert 'href="?from=2026-01-01&amp;to=2026-01-31"' in html
    assert 'href="?from=2026-03-01&amp;to=2026-03-31"' in html
    html = page(boss, f"{BOOK}?from=2026-01-10&to=2026-01-12")
    assert 'href="?from=2026-01-07&amp;to=2026-01-09"' in html
    assert 'href="?from=2026-01-13&amp;to=2026-01-15"' in html
    assert "Jan. 10, 2026 to Jan. 12, 2026" in html


@pytest.mark.parametrize(
    ("query", "earlier"),
    [
        ("", "from=2026-02-01&amp;to=2026-02-28"),
        ("?days=this-month", "from=2026-02-01&amp;to=2026-02-28"),
        ("?days=today", "from=2026-02-28&amp;to=2026-02-28"),
        ("?from=2026-03-01&to=2026-03-01", "from=2026-02-28&amp;to=2026-02-28"),
    ],
)
def test_before_the_first_day_of_this_month_is_last_month_unless_a_day_was_chosen(
    boss: Client, query: str, earlier: str
) -> None:
    with time_machine.travel("2026-03-01T12:00:00Z"):
        assert f'href="?{earlier}"' in page(boss, f"{BOOK}{query}")


@pytest.mark.parametrize(
    ("query", "has_later"),
    [
        ("from=9981-01-01&to=9990-12-31", False),
        ("from=9981-01-01&to=9990-12-30", False),
        ("from=9990-12-01&to=9990-12-31", False),
        ("from=9990-11-01&to=9990-11-30", True),
        ("from=9990-12-30&to=9990-12-30", True),
    ],
)
def test_nothing_is_later_than_the_last_year(boss: Client, query: str, has_later: bool) -> None:
    html = page(boss, f"{BOOK}?{query}")
    later = html.partition("← Earlier</a>")[2].partition("</p>")[0]
    assert ("Later" in later) is has_later
    if has_later:
        assert page(boss, BOOK + later.split('href="')[1].split('"')[0].replace("&amp;", "&")).count("pi-wrong") == 0


def test_a_long_period_has_a_line_for_each_month(boss: Client) -> None:
    business()
    found = lines(page(boss, f"{BOOK}?from=2025-12-01&to=2026-03-31"), "pi-cash-1")
    assert list(found) == ["December 2025", "January 2026", "February 2026"]
    assert found["December 2025"]["Opening balance"] == ["not known"]
    assert found["January 2026"]["Closing balance"] == ["120.00"]


def test_without_a_mirrored_balance_it_says_so(boss: Client) -> None:
    movement(occurred_on="2026-01-10")
    found = lines(page(boss, f"{BOOK}?{JANUARY}"))["CLP"]
    assert found["Opening balance"] == found["Closing balance"] == found["Unexplained"] == ["not known"]
    assert figures(boss)[0]["closing_balance"] == ""


def test_a_period_without_anything(boss: Client) -> None:
    assert "No movements and no balances." in page(boss, f"{BOOK}?{JANUARY}")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=2026-13-01&to=2026-01-31", "Enter a valid date."),
        ("from=2026-01-31&to=2026-01-01", "The last day is before the first one."),
        ("from=2026-01-31", "This field is required."),
        ("from=1901-01-01&to=2026-01-31", "Choose at most 10 years."),
        ("days=tomorrow", "This period is not known."),
        (f"{JANUARY}&account=third", "Select a valid choice."),
        (f"{JANUARY}&currency=XXX", "Select a valid choice."),
    ],
)
@pytest.mark.parametrize("file", ["", "&format=csv", "&journal=csv"])
def test_a_wrong_period_is_an_error_of_its_field(boss: Client, query: str, words: str, file: str) -> None:
    html = page(boss, f"{BOOK}?{query}{file}")
    assert "errornote" in html
    assert words in html


def test_the_file_has_a_line_for_each_day_account_and_currency(boss: Client) -> None:
    business()
    found = figures(boss)
    assert len(found) == 31
    day = found[9]
    assert (day["from"], day["to"], day["account"], day["currency"]) == ("2026-01-10", "2026-01-10", "default", "USD")
    assert (day["received"], day["fees"], day["unexplained"]) == ("50.00", "-1.50", "-48.50")
    whole = [name for name in found[0] if name not in ("from", "to", "account", "currency", "closing_balance")]
    added = Decimal(found[0]["opening_balance"])
    added += sum(Decimal(line[name]) for line in found for name in whole if name != "opening_balance")
    assert added == Decimal(found[-1]["closing_balance"]) == Decimal("120.00")


def test_files_have_the_dialect_of_the_lists_export(boss: Client) -> None:
    business()
    with translation.override("pt-br"):
        response: Any = boss.get(f"{BOOK}?{JANUARY}&format=csv")
    assert response["Content-Disposition"] == 'attachment; filename="cash-book-2026-01-01-to-2026-01-31.csv"'
    text = response.getvalue().decode()
    assert text.startswith("\ufefffrom;to;account;currency;opening_balance;")
    assert ";50,00;" in text
    assert boss.get(f"{BOOK}?{JANUARY}&format=pdf").status_code == 400


def test_the_excel_file_has_numbers_and_days(boss: Client) -> None:
    business()
    response: Any = boss.get(f"{BOOK}?{JANUARY}&format=xlsx")
    with ZipFile(io.BytesIO(response.getvalue())) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
        styles = book.read("xl/styles.xml").decode()
    # Older versions of XlsxWriter write 50 where newer ones write 50.00.
    numbers = {Decimal(number) for number in re.findall(r"<v>([\d.]+)</v>", sheet)}
    assert Decimal(50) in numbers
    # 10 January 2026, as Excel counts days.
    assert Decimal(46032) in numbers
    assert 'formatCode="yyyy-mm-dd"' in styles


def test_without_the_extra_the_page_says_what_is_missing(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "has_xlsx", lambda: False)
    assert "install the extra" in page(boss, f"{BOOK}?{JANUARY}&format=xlsx")


def test_the_page_offers_the_journal_of_the_command(boss: Client) -> None:
    business()
    for name, suffix in (("csv", "csv"), ("beancount", "beancount"), ("hledger", "journal")):
        out = io.StringIO()
        call_command(
            "payments_journal", since="2026-01-01", until="2026-02-01", format=name, stdout=out, stderr=io.StringIO()
        )
        address = f"?from=2026-01-01&amp;to=2026-01-31&amp;journal={name}"
        assert f'href="{address}"' in page(boss, f"{BOOK}?{JANUARY}")
        response: Any = boss.get(BOOK + unescape(address))
        expected = f'attachment; filename="journal-2026-01-01-to-2026-01-31.{suffix}"'
        assert response.headers["Content-Disposition"] == expected
        assert response.getvalue().decode() == out.getvalue()
    assert boss.get(f"{BOOK}?{JANUARY}&journal=pdf").status_code == 400


def test_the_journal_of_a_book_of_one_currency_has_this_currency(boss: Client) -> None:
    business()
    movement(occurred_on="2026-01-10", currency="CLP", object_id="pay_9")
    [link] = re.findall(r'href="(\?[^"]*journal=csv)"', page(boss, f"{BOOK}?{JANUARY}&currency=CLP"))
    response: Any = boss.get(BOOK + unescape(link))
    [*found] = csv.DictReader(io.StringIO(response.getvalue().decode()))
    assert {line["object_id"] for line in found} == {"pay_9"}


def test_a_journal_that_cannot_be_written_is_a_message(boss: Client) -> None:
    movement(occurred_on="2026-01-10", currency="odd<b>")
    html = page(boss, f"{BOOK}?{JANUARY}&journal=beancount")
    assert "The currency &quot;odd&lt;b&gt;&quot; cannot be written in this format." in html


def test_it_needs_the_permission_to_view_movements_and_balances() -> None:
    for codenames, status in (
        ((), 403),
        (("view_movement",), 403),
        (("view_balance",), 403),
        (("view_movement", "view_balance"), 200),
    ):
        client = staff(*codenames)
        for query in ("", "?format=csv", "?journal=csv"):
            assert client.get(BOOK + query).status_code == status, (codenames, query)
    assert Client().get(BOOK).status_code == 302


def test_the_list_links_to_it_where_it_is_allowed() -> None:
    assert BOOK not in page(staff("view_movement"), LIST)
    assert BOOK in page(staff("view_movement", "view_balance"), LIST)


def test_it_is_only_read(boss: Client) -> None:
    assert boss.post(BOOK).status_code == 405


def test_it_takes_as_many_statements_for_many_movements_as_for_few(boss: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(boss, f"{BOOK}?{JANUARY}")
        return len(captured)

    business()
    page(boss, f"{BOOK}?{JANUARY}")
    few = count()
    for currency in ("CLP", "PEN", "MXN"):
        balance(currency=currency)
        for day in range(1, 29):
            movement(occurred_on=f"2026-01-{day:02}", currency=currency, object_id=f"pay_{currency}_{day}")
    page(boss, f"{BOOK}?{JANUARY}")
    assert count() == few <= 14
