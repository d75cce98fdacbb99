"""The journal of a period: its files, its comparison with the balances, and that a closed month never changes."""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration.contrib.finance import formats, journal
from payments_integration.contrib.finance.formats import CSV_HEADER
from payments_integration.contrib.finance.journal import Period, statements
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.models import AccountState, Balance
from tests.factories import T0, event, payment, rows
from tests.unit.contrib.finance.books import apply, movement

pytestmark = pytest.mark.django_db

JANUARY = Period(date(2026, 1, 1), date(2026, 2, 1))
FEBRUARY = Period(date(2026, 2, 1), date(2026, 3, 1))
NOTHING = dict.fromkeys(("available", "pending", "reserve", "hold", "debt"), 0)


def run(period: Period = JANUARY, **options: Any) -> tuple[str, str]:
    """Standard output and standard error of the command."""
    out, err = io.StringIO(), io.StringIO()
    call_command(
        "payments_journal", since=period.since, until=period.until, account=period.account, stdout=out, stderr=err,
        **options,
    )  # fmt: skip
    return out.getvalue(), err.getvalue()


def csv_rows(period: Period = JANUARY) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(period)[0])))


def balance(*amounts: tuple[str, int], currency: str = "CLP", account: str = "default") -> Balance:
    """A balance that was mirrored at these moments, with these amounts available."""
    row = Balance.objects.create(**rows.mirror(account=account, currency=currency, **NOTHING))
    for moment, available in amounts:
        change(row, moment, available=available)
    return row


def change(row: Balance, moment: str, **amounts: int) -> None:
    rows.balance_change(row, at=datetime.fromisoformat(f"{moment}+00:00"), **amounts)


# The file


def test_csv_has_one_header_line_and_one_row_per_posting() -> None:
    one = movement(occurred_on="2026-01-10", amount=1250, currency="USD")
    text, _ = run()
    assert text == (
        ",".join(CSV_HEADER) + "\n"
        f"2026-01-10,2026-01-10,no,{one.pk},payment,pay_1,default,Assets:Payments:Default:USD,USD,12.50\n"
        f"2026-01-10,2026-01-10,no,{one.pk},payment,pay_1,default,Income:Payments:Default:USD,USD,-12.50\n"
    )


def test_a_beancount_file_opens_every_account_and_asserts_no_balance() -> None:
    one = movement(occurred_on="2026-01-10")
    two = movement(occurred_on="2025-11-30", booked_on="2026-01-12", kind=MovementKind.REFUND, amount=-300)
    assert run(format="beancount")[0] == (
        "2026-01-01 open Assets:Payments:Default:CLP CLP\n"
        "2026-01-01 open Expenses:Refunds:Default:CLP CLP\n"
        "2026-01-01 open Income:Payments:Default:CLP CLP\n"
        "\n"
        '2026-01-10 * "payment" "pay_1"\n'
        '  id: "pay_1"\n'
        f'  movement: "{one.pk}"\n'
        "  Assets:Payments:Default:CLP  1000 CLP\n"
        "  Income:Payments:Default:CLP  -1000 CLP\n"
        "\n"
        '2026-01-12 * "refund" "pay_1" #recorded-later\n'
        '  id: "pay_1"\n'
        f'  movement: "{two.pk}"\n'
        "  occurred: 2025-11-30\n"
        "  Assets:Payments:Default:CLP  -300 CLP\n"
        "  Expenses:Refunds:Default:CLP  300 CLP\n"
    )


def test_an_hledger_file_declares_commodities_and_accounts() -> None:
    one = movement(occurred_on="2026-01-10", currency="BRL", amount=5)
    two = movement(occurred_on="2025-11-30", booked_on="2026-01-12")
    assert run(format="hledger")[0] == (
        "decimal-mark .\n"
        "commodity 1.00 BRL\n"
        "commodity 1. CLP\n"
        "account Assets:Payments:Default:BRL\n"
        "account Assets:Payments:Default:CLP\n"
        "account Income:Payments:Default:BRL\n"
        "account Income:Payments:Default:CLP\n"
        "\n"
        f"2026-01-10 * payment  ; movement:{one.pk}, id:pay_1\n"
        "    Assets:Payments:Default:BRL  0.05 BRL\n"
        "    Income:Payments:Default:BRL  -0.05 BRL\n"
        "\n"
        f"2026-01-12 * payment  ; movement:{two.pk}, recorded-later:, occurred:2025-11-30, id:pay_1\n"
        "    Assets:Payments:Default:CLP  1000 CLP\n"
        "    Income:Payments:Default:CLP  -1000 CLP\n"
    )


