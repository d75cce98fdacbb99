"""Every order of arrival, with repetitions, by every door, ends in the same rows; each event is dispatched once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from payments_integration import inbox
from payments_integration.models import Event, Payment, StatusChange, deletion_allowed
from tests import factories
from tests.conftest import Receiver
from tests.factories import body
from tests.factories.receivers.models import ReceiverCall

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("woken"),
    pytest.mark.promise(2),
    pytest.mark.promise(3),
    pytest.mark.case(43),
]

LIFE = factories.life()
ORDERS = list(permutations(range(5)))
ROW = ("status", "amount_received", "fee", "net_amount", "state_at", "state_by")


def deliveries(order: tuple[int, ...], rng: random.Random) -> Iterator[bytes]:
    """The events in this order, about a third of them repeated at random later places."""
    queue = [LIFE[index] for index in order]
    for item in list(queue):
        if rng.random() < 0.35:
            queue.insert(rng.randrange(queue.index(item), len(queue) + 1), item)
    return map(body, queue)


def arrive(bodies: Iterator[bytes], door: str, rng: random.Random) -> None:
    """Bring bodies in, processing and dispatching at random moments between them."""
    pending = list(bodies)
    while pending:
        size = rng.randint(1, len(pending))
        now, pending = pending[:size], pending[size:]
        if door == "reconciliation" or (door == "mixed" and rng.random() < 0.5):
            inbox.receive_many("default", now, source="reconciliation")
        else:
            for item in now:
                inbox.receive("default", item)
        if rng.random() < 0.7:
            inbox.process()
        if rng.random() < 0.5:
            inbox.dispatch()
    inbox.process()
    inbox.release("default")
    inbox.dispatch()


@pytest.mark.parametrize("door", ["webhook", "reconciliation", "mixed"])
def test_every_arrival_order_ends_in_the_same_rows(door: str, receiver: Receiver) -> None:
    rng = random.Random(20)
    ends: set[tuple[Any, ...]] = set()
    for order in ORDERS:
        with deletion_allowed():
            for model in (Event, Payment, StatusChange, ReceiverCall):
                model.objects.all().delete()
        receiver.events.clear()
        arrive(deliveries(order, rng), door, rng)
        ends.add(Payment.objects.values_list(*ROW).get())
        assert sorted(receiver.events) == sorted(dict(receiver.events).items())
        assert sorted(event_id for event_id, _ in receiver.events) == sorted(item["id"] for item in LIFE)
        # What reconciliation brings waits for its window, so nothing of it comes too late.
        assert door != "reconciliation" or not any(is_stale for _, is_stale in receiver.events)
        fresh = [event_id for event_id, is_stale in receiver.events if not is_stale]
        times = {item["id"]: item["created_at"] for item in LIFE}
        assert [times[event_id] for event_id in fresh] == sorted(times[event_id] for event_id in fresh)
        assert StatusChange.objects.order_by("-pk").first().status == "chargeback"  # type: ignore[union-attr]
    assert len(ends) == 1
    assert ends.pop()[0] == "chargeback"
