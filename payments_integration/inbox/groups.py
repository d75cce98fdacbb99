"""Dispatch items of several objects in one transaction, if all their receivers are declared ``database_only``.

The promises are the same as for one item (``calling``): the receivers' database work commits with the marks or not at
all. If anything fails, nothing is committed, and the items are dispatched one by one. So a failing receiver stops no
other item, and only its own item counts a failure.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NoReturn

from django.db import Error as AnyDatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from payments_integration import telemetry
from payments_integration.db import statements
from payments_integration.db.border import Callbacks, closed_blocks
from payments_integration.db.statements import placeholders
from payments_integration.db.transactions import is_transient, repeatable
from payments_integration.inbox.calling import (
    GOES_FIRST,
    TRANSACTION_ID,
    ReceiverFailed,
    WorkChanged,
    goes_before,
    lost_by_receiver,
    mark,
    only_by_key,
    send,
)
from payments_integration.inbox.claiming import DONE, MOST_IN_GROUP, Page, naming, release_others
from payments_integration.inbox.loading import Item, Work, ids_of
from payments_integration.models import MIRRORS, Event, ObjectDispatch
from payments_integration.projection import id_field

#: A group ends after this many seconds, or at ``Page.most_in_group`` items.
MOST_SECONDS = 0.02


class GroupFailed(ReceiverFailed):
    """A receiver of a group raised while ``item`` of ``work`` was in hand."""

    def __init__(self, work: Work, item: Item) -> None:
        super().__init__(str(item.id))
        self.work, self.item = work, item


def first_group(page: Page, objects: Iterable[Work]) -> list[Work]:
    """Return the first objects if their items share a transaction; empty if the first is dispatched alone."""
    group: list[Work] = []
    items = 0
    for work in takewhile(lambda work: work.is_grouped, objects):
        if items >= page.most_in_group or (group and work.row.object_kind != group[0].row.object_kind):
            break
        group.append(work)
        items += len(work.items)
    return group if items > 1 and page.most_in_group > 1 else []


def call_group(page: Page, group: Sequence[Work]) -> list[tuple[Work, Item]]:
    """Call the receivers of the items, object by object, and mark the items, in one transaction that is not repeated.

    Returns the items that were dispatched: the first ones. The other objects stay claimed, but if the page is over,
    all are released.

    Raises GroupFailed; WorkChanged, after clearing ``is_grouped`` of the objects that were written since the load; or
    another error. In each case nothing is committed. An error of an on-commit callback is raised after the commit.
    """
    done: list[tuple[Work, Item]] = []
    callbacks: list[Callbacks] = []
    failure: GroupFailed | None = None

    def call() -> None:
        nonlocal failure
        transaction_id = _lock(page, group)
        connection = connections[page.using]
        savepoint = None if connection.vendor == "postgresql" else connection.savepoint()
        ends_at = time.monotonic() + MOST_SECONDS
        turns = ((work, item, is_stale) for work in group for item, is_stale in work.turns())
        for work, item, is_stale in turns:
            if done and (len(done) >= page.most_in_group or time.monotonic() >= ends_at or page.is_over):
                break
            registered = Callbacks(connection, ids_of(item))
            try:
                _call(work, item, connection, is_stale=is_stale)
            except BaseException as error:
                failure = GroupFailed(work, item)
                raise failure from error
            registered.contain()
            callbacks.append(registered)
            done.append((work, item))
        items = [item for _, item in done]
        try:
            if savepoint:
                connection.savepoint_commit(savepoint)
            if page.is_over or (connection.run_on_commit and not all(work.is_grouped for work in page.objects)):
                # The callbacks may outlast the claim. Another worker must not mistake that for a death, and count a
                # failure of an object that is dispatched alone.
                page.until = 0.0
                release_others(page)
            else:
                _claim_again(group, done)
            have_changes = any(work.changes[str(item.id)] for work, item in done)
            with statements.preparing_cursor(connection) as cursor:
                mark(items, transaction_id, cursor, have_changes=have_changes)
        except AnyDatabaseError as error:
            if is_transient(error):
                raise
            raise lost_by_receiver(error, items[-1]) from error

    try:
        repeatable(call, using=page.using, durable=True, attempts=1)
    except AnyDatabaseError:
        if failure is None:
            raise
        # The receiver broke the connection, so the rollback failed as well.
        raise failure from failure.__cause__
    for registered in callbacks:
        registered.raise_interruption()
    is_slow = len(done) < min(page.most_in_group, sum(len(work.items) for work in group))
    # A smaller group locks fewer objects that it does not reach.
    page.most_in_group = len(done) if is_slow else min(2 * page.most_in_group, MOST_IN_GROUP)
    return done


def _call(work: Work, item: Item, connection: BaseDatabaseWrapper, *, is_stale: bool) -> None:
    model, values = MIRRORS.get(item.object_kind), work.values
    instance = statements.from_values(model, values, connection.alias) if model is not None and values else None
    with telemetry.during(telemetry.Handling(item)), closed_blocks():
        send(item, work.changes[str(item.id)], instance, connection, is_stale=is_stale)


def _claim_again(group: Sequence[Work], done: Sequence[tuple[Work, Item]]) -> None:
    """Keep the claim of the objects with items that the group did not reach. The lock released all objects."""
    dispatched = {id(item) for _, item in done}
    left = []
    for work in group:
        following = next((item for item in work.items if id(item) not in dispatched), None)
        if following is not None:
            for name, value in naming(following).items():
                setattr(work.row, name, value)
            left.append(work.row)
    statements.update_many(left)


def _lock(page: Page, group: Sequence[Work]) -> str:
    """Lock the objects and release them in this transaction. Returns the transaction's id on PostgreSQL.

    Raises WorkChanged if another worker has taken an object, its row was written, or an earlier event came after the
    load. PostgreSQL needs one statement, other databases two. On SQLite the write makes this the only writer.
    """
    using, connection = page.using, connections[page.using]
    keys = [work.row.id for work in group]
    items = [item for work in group for item in work.items]
    events = [item.id for item in items if isinstance(item, Event)]
    # One time for all objects: an event after the items of its own object may count as late. That object is then
    # dispatched alone.
    check: list[Any] = [*statements.prepared_values(Event, using, created_at=max(map(goes_before, items))), *events]
    lock: list[Any] = [*keys, page.token]
    lock_sql, check_sql = _lock_sql(group[0].row.object_kind, using, len(keys), len(events))
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"{lock_sql} RETURNING {check_sql}", lock + check)
        else:
            cursor.execute(lock_sql, lock)
            if cursor.rowcount != len(keys):
                _dispatch_alone(group)
            table = connection.ops.quote_name(ObjectDispatch._meta.db_table)
            sql = f"SELECT {check_sql} FROM {table} d WHERE d.id IN ({placeholders(len(keys))})"  # noqa: S608  (ours)
            cursor.execute(sql, check + keys)
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    transaction_id = ""
    changed = []
    for work in group:
        is_overtaken, version, is_erased, transaction_id = found.get(work.row.id, (True, None, None, ""))
        if is_overtaken or (None if version is None else (version, bool(is_erased))) != work.seen:
            changed.append(work)
    if changed:
        _dispatch_alone(changed)
    return transaction_id


def _dispatch_alone(works: Sequence[Work]) -> NoReturn:
    for work in works:
        work.is_grouped = False
    raise WorkChanged


@lru_cache(maxsize=512)
def _lock_sql(kind: str, using: str, objects: int, events: int) -> tuple[str, str]:
    """Return the UPDATE that locks, and the columns that show if the work is still as it was loaded."""
    connection = connections[using]
    quote = connection.ops.quote_name
    columns = ", ".join(f"{quote(name)} = {statements.literal(value)}" for name, value in DONE.items())
    lock = (
        f"UPDATE {quote(ObjectDispatch._meta.db_table)} AS d SET {columns}"  # noqa: S608  (names of ours)
        f" WHERE d.id IN ({placeholders(objects)}) AND {only_by_key('d.claim_token')} = %s"
    )
    transaction_id = TRANSACTION_ID if connection.vendor == "postgresql" else "NULL"
    not_these = f" AND e.id NOT IN ({placeholders(events)})" if events else ""
    is_overtaken = (
        f"EXISTS (SELECT 1 FROM {quote(Event._meta.db_table)} e"  # noqa: S608  (names of ours)
        " WHERE e.account = d.account AND e.object_kind = d.object_kind AND e.object_id = d.object_id"
        f" AND {GOES_FIRST} AND e.created_at < %s{not_these})"
    )
    version = is_erased = "NULL"
    if model := MIRRORS.get(kind):
        mirror = f"FROM {quote(model._meta.db_table)} m"
        row = f"{mirror} WHERE m.account = d.account AND m.{quote(id_field(kind))} = d.object_id"
        version, is_erased = f"(SELECT m.version {row})", f"(SELECT m.erased_at IS NOT NULL {row})"
    return lock, f"d.id, {is_overtaken}, {version}, {is_erased}, {transaction_id}"
