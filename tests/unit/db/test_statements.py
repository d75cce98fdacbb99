from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection

from payments_integration.db import statements
from payments_integration.inbox import receiving
from payments_integration.models import Event, EventSource, EventState, StatusChange
from tests import factories

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
        assert statements.insert(event, using="default") == 1
        stored = Event.objects.get(pk=event.pk)
        for field in Event._meta.local_concrete_fields:
            ours, theirs = getattr(event, field.attname), getattr(stored, field.attname)
            assert (bytes(theirs) if isinstance(ours, bytes) else theirs) == ours, field.attname
        stored.delete()


def test_rows_with_different_empty_values_do_not_share_their_sql() -> None:
    plain, failed = new_event(), new_event(attempts=2, error="no")
    failed.id = f"{failed.id}_2"
    for event in (plain, failed):
        statements.insert(event, using="default")
    assert list(Event.objects.order_by("attempts").values_list("attempts", "error")) == [(0, ""), (2, "no")]


def test_an_insert_with_a_taken_key_returns_zero() -> None:
    event = new_event()
    assert statements.insert(event, using="default") == 1
    again = new_event(id=event.id, type="payment.other")
    if connection.vendor == "mysql":
        with pytest.raises(IntegrityError):
            statements.insert(again, using="default")
    else:
        assert statements.insert(again, using="default") == 0
        assert Event.objects.get().type == event.type


def test_values_by_key_returns_the_columns_of_one_row() -> None:
    event = new_event(attempts=7)
    statements.insert(event, using="default")
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
        ours, theirs = Event.arrived(**names, **more), Event(**names, **more)
        theirs.received_at = ours.received_at
        for field in Event._meta.local_concrete_fields:
            assert getattr(ours, field.attname) == getattr(theirs, field.attname), field.attname
        assert ours._state.adding


def test_whether_any_row_is_in_a_state() -> None:
    def look(state: EventState) -> bool:
        return statements.is_any_in_state(state, Event, StatusChange, using="default")

    assert not look(EventState.PENDING)
    statements.insert(new_event(), using="default")
    assert look(EventState.PENDING)
    assert not look(EventState.APPLIED)
    change = {"account": "default", "object_kind": "payment", "object_id": "pay_1", "status": "failed"}
    StatusChange.objects.create(**change, at=datetime(2026, 1, 1, tzinfo=UTC), state=EventState.APPLIED)
    assert look(EventState.APPLIED)


def test_whether_a_table_is_empty() -> None:
    assert statements.is_empty(Event, using="default")
    statements.insert(new_event(), using="default")
    assert not statements.is_empty(Event, using="default")
