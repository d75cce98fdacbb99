"""Speed up the busiest paths: SQL that is built once, many rows in one statement, and hints for the planner.

Django builds the SQL on each call, which takes longer than the database needs for one row by its key. In a batch it
spends most of the time on the placeholders of a long INSERT, one for each value of each row. PostgreSQL gets the rows
as one JSON document instead, which takes a tenth of the time. And PostgreSQL's planner expects few rows in a table
that has grown since it was last analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import datetime
from enum import Enum
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import AutoField, CharField, DateTimeField, Field, Model, QuerySet, Subquery, TextField, Value
from django.db.models.constants import OnConflict
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact
from django.db.models.signals import post_save, pre_save
from django.db.models.sql import InsertQuery, Query
from django.db.models.sql.compiler import SQLCompiler
from django.db.transaction import TransactionManagementError
from django.views.decorators.debug import sensitive_variables

from payments_integration.db import sizes
from payments_integration.db.fields import BinaryField, OwnTextField, writable

ModelT = TypeVar("ModelT", bound=Model)


@sensitive_variables()  # a report of an error would show payers
def insert_if_free(row: Model, *, using: str) -> int:
    """INSERT one row if its key is free. Returns how many rows were inserted: 0 if the key is taken.

    Only for plain fields: ``pre_save`` (``auto_now``) is not called. A taken key is not an error, because PostgreSQL
    would write the row to its log. MariaDB raises IntegrityError: its IGNORE would hide other errors too. DataError
    means that the row is too large.
    """
    values = _columns(type(row))(row)
    # An empty value or a choice is part of the SQL: a parameter costs as much time as a column.
    shape = [
        value if isinstance(value, Enum) or not (value or isinstance(value, (dict, list))) else "%s"
        for value in values
    ]
    connection = connections[using]
    on_conflict = None if connection.vendor == "mysql" else OnConflict.IGNORE
    return _insert(row, values, connection, tuple(shape), on_conflict)


@sensitive_variables()  # a report of an error would show payers
def _insert(
    row: Model,
    values: Sequence[Any],
    connection: BaseDatabaseWrapper,
    shape: tuple[Any, ...],
    on_conflict: OnConflict | None,
) -> int:
    key = (type(row), connection.alias, shape, on_conflict)
    if key not in _inserts:
        _inserts[key] = _insert_sql(row, connection.alias, [literal(value) for value in shape], on_conflict)
    sql, columns = _inserts[key]
    parameters: list[Any] = [
        value if value is None or type(value) is plain else _prepared(value, field, connection)
        for position, field, plain in columns
        for value in [values[position]]
    ]
    if connection.vendor == "mysql":
        sizes.refuse_too_large(parameters, using=connection.alias)
    with preparing_cursor(connection) as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def insert_like_save(row: Model) -> None:
    """INSERT one unsaved row as ``save`` does, in a third of its time: Django builds the statement anew for each row.

    IntegrityError means that a key is taken. A key that the database generates is left out of the row. If receivers of
    other apps wait for rows of this model, this is ``save``, which calls them.
    """
    model = type(row)
    using = router.db_for_write(model)
    if has_receivers(model):
        row.save(using=using, force_insert=True)
        return
    with transaction.mark_for_rollback_on_error(using):
        # Without ON CONFLICT: under REPEATABLE READ, PostgreSQL would not say that the key is taken, but that the
        # transaction must be repeated, and a caller's transaction cannot be.
        values = _columns(model)(row)
        # One placeholder for each field, so that all rows share one text, with any optional fields.
        _insert(row, values, connections[using], ("%s",) * len(values), None)
    row._state.adding, row._state.db = False, using


def has_receivers(model: type[Model]) -> bool:
    """Return True if other apps have receivers for each saved row of this model."""
    return pre_save.has_listeners(model) or post_save.has_listeners(model)


def update_row(model: type[Model], using: str, *, where: dict[str, Any], values: dict[str, Any]) -> int:
    """UPDATE the row in which these fields have these values. Returns how many rows. Not for binary columns."""
    parameters = prepared_values(model, using, **values) + prepared_values(model, using, **where)
    with connections[using].cursor() as cursor:
        cursor.execute(_update_row_sql(model, using, tuple(where), tuple(values)), parameters)
        return int(cursor.rowcount)


def is_there(model: type[Model], using: str, **where: Any) -> bool:
    """Return True if there is a row in which these fields have these values."""
    with connections[using].cursor() as cursor:
        cursor.execute(_is_there_sql(model, using, tuple(where)), prepared_values(model, using, **where))
        return cursor.fetchone() is not None


def values_by_key(model: type[Model], key: Any, *names: str, using: str) -> tuple[Any, ...] | None:
    """Return these columns of one row, without conversion; None if there is no such row."""
    with connections[using].cursor() as cursor:
        cursor.execute(_select_sql(model, using, names), [model._meta.pk.get_db_prep_value(key, connections[using])])
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def prepared_values(model: type[Model], using: str, **values: Any) -> list[Any]:
    """Return the values of fields as parameters of a statement."""
    return [
        value if value is None or type(value) is plain else _prepared(value, field, connections[using])
        for value, (field, plain) in zip(values.values(), _parameters(model, using, tuple(values)), strict=True)
    ]


@cache
def _parameters(model: type[Model], using: str, names: tuple[str, ...]) -> list[tuple[Field[Any, Any], type | None]]:
    """Return the fields, each with the type whose values it need not convert."""
    fields: Any = model._meta
    return [(field, _plain(field, connections[using])) for field in map(fields.get_field, names)]


def placeholders(count: int) -> str:
    return ", ".join(["%s"] * count)


def columns(model: type[Model]) -> list[str]:
    """Return the columns of a model, in the order that ``from_values`` expects."""
    return [str(field.column) for field in model._meta.concrete_fields]


def rows_in(
    model: type[Model], keys: Mapping[str, Collection[str]], using: str, *, lock: bool = False, wait: bool = False
) -> list[Sequence[Any]]:
    """Return the rows whose columns each have one of these texts, as column values without conversion.

    ``lock``: lock them in the order of their keys. Without ``wait``, leave out what another transaction has locked.
    Raises TransactionManagementError outside a transaction, where the lock would end with the statement.
    """
    connection = connections[using]
    features = connection.features
    if lock and not connection.in_atomic_block:
        raise TransactionManagementError("rows are locked within a transaction only")
    where = " AND ".join(f"{_quoted(using, column)} IN ({placeholders(len(texts))})" for column, texts in keys.items())
    sql = f"SELECT {_quoted(using, *columns(model))} FROM {_table(model, using)} WHERE {where}"  # noqa: S608  (ours)
    if lock and features.has_select_for_update:
        skips = features.has_select_for_update_skip_locked and not wait
        lock_sql = connection.ops.for_update_sql(skip_locked=skips, no_key=features.has_select_for_no_key_update)
        sql = f"{sql} ORDER BY {_quoted(using, model._meta.pk.column)} {lock_sql}"
    with connection.cursor() as cursor:
        cursor.execute(sql, list(chain.from_iterable(keys.values())))
        return list(cursor.fetchall())


def instance(model: type[ModelT], values: Sequence[Any], using: str) -> ModelT:
    """Return an instance of the model from its converted values, as ``built_once`` returns them."""
    return model.from_db(using, _conversions(model, using)[0], values)


def from_values(model: type[ModelT], values: Sequence[Any], using: str) -> ModelT:
    """Return an instance of the model from its column values, as a statement returned them."""
    names, conversions = _conversions(model, using)
    converted, connection = list(values), connections[using] if conversions else None
    for position, expression, converters in conversions:
        for convert in converters:
            converted[position] = convert(converted[position], expression, connection)
    return model.from_db(using, names, converted)


def values_of(using: str, *expressions: Any) -> tuple[Any, ...]:
    """Return the values of subqueries and other expressions that belong to no row, in one statement."""
    return tuple(next(iter(values_query(*expressions).get_compiler(using=using).results_iter())))


def values_query(*expressions: Any) -> Query:
    """Return the query of ``values_of``, for ``built_once``."""
    query = Query(None)
    for number, expression in enumerate(expressions):
        query.add_annotation(expression, f"value_{number}")
    return query


class _Built(NamedTuple):
    """A SELECT with placeholders among its parameters, and the conversions of its columns by position."""

    sql: str
    parameters: tuple[Any, ...]
    conversions: dict[int, Any]


def _build(queries: Sequence[Query], using: str) -> _Built:
    """Build one SELECT; of several queries the union, whose values are converted as in the first query."""
    compilers = [query.get_compiler(using=using) for query in queries]
    sql, parameters = compilers[0].as_sql() if len(compilers) == 1 else _union_sql(compilers)
    compiler = compilers[0]
    found = compiler.get_converters([expression for expression, *_ in compiler.select])
    conversions = {
        # Only the type of a subquery is needed, and not its whole query.
        position: (
            [_of_any_connection(each, compiler.connection) for each in converters],
            Value(None, expression.output_field) if isinstance(expression, Subquery) else expression,
        )
        for position, (converters, expression) in found.items()
    }
    return _Built(str(sql), tuple(parameters), conversions)


def _of_any_connection(convert: Callable[..., Any], connection: BaseDatabaseWrapper) -> Callable[..., Any]:
    """Return a conversion that can be kept: a method of SQLite or MariaDB would keep its connection open as well."""
    if getattr(convert, "__self__", None) is not connection.ops:
        return convert
    name = convert.__name__
    return lambda value, expression, connection: getattr(connection.ops, name)(value, expression, connection)


def _rows_of(built: _Built, given: Mapping[Any, Any], using: str) -> list[list[Any]]:
    connection = connections[using]
    parameters = [
        # JSON of psycopg2 would keep the connection that it was sent over. A path into JSON is a list on PostgreSQL.
        copy(each) if hasattr(each, "prepare") or isinstance(each, list) else given.get(each, each)
        for each in built.parameters
    ]
    with connection.cursor() as cursor:
        cursor.execute(built.sql, parameters)
        found = [list(row) for row in cursor.fetchall()]
    for position, (converters, expression) in built.conversions.items():
        for convert in converters:
            for row in found:
                row[position] = convert(row[position], expression, connection)
    return found


def built_once(
    query: Callable[..., QuerySet[Any, Any] | Query | list[QuerySet[Any, Any]]],
) -> Callable[..., list[list[Any]]]:
    """Make a function that returns a query return its rows, with SQL that is built once for equal arguments.

    It may return a list of queries, as ``union_of`` takes them. They have placeholders for what differs from call to
    call: ``stand_ins`` for texts, and fixed times for times. ``given`` and ``times`` map them to the values of the
    call. Each row is a list of column values.
    """

    @lru_cache(maxsize=64)
    def build(using: str, *args: Any) -> _Built:
        made = query(*args)
        queries = made if isinstance(made, list) else [made]
        return _build([each if isinstance(each, Query) else each.query for each in queries], using)

    def rows(
        *args: Any, using: str, given: Mapping[Any, Any], times: Mapping[datetime, datetime] = MappingProxyType({})
    ) -> list[list[Any]]:
        prepared = connections[using].ops.adapt_datetimefield_value
        values = {**given, **{prepared(placeholder): prepared(time) for placeholder, time in times.items()}}
        return _rows_of(build(using, *args), values, using)

    return rows


#: Placeholders for the account and the id of one object: ``about`` maps them to the texts of a call.
ACCOUNT, OBJECT = "\ufffd account of this call", "\ufffd object of this call"


def about(account: str, object_id: str) -> dict[str, str]:
    return {ACCOUNT: account, OBJECT: object_id}


@lru_cache(maxsize=256)
def stand_ins(count: int, prefix: str = "") -> tuple[str, ...]:
    """Return this many placeholders for texts, for a query of ``built_once``."""
    return tuple(intern(f"\ufffd {prefix}{number}") for number in range(count))


def union_of(parts: Sequence[QuerySet[Any, Any]], *, using: str, convert: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows of several queries, each with its own LIMIT, in one statement.

    With ``convert`` values are converted as in the first query, otherwise as the driver returns them. Django's
    ``union`` refuses parts with a LIMIT on SQLite.
    """
    if not parts:
        return []
    compilers = [part.query.get_compiler(using=using) for part in parts]
    with connections[using].cursor() as cursor:
        cursor.execute(*_union_sql(compilers))
        rows = list(cursor.fetchall())
    return [tuple(row) for row in compilers[0].results_iter(results=[rows])] if convert else rows


