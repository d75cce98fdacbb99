"""The broker is away, silent or empty: deliveries are answered all the same, and nothing is lost."""

from __future__ import annotations

import time

import pytest

from payments_integration.models import Event, EventState, Operation, OperationState
from tests.brokers.proxy import Proxy
from tests.brokers.stage import Stage, queue_length
from tests.servers import RabbitMQ, Redis


@pytest.mark.case(68)
@pytest.mark.promise(1)
def test_refused_connections_cost_nothing(stage: Stage) -> None:
    """Answered at once without a broker; worker and beat that started before it find the work by themselves."""
    stage.broker.kill()
    stage.site()
    for _ in range(4):
        stage.paid()
    assert set(stage.deliver()) == {200}
    worker = stage.worker(ready=False)
    beat = stage.beat(process_events=1)
    stage.wait("the worker to miss its broker", lambda: worker.count("[Cc]annot connect"))
    assert set(Event.objects.values_list("state", flat=True)) == {EventState.PENDING}
    stage.broker.start()
    stage.wait_ready(worker)
    stage.wait_settled()
    assert worker.is_running
    assert beat.is_running
    stage.assert_true()


@pytest.mark.case(69)
@pytest.mark.promise(1)
def test_a_silent_broker_delays_no_answer(stage: Stage) -> None:
    """It accepts connections and says nothing: to those who knew it before, and to those who did not."""
    knows_it = stage.site()
    worker, beat = stage.worker(), stage.beat(process_events=0.5)
    stage.paid()
    assert set(stage.deliver()) == {200}
    stage.wait_settled()

    stage.broker.pause()
    for _ in range(3):
        stage.paid()
    assert set(stage.deliver()) == {200}
    knows_it.stop()
    stage.site()
    stage.paid()
    assert set(stage.deliver()) == {200}
    time.sleep(3)  # so that beat and the worker meet the silence too
    stage.broker.resume()
    stage.wait_settled()
    assert worker.is_running
    assert beat.is_running
    stage.assert_true()


@pytest.mark.case(73)
def test_a_wiped_broker_is_filled_again_from_the_database(stage: Stage) -> None:
    assert isinstance(stage.broker, Redis | RabbitMQ)
    stage.provider.engine.fund("CLP", 50_000)
    site = stage.site()
    for _ in range(3):
        stage.paid()
    stage.payout()
    assert set(stage.deliver()) == {200}
    stage.wait("a message in the queue", lambda: queue_length(stage.broker.url))
    site.stop()  # its last wake-up has left
    stage.broker.wipe()
    assert queue_length(stage.broker.url) == 0
    assert Event.objects.filter(state=EventState.PENDING).exists()

    stage.supervise(stage.worker())
    beat = stage.beat(process_events=0.5, resume_operations=0.5)
    stage.wait_settled()

    # Once more under those who are connected.
    stage.site()
    stage.broker.wipe()
    stage.paid()
    stage.deliver()
    stage.wait_settled()
    assert beat.is_running
    assert Operation.objects.filter(operation="create_payout", state=OperationState.DONE).count() == 1
    assert len(stage.provider.engine.payouts) == 1
    stage.deliver()
    stage.wait_settled()
    stage.assert_true()


@pytest.mark.case(74)
def test_connections_that_die_without_a_word(stage: Stage) -> None:
    """Nobody is told that they are dead: worker, beat and site notice by themselves and connect anew."""
    with Proxy(stage.broker.port) as way:
        stage.broker_url = stage.broker.url.replace(str(stage.broker.port), str(way.port))
        site, worker, beat = stage.site(), stage.worker(), stage.beat(process_events=1)
        stage.paid()
        assert set(stage.deliver()) == {200}
        stage.wait_settled()

        assert way.silence() >= 3
        for _ in range(2):
            stage.paid()
        assert set(stage.deliver()) == {200}
        stage.wait_settled(60)
        taken = worker.count("received")
        stage.paid()
        assert set(stage.deliver()) == {200}
        stage.wait("beat's messages to come again", lambda: worker.count("received") > taken + 3)
        stage.wait_settled()
        assert site.is_running
        assert worker.is_running
        assert beat.is_running
        stage.assert_true()
