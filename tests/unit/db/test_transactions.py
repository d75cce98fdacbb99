"""Transactions that are repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from django.test.utils import CaptureQueriesContext

from payments_integration.db import transactions
from payments_integration.db.refusals import condemns, described, trouble
from payments_integration.db.transactions import (
    ATTEMPTS,
    RetryDeadline,
    drop_broken_connections,
    insert_and_commit,
    is_transient,
    repeatable,
)
from payments_integration.inbox import receiving
from payments_integration.models import Event
from tests import factories
from tests.databases import DRIVER, SQLITE
from tests.factories.receivers.models import ReceiverCall


class Cause(Exception):
    """A driver's error. ``attributes`` are what only some drivers give it."""

    def __init__(self, *args: object, **attributes: str) -> None:
        super().__init__(*args)
        vars(self).update(attributes)


def error(*args: object, text: str = "", kind: type[DatabaseError] = OperationalError, **attributes: str) -> Any:
    result = kind(text)
    result.__cause__ = Cause(*args, **attributes)
    return result


@pytest.mark.case(38)
@pytest.mark.parametrize(
    ("raised", "transient"),
    [
        (error(1213, "deadlock"), True),
        (error(1205, "lock wait timeout"), True),
        (error(1045, "access denied"), False),
        (error(sqlstate="40P01"), True),
        (error(sqlstate="40001"), True),
        (error(sqlstate="53100"), False),
        (error(pgcode="40P01"), True),
        (error(pgcode="53100"), False),
        (error(1205, "lock wait timeout", sqlstate="HY000"), True),
        (error(text="database is locked"), True),
        (error(text="disk I/O error"), False),
        (OperationalError("no cause"), False),
    ],
)
def test_which_errors_are_transient(raised: OperationalError, transient: bool) -> None:
    assert is_transient(raised) is transient


@pytest.mark.case(148)
@pytest.mark.parametrize(
    ("raised", "does", "shown"),
    [
        (error("too long", kind=DataError, pgcode="22001"), True, "DataError 22001"),
        (error("no such column", kind=ProgrammingError, pgcode="42703"), False, "ProgrammingError 42703"),
        (error(1366, "an emoji", kind=OperationalError, sqlstate="HY000"), True, "OperationalError 1366"),
        (error(1114, "the disk is full", kind=OperationalError, sqlstate="HY000"), False, "OperationalError 1114"),
    ],
)
def test_an_error_is_judged_by_its_code_with_any_driver(raised: DatabaseError, does: bool, shown: str) -> None:
    """psycopg2 has another name for PostgreSQL's, and PyMySQL adds an SQLSTATE to MariaDB's."""
    assert (condemns(raised), described(raised), trouble(raised)) == (does, shown, "" if does else shown)


@pytest.mark.django_db
def test_the_driver_is_the_one_that_the_run_is_for() -> None:
    """Otherwise the session of psycopg2 in noxfile.py would show something about psycopg 3."""
    assert os.environ.get("TEST_DRIVER", DRIVER) == DRIVER


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(35)
@pytest.mark.case(39)
def test_the_whole_transaction_is_rolled_back_and_repeated() -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        ReceiverCall.objects.create(what="try", object_id=str(len(tries)))
        if len(tries) < 3:
            raise error(1213, "deadlock")
        return "done"

    assert repeatable(work, using="default") == "done"
    assert [call.object_id for call in ReceiverCall.objects.all()] == ["3"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("raised", "times"), [(IntegrityError(), ATTEMPTS), (error(text="disk full"), 1)])
def test_a_transaction_is_not_retried_for_ever(raised: Exception, times: int) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise raised

    with pytest.raises(type(raised)):
        repeatable(work, using="default")
    assert len(tries) == times


@pytest.mark.django_db
def test_within_another_transaction_it_runs_once() -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise error(1213, "deadlock")

    with pytest.raises(OperationalError), transaction.atomic():
        repeatable(work, using="default")
    assert tries == [1]


