"""What a scrape reads from PostgreSQL, next to a table of many finished events."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.utils import timezone

from payments_integration.contrib.prometheus import PaymentsCollector
from payments_integration.models import Event

_EVENT = "payments_integration_event"


def store_finished(first: int, count: int) -> None:
    """Events of the last month that are done, from this number on; half of them of each account."""
    values: dict[str, Any] = {
        "id": "'evt_done_' || n",
        "account": "CASE WHEN MOD(n, 2) = 0 THEN 'default' ELSE 'second' END",
        "type": "'payment.succeeded'",
        "created_at": "%s - make_interval(secs => MOD(n::bigint * 7919, 2592000))",
        "object_kind": "'payment'",
        "object_id": "'pay_' || n / 4",
        "received_at": "%s - make_interval(secs => MOD(n::bigint * 7919, 2592000))",
        "source": "'webhook'",
        "content_hash": "md5(n::text) || md5(n::text)",
        "state": "'done'",
        "previous_status": "''",
        "attempts": "0",
        "error": "''",
        "traceparent": "''",
    }
    given = [field.column for field in Event._meta.concrete_fields if not field.null]
    assert sorted(given) == sorted(values)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_EVENT} ({', '.join(values)}) "
            f"SELECT {', '.join(values.values())} FROM generate_series(%s, %s) AS n",
            [timezone.now(), timezone.now(), first, first + count - 1],
        )


def forget_statistics() -> None:
    """The planner knows nothing of the table, until it is analysed."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {_EVENT} SET (autovacuum_enabled = off)")
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = %s::regclass", [_EVENT])
        cursor.execute("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = %s::regclass", [_EVENT])


def analyse() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE {_EVENT}")


def rows_read() -> int:
    """Entries of indexes and rows of tables that a scrape reads, by the server's own count."""

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT (SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables)"
                " + (SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes)"
            )
            return int(cursor.fetchone()[0])

    before = count()
    families = list(PaymentsCollector().collect())
    assert [family.samples[0].value for family in families if family.name == "payments_up"] == [1]
    return count() - before
