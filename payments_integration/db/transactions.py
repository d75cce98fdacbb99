"""Retry transactions after a conflict, and lock rows.

Deadlocks, serialization failures, lock timeouts and duplicate keys are normal under concurrency: the whole transaction
is rolled back and run again. The function must therefore have no effect outside the database.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any, TypeVar

from django.apps import apps
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    IntegrityError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.models import Model, QuerySet
from django.db.transaction import TransactionManagementError

from payments_integration.db import statements
from payments_integration.db.border import (
    Callbacks,
    closed_blocks,
    end_session,
    has_hidden_transaction,
    restore_session,
    restored_language,
)
from payments_integration.exceptions import TransactionRefused
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=Model)
ViewT = TypeVar("ViewT", bound=Callable[..., Any])

ATTEMPTS = 8

#: SQLSTATE of PostgreSQL: serialization failure, deadlock, lock not available.
_POSTGRES = {"40001", "40P01", "55P03"}
#: Error numbers of MariaDB: lock wait timeout, deadlock, record or table changed since the first read.
_MYSQL = {1205, 1213, 1020, 1412}

#: How long a series of transactions may block SQLite's other writers, and the pause that lets each of them try.
_WRITE_SECONDS = 0.5
_PAUSE_SECONDS = 0.15

_deadline: ContextVar[RetryDeadline | None] = ContextVar("payments_integration_retry_deadline", default=None)


class RaceLost(OperationalError):
    """Another transaction wrote the same key first, and the deadline left no time to try again.

    Not an IntegrityError, because it says nothing about the row.
    """


def repeatable(
    function: Callable[[], T],
    *,
    using: str,
    durable: bool = False,
    lost_races: bool = True,
    attempts: int = ATTEMPTS,
    about: Mapping[str, str] = MappingProxyType({}),
) -> T:
    """Run ``function`` in a transaction, and again from the start after a conflict.

    Within an outer transaction it runs once: only the outermost transaction can be retried. ``lost_races``: an
    IntegrityError means that another transaction was faster, and the next attempt sees what it wrote.

    Returns when the transaction is committed. If a callback that a handler or a receiver of another app registered
    inside it fails, the error is logged with the fields of ``about`` and not raised. SystemExit, KeyboardInterrupt and
    GeneratorExit are raised after the commit. In a caller's transaction, its callbacks are the caller's.
    """
    connection = connections[using]
    is_outermost = durable or not is_nested(connection.alias)
    callbacks: Callbacks | None = None

    def transact() -> T:
        nonlocal callbacks
        if is_outermost:
            restore_session(connection)
            callbacks = Callbacks(connection, about)
        with (
            # Otherwise the next attempt begins with the language that this one leaves.
            restored_language() if is_outermost else nullcontext(),
            transaction.atomic(using=using, durable=durable),
            closed_blocks(connection) if is_outermost else nullcontext(),
        ):
            result = function()
            if connection.needs_rollback:
                # Django would roll back without an error: the caller would take the work for committed.
                raise TransactionManagementError(
                    "code that was called within the transaction has marked it for rollback"
                )
            if callbacks is not None:
                callbacks.contain()
        return result

    result = _retry(transact, using=using, once=not durable, lost_races=lost_races, attempts=attempts)
    if callbacks is not None:
        callbacks.raise_interruption()
    return result


def first_run() -> Callable[[], bool]:
    """Return a function that returns True once: for what a repeated transaction may assume in its first run only."""
    runs = iter([True])
    return lambda: next(runs, False)


def is_nested(using: str) -> bool:
    """Return True if a transaction is open, other than the one that a test case opens around its test."""
    connection = connections[using]
    blocks: list[Any] = connection.atomic_blocks
    return connection.in_atomic_block and not (blocks and blocks[-1]._from_testcase)


def nested_database() -> str | None:
    """Return a database on which this thread has a transaction open, as ``is_nested`` counts them; None: on none."""
    return next((each.alias for each in connections.all(initialized_only=True) if is_nested(each.alias)), None)


def insert_and_commit(row: Model, *, using: str, then: Callable[[], None] | None = None) -> None:
    """INSERT one row and commit it. Raises IntegrityError if its key is taken. Sends no signals, like ``bulk_create``.

    Uses autocommit: BEGIN and COMMIT would cost as much as the INSERT. ``then`` writes what belongs to it. Raises
    TransactionManagementError if the project's code has begun a transaction without Django.
    """
    connection = connections[using]

    def insert() -> None:
        if not statements.insert_if_free(row, using=using):
            raise IntegrityError("the key is taken")
        if then is not None:
            then()

    if then is not None or connection.in_atomic_block:
        # If a transaction is open, a test case opened it; ``durable`` refuses any other.
        repeatable(insert, using=using, durable=True, lost_races=False)
    elif has_hidden_transaction(connection):
        raise TransactionManagementError(
            "the project's code has begun a transaction without Django, so the row would not be committed"
        )
    else:
        restore_session(connection)
        # If several transactions insert one key and the first rolls back, MariaDB reports a deadlock to the others.
        _retry(insert, using=using)
        # MariaDB's driver does not tell if BEGIN as SQL has opened a transaction.
        if not connection.autocommit or connection.vendor == "mysql":
            connection.commit()
    row._state.adding, row._state.db = False, using


def updated(rows: QuerySet[Any], **values: Any) -> int:
    """UPDATE rows in one statement, again after a conflict. Returns how many.

    Under REPEATABLE READ, PostgreSQL refuses a row that was written since the statement began, even in autocommit. The
    next attempt sees the row as it is now.
    """
    rows = rows.using(router.db_for_write(rows.model))
    return _retry(lambda: rows.update(**values), using=rows.db)


def updated_row(model: type[Model], *, where: dict[str, Any], values: dict[str, Any]) -> int:
    """Do ``updated`` for the row in which these fields have these values, with SQL that is built once."""
    using = router.db_for_write(model)
    return _retry(lambda: statements.update_row(model, using, where=where, values=values), using=using)


def deleted(rows: QuerySet[Any]) -> int:
    """DELETE rows to which no others refer, again after a conflict. Returns how many. Sends no signals.

    A receiver of another app that fails would end a worker's pass.
    """
    rows = rows.using(router.db_for_write(rows.model))
    return _retry(lambda: rows._raw_delete(rows.db), using=rows.db)


def _retry(
    function: Callable[[], T], *, using: str, once: bool = True, lost_races: bool = False, attempts: int = ATTEMPTS
) -> T:
    """Retry after a conflict. ``once``: do not retry inside an open transaction."""
    deadline = _deadline.get()
    for attempt in range(attempts):
        if deadline is not None:
            deadline.limit_wait(using)
        try:
            return function()
        except (IntegrityError, OperationalError) as error:
            lost = lost_races and isinstance(error, IntegrityError)
            is_last = attempt + 1 == attempts or (once and connections[using].in_atomic_block)
            if is_last or not (lost or is_transient(error)):
                raise
            if deadline is not None and deadline.is_over():
                if lost:
                    raise RaceLost("another transaction was faster, and no time is left to try again") from error
                raise
            logger.info("Retrying a transaction after %s", type(error).__name__)
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  (jitter, not a secret)
    raise AssertionError("unreachable")


class RetryDeadline:
    """A context in which nothing is retried after ``until`` (a ``time.monotonic()``; None: no limit).

    On SQLite it also limits how long each attempt waits for another writer, for any ``timeout``: a slow receiver
    may hold the only write lock. Other databases lock rows, and only for an instant.
    """

    def __init__(self, until: float | None, *, using: str) -> None:
        self._until = until
        self._using = using
        self._token: Token[RetryDeadline | None] | None = None
        #: Milliseconds; None: not SQLite.
        self._usual_timeout: int | None = None

    def __enter__(self) -> None:
        if self._until is None:
            return
        connection = connections[self._using]
        if connection.vendor == "sqlite":
            connection.ensure_connection()
            raw: Any = connection.connection
            self._usual_timeout = raw.execute("PRAGMA busy_timeout").fetchone()[0]
        outer = _deadline.get()
        if outer is not None and outer._until is not None:
            self._until = min(self._until, outer._until)
        self._token = _deadline.set(self)

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _deadline.reset(self._token)
        self._set_timeout(self._usual_timeout)

    def is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def limit_wait(self, using: str) -> None:
        """Call before each attempt: several waits, each within the limit, would exceed it together."""
        if self._until is not None and self._usual_timeout is not None and using == self._using:
            left = max(0, int((self._until - time.monotonic()) * 1000))
            self._set_timeout(min(self._usual_timeout, left))

    def _set_timeout(self, milliseconds: int | None) -> None:
        if milliseconds is not None and (raw := connections[self._using].connection) is not None:
            raw.execute(f"PRAGMA busy_timeout = {milliseconds}")


def drop_broken_connections() -> None:
    """Close connections that are older than ``CONN_MAX_AGE`` or do not answer, as Django does between requests.

    Celery closes every connection after every task, unless ``CELERY_DB_REUSE_MAX`` makes it keep them, broken or not.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()


