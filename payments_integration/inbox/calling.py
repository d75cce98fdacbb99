"""Lock an object, call the receivers of its next item and mark the item as dispatched, in one transaction.

The receivers' database work commits with the mark or not at all. The lock and the mark both require that the item is
still waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django.db import Error as AnyDatabaseError, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from payments_integration import telemetry
from payments_integration.db import statements
from payments_integration.db.border import activate_site_language, closed_blocks, transaction_status
from payments_integration.db.claims import ClaimLost
from payments_integration.db.statements import placeholders
from payments_integration.db.transactions import is_transient, repeatable
from payments_integration.inbox.claiming import DONE, NAMELESS, Page, name_next, naming, release_others, unname_all
from payments_integration.inbox.finding import CLAIM
from payments_integration.inbox.loading import Item, Work, ids_of
from payments_integration.models import MIRRORS, Event, ObjectDispatch, StatusChange, of_objects
from payments_integration.projection import id_field, own_time
from payments_integration.signals import dispatching, event_received, status_changed

#: libpq's PQTRANS_IDLE and PQTRANS_INERROR.
_IDLE, _IN_ERROR = 0, 3


class ReceiverFailed(Exception):
    """A receiver raised, or lost the transaction in which it ran. ``__cause__`` is the error."""


class WorkChanged(Exception):
    """The object or the item was written after the work was loaded."""


def call_receivers(page: Page, work: Work) -> None:
    """Call the receivers of the object's next item and mark it, in one transaction.

    The commit of the last item also releases the claim, so a crash after it is not a failed attempt.

    Raises ReceiverFailed, ClaimLost, WorkChanged, or a database error that is not about what the receivers wrote. In
    each case nothing is committed. An error of an on-commit callback is raised after the commit.
    """
    item, is_stale = next(work.turns())
    changes = work.changes[str(item.id)]
    failure: ReceiverFailed | None = None
    is_marked, has_callbacks = False, False
    if not page.names_items and not name_next(page, work):
        raise ClaimLost

    def call() -> None:
        nonlocal failure, is_marked
        is_marked = False
        try:
            call_and_mark()
            is_marked = True
        except ReceiverFailed as error:
            failure = error
            raise

    def call_and_mark() -> None:
        nonlocal has_callbacks
        connection = connections[page.using]
        with statements.preparing_cursor(connection) as cursor:
            instance, lock = _lock(page, work, cursor)
        # A receiver that catches a database error may have lost the transaction: after a deadlock MariaDB rolls back
        # everything and would commit only the later writes. PostgreSQL refuses every statement after an error.
        registered = len(connection.run_on_commit)
        savepoint = None if connection.vendor == "postgresql" else connection.savepoint()
        try:
            with telemetry.during(telemetry.Handling(item)), closed_blocks():
                send(item, changes, instance, connection, is_stale=is_stale)
        except BaseException as error:
            raise ReceiverFailed(str(item.id)) from error
        try:
            if savepoint:
                connection.savepoint_commit(savepoint)
        except AnyDatabaseError as error:
            raise lost_by_receiver(error, item) from error
        try:
            if page.is_over:
                release_others(page, work)
            has_callbacks = len(connection.run_on_commit) > registered
            if has_callbacks and page.names_items and not page.is_last(work):
                unname_all(page)
            # A new cursor: django-tenants chooses the schema with it, and a receiver may have chosen another.
            with statements.preparing_cursor(connection) as cursor:
                mark([item], lock, cursor, have_changes=bool(changes))
        except AnyDatabaseError as error:
            if is_transient(error):
                raise
            raise lost_by_receiver(error, item) from error

    try:
        repeatable(call, using=page.using, durable=True, lost_races=False, about=ids_of(item))
    except AnyDatabaseError as error:
        if failure is not None:
            # The receiver broke the connection, so the rollback failed as well.
            raise failure from failure.__cause__
        if is_marked and is_refused(error):
            # A deferred constraint or trigger of the merchant's tables refused the commit.
            raise ReceiverFailed(str(item.id)) from error
        raise
    page.names_items = page.names_items and not has_callbacks


def is_refused(error: AnyDatabaseError) -> bool:
    """Return True if an error of a commit is about what was written, not about the connection or the server."""
    return not isinstance(error, OperationalError | InterfaceError)


def _require_transaction(connection: BaseDatabaseWrapper) -> None:
    """Raise TransactionManagementError if a receiver has lost its transaction.

    The next receiver would fail, or its work would be committed at once.
    """
    if connection.closed_in_transaction:
        raise TransactionManagementError("a receiver has closed the connection of its transaction")
    if connection.needs_rollback:
        raise TransactionManagementError("a receiver has marked its transaction for rollback")
    raw: Any = connection.connection
    status = transaction_status(raw) if connection.vendor == "postgresql" else None
    if status == _IN_ERROR:
        raise TransactionManagementError("a receiver has swallowed a database error")
    if status == _IDLE or (connection.vendor == "sqlite" and not raw.in_transaction):
        # SQLite, and PostgreSQL with psycopg2, would commit each of the next statements alone.
        raise TransactionManagementError("a receiver has ended its transaction by hand")


def lost_by_receiver(error: Exception, item: Item) -> ReceiverFailed:
    error.add_note(
        "A receiver has ended or lost the transaction in which it ran: it swallowed a database error, rolled back, or "
        "closed the connection."
    )
    return ReceiverFailed(str(item.id))


def _lock(page: Page, work: Work, cursor: CursorWrapper) -> tuple[Any | None, str]:
    """Lock the object with an UPDATE that writes what holds after the commit: the next item is in hand, or none is.

    Returns the mirror row as it is now and, on PostgreSQL, the id of this transaction. Raises ClaimLost, or
    WorkChanged if the row was written, the item no longer waits, or an earlier item came after the load. PostgreSQL
    needs one statement, other databases two. On SQLite the write makes this the only writer.
    """
    item, following = work.items[0], work.items[1] if len(work.items) > 1 else None
    model, using = MIRRORS.get(item.object_kind), page.using
    values = DONE
    if following is not None:
        values = {**CLAIM.values(page.token), **(naming(following) if page.names_items else NAMELESS)}
    given = {name: value for name, value in values.items() if value}
    lock = [*statements.prepared_values(ObjectDispatch, using, **given), work.row.id, page.token]
    check = [item.id, *item.object_key, *statements.prepared_values(Event, using, created_at=goes_before(item))]
    if model is not None:
        version, is_erased = work.seen or (0, False)
        check += [version, is_erased, item.account, item.object_id]
    kind = item.object_kind if model is not None else ""
    lock_sql, check_sql = _lock_sql(type(item), kind, using, tuple(values), tuple(given))
    if cursor.db.vendor == "postgresql":
        cursor.execute(f"{lock_sql} RETURNING {check_sql}", lock + check)
    else:
        cursor.execute(lock_sql, lock)
        if cursor.rowcount:
            cursor.execute(f"SELECT {check_sql}", check)
    found = cursor.fetchone() if cursor.rowcount else None
    if found is None:
        raise ClaimLost
    is_undispatched, is_overtaken, is_as_seen, transaction_id = found
    if not is_undispatched or is_overtaken or is_as_seen != (None if work.seen is None else True):
        raise WorkChanged
    instance = statements.from_values(model, work.values, using) if model is not None and work.values else None
    return instance, transaction_id


@cache
def _lock_sql(
    item: type[Item], kind: str, using: str, columns: tuple[str, ...], given: tuple[str, ...]
) -> tuple[str, str]:
    """Return the UPDATE that locks, and the columns that show if the work is still as it was loaded.

    Only ``given`` columns have parameters.
    """
    connection = connections[using]
    quote = connection.ops.quote_name
    is_as_seen = "NULL"
    if kind:
        mirror, key = quote(MIRRORS[kind]._meta.db_table), quote(id_field(kind))
        seen = "m.version = %s AND (m.erased_at IS NOT NULL) = %s"
        is_as_seen = f"(SELECT {seen} FROM {mirror} m WHERE m.account = %s AND m.{key} = %s)"  # noqa: S608  (names of ours)
    check = (
        f"EXISTS (SELECT 1 FROM {quote(item._meta.db_table)} i WHERE i.id = %s AND i.state = 'applied'),"  # noqa: S608  (names of ours)
        f" EXISTS (SELECT 1 FROM {quote(Event._meta.db_table)} e"
        " WHERE e.account = %s AND e.object_kind = %s AND e.object_id = %s"
        f" AND {GOES_FIRST} AND e.created_at < %s),"
        f" {is_as_seen}, {TRANSACTION_ID if connection.vendor == 'postgresql' else 'NULL'}"
    )
    table = quote(ObjectDispatch._meta.db_table)
    values = ", ".join(
        f"{quote(name)} = {'%s' if name in given else statements.literal(DONE[name])}" for name in columns
    )
    lock = f"UPDATE {table} SET {values} WHERE id = %s AND {only_by_key('claim_token')} = %s"  # noqa: S608  (names of ours)
    return lock, check


def goes_before(item: Item) -> datetime:
    """Return the time before which events go first. An event goes before a change of the same time."""
    return item.created_at if isinstance(item, Event) else item.at + timedelta(microseconds=1)


#: Later items of its object wait for the event ``e``: it is applied but not dispatched, or will be applied.
GOES_FIRST = "e.state IN ('applied', 'held', 'pending') AND (e.state <> 'pending' OR e.attempts = 0)"
#: A receiver that rolls back by hand moves PostgreSQL's next statements to another transaction.
TRANSACTION_ID = "pg_current_xact_id()::text"


def send(
    item: Item, changes: list[StatusChange], instance: Any | None, connection: BaseDatabaseWrapper, *, is_stale: bool
) -> None:
    activate_site_language()
    sender: type[Any] = MIRRORS.get(item.object_kind, Event)
    after_each = partial(_require_transaction, connection)
    # Copies: a receiver may set an attribute, and the item is marked, ordered, and perhaps sent again.
    event = copy(item) if isinstance(item, Event) else None
    if event is not None:
        with dispatching(event.created_at, partial(str, event.id)):
            event_received.send(
                sender=sender,
                after_each=after_each,
                event=event,
                instance=instance,
                previous_status=event.previous_status,
                is_stale=is_stale,
            )
    if instance is None or not status_changed.has_listeners(sender):
        return
    for change in changes:
        # An answer may show a change long after it happened, for example after a restored backup.
        at = change.at if event is not None else min(own_time(instance) or change.at, change.at)
        given = copy(change)
        if event is not None:
            given.event = event
        with dispatching(at, partial(_name_of, change)):
            status_changed.send(
                sender=sender,
                after_each=after_each,
                instance=instance,
                previous_status=change.previous_status,
                status=change.status,
                event=event,
                status_change=given,
                is_stale=is_stale,
            )


def _name_of(change: StatusChange) -> str:
    """Name a change by its place among the object's changes to that status.

    After a restored backup it has another primary key and time, and an answer may bring what an event brought before.
    """
    same = StatusChange.objects.filter(of_objects([change.object_key]), status=change.status)
    return f"{change.object_kind} {change.object_id} {change.status} {same.filter(pk__lt=change.pk).count()}"


def mark(items: Sequence[Item], transaction_id: str, cursor: CursorWrapper, *, have_changes: bool) -> None:
    """Mark the items and the status changes that events among them brought. Every item must still be waiting.

    Takes one statement for events and one for changes that answers brought. ``have_changes`` needs one more, except on
    PostgreSQL.
    """
    using = cursor.db.alias
    now = statements.prepared_values(Event, using, dispatched_at=timezone.now())
    for model in (Event, StatusChange):
        keys = [item.id for item in items if isinstance(item, model)]
        if not keys:
            continue
        with_changes = have_changes and model is Event
        if cursor.db.vendor == "postgresql":
            parameters = [*now, *keys] * (1 + with_changes)
            cursor.execute(_mark_sql(model, using, len(keys), with_changes), [*parameters, transaction_id])
        else:
            if with_changes:
                cursor.execute(_changes_sql(using, len(keys)), [*now, *keys])
            cursor.execute(_mark_sql(model, using, len(keys), with_changes), [*now, *keys])
        if cursor.rowcount != len(keys):
            raise TransactionManagementError("the item is not waiting any more in the transaction that locked it")


@cache
def _mark_sql(model: type[Item], using: str, count: int, with_changes: bool) -> str:
    quote = connections[using].ops.quote_name
    mark = (
        f"UPDATE {quote(model._meta.db_table)} SET state = 'done', dispatched_at = %s, error = ''"  # noqa: S608  (names of ours)
        f" WHERE id IN ({placeholders(count)}) AND {only_by_key('state')} = 'applied'"
    )
    if connections[using].vendor != "postgresql":
        return mark
    mark = f"{mark} AND {TRANSACTION_ID} = %s"
    return f"WITH changes AS ({_changes_sql(using, count)}) {mark}" if with_changes else mark


def _changes_sql(using: str, count: int) -> str:
    table = connections[using].ops.quote_name(StatusChange._meta.db_table)
    return f"UPDATE {table} SET dispatched_at = %s WHERE event_id IN ({placeholders(count)})"  # noqa: S608  (names of ours)


def only_by_key(column: str) -> str:
    """Hide a column from its index. Through that index, MariaDB would also lock the gap in which others insert."""
    return f"COALESCE({column}, '')"
