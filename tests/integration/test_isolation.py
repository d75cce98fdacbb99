"""The isolation level changes nothing: lost races under REPEATABLE READ, where a transaction sees an old snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from payments_integration import inbox, projection, schemas, services
from payments_integration.db.transactions import deleted, is_transient, repeatable, updated
from payments_integration.inbox import Receipt, receiving
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    Operation,
    OperationState,
    Payment,
    Payout,
    StatusChange,
)
from payments_integration.outbox import ledger, outcomes
from payments_integration.projection import answers, events as projection_events
from payments_integration.reconciliation import due
from payments_integration.reconciliation.runs import AlreadyRunning, claimed
from tests import factories
from tests.databases import LEVELS, MARIADB, Once, at_once, execute, set_level, wait_for_blocked
from tests.factories import body, rows
from tests.factories.receivers.models import ReceiverCall
from tests.fake_provider import PAYOUT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.parametrize("level", LEVELS),
]


def elsewhere(work: Callable[[], object]) -> None:
    """Run it to its end on another connection."""
    at_once(work)


@pytest.mark.case(37)
@pytest.mark.promise(2)
def test_an_event_that_a_webhook_stored_after_the_read_is_a_duplicate(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is the transaction's snapshot: after the duplicate error it would still show nothing.

    First the look before the transaction is overtaken, then the one in the transaction that is repeated.
    """
    events = [body(item) for item in factories.life()]
    looks: list[int] = []
    sort = receiving._sort

    def sort_and_be_overtaken(rows: Any) -> Any:
        found = sort(rows)
        looks.append(1)
        if len(looks) <= 2:
            elsewhere(lambda: inbox.receive("default", events[1 + len(looks)]))
        return found

    monkeypatch.setattr(receiving, "_sort", sort_and_be_overtaken)
    receive = partial(inbox.receive_many, "default", events, source="reconciliation")
    # SQLite has one writer at a time: the other connection would wait for this one.
    (counts,) = at_once(receive, level=level) if len(LEVELS) > 1 else [receive_after(events, monkeypatch)]
    assert (counts[Receipt.NEW], counts[Receipt.KNOWN]) == (3, 2)
    assert Event.objects.count() == 5


