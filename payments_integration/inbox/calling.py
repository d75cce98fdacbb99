"""One transaction: lock an object, call the receivers of its next item, and mark the item as dispatched.

The receivers' database work commits with the mark or not at all. The lock and the mark both require that the item is
still waiting.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from django.db import DatabaseError, Error as AnyDatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from payments_integration import telemetry
from payments_integration.db import statements
from payments_integration.db.transactions import is_transient, repeatable
from payments_integration.inbox.claiming import CLAIM, UNCLAIMED, Page, naming, release_others
from payments_integration.inbox.loading import Item, Work, ids_of, key_column, key_of
from payments_integration.models import MIRRORS, Event, ObjectDispatch, StatusChange
from payments_integration.signals import dispatching, event_received, status_changed


class ReceiverFailed(Exception):
    """A receiver raised, or lost the transaction in which it ran. ``__cause__`` is the error."""


class ClaimLost(Exception):
    """Another worker has taken the object since."""


class WorkChanged(Exception):
    """The object, or the item itself, was written since its work was loaded."""


def call_receivers(page: Page, work: Work) -> None:
    """Call the receivers of the object's next item and mark it, in one transaction.

    The last item releases the claim in that commit: a crash after it is not a failed attempt.

    Raises ReceiverFailed, ClaimLost, WorkChanged, an IntegrityError of a deferred constraint of the merchant's tables,
    or another error of the database; nothing is committed then. What a callback raises comes after the commit.
    """
    item = work.items[0]
    changes = work.changes[str(item.pk)]
    failure: ReceiverFailed | None = None

    def call() -> None:
        nonlocal failure
        try:
            call_and_mark()
        except ReceiverFailed as error:
            failure = error
            raise

    def call_and_mark() -> None:
        instance, lock = _lock(page, work)
        # A receiver that catches a database error may have lost the transaction: a deadlock rolls back all of
        # MariaDB's, and only later writes would be committed. PostgreSQL refuses every statement after an error.
        connection = connections[page.using]
        savepoint = None if connection.vendor == "postgresql" else connection.savepoint()
        try:
            with telemetry.during(telemetry.Handling(item)):
                _send(item, changes, instance, is_stale=work.is_stale(item))
        except BaseException as error:
            raise ReceiverFailed(str(item.pk)) from error
        try:
            _require_transaction(connection)
            if savepoint:
                connection.savepoint_commit(savepoint)
        except DatabaseError as error:
            raise _lost_by_receiver(error, item) from error
        try:
            if page.is_over:
                release_others(page, work)
            _mark(item, lock, page.using, has_changes=bool(changes))
        except AnyDatabaseError as error:
            if is_transient(error):
                raise
            raise _lost_by_receiver(error, item) from error

    try:
        repeatable(call, using=page.using, durable=True, lost_races=False, about=ids_of(item))
    except AnyDatabaseError:
        if failure is None:
            raise
        # The receiver has broken the connection, so that the rollback failed as well.
        raise failure from failure.__cause__


def _require_transaction(connection: BaseDatabaseWrapper) -> None:
    if connection.closed_in_transaction:
        raise TransactionManagementError("a receiver has closed the connection of its transaction")
    if connection.needs_rollback:
        raise TransactionManagementError("a receiver has marked its transaction for rollback")


def _lost_by_receiver(error: Exception, item: Item) -> ReceiverFailed:
    error.add_note(
        "A receiver has ended or lost the transaction in which it ran: it swallowed a database error, rolled back, or "
        "closed the connection."
    )
    return ReceiverFailed(str(item.pk))


def _lock(page: Page, work: Work) -> tuple[Any | None, str]:
    """Lock the object, name the item after the next one; returns the mirror row as it is now, and the id of this
    transaction on PostgreSQL.

    Raises ClaimLost, or WorkChanged if the row was written, the item is not waiting any more, or an earlier one came
    since the load. One statement on PostgreSQL, two elsewhere. On SQLite the write makes this the only writer.
    """
    item, following = work.items[0], work.items[1] if len(work.items) > 1 else None
    model, using = MIRRORS.get(item.object_kind), page.using
    values: dict[str, Any] = {**UNCLAIMED, "next_attempt_at": None}
    if following is not None:
        values = {
            "claim": page.claim,
            "turn": work.row.turn,
            **naming(following),
            "next_attempt_at": timezone.now() + CLAIM,
        }
    lock = [*statements.prepared_values(ObjectDispatch, using, **values), work.row.pk, page.claim]
    # An event goes before a change of the same time.
    before = item.created_at if isinstance(item, Event) else item.at + timedelta(microseconds=1)
    check = [item.pk, *key_of(item), *statements.prepared_values(Event, using, created_at=before)]
    if model is not None:
        check += [item.account, item.object_id] * 2
    connection = connections[using]
    lock_sql, check_sql = _lock_sql(type(item), item.object_kind if model is not None else "", using, tuple(values))
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"{lock_sql} RETURNING {check_sql}", lock + check)
        else:
            cursor.execute(lock_sql, lock)
            if cursor.rowcount:
                cursor.execute(f"SELECT {check_sql}", check)
        found = cursor.fetchone() if cursor.rowcount else None
    if found is None:
        raise ClaimLost
    is_waiting, is_late, version, is_erased, transaction_id = found
    if not is_waiting or is_late or (None if version is None else (version, bool(is_erased))) != work.seen:
        raise WorkChanged
    instance = statements.from_values(model, work.values, using) if model is not None and work.values else None
    return instance, transaction_id


@cache
def _lock_sql(item: type[Item], kind: str, using: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """The UPDATE that locks, and the columns that show whether the work is as it was loaded."""
    connection = connections[using]
    quote, model = connection.ops.quote_name, MIRRORS.get(kind)
    version = is_erased = "NULL"
    if model is not None:
        mirror, key = quote(model._meta.db_table), quote(key_column(kind))
        row = f"FROM {mirror} m WHERE m.account = %s AND m.{key} = %s"
        version, is_erased = f"(SELECT m.version {row})", f"(SELECT m.erased_at IS NOT NULL {row})"
    check = (
        f"EXISTS (SELECT 1 FROM {quote(item._meta.db_table)} i WHERE i.id = %s AND i.state = 'applied'),"  # noqa: S608  (names of ours)
        f" EXISTS (SELECT 1 FROM {quote(Event._meta.db_table)} e"
        " WHERE e.account = %s AND e.object_kind = %s AND e.object_id = %s"
        " AND e.state IN ('applied', 'held', 'pending')"
        " AND (e.state <> 'pending' OR e.attempts = 0) AND e.created_at < %s),"
        f" {version}, {is_erased}, {_TRANSACTION_ID if connection.vendor == 'postgresql' else 'NULL'}"
    )
    table, values = quote(ObjectDispatch._meta.db_table), ", ".join(f"{quote(name)} = %s" for name in columns)
    lock = f"UPDATE {table} SET {values} WHERE id = %s AND {_only_by_key('claim')} = %s"  # noqa: S608  (names of ours)
    return lock, check


#: A receiver that rolls back by hand leaves PostgreSQL's next statements in another transaction.
_TRANSACTION_ID = "pg_current_xact_id()::text"


def _send(item: Item, changes: list[StatusChange], instance: Any | None, *, is_stale: bool) -> None:
    sender: type[Any] = MIRRORS.get(item.object_kind, Event)
    event = item if isinstance(item, Event) else None
    with dispatching(item.created_at if isinstance(item, Event) else item.at):
        if event is not None:
            event_received.send(
                sender=sender,
                event=event,
                instance=instance,
                previous_status=event.previous_status,
                is_stale=is_stale,
            )
        for change in changes if instance is not None else ():
            status_changed.send(
                sender=sender,
                instance=instance,
                previous_status=change.previous_status,
                status=change.status,
                event=event,
                status_change=change,
                is_stale=is_stale,
            )


def _mark(item: Item, transaction_id: str, using: str, *, has_changes: bool) -> None:
    """Mark the item if it is still waiting: one statement on PostgreSQL, elsewhere one more if an event has brought a
    change of status.
    """
    connection = connections[using]
    now = statements.prepared_values(Event, using, dispatched_at=timezone.now())
    with_changes = isinstance(item, Event) and has_changes
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            parameters = [*now, item.pk] * (1 + with_changes)
            cursor.execute(_mark_sql(type(item), using, with_changes), [*parameters, transaction_id])
        else:
            if with_changes:
                statements.update_row(StatusChange, using, {"event": item.pk}, dispatched_at=timezone.now())
            cursor.execute(_mark_sql(type(item), using, with_changes), [*now, item.pk])
        is_marked = bool(cursor.rowcount)
    if not is_marked:
        raise TransactionManagementError("the item is not waiting any more in the transaction that locked it")


@cache
def _mark_sql(item: type[Item], using: str, with_changes: bool) -> str:
    quote = connections[using].ops.quote_name
    table, change = quote(item._meta.db_table), quote(StatusChange._meta.db_table)
    mark = (
        f"UPDATE {table} SET state = 'done', dispatched_at = %s, error = ''"  # noqa: S608  (names of ours)
        f" WHERE id = %s AND {_only_by_key('state')} = 'applied'"
    )
    if connections[using].vendor != "postgresql":
        return mark
    changes = f"UPDATE {change} SET dispatched_at = %s WHERE event_id = %s"  # noqa: S608  (names of ours)
    mark = f"{mark} AND {_TRANSACTION_ID} = %s"
    return f"WITH changes AS ({changes}) {mark}" if with_changes else mark


def _only_by_key(column: str) -> str:
    """A column without its index: MariaDB would also lock the gap beside the row there, in which others insert."""
    return f"COALESCE({column}, '')"
