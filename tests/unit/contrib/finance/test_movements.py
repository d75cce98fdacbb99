"""The movements of an object add up to what its mirrored state implies, in every order of arrival."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.checks import run_checks
from django.db import connection, router
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings, strategies as st

from payments_integration import inbox, projection, schemas, signals
from payments_integration.contrib.finance import movements
from payments_integration.contrib.finance.apps import check_database
from payments_integration.contrib.finance.models import Movement
from payments_integration.dates import day_of
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    Payment,
    Payout,
    Refund,
    StatusChange,
    deletion_allowed,
)
from tests import factories
from tests.factories import T0, event, payment, payout, refund, rows
from tests.unit.contrib.finance.books import apply, at, read, sums

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken")]

PAID: dict[str, Any] = {"status": "succeeded", "amount_received": 10000, "fee": 300}


def test_a_payment_is_booked_gross_with_its_fee_apart() -> None:
    apply(event(payment()))
    assert not Movement.objects.exists()
    apply(event(payment(**PAID), seconds=10))
    assert sums("pay_1") == {"payment": 10000, "payment_fee": -300}
    gross = Movement.objects.get(kind="payment")
    assert (gross.account, gross.object_kind, gross.currency) == ("default", "payment", "CLP")
    assert gross.occurred_at == at(10)


def test_further_money_is_a_movement_of_its_own() -> None:
    apply(event(payment(status="partially_paid", amount_received=4000, fee=100), seconds=1))
    apply(event(payment(status="overpaid", amount_received=12000, fee=400), seconds=2))
    rows = Movement.objects.order_by("pk").values_list("kind", "amount", "occurred_at")
    assert list(rows) == [
        ("payment", 4000, at(1)), ("payment_fee", -100, at(1)), ("payment", 8000, at(2)), ("payment_fee", -300, at(2)),
    ]  # fmt: skip


def test_money_that_goes_back_to_the_payer_of_a_failed_payment_is_reversed() -> None:
    apply(event(payment(status="on_hold", amount_received=10000, fee=300), seconds=1))
    apply(event(payment(status="failed", amount_received=0, fee=0), seconds=2))
    assert sums("pay_1") == {}
    assert Movement.objects.count() == 4


def test_a_chargeback_takes_what_is_not_refunded() -> None:
    apply(event(payment(**PAID, refunded_amount=2500), seconds=1))
    apply(event(payment(**{**PAID, "status": "chargeback"}, refunded_amount=2500), seconds=2))
    assert sums("pay_1") == {"payment": 10000, "payment_fee": -300, "chargeback": -7500}
    assert Movement.objects.get(kind="chargeback").occurred_at == at(2)


def test_without_a_refunded_amount_a_chargeback_takes_what_the_mirrored_refunds_left() -> None:
    """The provider may leave the amount out."""
    paid = payment(**PAID)
    apply(event(paid, seconds=1))
    apply(event(refund(status="succeeded", amount=2500), seconds=2))
    apply(event({**paid, "status": "chargeback"}, seconds=3))
    assert sums("pay_1")["chargeback"] == -7500
    # A late refund has the payment read again.
    apply(event(refund(id="ref_2", status="succeeded", amount=500), seconds=2))
    assert DueRefresh.objects.filter(object_id="pay_1").exists()
    # This read may be older than the chargeback, so it only confirms the row.
    read({**paid, "status": "chargeback"}, seconds=4)
    assert sums("pay_1")["chargeback"] == -7000
    apply(event(refund(id="ref_3", status="succeeded", amount=500), seconds=20))
    read({**paid, "status": "chargeback"}, seconds=60)
    assert sums("pay_1")["chargeback"] == -6500


def test_a_refund_is_booked_when_it_succeeds_and_reversed_when_it_is_returned() -> None:
    apply(event(refund(status="processing"), seconds=1))
    assert sums("ref_1") == {}
    apply(event(refund(status="succeeded"), seconds=2))
    assert sums("ref_1") == {"refund": -1000}
    apply(event(refund(status="returned"), seconds=3))
    assert sums("ref_1") == {}
    assert Movement.objects.count() == 2


@pytest.mark.parametrize("status", ["created", "processing", "on_hold", "failed", "canceled", "unheard_of"])
def test_a_payout_that_has_not_succeeded_moves_nothing(status: str) -> None:
    apply(event(payout(status=status, fee=50)))
    assert sums("pout_1") == {}


def test_a_returned_payout_brings_its_amount_back_and_not_its_fee() -> None:
    apply(event(payout(status="succeeded", fee=50), seconds=1))
    assert sums("pout_1") == {"payout": -5000, "payout_fee": -50}
    apply(event(payout(status="returned", fee=50), seconds=2))
    assert sums("pout_1") == {"payout_fee": -50}


def test_a_refund_that_runs_as_a_payout_is_booked_once() -> None:
    apply(
        event(payout(status="succeeded", amount=1000, fee=50, refund_id="ref_1"), seconds=1),
        event(refund(status="succeeded", payout_id="pout_1"), seconds=2),
    )
    assert (sums("pout_1"), sums("ref_1")) == ({"payout_fee": -50}, {"refund": -1000})


def test_a_payout_that_turns_out_to_be_a_refund_is_taken_out() -> None:
    apply(event(payout(status="succeeded", fee=50), seconds=1))
    apply(event(payout(status="succeeded", fee=50, refund_id="ref_1"), seconds=2))
    assert sums("pout_1") == {"payout_fee": -50}


def test_a_deposit_is_a_payment() -> None:
    apply(event(payment(**PAID, flow="deposit_reference", method_family="deposit_reference")))
    assert sums("pay_1") == {"payment": 10000, "payment_fee": -300}


def test_a_duplicate_and_an_older_event_add_nothing() -> None:
    paid = event(payment(**PAID), seconds=10)
    apply(paid)
    apply(paid, event(payment(), seconds=5))
    assert Movement.objects.count() == 2


def test_an_amount_whose_currency_changes_is_moved() -> None:
    apply(event(payment(**PAID), seconds=1))
    apply(event(payment(**PAID, currency="USD"), seconds=2))
    rows = Movement.objects.filter(kind="payment").order_by("pk").values_list("currency", "amount")
    assert list(rows) == [("CLP", 10000), ("USD", 10000), ("CLP", -10000)]


def test_extreme_figures_are_recorded_whole() -> None:
    """They must not keep the event from being applied."""
    most, least = 2**63 - 1, -(2**63)
    apply(event(payment(status="succeeded", amount_received=most, refunded_amount=least), seconds=1))
    apply(event(payment(status="chargeback", amount_received=least, refunded_amount=most), seconds=2))
    assert sums("pay_1") == {"payment": least, "chargeback": most - least}
    assert Payment.objects.get().status == "chargeback"


# The time of a movement


def test_the_first_amount_is_dated_when_the_object_says_that_it_succeeded() -> None:
    """A GET may read it days later."""
    read(payment(**PAID, succeeded_at=factories.iso(at(10))), seconds=500)
    assert set(Movement.objects.values_list("occurred_at", flat=True)) == {at(10)}
    read(payment(**{**PAID, "status": "chargeback"}, succeeded_at=factories.iso(at(10))), seconds=900)
    assert Movement.objects.get(kind="chargeback").occurred_at == at(900)


def test_a_chargeback_that_is_new_to_the_mirror_follows_the_success() -> None:
    """The history of a first synchronisation has only the time of creation."""
    read(payment(**{**PAID, "status": "chargeback"}, succeeded_at=factories.iso(at(10))), seconds=900)
    assert StatusChange.objects.get().at == at(0)
    assert set(Movement.objects.values_list("occurred_at", flat=True)) == {at(10)}


def test_a_time_of_success_after_the_state_does_not_count() -> None:
    apply(event(payment(**PAID, succeeded_at=factories.iso(at(99))), seconds=10))
    assert set(Movement.objects.values_list("occurred_at", flat=True)) == {at(10)}


def test_a_row_that_is_read_again_dates_its_first_amount_by_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was mirrored before the app. A read without news moves the row's own time on."""
    AccountState.objects.create(account="default", first_synced_at=T0)
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        read(refund(status="succeeded"), seconds=10)
    read(refund(status="succeeded"), seconds=90 * 86400)
    assert Refund.objects.get().state_at == at(90 * 86400)
    assert [found.occurred_at for found in Movement.objects.all()] == [at(10)]


