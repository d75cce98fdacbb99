"""What is stored is what came, on every database: nothing dropped, cut, clamped or taken for something else."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db import DatabaseError, IntegrityError
from django.test import Client
from django.utils import timezone

import payments_integration
from payments_integration import inbox, reconciliation, schemas, services
from payments_integration.inbox import Receipt, receiving
from payments_integration.models import DueRefresh, Event, ObjectDispatch, Operation, Payment, Refund, StatusChange
from payments_integration.testing import signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.databases import MARIADB, execute
from tests.factories import body, event

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.usefixtures("woken")]

BIGGEST = 2**63 - 1
PAYMENT: dict[str, Any] = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_card"}


@pytest.mark.case(27)
def test_conflicts_are_never_ignored() -> None:
    """It hides more than duplicates: MariaDB cuts and clamps, SQLite drops what breaks any rule."""
    package = Path(payments_integration.__file__).parent
    files = list(package.rglob("*.py"))
    assert len(files) > 100
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword | ast.arg):
                assert node.arg != "ignore_conflicts", path
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.upper()
                assert "INSERT IGNORE" not in text, path
                assert "INSERT OR IGNORE" not in text, path
                assert "ON CONFLICT DO NOTHING" not in text, path


def broken(account: str, raw: bytes, *, source: str) -> Event:
    """A row that every database refuses."""
    row = READ(account, raw, source=source)
    row.type = None  # type: ignore[assignment]
    return row


READ = receiving.read


@pytest.mark.case(27)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("are_new", [False, True])
@pytest.mark.parametrize("known", [0, 1, 3])
def test_a_refused_row_is_an_error_and_no_duplicate(
    known: int, are_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [body(item) for item in factories.life()[:3]]
    inbox.receive_many("default", events[:known], source="webhook")
    fresh = body(factories.life()[4])
    monkeypatch.setattr(receiving, "read", broken)
    with pytest.raises(IntegrityError):
        inbox.receive("default", fresh)
    with pytest.raises(IntegrityError):
        inbox.receive_many("default", [*events, fresh], source="reconciliation", are_new=are_new)
    assert Client().post("/payments/webhook/", **signed_delivery(fresh, "whsec_default")).status_code == 503
    assert Event.objects.count() == known, "nor is a part of the page stored"
    monkeypatch.undo()
    counts = inbox.receive_many("default", [*events, fresh], source="reconciliation", are_new=are_new)
    assert (counts[Receipt.NEW], counts[Receipt.KNOWN]) == (4 - known, known)


REFUSED_BY_A_COLUMN: dict[str, dict[str, Any]] = {
    "id": {"id": "pay_" + "x" * 252},
    "reference": {"merchant_reference": "x" * 256},
    "reference in four bytes each": {"merchant_reference": "\U0001f4b8" * 256},
    "currency": {"currency": "C" * 65},
    "status": {"status": "s" * 65},
    "amount": {"amount": BIGGEST + 1},
    "amount below": {"fee": -BIGGEST - 2},
}


@pytest.mark.case(22)
@pytest.mark.case(27)
@pytest.mark.case(32)
@pytest.mark.parametrize("case", REFUSED_BY_A_COLUMN)
def test_a_value_that_is_too_large_for_its_column_is_quarantined_whole(case: str) -> None:
    """Also where the database would cut or clamp it: MariaDB without strict mode, SQLite always."""
    if MARIADB:
        execute("SET SESSION sql_mode = ''")
    try:
        raw = body(event(factories.payment(**REFUSED_BY_A_COLUMN[case]), id="evt_1"))
        assert inbox.receive("default", raw) is Receipt.QUARANTINED
        assert inbox.receive_many("default", [raw], source="reconciliation")[Receipt.NEW] == 0
        assert bytes(Event.objects.get().body or b"") == raw
        inbox.process()
        assert not Payment.objects.exists()
        long_id = body(event(factories.payment(), id="evt_" + "x" * 252))
        assert inbox.receive("default", long_id) is Receipt.QUARANTINED
        assert set(Event.objects.values_list("state", flat=True)) == {"quarantined"}
    finally:
        if MARIADB:
            execute("SET SESSION sql_mode = DEFAULT")


@pytest.mark.case(18)
@pytest.mark.case(22)
@pytest.mark.case(32)
def test_the_largest_accepted_values_are_stored_unchanged() -> None:
    nested: Any = "x"
    for _ in range(schemas.MAX_DEPTH - 3):  # within the metadata of the object of the event
        nested = [nested]
    fields: dict[str, Any] = {
        "id": "pay_" + "x" * 251,
        "status": "s" * 64,
        "currency": "C" * 64,
        "amount": BIGGEST,
        "amount_received": 0,
        "fee": -BIGGEST - 1,
        "merchant_reference": "\U0001f4b8" * 255,
        "method_code": "ñ" * 255,
        "failure_reason": "\U0001f600 " * 1_024,
        "metadata": {"deep": nested, "quote": "'\"\\ %s ? $1 \u2028", "": None, "big": 2**53 + 1},
    }
    at = datetime(2020, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
    data = {
        **factories.payment(**fields),
        "created_at": factories.iso(at),
        "expires_at": "8999-12-31T00:00:00.000001Z",
    }
    item = {**event(data, id="e" * 255), "type": "payment." + "t" * 247}
    assert inbox.receive("default", body(item)) is Receipt.NEW, Event.objects.get().error
    assert inbox.process() == 1
    row = Payment.objects.get()
    assert {name: getattr(row, name) for name in fields} == fields
    assert (row.created_at, row.expires_at) == (at, datetime(8999, 12, 31, 0, 0, 0, 1, tzinfo=UTC))
    stored = Event.objects.get()
    assert (stored.id, stored.type, bytes(stored.body or b"")) == (item["id"], item["type"], body(item))
    assert StatusChange.objects.get().status == "s" * 64
    # One microsecond later is later, one earlier is history.
    when = datetime.fromisoformat(item["created_at"])
    for microseconds, amount in ((1, 7), (-1, 8)):
        moment = factories.iso(when + timedelta(microseconds=microseconds))
        changed = {**item, "id": f"evt_{microseconds}", "created_at": moment, "data": {**data, "amount": amount}}
        inbox.receive("default", body(changed))
    inbox.process()
    assert Payment.objects.get().amount == 7
    assert not DueRefresh.objects.exists()


@pytest.mark.case(17)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e400"])
@pytest.mark.parametrize("place", ['"amount": 10000', '"x": {"y": [10000]}'])
def test_invalid_numbers_go_to_quarantine(number: str, place: str) -> None:
    """In a JSON column SQLite and MariaDB refuse them by a rule of the column: an IntegrityError, like a duplicate."""
    raw = json.dumps(event(factories.payment(x={"y": [10000]}))).replace(place, place.replace("10000", number))
    assert number in raw
    assert inbox.receive("default", raw.encode()) is Receipt.QUARANTINED
    assert inbox.receive("default", body(event(factories.payment()))) is Receipt.NEW
    assert inbox.process() == 1


@pytest.mark.case(19)
def test_nul_in_every_text_is_kept_in_the_body_and_replaced_in_the_mirror() -> None:
    odd = "a\x00b"
    data = factories.payment(
        merchant_reference=odd, method_code=odd, failure_reason=odd, checkout_url=odd, status=odd, flow=odd,
        payer={odd: [odd, {odd: odd}]}, metadata={odd: odd}, next_action={"x": odd}, new_field={odd: odd},
    )  # fmt: skip
    raw = body({**event(data, id="evt_1"), "type": "payment.created"})
    assert inbox.receive("default", raw) is Receipt.NEW
    assert inbox.process() == 1
    row, clean = Payment.objects.get(), "a\ufffdb"
    assert (row.merchant_reference, row.method_code, row.failure_reason, row.checkout_url) == (clean,) * 4
    assert (row.status, row.flow, row.metadata, row.extra) == (
        clean,
        clean,
        {clean: clean},
        {"new_field": {clean: clean}},
    )
    assert row.payer == {clean: [clean, {clean: clean}]}
    assert StatusChange.objects.get().status == clean
    assert bytes(Event.objects.get().body or b"") == raw
    assert inbox.receive("default", raw) is Receipt.KNOWN


@pytest.mark.case(26)
@pytest.mark.promise(2)
def test_names_that_differ_by_case_or_a_space_are_never_mixed_up(receiver: Receiver) -> None:
    names = ["pay_a", "pay_A", "pay_a "]
    for name in names:
        for item in factories.life(name)[:2]:
            assert inbox.receive("default", body(item)) is Receipt.NEW
            assert inbox.receive("default", body(item)) is Receipt.KNOWN
        inbox.receive("default", body(event(factories.refund(id=f"ref{name[3:]}", payment_id=name))))
    inbox.process()
    assert set(Payment.objects.values_list("pk", flat=True)) == set(names)
    assert dict(Refund.objects.values_list("payment_id", "pk")) == {name: f"ref{name[3:]}" for name in names}
    assert set(DueRefresh.objects.values_list("object_id", flat=True)) == set(names)
    inbox.dispatch()
    assert ObjectDispatch.objects.filter(object_kind="payment").count() == len(names)
    for name in names:
        mine = [item["id"] for item in factories.life(name)[:2]]
        assert [item for item in receiver.dispatched if item in mine] == mine
    changes = StatusChange.objects.filter(object_kind="payment").values_list("object_id", flat=True)
    assert sorted(changes) == sorted(names)


@pytest.mark.case(26)
@pytest.mark.promise(5)
def test_keys_that_differ_by_case_are_two_intents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.outbox.submission._send_deferred", lambda pk: None)
    made = {key: services.defer(services.create_payment, **PAYMENT, idempotency_key=key).pk for key in ("k", "K")}
    assert len(set(made.values())) == Operation.objects.count() == 2
    for key in made:
        assert services.defer(services.create_payment, **PAYMENT, idempotency_key=key).pk == made[key]


@pytest.mark.case(30)
@pytest.mark.promise(2)
@pytest.mark.parametrize("prune", [False, True])
def test_a_manual_redelivery_on_day_29_has_no_effect(receiver: Receiver, prune: bool) -> None:
    events = factories.life()
    client = Client()
    for item in events:
        assert client.post("/payments/webhook/", **signed_delivery(item, "whsec_default")).status_code == 200
    inbox.process()
    inbox.dispatch()
    before = Payment.objects.values().get()
    dispatched = list(receiver.dispatched)
    assert len(dispatched) == 5
    with time_machine.travel(timezone.now() + timedelta(days=29)):
        if prune:
            reconciliation.prune()
        for item in (events[1], events[4]):
            assert client.post("/payments/webhook/", **signed_delivery(item, "whsec_default")).status_code == 200
        inbox.process()
        inbox.dispatch()
    assert Event.objects.count() == 5
    assert Payment.objects.values().get() == before
    assert receiver.dispatched == dispatched
    assert not DueRefresh.objects.exists()


@pytest.mark.case(32)
def test_long_values_do_not_rely_on_the_database_to_refuse_them() -> None:
    """Every text that a row of the inbox or the ledger takes from outside has a limit that is checked before."""
    row = receiving.read("default", body(factories.life()[0]), source="webhook")
    row.type = "x" * 256
    try:
        row.save(force_insert=True)
    except DatabaseError:
        return  # PostgreSQL, and MariaDB in strict mode: refused, not cut
    assert Event.objects.get().type == "x" * 256, "SQLite keeps it whole"