def busy_timeout() -> int | None:
    """How long a write waits for its turn, milliseconds; only SQLite knows."""
    if not SQLITE:
        return None
    with connection.cursor() as cursor:
        return int(cursor.execute("PRAGMA busy_timeout").fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_a_lock_wait_limit_ends_with_its_block_and_never_makes_a_wait_longer() -> None:
    def waits() -> int | None:
        """In an attempt."""
        return repeatable(busy_timeout, using="default")

    usual = busy_timeout()
    with RetryDeadline(time.monotonic() + 0.5, using="default"):
        short = waits()
        with RetryDeadline(time.monotonic() + 3600, using="default"):
            assert not SQLITE or waits() <= short  # type: ignore[operator]
        with RetryDeadline(None, using="default"):
            assert not SQLITE or waits() <= short  # type: ignore[operator]
        time.sleep(0.1)  # less time is left
        assert not SQLITE or waits() <= 400  # type: ignore[operator]
    assert busy_timeout() == usual
    assert not SQLITE or (short is not None and usual is not None and short <= 500 < usual)


@pytest.mark.skipif(not SQLITE, reason="other databases lock rows")
@pytest.mark.django_db(transaction=True)
def test_the_waits_of_all_attempts_together_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout that is shorter than the limit must not be waited for a second time in full."""
    now, waits = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def locked_out() -> None:
        waits.append(busy_timeout() or 0)
        sleep(waits[-1] / 1000)  # as SQLite waits for its lock
        raise error(text="database is locked")

    # A clock that only waiting moves: a machine under load holds the test up for longer than the limit leaves.
    monkeypatch.setattr(transactions, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 500")
    with pytest.raises(OperationalError), RetryDeadline(0.8, using="default"):
        repeatable(locked_out, using="default")
    assert waits[0] == 500
    assert len(waits) > 1
    assert sum(waits) <= 800


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("seconds", "times"), [(None, ATTEMPTS), (-1.0, 1)])
def test_a_transaction_is_not_repeated_after_its_time_limit(seconds: float | None, times: int) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise error(1213, "deadlock")

    until = None if seconds is None else time.monotonic() + seconds
    with pytest.raises(OperationalError), RetryDeadline(until, using="default"):
        repeatable(work, using="default")
    assert len(tries) == times


@pytest.mark.django_db(transaction=True)
def test_an_integrity_error_is_repeated_only_if_it_can_be_a_lost_race() -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise IntegrityError

    with pytest.raises(IntegrityError):
        repeatable(work, using="default", lost_races=False)
    assert len(tries) == 1


def new_event(payment: str = "pay_1") -> Event:
    return receiving.read("default", factories.body(factories.event(factories.payment(id=payment))), source="webhook")


@pytest.mark.django_db(transaction=True)
def test_a_row_is_stored_by_one_statement_as_save_would_store_it() -> None:
    event, saved = new_event(), new_event("pay_2")
    with CaptureQueriesContext(connection) as queries:
        insert_and_commit(event, using="default")
    assert [query["sql"].split()[0] for query in queries if query["sql"] != "COMMIT"] == ["INSERT"]
    assert (event._state.adding, event._state.db) == (False, "default")
    saved.save(force_insert=True)

    def columns(pk: str) -> dict[str, Any]:
        return Event.objects.filter(pk=pk).values().get() | {"id": "", "object_id": "", "content_hash": ""}

    theirs = columns(saved.pk) | {name: getattr(event, name) for name in ("created_at", "received_at")}
    assert columns(event.pk) == theirs | {"body": columns(event.pk)["body"]}
    assert bytes(Event.objects.get(pk=event.pk).body or b"") == event.body


@pytest.mark.django_db(transaction=True)
def test_a_taken_key_leaves_the_connection_usable() -> None:
    event = new_event()
    insert_and_commit(event, using="default")
    refused: list[Exception] = []

    def watch(execute: Any, *args: Any) -> Any:
        try:
            return execute(*args)
        except Exception as error:
            refused.append(error)
            raise

    with pytest.raises(IntegrityError), connection.execute_wrapper(watch):
        insert_and_commit(event, using="default")
    # An error would stand in the server's log, with the row.
    assert len(refused) == (connection.vendor == "mysql")
    assert Event.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_single_row_cannot_be_inserted_in_a_callers_transaction() -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        insert_and_commit(new_event(), using="default")
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_row_is_committed_without_autocommit() -> None:
    connection.set_autocommit(False)
    try:
        insert_and_commit(new_event(), using="default")
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    assert Event.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_insert_is_repeated_after_a_transient_error() -> None:
    tries: list[str] = []

    def deadlock_once(execute: Any, sql: str, *rest: Any) -> Any:
        tries.append(sql)
        if len(tries) == 1:
            raise error(1213, "deadlock")
        return execute(sql, *rest)

    with connection.execute_wrapper(deadlock_once):
        insert_and_commit(new_event(), using="default")
    assert len(tries) == 2
    assert Event.objects.count() == 1


@pytest.mark.django_db(transaction=True)
class TestBrokenConnections:
    """What a worker that keeps its connections begins a task with."""

    @pytest.fixture
    def kept(self) -> Iterator[None]:
        """The connection of a project with persistent ones."""
        connection.ensure_connection()
        with mock.patch.object(connection, "close_at", time.monotonic() + 60):
            yield

    def test_a_working_connection_is_kept(self, kept: None) -> None:
        before = connection.connection
        drop_broken_connections()
        assert connection.connection is before

    def test_a_connection_that_does_not_answer_is_closed(self, kept: None) -> None:
        with (
            mock.patch.object(connection, "is_usable", return_value=False),
            mock.patch.object(connection, "close") as it,
        ):
            drop_broken_connections()
        it.assert_called_once_with()

    def test_a_connection_past_its_age_is_closed(self) -> None:
        connection.ensure_connection()
        over = mock.patch.object(connection, "close_at", time.monotonic())
        with over, mock.patch.object(connection, "close") as close:
            drop_broken_connections()
        close.assert_called_with()

    def test_a_connection_is_not_closed_within_a_transaction(self) -> None:
        with transaction.atomic(), mock.patch.object(connection, "close") as close:
            with mock.patch.object(connection, "is_usable", return_value=False):
                drop_broken_connections()
            assert Event.objects.count() == 0
        close.assert_not_called()
