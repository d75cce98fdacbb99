"""The recipe of docs/scaling.md, word for word: the event table in partitions by the hash of its id, on PostgreSQL.

Everything of the app then works on it as before. PostgreSQL takes the whole recipe back at the end of the test.
"""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from payments_integration import inbox, reconciliation
from payments_integration.inbox import Receipt
from payments_integration.models import Event, EventSource, EventState, Payment, StatusChange
from tests import factories
from tests.conftest import Receiver
from tests.databases import POSTGRES, execute

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not POSTGRES, reason="the recipe is PostgreSQL's"),
    pytest.mark.promise(2),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
PARTITIONS = 16


def recipe() -> str:
    (block,) = (block for block in blocks() if block.startswith("-- psql --single-transaction"))
    return block


def blocks() -> list[str]:
    found: list[str] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


def select(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def described() -> tuple[Any, ...]:
    """Columns, keys, checks and indexes of the table as Django and its migrations know them."""
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, Event._meta.db_table)
        constraints = connection.introspection.get_constraints(cursor, Event._meta.db_table)
    return columns, constraints


def lives(number: int, *, first: int = 0) -> list[list[dict[str, Any]]]:
    return [factories.life(f"pay_{index}") for index in range(first, first + number)]


def take_in(events: list[dict[str, Any]], source: str = EventSource.WEBHOOK) -> dict[Receipt, int]:
    return dict(inbox.receive_many("default", map(factories.body, events), source=source))


@pytest.fixture
def partitioned(receiver: Receiver) -> list[list[dict[str, Any]]]:
    """The table as the recipe leaves it, with events of every state from before."""
    before = lives(20)
    take_in([event for life in before for event in life[:2]])
    inbox.process()
    inbox.dispatch()
    take_in([life[2] for life in before])
    inbox.process()
    take_in([life[3] for life in before])
    inbox.receive("default", b"no JSON")
    states = {"done": 40, "applied": 20, "pending": 20, "quarantined": 1}
    assert counts() == states
    was, rows = described(), list(Event.objects.order_by("pk").values())
    call_command("payments_views", "--drop", verbosity=0, stdout=StringIO())
    execute(recipe())
    assert described() == was
    assert list(Event.objects.order_by("pk").values()) == rows
    return before


def test_the_other_statements_of_the_page_run() -> None:
    others = [block for block in blocks() if block != recipe()]
    execute(*others)
    ((options,),) = select("SELECT reloptions FROM pg_class WHERE relname = 'payments_integration_event'")
    assert "autovacuum_vacuum_threshold=20000" in options


def counts() -> dict[str, int]:
    states = list(Event.objects.values_list("state", flat=True))
    return {str(state): states.count(state) for state in set(states)}


def test_every_partition_has_its_rows_and_indexes(partitioned: list[Any]) -> None:
    take_in([event for life in lives(60, first=100) for event in life])
    shares = select("SELECT tableoid::regclass::text, count(*) FROM payments_integration_event GROUP BY 1")
    assert len(shares) == PARTITIONS
    assert {table for table, _ in shares} == {f"payments_integration_event_{part}" for part in range(PARTITIONS)}
    assert max(number for _, number in shares) < 3 * min(number for _, number in shares)
    indexes = len(Event._meta.indexes) + 1  # the primary key
    found = select(
        "SELECT tablename, count(*) FROM pg_indexes WHERE tablename ~ '^payments_integration_event_[0-9]+$' GROUP BY 1"
    )
    assert found == [(table, indexes) for table, _ in found]
    assert len(found) == PARTITIONS


def test_old_rows_still_work_after_partitioning(partitioned: list[Any], receiver: Receiver) -> None:
    take_in([life[4] for life in partitioned])
    reconciliation.process_due()
    assert counts() == {"done": 100, "quarantined": 1}
    assert receiver.dispatched == sorted(receiver.dispatched, key=receiver.dispatched.index)
    for life in partitioned:
        mine = [event["id"] for event in life]
        assert [item for item in receiver.dispatched if item in mine] == mine
    assert set(Payment.objects.values_list("status", flat=True)) == {"chargeback"}


def test_an_event_is_stored_once_across_partitions(partitioned: list[Any], receiver: Receiver) -> None:
    """However it comes: the id is still the key of the whole table, not of a partition."""
    known = [event for life in partitioned for event in life[:4]]
    assert take_in(known) == {Receipt.KNOWN: 80}
    fresh = [event for life in lives(20, first=50) for event in life]
    for event in fresh:
        body = factories.body(event)
        assert [inbox.receive("default", body) for _ in range(2)] == [Receipt.NEW, Receipt.KNOWN]
    assert take_in(fresh, EventSource.RECONCILIATION) == {Receipt.KNOWN: 100}
    assert inbox.receive("second", factories.body(fresh[0])) is Receipt.QUARANTINED
    later = {**fresh[0], "created_at": factories.iso(timezone.now())}
    assert inbox.receive("default", factories.body(later)) is Receipt.QUARANTINED
    row = Event.objects.get(pk=fresh[0]["id"])
    row.created_at += timedelta(days=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)
    reconciliation.process_due()
    reconciliation.process_due()
    assert sorted(receiver.dispatched) == sorted(set(receiver.dispatched))
    assert {event["id"] for event in fresh} < set(receiver.dispatched)
    assert StatusChange.objects.filter(object_id="pay_50").count() == 1


def test_claims_and_keys_find_their_rows_by_index(partitioned: list[Any]) -> None:
    """The oldest pending events come merged from the partitions' indexes; a key asks one partition."""
    execute("SET LOCAL enable_seqscan = off", "SET LOCAL enable_bitmapscan = off")
    claim = Event.objects.filter(state=EventState.PENDING, attempts=0).order_by("created_at", "id")
    plan = claim.select_for_update(skip_locked=True)[:500].explain()
    assert "Merge Append" in plan
    assert "->  Sort" not in plan
    key = Event.objects.filter(pk="evt_1").explain()
    assert key.count("Index Scan") == 1
    assert "Append" not in key


def test_old_events_of_all_partitions_are_pruned(partitioned: list[Any], receiver: Receiver) -> None:
    reconciliation.process_due()
    done = Event.objects.filter(state=EventState.DONE)
    assert done.count() == 80
    ids = sorted(done.values_list("pk", flat=True))
    at = timezone.now() - timedelta(days=500)
    done.filter(pk__in=ids[:20]).update(created_at=at, received_at=at)
    assert reconciliation.prune()["events"] == 20
    assert sorted(done.values_list("pk", flat=True)) == ids[20:]
    assert Event.objects.filter(state=EventState.QUARANTINED).count() == 1


def test_later_migrations_still_change_it(partitioned: list[Any]) -> None:
    """By the names that Django has given: an index goes and comes, a column is added."""
    index = Event._meta.indexes[0]
    with connection.schema_editor() as editor:
        editor.remove_index(Event, index)
        editor.add_index(Event, index)
    execute("ALTER TABLE payments_integration_event ADD COLUMN later varchar(8) NOT NULL DEFAULT ''")
    assert Event.objects.filter(state=EventState.PENDING).count() == 20
