"""Locks that another transaction holds for too long: the wait ends, and the whole transaction is repeated."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from django.db import OperationalError, connection, transaction

from payments_integration import inbox, projection, schemas
from payments_integration.db.transactions import RetryDeadline, locked, repeatable
from payments_integration.models import Event, Payment, StatusChange
from tests import factories
from tests.databases import LEVELS, SQLITE, at_once, wait_at_most
from tests.factories import body
from tests.factories.receivers.models import ReceiverCall

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken")]

#: MariaDB waits for a whole second at least.
WAIT = 1.0
RETRYING = "Retrying a transaction after OperationalError"


@contextmanager
def held(pk: str, released: threading.Event) -> Iterator[None]:
    """Merchant code has changed a row and takes its time."""
    has_it = threading.Event()

    def holder() -> None:
        with transaction.atomic():
            assert locked(Payment.objects.filter(pk=pk)).first() is not None
            Payment.objects.filter(pk=pk).update(failure_reason="held")
            has_it.set()
            released.wait(20)

    thread = threading.Thread(target=at_once, args=(holder,))
    thread.start()
    assert has_it.wait(10)
    try:
        yield
    finally:
        released.set()
        thread.join(20)


class _Releases(logging.Handler):
    def __init__(self, released: threading.Event) -> None:
        super().__init__(logging.INFO)
        self._released = released

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == RETRYING:
            self._released.set()


@pytest.fixture
def released(caplog: pytest.LogCaptureFixture) -> Iterator[threading.Event]:
    """Set as soon as a waiting transaction is repeated: however slow the machine, the wait did time out."""
    event = threading.Event()
    logger = logging.getLogger("payments_integration.db.transactions")
    handler = _Releases(event)
    logger.addHandler(handler)
    with caplog.at_level(logging.INFO, logger=logger.name):
        yield event
    logger.removeHandler(handler)


@pytest.fixture
def payment() -> Payment:
    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    return Payment.objects.get()


@pytest.mark.own_session
@pytest.mark.case(39)
@pytest.mark.parametrize("level", LEVELS)
def test_a_lock_timeout_rolls_back_the_whole_transaction(
    payment: Payment, level: str, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """MariaDB takes back only the statement that waited; the one before it would be committed twice."""
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        ReceiverCall.objects.create(what="before", object_id=str(len(tries)))
        Payment.objects.filter(pk=payment.pk).update(failure_reason="ours")

    def waiter() -> None:
        wait_at_most(WAIT)
        repeatable(work, using="default")

    with held(payment.pk, released):
        at_once(waiter, level=level)
    assert RETRYING in caplog.text, "it did time out"
    assert SQLITE or len(tries) > 1, "there the transaction itself waits, so its first statement did not run"
    assert [call.object_id for call in ReceiverCall.objects.all()] == [str(len(tries))]
    payment.refresh_from_db()
    assert payment.failure_reason == "ours"


@pytest.mark.own_session
@pytest.mark.case(39)
@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_waits_for_a_row_that_merchant_code_has_locked(
    payment: Payment, level: str, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    before = projection.snapshot("payment", "default", payment.pk)
    resource = schemas.parse_resource(factories.payment(status="processing"), schemas.Payment)

    def write() -> None:
        wait_at_most(WAIT)
        projection.write_answer("default", resource, answered_at=None, duration=0.0, before=before)

    with held(payment.pk, released):
        at_once(write, level=level)
    assert RETRYING in caplog.text, "it did time out"
    assert Payment.objects.get().status == "processing"
    changes = StatusChange.objects.order_by("pk").values_list("previous_status", "status")
    assert list(changes) == [("", "created"), ("created", "processing")]


@pytest.mark.own_session
def test_an_endless_lock_wait_is_an_error_and_writes_nothing(
    payment: Payment, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider waits for an answer: the transaction is given up, and not repeated."""

    def work() -> None:
        ReceiverCall.objects.create(what="before", object_id="")
        Payment.objects.filter(pk=payment.pk).update(failure_reason="ours")

    def waiter() -> None:
        wait_at_most(WAIT)
        with RetryDeadline(time.monotonic() + 0.5, using="default"), pytest.raises(OperationalError):
            repeatable(work, using="default")

    with held(payment.pk, released):
        at_once(waiter)
        assert not released.is_set()
    assert "Retrying a transaction" not in caplog.text
    assert not ReceiverCall.objects.exists()
    payment.refresh_from_db()
    assert payment.failure_reason == "held"


def begin_as(mode: str) -> None:
    """How this thread's transactions begin; only SQLite makes a difference."""
    if SQLITE:
        connection.transaction_mode = mode  # type: ignore[attr-defined]


@pytest.mark.case(38)
@pytest.mark.parametrize("mode", ["IMMEDIATE", "DEFERRED"])
@pytest.mark.parametrize("repeated", [True, False])
def test_of_two_transactions_that_read_and_write_one_row_no_write_is_lost(
    payment: Payment, mode: str, repeated: bool
) -> None:
    """SQLite lets a reader write only if no other write came between; with IMMEDIATE they queue at the start."""
    meet = threading.Barrier(2)
    looks: list[int] = []

    def count_up() -> None:
        row = locked(Payment.objects.filter(pk=payment.pk)).get()
        looks.append(1)
        if len(looks) <= 2:
            with suppress(threading.BrokenBarrierError):
                # Only SQLite's readers do not wait for each other.
                meet.wait(30 if SQLITE and mode == "DEFERRED" else 0.5)
        Payment.objects.filter(pk=payment.pk).update(refunded_amount=(row.refunded_amount or 0) + 1)

    def work() -> bool:
        begin_as(mode)
        try:
            if repeated:
                repeatable(count_up, using="default")
            else:
                with transaction.atomic():
                    count_up()
        except OperationalError as error:
            return "database is locked" not in str(error)
        return True

    results = at_once(work, work)
    loses = SQLITE and mode == "DEFERRED" and not repeated
    assert sorted(results) == [not loses, True], "the database refuses the transaction that is not repeated"
    payment.refresh_from_db()
    assert payment.refunded_amount == sum(results)


@pytest.mark.case(38)
@pytest.mark.case(40)
def test_sqlite_transactions_that_begin_as_readers_lose_no_event() -> None:
    """A warning of the system checks; the flows are right all the same."""
    events = [item for n in range(10) for item in factories.life(f"pay_{n}")]
    inbox.receive_many("default", map(body, events), source="webhook")

    def work() -> int:
        begin_as("DEFERRED")
        return inbox.process()

    assert sum(at_once(*[work] * 4)) + inbox.process() == 50
    assert Payment.objects.filter(status="chargeback").count() == 10
    assert StatusChange.objects.filter(status="chargeback").count() == 10
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
