"""A Kafka broker, changes of many payments, and a process that publishes and dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from django.db import connection

from payments_integration import inbox
from tests import factories

ROOT = Path(__file__).resolve().parents[3]
PARTITIONS = 4

Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_receivers() -> None:
    """Unlike in the other suites, the handlers of the page stay connected."""


@pytest.fixture(scope="session")
def brokers() -> Iterator[str]:
    """Three mock brokers that live in librdkafka, on loopback."""
    cluster = Producer({"test.mock.num.brokers": 3})
    found = cluster.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found)
    del cluster


@pytest.fixture
def kafka(brokers: str, settings: Any) -> Iterator[Callable[[], list[Message]]]:
    """Settings for a topic of the test's own; returns what reads it from its beginning."""
    from feeds.kafka import producer  # noqa: PLC0415

    topic = settings.FEEDS_TOPIC = f"changes-{uuid.uuid4().hex}"
    settings.FEEDS_KAFKA = {"bootstrap.servers": brokers}
    producer.cache_clear()

    def read() -> list[Message]:
        reader = Consumer({"bootstrap.servers": brokers, "group.id": topic})
        messages: list[Message] = []
        try:
            if topic not in reader.list_topics(timeout=60).topics:
                return []
            for number in range(PARTITIONS):
                place = TopicPartition(topic, number, 0)
                _, end = reader.get_watermark_offsets(place, timeout=60)
                reader.assign([place])
                for _ in range(end):
                    message = reader.poll(60)
                    assert message is not None
                    assert message.error() is None
                    body = json.loads(message.value())
                    assert message.key().decode() == body["id"]
                    messages.append(body)
        finally:
            reader.close()
        return messages

    yield read
    producer.cache_clear()


@pytest.fixture
def changes(transactional_db: None, woken: list[str]) -> Callable[..., dict[str, list[str]]]:
    """Lives of payments, received, applied and dispatched; returns the statuses of each in order."""

    def change(*payments: str, steps: slice = slice(None)) -> dict[str, list[str]]:
        statuses: dict[str, list[str]] = {}
        for step in range(*steps.indices(5)):
            # Step by step, so that the entries of the payments take turns.
            for payment in payments:
                event = factories.life(payment)[step]
                inbox.receive("default", factories.body(event))
                statuses.setdefault(payment, []).append(event["data"]["status"])
            inbox.process()
            inbox.dispatch()
        return statuses

    return change


def by_object(messages: list[Message]) -> dict[str, list[str]]:
    """The statuses of each object, as a consumer that keeps the rule of the page takes them."""
    taken: dict[str, list[str]] = {}
    last: dict[str, int] = {}
    for message in messages:
        if message["sequence"] > last.get(message["id"], 0):
            last[message["id"]] = message["sequence"]
            taken.setdefault(message["id"], []).append(message["status"])
    return taken


def publish_and_die(settings: Any, *, after: str, nth: int = 1) -> None:
    """A process publishes to Kafka, and is killed before or after the nth call of ``send``."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "tests.systems.feeds.child", after, str(nth)],
            cwd=ROOT,
            env={
                **os.environ,
                "TMPDIR": folder,  # a killed process removes nothing
                "DJANGO_SETTINGS_MODULE": "tests.systems.feeds.settings",
                "FEEDS_DATABASE": str(connection.settings_dict["NAME"]),
                "FEEDS_BROKERS": settings.FEEDS_KAFKA["bootstrap.servers"],
                "FEEDS_TOPIC": settings.FEEDS_TOPIC,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == -9, done.stdout + done.stderr