def receive_after(events: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.undo()
    inbox.receive_many("default", events[2:4], source="webhook")
    return inbox.receive_many("default", events, source="reconciliation")


@pytest.mark.case(33)
@pytest.mark.case(37)
@pytest.mark.promise(2)
def test_one_event_from_webhook_and_reconciliation_at_once_is_stored_once(level: str) -> None:
    item = body(factories.life()[0])
    webhooks = [lambda: inbox.receive("default", item)] * 4
    pages = [
        partial(inbox.receive_many, "default", [item], source="reconciliation", are_new=are_new)
        for are_new in (False, True) * 2
    ]
    results = at_once(*webhooks, *pages, level=level)
    assert (
        sum(result is Receipt.NEW for result in results[:4]) + sum(counts[Receipt.NEW] for counts in results[4:]) == 1
    )
    assert Event.objects.count() == 1


@pytest.mark.case(36)
@pytest.mark.case(37)
@pytest.mark.promise(3)
def test_an_object_that_an_answer_inserted_after_the_batchs_read_is_updated(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look, both see nothing, both insert: the loser must see what the winner wrote."""
    for item in factories.life()[:3]:
        inbox.receive("default", body(item))
    meet = threading.Barrier(2)

    def stay() -> None:
        with suppress(threading.BrokenBarrierError):
            meet.wait(0.5)  # SQLite has the second one wait for the first

    monkeypatch.setattr(projection_events, "_lock", Once(projection_events._lock, stay))
    monkeypatch.setattr(answers, "_locked", Once(answers._locked, stay))
    resource = schemas.parse_resource(factories.payment(status="requires_action"), schemas.Payment)
    write = partial(
        projection.write_answer,
        "default",
        resource,
        answered_at=timezone.now(),
        duration=0.1,
        before=projection.ABSENT,
    )
    at_once(inbox.process, write, level=level)
    inbox.process()
    # The answer is the newer one; where the events were first, it was read before they came, and is read again.
    newest = Payment.objects.get().status
    assert newest == "requires_action" or (newest == "processing" and DueRefresh.objects.exists())
    changes = list(StatusChange.objects.order_by("pk").values_list("previous_status", "status"))
    assert changes == [("", newest)]
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}


@pytest.mark.case(37)
@pytest.mark.promise(5)
def test_a_key_that_another_call_took_after_the_read_is_found(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a caller's transaction nothing can be repeated: the winner is found by a read that sees past the snapshot, or
    the transaction fails.
    """
    first = services.defer(services.create_payout, **PAYOUT, idempotency_key="k0")
    Operation.objects.update(next_attempt_at=timezone.now())
    looked = threading.Event()
    won = threading.Event()

    def winner() -> Operation:
        looked.wait(10)
        try:
            with transaction.atomic():
                return services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
        finally:
            won.set()

    def loser() -> Any:
        def find_then_wait(intent: Any) -> Any:
            found = find(intent)
            if found is None and not looked.is_set():
                looked.set()
                won.wait(0.5 if len(LEVELS) == 1 else 10)
            return found

        find = ledger.find
        with transaction.atomic():
            monkeypatch.setattr(ledger, "find", find_then_wait)
            return services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")

    monkeypatch.setattr("payments_integration.outbox.submission._send_deferred", lambda pk: None)
    results = at_once(winner, partial(refused, loser), level=level)
    assert Operation.objects.filter(idempotency_key="k1").count() == 1
    assert isinstance(results[0], Operation)
    # PostgreSQL shows a REPEATABLE READ transaction no newer row, MariaDB none to an isolated snapshot. So it fails as
    # a whole: not executed.
    assert results[1] in (results[0], None)
    assert first.pk not in {results[0].pk}


def refused(work: Callable[[], Any]) -> Any:
    """The result, or None where the database refused the whole transaction."""
    try:
        return work()
    except DatabaseError as error:
        if isinstance(error, IntegrityError) or is_transient(error):
            return None
        raise


@pytest.mark.case(62)
@pytest.mark.promise(5)
def test_two_operations_are_not_linked_to_one_object(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = schemas.parse_resource(factories.payout(), schemas.Payout)
    projection.write_answer("default", resource, answered_at=factories.T0, duration=0.0, before=projection.ABSENT)
    operations = [
        rows.operation(
            operation="create_payout",
            amount=5000,
            currency="CLP",
            state=OperationState.NEEDS_PERSON,
            may_have_run=True,
        )
        for _ in range(2)
    ]
    monkeypatch.setattr(outcomes, "_is_linked", Once(outcomes._is_linked, wait_for_blocked))

    def link(operation: Operation) -> bool:
        claim = outcomes.claim_to_resolve(operation, [OperationState.NEEDS_PERSON])
        assert claim is not None
        return outcomes.link(claim, "pout_1", "found")

    results = at_once(*(partial(link, operation) for operation in operations), level=level)
    assert sorted(results) == [False, True]
    assert Operation.objects.filter(result_id="pout_1").count() == 1
    assert Payout.objects.count() == 1


@pytest.mark.case(41)
@pytest.mark.case(75)
def test_one_of_eight_gets_the_claim(level: str) -> None:
    AccountState.objects.create(account="default")
    refused = threading.Semaphore(0)

    def work() -> bool:
        try:
            with claimed("default"):
                # It is kept until all the others have asked for it.
                assert all(refused.acquire(timeout=10) for _ in range(7))
                return True
        except AlreadyRunning:
            refused.release()
            return False

    assert sorted(at_once(*[work] * 8, level=level)) == [False] * 7 + [True]
    assert AccountState.objects.get().claim_token == ""


@pytest.mark.case(41)
def test_one_of_eight_claims_the_operation(level: str) -> None:
    operation = rows.operation(operation="create_payout", state=OperationState.DUE)

    def work() -> bool:
        mine = Operation.objects.get(pk=operation.pk)
        return outcomes.claim_to_send(mine, [OperationState.DUE]) is not None

    assert sorted(at_once(*[work] * 8, level=level)) == [False] * 7 + [True]
    assert Operation.objects.get().attempts == 1


@pytest.mark.case(41)
def test_eight_workers_refresh_one_object(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_1", reason="x")
    reads: list[str] = []

    def read(kind: str, account: str, object_id: str, **_: Any) -> None:
        reads.append(object_id)
        time.sleep(0.1)  # others have time to read it too, which must not happen

    monkeypatch.setattr(due.sync, "read", read)
    assert sum(at_once(*[lambda: due.refresh_due("default")] * 8, level=level)) == 1
    assert reads == ["pay_1"]
    assert not DueRefresh.objects.exists()


@pytest.mark.case(45)
def test_a_refresh_requested_during_a_refresh_stays_due(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_1", reason="x")

    def read(*_: Any, **__: Any) -> None:
        elsewhere(lambda: projection.request_refresh("default", "payment", "pay_1", "refund_changed"))

    monkeypatch.setattr(due.sync, "read", read)
    assert at_once(lambda: due.refresh_due("default"), level=level) == [0]
    assert DueRefresh.objects.get().marks == 2


@pytest.mark.case(37)
@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_single_statement_is_retried_if_its_row_changes(level: str, change: str) -> None:
    """The statement has begun, and waits for a row: what is done to it then must count."""
    row = ReceiverCall.objects.create(what="a", object_id="1")
    taken = threading.Event()

    def first() -> None:
        with transaction.atomic():
            ReceiverCall.objects.filter(pk=row.pk).update(what="b")
            taken.set()
            wait_for_blocked()

    def second() -> int:
        taken.wait(10)
        rows = ReceiverCall.objects.filter(pk=row.pk, what="a")
        return updated(rows, what="c") if change == "update" else deleted(rows)

    assert at_once(first, second, level=level)[1] == 0
    assert ReceiverCall.objects.get().what == "b"


@pytest.mark.skipif(not MARIADB, reason="the others read it")
def test_a_table_that_is_optimized_after_the_first_read_is_read(level: str) -> None:
    """MariaDB says "Table definition has changed, please retry transaction"."""
    reads: list[int] = []

    def read() -> int:
        reads.append(Event.objects.count())
        if len(reads) == 1:
            elsewhere(lambda: execute("OPTIMIZE TABLE payments_integration_payment"))
        return Payment.objects.count()

    set_level(level)
    assert repeatable(read, using="default") == 0
