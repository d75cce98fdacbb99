from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from django.db import DataError, IntegrityError, connection, connections, transaction
from django.db.models import Exists, JSONField, QuerySet, Subquery, Value
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from payments_integration.db import statements
from payments_integration.inbox import receiving
from payments_integration.models import (
    DueRefresh,
    Event,
    EventSource,
    EventState,
    StatusChange,
    deletion_allowed,
    keys_of,
)
from tests import factories
from tests.databases import DRIVER
from tests.fake_provider import payment as payment_of

pytestmark = pytest.mark.django_db


def new_event(**values: Any) -> Event:
    event = receiving.read("default", factories.body(factories.event(factories.payment())), source="webhook")
    for name, value in values.items():
        setattr(event, name, value)
    return event


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"body": None},
        {"body": b""},
        {"error": "100 % of it's “quoted”", "attempts": 3},
        {"state": EventState.QUARANTINED, "type": "", "object_kind": ""},
        {"dispatched_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
)
def test_every_column_is_what_the_row_has(values: dict[str, Any]) -> None:
    for _ in range(2):  # the text as it is made, and as it was made
        event = new_event(**values)
        assert statements.insert_if_free(event, using="default") == 1
        stored = Event.objects.get(pk=event.pk)
        for field in Event._meta.local_concrete_fields:
            assert getattr(event, field.attname) == getattr(stored, field.attname), field.attname
        with deletion_allowed():
            stored.delete()


def test_rows_with_different_empty_values_do_not_share_their_sql() -> None:
    plain, failed = new_event(), new_event(attempts=2, error="no")
    failed.id = f"{failed.id}_2"
    for event in (plain, failed):
        statements.insert_if_free(event, using="default")
    assert list(Event.objects.order_by("attempts").values_list("attempts", "error")) == [(0, ""), (2, "no")]


def test_a_choice_is_part_of_the_sql() -> None:
    event = new_event(source=EventSource.WEBHOOK, state=EventState.HELD)
    statements.insert_if_free(event, using="default")
    sql, columns = statements._inserts[next(key for key in statements._inserts if EventState.HELD in key[2])]
    assert "'webhook'" in sql
    assert not {"source", "state"} & {column.field.name for column in columns}


def prepared_inserts() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO%%_event%%'")
        return int(cursor.fetchone()[0])


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no prepare_threshold")
@pytest.mark.parametrize("threshold", [None, 2])
def test_an_insert_is_prepared_only_if_the_project_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, threshold: int | None
) -> None:
    connection.ensure_connection()
    monkeypatch.setattr(connection.connection, "prepare_threshold", threshold)
    event, before = new_event(body=b"\x00 exact", error="100 %"), prepared_inserts()
    with CaptureQueriesContext(connection) as queries:
        for number in range(4):
            event.id = f"evt_{number}"
            assert statements.insert_if_free(event, using="default") == 1
        assert statements.insert_if_free(event, using="default") == 0, "the key is taken"
    assert len(queries) == 5
    assert prepared_inserts() - before == (0 if threshold is None else 1)
    assert {bytes(each.body or b"") for each in Event.objects.all()} == {b"\x00 exact"}


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no prepare_threshold")
def test_a_refused_prepared_insert_is_an_error_of_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """What condemns a row is judged by Django's exceptions."""
    connection.ensure_connection()
    monkeypatch.setattr(connection.connection, "prepare_threshold", 0)
    with pytest.raises(DataError), transaction.atomic():
        statements.insert_if_free(new_event(type="x" * 300), using="default")


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no prepare_threshold")
def test_a_wrapper_may_add_a_second_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the middleware of django-pghistory does. PostgreSQL prepares one statement only."""

    def add(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        result = execute(f"SELECT set_config('shop.user', %s, true); {sql}", ("ana", *parameters), many, context)
        while result.nextset():
            pass
        return result

    connection.ensure_connection()
    monkeypatch.setattr(connection.connection, "prepare_threshold", 2)
    event = new_event()
    with connection.execute_wrapper(add):
        assert statements.insert_if_free(event, using="default") == 1
        assert statements.insert_if_free(event, using="default") == 0, "the key is taken"


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no prepare_threshold")
def test_a_backend_may_choose_the_schema_with_each_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of django-tenants does. Otherwise the row of one tenant would be in the schema of another."""
    table = Event._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA red")
        cursor.execute(f"CREATE TABLE red.{table} (LIKE public.{table} INCLUDING ALL)")
    database: Any = connection
    plain = database._cursor

    def choosing(name: str | None = None) -> Any:
        cursor = plain(name)
        cursor.execute("SET LOCAL search_path = red, public")
        return cursor

    monkeypatch.setattr(connection.connection, "prepare_threshold", 0)
    with monkeypatch.context() as patch:
        patch.setattr(connection, "_cursor", choosing)
        assert statements.insert_if_free(new_event(), using="default") == 1
        assert Event.objects.count() == 1
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL search_path = public")
    assert not Event.objects.exists()


