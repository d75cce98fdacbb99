"""How PostgreSQL goes about the busiest statements while a table that has grown is not analysed yet.

It expects a few rows wherever it looks, as in the first minute of a first catch-up, or after a burst.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from payments_integration import bulk, inbox
from payments_integration.inbox.processing import process_batch
from payments_integration.models import Event, Payment
from tests import factories

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="others look into their indexes when they plan"),
    pytest.mark.django_db(transaction=True),
]

EVENT, PAYMENT = "payments_integration_event", "payments_integration_payment"
MANY = 6_000


@pytest.fixture(autouse=True)
def without_statistics() -> Iterator[None]:
    def say(on: str) -> None:
        with connection.cursor() as cursor:
            for table in (EVENT, PAYMENT):
                cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = {on})")
                cursor.execute("DELETE FROM pg_statistic WHERE starelid = %s::regclass", [table])
                cursor.execute("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = %s::regclass", [table])

    say("off")
    yield
    say("on")


@contextmanager
def plans_of(word: str, table: str) -> Iterator[list[str]]:
    """The plans of statements that begin so and are about this table."""
    plans: list[str] = []

    def explain(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if sql.startswith((f'{word} "{table}"', f'{word} "{table}".')):
            execute(f"EXPLAIN {sql}", parameters, many, context)
            plans.append("\n".join(row[0] for row in context["cursor"].fetchall()))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        yield plans


def store(first: int, count: int) -> None:
    numbers = range(first, first + count)
    bodies = [factories.body(factories.event(factories.payment(id=f"pay_{number}"))) for number in numbers]
    inbox.receive_many("default", bodies, source="webhook")


def test_a_batch_does_not_sort_the_backlog() -> None:
    store(0, MANY)
    with plans_of("SELECT", EVENT) as plans:
        assert process_batch("default") == (500, 0)
    claims = [plan for plan in plans if "LockRows" in plan]
    assert len(claims) == 1
    assert "Index Scan using pi_event_state" in claims[0]
    assert "Sort" not in claims[0]


def test_what_is_done_is_not_walked_over_to_find_what_is_to_be_told() -> None:
    store(0, MANY)
    inbox.process("default")
    store(MANY, 1)
    with plans_of("SELECT", EVENT) as plans:
        assert inbox.process("default") == 1
        inbox.tell("default")
    assert len(plans) >= 3
    for plan in plans:
        assert "pi_event_by_account" not in plan, plan
        assert f"Seq Scan on {EVENT}" not in plan, plan


def test_a_few_rows_are_overwritten_without_reading_the_others() -> None:
    store(0, MANY)
    inbox.process("default")
    rows = list(Payment.objects.filter(pk__in=["pay_1", "pay_2", "pay_3"]))
    for row in rows:
        row.status = "failed"
    with plans_of("UPDATE", PAYMENT) as plans:
        bulk.overwrite(rows)
    assert len(plans) == 1
    assert f"Seq Scan on {PAYMENT}" not in plans[0], plans[0]
    assert Payment.objects.filter(status="failed").count() == 3
    assert Event.objects.filter(state="done").count() == MANY
