"""RabbitMQ with quorum queues, as it replicates them in a cluster; docs/scaling.md has the settings."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection

from payments_integration.models import Operation, OperationState
from tests.factories.receivers.models import ReceiverCall
from tests.systems.brokers.conftest import APART
from tests.systems.brokers.installation import Installation, queue_length
from tests.systems.brokers.test_sharing import ACCOUNTS, deliver, payment_events

#: Word for word as in docs/scaling.md.
QUORUM: dict[str, Any] = {
    "CELERY_TASK_DEFAULT_QUEUE_TYPE": "quorum",
    "CELERY_TASK_CREATE_MISSING_QUEUE_TYPE": "quorum",
}


def is_quorum(installation: Installation, queue: str) -> bool:
    """Whether the broker refuses to know the queue as one of the usual kind."""
    with Connection(installation.broker.url) as connection, suppress(PreconditionFailed):
        connection.default_channel.queue_declare(queue, durable=True, auto_delete=False)
        return False
    return True


@pytest.mark.promise(1)
@pytest.mark.promise(5)
@pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
def test_site_worker_and_beat_work_over_quorum_queues(installation: Installation) -> None:
    installation.changes |= QUORUM
    installation.provider.engine.fund("CLP", 50_000)
    installation.site()
    installation.paid()
    installation.payout()
    assert set(installation.deliver()) == {200}
    installation.wait("a message in the queue", lambda: queue_length(installation.broker.url))
    assert is_quorum(installation, "celery")

    worker, beat = installation.worker(), installation.beat(process_events=0.5, resume_operations=0.5)
    installation.wait_settled()
    assert worker.count("Global QoS is disabled")
    assert not worker.count("Traceback|ERROR")
    assert worker.is_running
    assert beat.is_running
    assert Operation.objects.filter(operation="create_payout", state=OperationState.DONE).count() == 1
    assert len(installation.provider.engine.payouts) == 1

    installation.broker.kill()
    installation.paid()
    installation.payout()
    assert set(installation.deliver()) == {200}
    installation.broker.start()
    installation.wait_settled()
    assert is_quorum(installation, "celery")
    assert worker.is_running
    assert beat.is_running
    assert len(installation.provider.engine.payouts) == 2
    installation.deliver()
    installation.wait_settled()
    installation.assert_true()


@pytest.mark.promise(6)
@pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
def test_a_queue_of_an_account_is_a_quorum_queue_too(installation: Installation) -> None:
    installation.changes |= {**QUORUM, "PAYMENTS": {"ACCOUNTS": ACCOUNTS}, "QUEUES": {"second": APART}}
    installation.site()
    workers = [installation.worker("--queues", name, concurrency=1, ready=False) for name in (APART, "celery")]
    for worker in workers:
        installation.wait_ready(worker)
    for account in ACCOUNTS:
        deliver(installation, account, payment_events(f"pay_{account}", gate="")[-1])
        called = ReceiverCall.objects.filter(object_id=f"pay_{account}")
        installation.wait(f"the dispatch for {account}, without beat", called.exists)
    assert is_quorum(installation, APART)
    assert is_quorum(installation, "celery")
    for worker in workers:
        installation.wait("both workers to have had a message", lambda of=worker: of.count("succeeded"))
