"""The same work given out twice: redelivered messages, two beats, two workers, and messages that come too late."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone
from kombu import Connection

from example_project.shop.models import Notice
from payments_integration import tasks
from payments_integration.models import AccountState, Event, EventState, ReconciliationRun, RunKind, RunState
from payments_integration.sandbox import Fault
from tests.servers import RabbitMQ, Redis
from tests.systems.brokers.installation import ACKS_LATE, Installation, queue_length

redis_only = pytest.mark.parametrize("broker", ["redis"], indirect=True)

#: A message that was taken and not acknowledged for a second is given to the next worker.
IMPATIENT = {
    **ACKS_LATE,
    "CELERY_BROKER_TRANSPORT_OPTIONS": {
        "visibility_timeout": 1,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
}


@redis_only
@pytest.mark.case(70)
@pytest.mark.promise(5)
@pytest.mark.promise(6)
def test_a_task_longer_than_the_visibility_timeout_runs_its_work_once(installation: Installation) -> None:
    """The same message runs beside itself, once over a receiver and once over a payout that is being sent."""
    installation.changes |= IMPATIENT
    engine = installation.provider.engine
    engine.fund("CLP", 50_000)
    engine.faults.add(Fault("slow", operation="create_payout", delay=5, work=True))
    installation.payout()
    installation.site()
    workers = [installation.worker(), installation.worker()]
    installation.paid(gate="long")
    assert set(installation.deliver()) == {200}
    installation.wait_entered("long")

    def again() -> bool:
        taken = Counter(
            task_id for worker in workers for task_id in re.findall(r"\[(\S+)\] received", worker.output())
        )
        return taken.total() - len(taken) >= 2

    installation.wait("both tasks to be given out again", again)
    installation.wait("the payout to be created", lambda: engine.payouts)
    installation.open("long")
    installation.wait_settled()
    installation.deliver()
    installation.wait_settled()
    assert len(installation.entered("long")) == 1
    assert [item["amount"] for item in engine.payouts.values()] == [5_000]
    assert len([entry for entry in engine.books()["requests"] if entry["operation"] == "create_payout"]) == 1
    installation.assert_true()


@pytest.mark.case(75)
@pytest.mark.promise(4)
def test_two_beats_and_overlapping_passes_do_the_work_once(installation: Installation) -> None:
    """Both beats give out all there is, far faster than it can be done; the passes go one at a time."""
    engine = installation.provider.engine
    engine.faults.add(Fault("drop", times=None))
    engine.faults.add(Fault("slow", operation="list_payments", delay=6))
    engine.faults.add(Fault("slow", times=None, method="GET", delay=0.4))
    AccountState.objects.create(account="default", watermark=timezone.now() - timedelta(hours=2))
    for _ in range(3):
        installation.paid()
    installation.deliver()
    assert not Event.objects.exists()
    every = {"reconcile_events": 0.3, "reconcile_objects": 0.3, "process_events": 0.3, "resume_operations": 0.3}
    for _ in range(2):
        installation.worker()
        installation.beat(**every)
    ended = ReconciliationRun.objects.exclude(state=RunState.RUNNING)
    events, objects = ended.filter(kind=RunKind.EVENTS), ended.filter(kind=RunKind.OBJECTS)
    installation.wait("some passes over the events", lambda: events.filter(state=RunState.DONE).count() >= 3)
    installation.wait("some that were refused", events.filter(state=RunState.SKIPPED).exists)
    installation.wait("some passes over the objects", lambda: objects.filter(state=RunState.DONE).count() >= 6)
    installation.wait_settled()
    installation.close()
    assert not ended.filter(state=RunState.FAILED).exists()
    # By the provider's books: the record of a pass begins before its claim and ends after it. Every page took 0.4 s,
    # so two passes at once would have had one answered sooner than that after another.
    pages = [entry for entry in engine.requests if entry["operation"] == "list_events"]
    answered = [datetime.fromisoformat(entry["at"]) for entry in pages]
    assert len(answered) >= 3
    assert min(after - before for before, after in pairwise(answered)) > timedelta(seconds=0.35)
    swept = objects.filter(pages__gt=0).get()
    assert swept.finished_at is not None
    assert ReconciliationRun.objects.filter(
        kind=RunKind.OBJECTS, started_at__gt=swept.started_at, started_at__lt=swept.finished_at
    ).exists(), "another pass began during the sweep, and did not sweep"
    installation.assert_true()


@pytest.mark.promise(2)
@pytest.mark.promise(6)
def test_two_workers_on_one_object_do_not_run_its_receivers_twice(installation: Installation) -> None:
    """While one worker dispatches an object's events, the others skip it, dispatch the rest, and keep the order."""
    installation.site()
    workers = [installation.worker(), installation.worker()]
    installation.beat(process_events=0.2)
    installation.beat(process_events=0.2)
    payment = installation.paid(gate="one")
    installation.provider.engine.faults.add(Fault("duplicate", times=None))
    installation.deliver()
    installation.wait_entered("one")
    installation.provider.engine.chargeback(payment.pk)
    refunded = installation.paid()
    installation.deliver()
    installation.wait("the other object's dispatch", lambda: Notice.objects.filter(object_id=refunded.pk).count() == 3)
    both = r"process_events\[\S+\] succeeded"
    before = [worker.count(both) for worker in workers]
    installation.wait(
        "both workers to pass by",
        lambda: all(worker.count(both) > known for worker, known in zip(workers, before, strict=True)),
    )
    installation.wait(
        "the chargeback to be applied", lambda: not Event.objects.filter(state=EventState.PENDING).exists()
    )
    assert not Notice.objects.filter(object_id=payment.pk, type="payment.chargeback").exists()
    installation.open("one")
    installation.wait_settled()
    assert len(installation.entered("one")) == 1
    assert Notice.objects.filter(object_id=payment.pk).count() == 4
    dispatched = Notice.objects.filter(object_id=payment.pk).order_by("pk").values_list("type", flat=True)
    assert list(dispatched) == ["payment.created", "payment.processing", "payment.succeeded", "payment.chargeback"]


def test_wake_ups_that_come_too_late_have_no_effect(installation: Installation) -> None:
    """They expire in the queue; the sweeper finds what they were about."""
    site = installation.site()
    installation.paid()
    assert set(installation.deliver()) == {200}
    assert isinstance(installation.broker, Redis | RabbitMQ)
    installation.wait("the wake-up", lambda: queue_length(installation.broker.url))
    site.stop()  # its last wake-up has left
    installation.broker.wipe()
    with Connection(installation.broker.url) as connection:
        for _ in range(3):
            tasks.process_events.apply_async(kwargs={"account": "default"}, expires=0.2, connection=connection)
    worker = installation.worker()
    installation.wait("the queue to be empty", lambda: not queue_length(installation.broker.url))
    if isinstance(installation.broker, Redis):  # the other throws away by itself what has expired
        installation.wait("them to be thrown away", lambda: worker.count("Discarding revoked task") == 3)
    assert worker.count(r"process_events\[\S+\] succeeded") == 0
    assert set(Event.objects.values_list("state", flat=True)) == {EventState.PENDING}
    installation.beat(process_events=0.5)
    installation.wait_settled()
    installation.assert_true()
