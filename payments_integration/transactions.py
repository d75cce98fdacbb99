"""Transactions that are repeated when the database asks for it.

Deadlocks, serialization failures, lock timeouts and lost races for a key are normal under concurrency: the whole
transaction is rolled back and run again. The function must therefore have no effect outside the database.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from django.db import IntegrityError, OperationalError, connections, router, transaction
from django.db.models import Model, QuerySet

from payments_integration import statements

logger = logging.getLogger(__name__)
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=Model)

ATTEMPTS = 8

#: SQLSTATE of PostgreSQL: serialization failure, deadlock, lock not available.
_POSTGRES = {"40001", "40P01", "55P03"}
#: Error numbers of MariaDB: lock wait timeout, deadlock, record changed since it was read.
_MYSQL = {1205, 1213, 1020}

#: How long a run of transactions may keep SQLite's other writers out, and the pause that lets each of them try.
_TURN_SECONDS = 0.5
_PAUSE_SECONDS = 0.15

_until: ContextVar[float | None] = ContextVar("payments_integration_until", default=None)


def repeatable(function: Callable[[], T], *, using: str, durable: bool = False, lost_races: bool = True) -> T:
    """Run ``function`` in a transaction, again from the start where the database asks for it.

    Within an outer transaction it runs once: only the outermost can be repeated. ``lost_races``: an IntegrityError
    means that another transaction was faster, and the next look sees what it wrote.
    """

    def transact() -> T:
        with transaction.atomic(using=using, durable=durable):
            return function()

    return _insist(transact, using=using, once=not durable, lost_races=lost_races)


def inserted(row: Model, *, using: str) -> None:
    """INSERT one row, durably: it is committed when this returns. Raises IntegrityError where its key is taken.

    One statement is a transaction of its own: BEGIN and COMMIT would cost as much as the row. No signals, as with
    ``bulk_create``.
    """
    connection = connections[using]

    def insert() -> None:
        if not statements.insert(row, using=using):
            raise IntegrityError("the key is taken")

    if connection.in_atomic_block:
        # Tests run in a transaction; of anybody else's, ``durable`` complains.
        repeatable(insert, using=using, durable=True, lost_races=False)
    else:
        # Where many brought the same row and the one that was first rolled back, MariaDB has the others deadlock.
        _insist(insert, using=using)
        if not connection.autocommit:
            connection.commit()
    row._state.adding, row._state.db = False, using


def updated(rows: QuerySet[Any], **values: Any) -> int:
    """UPDATE rows in one statement, again where the database asks for it; returns how many.

    Under REPEATABLE READ PostgreSQL refuses a row that was written since the statement began, even outside a
    transaction. Run once more, the statement looks at the row as it is now.
    """
    rows = rows.using(router.db_for_write(rows.model))
    return _insist(lambda: rows.update(**values), using=rows.db)


def deleted(rows: QuerySet[Any]) -> int:
    """DELETE rows likewise; returns how many."""
    rows = rows.using(router.db_for_write(rows.model))
    return _insist(lambda: rows.delete()[0], using=rows.db)


def _insist(function: Callable[[], T], *, using: str, once: bool = True, lost_races: bool = False) -> T:
    """``once``: where a transaction is open already."""
    for attempt in range(ATTEMPTS):
        try:
            return function()
        except (IntegrityError, OperationalError) as error:
            lost = lost_races and isinstance(error, IntegrityError)
            is_last = attempt + 1 == ATTEMPTS or (once and connections[using].in_atomic_block)
            if is_last or _is_late() or not (lost or is_transient(error)):
                raise
            logger.info("Repeating a transaction after %s", type(error).__name__)
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  (spreading, not secrecy)
    raise AssertionError("unreachable")


class Patience:
    """Somebody waits for an answer: within, nothing is repeated after ``until`` (a ``time.monotonic()``).

    SQLite has one writer at a time, and a receiver that takes long may be it: within, a write waits for its turn no
    longer than to ``until`` either, whatever the connection's ``timeout`` says, and fails. Elsewhere rows are locked
    for an instant only. None: nobody waits.
    """

    def __init__(self, until: float | None, *, using: str) -> None:
        self._to = until
        self._using = using
        self._token: Token[float | None] | None = None
        self._usual: int | None = None

    def __enter__(self) -> None:
        if self._to is None:
            return
        to = min(self._to, _until.get() or self._to)
        connection = connections[self._using]
        if connection.vendor == "sqlite":
            connection.ensure_connection()
            raw: Any = connection.connection
            self._usual = raw.execute("PRAGMA busy_timeout").fetchone()[0]
            left = max(0, int((self._to - time.monotonic()) * 1000))
            raw.execute(f"PRAGMA busy_timeout = {min(self._usual or 0, left)}")
        self._token = _until.set(to)

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _until.reset(self._token)
        if self._usual is not None:
            raw: Any = connections[self._using].connection
            if raw is not None:
                raw.execute(f"PRAGMA busy_timeout = {self._usual}")


def _is_late() -> bool:
    until = _until.get()
    return until is not None and time.monotonic() >= until


def drop_broken_connections() -> None:
    """Close what is past its age (``CONN_MAX_AGE``) or does not answer, as Django does between requests.

    Celery closes every connection after every task, unless ``CELERY_DB_REUSE_MAX`` has it keep them, sound or not.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()


class Turns:
    """Lets the others write now and then, where there is one writer at a time (SQLite).

    It does not queue: who waits looks once in a tenth of a second whether the database is free, and would never find
    it so between transactions that follow on each other.
    """

    def __init__(self, using: str) -> None:
        self._needed = connections[using].vendor == "sqlite"
        self._since = time.monotonic()

    def give(self) -> None:
        """Call between transactions."""
        if self._needed and time.monotonic() - self._since > _TURN_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            self._since = time.monotonic()


def is_transient(error: BaseException) -> bool:
    """Whether a database error means: try the whole transaction again."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in _POSTGRES:
        return True
    if cause is not None and cause.args and cause.args[0] in _MYSQL:
        return True
    return "database is locked" in str(error) or "database table is locked" in str(error)


def hold(rows: QuerySet[ModelT], *, skip_locked: bool = False) -> QuerySet[ModelT]:
    """Rows to be held by this transaction against other writers.

    A row that merchant code merely refers to by a foreign key (PostgreSQL locks it for that) counts as free.
    """
    rows = rows.using(router.db_for_write(rows.model))
    features = connections[rows.db].features
    return rows.select_for_update(
        skip_locked=skip_locked and features.has_select_for_update_skip_locked,
        no_key=features.has_select_for_no_key_update,
    )


def claim(rows: QuerySet[ModelT]) -> QuerySet[ModelT]:
    """Rows that no other transaction holds, to be held by this one.

    Without row locks (SQLite) the transaction itself is the claim: there is one writer at a time.
    """
    return hold(rows, skip_locked=True)
