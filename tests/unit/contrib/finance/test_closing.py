"""The balances of closed months: stored once, by a pass or the first reader, and never computed again."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from payments_integration import signals
from payments_integration.contrib.finance import closing
from payments_integration.contrib.finance.closing import Amounts, close_months, ends_of
from payments_integration.contrib.finance.journal import Period, Statement, statements, statements_of, steps
from payments_integration.contrib.finance.models import ClosingBalance, MovementKind
from payments_integration.models import AccountState, Balance
from tests.factories import rows
from tests.unit.contrib.finance.books import movement

pytestmark = pytest.mark.django_db

OCTOBER = Period(date(2026, 10, 1), date(2026, 11, 1))
NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
CLOSED = "2026-12-05T12:00:00+00:00"
NOTHING = dict.fromkeys(("available", "pending", "reserve", "hold", "debt"), 0)


def balance(account: str = "default", currency: str = "CLP") -> Balance:
    return Balance.objects.create(**rows.mirror(account=account, currency=currency, **NOTHING))


def change(row: Balance, moment: str, available: int, **amounts: int) -> None:
    at = datetime.fromisoformat(f"{moment}+00:00")
    rows.balance_change(row, at=at, available=available, **amounts)


def business() -> Balance:
    """A payment at 23:30 of 31 October in Santiago, which is 1 November in UTC."""
    row = balance()
    change(row, "2026-09-20T12:00:00", 1000)
    change(row, "2026-10-10T12:00:00", 3000)
    movement(occurred_on="2026-10-10", amount=2000)
    change(row, "2026-11-01T02:30:00", 100_100)
    movement(occurred_on="2026-10-31", amount=97_100, object_id="pay_2")
    return row


def figures(period: Period) -> list[tuple[Any, ...]]:
    """What each day of the period says, and the whole."""
    return [
        (one.account, one.currency, one.opening, one.total, one.unexplained, one.closing)
        for found in [*statements_of(steps(period)), statements(period)]
        for one in found
    ]


@pytest.mark.case(138)
@pytest.mark.parametrize("stores", ["pass", "reader", "command"])
def test_a_later_time_zone_changes_nothing_of_a_closed_month(settings: Any, stores: str) -> None:
    settings.TIME_ZONE = "America/Santiago"
    business()
    with time_machine.travel(CLOSED):
        if stores == "pass":
            signals.pass_ended.send(sender=None)
        elif stores == "command":
            out = io.StringIO()
            call_command("payments_journal", since="2026-10-01", until="2026-11-01", stdout=out, stderr=out)
        before = figures(OCTOBER), figures(NOVEMBER)
        assert before[0][-1] == ("default", "CLP", 1000, 99_100, 0, 100_100)
        assert before[1][-1] == ("default", "CLP", 100_100, 0, 0, 100_100)
        settings.TIME_ZONE = "UTC"
        assert (figures(OCTOBER), figures(NOVEMBER)) == before
        # Only what is stored keeps it so.
        ClosingBalance.objects.all().delete()
        assert figures(OCTOBER)[-1][4] == -97_100


def test_a_month_is_stored_once_when_it_closes() -> None:
    row = business()
    for moment, stored in (("2026-11-04T00:59:00+00:00", 11), ("2026-11-04T01:00:00+00:00", 11 + 31)):
        with time_machine.travel(moment, tick=False):
            close_months()
            # From the first known balance on: 20 September.
            assert ClosingBalance.objects.count() == stored
            assert close_months() == 0
    last = ClosingBalance.objects.get(day="2026-10-31")
    assert (last.account, last.currency, last.available) == ("default", "CLP", 3000)
    # What comes even later is of the month after.
    change(row, "2026-10-31T12:00:00", 5000)
    with time_machine.travel("2026-11-10T12:00:00+00:00"):
        assert statements(OCTOBER)[0].closing == 3000
        assert statements(NOVEMBER)[0].opening == 3000


def test_the_amounts_are_stored_apart() -> None:
    row = balance()
    change(row, "2026-10-10T12:00:00", 1, pending=20, reserve=300, hold=4000, debt=50_000)
    with time_machine.travel(CLOSED):
        close_months()
        (found,) = ends_of([date(2026, 10, 9), date(2026, 10, 10), date(2026, 10, 31)]).values()
    amounts = Amounts(1, 20, 300, 4000, 50_000)
    assert found == {date(2026, 10, 9): None, date(2026, 10, 10): amounts, date(2026, 10, 31): amounts}
    assert amounts.total == 4321 - 50_000


def test_a_month_waits_for_events_that_may_be_missing() -> None:
    business()
    state = AccountState.objects.create(account="default", watermark=datetime(2026, 10, 20, tzinfo=UTC))
    with time_machine.travel("2026-11-20T12:00:00+00:00"):
        assert close_months() == 0
        # It can be read meanwhile.
        assert statements(OCTOBER)[0].closing == 3000
        state.watermark = datetime(2026, 11, 20, tzinfo=UTC)
        state.save()
        assert close_months() == 42


def test_two_that_store_at_once_store_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    business()
    computed = closing._computed

    def meanwhile(*args: Any) -> Any:
        # Another process stores the month after this one has looked and before it stores.
        monkeypatch.setattr(closing, "_computed", computed)
        close_months()
        return computed(*args)

    monkeypatch.setattr(closing, "_computed", meanwhile)
    with time_machine.travel("2026-11-10T12:00:00+00:00"):
        assert close_months() == 0
    assert ClosingBalance.objects.count() == 42
    assert ClosingBalance.objects.values("account", "currency", "day").distinct().count() == 42


def test_a_reader_gets_the_figures_where_nothing_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    business()

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise DatabaseError("read-only")

    monkeypatch.setattr(closing, "insert_many", refused)
    with time_machine.travel(CLOSED):
        assert statements(OCTOBER)[0].opening == 1000
    assert not ClosingBalance.objects.exists()


def test_a_pass_without_a_month_to_store_is_one_statement() -> None:
    business()
    with time_machine.travel(CLOSED):
        close_months()
        with CaptureQueriesContext(connection) as captured:
            signals.pass_ended.send(sender=None)
    assert sum("closingbalance" in query["sql"] for query in captured.captured_queries) == 1


def test_months_are_stored_after_a_long_pause() -> None:
    """More ends of days than one statement takes."""
    change(balance(), "2025-01-01T12:00:00", 7)
    with time_machine.travel(CLOSED):
        assert close_months() == 365 + 334
    assert set(ClosingBalance.objects.values_list("available", flat=True)) == {7}


def test_the_days_of_a_period_form_a_chain() -> None:
    row = business()
    change(row, "2026-10-11T09:00:00", 2500)
    with time_machine.travel(CLOSED):
        found = [of_day[0] for of_day in statements_of(steps(OCTOBER))]
        (whole,) = statements(OCTOBER)
    assert len(found) == 31
    assert [one.opening for one in found[1:]] == [one.closing for one in found[:-1]]
    assert (found[0].opening, found[-1].closing) == (whole.opening, whole.closing)
    assert sum(one.unexplained or 0 for one in found) == whole.unexplained
    assert found[10].unexplained == -500


def test_a_late_movement_counts_where_the_balance_has_it() -> None:
    """It occurred on 31 October and is in the book of 10 November."""
    row = balance()
    change(row, "2026-09-20T12:00:00", 1000)
    change(row, "2026-10-31T12:00:00", 1700)
    movement(occurred_on="2026-10-31", booked_on="2026-11-10", amount=700, kind=MovementKind.PAYMENT)
    with time_machine.travel(CLOSED):
        october, november = statements(OCTOBER)[0], statements(NOVEMBER)[0]
        days = {
            period.since: of_day[0] for period, of_day in zip(
                steps(NOVEMBER), statements_of(steps(NOVEMBER)), strict=True
            )
        }  # fmt: skip
    assert (october.total, october.recorded_after, october.unexplained) == (0, 700, 0)
    assert (november.total, november.occurred_before, november.unexplained) == (700, 700, 0)
    assert days[date(2026, 11, 10)].unexplained == 0


def test_figures_take_as_many_statements_for_many_movements_as_for_few() -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as captured:
            statements_of(steps(OCTOBER))
        return len(captured)

    business()
    with time_machine.travel(CLOSED):
        close_months()
        few = count()
        for day in range(1, 29):
            movement(occurred_on=f"2026-10-{day:02}", object_id=f"pay_{day}", currency="USD")
        change(balance(currency="USD"), "2026-09-20T12:00:00", 5)
        close_months()
        assert count() == few <= 5


def test_a_sum_may_leave_the_range_of_a_column() -> None:
    for number in range(2):
        movement(occurred_on="2026-10-10", amount=2**63 - 1, object_id=f"pay_{number}")
    assert statements(OCTOBER)[0].total == 2 * (2**63 - 1)


def test_steps_are_days_or_months() -> None:
    assert [len(steps(period)) for period in (OCTOBER, Period(date(2026, 1, 15), date(2026, 12, 1)))] == [31, 11]
    first, *_, last = steps(Period(date(2026, 1, 15), date(2026, 11, 20), "second"))
    assert (first.since, first.until, first.account) == (date(2026, 1, 15), date(2026, 2, 1), "second")
    assert (last.since, last.until) == (date(2026, 11, 1), date(2026, 11, 20))


def test_rows_have_a_name() -> None:
    row = ClosingBalance(account="default", currency="CLP", day=date(2026, 10, 31))
    assert str(row) == "default CLP 2026-10-31"
    assert Statement("default", "CLP").closing is None
