"""Consumers that keep their messages too long, and one that has stopped consuming."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection

from payments_integration import tasks
from payments_integration.models import Event, EventState
from tests.brokers.processes import python
from tests.brokers.stage import Stage
from tests.servers import RabbitMQ

BY_HALF_AN_HOUR = 30 * 60


class Impatient(RabbitMQ):
    """It closes the channel of a consumer that has not acknowledged a delivery for two seconds."""

    def prepare(self) -> None:
        super().prepare()
        # How often it looks, a minute by default, can only be said here.
        settings = "[{rabbit, [{consumer_timeout, 2000}, {channel_tick_interval, 1000}]}].\n"
        (self.directory / "advanced.config").write_text(settings)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config")}


@pytest.fixture(scope="module")
def impatient() -> Iterator[Impatient]:
    with Impatient() as server:
        yield server


class TestConsumerTimeout:
    """RabbitMQ closes the channel of who has a delivery for half an hour without acknowledging it."""

    # A parameter, so that the catalogue's notes say where it ran.
    @pytest.fixture(params=["rabbitmq"])
    def broker(self, impatient: Impatient) -> Impatient:
        with Connection(impatient.url) as connection:
            connection.default_channel.queue_delete("celery")
        return impatient

    @pytest.mark.case(71)
    @pytest.mark.promise(6)
    def test_a_long_pass_is_acknowledged_when_it_begins(self, stage: Stage) -> None:
        """Whatever the project's default: the channel stays open over a receiver that takes its time."""
        stage.changes["CELERY_TASK_ACKS_LATE"] = True
        stage.site()
        worker = stage.worker()
        stage.paid(gate="long")
        assert set(stage.deliver()) == {200}
        stage.wait_entered("long")
        time.sleep(6)
        assert worker.is_running
        assert worker.count("PRECONDITION_FAILED|PreconditionFailed") == 0
        stage.open("long")
        stage.wait_settled()
        assert len(stage.entered("long")) == 1
        stage.assert_true()

    @pytest.mark.case(71)
    @pytest.mark.promise(6)
    def test_a_closed_channel_loses_nothing(self, stage: Stage) -> None:
        """All its processes busy for too long, a worker keeps messages that it cannot begin with."""
        stage.changes["CELERY_WORKER_PREFETCH_MULTIPLIER"] = 4
        stage.site()
        worker = stage.worker(concurrency=1)
        beat = stage.beat(process_events=0.5)
        stage.paid(gate="long")
        assert set(stage.deliver()) == {200}
        stage.wait_entered("long")
        stage.wait("the broker to lose its patience", lambda: worker.count("PRECONDITION_FAILED|PreconditionFailed"))
        stage.open("long")
        stage.paid()
        assert set(stage.deliver()) == {200}
        if not _goes_on(worker):
            worker.stop()
            stage.worker()  # as whatever runs it would
        stage.wait_settled()
        assert beat.is_running
        assert len(stage.entered("long")) <= 2
        stage.assert_true()


def _goes_on(worker: Any) -> bool:
    """Whether the worker got over it: give it a moment to make up its mind."""
    end = time.monotonic() + 5
    while time.monotonic() < end and worker.is_running:
        time.sleep(0.1)
    return bool(worker.is_running)


@pytest.mark.case(71)
def test_every_task_has_its_limits() -> None:
    """Their own, so that neither a project's short limit nor its late acknowledgements apply to them."""
    ours = {name: task for name, task in vars(tasks).items() if hasattr(task, "apply_async")}
    assert set(ours) == {
        "process_events", "resume_operations", "reconcile_events", "reconcile_objects", "sync_balances", "prune",
    }  # fmt: skip
    for name, task in ours.items():
        assert task.acks_late is False
        assert 0 < task.time_limit == task.soft_time_limit
        if name in ("process_events", "resume_operations", "sync_balances"):
            assert task.time_limit < BY_HALF_AN_HOUR


@pytest.mark.case(74)
@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_stopped_consuming_shows_in_the_health(stage: Stage) -> None:
    """It runs and is connected, and takes no message. What waits gets older, and in the end needs a person."""
    stage.changes["PAYMENTS"] = {"BACKLOG_ALERT": 3}
    stage.site()
    worker = stage.worker()
    stage.paid()
    assert set(stage.deliver()) == {200}
    stage.wait_settled()
    assert health(stage)["accounts"]["default"]["backlog"]["age_seconds"] is None
    worker.stop()

    deaf = stage.worker("--queues", "elsewhere")
    stage.paid()
    assert set(stage.deliver()) == {200}
    first = health(stage)["accounts"]["default"]
    assert first["backlog"]["pending"]["count"] == Event.objects.filter(state=EventState.PENDING).count() > 0
    time.sleep(3)
    later = health(stage, exit_code=1)["accounts"]["default"]
    assert later["backlog"]["age_seconds"] >= first["backlog"]["age_seconds"] + 3
    assert "events_pending" in {problem["code"] for problem in later["problems"]}
    assert deaf.is_running

    stage.worker()
    stage.wait_settled()
    assert health(stage)["accounts"]["default"]["backlog"]["age_seconds"] is None
    stage.assert_true()


def health(stage: Stage, exit_code: int | None = None) -> dict[str, Any]:
    """What ``payments_health --json`` says; ``exit_code``: and how it ends."""
    done = subprocess.run(
        python("django", "payments_health", "--json"),
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == exit_code or (exit_code is None and done.returncode in (0, 1)), done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
