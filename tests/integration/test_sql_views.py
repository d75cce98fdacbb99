"""Migrations change the tables below the SQL views. A later version's migrations run through ``migrate``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from payments_integration import sql_views
from payments_integration.sql_views import VIEWS
from tests.databases import execute
from tests.factories import rows

APP = "payments_integration"


def migrate(*arguments: str) -> None:
    call_command("migrate", *arguments, verbosity=0)


def read(statement: str = "SELECT amount FROM payments_v_payment") -> list[tuple[Any, ...]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture
def later(transactional_db: None, settings: Any) -> Iterator[None]:
    """The later version is installed and not migrated; the views exist."""
    rows.payment(amount=1250)
    sql_views.create("default")
    settings.MIGRATION_MODULES = {APP: "tests.integration.later.migrations"}
    yield
    migrate(APP, "0001")
    sql_views.drop("default")


@pytest.fixture
def broken(later: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A migration that fails in its middle."""
    seen: list[str] = []

    def stop(*_: Any) -> None:
        try:
            read()
        except DatabaseError as error:
            seen.append(str(error))
        raise RuntimeError("the migration fails")

    with monkeypatch.context() as patch:
        patch.setattr(import_module("tests.integration.later.migrations.0002_other_types"), "stop", stop)
        with pytest.raises(RuntimeError, match="the migration fails"):
            migrate()
    return seen


def test_a_migration_that_changes_types_passes_and_the_views_stay(later: None) -> None:
    migrate()
    assert [int(row[0]) for row in read()] == [1250]
    assert sql_views.problems("default") == {}
    migrate(APP, "0001")
    assert [int(row[0]) for row in read()] == [1250]


def test_a_query_during_a_migration_fails_instead_of_finding_nothing(broken: list[str]) -> None:
    assert len(broken) == 1


def test_the_views_come_back_with_the_migration_that_was_repaired(broken: list[str]) -> None:
    assert len(sql_views.problems("default")) == len(VIEWS)
    for statement in ("amount", "*", "COUNT(*)"):
        with pytest.raises(DatabaseError):
            read(f"SELECT {statement} FROM payments_v_payment")
    migrate()
    assert [int(row[0]) for row in read()] == [1250]
    assert sql_views.problems("default") == {}


def test_migrate_without_views_creates_none(later: None) -> None:
    sql_views.drop("default")
    migrate()
    assert list(sql_views.problems("default").values()) == [f"{view.name} does not exist" for view in VIEWS]


def test_migrations_of_other_apps_leave_the_views_alone(later: None, settings: Any) -> None:
    settings.MIGRATION_MODULES = {}
    # As somebody made it: a migration of the app would replace it.
    execute("DROP VIEW payments_v_refund", *_refund_view_with_a_mark())
    migrate("payments_notify", "zero")
    migrate("payments_notify")
    assert read("SELECT status FROM payments_v_refund") == [("marked",)]


def test_one_view_that_is_out_of_date_replaces_no_other(later: None, settings: Any) -> None:
    settings.MIGRATION_MODULES = {}
    execute("DROP VIEW payments_v_refund", *_refund_view_with_a_mark(), "DROP VIEW payments_v_payment")
    execute("CREATE VIEW payments_v_payment AS SELECT 1 AS id")
    migrate("payments_notify", "zero")
    migrate("payments_notify")
    assert sql_views.problems("default") == {}
    assert read("SELECT status FROM payments_v_refund") == [("marked",)]


def _refund_view_with_a_mark() -> list[str]:
    view = next(view for view in VIEWS if view.name == "payments_v_refund")
    values = ", ".join(f"{'NULL' if name != 'status' else repr('marked')} AS {name}" for name in view.names)
    return [f"CREATE VIEW payments_v_refund AS SELECT {values}"]
