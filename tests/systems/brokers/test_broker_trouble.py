"""The broker is away, silent or empty: deliveries are answered all the same, and nothing is lost."""

from __future__ import annotations

import time

import pytest

from payments_integration.models import Event, EventState, Operation, OperationState
from tests.servers import RabbitMQ, Redis
from tests.systems.brokers.installation import Installation, queue_length
from tests.systems.brokers.proxy import Proxy


@pytest.mark.case(68)
@pytest.mark.promise(1)
def test_refused_connections_delay_no_answer_and_lose_no_event(installation: Installation) -> None:
    """Answered at once without a broker; worker and beat that started before it find the work by themselves."""
    installation.broker.kill()
    installation.site()
    for _ in range(4):
        installation.paid()
    assert set(installation.deliver()) == {200}
    worker = installation.worker(ready=False)
    beat = installation.beat(process_events=1)
    installation.wait("the worker to miss its broker", lambda: worker.count("[Cc]annot connect"))
    assert set(Event.objects.values_list("state", flat=True)) == {EventState.PENDING}
    installation.broker.start()
    installation.wait_ready(worker)
    installation.wait_settled()
    assert worker.is_running
    assert beat.is_running
    installation.assert_true()


@pytest.mark.case(69)
@pytest.mark.promise(1)
def test_a_silent_broker_delays_no_answer(installation: Installation) -> None:
    """It accepts connections and says nothing: to those who knew it before, and to those who did not."""
    knows_it = installation.site()
    worker, beat = installation.worker(), installation.beat(process_events=0.5)
    installation.paid()
    assert set(installation.deliver()) == {200}
    installation.wait_settled()

    installation.broker.pause()
    for _ in range(3):
        installation.paid()
    assert set(installation.deliver()) == {200}
    knows_it.stop()
    installation.site()
    installation.paid()
    assert set(installation.deliver()) == {200}
    # So that beat and the worker meet the silence too; nothing shows that a worker waits in vain.
    time.sleep(3)
    installation.broker.resume()
    installation.wait_settled()
    assert worker.is_running
    assert beat.is_running
    installation.assert_true()


@pytest.mark.case(73)
def test_a_wiped_broker_is_filled_again_from_the_database(installation: Installation) -> None:
    assert isinstance(installation.broker, Redis | RabbitMQ)
    installation.provider.engine.fund("CLP", 50_000)
    site = installation.site()
    for _ in range(3):
        installation.paid()
    installation.payout()
    assert set(installation.deliver()) == {200}
    installation.wait("a message in the queue", lambda: queue_length(installation.broker.url))
    site.stop()  # its last wake-up has left
    installation.broker.wipe()
    assert queue_length(installation.broker.url) == 0
    assert Event.objects.filter(state=EventState.PENDING).exists()

    installation.supervise(installation.worker())
    beat = installation.beat(process_events=0.5, resume_operations=0.5)
    installation.wait_settled()

    # Once more under those who are connected.
    installation.site()
    installation.broker.wipe()
    installation.paid()
    installation.deliver()
    installation.wait_settled()
    assert beat.is_running
    assert Operation.objects.filter(operation="create_payout", state=OperationState.DONE).count() == 1
    assert len(installation.provider.engine.payouts) == 1
    installation.deliver()
    installation.wait_settled()
    installation.assert_true()


@pytest.mark.case(73)
@pytest.mark.promise(1)
@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_redis_restarted_and_wiped_under_load_loses_nothing(installation: Installation) -> None:
    """Deliveries go on while Redis dies and comes back empty, three times, under site, worker and beat."""
    installation.provider.engine.fund("CLP", 50_000)
    installation.site()
    installation.supervise(installation.worker())
    beat = installation.beat(process_events=0.5, resume_operations=0.5)
    for number in range(12):
        installation.paid()
        if number % 4 == 1:
            installation.broker.kill()
        assert set(installation.deliver()) == {200}
        if number % 4 == 2:
            installation.broker.start()
            installation.payout()
    installation.wait_settled()
    assert beat.is_running
    assert Operation.objects.filter(operation="create_payout", state=OperationState.DONE).count() == 3
    installation.deliver()
    installation.wait_settled()
    assert len(installation.provider.engine.payouts) == 3
    installation.assert_true()


@pytest.mark.case(74)
def test_a_worker_recovers_from_connections_that_die_silently(installation: Installation) -> None:
    """Worker, beat and site notice dead connections by themselves and connect again."""
    with Proxy(installation.broker.port) as way:
        installation.broker_url = installation.broker.url.replace(str(installation.broker.port), str(way.port))
        site, worker, beat = installation.site(), installation.worker(), installation.beat(process_events=1)
        installation.paid()
        assert set(installation.deliver()) == {200}
        installation.wait_settled()

        assert way.silence() >= 3
        for _ in range(2):
            installation.paid()
        assert set(installation.deliver()) == {200}
        installation.wait_settled(60)
        taken = worker.count("received")
        installation.paid()
        assert set(installation.deliver()) == {200}
        installation.wait("beat's messages to come again", lambda: worker.count("received") > taken + 3)
        installation.wait_settled()
        assert site.is_running
        assert worker.is_running
        assert beat.is_running
        installation.assert_true()
