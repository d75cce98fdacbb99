"""The journal of a month explains the sandbox's balances: after webhooks, after reconciliation, after a backfill."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.management import call_command

from payments_integration import inbox, reconciliation, services, signals
from payments_integration.contrib.finance import movements
from payments_integration.contrib.finance.apps import record
from payments_integration.contrib.finance.closing import close_months
from payments_integration.contrib.finance.journal import statements
from payments_integration.contrib.finance.models import ClosingBalance, Movement
from payments_integration.models import Balance, Payment, deletion_allowed
from payments_integration.projection import events as projected
from payments_integration.reconciliation.renaming import models_with_account
from payments_integration.sandbox import Fault
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.databases import LEVELS, SQLITE, at_once
from tests.integration.bookkeeping import BEFORE, MONTH, WITHIN, read_everything, trade
from tests.integration.mirror import assert_mirror_equals_provider
from tests.integration.reconciling import pay
from tests.unit.contrib.finance.books import sums


@pytest.fixture(autouse=True)
def _connected(_no_optional_apps: None) -> None:
    signals.on_mirror_written(record)


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(BEFORE) as clock:
        yield clock


@pytest.fixture
def sandbox(clock: time_machine.Traveller, woken: list[str]) -> Iterator[ProviderSandbox]:
    with ProviderSandbox() as sandbox:
        yield sandbox


def figures() -> dict[str, tuple[dict[str, int], int | None]]:
    """By currency: the sums by kind, and what they do not explain."""
    found = {item.currency: (item.booked, item.unexplained) for item in statements(MONTH)}
    return {currency: (booked, rest) for currency, (booked, rest) in found.items() if booked or rest}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


@pytest.mark.django_db
@pytest.mark.case(94)
@pytest.mark.parametrize("is_recorded", [True, False], ids=["with the app", "without the app"])
def test_a_month_closes_with_what_arrived_together_with_the_next_one(
    sandbox: ProviderSandbox, clock: time_machine.Traveller, is_recorded: bool
) -> None:
    """No webhook arrives over the end of a month, so one pass applies the events of both."""
    clock.move_to(at("2026-03-20T12:00:00"))
    services.sync_balances()
    reconciliation.reconcile_events(sandbox.account)
    if not is_recorded:
        signals._mirror_listeners.clear()
    before = Balance.objects.get(currency="CLP")
    sandbox.engine.faults.add(Fault("drop", times=None))
    clock.move_to(at("2026-03-31T22:00:00"))
    late = pay(sandbox, amount=10_000)
    clock.move_to(at("2026-04-01T02:00:00"))
    pay(sandbox, amount=7_000)
    clock.move_to(at("2026-04-01T08:00:00"))
    reconciliation.reconcile_events(sandbox.account)
    clock.move_to(at("2026-04-06T08:00:00"))
    reconciliation.reconcile_events(sandbox.account)
    close_months()
    [closed] = ClosingBalance.objects.filter(currency="CLP", day=date(2026, 3, 31))
    net = Payment.objects.get(pk=late.pk).net_amount
    assert net
    assert closed.available + closed.pending == before.available + before.pending + net


#: What ``trade`` moves. The fees are those of the sandbox's terms.
EXPECTED: dict[str, dict[str, int]] = {
    "CLP": {
        "payment": 10000 + 7000 + 5000 + 9000,
        "refund": -2000 - 1500,
        "chargeback": -5000,
        "payout": -3000,
    },
    "BRL": {"payment": 12345},
}


def assert_explained() -> None:
    assert {currency: rest for currency, (_, rest) in figures().items()} == {"CLP": 0, "BRL": 0}
    assert_booked()


def assert_booked() -> None:
    found = figures()
    booked = {
        currency: {kind: amount for kind, amount in amounts.items() if amount and not kind.endswith("_fee")}
        for currency, (amounts, _) in found.items()
    }
    assert booked == EXPECTED
    assert found["CLP"][0]["payout_fee"] < 0
    assert found["CLP"][0]["payment_fee"] < 0


@pytest.mark.django_db
def test_the_movements_of_a_month_explain_the_balances(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    trade(sandbox, clock)
    assert_mirror_equals_provider(sandbox)
    assert sandbox.engine.books()["audit"] == []
    assert_explained()


@pytest.mark.django_db
def test_what_reconciliation_finds_is_booked_in_the_month_in_which_it_happened(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    sandbox.engine.faults.add(Fault("drop", times=None))
    trade(sandbox, clock)
    clock.move_to(WITHIN.replace(day=30))
    read_everything(sandbox)
    assert_mirror_equals_provider(sandbox)
    assert_explained()


@pytest.mark.django_db
def test_the_first_synchronisation_books_each_movement_on_its_own_day(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    """Also a refund and a chargeback, whose objects have no ``succeeded_at`` of their own."""
    sandbox.engine.faults.add(Fault("drop", times=None))
    paid, charged_back = pay(sandbox, amount=10000), pay(sandbox, amount=7000)
    clock.shift(86400)
    sandbox.engine.succeed_refund(services.create_refund(services.refresh(paid), amount=2000).pk)
    sandbox.engine.chargeback(charged_back.pk)
    with deletion_allowed():  # a new installation
        for model in (*models_with_account(), Movement):
            model._default_manager.all().delete()
    clock.move_to(at("2026-07-20T12:00:00"))
    call_command("payments_reconcile", "--full", "--account", sandbox.account)
    found = Movement.objects.exclude(kind="payment_fee").values_list("kind", "amount", "booked_on")
    assert set(found) == {
        ("payment", 10000, BEFORE.date()),
        ("payment", 7000, BEFORE.date()),
        # The provider has no time of a chargeback. It is booked when the payment succeeded.
        ("chargeback", -7000, BEFORE.date()),
        ("refund", -2000, BEFORE.date() + timedelta(days=1)),
    }


@pytest.mark.django_db
def test_a_backfill_finds_the_same_movements(
    sandbox: ProviderSandbox, clock: time_machine.Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        trade(sandbox, clock)
    assert not Movement.objects.exists()
    movements.backfill()
    assert_booked()


@pytest.mark.django_db
def test_money_from_outside_is_reported_as_unexplained(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    services.sync_balances()
    clock.move_to(WITHIN)
    sandbox.engine.fund("CLP", DEFAULT_FUNDS["CLP"] + 777)
    services.sync_balances()
    assert figures()["CLP"] == ({}, 777)
    out, err = io.StringIO(), io.StringIO()
    call_command("payments_journal", since=MONTH.since, until=MONTH.until, stdout=out, stderr=err)
    assert "unexplained 777" in err.getvalue()
    assert "777" not in out.getvalue()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", LEVELS)
def test_events_answers_and_a_backfill_at_the_same_moment_book_once(sandbox: ProviderSandbox, level: str) -> None:
    """Each sees what the one before it has booked, at every isolation level."""
    sandbox.engine.faults.add(Fault("drop", times=None))
    payments = [pay(sandbox) for _ in range(6)]
    bodies = [factories.body(item) for item in sandbox.project.events if item["type"].startswith("payment.")]
    inbox.receive_many(sandbox.account, bodies, source="webhook")
    at_once(
        inbox.process,
        *(lambda payment=payment: services.refresh(payment) for payment in payments),
        movements.backfill,
        inbox.process,
        level=level,
    )
    inbox.process()
    for payment in Payment.objects.all():
        assert sums(payment.pk) == {"payment": 10000, "payment_fee": -(payment.fee or 0)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", LEVELS)
def test_a_transaction_that_began_before_another_sees_what_that_one_booked(
    woken: list[str], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """It would book the same money a second time."""
    paid = factories.payment(status="succeeded", amount_received=10000, fee=300)
    with monkeypatch.context() as patch:
        patch.setattr(signals, "_mirror_listeners", [])
        inbox.receive("default", factories.body(factories.event(paid)))
        inbox.process()
    later = factories.event({**paid, "fee": 400}, id="evt_later", created_at=factories.iso(datetime.now(UTC)))
    inbox.receive("default", factories.body(later))
    begun, booked = threading.Event(), threading.Event()
    lock = projected._lock

    def lock_late(batch: Any) -> Any:
        if not begun.is_set():
            # Under REPEATABLE READ the transaction sees this moment until its end.
            assert Movement.objects.count() == 0
            begun.set()
            # On SQLite the other one waits for this transaction.
            booked.wait(0.5 if SQLITE else 20)
        return lock(batch)

    def backfill() -> None:
        assert begun.wait(20)
        movements.backfill()
        booked.set()

    monkeypatch.setattr(projected, "_lock", lock_late)
    at_once(inbox.process, backfill, level=level)
    inbox.process()
    assert sums("pay_1") == {"payment": 10000, "payment_fee": -400}
