"""Migrations change the tables below the views. A later version's migrations run through ``migrate``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, ProgrammingError, connection, transaction

from payments_integration.contrib.reports import sql_views
from payments_integration.contrib.reports.sql_views import VIEWS
from payments_integration.models import Payment
from tests.databases import MARIADB, POSTGRES, execute
from tests.factories import rows

APP = "payments_integration"
LATER = "tests.unit.contrib.reports.later.migrations"
MISSING = [f"{view.name} does not exist" for view in VIEWS]


def migrate(*arguments: str) -> None:
    call_command("migrate", *arguments, verbosity=0)


def read(statement: str = "SELECT amount FROM payments_v_payment") -> list[tuple[Any, ...]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture
def later(transactional_db: None, settings: Any) -> Iterator[None]:
    """The later version is installed and not migrated."""
    rows.payment(amount=1250)
    settings.MIGRATION_MODULES = {APP: LATER}
    yield
    migrate(APP, "0001")
    sql_views.create("default")


def test_a_migration_that_changes_types_passes_and_the_views_stay(later: None) -> None:
    migrate()
    assert [int(row[0]) for row in read()] == [1250]
    assert sql_views.problems("default") == []
    migrate(APP, "0001")
    assert [int(row[0]) for row in read()] == [1250]


@pytest.mark.skipif(MARIADB, reason="MariaDB changes any table below a view")
def test_a_migration_would_fail_below_the_views(later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sql_views, "drop", lambda alias: [])
        with pytest.raises(DatabaseError, match="view"):
            migrate()


def test_a_report_fails_during_a_migration_and_after_one_that_failed(
    later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never finds zero rows, which it would take for the truth."""

    def stop(*_: Any) -> None:
        raise RuntimeError("the migration fails")

    with monkeypatch.context() as patch:
        patch.setattr(import_module(f"{LATER}.0002_other_types"), "stop", stop)
        with pytest.raises(RuntimeError, match="the migration fails"):
            migrate()
    with pytest.raises(DatabaseError):
        read()
    assert sql_views.problems("default") == MISSING
    migrate()
    assert [int(row[0]) for row in read()] == [1250]


def test_migrate_creates_what_is_missing_and_leaves_the_rest_alone(transactional_db: None) -> None:
    execute(*(f"DROP VIEW {view.name}" for view in VIEWS))
    migrate()
    assert sql_views.problems("default") == []
    view = next(view for view in VIEWS if view.name == "payments_v_refund")
    marked = ", ".join(f"'marked' AS {name}" for name in view.names)
    execute("DROP VIEW payments_v_refund", f"CREATE VIEW payments_v_refund AS SELECT {marked}")
    try:
        migrate("payments_notify", "zero")
        migrate("payments_notify")
        assert read("SELECT status FROM payments_v_refund") == [("marked",)]
    finally:
        sql_views.create("default")


def test_tables_that_the_views_do_not_fit_end_no_migration(
    later: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For instance those of an older version."""
    with monkeypatch.context() as patch:
        patch.setattr(sql_views, "select_sql", lambda view, alias: "SELECT missing FROM missing")
        migrate()
    # MariaDB and PostgreSQL refuse such a view; SQLite refuses to read it.
    assert "The views for reports were not created" in caplog.text or connection.vendor == "sqlite"
    with pytest.raises(DatabaseError):
        read()


def test_a_view_whose_table_comes_later_costs_no_other_view(later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance that of an app which is installed and not migrated."""
    model: Any = SimpleNamespace(_meta=SimpleNamespace(app_label="absent", db_table="absent"))
    with monkeypatch.context() as patch:
        patch.setattr(sql_views, "VIEWS", (*VIEWS, sql_views.View("payments_v_absent", model, ("id",))))
        migrate(APP)
        assert [int(row[0]) for row in read()] == [1250]
        assert sql_views.problems("default") == ["payments_v_absent does not exist"]


@pytest.fixture
def reader(later: None) -> Iterator[str]:
    """A role of PostgreSQL that may read two views.

    Roles belong to the whole server, on which every pytest worker has a database: its name is part of the role's.
    """
    role = f"reader-of {connection.settings_dict['NAME']}"
    execute(
        f'CREATE ROLE "{role}"',
        f'GRANT SELECT ON payments_v_payment TO "{role}"',
        f'GRANT SELECT ON payments_v_refund TO "{role}" WITH GRANT OPTION',
        "GRANT SELECT ON payments_v_refund TO PUBLIC",
    )
    yield role
    execute("REVOKE ALL ON payments_v_refund FROM PUBLIC", f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"')


def read_as(role: str, statement: str) -> list[tuple[Any, ...]]:
    with transaction.atomic():
        execute(f'SET LOCAL ROLE "{role}"')
        return read(statement)


def rights() -> list[tuple[Any, ...]]:
    """All rights on the views, without their owner's."""
    return read(
        "SELECT table_name, grantee, privilege_type, is_grantable FROM information_schema.role_table_grants"
        " WHERE table_name LIKE 'payments_v_%' AND grantee <> current_user ORDER BY 1, 2, 3, 4"
    )


@pytest.mark.skipif(not POSTGRES, reason="only PostgreSQL forgets the rights on a view that is dropped")
def test_a_migration_and_the_command_keep_the_rights(reader: str) -> None:
    before = rights()
    assert len(before) == 3
    migrate()
    assert rights() == before
    sql_views.create("default")
    assert rights() == before
    assert [int(row[0]) for row in read_as(reader, "SELECT amount FROM payments_v_payment")] == [1250]


@pytest.mark.skipif(not POSTGRES, reason="only PostgreSQL forgets the rights on a view that is dropped")
def test_a_right_on_a_view_whose_table_goes_costs_no_other_view(reader: str) -> None:
    before = rights()
    execute(f'GRANT SELECT ON payments_v_balance_change TO "{reader}"')
    try:
        migrate("payments_finance", "zero")
        assert sql_views.problems("default") == ["payments_v_balance_change does not exist"]
        assert rights() == before
    finally:
        migrate()


@pytest.mark.skipif(not POSTGRES, reason="it is about PostgreSQL's roles")
def test_a_role_that_reads_the_views_sees_no_table(reader: str) -> None:
    assert len(read_as(reader, "SELECT * FROM payments_v_payment")) == 1
    for statement in (f"SELECT * FROM {Payment._meta.db_table}", "SELECT account FROM payments_v_payout"):
        with pytest.raises(ProgrammingError, match="permission denied"):
            read_as(reader, statement)


@pytest.mark.skipif(not POSTGRES, reason="only PostgreSQL knows which views use a view")
def test_a_view_on_top_of_ours_ends_migrate_before_the_first_migration(later: None) -> None:
    execute("CREATE VIEW per_account AS SELECT account, sum(amount) AS total FROM payments_v_payment GROUP BY 1")
    try:
        with pytest.raises(DatabaseError, match="view per_account depends on view payments_v_payment"):
            migrate()
        assert [int(row[0]) for row in read("SELECT total FROM per_account")] == [1250]
    finally:
        execute("DROP VIEW per_account")


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL shows its plan in one way")
def test_a_view_is_read_as_fast_as_its_table(later: None) -> None:
    with transaction.atomic():
        execute("SET LOCAL enable_seqscan = off")
        [step] = read("EXPLAIN (COSTS OFF) SELECT amount FROM payments_v_payment WHERE id = 'pay_1'")[:1]
    assert "Index" in step[0]
