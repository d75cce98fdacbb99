"""Transactions that are repeated when the database asks for it.

Deadlocks, serialization failures, lock timeouts and lost races for a key are normal under concurrency: the whole
transaction is rolled back and run again. The function must therefore have no effect outside the database.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, OperationalError, connections, router, transaction
from django.db.models import Model, QuerySet

logger = logging.getLogger(__name__)
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=Model)

ATTEMPTS = 8

#: SQLSTATE of PostgreSQL: serialization failure, deadlock, lock not available.
_POSTGRES = {"40001", "40P01", "55P03"}
#: Error numbers of MariaDB: lock wait timeout, deadlock, record changed since it was read.
_MYSQL = {1205, 1213, 1020}


def repeatable(function: Callable[[], T], *, using: str, durable: bool = False) -> T:
    """Run ``function`` in a transaction, again from the start where the database asks for it.

    Within an outer transaction it runs once: only the outermost can be repeated.
    """
    attempts = 1 if connections[using].in_atomic_block and not durable else ATTEMPTS
    for attempt in range(attempts):
        try:
            with transaction.atomic(using=using, durable=durable):
                return function()
        except (IntegrityError, OperationalError) as error:
            if attempt + 1 >= attempts or not (isinstance(error, IntegrityError) or is_transient(error)):
                raise
            logger.info("Repeating a transaction after %s", type(error).__name__)
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  (spreading, not secrecy)
    raise AssertionError("unreachable")


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