def _union_sql(compilers: Sequence[SQLCompiler]) -> tuple[str, list[Any]]:
    texts: list[str] = []
    parameters: list[Any] = []
    for number, compiler in enumerate(compilers):
        sql, given = compiler.as_sql()
        texts.append(f"SELECT * FROM ({sql}) AS part_{number}")  # noqa: S608  (SQL of Django)
        parameters += given
    return " UNION ALL ".join(texts), parameters


def lock_row(model: type[ModelT], key: Any) -> ModelT | None:
    """Lock one row and read it as it is committed now; None if there is none. One statement, in a transaction.

    Under REPEATABLE READ, a transaction that waits for a row lock still sees its old snapshot, unless the row was
    updated. After a write, PostgreSQL refuses that transaction, and ``repeatable`` starts it again. So the row, which
    needs a column ``account``, is written without a change.
    """
    using = router.db_for_write(model)
    if connections[using].vendor != "postgresql":
        return model._default_manager.using(using).select_for_update().filter(pk=key).first()
    with connections[using].cursor() as cursor:
        cursor.execute(_lock_sql(model, using), [key])
        values = cursor.fetchone()
    return from_values(model, values, using) if values is not None else None


def are_there(*wanted: tuple[type[Model], str | None], using: str) -> list[bool]:
    """Return for each model if any row is in this state (None: in any), in any account. One cheap statement."""
    parameters = [str(state) for _, state in wanted if state is not None for _ in range(2)]
    with connections[using].cursor() as cursor:
        cursor.execute(_are_there_sql(wanted, using), parameters)
        return [bool(found) for found in cursor.fetchone()]


