"""One daily sweep runs at a time, also if it takes longer than the interval between passes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from payments_integration import health, reconciliation
from payments_integration.db.claims import Held
from payments_integration.models import AccountState, DueRefresh, Payment, ReconciliationRun, deletion_allowed
from payments_integration.reconciliation import objects, runs
from payments_integration.sandbox import Fault
from payments_integration.signals import Reason
from payments_integration.testing import ProviderSandbox
from tests.integration.reconciling import pay

pytestmark = pytest.mark.django_db(transaction=True)


class Dies(BaseException):
    """A process that is killed writes nothing more."""


def set_state(**fields: object) -> None:
    AccountState.objects.update_or_create(account="default", defaults=fields)


@pytest.mark.case(75)
@pytest.mark.parametrize("before_the_first_page", [True, False])
def test_a_pass_that_begins_during_a_sweep_does_not_sweep(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch, before_the_first_page: bool
) -> None:
    pay(sandbox)
    within: list[ReconciliationRun] = []
    sweep = objects._sweep

    def another(run: ReconciliationRun) -> None:
        if not within:
            within.append(run)  # the next line calls this function again
            within[0] = reconciliation.reconcile_objects("default")

    def sweep_after_another(run: ReconciliationRun, **kwargs: Any) -> None:
        another(run)
        sweep(run, **kwargs)

    if before_the_first_page:
        monkeypatch.setattr(objects, "_sweep", sweep_after_another)
    run = reconciliation.reconcile_objects("default", progress=None if before_the_first_page else another)
    assert run.pages > 0
    assert [(other.state, other.pages) for other in within] == [("done", 0)]
    assert AccountState.objects.get().swept_at == run.started_at
    assert reconciliation.reconcile_objects("default").pages == 0


def test_a_failed_sweep_is_repeated_by_the_next_pass(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("error", operation="list_refunds", status=500, times=None))
    assert reconciliation.reconcile_objects("default").state == "failed"
    sandbox.engine.faults.clear()
    again = reconciliation.reconcile_objects("default")
    assert (again.state, again.pages > 0) == ("done", True)


def test_a_sweep_whose_process_died_is_repeated_after_its_claim(sandbox: ProviderSandbox) -> None:
    def die(run: ReconciliationRun) -> None:
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "release", lambda held: None)  # a killed process does not release its claim
        with pytest.raises(Dies):
            reconciliation.reconcile_objects("default", progress=die)
    assert reconciliation.reconcile_objects("default").pages == 0
    set_state(sweep_claimed_until=timezone.now())
    assert reconciliation.reconcile_objects("default").pages > 0


def test_sweeps_whose_processes_die_become_a_problem(
    sandbox: ProviderSandbox, clock: time_machine.Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Dies

    assert reconciliation.reconcile_objects("default").state == "done"
    clock.shift(timedelta(hours=50))
    with monkeypatch.context() as killed:
        for target, name in ((objects, "_sweep"), (runs, "_save"), (Held, "release")):
            killed.setattr(target, name, die)
        with pytest.raises(Dies):
            reconciliation.reconcile_objects("default")
    assert reconciliation.reconcile_objects("default").state == "done"
    assert failing() == ["no sweep of all objects was complete for 2 d (no error recorded)"]


def test_an_object_that_cannot_be_stored_fails_one_sweep_a_day(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    assert reconciliation.reconcile_objects("default").state == "done"
    payment = pay(sandbox)
    sandbox.project.state.payments.items.find(payment.pk)["merchant_reference"] = "x" * 300
    with deletion_allowed():
        Payment.objects.all().delete()
    for _ in range(2):
        assert not failing()
        clock.shift(timedelta(hours=25))
        assert reconciliation.reconcile_objects("default").state == "failed"
        again = reconciliation.reconcile_objects("default")
        assert (again.state, again.pages) == ("done", 0)
    assert failing() == ["no sweep of all objects was complete for 2 d (GET /payments)"]


def failing() -> list[str]:
    found = health.examine("default").accounts["default"].problems
    return [problem.message for problem in found if problem.code == Reason.RUNS_FAIL]


def test_a_sweep_that_stood_still_writes_nothing_more(sandbox: ProviderSandbox) -> None:
    """Its claim has ended, and another process sweeps."""

    def stand_still(run: ReconciliationRun) -> None:
        set_state(sweep_claim_token="another")

    run = reconciliation.reconcile_objects("default", progress=stand_still)
    assert (run.state, run.error.partition(":")[0]) == ("failed", "ClaimLost")
    state = AccountState.objects.get()
    assert (state.swept_at, state.sweep_claim_token) == (None, "another")


def test_a_resync_by_hand_goes_on_with_the_running_one(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    within: list[ReconciliationRun] = []

    def start_another(run: ReconciliationRun) -> None:
        if not within:
            within.append(run)
            within[0] = objects.resync("default")

    first = objects.resync("default", progress=start_another)
    assert (first.state, within[0].state) == ("failed", "done")
    assert within[0].resumed
    assert AccountState.objects.get().sweep_claim_token == ""


def test_a_running_resync_replaces_the_daily_sweep(sandbox: ProviderSandbox) -> None:
    set_state(resync_due_at=timezone.now(), sweep_claimed_until=timezone.now() + timedelta(minutes=20))
    assert reconciliation.reconcile_objects("default").pages == 0
    set_state(sweep_claimed_until=None)
    assert reconciliation.reconcile_objects("default").kind == "full"


@pytest.mark.case(71)
def test_a_pass_stops_reading_after_its_time_limit(sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long backlog does not block a worker: every step stops at its time limit."""
    payments = [pay(sandbox) for _ in range(3)]
    set_state(swept_at=timezone.now())

    def mark() -> None:
        DueRefresh.objects.all().delete()
        for payment in payments:
            DueRefresh.objects.create(
                account="default", object_kind="payment", object_id=payment.pk, reason="tie", due_at=timezone.now()
            )

    mark()
    monkeypatch.setattr("payments_integration.reconciliation.objects.REPAIR_SECONDS", 0.0)
    reconciliation.reconcile_objects("default")
    assert DueRefresh.objects.count() == 3
    monkeypatch.setattr("payments_integration.reconciliation.due.STEP_SECONDS", 0.0)
    reconciliation.process_due("default")
    assert DueRefresh.objects.count() == 3
    monkeypatch.undo()
    reconciliation.process_due("default")
    assert not DueRefresh.objects.exists()
