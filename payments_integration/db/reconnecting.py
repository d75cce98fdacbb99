"""Replace a connection in an unknown state: it broke, or an exception came between two lines of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections, transaction

from payments_integration.db.border import end_session
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)
#: A look at the database waits this many seconds for a lock, and for a statement.
LOOK_SECONDS = 5


def discard(using: str) -> None:
    """Close this thread's connection in any state. The next query opens another one.

    The database rolls back what was not committed. A database in memory lives as long as its connection, so it is only
    rolled back.
    """
    connection: Any = connections[using]
    if is_in_memory(using):
        if connection.connection is not None:
            connection.connection.rollback()
    else:
        with suppress(Exception):
            end_session(connection)
        connection.connection = None
    # Only ``connect`` would reset these, and an open block keeps it from being called.
    connection.in_atomic_block = False
    connection.closed_in_transaction = False
    connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []
    if connection.connection is not None:
        connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])


def discard_all() -> None:
    """Close all connections of this thread, in any state."""
    for connection in connections.all(initialized_only=True):
        discard(connection.alias)


def discard_left_open() -> None:
    """Close each connection of this thread in which the project's code has left a block of ``atomic`` open."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            logger.warning(
                "The project's code has left a transaction open on the database %s: it is rolled back",
                connection.alias,
            )
            discard(connection.alias)


def is_in_memory(using: str) -> bool:
    connection: Any = connections[using]
    return bool(connection.vendor == "sqlite" and connection.is_in_memory_db())


@contextmanager
def fresh_connection(using: str) -> Iterator[None]:
    """Open a new connection that waits for nothing for long, in a transaction that is rolled back at the end.

    Inside it, an INSERT or a locking read waits for a commit that is still under way on the old connection.
    """
    discard(using)
    connection = connections[using]
    try:
        if not connection.features.has_select_for_update:
            # SQLite commits nothing after its connection is closed. A transaction would wait for the write lock.
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {LOOK_SECONDS * 1000}")
            yield
            return
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOOK_SECONDS}")
                if getattr(connection, "mysql_is_mariadb", False):
                    cursor.execute(f"SET SESSION max_statement_time = {LOOK_SECONDS}")
        with transaction.atomic(using=using, durable=True):
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    # Until the end of the transaction: a pooler gives the connection to others.
                    wait = f"{LOOK_SECONDS}s"
                    cursor.execute(
                        "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)",
                        [wait, wait],
                    )
            yield
            transaction.set_rollback(True, using=using)
    finally:
        # This also ends the limits.
        discard(using)