def in_index_order(sql: str, parameters: Sequence[Any], *, using: str) -> list[Sequence[Any]]:
    """Return the rows of a SELECT, which PostgreSQL reads by an index in their order. Call it inside a transaction.

    Otherwise it collects and sorts the whole backlog for every batch. The index scan also marks dead index entries.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())
        hint, usual = "SET LOCAL enable_bitmapscan = off", "SET LOCAL enable_bitmapscan TO DEFAULT"
        # One round trip, if a cursor of psycopg 3 writes the values into the text. Only such a cursor has mogrify.
        is_psycopg_3 = hasattr(connection.connection, "prepare_threshold")
        if is_psycopg_3 and hasattr(cursor, "mogrify") and not connection.execute_wrappers:
            cursor.execute(f"{hint}; {sql}; {usual}", parameters)
            cursor.nextset()
            return list(cursor.fetchall())
        cursor.execute(hint)
        cursor.execute(sql, parameters)
        rows = list(cursor.fetchall())
        cursor.execute(usual)
        return rows


def filter_account(rows: QuerySet[ModelT], account: str | None) -> QuerySet[ModelT]:
    """Keep the rows of one account (None: of all)."""
    return rows if account is None else rows.filter(account=account)


def filter_account_last(rows: QuerySet[ModelT], account: str | None) -> QuerySet[ModelT]:
    """Keep the rows of one account (None: of all), from rows that an index on the state finds.

    The column is wrapped in an expression. Otherwise the planner may choose an index on the account instead, and read
    all rows of that account.
    """
    if account is None:
        return rows
    return rows.filter(Exact(Coalesce("account", Value("")), account))


def preparing_cursor(connection: BaseDatabaseWrapper) -> CursorWrapper:
    """Return a cursor for a statement that is always the same text.

    If the project has set psycopg's ``prepare_threshold``, PostgreSQL parses and plans the statement once per
    connection. Django's own cursors write the values into the text, so that no two texts are the same.
    """
    # From Django: django-tenants chooses the schema as it makes a cursor.
    cursor = connection.cursor()
    raw: Any = connection.connection
    # A wrapper of the project may add a second statement, as django-pghistory does. Only Django's cursors take two.
    is_plain = connection.vendor != "postgresql" or bool(connection.execute_wrappers)
    if is_plain or getattr(raw, "prepare_threshold", None) is None:
        return cursor
    import psycopg  # noqa: PLC0415  (another database needs no such driver)

    cursor.cursor.close()
    cursor.cursor = psycopg.Cursor(raw)
    return cursor


class _Parameter(NamedTuple):
    """A column whose value is a parameter."""

    position: int
    field: Field[Any, Any]
    #: Values of exactly this type need no conversion by the field.
    plain: type | None


_inserts: dict[tuple[type[Model], str, tuple[Any, ...], OnConflict | None], tuple[str, list[_Parameter]]] = {}


def _insert_sql(
    row: Model, using: str, placeholders: Sequence[str], on_conflict: OnConflict | None
) -> tuple[str, list[_Parameter]]:
    fields = _written(type(row))
    query = InsertQuery(type(row), on_conflict=on_conflict)
    query.insert_values(fields, [row])
    [(sql, _)] = query.get_compiler(using=using).as_sql()
    first, *others = sql.split("%s")
    text = first + "".join(placeholder + other for placeholder, other in zip(placeholders, others, strict=True))
    return text, [
        _Parameter(position, field, _plain(field, connections[using]))
        for position, field in enumerate(fields)
        if placeholders[position] == "%s"
    ]


@cache
def _columns(model: type[Model]) -> Callable[[Model], tuple[Any, ...]]:
    return attrgetter(*(field.attname for field in _written(model)))


@cache
def _written(model: type[Model]) -> list[Field[Any, Any]]:
    """Return the fields of a new row, without a key that the database generates."""
    return [field for field in model._meta.local_concrete_fields if not isinstance(field, AutoField)]


@cache
def _update_row_sql(model: type[Model], using: str, where: tuple[str, ...], values: tuple[str, ...]) -> str:
    changed, found = ", ".join(_equal(model, using, values)), " AND ".join(_equal(model, using, where))
    return f"UPDATE {_table(model, using)} SET {changed} WHERE {found}"  # noqa: S608  (names of ours)


@cache
def _is_there_sql(model: type[Model], using: str, where: tuple[str, ...]) -> str:
    found = " AND ".join(_equal(model, using, where))
    return f"SELECT 1 FROM {_table(model, using)} WHERE {found} LIMIT 1"  # noqa: S608  (names of ours)


def _table(model: type[Model], using: str) -> str:
    return connections[using].ops.quote_name(model._meta.db_table)


def _quoted(using: str, *names: Any) -> str:
    return ", ".join(map(connections[using].ops.quote_name, names))


def _equal(model: type[Model], using: str, names: tuple[str, ...]) -> list[str]:
    fields: Any = model._meta
    return [f"{_quoted(using, fields.get_field(name).column)} = %s" for name in names]


_TEXT = (CharField.get_prep_value, TextField.get_prep_value)


def _plain(field: Field[Any, Any], connection: BaseDatabaseWrapper) -> type | None:
    if type(field).get_prep_value in _TEXT and type(field).get_db_prep_value is Field.get_db_prep_value:
        return str
    if connection.vendor == "postgresql":
        return {DateTimeField: datetime, BinaryField: bytes}.get(type(field))
    return None


def _prepared(value: Any, field: Field[Any, Any], connection: BaseDatabaseWrapper) -> Any:
    value = field.get_db_prep_save(value, connection)
    # psycopg is slow to recognise a choice as text.
    return value.value if isinstance(value, Enum) else value


def literal(value: Any) -> str:
    """Return the value as SQL, if it is null, empty, zero or a choice; otherwise a placeholder."""
    if value is None:
        return "NULL"
    if isinstance(value, str) and not value:
        return "''"
    if isinstance(value, Enum):
        return f"'{value.value}'" if str(value.value).isidentifier() else "%s"
    return "0" if type(value) is int and not value else "%s"


@cache
def _lock_sql(model: type[Model], using: str) -> str:
    [key], names = _equal(model, using, (model._meta.pk.name,)), _quoted(using, *columns(model))
    return f"UPDATE {_table(model, using)} SET account = account WHERE {key} RETURNING {names}"  # noqa: S608  (names of ours)


@cache
def _select_sql(model: type[Model], using: str, names: tuple[str, ...]) -> str:
    rows = model._default_manager.using(using).filter(pk=model._meta.pk.get_default()).values_list(*names)
    return str(rows.query.get_compiler(using=using).as_sql()[0])


@cache
def _conversions(model: type[Model], using: str) -> tuple[list[str], list[tuple[int, Any, list[Callable[..., Any]]]]]:
    """Return the names of a row's columns as attributes, and what some of them are converted by."""
    connection = connections[using]
    found = []
    for position, field in enumerate(model._meta.concrete_fields):
        expression: Any = field.cached_col
        converters = connection.ops.get_db_converters(expression) + expression.get_db_converters(connection)
        if converters:
            found.append((position, expression, [_of_any_connection(each, connection) for each in converters]))
    return [field.attname for field in model._meta.concrete_fields], found


