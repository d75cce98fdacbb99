"""Many rows in one statement: what is stored is what Django would have stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.safestring import SafeString

from payments_integration import bulk
from payments_integration.models import Balance, DueRefresh, Event, EventState, Payment, StatusChange

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
#: Whatever a provider may put into a JSON object.
ODD: dict[str, Any] = {
    "text": "quotes \" ' and \\ back, %s, {}, line\u2028ends, ñandú 🦙, \x7f",
    "numbers": [0, -1, 2**63 - 1, 2**70, -(2**70), 0.1, 5.0, 1e-7, 123456789.25],
    "rest": [None, True, False, {}, [], {"": ""}],
}


def an_event(key: str, **values: Any) -> Event:
    defaults = {"account": "default", "type": "payment.created", "created_at": AT, "object_kind": "payment"}
    return Event(id=key, **{**defaults, "object_id": "pay_1", "source": "webhook", "content_hash": "0" * 64, **values})


def a_payment(key: str, **values: Any) -> Payment:
    defaults = {"account": "default", "status": "created", "amount": 1, "amount_received": 0, "currency": "CLP",
                "country": "CL", "method_code": "a", "method_family": "card", "created_at": AT, "state_at": AT,
                "state_by": "event", "synced_at": AT}  # fmt: skip
    return Payment(id=key, **{**defaults, **values})


def stored(model: Any) -> dict[str, dict[str, Any]]:
    """Every row's values but its key, by its key's end."""
    found: dict[str, dict[str, Any]] = {}
    for row in model.objects.all():
        values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
        values = {name: bytes(value) if isinstance(value, memoryview) else value for name, value in values.items()}
        found[str(row.pk)] = {name: value for name, value in values.items() if name != "id"}
    return found


def payments(prefix: str) -> list[Payment]:
    return [
        a_payment(f"{prefix}1", payer=ODD, extra=ODD, metadata=None, merchant_reference="", amount=2**63 - 1),
        a_payment(f"{prefix}2", payer={}, next_action={"a": ODD}, failure_reason="x" * 2000, state_span=0.1),
        a_payment(f"{prefix}3", created_at=AT.astimezone(timezone(timedelta(hours=-3))), status=SafeString("paid")),
    ]


def test_every_value_is_stored_as_django_stores_it() -> None:
    bulk.insert(payments("pay_a"))
    Payment.objects.bulk_create(payments("pay_b"))
    bulk.insert([an_event("evt_a1", body=bytes(range(256))), an_event("evt_a2", body=None, state=EventState.HELD)])
    rows = stored(Payment)
    assert len(rows) == 6
    for number in "123":
        assert rows[f"pay_a{number}"] == rows[f"pay_b{number}"]
    assert Payment.objects.filter(metadata__isnull=True).count() == 6, "SQL's null, not that of JSON"
    events = stored(Event)
    assert (events["evt_a1"]["body"], events["evt_a2"]["body"]) == (bytes(range(256)), None)
    assert events["evt_a2"]["state"] == "held"
    assert events["evt_a1"]["created_at"] == AT


def test_rows_are_overwritten_with_every_value() -> None:
    bulk.insert(payments("pay_a"))
    rows = [row for row in payments("pay_a") if row.pk != "pay_a3"]
    for row in rows:
        row.status, row.payer, row.amount, row.gone_at = "failed", ODD["rest"][3], 7, AT
    bulk.overwrite(rows)
    found = stored(Payment)
    for pk in ("pay_a1", "pay_a2"):
        assert [found[pk][name] for name in ("status", "payer", "amount", "gone_at")] == ["failed", {}, 7, AT]
    assert found["pay_a1"]["extra"] == ODD
    assert found["pay_a3"]["status"] == "paid", "not among them"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere they are inserted again")
def test_a_row_to_overwrite_that_is_gone_is_an_error() -> None:
    bulk.insert(payments("pay_a"))
    rows = payments("pay_a")
    Payment.objects.filter(pk="pay_a2").delete()
    with pytest.raises(DatabaseError, match="not there"), transaction.atomic():
        bulk.overwrite(rows)


def test_one_statement_whatever_the_number() -> None:
    with CaptureQueriesContext(connection) as queries:
        bulk.insert([an_event(f"evt_{number}", body=b"x") for number in range(60)])
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        bulk.insert([])
        bulk.overwrite([])
    assert len(queries) == 0


def test_rows_are_known_to_be_stored() -> None:
    row = an_event("evt_1")
    bulk.insert([row])
    assert (row._state.adding, row._state.db) == (False, "default")


def test_a_key_that_is_taken_stores_nothing_of_it() -> None:
    bulk.insert([an_event("evt_1", type="payment.created")])
    with pytest.raises(IntegrityError), transaction.atomic():
        bulk.insert([an_event("evt_2"), an_event("evt_1", type="payment.failed")])
    assert {key: row["type"] for key, row in stored(Event).items()} == {"evt_1": "payment.created"}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite keeps no lengths")
def test_what_is_too_long_is_refused_and_not_cut() -> None:
    with pytest.raises(DataError), transaction.atomic():
        bulk.insert([an_event("evt_1", account="x" * 65)])
    bulk.insert([a_payment("pay_1")])
    with pytest.raises(DataError), transaction.atomic():
        bulk.overwrite([a_payment("pay_1", status="x" * 65)])
    assert not Event.objects.exists()
    assert Payment.objects.get().status == "created"


def test_an_error_that_is_caught_within_a_transaction_lets_nothing_be_committed() -> None:
    bulk.insert([an_event("evt_1")])
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            bulk.insert([an_event("evt_1")])
        with pytest.raises(transaction.TransactionManagementError):
            Event.objects.exists()


def test_keys_of_the_databases_own() -> None:
    values = {"account": "default", "state_at": AT, "state_by": "event", "synced_at": AT}
    amounts = dict.fromkeys(("available", "pending", "reserve", "hold", "debt"), 1)
    balance = Balance(currency="CLP", **amounts, **values)
    bulk.insert([balance])
    assert balance.pk == Balance.objects.get().pk
    change = {"account": "default", "object_kind": "payment", "status": "created", "at": AT}
    bulk.insert([StatusChange(object_id=key, **change) for key in ("a", "b")], keys=False)
    assert set(StatusChange.objects.values_list("object_id", flat=True)) == {"a", "b"}
    marks = [DueRefresh(account="default", object_kind="payment", object_id=key, reason="x") for key in ("a", "b")]
    bulk.insert(marks, keys=False)
    with pytest.raises(IntegrityError), transaction.atomic():
        bulk.insert(marks[:1], keys=False)
