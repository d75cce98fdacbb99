"""No request inside a database transaction: it would hold locks for seconds, and could be rolled back after
money moved.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, router

from payments_integration.exceptions import TransactionRefused
from payments_integration.models import Operation


def database() -> str:
    """The alias of the database that the ledger is written to."""
    return router.db_for_write(Operation)


def in_transaction() -> bool:
    """Whether the caller has a transaction open, other than the one a test case wraps around its test."""
    connection = connections[database()]
    if not connection.in_atomic_block:
        # With autocommit off every statement opens a transaction that only the caller ends.
        return not connection.get_autocommit()
    blocks: list[Any] = connection.atomic_blocks
    return not (blocks and blocks[-1]._from_testcase)


def refuse_transaction(function: str) -> None:
    """Raise TransactionRefused inside a transaction, in the name of ``function``, before anything is done."""
    if in_transaction():
        raise TransactionRefused(
            f"services.{function} talks to the provider and cannot run inside a database transaction. What "
            "changes something there can be handed to services.defer, which sends it after the transaction "
            "commits; a view under ATOMIC_REQUESTS needs django.db.transaction.non_atomic_requests to call the "
            "provider itself."
        )