def test_a_further_amount_without_a_change_of_the_status_is_dated_when_it_is_read() -> None:
    AccountState.objects.create(account="default", first_synced_at=T0)
    read(payment(status="on_hold", amount_received=4000), seconds=10)
    read(payment(status="on_hold", amount_received=9000), seconds=900)
    assert list(Movement.objects.order_by("pk").values_list("occurred_at", flat=True)) == [at(10), at(900)]


def test_money_of_an_object_that_has_movements_is_dated_when_it_is_read() -> None:
    """Its history says when its status began, and the money came later."""
    AccountState.objects.create(account="default", first_synced_at=T0)
    part = payment(status="partially_paid", amount_received=4000)
    apply(event(part, seconds=10))
    read({**part, "fee": 100}, seconds=900)
    assert Movement.objects.get(kind="payment_fee").occurred_at == at(900)
    # All of it was refunded when it was charged back, and the refund came back.
    paid = payment(id="pay_2", **PAID, refunded_amount=10_000)
    apply(event(paid, seconds=1000))
    apply(event({**paid, "status": "chargeback"}, seconds=1100))
    read({**paid, "status": "chargeback", "refunded_amount": 0}, seconds=9000)
    assert Movement.objects.get(kind="chargeback").occurred_at == at(9000)


def test_a_fee_that_comes_with_a_later_transfer_is_dated_with_it() -> None:
    """The first amount had no fee. Dated back to it, the fee would leave both months unexplained."""
    paid = payment(status="succeeded", amount_received=40, fee=0, succeeded_at=factories.iso(at(10)))
    apply(event(paid, seconds=10))
    apply(event({**paid, "status": "overpaid", "amount_received": 4000, "fee": 40}, seconds=900))
    found = Movement.objects.order_by("pk").values_list("kind", "amount", "occurred_at")
    assert list(found) == [("payment", 40, at(10)), ("payment", 3960, at(900)), ("payment_fee", -40, at(900))]


