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
from tests.servers import RabbitMQ
from tests.systems.brokers.installation import Installation
from tests.systems.brokers.processes import python

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
    def test_a_long_pass_is_acknowledged_when_it_begins(self, installation: Installation) -> None:
        """With any project default, the channel stays open during a slow receiver."""
        installation.changes["CELERY_TASK_ACKS_LATE"] = True
        installation.site()
        worker = installation.worker()
        installation.paid(gate="long")
        assert set(installation.deliver()) == {200}
        installation.wait_entered("long")
        time.sleep(6)  # long enough for the broker to close a channel, which must not happen
        assert worker.is_running
        assert worker.count("PRECONDITION_FAILED|PreconditionFailed") == 0
        installation.open("long")
        installation.wait_settled()
        assert len(installation.entered("long")) == 1
        installation.assert_true()

    @pytest.mark.case(71)
    @pytest.mark.promise(6)
    def test_a_closed_channel_loses_nothing(self, installation: Installation) -> None:
        """All its processes busy for too long, a worker keeps messages that it cannot begin with."""
        installation.changes["CELERY_WORKER_PREFETCH_MULTIPLIER"] = 4
        installation.site()
        worker = installation.worker(concurrency=1)
        beat = installation.beat(process_events=0.5)
        installation.paid(gate="long")
        assert set(installation.deliver()) == {200}
        installation.wait_entered("long")
        installation.wait(
            "the broker to lose its patience", lambda: worker.count("PRECONDITION_FAILED|PreconditionFailed")
        )
        installation.open("long")
        installation.paid()
        assert set(installation.deliver()) == {200}
        if not _goes_on(worker):
            worker.stop()
            installation.worker()  # as a process manager would
        installation.wait_settled()
        assert beat.is_running
        assert len(installation.entered("long")) <= 2
        installation.assert_true()


def _goes_on(worker: Any) -> bool:
    """Whether the worker got over it: give it a moment to make up its mind."""
    end = time.monotonic() + 5
    while time.monotonic() < end and worker.is_running:
        time.sleep(0.1)
    return bool(worker.is_running)


@pytest.mark.case(71)
def test_every_task_has_its_limits() -> None:
    """Their own, so that neither a project's short limit nor its late acknowledgements apply to them."""
    named = vars(tasks).items()
    ours = {name: task for name, task in named if hasattr(task, "apply_async") and not isinstance(task, type)}
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
def test_a_worker_that_stopped_consuming_shows_in_the_health(installation: Installation) -> None:
    """It runs and is connected, and takes no message. What waits gets older, and in the end needs a person."""
    installation.changes["PAYMENTS"] = {"BACKLOG_ALERT": 3}
    installation.site()
    worker = installation.worker()
    installation.paid()
    assert set(installation.deliver()) == {200}
    installation.wait_settled()
    assert health(installation)["accounts"]["default"]["backlog"]["age_seconds"] is None
    worker.stop()

    deaf = installation.worker("--queues", "elsewhere")
    installation.paid()
    assert set(installation.deliver()) == {200}
    first = health(installation)["accounts"]["default"]
    assert first["backlog"]["pending"]["count"] == Event.objects.filter(state=EventState.PENDING).count() > 0
    time.sleep(3)  # the event gets older by so much, and so comes to BACKLOG_ALERT
    later = health(installation, exit_code=1)["accounts"]["default"]
    assert later["backlog"]["age_seconds"] >= first["backlog"]["age_seconds"] + 3
    assert "events_pending" in {problem["code"] for problem in later["problems"]}
    assert deaf.is_running

    installation.worker()
    installation.wait_settled()
    assert health(installation)["accounts"]["default"]["backlog"]["age_seconds"] is None
    installation.assert_true()


def health(installation: Installation, exit_code: int | None = None) -> dict[str, Any]:
    """What ``payments_health --json`` says; ``exit_code``: and how it ends."""
    done = subprocess.run(
        python("django", "payments_health", "--json"),
        env=installation.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == exit_code or (exit_code is None and done.returncode in (0, 1)), done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
