"""On PostgreSQL: a view keeps its rights and what is built on it, and a role that only reads it sees no table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, ProgrammingError, connection, transaction

from payments_integration import sql_views
from payments_integration.models import Payment
from tests.databases import POSTGRES, execute
from tests.integration.test_sql_views import later, migrate, read

__all__ = ["later"]

pytestmark = pytest.mark.skipif(not POSTGRES, reason="it is about PostgreSQL's rights and dependencies")


@pytest.fixture
def reader(later: None) -> Iterator[str]:
    """A role that may read two views and one column of a third.

    Roles belong to the whole server, on which every pytest worker has a database: its name is part of the role's.
    """
    role = f"reader-of {connection.settings_dict['NAME']}"
    execute(
        f'CREATE ROLE "{role}"',
        f'GRANT SELECT ON payments_v_payment TO "{role}"',
        f'GRANT SELECT ON payments_v_refund TO "{role}" WITH GRANT OPTION',
        f'GRANT SELECT (id) ON payments_v_payout TO "{role}"',
        "GRANT SELECT ON payments_v_refund TO PUBLIC",
    )
    yield role
    execute(f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"')


def read_as(role: str, statement: str) -> list[tuple[Any, ...]]:
    with transaction.atomic():
        execute(f'SET LOCAL ROLE "{role}"')
        return read(statement)


def rights() -> list[tuple[Any, ...]]:
    """All rights on the views, without their owner's."""
    views = "SELECT table_name, grantee, privilege_type, is_grantable FROM information_schema.role_table_grants"
    columns = "SELECT column_name, grantee, privilege_type, is_grantable FROM information_schema.column_privileges"
    ours = "WHERE table_name LIKE 'payments_v_%' AND grantee <> current_user ORDER BY 1, 2, 3, 4"
    return read(f"{views} {ours}") + read(f"{columns} {ours}")


def test_a_migration_keeps_the_rights(reader: str) -> None:
    before = rights()
    assert len(before) > 4
    migrate()
    assert rights() == before
    assert [int(row[0]) for row in read_as(reader, "SELECT amount FROM payments_v_payment")] == [1250]


def test_a_view_that_has_to_be_dropped_keeps_the_rights(reader: str) -> None:
    before = rights()
    for name in ("payments_v_payment", "payments_v_refund", "payments_v_payout"):
        grants = sql_views._grants(next(view for view in sql_views.VIEWS if view.name == name), "default")
        # As an older version made it: other columns in another order.
        execute(f"DROP VIEW {name}", f"CREATE VIEW {name} AS SELECT 'x' AS account, 1::text AS id", *grants)
    assert rights() != before  # the rights on a view are also rights on its columns
    sql_views.create("default")
    assert rights() == before
    assert list(sql_views.problems("default")) == []


def test_a_role_that_reads_the_views_sees_no_table(reader: str) -> None:
    assert len(read_as(reader, "SELECT * FROM payments_v_payment")) == 1
    for statement in (f"SELECT * FROM {Payment._meta.db_table}", "SELECT account FROM payments_v_payout"):
        with pytest.raises(ProgrammingError, match="permission denied"):
            read_as(reader, statement)


def test_views_on_top_of_ours_survive_a_migration(later: None) -> None:
    execute("CREATE VIEW per_account AS SELECT account, sum(amount) AS total FROM payments_v_payment GROUP BY 1")
    try:
        migrate()
        assert [int(row[0]) for row in read("SELECT total FROM per_account")] == [1250]
    finally:
        execute("DROP VIEW per_account")


def test_without_the_pause_the_migration_fails(later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sql_views, "pause", lambda alias: None)
        with pytest.raises(DatabaseError, match="used by a view"):
            migrate()


def test_a_paused_view_says_why_it_cannot_be_read(later: None) -> None:
    sql_views.pause("default")
    with pytest.raises(DatabaseError, match="payments_views: a migration is running"):
        read()


def test_a_view_is_read_as_fast_as_its_table(later: None) -> None:
    with transaction.atomic():
        execute("SET LOCAL enable_seqscan = off")
        [step] = read("EXPLAIN (COSTS OFF) SELECT amount FROM payments_v_payment WHERE id = 'pay_1'")[:1]
    assert "Index" in step[0]