def test_events_and_reads_of_succeeded_payments_need_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take one more statement."""
    asked: list[Any] = []
    monkeypatch.setattr(movements, "_changed_at", lambda rows: asked.extend(rows) or {})
    apply(event(refund(status="succeeded"), seconds=10))
    read(payment(**PAID, succeeded_at=factories.iso(at(10))), seconds=20)
    assert Movement.objects.count() == 3
    assert asked == []


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("occurred", "recorded", "booked"),
    [
        ("2026-01-31", "2026-01-31T23:59:59", "2026-01-31"),
        ("2026-01-31", "2026-02-01T00:00:00", "2026-01-31"),
        ("2026-01-31", "2026-02-03T23:59:59", "2026-01-31"),
        ("2026-01-31", "2026-02-04T00:00:00", "2026-02-04"),
        ("2026-02-01", "2026-02-04T00:00:00", "2026-02-01"),
        ("2025-12-31", "2026-02-03T12:00:00", "2026-02-03"),
        ("2026-01-01", "2026-01-03T12:00:00", "2026-01-01"),
        # The provider's clock is ahead of ours.
        ("2026-02-01", "2026-01-31T23:59:59", "2026-02-01"),
    ],
)
def test_a_month_closes_three_days_after_its_end(occurred: str, recorded: str, booked: str) -> None:
    assert movements.booking_date(date.fromisoformat(occurred), moment(recorded)) == date.fromisoformat(booked)


@pytest.mark.parametrize(
    ("until", "closes"),
    [
        ("2026-02-01", "2026-02-04"),
        ("2026-01-15", "2026-02-04"),
        ("2026-02-02", "2026-03-04"),
        ("2027-01-01", "2027-01-04"),
    ],
)
def test_a_period_is_closed_with_its_last_month(until: str, closes: str) -> None:
    assert movements.closes_at(date.fromisoformat(until)) == moment(f"{closes}T01:00:00")


@given(st.dates(date(2025, 1, 1), date(2026, 12, 31)), st.integers(0, 365 * 24))
def test_nothing_is_booked_in_a_closed_month(occurred_on: date, hours: int) -> None:
    recorded_at = moment("2026-01-01") + timedelta(hours=hours)
    booked = movements.booking_date(occurred_on, recorded_at)
    next_month = (booked.replace(day=1) + timedelta(days=32)).replace(day=1)
    assert recorded_at < movements.closes_at(next_month)
    assert booked >= occurred_on


# Every path that writes the mirror


def written_by_an_event(data: dict[str, Any]) -> None:
    apply(event(data, seconds=10))


def written_by_a_new_object(data: dict[str, Any]) -> None:
    resource = schemas.parse_resource(data, schemas.Payment)
    projection.write_answer(
        "default", resource, answered_at=at(10), duration=0.1, before=projection.ABSENT, is_new=True
    )


def written_by_a_repeated_post(data: dict[str, Any]) -> None:
    projection.record_identity("default", schemas.parse_resource(data, schemas.Payment))


def written_by_a_read(data: dict[str, Any]) -> None:
    read(data, seconds=10)


def changed_by_a_read(data: dict[str, Any]) -> None:
    read(payment(), seconds=1)
    read(data, seconds=10)


def changed_by_an_event(data: dict[str, Any]) -> None:
    apply(event(payment(), seconds=1))
    apply(event(data, seconds=10))


@pytest.mark.parametrize(
    "write",
    [
        written_by_an_event, written_by_a_new_object, written_by_a_repeated_post, written_by_a_read, changed_by_a_read,
        changed_by_an_event,
    ],
)  # fmt: skip
def test_every_path_that_writes_a_row_records_its_movements(write: Callable[[dict[str, Any]], None]) -> None:
    write(payment(**PAID))
    assert Payment.objects.get().amount_received == 10000
    assert sums("pay_1") == {"payment": 10000, "payment_fee": -300}


def test_a_batch_takes_two_statements_however_many_rows_it_has() -> None:
    def taken(numbers: range) -> int:
        for number in numbers:
            inbox.receive("default", factories.body(event(payment(id=f"pay_{number}", **PAID))))
        with CaptureQueriesContext(connection) as captured:
            inbox.process()
        return sum("payments_finance" in query["sql"] for query in captured.captured_queries)

    assert taken(range(1)) == 2
    assert taken(range(1, 30)) == 2


def test_the_refunds_of_charged_back_payments_take_one_statement() -> None:
    charged = {"status": "chargeback", "amount_received": 10_000, "refunded_amount": None}
    charged_back = [rows.payment(**charged) for _number in range(30)]
    rows.refund(payment=charged_back[0], status="succeeded", amount=2_500)
    with CaptureQueriesContext(connection) as captured:
        movements.record(charged_back)
    assert sum("payments_integration_refund" in query["sql"] for query in captured.captured_queries) == 1
    assert sums(charged_back[0].pk)["chargeback"] == -7_500
    assert sums(charged_back[1].pk)["chargeback"] == -10_000


def test_without_the_app_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_mirror_listeners", [])
    apply(event(payment(**PAID)))
    assert not Movement.objects.exists()


def test_a_movement_that_cannot_be_recorded_keeps_the_mirror_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rows: Any) -> None:
        raise ValueError("no")

    signals.on_mirror_written(fail)
    apply(event(payment(**PAID)))
    assert not Payment.objects.exists()
    assert not Movement.objects.exists()
    assert Event.objects.get().state == "pending"


def test_the_app_is_connected_once() -> None:
    from django.apps import apps  # noqa: PLC0415

    before = list(signals._mirror_listeners)
    apps.get_app_config("payments_finance").ready()
    assert signals._mirror_listeners == before


def test_movements_in_another_database_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_database() == []
    assert "payments_finance" not in str(run_checks(tags=["models"]))
    monkeypatch.setattr(router, "db_for_write", lambda model: "other" if model is Movement else "default")
    (error,) = [found for found in run_checks(tags=["models"]) if found.id == "payments_integration.E040"]
    assert error.msg == 'Movements are written to the database "other", the mirror to "default".'


# Objects from before the app


def before_the_app(monkeypatch: pytest.MonkeyPatch, *events: dict[str, Any]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        apply(*events)


def test_a_backfill_records_what_was_mirrored_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movements, "PAGE", 2)
    paid = [event(payment(id=f"pay_{number}", **PAID), seconds=number) for number in range(5)]
    before_the_app(monkeypatch, *paid, event(refund(status="succeeded"), seconds=9))
    assert movements.backfill() == 11
    assert sums("pay_4") == {"payment": 10000, "payment_fee": -300}
    assert sums("ref_1") == {"refund": -1000}
    assert movements.backfill() == 0


def test_a_backfill_dates_a_change_by_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's own time moves on with each reading."""
    before_the_app(monkeypatch, event(refund(status="succeeded"), seconds=9))
    Refund.objects.update(state_at=at(5000))
    movements.backfill()
    assert Movement.objects.get().occurred_at == at(9)


