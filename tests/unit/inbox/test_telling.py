"""Telling merchant code: once, in order, exactly with its database work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import inbox
from payments_integration.handlers import on_event, on_status
from payments_integration.models import Event, Payment, StatusChange, Telling
from payments_integration.signals import event_received, status_changed
from tests import factories
from tests.conftest import Receiver
from tests.factories import body, event
from tests.receivers.models import Told

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken"), pytest.mark.promise(6)]


def take_in(*events: dict[str, Any]) -> None:
    for item in events:
        inbox.receive("default", body(item))
    inbox.process()


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in events]


def later(**wait: float) -> None:
    """As if so much time had passed."""
    for telling in Telling.objects.exclude(next_attempt_at=None):
        Telling.objects.filter(pk=telling.pk).update(next_attempt_at=telling.next_attempt_at - timedelta(**wait))


def test_in_order_and_once(receiver: Receiver) -> None:
    events = factories.life()
    take_in(*reversed(events))
    assert inbox.tell() == 5
    assert inbox.tell() == 0
    assert receiver.events == [(item["id"], False) for item in events]
    assert receiver.previous == ["", "created", "requires_action", "processing", "succeeded"]
    assert receiver.statuses == [("", "chargeback")]
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    assert StatusChange.objects.get().told_at is not None


def test_batch_by_batch_each_change_is_told(receiver: Receiver) -> None:
    for item in factories.life():
        take_in(item)
        inbox.tell()
    assert receiver.statuses == [
        ("", "created"),
        ("created", "requires_action"),
        ("requires_action", "processing"),
        ("processing", "succeeded"),
        ("succeeded", "chargeback"),
    ]


def test_a_late_event_is_told_as_stale(receiver: Receiver) -> None:
    events = factories.life()
    take_in(events[3])
    inbox.tell()
    take_in(events[1])
    inbox.tell()
    assert receiver.events == [(events[3]["id"], False), (events[1]["id"], True)]
    assert receiver.statuses == [("", "succeeded")]


@pytest.mark.case(79)
def test_an_event_from_tomorrow_makes_no_other_stale(receiver: Receiver) -> None:
    tomorrow = (timezone.now() - factories.T0 + timedelta(days=1)).total_seconds()
    take_in(event(factories.payment(), seconds=tomorrow))
    inbox.tell()
    take_in(factories.life()[1])
    inbox.tell()
    assert [is_stale for _, is_stale in receiver.events] == [False, False]


def test_events_of_unknown_kinds_have_no_instance(receiver: Receiver) -> None:
    seen: list[Any] = []

    def note(sender: Any, event: Event, instance: Any, **kwargs: Any) -> None:
        seen.append((sender, event.id, instance))

    event_received.connect(note, sender=Event)
    try:
        take_in(
            {
                **event(factories.payment()),
                "type": "dispute.created",
                "data": {"object": "dispute", "id": "d_1"},
            }
        )
        inbox.tell()
    finally:
        event_received.disconnect(note, sender=Event)
    assert seen == [(Event, "evt_pay_1_created_0", None)]


@pytest.mark.case(94)
def test_a_failing_receiver_holds_back_its_object_only(receiver: Receiver) -> None:
    one, two = factories.life("pay_1"), factories.life("pay_2")
    receiver.fail = lambda what: what == one[3]["id"]
    take_in(*one, *two)
    inbox.tell()
    assert ids(one[:3]) == [told for told in receiver.told if told in ids(one)]
    assert ids(two) == [told for told in receiver.told if told in ids(two)]
    failed = Event.objects.get(id=one[3]["id"])
    assert (failed.state, failed.attempts) == ("applied", 1)
    assert "RuntimeError: receiver fails" in failed.error
    assert "Traceback" in failed.error
    # Its database work was rolled back, and nothing is tried again before its time.
    assert not Told.objects.filter(what=one[3]["id"]).exists()
    assert inbox.tell() == 0
    receiver.fail = lambda what: False
    later(seconds=11)
    assert inbox.tell() == 2
    assert [told for told in receiver.told if told in ids(one)] == ids(one)


@pytest.mark.case(94)
def test_parked_after_the_last_try_then_replayed_as_stale(
    receiver: Receiver, attentions: list[dict[str, Any]]
) -> None:
    events = factories.life()
    receiver.fail = lambda what: what == events[3]["id"]
    take_in(*events)
    for _ in range(6):
        inbox.tell()
        later(hours=1)
    parked = Event.objects.get(id=events[3]["id"])
    assert (parked.state, parked.attempts) == ("parked", 6)
    assert [seen["reason"] for seen in attentions] == ["telling_parked"]
    assert inbox.tell() == 1
    assert receiver.told[-1] == events[4]["id"]
    receiver.fail = lambda what: False
    inbox.replay(parked)
    assert inbox.tell() == 1
    assert receiver.events[-1] == (events[3]["id"], True)


def test_a_failing_status_receiver_fails_the_whole_telling(receiver: Receiver) -> None:
    receiver.fail = lambda what: what == "created"
    take_in(factories.life()[0])
    inbox.tell()
    assert not Told.objects.exists()
    assert Event.objects.get().attempts == 1


def test_a_receivers_database_work_commits_with_the_mark(receiver: Receiver) -> None:
    def broken(sender: Any, event: Event, **kwargs: Any) -> None:
        Payment.objects.create(id=None)  # its IntegrityError breaks the transaction

    event_received.connect(broken)
    try:
        take_in(factories.life()[0])
        inbox.tell()
    finally:
        event_received.disconnect(broken)
    assert not Told.objects.exists()
    assert Event.objects.get().state == "applied"


def test_without_receivers_nothing_is_left_to_tell() -> None:
    take_in(*factories.life())
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    assert not Telling.objects.exists()


def test_too_old_to_tell(receiver: Receiver) -> None:
    take_in(event(factories.payment(), seconds=-38 * 86400))
    assert inbox.tell() == 0
    assert Event.objects.get().state == "done"
    assert Payment.objects.get().status == "created"


def test_one_account_only(receiver: Receiver) -> None:
    take_in(factories.life()[0])
    assert inbox.tell("second") == 0
    assert inbox.tell("default") == 1


def test_nothing_is_begun_after_the_deadline(receiver: Receiver) -> None:
    take_in(factories.life()[0])
    assert inbox.tell(deadline=0.0) == 0


def test_a_wait_of_another_object_does_not_hide_work(receiver: Receiver) -> None:
    take_in(*factories.life("pay_1"))
    account, kind, object_id = ("default", "payment", "pay_1")
    Telling.objects.create(
        account=account,
        object_kind=kind,
        object_id=object_id,
        next_attempt_at=timezone.now() + timedelta(hours=1),
    )
    take_in(*factories.life("pay_2"))
    assert inbox.tell() == 5


class TestHandlers:
    def test_on_event(self) -> None:
        calls: list[tuple[str, bool]] = []

        @on_event("payment.succeeded", "payment.charge*")
        def handle(event: Event, instance: Payment, is_stale: bool, **kwargs: Any) -> None:
            assert instance.pk == "pay_1"
            calls.append((event.type, is_stale))

        @on_event("payment.*", include_stale=True)
        def every(event: Event, is_stale: bool, **kwargs: Any) -> None:
            calls.append((f"every {event.type}", is_stale))

        try:
            events = factories.life()
            take_in(events[4])
            inbox.tell()
            take_in(events[3])
            inbox.tell()
        finally:
            _disconnect(event_received, Payment, ("on_event", handle, ("payment.succeeded", "payment.charge*")))
            _disconnect(event_received, Payment, ("on_event", every, ("payment.*",)))
        assert calls == [
            ("payment.chargeback", False),
            ("every payment.chargeback", False),
            ("every payment.succeeded", True),
        ]

    def test_on_status(self) -> None:
        calls: list[tuple[str, str]] = []

        @on_status(Payment, "succeeded")
        def handle(payment: Payment, previous_status: str, status: str, **kwargs: Any) -> None:
            calls.append((previous_status, status))

        try:
            for item in factories.life():
                take_in(item)
            inbox.tell()
        finally:
            _disconnect(status_changed, Payment, ("on_status", handle, ("succeeded",)))
        assert calls == [("processing", "succeeded")]

    def test_wrong_use_is_told_at_once(self) -> None:
        with pytest.raises(TypeError, match="event types"):
            on_event()
        with pytest.raises(TypeError, match="event types"):
            on_event(len)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a model first"):
            on_status("succeeded")  # type: ignore[arg-type]


def _disconnect(signal: Any, sender: Any, uid: Any) -> None:
    assert signal.disconnect(sender=sender, dispatch_uid=uid)