def test_every_kind_has_a_ledger_account_of_its_own() -> None:
    assert set(formats.COUNTERPARTS) == set(MovementKind)
    assert len({*formats.COUNTERPARTS.values(), formats.ASSETS}) == len(MovementKind) + 1


def test_every_transaction_balances() -> None:
    for number, kind in enumerate(MovementKind):
        movement(occurred_on="2026-01-10", kind=kind, amount=(-1) ** number * 12345, currency="PEN")
    sums: dict[str, Decimal] = {}
    for row in csv_rows():
        sums[row["movement"]] = sums.get(row["movement"], Decimal()) + Decimal(row["amount"])
    assert len(sums) == len(MovementKind)
    assert set(sums.values()) == {Decimal()}


def test_a_file_has_the_account_that_is_asked_for() -> None:
    movement(occurred_on="2026-01-10")
    movement(occurred_on="2026-01-10", account="second")
    assert {row["account"] for row in csv_rows()} == {"default", "second"}
    assert {row["account"] for row in csv_rows(Period(*_days(JANUARY), "second"))} == {"second"}


def _days(period: Period) -> tuple[date, date]:
    return period.since, period.until


def test_the_last_day_is_exclusive() -> None:
    for day in ("2025-12-31", "2026-01-01", "2026-01-31", "2026-02-01"):
        movement(occurred_on=day)
    assert [row["date"] for row in csv_rows()][::2] == ["2026-01-01", "2026-01-31"]


def test_it_streams_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PAGE", 3)
    for number in range(7):
        movement(occurred_on=f"2026-01-{10 - number:02}")
    with CaptureQueriesContext(connection) as captured:
        found = list(journal.stream(JANUARY))
    assert [row.booked_on.day for row in found] == [4, 5, 6, 7, 8, 9, 10]
    assert len(captured) == 3
    assert all("LIMIT 3" in query["sql"] for query in captured.captured_queries)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("default", "Default"), ("shop_br", "Shop-br"), ("2nd", "2nd"), ("_x", "X-x"), ("a-b", "A-b"), ("é", "É")],
)
def test_the_name_of_an_account_is_one_that_beancount_accepts(alias: str, name: str) -> None:
    assert formats._ledger_account("Assets", alias, "CLP") == f"Assets:{name}:CLP"


@pytest.mark.parametrize("name", ["beancount", "hledger"])
def test_two_accounts_with_one_name_are_refused(name: str) -> None:
    movement(occurred_on="2026-01-10", account="a-b")
    movement(occurred_on="2026-01-10", account="a_b")
    with pytest.raises(CommandError, match='"a-b" and "a_b" have the same name'):
        run(format=name)


@pytest.mark.parametrize("name", ["beancount", "hledger"])
def test_a_currency_that_cannot_be_written_is_refused_before_anything_is_written(name: str) -> None:
    movement(occurred_on="2026-01-10", currency='U";D')
    out = io.StringIO()
    with pytest.raises(CommandError, match="--format csv"):
        call_command("payments_journal", since=JANUARY.since, until=JANUARY.until, format=name, stdout=out)
    assert not out.getvalue()
    assert csv_rows()[0]["currency"] == 'U";D'


# The comparison


def test_movements_that_explain_the_balance() -> None:
    balance(("2025-12-31T23:59:59", 5000), ("2026-01-31T23:59:59", 5700), ("2026-02-01T00:00:00", 1))
    movement(occurred_on="2026-01-10")
    movement(occurred_on="2026-01-11", kind=MovementKind.PAYOUT, amount=-300)
    (statement,) = statements(JANUARY)
    assert (statement.opening, statement.total, statement.closing) == (5000, 700, 5700)
    assert statement.booked == {"payment": 1000, "payout": -300}
    assert statement.unexplained == 0
    assert (
        "default CLP: opening balance 5000, movements 700, closing balance 5700, unexplained 0\n" in run(check=True)[1]
    )