def test_a_backfill_books_old_months_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    before_the_app(monkeypatch, event(payment(**PAID)))
    old = T0 - timedelta(days=100)
    Payment.objects.update(state_at=old)
    StatusChange.objects.all().delete()
    movements.backfill()
    booked = Movement.objects.values_list("occurred_on", "booked_on").distinct()
    assert list(booked) == [(old.date(), old.date())]


def test_a_later_backfill_leaves_closed_months_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    apply(event(refund(status="succeeded")))
    first, old = T0 - timedelta(days=200), T0 - timedelta(days=100)
    Movement.objects.update(recorded_at=first)
    before_the_app(monkeypatch, event(payment(**PAID)))
    Payment.objects.update(state_at=old)
    StatusChange.objects.all().delete()
    assert movements.backfill() == 2
    found = Movement.objects.filter(kind="payment").get()
    assert found.occurred_on == old.date()
    assert found.booked_on == day_of(found.recorded_at)
    assert found.is_recorded_later


# An account that has a history


def paid_on(day: str, number: int, account: str = "default") -> Movement:
    """Bring in a payment that succeeded on that day, and return its movement."""
    paid = payment(id=f"pay_{number}", **PAID)
    inbox.receive(account, factories.body(event(paid, created_at=f"{day}T12:00:00Z", id=f"evt_{number}")))
    inbox.process(account)
    return Movement.objects.filter(account=account, kind="payment").latest("pk")


