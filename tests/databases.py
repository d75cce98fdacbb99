"""The database of the tests, its isolation levels, works at the same moment, and the queries that Django builds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest
from django.conf import settings
from django.db import connection, connections
from django.db.models.sql.compiler import SQLCompiler

from tests.servers import wait_until

T = TypeVar("T")

_ENGINE: str = settings.DATABASES["default"]["ENGINE"]
SQLITE = _ENGINE.endswith("sqlite3")
POSTGRES = _ENGINE.endswith("postgresql")
MARIADB = _ENGINE.endswith("mysql")
#: The driver's module: "psycopg" is that of psycopg 3.
DRIVER: str = connections["default"].Database.__name__  # type: ignore[attr-defined]

AS_SET, REPEATABLE_READ, SNAPSHOT = "as set", "repeatable read", "snapshot"

#: The levels to try here. SQLite has none: one writer at a time. "snapshot": REPEATABLE READ as MariaDB 11.6 and newer
#: understand it.
LEVELS: list[str] = (
    [AS_SET] if SQLITE else [AS_SET, REPEATABLE_READ] if POSTGRES else [AS_SET, REPEATABLE_READ, SNAPSHOT]
)

#: How many other sessions wait for a lock. PostgreSQL can say that they wait for ours; in MariaDB it is a statement
#: that writes or locks and takes so long.
_BLOCKED = (
    "SELECT COUNT(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    if POSTGRES
    # Not of innodb_trx: that is a copy, and stays as it is while somebody looks every few moments.
    else "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    " AND info REGEXP '^(INSERT|UPDATE|DELETE)|FOR UPDATE' AND time_ms > 200"
)

#: The other sessions on the test's database.
_OTHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    if POSTGRES
    else "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
)

#: The suites that run on each database.
_SUITES = [Path(__file__).parent / name for name in ("unit", "integration")]
_FIXTURES = {"db", "transactional_db", "live_server"}

_STATEMENTS: dict[str, list[str]] = {
    REPEATABLE_READ: (
        ["SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"]
        if POSTGRES
        else ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"]
    ),
    SNAPSHOT: ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET innodb_snapshot_isolation = ON"],
}


def depends_on_database(item: pytest.Item) -> bool:
    """Whether a test shows something about the database of the settings, so that each database must run it.

    False for those that use none, by their markers or by any fixture, and for those with the marker ``any_database``.
    True for everything outside tests/unit and tests/integration.
    """
    if not any(item.path.is_relative_to(suite) for suite in _SUITES):
        return True
    if item.get_closest_marker("any_database") is not None:
        return False
    uses_fixture = not _FIXTURES.isdisjoint(getattr(item, "fixturenames", _FIXTURES))
    return uses_fixture or item.get_closest_marker("django_db") is not None


def execute(*statements: str) -> None:
    """On this thread's connection."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def set_level(level: str) -> None:
    """For this thread's connection, from its next transaction on."""
    execute(*_STATEMENTS.get(level, ()))


def wait_at_most(seconds: float) -> None:
    """For locks, on this thread's connection; MariaDB counts whole seconds."""
    if SQLITE:
        execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    elif POSTGRES:
        execute(f"SET lock_timeout = {int(seconds * 1000)}")
    else:
        execute(f"SET innodb_lock_wait_timeout = {max(1, round(seconds))}")


def other_sessions() -> frozenset[int]:
    """Those of other processes and threads on the test's database. Empty on SQLite, which has no server."""
    if SQLITE:
        return frozenset()
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS)
        return frozenset(row[0] for row in cursor.fetchall())


def wait_for_blocked(count: int = 1, seconds: float = 30.0) -> None:
    """Wait until so many others wait for a lock that this thread's transaction holds.

    SQLite does not show who waits: there it is the moment that they usually need to come so far.
    """
    if SQLITE:
        time.sleep(0.4)
        return

    def are_blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(_BLOCKED)
            return bool(cursor.fetchone()[0] >= count)

    wait_until(are_blocked, seconds, f"{count} to wait for a lock")


def wait_for_passer(passed: threading.Event, seconds: float = 30.0) -> None:
    """Wait until another, who skips the rows that this thread's transaction has locked, is done.

    SQLite has it wait for us, and does not show that: there it is the moment that it usually needs to come so far.
    """
    if SQLITE:
        time.sleep(0.4)
    else:
        assert passed.wait(seconds), "it waits instead of skipping what is locked"


def at_once(*works: Callable[[], Any], level: str = AS_SET) -> list[Any]:
    """Run all at the same moment, each in a thread with a connection of its own.

    Returns their results; raises what one of them raised.
    """
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            set_level(level)
            barrier.wait(10)
            results[index] = work()
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "one of them hangs"
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


class Once:
    """Wraps a function: after its first call has done its work, that caller stays a while before it goes on."""

    def __init__(self, function: Callable[..., T], stay: Callable[[], object]) -> None:
        self._function = function
        self._stay = stay
        self._lock = threading.Lock()
        self._stayed = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._function(*args, **kwargs)
        with self._lock:
            first, self._stayed = not self._stayed, True
        if first:
            self._stay()
        return result


@contextmanager
def built_queries() -> Iterator[list[str]]:
    """The SELECTs that Django builds meanwhile, which takes longer than a database needs for a row by its key."""
    built: list[str] = []
    build = SQLCompiler.as_sql

    def noted(compiler: SQLCompiler, *args: Any, **options: Any) -> Any:
        result = build(compiler, *args, **options)
        built.append(result[0])
        return result

    with mock.patch.object(SQLCompiler, "as_sql", noted):
        yield built
