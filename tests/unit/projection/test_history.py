"""Where history ends: the first contact, DISPATCH_SINCE, and what it costs to know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import conf, inbox, projection, schemas
from payments_integration.enums import Kind
from payments_integration.models import AccountState, Event, Operation, Payment, StatusChange
from payments_integration.projection import events, history
from tests import factories
from tests.conftest import Receiver
from tests.factories import T0, body, event, iso

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("woken", "on_a_site"),
    pytest.mark.promise(6),
    pytest.mark.case(129),
]

NOW = T0 + timedelta(hours=2)
OLD = NOW - timedelta(days=3)


@pytest.fixture
def on_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Django's test environment everything is dispatched."""
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)


def contact(at: datetime = NOW) -> None:
    with time_machine.travel(at, tick=False):
        projection.note_contact("default", at)


def paid(object_id: str, at: datetime) -> dict[str, Any]:
    return factories.payment(
        id=object_id, status="succeeded", amount_received=10_000, created_at=iso(at), succeeded_at=iso(at)
    )


def arrive(*objects: tuple[dict[str, Any], datetime]) -> None:
    for item, at in objects:
        sent = event(item, type="payment.succeeded", id=f"evt_{item['id']}", created_at=iso(at))
        inbox.receive("default", body(sent))
    inbox.process()
    inbox.dispatch()


def answered(item: dict[str, Any], at: datetime) -> Payment:
    resource = schemas.parse_resource(item, schemas.Payment)
    before = projection.snapshot(Kind.PAYMENT, "default", resource.id)
    with time_machine.travel(at, tick=False):
        row: Payment = projection.write_answer("default", resource, answered_at=at, duration=0.1, before=before)
    return row


def test_the_border_is_an_hour_before_the_contact() -> None:
    assert projection.dispatch_begins_at("default") is None
    contact()
    assert projection.dispatch_begins_at("default") == NOW - timedelta(hours=1)
    assert projection.is_history("default", NOW - timedelta(hours=1, seconds=1))
    assert not projection.is_history("default", NOW - timedelta(hours=1))
    assert not projection.is_history("second", OLD)


def test_the_first_contact_stays() -> None:
    contact()
    contact(NOW - timedelta(hours=1))
    projection.forget_contacts()
    contact(NOW + timedelta(days=400))
    assert AccountState.objects.get().first_contact_at == NOW


def test_a_row_without_contact_gets_it() -> None:
    AccountState.objects.create(account="default", clock_offset=3.0)
    contact()
    state = AccountState.objects.get()
    assert (state.first_contact_at, state.clock_offset) == (NOW, 3.0)


def test_an_account_with_a_watermark_had_contact_by_then() -> None:
    AccountState.objects.create(account="default", watermark=OLD)
    contact()
    assert AccountState.objects.get().first_contact_at == OLD


@pytest.mark.parametrize("at", [None, NOW + timedelta(days=365), NOW - timedelta(days=365)])
def test_a_wrong_time_is_no_contact(at: datetime | None) -> None:
    with time_machine.travel(NOW, tick=False):
        projection.note_contact("default", at)
    assert not AccountState.objects.exists()


def test_a_process_that_knows_the_contact_asks_nothing() -> None:
    contact()
    projection.dispatch_begins_at("default")
    with CaptureQueriesContext(connection) as queries:
        contact()
        projection.is_history("default", NOW)
    assert not queries.captured_queries


def test_other_processes_notice_a_forgotten_account(monkeypatch: pytest.MonkeyPatch) -> None:
    contact()
    projection.dispatch_begins_at("default")
    AccountState.objects.all().delete()
    monkeypatch.setattr(history.time, "monotonic", lambda: float("inf"))
    assert projection.dispatch_begins_at("default") is None


def test_an_old_event_is_done_and_never_dispatched(receiver: Receiver) -> None:
    contact()
    arrive((paid("pay_old", OLD), OLD), (paid("pay_new", NOW), NOW))
    assert receiver.dispatched == ["evt_pay_new"]
    old = Event.objects.get(pk="evt_pay_old")
    assert (old.state, old.dispatched_at) == ("done", None)
    assert Payment.objects.get(pk="pay_old").status == "succeeded"


def test_a_bug_that_an_old_event_triggers_calls_no_attention(attentions: list[dict[str, Any]]) -> None:
    contact()
    for name, at in (("pay_old", OLD), ("pay_new", NOW)):
        inbox.receive("default", body(event(paid(name, at), id=f"evt_{name}", created_at=iso(at))))
    with mock.patch.object(events.rows, "row_values", side_effect=AttributeError("oops")):
        inbox.process()
    # Both are shown by payments_health.
    assert Event.objects.filter(state="pending", attempts__gte=1).count() == 2
    assert [(seen["reason"], seen["instance"].pk) for seen in attentions] == [("event_not_applied", "evt_pay_new")]


