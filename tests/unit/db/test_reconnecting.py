"""A connection in an unknown state is replaced, and nothing waits long on the new one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from django.db import OperationalError, connection, transaction

from payments_integration.db import reconnecting
from payments_integration.db.reconnecting import discard, fresh_connection
from payments_integration.models import Operation

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.case(123)]


def insert() -> Operation:
    return Operation.objects.create(operation="create_payout", account="default", idempotency_key="k1")


def test_what_was_open_is_rolled_back_and_the_connection_can_be_used() -> None:
    transaction.atomic().__enter__()  # an exception came before its end
    insert()
    discard("default")
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    assert not Operation.objects.exists()
    with transaction.atomic(durable=True):
        insert()
    assert Operation.objects.count() == 1


def test_a_connection_that_was_closed_in_a_transaction_can_be_used() -> None:
    transaction.atomic().__enter__()
    connection.close()
    discard("default")
    assert insert()


def test_what_a_look_writes_is_rolled_back_and_its_limits_end_with_it() -> None:
    if not connection.features.has_select_for_update:
        with fresh_connection("default"):
            assert not Operation.objects.exists()
        return
    with fresh_connection("default"):
        insert()
    assert not Operation.objects.exists()
    insert()
    assert Operation.objects.count() == 1


@contextmanager
def locked(operation: Operation) -> Iterator[None]:
    """Another connection has written the row, and does not commit."""
    is_locked, may_end = Event(), Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Operation.objects.filter(pk=operation.pk).update(note="held")
                is_locked.set()
                may_end.wait(30)
        finally:
            connection.close()

    thread = Thread(target=hold)
    thread.start()
    assert is_locked.wait(10)
    try:
        yield
    finally:
        may_end.set()
        thread.join()


def test_a_look_waits_only_shortly_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "LOOK_SECONDS", 1)
    operation = insert()
    with locked(operation):
        began = time.monotonic()
        with pytest.raises(OperationalError), fresh_connection("default"):
            Operation.objects.filter(pk=operation.pk).update(note="looked at")
        assert time.monotonic() - began < 15
    operation.refresh_from_db()
    assert operation.note == "held"