@cache
def _are_there_sql(wanted: tuple[tuple[type[Model], str | None], ...], using: str) -> str:
    state = connections[using].ops.quote_name("state")
    # A range with an order, which only the index on the state serves. If many rows were in this state when the table
    # was analysed, PostgreSQL would otherwise read the whole table and expect to find one soon.
    in_state = f" WHERE {state} >= %s AND {state} <= %s ORDER BY {state}"
    checks = [
        f"(SELECT 1 FROM {_table(model, using)}{'' if given is None else in_state} LIMIT 1) IS NOT NULL"  # noqa: S608  (table names of ours)
        for model, given in wanted
    ]
    return f"SELECT {', '.join(checks)}"


def insert_many(rows: Sequence[Model], *, keys: bool = True) -> None:
    """INSERT unsaved rows of one model, in a transaction. One statement, or a few if the rows are large.

    IntegrityError means that a key is taken, DataError that a row is too large. ``keys``: the caller needs the primary
    keys that the database generates.
    """
    if not rows:
        return
    model = type(rows[0])
    using = router.db_for_write(model)
    has_keys = rows[0].pk is not None
    if connections[using].vendor == "postgresql" and (has_keys or not keys):
        _execute(using, _insert_many_sql(model, using, has_keys), rows)
        for row in rows:
            row._state.adding, row._state.db = False, using
    else:
        # Django does so by itself, but from 6.1 on not for a single statement.
        with transaction.mark_for_rollback_on_error(using):
            for portion in sizes.portions(rows, using=using):
                model._default_manager.using(using).bulk_create(portion)


