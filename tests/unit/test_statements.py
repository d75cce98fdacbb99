from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection

from payments_integration import statements
from payments_integration.inbox import receiving
from payments_integration.models import Event, EventState
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
        {"told_at": datetime(2026, 1, 1, tzinfo=UTC)},
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


def test_rows_of_different_shapes_do_not_share_a_text() -> None:
    plain, failed = new_event(), new_event(attempts=2, error="no")
    failed.id = f"{failed.id}_2"
    for event in (plain, failed):
        statements.insert(event, using="default")
    assert list(Event.objects.order_by("attempts").values_list("attempts", "error")) == [(0, ""), (2, "no")]


def test_a_key_that_is_taken() -> None:
    event = new_event()
    assert statements.insert(event, using="default") == 1
    again = new_event(id=event.id, type="payment.other")
    if connection.vendor == "mysql":
        with pytest.raises(IntegrityError):
            statements.insert(again, using="default")
    else:
        assert statements.insert(again, using="default") == 0
        assert Event.objects.get().type == event.type


def test_values_of_one_row() -> None:
    event = new_event(attempts=7)
    statements.insert(event, using="default")
    found = statements.values_by_key(Event, event.pk, "account", "attempts", using="default")
    assert found == ("default", 7)
    assert statements.values_by_key(Event, event.pk, "content_hash", using="default") == (event.content_hash,)
    assert statements.values_by_key(Event, "evt_unknown", "account", using="default") is None
