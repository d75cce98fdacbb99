"""Deliveries, claimants and tellers at once, each in a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import Client

from payments_integration import inbox
from payments_integration.inbox import receiving
from payments_integration.models import Event, Payment, StatusChange
from payments_integration.testing import signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.factories import body

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.promise(2),
]


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run all at the same moment; returns their results, raises what one of them raised."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        barrier.wait(10)
        try:
            results[index] = work()
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


@pytest.mark.case(33)
@pytest.mark.promise(1)
def test_twenty_identical_deliveries_at_once(receiver: Receiver) -> None:
    delivery = signed_delivery(factories.life()[0], "whsec_default")
    statuses = at_once(*[lambda: Client().post("/payments/webhook/", **delivery).status_code] * 20)
    assert Counter(statuses) == {200: 20}
    assert Event.objects.count() == 1
    inbox.process()
    inbox.tell()
    assert len(receiver.events) == 1


@pytest.mark.case(41)
@pytest.mark.case(40)
def test_eight_claimants_apply_and_tell_each_event_once(receiver: Receiver) -> None:
    events = [item for n in range(20) for item in factories.life(f"pay_{n}")]
    inbox.receive_many("default", map(body, events), source="webhook")

    def work() -> int:
        applied = inbox.process()
        inbox.tell()
        return applied

    assert sum(at_once(*[work] * 8)) == 100
    inbox.tell()
    assert sorted(receiver.told) == sorted(item["id"] for item in events)
    for n in range(20):
        mine = [item["id"] for item in factories.life(f"pay_{n}")]
        assert [told for told in receiver.told if told in mine] == mine
    assert Payment.objects.filter(status="chargeback").count() == 20


@pytest.mark.case(36)
@pytest.mark.case(35)
def test_events_of_absent_objects_from_both_doors_at_once() -> None:
    events = [body(item) for n in range(10) for item in factories.life(f"pay_{n}")]

    def webhook() -> None:
        for item in events:
            inbox.receive("default", item)
            inbox.process()

    def reconciliation() -> None:
        inbox.receive_many("default", reversed(events), source="reconciliation")
        inbox.process()

    at_once(webhook, reconciliation, reconciliation)
    inbox.process()
    assert Event.objects.filter(state="done").count() == 50
    assert Payment.objects.filter(status="chargeback").count() == 10
    latest = {change.object_id: change.status for change in StatusChange.objects.order_by("pk")}
    assert set(latest.values()) == {"chargeback"}


@pytest.mark.case(34)
def test_the_winner_rolls_back_and_the_second_inserts() -> None:
    item = body(factories.life()[0])
    inserted, decided = threading.Event(), threading.Event()

    def winner() -> None:
        try:
            with transaction.atomic():
                receiving.read("default", item, source="webhook").save(force_insert=True)
                inserted.set()
                decided.wait(0.5)
                raise InterruptedError
        except InterruptedError:
            pass

    def second() -> None:
        inserted.wait(5)
        decided.set()
        inbox.receive("default", item)

    at_once(winner, second)
    assert Event.objects.count() == 1


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    connections.close_all()