def test_an_insert_with_a_taken_key_returns_zero() -> None:
    event = new_event()
    assert statements.insert_if_free(event, using="default") == 1
    again = new_event(id=event.id, type="payment.other")
    if connection.vendor == "mysql":
        with pytest.raises(IntegrityError):
            statements.insert_if_free(again, using="default")
    else:
        assert statements.insert_if_free(again, using="default") == 0
        assert Event.objects.get().type == event.type


def test_values_by_key_returns_the_columns_of_one_row() -> None:
    event = new_event(attempts=7)
    statements.insert_if_free(event, using="default")
    found = statements.values_by_key(Event, event.pk, "account", "attempts", using="default")
    assert found == ("default", 7)
    assert statements.values_by_key(Event, event.pk, "content_hash", using="default") == (event.content_hash,)
    assert statements.values_by_key(Event, "evt_unknown", "account", using="default") is None


def test_a_row_built_by_position_equals_one_built_by_name() -> None:
    names: dict[str, Any] = {
        "id": "evt_1",
        "account": "second",
        "type": "payout.failed",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "object_kind": "payout",
        "object_id": "po_1",
        "source": EventSource.RECONCILIATION,
        "body": b"{}",
        "content_hash": "f" * 64,
    }
    others: list[dict[str, Any]] = [{}, {"state": EventState.QUARANTINED, "error": "why"}]
    for more in others:
        ours, theirs = receiving.new_event(**names, **more), Event(**names, **more)
        theirs.received_at = ours.received_at
        for field in Event._meta.local_concrete_fields:
            assert getattr(ours, field.attname) == getattr(theirs, field.attname), field.attname
        assert ours._state.adding


def test_whether_any_row_is_in_a_state() -> None:
    def look(state: EventState) -> list[bool]:
        return statements.are_there((Event, state), (StatusChange, state), (StatusChange, None), using="default")

    assert look(EventState.PENDING) == [False, False, False]
    statements.insert_if_free(new_event(), using="default")
    assert look(EventState.PENDING) == [True, False, False]
    assert look(EventState.APPLIED) == [False, False, False]
    change = {"account": "default", "object_kind": "payment", "object_id": "pay_1", "status": "failed"}
    StatusChange.objects.create(**change, at=datetime(2026, 1, 1, tzinfo=UTC), state=EventState.APPLIED)
    assert look(EventState.APPLIED) == [False, True, True]
    assert look(EventState.DONE) == [False, False, True]


def test_expressions_of_no_row_are_answered_in_one_statement(django_assert_num_queries: Any) -> None:
    at = datetime(2026, 1, 1, 12, 30, 15, 250000, tzinfo=UTC)
    statements.insert_if_free(new_event(created_at=at), using="default")
    everything = Event.objects.order_by("-created_at")
    with django_assert_num_queries(1):
        answers = statements.values_of(
            "default",
            Subquery(everything.values("created_at")[:1]),
            Exists(everything),
            Subquery(everything.filter(pk="").values("created_at")[:1]),
        )
    assert (answers[0], bool(answers[1]), answers[2]) == (at, True, None)


