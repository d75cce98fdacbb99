"""Workers that die in the middle, and workers that are asked to leave."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from example_project.shop.models import Notice
from payments_integration.models import Event, EventState, Operation, OperationState
from payments_integration.sandbox import Fault
from tests.systems.brokers.installation import ACKS_LATE, Installation


@pytest.mark.case(72)
@pytest.mark.promise(6)
def test_a_worker_child_killed_in_a_receiver_loses_nothing(installation: Installation) -> None:
    """Its message was acknowledged; the others go on meanwhile, and the sweeper has it dispatched again."""
    installation.changes["PAYMENTS"] = {"RECEIVER_RETRIES": [1, 1, 1]}
    installation.site()
    worker = installation.worker()
    installation.beat(process_events=0.5)
    installation.paid(gate="deadly")
    assert set(installation.deliver()) == {200}
    (child,) = installation.wait_entered("deadly")
    assert child in worker.children()
    os.kill(child, signal.SIGKILL)
    installation.wait("the worker to miss its child", lambda: worker.count("WorkerLostError|SIGKILL"))
    other = installation.paid()
    installation.deliver()
    installation.wait(
        "the dispatch of another payment", lambda: Notice.objects.filter(object_id=other.pk).count() == 3
    )
    assert len(installation.entered("deadly")) == 1
    installation.open("deadly")
    installation.wait_settled()
    assert len(installation.entered("deadly")) == 2
    assert worker.is_running
    installation.assert_true()


@pytest.mark.case(72)
@pytest.mark.promise(5)
@pytest.mark.parametrize("late", [False, True], ids=["acks_early", "acks_late"])
def test_money_moves_once_when_its_sender_is_killed(installation: Installation, late: bool) -> None:
    """A child, then a whole machine, dies while the provider has executed the request and not yet answered."""
    installation.changes |= ACKS_LATE if late else {}
    engine = installation.provider.engine
    engine.fund("CLP", 50_000)
    installation.site()
    installation.beat(resume_operations=0.5, process_events=0.5)

    for number, whole in ((1, False), (2, True)):
        worker = installation.worker()
        engine.faults.add(Fault("slow", operation="create_payout", delay=30, work=True))
        operation = installation.payout()
        installation.wait("the provider to execute it", lambda known=number: len(engine.payouts) == known)
        operation.refresh_from_db()
        assert operation.state == OperationState.UNKNOWN
        if whole:
            worker.kill()
            worker = installation.worker()
        else:
            for child in worker.children():
                os.kill(child, signal.SIGKILL)
        claim_runs_out(operation)
        installation.wait_settled()
        assert [item["amount"] for item in engine.payouts.values()] == [5_000] * number
        if not whole:
            assert worker.is_running
            worker.stop()
    assert [fault.used for fault in engine.faults.all()] == [1, 1]
    # The answers of their repetitions; if this took long, also the slow ones, which nobody was there to read.
    answered = {entry["idempotency_key"] for entry in engine.books()["requests"] if entry["path"] == "/v1/payouts"}
    assert answered == set(Operation.objects.values_list("idempotency_key", flat=True))
    assert engine.balances["CLP"]["available"] == 50_000 - sum(
        item["amount"] + item["fee"] for item in engine.payouts.values()
    )


def claim_runs_out(operation: Operation) -> None:
    """Time passes for it."""
    over = timezone.now() - timedelta(seconds=1)
    Operation.objects.filter(pk=operation.pk).update(claimed_until=over, next_attempt_at=over)


@pytest.mark.promise(1)
@pytest.mark.promise(6)
def test_a_warm_shutdown_loses_nothing(installation: Installation) -> None:
    """Asked to leave in the middle of a batch it ends what it has begun; the next worker does the rest."""
    installation.site()
    first = installation.paid(gate="leaving")
    others = [installation.paid() for _ in range(5)]
    assert set(installation.deliver()) == {200}
    # Not before: between two deliveries, a worker may read the new status before its event arrives.
    worker = installation.worker(concurrency=1)
    installation.wait_entered("leaving")
    worker.send(signal.SIGTERM)
    installation.wait("the worker to begin its end", lambda: worker.count("Warm shutdown"))
    assert worker.is_running
    late = installation.paid()
    assert set(installation.deliver()) == {200}
    installation.open("leaving")
    installation.wait("the worker to leave", lambda: not worker.is_running)
    assert worker.popen.returncode == 0
    assert Notice.objects.filter(object_id=first.pk).count() == 3
    assert not Event.objects.filter(object_id__in=[first.pk], state=EventState.APPLIED).exists()

    installation.worker()
    installation.beat(process_events=0.5)
    installation.wait_settled()
    dispatched = set(Notice.objects.filter(type="payment.succeeded").values_list("object_id", flat=True))
    assert dispatched == {payment.pk for payment in (first, late, *others)}
    installation.assert_true()
