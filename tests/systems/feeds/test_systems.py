"""The three other systems of docs/reports.md: Kafka (librdkafka's mock brokers), SNS (moto) and a warehouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from django.db import DatabaseError, connections
from django.utils import timezone
from django.utils.module_loading import import_string
from feeds import kafka as feeds_kafka, sns, tasks, warehouse
from feeds.models import Entry, Lease
from feeds.publishing import BATCH, LEASE, publish
from moto import mock_aws

from tests.databases import at_once
from tests.systems.feeds.conftest import Message, by_object, publish_and_die
from tests.systems.feeds.page import block_after

Changes = Callable[..., dict[str, list[str]]]
Read = Callable[[], list[Message]]
MANY = tuple(f"pay_{number}" for number in range(20))


# --- Kafka


def test_kafka_gets_each_change_in_order(changes: Changes, kafka: Read) -> None:
    expected = changes(*MANY)
    assert publish(feeds_kafka.send) == 100
    messages = kafka()
    assert len(messages) == 100
    assert by_object(messages) == expected


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_publisher_loses_nothing_and_the_next_one_resumes(
    changes: Changes, kafka: Read, settings: Any, when: str, nth: int
) -> None:
    expected = changes(*MANY)
    publish_and_die(settings, after=when, nth=nth)
    repeated = len(kafka()) - (100 - Entry.objects.count())
    assert repeated == (20 if when == "after" else 0)  # acknowledged, and not deleted
    assert publish(feeds_kafka.send) == 0  # the lease of the dead
    Lease.objects.update(until=timezone.now())
    publish(feeds_kafka.send)
    messages = kafka()
    assert len(messages) == 100 + repeated
    assert len({message["change"] for message in messages}) == 100
    assert by_object(messages) == expected


def test_while_the_brokers_are_down_nothing_is_lost(
    changes: Changes, kafka: Read, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    expected = changes(*MANY[:10], steps=slice(2))
    up = settings.FEEDS_KAFKA
    settings.FEEDS_KAFKA = {"bootstrap.servers": "127.0.0.1:9", "delivery.timeout.ms": 500, "log_level": 0}
    assert publish(feeds_kafka.send) == 0
    assert Entry.objects.count() == 20
    assert "held back for 10 objects" in caplog.text
    settings.FEEDS_KAFKA = up
    for payment, statuses in changes(*MANY[:10], steps=slice(2, 5)).items():
        expected[payment] += statuses
    assert publish(feeds_kafka.send) == 50
    assert by_object(kafka()) == expected


def test_two_publishers_at_once_keep_the_order_in_kafka(changes: Changes, kafka: Read) -> None:
    expected = changes(*MANY[:10])
    assert sum(at_once(*[lambda: publish(feeds_kafka.send)] * 2)) == 50
    messages = kafka()
    assert len(messages) == 50
    assert by_object(messages) == expected


def test_the_task_publishes_to_kafka(changes: Changes, kafka: Read) -> None:
    expected = changes("pay_1")
    assert tasks.publish_feed.name == "feeds.tasks.publish_feed"
    tasks.publish_feed()
    assert by_object(kafka()) == expected


def test_the_schedule_names_the_task() -> None:
    names: dict[str, Any] = {}
    exec(block_after("The schedule, in the settings"), names)
    entry = names["CELERY_BEAT_SCHEDULE"]["publish-feed"]
    assert import_string(entry["task"]) is tasks.publish_feed


# --- SNS


@pytest.fixture
def queue(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """A FIFO topic, and a FIFO queue that subscribes to it; returns what reads the queue."""
    for name, value in (
        ("AWS_DEFAULT_REGION", "sa-east-1"),
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
    ):
        monkeypatch.setenv(name, value)
    sns.client.cache_clear()
    with mock_aws():
        topics, queues = boto3.client("sns"), boto3.client("sqs")
        fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "false"}
        arn = settings.FEEDS_TOPIC_ARN = topics.create_topic(Name="changes.fifo", Attributes=fifo)["TopicArn"]
        url = queues.create_queue(QueueName="changes.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        queue_arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        topics.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue_arn, Attributes={"RawMessageDelivery": "true"})

        def read() -> list[Message]:
            messages: list[Message] = []
            while found := queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
                for message in found:
                    messages.append(json.loads(message["Body"]))
                    queues.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            return messages

        yield read
    sns.client.cache_clear()


def test_sns_gets_each_change_in_order(changes: Changes, queue: Read) -> None:
    expected = changes(*MANY)
    assert publish(sns.send) == 100
    assert by_object(queue()) == expected


def test_sns_recognises_a_repetition(changes: Changes, queue: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = changes("pay_1", "pay_2")

    def die(entries: list[Any]) -> list[int]:
        sns.send(entries)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(die)
    assert Entry.objects.count() == 10
    publish(sns.send)
    messages = queue()
    assert len(messages) == 10
    assert by_object(messages) == expected


def test_while_sns_refuses_nothing_is_lost(
    changes: Changes, queue: Read, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    expected = changes(*MANY[:12])
    arn = settings.FEEDS_TOPIC_ARN
    settings.FEEDS_TOPIC_ARN = f"{arn.removesuffix('.fifo')}-absent.fifo"
    assert publish(sns.send) == 0
    assert "SNS does not take the feed" in caplog.text
    assert Entry.objects.count() == 60
    settings.FEEDS_TOPIC_ARN = arn
    assert publish(sns.send) == 60
    assert by_object(queue()) == expected


def test_all_calls_of_a_batch_take_less_time_than_the_lease(queue: Read) -> None:
    config = sns.client().meta.config
    assert config.retries["total_max_attempts"] == 1
    assert (config.connect_timeout + config.read_timeout) * BATCH / 10 < LEASE.total_seconds()


# --- a warehouse


@pytest.fixture
def table(transactional_db: None) -> Iterator[Callable[[], list[tuple[Any, ...]]]]:
    """The table of the page; returns what reads it."""

    def execute(statement: str) -> list[tuple[Any, ...]]:
        with connections["warehouse"].cursor() as cursor:
            return list(cursor.execute(statement).fetchall())

    execute(block_after("The table, on PostgreSQL"))
    yield lambda: execute("SELECT change_id, object_id, message FROM status_change ORDER BY sequence")
    execute("DROP TABLE status_change")


@pytest.mark.django_db(transaction=True, databases=["default", "warehouse"])
def test_the_warehouse_has_each_change_once_whatever_is_repeated(
    changes: Changes, table: Callable[[], list[tuple[Any, ...]]]
) -> None:
    expected = changes(*MANY[:10])

    def die(entries: list[Any]) -> list[int]:
        warehouse.send(entries)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(die)
    assert len(table()) == 10
    assert publish(warehouse.send) == 50
    found = table()
    assert len(found) == 50
    assert by_object([json.loads(row[2]) for row in found]) == expected


@pytest.mark.django_db(transaction=True, databases=["default", "warehouse"])
def test_while_the_warehouse_is_down_nothing_is_lost(
    changes: Changes, table: Callable[[], list[tuple[Any, ...]]]
) -> None:
    changes("pay_1")
    with connections["warehouse"].cursor() as cursor:
        cursor.execute("ALTER TABLE status_change RENAME TO away")
    with pytest.raises(DatabaseError, match="status_change"):
        publish(warehouse.send)
    assert Entry.objects.count() == 5
    with connections["warehouse"].cursor() as cursor:
        cursor.execute("ALTER TABLE away RENAME TO status_change")
    assert publish(warehouse.send) == 5
    assert len(table()) == 5
