"""Beat with its schedule in the database: django-celery-beat, which stores no "expires" of an entry."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis

from payments_integration.schedule import BEAT_SCHEDULE
from tests.servers import Redis
from tests.systems.brokers.installation import ROOT, Installation, queue_length
from tests.systems.brokers.processes import python

SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"


class TestDatabaseScheduler:
    # A parameter, so that the catalogue's notes say where it ran.
    @pytest.fixture(params=["redis"])
    def broker(self) -> Iterator[Redis]:
        with Redis() as server:
            yield server

    @pytest.mark.case(114)
    def test_messages_expire_while_no_worker_runs(self, installation: Installation) -> None:
        """A worker that was away for a day finds what beat has sent in the meantime, and runs none of it."""
        subprocess.run(
            python("django", "migrate", "django_celery_beat", "--verbosity", "0"),
            env=installation.environ(), cwd=ROOT, check=True, timeout=120,
        )  # fmt: skip
        beat = installation.beat("--scheduler", SCHEDULER, process_events=1.0)
        installation.wait("beat to send messages", lambda: queue_length(installation.broker_url) >= 2)
        beat.stop()

        waiting = queue_length(installation.broker_url)
        a_day_later(installation.broker_url)
        worker = installation.worker()
        discarded = "Discarding revoked task: payments_integration.tasks.process_events"
        installation.wait("the worker to discard them", lambda: worker.count(discarded) == waiting)
        assert worker.count(r"process_events\[\S+\] succeeded") == 0


def a_day_later(url: str) -> None:
    """Move the times of the waiting messages back by a day."""
    expires = BEAT_SCHEDULE["payments_integration.process_events"]["options"]["expires"]
    with redis.Redis.from_url(url) as client:
        for number, text in enumerate(client.lrange("celery", 0, -1)):
            message = json.loads(text)
            at = datetime.fromisoformat(message["headers"]["expires"])
            assert abs(at - datetime.now(UTC) - timedelta(seconds=expires)) < timedelta(minutes=2)
            message["headers"]["expires"] = (at - timedelta(days=1)).isoformat()
            client.lset("celery", number, json.dumps(message))