def insert_or_update(rows: Sequence[Model], *, unique: Sequence[str], changes: dict[str, str]) -> None:
    """INSERT unsaved rows of one model, without keys. If the unique columns are taken, UPDATE the row there.

    ``changes`` maps a column to SQL, in which ``{old}.name`` is a column of that row and ``{new[name]}`` one of the
    new row. MariaDB assigns them in their order and uses the new values from then on. One statement per hundred rows,
    or a few.
    """
    if not rows:
        return
    model = type(rows[0])
    using = router.db_for_write(model)
    connection = connections[using]
    quote = connection.ops.quote_name
    fields = _without_key(model)
    names = [field.column for field in fields]
    if connection.vendor == "mysql":
        new = {name: f"VALUES({quote(name)})" for name in names}
        conflict = "ON DUPLICATE KEY UPDATE"
    else:
        new = {name: f"EXCLUDED.{quote(name)}" for name in names}
        conflict = f"ON CONFLICT ({_quoted(using, *unique)}) DO UPDATE SET"
    old = _table(model, using)
    updates = ", ".join(f"{quote(column)} = {sql.format(old=old, new=new)}" for column, sql in changes.items())
    for portion in sizes.portions(rows, using=using, most=100):
        query = InsertQuery(model)
        query.insert_values(fields, portion)
        with transaction.mark_for_rollback_on_error(using), connection.cursor() as cursor:
            for sql, parameters in query.get_compiler(using=using).as_sql():
                cursor.execute(f"{sql} {conflict} {updates}", parameters)


