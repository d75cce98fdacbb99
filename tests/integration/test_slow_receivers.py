"""Merchant code that takes long holds up neither deliveries nor batches nor other objects."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from django.test import Client

from payments_integration import inbox, wakeup, webhooks
from payments_integration.models import Event, Payment
from payments_integration.signals import event_received
from payments_integration.testing import signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.databases import AS_SET, LEVELS, SQLITE, at_once
from tests.factories import body

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.case(95),
    pytest.mark.promise(6),
]

T = TypeVar("T")

#: SQLite has one writer at a time, and others wait while a receiver is that writer. Other databases do not wait, so
#: there a receiver stays until the others are done, and a test that hangs on it fails.
SLOW = 2.0 if SQLITE else 60.0
#: The provider's patience (spec, "Delivery rules").
ANSWER_WITHIN = 10.0


class Slow:
    """A receiver that takes long over the objects it is named: until released, or so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.objects: set[str] = set()
        self.called = threading.Event()
        self.released = threading.Event()
        self.waited_in_vain = False

    def __call__(self, event: Event, **_: Any) -> None:
        if event.object_id in self.objects:
            self.objects.discard(event.object_id)  # its later events are quick
            self.called.set()
            self.waited_in_vain |= not self.released.wait(self.seconds)

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """The work of others, begun when the receiver runs; it goes on when they are done."""

        def others() -> T:
            assert self.called.wait(30)
            try:
                return work()
            finally:
                self.released.set()

        return others

    @property
    def was_waited_for(self) -> bool:
        """Whether the others' work ended only because the receiver gave up."""
        return self.waited_in_vain and not SQLITE


def fresh(name: str) -> str:
    """A name that was never there: MariaDB also locks beside a row of the same name that was deleted just now."""
    return f"{name}_{uuid.uuid4()}"


@pytest.fixture
def slow() -> Iterator[Slow]:
    receiver = Slow(SLOW)
    event_received.connect(receiver)
    yield receiver
    event_received.disconnect(receiver)


def deliver(event: dict[str, Any]) -> int:
    return int(Client().post("/payments/webhook/", **signed_delivery(event, "whsec_default")).status_code)


@pytest.mark.parametrize("level", LEVELS)
def test_a_slow_receiver_does_not_delay_other_objects(receiver: Receiver, slow: Slow, level: str) -> None:
    name, other = fresh("pay_slow"), fresh("pay_other")
    slow.objects = {name}
    first, second = factories.life(name)[:2]
    inbox.receive("default", body(first))
    inbox.process()

    def others() -> None:
        assert deliver(factories.life(other)[0]) == 200
        assert deliver(second) == 200
        assert inbox.process() == 2
        assert Payment.objects.get(pk=name).status == "requires_action"
        assert inbox.dispatch() >= 1

    at_once(inbox.dispatch, slow.beside(others), level=level)
    assert not slow.was_waited_for
    inbox.dispatch()
    assert [call for call in receiver.dispatched if name in call] == [first["id"], second["id"]]
    assert factories.life(other)[0]["id"] in receiver.dispatched


def test_the_webhook_answers_in_time_despite_a_slow_receiver(
    receiver: Receiver, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one writer at a time the answer may be 503; what is delivered again is then taken."""
    monkeypatch.setattr(webhooks, "_STORE_SECONDS", 0.5)
    slow.objects, slow.seconds = {"pay_slow"}, 60.0
    inbox.receive("default", body(factories.life("pay_slow")[0]))
    inbox.process()
    _, status = at_once(inbox.dispatch, slow.beside(lambda: deliver(factories.life("pay_1")[0])))
    assert not slow.waited_in_vain, "the answer came only after the receiver"
    assert status == (503 if SQLITE else 200)
    assert deliver(factories.life("pay_1")[0]) == 200
    assert inbox.process() == 1


def test_the_time_limit_of_the_view_leaves_time_to_answer() -> None:
    assert webhooks._STORE_SECONDS < ANSWER_WITHIN - 1


@pytest.mark.parametrize("level", [AS_SET])
def test_other_writers_get_through_between_slow_receivers(receiver: Receiver, slow: Slow, level: str) -> None:
    """On a database with one writer, the next dispatch starts only after waiting writers have had a chance."""
    slow.seconds = 0.5
    names = [f"pay_{number}" for number in range(12)]
    slow.objects = set(names)
    inbox.receive_many("default", (body(factories.life(name)[0]) for name in names), source="webhook")
    inbox.process()

    def others() -> set[str]:
        """The receivers that are still to come when a delivery and a batch have had their turn."""
        assert deliver(factories.life("pay_new")[0]) == 200
        inbox.process()
        return set(slow.objects)

    _, to_come = at_once(inbox.dispatch, slow.beside(others), level=level)
    assert to_come
    assert Event.objects.exclude(state="pending").filter(object_id="pay_new").exists()


def test_deliveries_during_an_inline_dispatch_are_answered_in_time(receiver: Receiver, slow: Slow) -> None:
    """In "inline" mode a delivery's own receivers run before its answer; the others' do not wait for them."""
    name, other = fresh("pay_slow"), fresh("pay_other")
    slow.objects = {name}
    before = wakeup.set_hook(wakeup._on_wake)
    try:
        own, others = at_once(
            lambda: deliver(factories.life(name)[0]),
            slow.beside(lambda: [deliver(item) for item in factories.life(other)[:3]]),
        )
    finally:
        wakeup.set_hook(before)
    assert not slow.was_waited_for
    assert own == 200
    assert others == [200] * 3
    inbox.process()
    inbox.dispatch()
    assert [call for call in receiver.dispatched if other in call] == [
        item["id"] for item in factories.life(other)[:3]
    ]
