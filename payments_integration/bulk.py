"""Many rows in one statement, cheaply.

Django spends most of a batch's time on the placeholders of a long INSERT: one for each value of each row. PostgreSQL
takes the rows as one JSON document instead, which is a tenth of the work here and no more there. Other databases get
what Django writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from django.db import DatabaseError, connections, router, transaction
from django.db.models import BinaryField, Field, Model
from django.views.decorators.debug import sensitive_variables


def insert(rows: Sequence[Model], *, keys: bool = True) -> None:
    """INSERT unsaved rows of one model; IntegrityError where a key is taken.

    ``keys``: the caller needs the keys that the database gives to rows without any.
    """
    if not rows:
        return
    model = type(rows[0])
    using = router.db_for_write(model)
    has_keys = rows[0].pk is not None
    if connections[using].vendor == "postgresql" and (has_keys or not keys):
        _execute(using, _insert_sql(model, using, has_keys), rows)
        for row in rows:
            row._state.adding, row._state.db = False, using
    else:
        model._default_manager.using(using).bulk_create(rows)


def overwrite(rows: Sequence[Model]) -> None:
    """Write rows as they are here. Only what the caller's transaction holds under lock, so that none is missing."""
    if not rows:
        return
    model = type(rows[0])
    using = router.db_for_write(model)
    connection = connections[using]
    if connection.vendor == "postgresql":
        if _execute(using, _update_sql(model, using), rows, [row.pk for row in rows]) != len(rows):
            raise DatabaseError(f"rows of {model._meta.db_table} that were to be overwritten are not there")
        return
    # An upsert that can only update.
    target: dict[str, Any] = {}
    if connection.features.supports_update_conflicts_with_target:
        target = {"unique_fields": ["pk"]}
    names = [field.name for field in _fields(model) if not field.primary_key]
    model._default_manager.using(using).bulk_create(rows, update_conflicts=True, update_fields=names, **target)


@sensitive_variables()  # a report of an error would show payers
def _execute(using: str, sql: str, rows: Sequence[Model], *parameters: Any) -> int:
    names = [field.attname for field in _fields(type(rows[0]))]
    records = [{name: getattr(row, name) for name in names} for row in rows]
    document = msgspec.json.encode(records, enc_hook=_plain).decode()
    # As Django's own writes: who goes on after an error must not commit.
    with transaction.atomic(using=using, savepoint=False), connections[using].cursor() as cursor:
        cursor.execute(sql, [document, *parameters])
        return int(cursor.rowcount)


def _plain(value: object) -> str:
    if isinstance(value, str):  # a subclass, such as a choice or a safe string
        return str.__str__(value)
    raise TypeError(f"no {type(value).__name__} in a row")


@lru_cache(maxsize=64)
def _insert_sql(model: type[Model], using: str, has_keys: bool) -> str:
    fields = [field for field in _fields(model) if has_keys or not field.primary_key]
    quote = connections[using].ops.quote_name
    columns = ", ".join(quote(_column(field)) for field in fields)
    values = ", ".join(_value(field, quote) for field in fields)
    table = quote(model._meta.db_table)
    return f"INSERT INTO {table} ({columns}) SELECT {values} FROM {_records(model, using)}"  # noqa: S608  (our names)


@lru_cache(maxsize=64)
def _update_sql(model: type[Model], using: str) -> str:
    quote = connections[using].ops.quote_name
    others = [field for field in _fields(model) if not field.primary_key]
    (key,) = [field for field in _fields(model) if field.primary_key]
    values = ", ".join(f"{quote(_column(field))} = {_value(field, quote)}" for field in others)
    table = quote(model._meta.db_table)
    ours = f"{table}.{quote(_column(key))}"
    # The planner takes a document for a hundred rows, and reads the whole table for it: the keys tell how many it has.
    which = f"{ours} = {_value(key, quote)} AND {ours} = ANY(%s)"
    return f"UPDATE {table} SET {values} FROM {_records(model, using)} WHERE {which}"  # noqa: S608  (our names)


def _records(model: type[Model], using: str) -> str:
    """The document as a table whose columns have the names of the attributes."""
    connection = connections[using]
    quote = connection.ops.quote_name
    columns = ", ".join(f"{quote(field.attname)} {_type(field, connection)}" for field in _fields(model))
    return f"json_to_recordset(%s) AS records({columns})"


def _type(field: Field[Any, Any], connection: Any) -> str:
    return "text" if isinstance(field, BinaryField) else str(field.db_type(connection))


def _value(field: Field[Any, Any], quote: Callable[[str], str]) -> str:
    value = f"records.{quote(field.attname)}"
    return f"decode({value}, 'base64')" if isinstance(field, BinaryField) else value


def _column(field: Field[Any, Any]) -> str:
    return str(field.column)


def _fields(model: type[Model]) -> list[Field[Any, Any]]:
    return list(model._meta.concrete_fields)