def test_a_locked_row_is_read_as_it_is_now(mirrored: Any, django_assert_num_queries: Any) -> None:
    payment = mirrored(payment_of())
    type(payment).objects.filter(pk=payment.pk).update(amount_received=7, metadata={"a": ["b"]})
    with django_assert_num_queries(1):
        row = statements.lock_row(type(payment), payment.pk)
    assert row == payment
    assert (row.amount_received, row.metadata, row.created_at) == (7, {"a": ["b"]}, payment.created_at)
    assert statements.lock_row(type(payment), "pay_none") is None


def test_rows_are_inserted_or_updated_in_sets_of_a_hundred(django_assert_num_queries: Any) -> None:
    def requests(count: int, reason: str) -> list[DueRefresh]:
        return [
            DueRefresh(account="default", object_kind="payment", object_id=f"pay_{number:03}", reason=reason)
            for number in range(count)
        ]

    unique, changes = ("account", "object_kind", "object_id"), {"marks": "{old}.marks + 1", "reason": "{new[reason]}"}
    statements.insert_or_update([], unique=unique, changes=changes)
    # The first one of a process also asks MariaDB how large a packet may be.
    statements.insert_or_update(requests(1, "first"), unique=unique, changes=changes)
    DueRefresh.objects.all().delete()
    with django_assert_num_queries(2):
        statements.insert_or_update(requests(101, "first"), unique=unique, changes=changes)
    with django_assert_num_queries(1):
        statements.insert_or_update(requests(2, "second"), unique=unique, changes=changes)
    found = list(DueRefresh.objects.order_by("object_id").values_list("reason", "marks"))
    assert found == [("second", 2)] * 2 + [("first", 1)] * 99


@pytest.mark.django_db(transaction=True)
def test_rows_are_locked_within_a_transaction_only() -> None:
    """In autocommit the lock would end with its statement, without a word."""
    event = new_event()
    event.save()
    keys = {"id": [event.pk]}
    with pytest.raises(TransactionManagementError):
        statements.rows_in(Event, keys, "default", lock=True)
    with transaction.atomic():
        assert len(statements.rows_in(Event, keys, "default", lock=True)) == 1
    assert len(statements.rows_in(Event, keys, "default")) == 1


def test_sql_that_is_built_once_keeps_neither_a_connection_in_its_json_nor_the_queries_of_its_subqueries() -> None:
    of_event = Subquery(Event.objects.values("received_at")[:1])
    query = Event.objects.annotate(json=Value({}, JSONField()), newest=of_event).values_list("json", "newest").query
    built = statements._build([query], "default")
    assert statements._rows_of(built, {}, "default") == []
    new_event().save()
    [[json, newest]] = statements._rows_of(built, {}, "default")
    assert (json, newest) == ({}, Event.objects.get().received_at)
    # psycopg2 gives it to the value that it sends.
    assert [each for each in built.parameters if getattr(each, "_conn", None) is not None] == []
    assert [each for _, each in built.conversions.values() if isinstance(each, Subquery)] == []


@pytest.mark.django_db(transaction=True)
def test_sql_that_is_built_once_does_not_keep_the_connection_of_its_thread() -> None:
    """A server with many threads, each of which ends, would keep as many connections to the database open."""

    @statements.built_once
    def times() -> QuerySet[Any, Any]:
        return Event.objects.values_list("received_at")

    def read() -> tuple[weakref.ref[Any], Any, Any]:
        [[received_at]] = times(using="default", given={})
        [values] = statements.rows_in(Event, {"id": [event.pk]}, "default")
        read_again = statements.from_values(Event, values, "default").received_at
        connections["default"].close()
        return weakref.ref(connections["default"]), received_at, read_again

    event = new_event()
    statements.insert_if_free(event, using="default")
    statements._conversions.cache_clear()
    with ThreadPoolExecutor(1) as thread:
        left, *found = thread.submit(read).result()
    gc.collect()
    assert left() is None
    [[received_at]] = times(using="default", given={})
    assert {received_at, *found} == {event.received_at}


def test_statements_for_other_numbers_of_objects_share_the_texts_of_their_placeholders() -> None:
    """Almost each batch of a backlog has another shape, and hundreds of objects: a worker would keep 40 MB."""
    few, many = (
        {id(text) for text in [*chain(*keys_of((count, count))), *statements.stand_ins(count)]} for count in (30, 40)
    )
    assert few < many
