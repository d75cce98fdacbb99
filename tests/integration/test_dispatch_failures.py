"""Database errors in merchant code: not taken for done, and counted for their own event only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from payments_integration import inbox
from payments_integration.inbox import claiming
from payments_integration.models import Event, ObjectDispatch
from payments_integration.signals import event_received
from tests import factories
from tests.databases import LEVELS, POSTGRES, SQLITE, at_once
from tests.factories.receivers.models import ReceiverCall

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.case(116),
    pytest.mark.promise(6),
]


@contextmanager
def connected(handler: Callable[..., None]) -> Iterator[None]:
    event_received.connect(handler)
    try:
        yield
    finally:
        event_received.disconnect(handler)


def take_in(*names: str) -> None:
    for name in names:
        for item in factories.life(name)[:2]:
            inbox.receive("default", factories.body(item))
    inbox.process()


def later() -> None:
    """The waits after failures are over."""
    for row in ObjectDispatch.objects.exclude(next_attempt_at=None):
        earlier = row.next_attempt_at - timedelta(hours=1)  # type: ignore[operator]
        ObjectDispatch.objects.filter(pk=row.pk).update(next_attempt_at=earlier)


def test_a_swallowed_error_is_a_failure_of_its_event_only() -> None:
    bad = factories.life("pay_2")[0]["id"]
    broken = [True]

    def handler(event: Event, **_: Any) -> None:
        call = ReceiverCall.objects.create(what=event.id, object_id=event.object_id)
        if event.id == bad and broken:
            with suppress(DatabaseError):
                ReceiverCall.objects.create(pk=call.pk, what="twice", object_id="")

    with connected(handler):
        take_in("pay_1", "pay_2", "pay_3")
        assert inbox.dispatch() == 4
        assert dict(Event.objects.filter(attempts__gt=0).values_list("pk", "state")) == {bad: "applied"}
        assert not ReceiverCall.objects.filter(object_id="pay_2").exists()
        broken.clear()
        later()
        assert inbox.dispatch() == 2
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    assert ReceiverCall.objects.count() == 6
    assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]


@pytest.mark.skipif(not POSTGRES, reason="elsewhere a refused statement leaves the transaction usable")
def test_a_swallowed_error_is_not_blamed_on_the_next_handler() -> None:
    """PostgreSQL refuses each statement after an error, so the next handler would fail with its first one."""
    called: list[str] = []

    def handler(**_: Any) -> None:
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column")

    def innocent(event: Event, **_: Any) -> None:
        called.append(event.id)
        ReceiverCall.objects.create(what=event.id, object_id=event.object_id)

    with connected(handler), connected(innocent):
        take_in("pay_1")
        inbox.dispatch()
    event = Event.objects.get(attempts=1)
    assert "a receiver has swallowed a database error" in event.error
    assert "innocent" not in event.error
    assert not called


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_handlers_of_two_workers_that_deadlock_cost_one_of_them_an_attempt(
    level: str, swallows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer: there the second worker waits, and neither fails."""
    # One object per page, so that each worker has one.
    monkeypatch.setattr(claiming, "FIRST_PAGE", 1)
    monkeypatch.setattr(claiming, "_PAGE_SECONDS", 0.0)
    rows = [ReceiverCall.objects.create(what="row", object_id="-").pk for _ in range(2)]
    both, met = threading.Barrier(2), set[str]()

    def write(event: Event) -> None:
        first, second = rows if event.object_id == "pay_1" else reversed(rows)
        ReceiverCall.objects.filter(pk=first).update(what=event.id)
        if event.object_id not in met and not SQLITE:
            met.add(event.object_id)
            both.wait(30)
        ReceiverCall.objects.filter(pk=second).update(what=event.id)

    def handler(event: Event, **_: Any) -> None:
        ReceiverCall.objects.create(what=event.id, object_id=event.object_id)
        try:
            write(event)
        except DatabaseError:
            if not swallows:
                raise

    with connected(handler):
        take_in("pay_1", "pay_2")
        at_once(inbox.dispatch, inbox.dispatch, level=level)
        failed = list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts", "state"))
        assert [found[1:] for found in failed] == ([] if SQLITE else [(1, "applied")])
        for event_id, _, _ in failed:
            assert not ReceiverCall.objects.filter(what=event_id).exclude(object_id="-").exists()
        later()
        inbox.dispatch()
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    calls = ReceiverCall.objects.exclude(object_id="-").order_by("pk")
    for name in ("pay_1", "pay_2"):
        mine = [item["id"] for item in factories.life(name)[:2]]
        assert list(calls.filter(object_id=name).values_list("what", flat=True)) == mine
