"""Deliveries, claimants and tellers at once, each in a thread with a connection of its own."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import Client
from django.utils import timezone

from payments_integration import inbox, projection, schemas
from payments_integration.db import statements
from payments_integration.db.claims import Claims
from payments_integration.inbox import Receipt, claiming, processing, receiving
from payments_integration.models import Event, ObjectDispatch, Payment, StatusChange
from payments_integration.projection import answers, events as projection_events
from payments_integration.signals import event_received
from payments_integration.testing import signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.databases import (
    AS_SET,
    LEVELS,
    MARIADB,
    REPEATABLE_READ,
    SQLITE,
    Once,
    at_once,
    execute,
    wait_for_blocked,
    wait_for_passer,
)
from tests.factories import body
from tests.factories.receivers.models import ReceiverCall
from tests.servers import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.promise(2),
]


@pytest.mark.case(33)
@pytest.mark.promise(1)
def test_twenty_identical_deliveries_at_once_are_stored_once(receiver: Receiver) -> None:
    delivery = signed_delivery(factories.life()[0], "whsec_default")
    statuses = at_once(*[lambda: Client().post("/payments/webhook/", **delivery).status_code] * 20)
    assert Counter(statuses) == {200: 20}
    assert Event.objects.count() == 1
    inbox.process()
    inbox.dispatch()
    assert len(receiver.events) == 1


@pytest.mark.case(40)
@pytest.mark.case(41)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("batch_size", [500, 3])
def test_eight_workers_apply_and_dispatch_each_event_once(
    receiver: Receiver, level: str, batch_size: int, settings: Any
) -> None:
    """An object's events are in several small batches, and any of them may be the first that is done."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "BATCH_SIZE": batch_size}
    lives = [factories.life(f"pay_{n}") for n in range(20)]
    events = [
        {**item, "created_at": factories.iso(factories.T0 + timedelta(seconds=5 * n + step))}
        for n, life in enumerate(lives)
        for step, item in enumerate(life)
    ]
    inbox.receive_many("default", map(body, events), source="webhook")

    def work() -> int:
        applied = 0
        while count := processing.process_batch()[0]:
            applied += count
            inbox.dispatch()
        return applied

    assert sum(at_once(*[work] * 8, level=level)) + inbox.process() == 100
    ObjectDispatch.objects.update(next_attempt_at=None)  # one that waited too long for SQLite's lock is postponed
    inbox.dispatch()
    assert not any(is_stale for _, is_stale in receiver.events)
    assert sorted(receiver.dispatched) == sorted(item["id"] for item in events)
    for n in range(20):
        mine = [item["id"] for item in factories.life(f"pay_{n}")]
        assert [item for item in receiver.dispatched if item in mine] == mine
    assert Payment.objects.filter(status="chargeback").count() == 20


@pytest.mark.case(40)
def test_new_rows_are_inserted_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers that have the same new objects in their batches would otherwise wait for each other: a deadlock."""
    orders: list[list[str]] = []
    insert_many = statements.insert_many

    def spied(rows: Any, **options: Any) -> None:
        orders.append([row.pk for row in rows if isinstance(row, Payment)])
        insert_many(rows, **options)

    monkeypatch.setattr(statements, "insert_many", spied)
    first = [factories.life(f"pay_{name}")[0] for name in ("c", "a", "b")]
    events = [
        {**event, "created_at": factories.iso(factories.T0 + timedelta(seconds=n))} for n, event in enumerate(first)
    ]
    inbox.receive_many("default", map(body, events), source="webhook")
    inbox.process()
    assert [order for order in orders if order] == [["pay_a", "pay_b", "pay_c"]]


@pytest.mark.case(41)
@pytest.mark.parametrize("level", LEVELS)
def test_eight_workers_apply_one_event_once(receiver: Receiver, level: str) -> None:
    inbox.receive("default", body(factories.life()[0]))
    assert sum(at_once(*[inbox.process] * 8, level=level)) + inbox.process() == 1
    # On MariaDB one that makes the lock may look to the others as if it held it; they leave it to the next.
    assert sum(at_once(*[inbox.dispatch] * 8, level=level)) + inbox.dispatch() == 1
    assert len(receiver.events) == 1
    assert StatusChange.objects.count() == 1


@pytest.mark.case(40)
@pytest.mark.case(41)
@pytest.mark.parametrize("level", LEVELS)
def test_a_locked_event_is_skipped_by_other_workers(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows cannot be skipped (SQLite ignores that silently), the second one waits, and finds nothing left."""
    inbox.receive("default", body(factories.life()[0]))
    claimed, passed = threading.Event(), threading.Event()
    applied: list[int] = []
    real = processing.apply_events

    def slowly(events: Any) -> Any:
        events = list(events)
        applied.append(len(events))
        claimed.set()
        wait_for_passer(passed)
        return real(events)

    def second() -> int:
        assert claimed.wait(30)
        count = inbox.process()
        passed.set()
        return count

    monkeypatch.setattr(processing, "apply_events", slowly)
    assert at_once(inbox.process, second, level=level) == [1, 0]
    assert applied == [1]


