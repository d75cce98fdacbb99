"""The outbox of docs/reports.md: which entry is sent when, whatever the other system is."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from feeds import kafka, payment_handlers, publishing
from feeds.models import Entry, Lease
from feeds.publishing import publish

from payments_integration import inbox, reconciliation
from payments_integration.models import Event, ObjectDispatch, StatusChange
from payments_integration.signals import pass_ended, status_changed
from tests import factories
from tests.databases import at_once
from tests.systems.feeds.conftest import by_object
from tests.systems.feeds.page import block_after

_changes = itertools.count(1)

Changes = Callable[..., dict[str, list[str]]]


class Sink:
    """Another system: takes what is sent, except for the objects that it refuses."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        self.refused: set[str] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    def send(self, entries: list[Any]) -> list[int]:
        taken = [entry for entry in entries if entry.object_id not in self.refused]
        self.calls.append([json.loads(entry.body) for entry in taken])
        self.meanwhile()
        return [entry.pk for entry in taken]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for call in self.calls for message in call]


@pytest.fixture
def sink() -> Sink:
    return Sink()


def entry(object_id: str, status: str, **fields: Any) -> Any:
    message = {"id": object_id, "status": status}
    return Entry.objects.create(object_id=object_id, change_id=next(_changes), message=message, **fields)


def test_each_change_of_each_object_is_sent_in_order(changes: Changes, sink: Sink) -> None:
    expected = changes(*(f"pay_{number}" for number in range(30)))
    assert publish(sink.send) == 150
    assert by_object(sink.messages) == expected
    assert len(sink.messages) == 150
    assert not Entry.objects.exists()


def test_a_message_has_these_fields_and_no_others(changes: Changes, sink: Sink) -> None:
    payer = {"name": "Ana Pérez", "email": "ana@example.com"}
    data = factories.payment(id="pay_1", payer=payer, metadata={"note": "Ana"}, merchant_reference="order-7")
    inbox.receive("default", factories.body(factories.event(data)))
    inbox.process()
    inbox.dispatch()
    publish(sink.send)
    change = StatusChange.objects.get()
    [message] = sink.messages
    assert message.pop("sequence") > 0
    assert message == {
        "change": change.pk, "account": "default", "object": "payment", "id": "pay_1", "previous_status": "",
        "status": "created", "at": change.at.isoformat(), "is_stale": False, "amount": 10000, "currency": "CLP",
    }  # fmt: skip


@pytest.mark.promise(6)
def test_an_entry_commits_with_the_record_that_the_handler_ran(changes: Changes) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("another handler fails")

    status_changed.connect(fail)
    try:
        changes("pay_1", steps=slice(1))
    finally:
        status_changed.disconnect(fail)
    assert not Entry.objects.exists()
    assert Event.objects.get().state == "applied"
    ObjectDispatch.objects.update(next_attempt_at=None)
    inbox.dispatch()
    assert [found.message["status"] for found in Entry.objects.all()] == ["created"]


def test_at_most_one_entry_of_an_object_is_on_its_way(changes: Changes, sink: Sink) -> None:
    changes("pay_1", "pay_2", "pay_3")
    publish(sink.send)
    for call in sink.calls:
        ids = [message["id"] for message in call]
        assert len(ids) == len(set(ids)) == 3


@pytest.mark.django_db(transaction=True)
def test_an_entry_that_commits_late_is_sent_before_the_later_ones_of_its_object(sink: Sink) -> None:
    """Keys are given out in another order than transactions commit."""
    entry("pay_b", "created", pk=10)

    def commit_late() -> None:
        sink.meanwhile = lambda: None
        entry("pay_a", "created", pk=5)
        entry("pay_a", "succeeded", pk=11)

    sink.meanwhile = commit_late
    assert publish(sink.send) == 3
    assert by_object(sink.messages) == {"pay_a": ["created", "succeeded"], "pay_b": ["created"]}


@pytest.mark.django_db(transaction=True)
def test_a_refused_message_holds_back_its_own_object_only(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    for status in ("created", "succeeded"):
        entry("pay_a", status)
        entry("pay_b", status)
    sink.refused = {"pay_a"}
    assert publish(sink.send) == 2
    assert by_object(sink.messages) == {"pay_b": ["created", "succeeded"]}
    assert "held back for 1 objects, among them ['pay_a']" in caplog.text
    sink.refused = set()
    assert publish(sink.send) == 2
    assert by_object(sink.messages)["pay_a"] == ["created", "succeeded"]


@pytest.mark.django_db(transaction=True)
def test_a_pass_ends_when_nothing_is_acknowledged(sink: Sink) -> None:
    entry("pay_a", "created")
    sink.refused = {"pay_a"}
    assert publish(sink.send) == 0
    assert len(sink.calls) == 1
    assert Entry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_error_of_send_keeps_the_entries_and_frees_the_lease(sink: Sink) -> None:
    entry("pay_a", "created")

    def fail(entries: list[Any]) -> list[int]:
        raise RuntimeError("unexpected")

    with pytest.raises(RuntimeError):
        publish(fail)
    assert publish(sink.send) == 1


def test_two_publishers_at_once_send_each_entry_once(changes: Changes, sink: Sink) -> None:
    expected = changes(*(f"pay_{number}" for number in range(12)))
    counts = at_once(*[lambda: publish(sink.send)] * 3)
    assert sum(counts) == 60
    assert len(sink.messages) == 60
    assert by_object(sink.messages) == expected


def test_a_publisher_that_was_stopped_for_longer_than_its_lease_repeats_and_reorders_nothing(
    changes: Changes, sink: Sink
) -> None:
    expected = changes("pay_1", "pay_2")
    other = Sink()

    def take_over() -> None:
        """While the first one stands still, another one takes the lease and sends everything."""
        sink.meanwhile = lambda: None
        Lease.objects.update(until=timezone.now() - timedelta(seconds=1))
        assert publish(other.send) == 10

    sink.meanwhile = take_over
    publish(sink.send)
    assert len(sink.calls) == 1
    # The other system got the late messages last.
    assert by_object(other.messages + sink.messages) == expected
    assert by_object(sink.messages + other.messages) == expected


@pytest.mark.django_db(transaction=True)
def test_while_another_process_publishes_nothing_is_sent(sink: Sink) -> None:
    entry("pay_a", "created")
    Lease.objects.create(name="feed", holder="other", until=timezone.now() + publishing.LEASE)
    assert publish(sink.send) == 0
    assert sink.calls == []
    Lease.objects.update(until=timezone.now())
    assert publish(sink.send) == 1


def test_a_change_that_is_replayed_is_sent_again_and_marked_as_stale(changes: Changes, sink: Sink) -> None:
    changes("pay_1", steps=slice(2))
    first = Event.objects.earliest("created_at")
    for _ in range(2):  # it still waits, and then it was sent
        inbox.replay(first)
        inbox.dispatch()
        publish(sink.send)
    assert [(message["status"], message["is_stale"]) for message in sink.messages] == [
        ("created", False),
        ("requires_action", False),
        ("created", True),
    ]
    assert sink.messages[0]["change"] == sink.messages[2]["change"]


def test_a_pass_from_cron_publishes(changes: Changes, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    changes("pay_1", steps=slice(1))
    monkeypatch.setattr(kafka, "send", sink.send)
    names = dict(vars(payment_handlers))
    exec(block_after("Without a worker, `payments_process`"), names)
    try:
        reconciliation.process_due()
    finally:
        pass_ended.disconnect(names["publish_after_a_pass"])
    assert by_object(sink.messages) == {"pay_1": ["created"]}