def days_of(found: Movement) -> tuple[str, str]:
    return found.occurred_on.isoformat(), found.booked_on.isoformat()


@pytest.mark.usefixtures("woken")
def test_the_first_synchronisation_books_old_months_as_they_were() -> None:
    """However long it takes: a webhook may come weeks before the first pass."""
    state = AccountState.objects.create(account="default")
    with time_machine.travel("2026-03-30T12:00:00Z"):
        assert days_of(paid_on("2025-11-10", 1)) == ("2025-11-10", "2025-11-10")
    with time_machine.travel("2026-05-10T12:00:00Z"):
        assert days_of(paid_on("2026-01-10", 2)) == ("2026-01-10", "2026-01-10")
        assert days_of(paid_on("2026-04-02", 3)) == ("2026-04-02", "2026-04-02")
        state.first_synced_at = timezone.now()
        state.save()
        # The books are open: a month that closed since they were opened stays as it is.
        assert days_of(paid_on("2026-04-03", 4)) == ("2026-04-03", "2026-05-10")
        assert days_of(paid_on("2026-01-11", 5)) == ("2026-01-11", "2026-01-11")


@pytest.mark.usefixtures("woken")
@pytest.mark.parametrize("has_state", [True, False])
def test_an_account_that_is_added_later_has_books_of_its_own(has_state: bool) -> None:
    with time_machine.travel("2026-01-10T12:00:00Z"):
        paid_on("2026-01-10", 1)
    if has_state:
        AccountState.objects.create(account="second")
    with time_machine.travel("2026-05-10T12:00:00Z"):
        assert days_of(paid_on("2026-02-10", 2, "second")) == ("2026-02-10", "2026-02-10")
        assert days_of(paid_on("2026-03-10", 3, "second")) == ("2026-03-10", "2026-03-10")
        assert days_of(paid_on("2026-02-11", 4)) == ("2026-02-11", "2026-05-10")


