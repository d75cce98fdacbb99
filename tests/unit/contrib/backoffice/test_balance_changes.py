"""What changed a balance: its changes, beside the objects that changed at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from payments_integration.admin.shared.sections import ROWS
from payments_integration.contrib.backoffice.admin import balance_changes
from payments_integration.contrib.finance.balances import changes_of
from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.models import Balance
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

FIRST = {"available": 100_000, "pending": 0, "reserve": 0, "hold": 0, "debt": 0}


def balance(**fields: Any) -> Balance:
    """A balance with one change, at ``rows.AT``."""
    row = rows.balance(currency="CLP", **fields)
    changes_of(row).delete()
    at(row, 0)
    return row


def at(row: Balance, minutes: float, **amounts: int) -> BalanceChange:
    """A change so many minutes later."""
    moment = rows.AT + timedelta(minutes=minutes)
    return rows.balance_change(row, at=moment, **{**FIRST, **amounts})


def paid(minutes: float, amount: int, **fields: Any) -> Any:
    row = rows.payment(**{"currency": "CLP", "amount": amount, "amount_received": amount, "fee": 0, **fields})
    rows.change(row, at=rows.AT + timedelta(minutes=minutes), account=row.account, status=row.status)
    return row


def changed(make: Callable[..., Any], minutes: float, **fields: Any) -> Any:
    row = make(**{"currency": "CLP", **fields})
    rows.change(row, at=rows.AT + timedelta(minutes=minutes), status=row.status)
    return row


def table(client: Client, row: Balance) -> list[list[str]]:
    """The cells of the table, as text, newest first."""
    html = page(client, url("balance", "change", row.pk))
    section = html.split("What moved it", 1)[1].split("</table>")[0]
    lines = re.findall(r"<tr>(.*?)</tr>", section.split("<tbody>")[1], re.DOTALL)
    cells = [re.findall(r"<td>(.*?)</td>", line, re.DOTALL) for line in lines]
    return [[strip_tags(cell.replace("<br>", "; ")).replace("\xa0", " ") for cell in line] for line in cells]


def test_a_change_is_shown_with_the_objects_that_changed_since_the_one_before(boss: Client) -> None:
    row = balance()
    at(row, 10, available=115_500, pending=500)
    at(row, 20, available=95_000, hold=20_500, pending=500)
    one = paid(9, 15_990, fee=490)
    late = paid(21, 999)
    out = changed(rows.payout, 20.01, amount=20_000, fee=500, status="created", merchant_reference="SUP-1")
    newer, older = table(boss, row)
    assert older == [
        "2025-03-04 05:16:07", "available +CLP 15,500; pending +CLP 500", "CLP 115,500",
        f"payment {one.merchant_reference} CLP 15,500 succeeded same amount",
    ]  # fmt: skip
    assert newer[1] == "available −CLP 20,500; hold +CLP 20,500"
    assert newer[3] == "payout SUP-1 CLP 20,500 created same amount", "told of just after the balance"
    html = page(boss, url("balance", "change", row.pk))
    assert f'href="{url("payment", "change", one.pk)}"' in html
    assert f'href="{url("payout", "change", out.pk)}"' in html
    assert late.merchant_reference not in html


def test_an_answer_gives_its_time_in_whole_seconds(boss: Client) -> None:
    row = balance()
    at(row, 10.005, available=99_000)
    at(row, 10.01, available=98_300)
    refund = changed(rows.refund, 10, amount=700, status="created")
    newer, older = table(boss, row)
    assert newer[3] == f"refund {refund.pk} CLP 700 created same amount"
    assert older[3] == "–"


@pytest.mark.parametrize(
    "other",
    [
        {"currency": "USD"}, {"account": "second"}, {"status": "processing"}, {"status": "failed"}, {"minutes": -0.1},
        {"minutes": 10.1},
    ],
)  # fmt: skip
def test_objects_that_cannot_have_changed_it_are_left_out(boss: Client, other: dict[str, Any]) -> None:
    row = balance()
    at(row, 10, available=100_700)
    paid(**{"minutes": 9, "amount": 700, **other})
    assert table(boss, row)[0][3] == "–"


@pytest.mark.parametrize(
    ("make", "fields", "difference", "is_exact"),
    [
        (rows.payment, {"amount_received": 1000, "fee": 30, "status": "succeeded"}, 970, True),
        (rows.payment, {"amount_received": 1000, "fee": 30, "net_amount": 960, "status": "succeeded"}, 960, True),
        (rows.payment, {"amount_received": 1000, "fee": 30, "net_amount": 960, "status": "succeeded"}, 970, False),
        (rows.payment, {"amount_received": 1000, "fee": 30, "status": "chargeback"}, -1000, True),
        (rows.payout, {"amount": 1000, "fee": 30, "status": "created"}, -1030, True),
        (rows.payout, {"amount": 1000, "fee": 30, "status": "returned"}, 1000, True),
        (rows.refund, {"amount": 1000, "status": "created"}, -1000, True),
        (rows.refund, {"amount": 1000, "status": "created"}, -1001, False),
    ],
)
def test_an_object_with_the_same_amount_is_marked_and_has_that_amount(
    boss: Client, make: Callable[..., Any], fields: dict[str, Any], difference: int, is_exact: bool
) -> None:
    row = balance()
    at(row, 10, available=100_000 + difference)
    changed(make, 10, **fields)
    cell = table(boss, row)[0][3]
    assert ("same amount" in cell) is is_exact
    assert (f" CLP {abs(difference):,} " in cell) is is_exact


def test_objects_that_explain_a_change_together_are_marked(boss: Client) -> None:
    row = balance()
    at(row, 10, available=103_000)
    paid(9, 1000)
    paid(9, 2000)
    assert table(boss, row)[0][3].endswith("; Together the same amount")


def test_an_object_that_explains_a_change_is_not_shown_beside_its_neighbour(boss: Client) -> None:
    row = balance()
    at(row, 10, available=101_000)
    at(row, 10.01, available=103_000)
    first, second = paid(10, 1000), paid(10.01, 2000)
    newer, older = table(boss, row)
    assert first.merchant_reference in older[3]
    assert second.merchant_reference not in older[3]
    assert second.merchant_reference in newer[3]


def test_of_several_changes_of_an_object_the_nearest_is_shown(boss: Client) -> None:
    row = balance()
    at(row, 10, available=99_000, hold=1000)
    out = changed(rows.payout, 10.001, amount=1000, status="created")
    rows.change(out, at=rows.AT + timedelta(minutes=10.02), status="processing")
    assert table(boss, row)[0][3].count("payout") == 1
    assert "created" in table(boss, row)[0][3]


def test_a_change_of_an_object_long_after_the_one_that_it_explains_is_not_shown_for_it(boss: Client) -> None:
    row = balance()
    at(row, 10, available=99_000, hold=1000)
    out = changed(rows.payout, 1, amount=1000, status="created")
    rows.change(out, at=rows.AT + timedelta(minutes=10.1), status="processing")
    at(row, 20, available=98_500)
    newer, older = table(boss, row)
    assert older[3].endswith("CLP 1,000 created same amount")
    assert newer[3].endswith("CLP 1,000 processing")


@pytest.mark.parametrize(("status", "other"), [("succeeded", 99_000), ("chargeback", 101_000)])
def test_a_payment_explains_no_nearer_change_against_its_direction(boss: Client, status: str, other: int) -> None:
    row = balance()
    at(row, 10, available=other)
    at(row, 10.01)
    changed(rows.payment, 10, amount_received=1000, fee=0, status=status)
    newer, older = table(boss, row)
    assert newer[3].endswith(f"CLP 1,000 {status} same amount")
    assert older[3] == "–"


def test_a_payout_that_failed_does_not_explain_the_one_that_is_paid_again(boss: Client) -> None:
    row = balance()
    at(row, 10, available=101_000)
    at(row, 200, available=100_000)
    changed(rows.payout, 10, amount=1000, status="failed", merchant_reference="FIRST")
    changed(rows.payout, 200, amount=1000, status="created", merchant_reference="SECOND")
    newer, older = table(boss, row)
    assert newer[3] == "payout SECOND CLP 1,000 created same amount"
    assert older[3] == "payout FIRST CLP 1,000 failed same amount"


def test_each_payout_of_a_batch_explains_a_change_of_its_own(boss: Client) -> None:
    row = balance()
    for number in range(3):
        at(row, 10 + (0.6 + number / 2) / 60, available=99_000 - 1000 * number, hold=1000 * (number + 1))
    for number in range(4):
        batch = {"amount": 1000, "status": "created", "merchant_reference": f"BATCH-{number}"}
        out = changed(rows.payout, 10 + number / 2 / 60, **batch)
        rows.change(out, at=rows.AT + timedelta(minutes=10 + (number / 2 + 0.3) / 60), status="processing")
    explained = [re.findall(r"BATCH-(\d) CLP 1,000 \w+ same amount", line[3]) for line in reversed(table(boss, row))]
    # There are three changes for four payouts, so the last payout shares the nearest change.
    assert [*explained[:2], sorted(explained[2])] == [["0"], ["1"], ["2", "3"]]


def test_of_two_changes_by_the_same_amount_an_object_explains_the_nearest(boss: Client) -> None:
    row = balance()
    for number, minutes in enumerate((9.98, 10, 10.02), 1):
        at(row, minutes, available=100_000 - 1000 * number)
    changed(rows.payout, 10.001, amount=1000, status="created", merchant_reference="SUP-1")
    assert [line[3] for line in table(boss, row)] == ["–", "payout SUP-1 CLP 1,000 created same amount", "–"]


@pytest.mark.parametrize(
    ("make", "left", "came_back"), [(rows.payout, "created", "failed"), (rows.refund, "processing", "returned")]
)
def test_of_changes_at_once_each_explains_the_one_in_its_direction(
    boss: Client, make: Callable[..., Any], left: str, came_back: str
) -> None:
    """An answer gives its time in whole seconds."""
    row = balance()
    at(row, 10.005, available=99_000, hold=1000)
    at(row, 10.01)
    out = changed(make, 10, amount=1000, status=came_back)
    rows.change(out, at=rows.AT + timedelta(minutes=10), status=left)
    newer, older = table(boss, row)
    for cell, status in ((newer[3], came_back), (older[3], left)):
        assert cell.endswith(f"CLP 1,000 {status} same amount")


def test_many_objects_are_cut(boss: Client) -> None:
    row = balance()
    at(row, 10, available=1)
    for number in range(balance_changes.OBJECTS + 2):
        paid(9, 5_000 + number)
    cell = table(boss, row)[0][3]
    assert cell.count("payment") == balance_changes.OBJECTS
    assert cell.endswith("and 2 more")


def test_where_too_much_changed_only_the_last_minute_is_looked_through(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance_changes, "MAX_CHANGES", 3)
    row = balance()
    at(row, 10, available=101_000)
    early, close = paid(5, 500), paid(9.5, 1000)
    for minute in (1, 2):
        paid(minute, 700, account="second")
    html = page(boss, url("balance", "change", row.pk))
    assert "only the ones from the last minute" in html
    assert close.merchant_reference in html
    assert early.merchant_reference not in html


def test_statements_do_not_grow_with_the_changes(boss: Client) -> None:
    row = balance()

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url("balance", "change", row.pk))
        return len(queries)

    def add(minute: int) -> None:
        at(row, minute, available=100_000 + minute)
        paid(minute, 1)
        changed(rows.payout, minute)
        changed(rows.refund, minute)

    add(1)
    count()
    one = count()
    for minute in range(2, ROWS + 10):
        add(minute)
    assert count() == one <= 17
    assert len(table(boss, row)) == ROWS


def test_every_change_can_be_reached(boss: Client) -> None:
    row = balance()
    for minutes in range(1, 61):
        at(row, minutes, available=100_000 + minutes)
    address, seen = url("balance", "change", row.pk), []
    while address:
        html = page(boss, address)
        section = html.split("What moved it", 1)[1]
        seen += re.findall(r"2025-03-04 (\d\d:\d\d):\d\d</span>", section.split("</table>")[0])
        further = re.search(r'<a href="(\?until=[^"]+)">← Earlier</a>', section)
        address = further and url("balance", "change", row.pk) + further[1]
    assert len(seen) == len(set(seen)) == 60
    assert seen == sorted(seen, reverse=True)
    beyond = ("0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00")
    for wrong in ("", "yesterday", "2025-03-04", "2025-99-99T00:00:00+00:00", *beyond):
        assert "06:06" in page(boss, f"{url('balance', 'change', row.pk)}?until={wrong}").split("What moved it", 1)[1]


def test_only_objects_that_the_user_may_see_are_shown(staff: Callable[..., Client]) -> None:
    row = balance()
    at(row, 10, available=101_000)
    pay = paid(9, 1000)
    out = changed(rows.payout, 9, amount=1000, merchant_reference="SUP-9")
    html = page(staff("view_balance"), url("balance", "change", row.pk))
    assert "at the same time" not in html
    assert pay.merchant_reference not in html
    assert "available +CLP\xa01,000" in strip_tags(html)
    html = page(staff("view_balance", "view_payout"), url("balance", "change", row.pk))
    assert out.merchant_reference in html
    assert pay.merchant_reference not in html


def test_the_page_begins_with_what_is_available_and_says_what_each_amount_is(boss: Client) -> None:
    row = balance(available=2_500, debt=0)
    html = page(boss, url("balance", "change", row.pk))
    assert "CLP\xa02,500 available" in strip_tags(html.split('class="pi-headline"')[1].split("</p>")[0])
    assert "are blocked" not in html
    assert html.index("waits for settlement") < html.index("What moved it") < html.index("pi-timeline")
    row.debt = 5
    row.save()
    assert "payouts and refunds are blocked" in page(boss, url("balance", "change", row.pk))


def test_the_overview_links_to_the_page_of_a_balance(boss: Client) -> None:
    row = balance()
    html = page(boss, "/admin/payments_integration/")
    assert f'<a href="{url("balance", "change", row.pk)}">CLP</a>' in html


def test_the_page_links_to_the_cash_book_if_the_user_may_see_it(boss: Client) -> None:
    row = balance()
    link = 'href="/admin/payments_finance/movement/cash-book/?account=default&amp;currency=CLP"'
    assert link in page(boss, url("balance", "change", row.pk))
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_balance"))
    assert link not in page(browser(user), url("balance", "change", row.pk))
    # To Django, who may change a row may see it.
    for codename in ("view_movement", "change_movement"):
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_balance", codename]))
        assert link in page(browser(user), url("balance", "change", row.pk))
        assert browser(user).get("/admin/payments_finance/movement/cash-book/?account=default").status_code == 200