@pytest.mark.case(42)
@pytest.mark.promise(6)
@pytest.mark.parametrize("level", LEVELS)
def test_a_receiver_that_outlasts_its_claim_is_not_run_twice(
    receiver: Receiver, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "CLAIM", Claims(timedelta(seconds=1)))
    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    called, ended, passed = threading.Event(), threading.Event(), threading.Event()

    def slow(**_: Any) -> None:
        called.set()
        assert ended.wait(30)
        wait_for_passer(passed)

    def has_ended() -> bool:
        return ObjectDispatch.objects.filter(claimed_until__lte=timezone.now()).exists()

    def second() -> int:
        assert called.wait(30)
        wait_until(has_ended, 30, "the claim to end")
        ended.set()
        count = inbox.dispatch()
        passed.set()
        return count

    event_received.connect(slow)
    try:
        assert at_once(inbox.dispatch, second, level=level) == [1, 0]
    finally:
        event_received.disconnect(slow)
    assert len(receiver.events) == 1
    assert (Event.objects.get().state, Event.objects.get().attempts) == ("done", 0)


@pytest.mark.case(35)
@pytest.mark.case(36)
@pytest.mark.parametrize("level", LEVELS)
def test_events_of_new_objects_from_webhook_and_reconciliation_at_once_are_applied_once(level: str) -> None:
    events = [body(item) for n in range(10) for item in factories.life(f"pay_{n}")]

    def webhook() -> None:
        for item in events:
            inbox.receive("default", item)
            inbox.process()

    def reconciliation() -> None:
        inbox.receive_many("default", reversed(events), source="reconciliation")
        inbox.process()

    at_once(webhook, reconciliation, reconciliation, level=level)
    inbox.process()
    assert Event.objects.filter(state="done").count() == 50
    assert Payment.objects.filter(status="chargeback").count() == 10
    latest = {change.object_id: change.status for change in StatusChange.objects.order_by("pk")}
    assert set(latest.values()) == {"chargeback"}


