"""Statements of the busiest paths: some whose text is made once, and what keeps others to the index meant for them.

Django makes a text anew each time, which takes longer than the database does for one row by its key. And until a table
that has grown is analysed, PostgreSQL's planner expects a few rows wherever it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BinaryField, CharField, DateTimeField, Field, Model, QuerySet, TextField, Value
from django.db.models.constants import OnConflict
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact
from django.db.models.sql import InsertQuery
from django.views.decorators.debug import sensitive_variables

ModelT = TypeVar("ModelT", bound=Model)


@sensitive_variables()  # a report of an error would show payers
def insert(row: Model, *, using: str) -> int:
    """INSERT one row as it is here; returns how many came in.

    For models of plain fields: what one would make of a value before it is saved (``auto_now``) is left out. 0: the
    key is taken, which is no error to the database: that would write the row to its log. MariaDB's IGNORE ignores more
    than keys: there it is an IntegrityError.
    """
    model = type(row)
    values = _columns(model)(row)
    # An empty one is a part of the text: each parameter costs as much as a column.
    holders = tuple(["%s" if value else _holder(value) for value in values])
    key = (model, using, holders)
    if key not in _inserts:
        _inserts[key] = _insert_sql(row, using, holders)
    sql, given = _inserts[key]
    connection = connections[using]
    parameters: list[Any] = [
        value if type(value) is plain else _prepared(value, field, connection)
        for position, field, plain in given
        for value in [values[position]]
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def values_by_key(model: type[Model], key: Any, *names: str, using: str) -> tuple[Any, ...] | None:
    """These columns of one row, as the database has them; None where there is no such row."""
    with connections[using].cursor() as cursor:
        cursor.execute(_select_sql(model, using, names), [model._meta.pk.get_db_prep_value(key, connections[using])])
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def is_any_in_state(state: str, *models: type[Model], using: str) -> bool:
    """Whether any row of these is in this state, of whatever account: a look before a longer one."""
    with connections[using].cursor() as cursor:
        cursor.execute(_state_sql(models, using), [str(state)] * 2 * len(models))
        (found,) = cursor.fetchone()
    return bool(found)


def is_empty(model: type[Model], *, using: str) -> bool:
    """Whether a table has no row at all: a look before a longer one."""
    table = connections[using].ops.quote_name(model._meta.db_table)
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608  (our name)
        return cursor.fetchone() is None


@contextmanager
def in_index_order(using: str) -> Iterator[None]:
    """Within, and within a transaction, PostgreSQL reads rows by an index that has their order, where there is one.

    It would collect and sort a whole backlog for every batch. Entries of rows that are elsewhere in the index by now
    are marked as dead on the way, too. Only for that statement: others need what is switched off.
    """
    if connections[using].vendor != "postgresql":
        yield
        return
    with connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        yield
        cursor.execute("SET LOCAL enable_bitmapscan TO DEFAULT")


def of_account(rows: QuerySet[ModelT], account: str | None) -> QuerySet[ModelT]:
    """Rows of one account, or of all; found by their state.

    The column stands in an expression, so that no index of accounts has a part in it: it would lead through all rows.
    """
    if account is None:
        return rows
    return rows.filter(Exact(Coalesce("account", Value("")), account))


class _Given(NamedTuple):
    """A column that is a parameter."""

    position: int
    field: Field[Any, Any]
    #: Values of just this type go to the database as they are; of others the field makes what it takes.
    plain: type | None


_inserts: dict[tuple[type[Model], str, tuple[str, ...]], tuple[str, list[_Given]]] = {}


def _insert_sql(row: Model, using: str, holders: tuple[str, ...]) -> tuple[str, list[_Given]]:
    fields = row._meta.local_concrete_fields
    query = InsertQuery(type(row), on_conflict=None if connections[using].vendor == "mysql" else OnConflict.IGNORE)
    query.insert_values(fields, [row])
    [(sql, _)] = query.get_compiler(using=using).as_sql()
    first, *others = sql.split("%s")
    text = first + "".join(holder + other for holder, other in zip(holders, others, strict=True))
    return text, [
        _Given(position, field, _plain(field, connections[using]))
        for position, field in enumerate(fields)
        if holders[position] == "%s"
    ]


@cache
def _columns(model: type[Model]) -> Callable[[Model], tuple[Any, ...]]:
    return attrgetter(*(field.attname for field in model._meta.local_concrete_fields))


_TEXT = (CharField.get_prep_value, TextField.get_prep_value)


def _plain(field: Field[Any, Any], connection: BaseDatabaseWrapper) -> type | None:
    if type(field).get_prep_value in _TEXT and type(field).get_db_prep_value is Field.get_db_prep_value:
        return str
    if connection.vendor == "postgresql":
        return {DateTimeField: datetime, BinaryField: bytes}.get(type(field))
    return None


def _prepared(value: Any, field: Field[Any, Any], connection: BaseDatabaseWrapper) -> Any:
    value = field.get_db_prep_save(value, connection)
    # psycopg takes long to find out that a choice is text.
    return value.value if isinstance(value, Enum) else value


def _holder(value: Any) -> str:
    if value is None:
        return "NULL"
    if type(value) is str and not value:
        return "''"
    return "0" if type(value) is int and not value else "%s"


@cache
def _select_sql(model: type[Model], using: str, names: tuple[str, ...]) -> str:
    rows = model._default_manager.using(using).filter(pk=model._meta.pk.get_default()).values_list(*names)
    return str(rows.query.get_compiler(using=using).as_sql()[0])


@cache
def _state_sql(models: tuple[type[Model], ...], using: str) -> str:
    quote = connections[using].ops.quote_name
    state = quote("state")
    # A range, and its order: only the index of states has both. Where many rows were in this state when the table was
    # analysed, PostgreSQL would expect to meet one soon wherever it looks, and read the whole table to find none.
    looks = [
        f"(SELECT 1 FROM {quote(model._meta.db_table)} WHERE {state} >= %s AND {state} <= %s"  # noqa: S608  (our names)
        f" ORDER BY {state} LIMIT 1) IS NOT NULL"
        for model in models
    ]
    return f"SELECT {' OR '.join(looks)}"