def test_a_balance_is_everything_at_the_provider_less_the_debt() -> None:
    row = balance()
    change(row, "2026-01-10T00:00:00", available=1, pending=20, reserve=300, hold=4000, debt=50000)
    (statement,) = statements(JANUARY)
    assert statement.closing == 1 + 20 + 300 + 4000 - 50000


def test_what_no_movement_explains_is_named_and_fails_only_the_check() -> None:
    balance(("2025-12-31T00:00:00", 5000), ("2026-01-05T00:00:00", 9000))
    text, compared = run()
    assert text == ",".join(CSV_HEADER) + "\n"
    assert "unexplained 4000" in compared
    with pytest.raises(SystemExit) as ended:
        run(check=True)
    assert ended.value.code == 1


def test_without_a_mirrored_balance_nothing_is_compared() -> None:
    movement(occurred_on="2026-01-10")
    assert "default CLP: movements 1000; no balance known" in run()[1]
    balance(("2026-01-05T00:00:00", 9000))
    assert "no balance known" in run()[1]
    with pytest.raises(SystemExit):
        run(check=True)


def test_a_statement_is_of_one_account_and_currency() -> None:
    balance(("2025-12-01T00:00:00", 1), currency="CLP")
    balance(("2025-12-01T00:00:00", 2), currency="CLP", account="second")
    balance(("2025-12-01T00:00:00", 3), currency="USD")
    movement(occurred_on="2026-01-10", currency="BRL")
    found = [(item.account, item.currency, item.opening, item.total) for item in statements(JANUARY)]
    assert found == [
        ("default", "BRL", None, 1000), ("default", "CLP", 1, 0), ("default", "USD", 3, 0), ("second", "CLP", 2, 0),
    ]  # fmt: skip
    assert [item.account for item in statements(Period(*_days(JANUARY), "second"))] == ["second"]


# Closed months


def test_a_closed_month_whose_balances_may_still_change_is_named() -> None:
    """Reconciliation is behind: an event of the month may still be found."""
    balance(("2025-12-31T00:00:00", 0), ("2026-01-05T00:00:00", 0))
    text = "The period is closed, but these balances are not stored yet and may change: default CLP.\n"
    state = AccountState.objects.create(account="default", watermark=datetime(2026, 1, 20, tzinfo=UTC))
    assert text in run(check=True)[1]
    assert text not in run(Period(JANUARY.since, JANUARY.until, "second"))[1]
    state.watermark = timezone.now()
    state.save()
    assert "not stored yet" not in run(check=True)[1]


def test_what_is_recorded_later_is_in_the_file_of_that_month_with_its_own_date() -> None:
    balance(("2025-12-31T00:00:00", 0), ("2026-01-30T00:00:00", 1000))
    movement(occurred_on="2026-01-30", booked_on="2026-02-20")
    january, february = run(JANUARY, check=True), run(FEBRUARY, check=True)
    assert january[0] == ",".join(CSV_HEADER) + "\n"
    assert "recorded later, in the file of another period: 1000" in january[1]
    (row, _) = csv_rows(FEBRUARY)
    assert (row["date"], row["occurred"], row["recorded_later"]) == ("2026-02-20", "2026-01-30", "yes")
    assert "1 movements of closed months were recorded later" in february[1]
    # The balances contain it since January, so neither month has anything unexplained.
    assert "unexplained 0" in january[1]
    assert "unexplained 0" in february[1]


@pytest.mark.usefixtures("woken")
def test_the_file_of_a_closed_month_never_changes() -> None:
    def events(number: int) -> dict[str, Any]:
        paid = payment(id=f"pay_{number}", status="succeeded", amount_received=1000)
        return event(paid, created_at="2026-01-31T12:00:00Z", id=f"evt_{number}")

    with time_machine.travel("2026-02-03T23:00:00Z"):
        apply(events(1))
    with time_machine.travel("2026-02-04T01:00:00Z"):
        closed, told = run(JANUARY)
        assert "The period is open" not in told
        assert closed.count("pay_1") == 2
        apply(events(2))
        assert run(JANUARY)[0] == closed
    assert [row["object_id"] for row in csv_rows(FEBRUARY)] == ["pay_2", "pay_2"]