@pytest.mark.case(34)
@pytest.mark.case(35)
@pytest.mark.promise(1)
@pytest.mark.parametrize("others", [1, 2, 6])
@pytest.mark.parametrize("level", LEVELS)
def test_duplicates_are_stored_if_the_first_insert_is_rolled_back(
    others: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that waited for it all get a shared lock in MariaDB, want the exclusive one, and deadlock."""
    item = body(factories.life()[0])
    inserted = threading.Event()

    def winner() -> None:
        with suppress(InterruptedError), transaction.atomic():
            receiving.read("default", item, source="webhook").save(force_insert=True)
            inserted.set()
            wait_for_blocked(others)
            raise InterruptedError

    def other() -> Receipt:
        inserted.wait(10)
        return inbox.receive("default", item)

    with caplog.at_level(logging.INFO, logger="payments_integration.db.transactions"):
        results = at_once(winner, *[other] * others, level=level)
    assert Counter(results[1:]) == Counter({Receipt.NEW: 1, Receipt.KNOWN: others - 1})
    assert Event.objects.count() == 1
    if MARIADB and others > 1:
        assert "Retrying a transaction after OperationalError" in caplog.text, "a real deadlock"


@pytest.mark.case(36)
@pytest.mark.parametrize("level", LEVELS)
def test_two_transactions_that_insert_the_same_absent_row_both_succeed(
    level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under REPEATABLE READ MariaDB has each lock the gap that the other one wants to insert into."""
    meet = threading.Barrier(2)
    real, looks = answers._locked, []

    def look(*args: Any) -> Any:
        found = real(*args)
        looks.append(args)
        if len(looks) <= 2:
            with suppress(threading.BrokenBarrierError):
                meet.wait(0.5 if SQLITE else 30)  # SQLite has the second one wait for the first
        return found

    monkeypatch.setattr(answers, "_locked", look)

    def write(name: str) -> Any:
        resource = schemas.parse_resource(factories.payment(id=name), schemas.Payment)
        return projection.write_answer(
            "default", resource, answered_at=timezone.now(), duration=0.0, before=projection.ABSENT
        )

    # In one gap: rows that were deleted just now still bound others.
    base = f"pay_{uuid.uuid4()}"
    names = [f"{base}_a", f"{base}_b"]
    with caplog.at_level(logging.INFO, logger="payments_integration.db.transactions"):
        rows = at_once(*(partial(write, name) for name in names), level=level)
    assert [row.pk for row in rows] == names
    assert Payment.objects.count() == 2
    assert StatusChange.objects.count() == 2
    if MARIADB and level != AS_SET:
        assert "Retrying a transaction after OperationalError" in caplog.text, "a real deadlock"


@pytest.mark.case(45)
@pytest.mark.promise(3)
@pytest.mark.parametrize("level", LEVELS)
def test_an_event_applied_while_an_answer_is_written_is_not_lost(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's writer waits for the row that the batch holds, and must then see that it has changed."""
    for item in factories.life()[:2]:
        inbox.receive("default", body(item))
        inbox.process()
    before = projection.snapshot("payment", "default", "pay_1")
    inbox.receive("default", body(factories.life()[3]))
    held = threading.Event()

    def stay() -> None:
        held.set()
        wait_for_blocked()

    monkeypatch.setattr(projection_events, "_lock", Once(projection_events._lock, stay))
    stale = schemas.parse_resource(factories.payment(status="requires_action"), schemas.Payment)

    def write() -> Any:
        held.wait(10)
        return projection.write_answer(
            "default", stale, answered_at=factories.T0 + timedelta(seconds=15), duration=0.0, before=before
        )

    at_once(inbox.process, write, level=level)
    assert Payment.objects.get().status == "succeeded"


@pytest.mark.case(36)
@pytest.mark.promise(6)
@pytest.mark.parametrize("level", [REPEATABLE_READ] if MARIADB else [AS_SET])
def test_a_receiver_that_swallows_the_loss_of_its_transaction_is_not_marked_done(
    receiver: Receiver, level: str
) -> None:
    """MariaDB takes the whole transaction back at a deadlock: what a receiver wrote before is gone, and the event
    must not count as dispatched. Elsewhere the error that it swallows breaks the transaction, or costs one statement.
    """
    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    rows = [ReceiverCall.objects.create(what=name, object_id="") for name in ("a", "b")]
    table, mine, theirs = ReceiverCall._meta.db_table, threading.Event(), threading.Event()
    calls: list[int] = []

    def careless(**_: Any) -> None:
        calls.append(1)
        ReceiverCall.objects.create(what="before", object_id="")
        if len(calls) > 1:
            return
        ReceiverCall.objects.filter(pk=rows[0].pk).update(object_id="receiver")
        mine.set()
        theirs.wait(30 if MARIADB else 0.5)
        with suppress(Exception):
            if MARIADB:
                execute(f"UPDATE {table} SET object_id = 'receiver' WHERE id = {rows[1].pk}")
            else:
                execute(f"SELECT no_such_column FROM {table}")

    def other() -> None:
        mine.wait(10)
        with transaction.atomic():
            # More changed rows: MariaDB has the one that wrote less give way.
            for number in range(50 if MARIADB else 0):
                ReceiverCall.objects.create(what=f"weight {number}", object_id="")
            if MARIADB:
                ReceiverCall.objects.filter(pk=rows[1].pk).update(object_id="other")
                theirs.set()
                ReceiverCall.objects.filter(pk=rows[0].pk).update(object_id="other")

    event_received.connect(careless)
    try:
        at_once(inbox.dispatch, other, level=level)
        event = Event.objects.get()
        dispatched = event.state == "done"
        assert ReceiverCall.objects.filter(what="before").count() == (1 if dispatched else 0), (
            "committed with the mark, or not at all"
        )
        if MARIADB:
            assert not dispatched
            assert "swallowed" in event.error
    finally:
        event_received.disconnect(careless)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    connections.close_all()