def test_a_body_that_is_not_understood_calls_attention(attentions: list[dict[str, Any]]) -> None:
    contact()
    inbox.receive("default", body({**event(paid("pay_old", OLD), created_at=iso(OLD)), "data": 1}))
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]


def test_a_batch_asks_once_which_objects_are_ours(receiver: Receiver) -> None:
    contact()
    Operation.objects.create(id="op_1", account="default", operation="create_payment", result_id="pay_3")
    for number in range(6):
        sent = event(paid(f"pay_{number}", OLD), type="payment.succeeded", id=f"evt_{number}", created_at=iso(OLD))
        inbox.receive("default", body(sent))
    with CaptureQueriesContext(connection) as queries:
        inbox.process()
    asked = [query for query in queries.captured_queries if "payments_integration_operation" in query["sql"]]
    assert len(asked) == 1
    inbox.dispatch()
    assert receiver.dispatched == ["evt_3"]


def test_a_batch_without_old_events_asks_nothing(receiver: Receiver) -> None:
    contact()
    with CaptureQueriesContext(connection) as queries:
        arrive((paid("pay_1", NOW), NOW))
    assert not [query for query in queries.captured_queries if "payments_integration_operation" in query["sql"]]


class TestAnswers:
    def test_a_new_object_is_dated_by_its_own_times(self, receiver: Receiver) -> None:
        contact()
        answered(paid("pay_old", OLD), NOW)
        answered(paid("pay_1", OLD) | {"succeeded_at": iso(NOW)}, NOW)
        answered(factories.payment(id="pay_2", status="failed", created_at=iso(OLD)), NOW)
        inbox.dispatch()
        assert receiver.statuses == [("", "succeeded")]
        changes = dict(StatusChange.objects.values_list("object_id", "at"))
        assert changes == {"pay_old": OLD, "pay_1": NOW, "pay_2": OLD}
        states = dict(StatusChange.objects.values_list("object_id", "dispatched_at"))
        assert states["pay_old"] is None

    def test_a_change_of_a_known_object_is_dated_by_the_answer(self, receiver: Receiver) -> None:
        contact()
        answered(factories.payment(created_at=iso(OLD)), NOW)
        answered(factories.payment(created_at=iso(OLD), status="failed"), NOW + timedelta(minutes=1))
        inbox.dispatch()
        assert receiver.statuses == [("created", "failed")]

    def test_a_change_of_what_an_old_event_wrote_may_be_as_old(self, receiver: Receiver) -> None:
        contact()
        created = factories.payment(created_at=iso(OLD))
        inbox.receive("default", body(event(created, created_at=iso(OLD))))
        inbox.process()
        answered(created | {"status": "failed"}, NOW)
        inbox.dispatch()
        assert not receiver.statuses

    def test_after_the_first_synchronisation_the_answer_dates_it(self, receiver: Receiver) -> None:
        contact()
        AccountState.objects.update(first_synced_at=timezone.now())
        answered(paid("pay_1", OLD), NOW)
        inbox.dispatch()
        assert receiver.statuses == [("", "succeeded")]
        assert StatusChange.objects.get().at == NOW

    def test_the_object_of_an_own_operation_is_dispatched(self, receiver: Receiver) -> None:
        contact()
        Operation.objects.create(id="op_1", account="default", operation="create_payment", result_id="pay_1")
        answered(paid("pay_1", OLD), NOW)
        inbox.dispatch()
        assert receiver.statuses == [("", "succeeded")]

    def test_a_list_is_written_by_the_same_rule(self, receiver: Receiver) -> None:
        contact()
        items = [paid("pay_old", OLD), paid("pay_new", NOW), paid("pay_ours", OLD)]
        Operation.objects.create(id="op_1", account="default", operation="create_payment", result_id="pay_ours")
        resources = [schemas.parse_resource(item, schemas.Payment) for item in items]
        with time_machine.travel(NOW, tick=False):
            projection.write_new("default", resources, answered_at=NOW, duration=0.1)
        inbox.dispatch()
        dispatched = StatusChange.objects.exclude(dispatched_at=None).values_list("object_id", flat=True)
        assert set(dispatched) == {"pay_new", "pay_ours"}
        assert len(receiver.statuses) == 2


def test_the_time_of_the_first_valid_signature_is_the_contact(client: Any) -> None:
    from payments_integration.testing import signed_delivery  # noqa: PLC0415

    raw = body(event(factories.payment()))
    url = "/payments/webhook/"
    assert client.post(url, **signed_delivery(raw, "wrong")).status_code == 400
    assert not AccountState.objects.exists()
    assert client.post(url, **signed_delivery(raw, "whsec_default")).status_code == 200
    found = AccountState.objects.get().first_contact_at
    assert found is not None
    assert abs(found - datetime.now(UTC)) < timedelta(seconds=10)
    with CaptureQueriesContext(connection) as queries:
        client.post(url, **signed_delivery(body(event(factories.payment(id="pay_2"), id="evt_2")), "whsec_default"))
    assert not [query for query in queries.captured_queries if "accountstate" in query["sql"]]
