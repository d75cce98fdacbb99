"""Empty the database after a test that commits.

Django's ``flush`` also truncates empty tables, and makes every permission and content type again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import DatabaseError, connections
from django.test import TransactionTestCase

#: ``migrate`` fills them. Tests leave them as they are, or ``flush`` puts them right.
_KEPT = ("django_content_type", "auth_permission")


@dataclass(frozen=True)
class _Look:
    """The statement that finds the tables with rows, and what it must find in those that are kept."""

    sql: str
    tables: list[str]
    kept: tuple[int, ...]


_looks: dict[str, _Look] = {}


def install() -> None:
    TransactionTestCase._fixture_teardown = _teardown  # type: ignore[attr-defined]


def _teardown(case: Any) -> None:
    # Content types are cached by the process. What a test of another database cached is wrong in this one.
    apps.get_model("contenttypes", "ContentType").objects.clear_cache()
    for alias in case._databases_names(include_mirrors=False):
        if alias not in _looks or not _empty(alias, _looks[alias]):
            call_command("flush", verbosity=0, interactive=False, database=alias, reset_sequences=False)
            _looks[alias] = _look(alias)


def _look(alias: str) -> _Look:
    connection = connections[alias]
    quote = connection.ops.quote_name
    names = {*connection.introspection.django_table_names(only_existing=True, include_views=False)}
    tables, kept = sorted(names - {*_KEPT}), sorted(names & {*_KEPT})
    columns = [f"(SELECT COUNT(*) FROM {quote(name)})" for name in kept]
    columns += [f"EXISTS(SELECT 1 FROM {quote(name)})" for name in tables]
    # A database that another program writes to has none of Django's tables.
    sql = f"SELECT {', '.join(columns) or 'NULL'}"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return _Look(sql, tables, cursor.fetchone()[: len(kept)])


def _empty(alias: str, look: _Look) -> bool:
    """Return False if only ``flush`` can: a table is gone, or one that is kept was changed."""
    connection = connections[alias]
    try:
        with connection.cursor() as cursor:
            cursor.execute(look.sql)
            found = cursor.fetchone()
    except DatabaseError:
        return False
    kept = len(look.kept)
    if found[:kept] != look.kept:
        return False
    filled = [table for table, is_filled in zip(look.tables, found[kept:], strict=False) if is_filled]
    if filled:
        cascade = connection.vendor == "postgresql"  # it truncates no table to which another refers
        connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), filled, allow_cascade=cascade))
    return True