def drop_if_broken(using: str) -> None:
    """Close this thread's connection if it is lost, or if an exception or the project's SQL left a transaction open.

    Call it after the exception, outside transactions. The next statement makes a new connection.
    """
    connection = connections[using]
    if connection.connection is None or connection.in_atomic_block:
        return
    is_between = connection.get_autocommit() != connection.settings_dict["AUTOCOMMIT"]
    if is_between or has_hidden_transaction(connection) or (connection.errors_occurred and not connection.is_usable()):
        with suppress(DatabaseError):  # MariaDB's driver refuses to close a lost connection; Django drops it
            end_session(connection)


class WriterPauses:
    """Pauses between transactions, so that other writers get through on SQLite. Elsewhere it does nothing.

    SQLite has no queue: a waiting writer polls about ten times a second, and finds the database locked each time if
    one transaction follows directly on another.
    """

    def __init__(self, using: str) -> None:
        self._needed = connections[using].vendor == "sqlite"
        self._since = time.monotonic()

    def pause_if_due(self) -> None:
        """Call between transactions."""
        if self._needed and time.monotonic() - self._since > _WRITE_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            self._since = time.monotonic()


def is_transient(error: BaseException) -> bool:
    """Return True if a database error means that the whole transaction should be retried."""
    cause = error.__cause__
    if sqlstate(error) in _POSTGRES:
        return True
    if cause is not None and cause.args and cause.args[0] in _MYSQL:
        return True
    return "database is locked" in str(error) or "database table is locked" in str(error)