def update_many(rows: Sequence[Model]) -> None:
    """UPDATE all columns of these rows of one model. The caller's transaction must have locked them."""
    if not rows:
        return
    model = type(rows[0])
    using = router.db_for_write(model)
    connection = connections[using]
    if connection.vendor == "postgresql":
        if _execute(using, _update_sql(model, using), rows, with_keys=True) != len(rows):
            raise DatabaseError(f"some rows of {model._meta.db_table} to be updated do not exist")
        return
    # An upsert that always updates, because the rows exist.
    target: dict[str, Any] = {}
    if connection.features.supports_update_conflicts_with_target:
        target = {"unique_fields": ["pk"]}
    names = [field.name for field in _without_key(model)]
    with transaction.mark_for_rollback_on_error(using):
        for portion in sizes.portions(rows, using=using):
            manager = model._default_manager.using(using)
            manager.bulk_create(portion, update_conflicts=True, update_fields=names, **target)


@sensitive_variables()  # a report of an error would show payers
def _execute(using: str, sql: str, rows: Sequence[Model], *, with_keys: bool = False) -> int:
    fields = type(rows[0])._meta.concrete_fields
    names = [field.attname for field in fields]
    records = [{name: getattr(row, name) for name in names} for row in rows]
    for name in [field.attname for field in fields if isinstance(field, OwnTextField)]:
        for record in records:
            record[name] = writable(record[name], using)
    # Imported with the first bulk write, because every process imports this module.
    import msgspec  # noqa: PLC0415

    document = msgspec.json.encode(records, enc_hook=_plain_text).decode()
    if len(document) > sizes.MOST_BYTES and len(rows) > 1:
        middle = len(rows) // 2
        return sum(_execute(using, sql, half, with_keys=with_keys) for half in (rows[:middle], rows[middle:]))
    parameters: list[Any] = [document, [row.pk for row in rows]] if with_keys else [document]
    # As in Django's own writes: after an error, the outer transaction can only be rolled back.
    with transaction.atomic(using=using, savepoint=False), connections[using].cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def _plain_text(value: object) -> str:
    if isinstance(value, str):  # a subclass, such as a choice or a safe string
        return str.__str__(value)
    raise TypeError(f"a row cannot contain a {type(value).__name__}")