def test_the_report_says_until_when_the_period_is_open() -> None:
    with time_machine.travel("2026-02-04T00:59:59Z"):
        assert "movements may be added to it until 2026-02-04 01:00." in run()[1]
    with time_machine.travel("2026-02-04T01:00:00Z"):
        assert "open" not in run()[1]


def test_the_files_of_consecutive_periods_contain_each_movement_once() -> None:
    for day in ("2026-01-01", "2026-01-15", "2026-01-16", "2026-02-01", "2026-02-28"):
        movement(occurred_on=day)
    movement(occurred_on="2026-01-02", booked_on="2026-02-10")
    days = [date(2026, 1, 1), date(2026, 1, 16), date(2026, 2, 1), date(2026, 3, 1)]
    files = [csv_rows(Period(since, until)) for since, until in itertools.pairwise(days)]
    found = [row["movement"] for file in files for row in file]
    assert sorted(found) == sorted([str(pk) for pk in Movement.objects.values_list("pk", flat=True)] * 2)


# The command


@pytest.mark.parametrize(
    "options",
    [
        {}, {"since": date(2026, 1, 1)}, {"until": date(2026, 1, 1)},
        {"since": date(2026, 1, 1), "until": date(2026, 1, 1)}, {"account": "nobody"},
    ],
)  # fmt: skip
def test_wrong_arguments_end_with_code_2(options: dict[str, Any]) -> None:
    with pytest.raises(CommandError) as raised:
        call_command("payments_journal", **options)
    assert raised.value.returncode == 2


@pytest.mark.parametrize("text", ["2026-02-30", "31.1.2026", "2026-01-31T12:00:00Z", "", "0001-01-01", "9999-12-31"])
def test_a_day_is_an_iso_date(text: str) -> None:
    for options in ((f"--since={text}", "--until=2026-02-01"), ("--since=2026-01-01", f"--until={text}")):
        with pytest.raises(CommandError, match="is not a day; write 2026-01-31") as raised:
            call_command("payments_journal", *options)
        assert raised.value.returncode == 2


def test_days_may_be_texts_as_on_the_command_line() -> None:
    movement(occurred_on="2026-01-10")
    out = io.StringIO()
    call_command(
        "payments_journal", "--since", "2026-01-01", "--until", "2026-02-01", stdout=out, stderr=io.StringIO()
    )
    assert out.getvalue() == run(JANUARY)[0]
    assert out.getvalue().count("pay_1") == 2


def test_no_file_is_written_for_a_reader_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["first\n", "second\n", "third\n"])
    monkeypatch.setitem(formats.FORMATS, "csv", lambda period: lines)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as out:
        call_command("payments_journal", since=JANUARY.since, until=JANUARY.until, stdout=out, stderr=io.StringIO())
    assert list(lines) == ["second\n", "third\n"]


def test_a_backfill_writes_no_file(before_the_app: Callable[[], None]) -> None:
    before_the_app()
    out, err = io.StringIO(), io.StringIO()
    call_command("payments_journal", backfill=True, stdout=out, stderr=err)
    assert (out.getvalue(), err.getvalue()) == ("", "1 movements recorded\n")
    assert Movement.objects.get().object_id == "pay_1"


@pytest.mark.parametrize(
    "other",
    ["--since=2026-01-01", "--until=2026-02-01", "--format=csv", "--format=hledger", "--check", "--account=default"],
)
def test_a_backfill_goes_alone(before_the_app: Callable[[], None], other: str) -> None:
    before_the_app()
    with pytest.raises(CommandError, match="--backfill goes alone") as caught:
        call_command("payments_journal", "--backfill", other)
    assert caught.value.returncode == 2
    assert not Movement.objects.exists()


@pytest.fixture
def before_the_app(woken: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def arrive() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("payments_integration.signals._mirror_listeners", [])
            apply(event(payment(status="succeeded", amount_received=1000), created_at=T0.isoformat()))

    return arrive
