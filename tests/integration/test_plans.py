"""How PostgreSQL goes about the busiest statements where it knows little of a table, or no longer the truth.

While one that has grown is not analysed yet it expects a few rows wherever it looks, as in the first minute of a first
catch-up; after a burst it expects what was there when it looked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.db.models import Count
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from payments_integration import inbox, reconciliation
from payments_integration.admin.shared import twins
from payments_integration.contrib.backoffice import search as terms
from payments_integration.contrib.backoffice.admin import balance_changes, totals
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.db import statements
from payments_integration.enums import Kind
from payments_integration.inbox.processing import process_batch
from payments_integration.models import Erasure, Event, EventState, Operation, OperationState, Payment, StatusChange
from payments_integration.runtime import stopping
from payments_integration.signals import event_received
from tests import factories
from tests.databases import DRIVER
from tests.factories import rows as made

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="others look into their indexes when they plan"),
    pytest.mark.django_db(transaction=True),
]

EVENT, PAYMENT = "payments_integration_event", "payments_integration_payment"
CHANGE, ERASURE = "payments_integration_statuschange", "payments_integration_erasure"
TERM, OPERATION = "payments_backoffice_searchterm", "payments_integration_operation"
MANY = 6_000


@pytest.fixture(autouse=True)
def without_statistics() -> Iterator[None]:
    def say(on: str) -> None:
        with connection.cursor() as cursor:
            for table in (EVENT, PAYMENT, CHANGE, ERASURE, TERM, OPERATION):
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
        if sql.startswith(word) and f'"{table}"' in sql:
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


def test_a_page_does_not_sort_the_backlog() -> None:
    store(0, MANY)

    def pages() -> list[str]:
        return [plan for plan in plans if plan.startswith("Limit") and "payments_integration_objectdispatch" in plan]

    def receiver(**_: Any) -> None:
        """It wants every event."""
        if len(pages()) > 1:
            stopping.request()

    event_received.connect(receiver)
    try:
        inbox.process("default")
        with plans_of("SELECT", EVENT) as plans:
            assert inbox.dispatch("default")
    finally:
        stopping.clear()
        event_received.disconnect(receiver)
    assert len(pages()) >= 2, "the first one, and one from a place on"
    for plan in pages():
        assert "Index Scan using pi_event_state" in plan, plan
        assert "Sort" not in plan, plan


def test_finding_undispatched_events_does_not_read_the_done_ones() -> None:
    store(0, MANY)
    inbox.process("default")
    store(MANY, 1)
    with plans_of("SELECT", EVENT) as plans:
        assert inbox.process("default") == 1
        inbox.dispatch("default")
    assert len(plans) >= 3
    for plan in plans:
        assert "pi_event_by_account" not in plan, plan
        assert f"Seq Scan on {EVENT}" not in plan, plan


def test_an_update_of_a_few_rows_does_not_read_the_others() -> None:
    store(0, MANY)
    inbox.process("default")
    rows = list(Payment.objects.filter(pk__in=["pay_1", "pay_2", "pay_3"]))
    for row in rows:
        row.status = "failed"
    with plans_of("UPDATE", PAYMENT) as plans:
        statements.update_many(rows)
    assert len(plans) == 1
    assert f"Seq Scan on {PAYMENT}" not in plans[0], plans[0]
    assert Payment.objects.filter(status="failed").count() == 3
    assert Event.objects.filter(state="done").count() == MANY


@pytest.mark.parametrize("waiting", [0.1, 0.3])
def test_an_empty_backlog_is_found_without_reading_the_table_after_a_burst(waiting: float) -> None:
    """Like a burst that was analysed at its peak, and applied and dispatched since."""
    store(0, MANY)
    inbox.process("default")
    newest = Event.objects.order_by("-created_at", "-id").values_list("pk", flat=True)[: int(MANY * waiting)]
    Event.objects.filter(pk__in=list(newest)).update(state=EventState.APPLIED)
    latest = StatusChange.objects.order_by("-at", "-pk").values_list("pk", flat=True)[: int(MANY * waiting)]
    StatusChange.objects.filter(pk__in=list(latest)).update(state=EventState.APPLIED)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {EVENT}, {CHANGE}")
    for model in (Event, StatusChange):
        model._default_manager.filter(state=EventState.APPLIED).update(state=EventState.DONE)
    with plans_of("SELECT", EVENT) as plans:
        assert inbox.dispatch("default") == 0
    assert len(plans) == 1
    assert "pi_event_state" in plans[0]
    assert "pi_change_state" in plans[0]
    assert "Seq Scan" not in plans[0], plans[0]


@pytest.mark.parametrize("is_analysed", [False, True])
def test_pruning_bodies_does_not_read_events_that_have_none(is_analysed: bool) -> None:
    store(0, MANY)
    inbox.process("default")
    old = timezone.now() - timedelta(days=200)
    Event.objects.update(created_at=old, received_at=old, body=None)
    Event.objects.filter(pk__in=Event.objects.order_by("pk").values("pk")[:10]).update(body=b"{}")
    if is_analysed:
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {EVENT}")
    with plans_of("SELECT", EVENT) as plans:
        assert reconciliation.prune()["bodies"] == 10
    bodies = [plan for plan in plans if "received_at" in plan and "pi_event_body" in plan]
    assert len(bodies) == 2, "a page, and an empty one"
    for plan in plans:
        assert "Seq Scan" not in plan, plan


def test_the_planner_hint_of_a_batch_does_not_affect_other_statements() -> None:
    """A payment and a refund are looked up by two conditions, which takes a bitmap."""
    now = timezone.now()
    Erasure.objects.bulk_create(
        Erasure(account="default", object_kind=Kind.PAYMENT, object_id=f"pay_{number}", requested_at=now)
        for number in range(MANY)
    )
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {ERASURE}")
    refund = factories.refund(id="re_1", payment_id="pay_new")
    bodies = [factories.body(factories.event(data)) for data in (refund, factories.payment(id="pay_new"))]
    inbox.receive_many("default", bodies, source="webhook")
    with plans_of("(SELECT", ERASURE) as plans:
        assert process_batch("default") == (2, 0)
    assert plans
    for plan in plans:
        assert f"Seq Scan on {ERASURE}" not in plan, plan


@pytest.mark.skipif(DRIVER != "psycopg", reason="psycopg2 has no such cursor")
def test_the_planner_hint_reaches_a_cursor_that_binds_at_the_server() -> None:
    """An instrumentation of the driver may have put it there. It takes one statement in a text."""
    from django.db.backends.postgresql.base import ServerBindingCursor  # noqa: PLC0415  (only with the driver)

    with transaction.atomic(), patch.object(connection.connection, "cursor_factory", ServerBindingCursor):
        found = statements.in_index_order(
            "SELECT current_setting('enable_bitmapscan'), %s", ["value"], using="default"
        )
    assert found == [("off", "value")]


@pytest.mark.parametrize("is_alone", [True, False], ids=["one text", "three texts"])
def test_the_planner_hint_is_for_one_statement(is_alone: bool) -> None:
    """A wrapper of the project may add a statement of its own to each text."""
    setting = "SELECT current_setting('enable_bitmapscan'), %s"
    texts: list[str] = []

    def note(execute: Any, sql: str, *others: Any) -> Any:
        texts.append(sql)
        return execute(sql, *others)

    with transaction.atomic(), nullcontext() if is_alone else connection.execute_wrapper(note):
        assert statements.in_index_order(setting, ["value"], using="default") == [("off", "value")]
        with connection.cursor() as cursor:
            cursor.execute(setting, ["value"])
            assert cursor.fetchall() == [("on", "value")]
    assert len(texts) == (0 if is_alone else 4)


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize("text", ["ana", "ana p17", "p17", "nothing", "ana soto"])
def test_a_search_reads_its_index_and_no_more_than_its_beginning(
    text: str, is_analysed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "_MAX_ENTRIES", 20)
    SearchTerm.objects.bulk_create(
        SearchTerm(object_kind=Kind.PAYMENT, object_id=f"pay_{number}", term=term, is_personal=True)
        for number in range(MANY)
        for term in ("ana", "soto", f"p{number}")
    )
    if is_analysed:
        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM ANALYZE {TERM}")
    with plans_of("SELECT", TERM) as plans:
        terms.find(text, [Kind.PAYMENT, Kind.PAYOUT], personal=True)
    assert 1 <= len(plans) <= 2
    assert "pb_search_term" in plans[0]
    for plan in plans:
        assert "Seq Scan" not in plan, plan


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize("most", [100, MANY])
def test_what_changed_a_balance_is_found_by_the_time_of_status_changes(
    is_analysed: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance_changes, "MAX_CHANGES", most)
    StatusChange.objects.bulk_create(
        StatusChange(
            account="default" if number % 2 else "second", object_kind=Kind.PAYMENT, object_id=f"pay_{number}",
            status="succeeded", at=made.AT + timedelta(seconds=10 * number),
        )
        for number in range(MANY)
    )  # fmt: skip
    if is_analysed:
        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM ANALYZE {CHANGE}")
    balance = made.balance(currency="CLP")
    steps = [
        balance_changes._Step(made.AT + timedelta(hours=hour), made.AT + timedelta(hours=hour + 1), [], 0)
        for hour in reversed(range(10))
    ]
    with plans_of("SELECT", CHANGE) as plans:
        balance_changes._moved(balance, steps, [Payment])
    assert len(plans) == (2 if most == 100 else 1)
    for plan in plans:
        assert "pi_change_at" in plan, plan
        assert "Seq Scan" not in plan, plan


def test_a_key_has_one_index_which_finds_prefixes_too() -> None:
    with connection.cursor() as cursor:
        for model in apps.get_app_config("payments_integration").get_models():
            constraints = connection.introspection.get_constraints(cursor, model._meta.db_table)
            assert not [name for name in constraints if name.endswith("_like")]
    store(0, MANY)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {EVENT}")
    plan = Event.objects.filter(pk__startswith="evt_12345").order_by("pk").explain()
    assert f"Index Scan using {EVENT}_pkey" in plan, plan
    assert "Sort" not in plan, plan


def test_what_is_known_of_an_object_is_found_by_its_index() -> None:
    """Its page, the snapshot before an answer, a sweep and an erasure ask with a state and without."""
    store(0, MANY)
    inbox.process("default")
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {EVENT}")
    of_it = Event.objects.filter(account="default", object_kind=Kind.PAYMENT, object_id="pay_1")
    several = Event.objects.filter(account="default", object_kind=Kind.PAYMENT, object_id__in=["pay_1", "pay_2"])
    for rows in (
        of_it.order_by("-created_at", "-pk")[:50],
        of_it.order_by().values("object_id").annotate(Count("pk")),
        of_it.filter(state=EventState.DONE).order_by("created_at", "pk")[:1],
        several.filter(state=EventState.DONE),
        several.filter(body__isnull=False),
    ):
        assert "pi_event_object" in rows.explain(), rows.explain()


def test_what_was_asked_for_before_is_found_by_an_index() -> None:
    """Of many operations that are done, and some that are open and old."""
    now = timezone.now()
    Operation.objects.bulk_create(
        Operation(
            account="default", operation="create_payout" if number % 2 else "create_refund", amount=100,
            currency="CLP", target_id=f"pay_{number}", idempotency_key=f"key-{number}",
            state=OperationState.DONE if number < MANY - 10 else OperationState.AWAITING_APPROVAL,
            created_at=now - timedelta(minutes=number),
        )
        for number in range(MANY)
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE {OPERATION}")
    since = now - twins.WITHIN
    with plans_of("SELECT", OPERATION) as plans:
        same = twins.recent("create_payout", since, account="default", amount=100, currency="CLP")
        assert len(same) == 8 + 5
        payment = Payment(pk=f"pay_{MANY - 2}", account="default")
        assert twins.refund(payment, since)
    assert len(plans) == 2
    # Each index that it reads is bounded by the state or the time, and that of the payment by its id.
    for plan, bounded in zip(plans, ("BitmapOr", "pi_operation_target"), strict=True):
        assert bounded in plan, plan
        assert f"Seq Scan on {OPERATION}" not in plan, plan


def test_lists_by_day_of_success_and_their_totals_go_through_an_index_in_its_order(admin_client: Client) -> None:
    """Of many payments that succeeded on as many minutes, a page reads the newest of the chosen days."""
    now = timezone.now()
    Payment.objects.bulk_create(
        Payment(
            **made.mirror(
                id=f"pay_{number}", status="succeeded", amount=100, amount_received=100, currency="CLP", country="CL",
                method_code="cl_card", method_family="card", created_at=now - timedelta(minutes=number),
                succeeded_at=now - timedelta(minutes=number) if number % 3 else None,
            )
        )
        for number in range(MANY)
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {PAYMENT}")
    listed = reverse("admin:payments_integration_payment_changelist")
    with plans_of("SELECT", PAYMENT) as plans:
        response = admin_client.get(f"{listed}?succeeded_days=past-30")
        older = response.context["cl"].older_url
        admin_client.get(listed + older)
    # The counts of the tabs come first in a page's plan, then what reads its rows.
    pages = [plan.rpartition("\n  ->  ")[2] for plan in plans if plan.startswith("Limit")]
    assert len(pages) == 2
    for plan in pages:
        assert "pi_payment_succeeded" in plan, plan
        assert "Sort" not in plan, plan
    with patch.object(totals, "MAX_ROWS", 20), plans_of("SELECT", PAYMENT) as plans:
        assert admin_client.get(f"{listed}?status=succeeded").context["cl"].totals.lines == []
    assert len(plans) == 2
    for plan in plans:
        read = plan.rpartition("\n  ->  ")[2] if plan.startswith("Limit") else plan
        assert "pi_payment_" in read, plan
        assert "Seq Scan" not in read, plan
