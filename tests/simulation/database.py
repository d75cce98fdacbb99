"""Boundaries in a thread's database connection: before BEGIN, around COMMIT, around single writes.

None lies inside a write transaction, so that on SQLite no lock is ever waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from django.db import OperationalError, connection

from tests.simulation.scheduler import GO, Killed

_WRITE = re.compile(r'\s*(?:INSERT(?: OR IGNORE)? INTO|UPDATE|DELETE FROM)\s+["`]?(\w+)', re.IGNORECASE)


class Watched(Protocol):
    """The interface between the hooks and the simulation."""

    def at(self, point: str, *, may_wait: bool = True) -> str: ...

    def check_alive(self) -> None: ...

    def committed(self, tables: set[str]) -> None: ...


class BrokenConnection(OperationalError):
    """The database's own trouble, as the schedule wants it."""


class Conflict(OperationalError):
    """The database has rolled back, and what repeats the transaction gets through."""


def conflict() -> Conflict:
    """What the database in use says of a lock that was not free in time, or of a deadlock."""
    return _conflict(Exception(1205, "Lock wait timeout exceeded"))


def refused_commit() -> Conflict:
    """What it says if it finds only in COMMIT that another transaction was faster, as Galera and SQLite may, and
    PostgreSQL where it serializes.
    """
    return _conflict(Exception(1213, "Deadlock found when trying to get lock; try restarting transaction"))


def _conflict(of_mysql: Exception) -> Conflict:
    cause: Any = {
        "sqlite": Exception("database is locked"),
        "postgresql": Exception("deadlock detected"),
        "mysql": of_mysql,
    }[connection.vendor]
    cause.sqlstate = "40P01"
    error = Conflict(*cause.args)
    error.__cause__ = cause
    return error


def hook(watched: Callable[[], Watched | None]) -> None:
    """Put boundaries into this thread's connection. ``watched`` gives the world, or None between schedules."""
    tables: set[str] = set()
    real_commit, real_set_autocommit = connection.commit, connection.set_autocommit

    def execute(run: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        world = watched()
        if world is None:
            return run(sql, params, many, context)
        world.check_alive()
        match = _WRITE.match(str(sql))
        if match is None:
            return run(sql, params, many, context)
        if connection.in_atomic_block:
            tables.add(match[1])
            return run(sql, params, many, context)
        kind = world.at("write")
        if kind == "fail":
            raise BrokenConnection("the write was refused")
        if kind == "conflict":
            raise refused_commit()
        result = run(sql, params, many, context)
        world.committed({match[1]})
        # What is returned is not read yet: until then SQLite holds its lock.
        if world.at("written", may_wait=" RETURNING " not in str(sql)) == "lost":
            raise BrokenConnection("the connection broke after the write")
        return result

    def commit() -> None:
        world = watched()
        if world is None:
            real_commit()
            return
        try:
            kind = world.at("commit", may_wait=False)
            # A transaction that only read conflicts with none.
            if kind == GO and tables:
                kind = world.at("certify", may_wait=False)
        except Killed:
            tables.clear()
            # Setting autocommit again would commit what the dead process had open.
            connection.rollback()
            raise
        if kind in ("fail", "conflict"):
            tables.clear()
            connection.rollback()
            raise refused_commit() if kind == "conflict" else BrokenConnection("the commit was refused")
        real_commit()
        changed = set(tables)
        tables.clear()
        world.committed(changed)
        if kind == "lost":
            raise BrokenConnection("the connection broke after the commit")
        try:
            world.at("committed")
        except Killed:
            connection.run_on_commit = []
            raise

    def set_autocommit(autocommit: bool, *args: Any, **kwargs: Any) -> None:
        world = watched()
        if world is not None and not autocommit:
            world.check_alive()
            tables.clear()
            if world.at("begin") == "fail":
                raise BrokenConnection("no transaction could be begun")
        real_set_autocommit(autocommit, *args, **kwargs)

    connection.execute_wrappers.append(execute)
    connection.commit = commit  # type: ignore[method-assign]
    connection.set_autocommit = set_autocommit  # type: ignore[method-assign]


def discard() -> None:
    """The process has died: its connection is closed without a commit."""
    raw = connection.connection
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    if raw is not None:
        connection.connection = None
        raw.close()


def close() -> None:
    """Close this thread's connection."""
    connection.close()
