"""Many rows in one statement: what is stored is what Django would have stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.safestring import SafeString

from payments_integration.db import statements
from payments_integration.models import Balance, DueRefresh, Event, EventState, Payment, StatusChange, deletion_allowed
from tests.factories import rows

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
#: Values that a provider may put into a JSON object.
ODD: dict[str, Any] = {
    "text": "quotes \" ' and \\ back, %s, {}, line\u2028ends, ñandú 🦙, \x7f",
    "numbers": [0, -1, 2**63 - 1, 2**70, -(2**70), 0.1, 5.0, 1e-7, 123456789.25],
    "rest": [None, True, False, {}, [], {"": ""}],
}


def an_event(key: str, **values: Any) -> Event:
    usual = {"created_at": AT, "object_id": "pay_1", "body": None, "state": EventState.PENDING}
    return rows.unsaved_event(id=key, **{**usual, **values})


def a_payment(key: str, **values: Any) -> Payment:
    return rows.unsaved_payment(id=key, **{"created_at": AT, "merchant_reference": None, **values})


def stored(model: Any) -> dict[str, dict[str, Any]]:
    """Every row's values but its key, by its key's end."""
    found: dict[str, dict[str, Any]] = {}
    for row in model.objects.all():
        values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
        found[str(row.pk)] = {name: value for name, value in values.items() if name != "id"}
    return found


def payments(prefix: str) -> list[Payment]:
    return [
        a_payment(f"{prefix}1", payer=ODD, extra=ODD, metadata=None, merchant_reference="", amount=2**63 - 1),
        a_payment(f"{prefix}2", payer={}, next_action={"a": ODD}, failure_reason="x" * 2000, answer_seconds=0.1),
        a_payment(f"{prefix}3", created_at=AT.astimezone(timezone(timedelta(hours=-3))), status=SafeString("paid")),
    ]


def test_every_value_is_stored_as_django_stores_it() -> None:
    statements.insert_many(payments("pay_a"))
    Payment.objects.bulk_create(payments("pay_b"))
    statements.insert_many(
        [an_event("evt_a1", body=bytes(range(256))), an_event("evt_a2", body=None, state=EventState.HELD)]
    )
    rows = stored(Payment)
    assert len(rows) == 6
    for number in "123":
        assert rows[f"pay_a{number}"] == rows[f"pay_b{number}"]
    assert Payment.objects.filter(metadata__isnull=True).count() == 6, "SQL's null, not that of JSON"
    events = stored(Event)
    assert (events["evt_a1"]["body"], events["evt_a2"]["body"]) == (bytes(range(256)), None)
    assert events["evt_a2"]["state"] == "held"
    assert events["evt_a1"]["created_at"] == AT


def test_an_update_writes_every_value() -> None:
    statements.insert_many(payments("pay_a"))
    rows = [row for row in payments("pay_a") if row.pk != "pay_a3"]
    for row in rows:
        row.status, row.payer, row.amount, row.gone_at = "failed", ODD["rest"][3], 7, AT
    statements.update_many(rows)
    found = stored(Payment)
    for pk in ("pay_a1", "pay_a2"):
        assert [found[pk][name] for name in ("status", "payer", "amount", "gone_at")] == ["failed", {}, 7, AT]
    assert found["pay_a1"]["extra"] == ODD
    assert found["pay_a3"]["status"] == "paid", "not among them"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere they are inserted again")
def test_an_update_of_a_missing_row_is_an_error() -> None:
    statements.insert_many(payments("pay_a"))
    rows = payments("pay_a")
    with deletion_allowed():
        Payment.objects.filter(pk="pay_a2").delete()
    with pytest.raises(DatabaseError, match="do not exist"), transaction.atomic():
        statements.update_many(rows)


def test_any_number_of_rows_takes_one_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        statements.insert_many([an_event(f"evt_{number}", body=b"x") for number in range(60)])
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        statements.insert_many([])
        statements.update_many([])
    assert len(queries) == 0


def test_rows_are_known_to_be_stored() -> None:
    row = an_event("evt_1")
    statements.insert_many([row])
    assert (row._state.adding, row._state.db) == (False, "default")


def test_an_insert_with_a_taken_key_stores_no_row() -> None:
    statements.insert_many([an_event("evt_1", type="payment.created")])
    with pytest.raises(IntegrityError), transaction.atomic():
        statements.insert_many([an_event("evt_2"), an_event("evt_1", type="payment.failed")])
    assert {key: row["type"] for key, row in stored(Event).items()} == {"evt_1": "payment.created"}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite keeps no lengths")
def test_a_value_that_is_too_long_is_refused_and_not_cut() -> None:
    with pytest.raises(DataError), transaction.atomic():
        statements.insert_many([an_event("evt_1", account="x" * 65)])
    statements.insert_many([a_payment("pay_1")])
    with pytest.raises(DataError), transaction.atomic():
        statements.update_many([a_payment("pay_1", status="x" * 65)])
    assert not Event.objects.exists()
    assert Payment.objects.get().status == "succeeded"


def test_after_a_caught_error_the_transaction_cannot_be_committed() -> None:
    statements.insert_many([an_event("evt_1")])
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            statements.insert_many([an_event("evt_1")])
        with pytest.raises(transaction.TransactionManagementError):
            Event.objects.exists()


def test_generated_keys_are_returned() -> None:
    values = {"account": "default", "state_at": AT, "state_by": "event", "synced_at": AT}
    amounts = dict.fromkeys(("available", "pending", "reserve", "hold", "debt"), 1)
    balance = Balance(currency="CLP", **amounts, **values)
    statements.insert_many([balance])
    assert balance.pk == Balance.objects.get().pk
    change = {"account": "default", "object_kind": "payment", "status": "created", "at": AT}
    statements.insert_many([StatusChange(object_id=key, **change) for key in ("a", "b")], keys=False)
    assert set(StatusChange.objects.values_list("object_id", flat=True)) == {"a", "b"}
    marks = [DueRefresh(account="default", object_kind="payment", object_id=key, reason="x") for key in ("a", "b")]
    statements.insert_many(marks, keys=False)
    with pytest.raises(IntegrityError), transaction.atomic():
        statements.insert_many(marks[:1], keys=False)