def sqlstate(error: BaseException) -> str:
    """Return PostgreSQL's code of an error; "" without one. psycopg2 has another name for it than psycopg."""
    cause = error.__cause__
    return str(getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or "")


def locked(rows: QuerySet[ModelT], *, skip_locked: bool = False) -> QuerySet[ModelT]:
    """SELECT … FOR UPDATE. ``skip_locked``: leave out rows that another transaction has locked.

    Does not conflict with the lock that PostgreSQL takes on a row when a merchant's foreign key refers to it.
    Databases without row locks (SQLite) have one writer at a time, so the transaction itself is the lock.
    """
    rows = rows.using(router.db_for_write(rows.model))
    features = connections[rows.db].features
    return rows.select_for_update(
        skip_locked=skip_locked and features.has_select_for_update_skip_locked,
        no_key=features.has_select_for_no_key_update,
    )


def as_committed(rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
    """Read rows as they are committed now. In a transaction, a plain read may show MariaDB's older snapshot."""
    rows = rows.using(router.db_for_write(rows.model))
    connection = connections[rows.db]
    locks = connection.vendor == "mysql" and connection.in_atomic_block
    return rows.select_for_update() if locks else rows


def ledger_database() -> str:
    return router.db_for_write(apps.get_model("payments_integration", "Operation"))


def in_transaction() -> bool:
    """Return True if the caller has a transaction open, other than the one that a test case opens around its test."""
    connection = connections[ledger_database()]
    if not connection.in_atomic_block:
        # With autocommit off, every statement opens a transaction that only the caller ends.
        return not connection.get_autocommit() or has_hidden_transaction(connection)
    return is_nested(connection.alias)


def outside_transactions(view: ViewT) -> ViewT:
    """Make a view run outside transactions on every database, even with ATOMIC_REQUESTS.

    Services refuse to send within a transaction, and the row of a delivery must be committed before its answer.
    """
    for alias in connections:
        transaction.non_atomic_requests(using=alias)(view)
    return view


def non_atomic_requests(using: str) -> str:
    """Return the decorator that exempts a view from this database's ATOMIC_REQUESTS, for messages."""
    where = "" if using == DEFAULT_DB_ALIAS else f"(using={using!r})"
    return f"django.db.transaction.non_atomic_requests{where}"


def refuse_transaction(function: str, *, is_dispatching: bool = False, can_be_deferred: bool = False) -> None:
    """Raise TransactionRefused inside a transaction, in the name of ``services.<function>``.

    A request inside a transaction would hold locks for seconds, and its record could be rolled back after money moved.
    ``is_dispatching``: a receiver asks. With ``asyncio.run``, it asks in a thread that has no transaction.
    ``can_be_deferred``: ``services.defer`` takes the function.
    """
    if is_dispatching or in_transaction():
        if can_be_deferred:
            reason, advice = "it could roll back after money moved", "use services.defer, which sends the call after"
        else:
            reason, advice = "it would hold locks for seconds", "call it with transaction.on_commit, after"
        raise TransactionRefused(
            f"services.{function} cannot run inside a database transaction: {reason}. Under ATOMIC_REQUESTS, mark a "
            f"view that needs the answer with {non_atomic_requests(ledger_database())}. Otherwise {advice} the "
            "commit. A middleware, or SQL such as BEGIN or SET autocommit = 0, may also have begun the transaction."
        )


def refuse_hidden_transaction() -> None:
    """Raise TransactionRefused in a transaction that Django does not know of: the record would not belong to it."""
    if has_hidden_transaction(connections[ledger_database()]):
        raise TransactionRefused(
            "services.defer is called in a transaction that was begun without Django, by SQL such as BEGIN or SET "
            "autocommit = 0, and its record would not belong to it. Use transaction.atomic()."
        )


def refuse_receiver_outside(*, is_elsewhere: bool) -> None:
    """Raise TransactionRefused if a receiver asks outside its transaction: in ``asyncio.run`` it has another thread.

    The call would be sent even if the receiver's work is rolled back. ``is_elsewhere``: this is not its thread, and a
    transaction that is open here is another one.
    """
    if is_elsewhere or not connections[ledger_database()].in_atomic_block:
        raise TransactionRefused(
            "services.defer is called in a handler, but not in its transaction, as in asyncio.run(): it would be sent "
            "even if the handler's work is rolled back. Call it in the handler itself, or use async_to_sync()."
        )


def refuse_transaction_elsewhere() -> None:
    """Raise TransactionRefused if only another database than the ledger's has a transaction, which may be rolled back.

    The call would be recorded at once, and sent even if what it belongs to is rolled back.
    """
    ours = ledger_database()
    for connection in connections.all(initialized_only=True):
        # A transaction of a replica, to which no model is written, decides about nothing.
        if connection.alias != ours and is_nested(connection.alias) and _is_written_to(connection.alias):
            raise TransactionRefused(
                f"services.defer is called in a transaction of the database {connection.alias!r}, and its record is "
                f"in {ours!r}: it would be sent even if that transaction is rolled back. Call it within "
                f"transaction.atomic(using={ours!r}), which decides then, or in a callback of "
                f"transaction.on_commit(…, using={connection.alias!r})."
            )


def _is_written_to(alias: str) -> bool:
    return any(router.db_for_write(model) == alias for model in apps.get_models())