@pytest.mark.usefixtures("woken")
def test_history_that_comes_between_the_deployment_and_the_backfill_keeps_its_day() -> None:
    AccountState.objects.create(account="default", first_synced_at=T0)
    with time_machine.travel("2026-05-10T12:00:00Z"):
        assert days_of(paid_on("2026-05-10", 1)) == ("2026-05-10", "2026-05-10")
        assert days_of(paid_on("2026-02-10", 2)) == ("2026-02-10", "2026-02-10")


@pytest.mark.parametrize("has_movement", [True, False])
def test_months_without_movements_close_too(monkeypatch: pytest.MonkeyPatch, has_movement: bool) -> None:
    monkeypatch.setattr(movements, "installed_at", lambda app: datetime(2026, 1, 10, tzinfo=UTC))
    AccountState.objects.create(account="default", first_synced_at=datetime(2025, 10, 1, tzinfo=UTC))
    with time_machine.travel("2026-03-06T12:00:00Z"):
        if has_movement:
            assert days_of(paid_on("2026-03-06", 1)) == ("2026-03-06", "2026-03-06")
        assert days_of(paid_on("2026-02-20", 2)) == ("2026-02-20", "2026-03-06")
        # Before the installation there were no files.
        assert days_of(paid_on("2025-12-20", 3)) == ("2025-12-20", "2025-12-20")


@pytest.mark.parametrize(("day", "booked_on"), [("2026-01-12", "2026-01-05"), ("2026-02-11", "2026-02-11")])
def test_a_backfill_that_comes_too_late_leaves_the_month_of_the_installation_alone(
    monkeypatch: pytest.MonkeyPatch, day: str, booked_on: str
) -> None:
    monkeypatch.setattr(movements, "installed_at", lambda app: datetime(2026, 1, 10, tzinfo=UTC))
    AccountState.objects.create(account="default", first_synced_at=datetime(2026, 1, 1, tzinfo=UTC))
    with time_machine.travel("2026-01-05T12:00:00Z"):
        paid = event(payment(**PAID), created_at="2026-01-05T12:00:00Z")
        before_the_app(monkeypatch, paid)
    with time_machine.travel(f"{day}T12:00:00Z"):
        assert movements.backfill() == 2
    assert {days_of(found) for found in Movement.objects.all()} == {("2026-01-05", booked_on)}