@cache
def _insert_many_sql(model: type[Model], using: str, has_keys: bool) -> str:
    fields: Any = model._meta.concrete_fields if has_keys else _without_key(model)
    names = _quoted(using, *(field.column for field in fields))
    values = ", ".join(_value(field, using) for field in fields)
    return f"INSERT INTO {_table(model, using)} ({names}) SELECT {values} FROM {_records(model, using)}"  # noqa: S608  (table names of ours)


@cache
def _update_sql(model: type[Model], using: str) -> str:
    table, key = _table(model, using), model._meta.pk
    values = ", ".join(f"{_quoted(using, each.column)} = {_value(each, using)}" for each in _without_key(model))
    ours = f"{table}.{_quoted(using, key.column)}"
    # The planner assumes a hundred rows per document and would read the whole table: the keys show the number.
    which = f"{ours} = {_value(key, using)} AND {ours} = ANY(%s)"
    return f"UPDATE {table} SET {values} FROM {_records(model, using)} WHERE {which}"  # noqa: S608  (table names of ours)


def _records(model: type[Model], using: str) -> str:
    """Return SQL for the JSON document as a table whose columns are named like the attributes."""
    columns = ", ".join(
        f"{_quoted(using, field.attname)} "
        f"{'text' if isinstance(field, BinaryField) else field.db_type(connections[using])}"
        for field in model._meta.concrete_fields
    )
    return f"json_to_recordset(%s) AS records({columns})"


def _value(field: Field[Any, Any], using: str) -> str:
    value = f"records.{_quoted(using, field.attname)}"
    return f"decode({value}, 'base64')" if isinstance(field, BinaryField) else value


def _without_key(model: type[Model]) -> list[Any]:
    return [field for field in model._meta.concrete_fields if not field.primary_key]