@pytest.mark.usefixtures("woken")
def test_a_batch_of_closed_months_takes_one_more_statement_however_many_rows_it_has() -> None:
    def taken(numbers: range) -> int:
        for number in numbers:
            paid = payment(id=f"pay_{number}", **PAID)
            inbox.receive(
                "default", factories.body(event(paid, created_at="2026-02-10T12:00:00Z", id=f"evt_{number}"))
            )
        with CaptureQueriesContext(connection) as captured:
            inbox.process()
        return sum("payments_finance" in query["sql"] for query in captured.captured_queries)

    with time_machine.travel("2026-02-10T13:00:00Z"):
        paid_on("2026-02-10", 0)
    with time_machine.travel("2026-05-10T12:00:00Z"):
        assert taken(range(1, 2)) == 3
        assert taken(range(2, 30)) == 3
        assert Movement.objects.filter(occurred_on="2026-02-10", booked_on="2026-05-10").count() == 58


# Any order of arrival

AMOUNTS = st.integers(0, 5000)
PAYMENTS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["created", "on_hold", "partially_paid", "succeeded", "failed", "chargeback"]),
        "amount_received": AMOUNTS,
        "fee": st.none() | AMOUNTS,
        "refunded_amount": st.none() | AMOUNTS,
    }
).map(lambda fields: payment(**fields))
PAYOUTS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["created", "succeeded", "failed", "returned"]),
        "fee": st.none() | AMOUNTS,
        "refund_id": st.sampled_from([None, "ref_1"]),
    }
).map(lambda fields: payout(**fields))
REFUNDS = st.fixed_dictionaries(
    {"status": st.sampled_from(["created", "processing", "succeeded", "failed", "returned"]), "amount": AMOUNTS}
).map(lambda fields: refund(**fields, payment_id="pay_2"))
#: (an object in some state, seconds at which it was so, whether an answer brings it)
ARRIVALS = st.lists(st.tuples(PAYMENTS | PAYOUTS | REFUNDS, st.integers(0, 60), st.booleans()), max_size=12)


def what_the_state_implies(row: Any) -> dict[str, int]:
    """As ``docs/bookkeeping.md`` says it, without the code under test."""
    if isinstance(row, Payment):
        found = {"payment": row.amount_received, "payment_fee": -(row.fee or 0)}
        if row.status == "chargeback":
            found["chargeback"] = -(row.amount_received - (row.refunded_amount or 0))
    elif isinstance(row, Payout):
        found = {"payout_fee": -(row.fee or 0) if row.status in ("succeeded", "returned") else 0}
        if row.refund_id is None and row.status == "succeeded":
            found["payout"] = -row.amount
    else:
        found = {"refund": -row.amount if row.status == "succeeded" else 0}
    return {kind: amount for kind, amount in found.items() if amount}


@pytest.mark.any_database
@given(arrivals=ARRIVALS, batch=st.integers(1, 5))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_sums_equal_the_state_in_every_order_of_arrival(
    arrivals: list[tuple[dict[str, Any], int, bool]], batch: int
) -> None:
    with deletion_allowed():
        for model in (Movement, Event, StatusChange, DueRefresh, Payment, Payout, Refund):
            model.objects.all().delete()
    for number, (data, seconds, by_answer) in enumerate(arrivals):
        if by_answer:
            read(data, seconds=seconds)
        else:
            inbox.receive("default", factories.body(event(data, seconds=seconds, id=f"evt_{number}")))
        if number % batch == 0:
            inbox.process()
        check_books()
    inbox.process()
    check_books()


def check_books() -> None:
    """After every commit, not only at the end."""
    rows = list(itertools.chain(Payment.objects.all(), Payout.objects.all(), Refund.objects.all()))
    assert {row.pk: sums(row.pk) for row in rows} == {row.pk: what_the_state_implies(row) for row in rows}


@pytest.mark.case(78)
def test_a_clock_of_ours_that_is_ahead_books_nothing_in_a_later_month() -> None:
    ahead = timedelta(days=40)
    AccountState.objects.create(account="default", clock_offset=-ahead.total_seconds())
    with time_machine.travel(at(60) + ahead):
        apply(event(payment(**PAID), seconds=0))
    [found] = Movement.objects.filter(kind="payment")
    assert found.booked_on == found.occurred_on
    assert not found.is_recorded_later
