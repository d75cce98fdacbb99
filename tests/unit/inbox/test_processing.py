"""Applying events in batches: what it costs, and what it does with what it finds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, schemas
from payments_integration.inbox import Receipt, processing
from payments_integration.models import (
    AccountState,
    Balance,
    DueRefresh,
    Event,
    Payment,
    Refund,
    StatusChange,
)
from payments_integration.projection import events as projection_events
from tests import factories
from tests.databases import built_queries
from tests.factories import body, event

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken")]


def receive(*events: dict[str, Any], account: str = "default") -> None:
    for item in events:
        inbox.receive(account, body(item))


def test_a_batch_of_500_events_costs_at_most_18_statements() -> None:
    events = [item for n in range(125) for item in factories.life(f"pay_{n}")[:4]]
    counts = inbox.receive_many("default", map(body, events), source="reconciliation")
    assert counts[Receipt.NEW] == 500
    with CaptureQueriesContext(connection) as queries:
        assert inbox.process() == 500
        assert inbox.dispatch() == 0
    assert len(queries) <= 18, [query["sql"][:80] for query in queries]
    assert Payment.objects.filter(status="succeeded").count() == 125
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}


def test_the_statements_do_not_grow_with_updates() -> None:
    first = [item for n in range(100) for item in factories.life(f"pay_{n}")[:2]]
    later = [item for n in range(100) for item in factories.life(f"pay_{n}")[2:4]]
    inbox.receive_many("default", map(body, first), source="reconciliation")
    inbox.process()
    inbox.receive_many("default", map(body, later), source="reconciliation")
    with CaptureQueriesContext(connection) as queries:
        assert inbox.process() == 200
    assert len(queries) <= 13, [query["sql"][:80] for query in queries]
    assert Payment.objects.filter(status="succeeded").count() == 100


def test_the_queries_that_apply_an_event_are_built_once() -> None:
    first, second, third, *_ = factories.life()
    receive(first)
    inbox.process(hurry=True)
    receive(second)
    inbox.process(hurry=True)
    receive(third)
    with built_queries() as built:
        assert inbox.process(hurry=True) == 1
    assert built == []


def test_a_page_of_100_known_events_costs_one_statement() -> None:
    events = [body(item) for n in range(25) for item in factories.life(f"pay_{n}")[:4]]
    inbox.receive_many("default", events, source="reconciliation")
    with CaptureQueriesContext(connection) as queries:
        counts = inbox.receive_many("default", events, source="reconciliation")
    assert len(queries) <= 1
    assert counts[Receipt.KNOWN] == 100


def test_a_page_that_is_probably_new_is_stored_without_a_look() -> None:
    events = [body(item) for item in factories.life()[:4]]
    with CaptureQueriesContext(connection) as queries:
        counts = inbox.receive_many("default", events, source="reconciliation", are_new=True)
    assert counts[Receipt.NEW] == 4
    assert not [query["sql"] for query in queries if query["sql"].startswith("SELECT")]


@pytest.mark.case(33)
@pytest.mark.django_db(transaction=True)
def test_events_that_were_probably_new_but_are_known_are_stored_once() -> None:
    life = factories.life()
    inbox.receive_many("default", map(body, life[:2]), source="webhook")
    other = {**life[1], "data": {**life[1]["data"], "amount": 1}}
    page = [body(item) for item in (life[0], other, *life[2:4])]
    for expected in ({Receipt.NEW: 2, Receipt.KNOWN: 1, Receipt.QUARANTINED: 1}, {Receipt.KNOWN: 4}):
        assert inbox.receive_many("default", page, source="reconciliation", are_new=True) == expected
    assert Event.objects.count() == 5


def test_one_status_change_per_object_and_batch() -> None:
    receive(*factories.life()[:4])
    inbox.process()
    change = StatusChange.objects.get()
    assert (change.previous_status, change.status, change.event_id) == (
        "",
        "succeeded",
        factories.life()[3]["id"],
    )


def test_each_event_knows_the_status_before_it() -> None:
    receive(*factories.life()[:4])
    inbox.process()
    previous = dict(Event.objects.values_list("type", "previous_status"))
    assert previous == {
        "payment.created": "",
        "payment.requires_action": "created",
        "payment.processing": "requires_action",
        "payment.succeeded": "processing",
    }


@pytest.mark.promise(3)
@pytest.mark.case(46)
def test_an_older_event_does_not_change_the_row() -> None:
    events = factories.life()
    receive(events[3])
    inbox.process()
    receive(event(factories.payment(status="expired"), seconds=25))
    inbox.process()
    assert Payment.objects.get().status == "succeeded"
    assert StatusChange.objects.count() == 1
    assert not DueRefresh.objects.exists()


@pytest.mark.case(46)
def test_a_true_change_from_expired_to_succeeded_is_applied() -> None:
    receive(event(factories.payment(status="expired"), seconds=25))
    inbox.process()
    receive(factories.life()[3])
    inbox.process()
    assert Payment.objects.get().status == "succeeded"
    assert list(StatusChange.objects.order_by("pk").values_list("previous_status", "status")) == [
        ("", "expired"),
        ("expired", "succeeded"),
    ]


@pytest.mark.case(44)
def test_equal_times_with_different_content_request_a_refresh() -> None:
    receive(event(factories.payment(), id="evt_a"), event(factories.payment(status="processing"), id="evt_b"))
    inbox.process()
    mark = DueRefresh.objects.get()
    assert (mark.object_kind, mark.object_id, mark.reason) == ("payment", "pay_1", "order_unclear")


def test_equal_times_with_the_same_content_change_nothing() -> None:
    receive(event(factories.payment(), id="evt_a"), event(factories.payment(), id="evt_b"))
    inbox.process()
    assert Payment.objects.get().version == 1
    assert not DueRefresh.objects.exists()


@pytest.mark.case(79)
def test_a_time_ahead_of_the_providers_clock_is_not_used_for_ordering() -> None:
    ahead = (timezone.now() - factories.T0 + timedelta(days=1)).total_seconds()
    receive(event(factories.payment(status="failed"), seconds=ahead))
    inbox.process()
    assert Payment.objects.get().state_at <= timezone.now()
    assert DueRefresh.objects.get().reason == "time_ahead"


@pytest.mark.case(79)
def test_a_status_that_first_came_with_a_time_ahead_may_come_back() -> None:
    with time_machine.travel(factories.T0, tick=False):
        receive(event(factories.payment(status="succeeded"), seconds=1800))
        inbox.process()
    # The read that it requests confirms the row.
    Payment.objects.update(answer_seconds=0.1)
    for after, status in ((60, "on_hold"), (120, "chargeback"), (180, "succeeded")):
        receive(event(factories.payment(status=status), seconds=after))
        inbox.process()
    assert list(StatusChange.objects.order_by("pk").values_list("previous_status", "status")) == [
        ("", "succeeded"),
        ("succeeded", "on_hold"),
        ("on_hold", "chargeback"),
        ("chargeback", "succeeded"),
    ]


@pytest.mark.case(79)
def test_an_older_event_does_not_set_back_what_came_while_our_clock_was_wrong() -> None:
    now = (timezone.now() - factories.T0).total_seconds()
    # We believe that the provider's clock is ten minutes behind the truth.
    AccountState.objects.create(account="default", clock_offset=-600.0)
    receive(event(factories.payment(status="succeeded"), seconds=now + 1))
    inbox.process()
    AccountState.objects.update(clock_offset=0.0)
    receive(event(factories.payment(), seconds=now))
    inbox.process()
    assert Payment.objects.get().status == "succeeded"
    assert DueRefresh.objects.exists()


@pytest.mark.case(78)
def test_times_are_compared_with_the_providers_clock() -> None:
    AccountState.objects.create(account="default", clock_offset=600.0)
    in_eight_minutes = (timezone.now() - factories.T0 + timedelta(minutes=8)).total_seconds()
    receive(event(factories.payment(), seconds=in_eight_minutes))
    inbox.process()
    assert not DueRefresh.objects.exists()


@pytest.mark.case(31)
def test_a_refund_before_its_payment_is_kept_and_the_payment_refreshed() -> None:
    receive(event(factories.refund()))
    inbox.process()
    refund = Refund.objects.get()
    assert refund.payment_id == "pay_1"
    mark = DueRefresh.objects.get()
    assert (mark.object_kind, mark.object_id) == ("payment", "pay_1")
    receive(factories.life()[0])
    inbox.process()
    assert Refund.objects.get().payment == Payment.objects.get()


@pytest.mark.case(93)
def test_an_object_of_another_account_goes_to_quarantine(attentions: list[dict[str, Any]]) -> None:
    receive(factories.life()[0])
    inbox.process()
    intruder = factories.life()[3]
    receive(intruder, account="second")
    inbox.process()
    assert Payment.objects.get().status == "created"
    stray = Event.objects.get(state="quarantined")
    assert (stray.account, stray.error) == ("second", "the object belongs to another account")
    assert not Event.objects.filter(id=intruder["id"]).exists()
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    receive(intruder)
    inbox.process()
    assert Payment.objects.get().status == "succeeded"


def test_balances_of_several_accounts_and_currencies_are_applied_in_one_batch() -> None:
    receive(event(factories.balance(), seconds=1))
    inbox.process()
    receive(event(factories.balance(available=7), seconds=2), event(factories.balance(currency="USD"), seconds=2))
    receive(event(factories.balance(), seconds=2, id="evt_other"), account="second")
    assert processing.process_batch() == (3, 0)
    assert Balance.objects.get(account="default", currency="CLP").available == 7
    assert Balance.objects.count() == 3


@pytest.mark.case(28)
def test_different_content_under_a_known_id_stays_quarantined_when_parsed_again() -> None:
    item = factories.life()[0]
    receive(item)
    receive({**item, "data": {**item["data"], "amount": 1}})
    inbox.replay(Event.objects.get(state="quarantined"))
    assert Event.objects.filter(state="quarantined").count() == 1


def test_balances_are_per_account() -> None:
    receive(event(factories.balance(), seconds=1), event(factories.balance(available=50), seconds=2))
    receive(event(factories.balance(available=7), seconds=1, id="evt_other"), account="second")
    inbox.process()
    receive(event(factories.balance(available=60), seconds=3), event(factories.balance(available=60), seconds=4))
    inbox.process()
    assert dict(Balance.objects.values_list("account", "available")) == {"default": 60, "second": 7}


@pytest.mark.case(19)
def test_nul_is_kept_in_the_body_and_replaced_in_the_mirror() -> None:
    item = event(factories.payment(merchant_reference="a\x00b", metadata={"k\x00": "v\x00"}))
    receive(item)
    inbox.process()
    payment = Payment.objects.get()
    assert payment.merchant_reference == "a\ufffdb"
    assert payment.metadata == {"k\ufffd": "v\ufffd"}
    assert b"\\u0000" in bytes(Event.objects.get().body or b"")


@pytest.mark.case(26)
def test_ids_that_differ_by_case_or_a_space_are_two_objects() -> None:
    receive(
        event(factories.payment(id="pay_a"), id="evt_a"),
        event(factories.payment(id="pay_A"), id="evt_A"),
        event(factories.payment(id="pay_a "), id="evt_a "),
    )
    inbox.process()
    assert set(Payment.objects.values_list("id", flat=True)) == {"pay_a", "pay_A", "pay_a "}
    assert Event.objects.count() == 3


def test_unknown_fields_are_kept() -> None:
    receive(event(factories.payment(risk={"score": 1.5})))
    inbox.process()
    assert Payment.objects.get().extra == {"risk": {"score": 1.5}}


@pytest.mark.case(87)
def test_erased_data_stays_erased_after_an_event() -> None:
    receive(event(factories.payment(payer={"name": "Ana"}), seconds=1))
    inbox.process()
    Payment.objects.update(payer=None, erased_at=timezone.now())
    receive(event(factories.payment(payer={"name": "Ana"}, status="processing"), seconds=2))
    inbox.process()
    payment = Payment.objects.get()
    assert (payment.status, payment.payer) == ("processing", None)


def test_the_reorder_window_holds_events_back_in_a_worker_only(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "REORDER_WINDOW": 60}
    receive(factories.life()[0])
    assert inbox.process() == 1
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    receive(factories.life()[1])
    assert inbox.process() == 0
    Event.objects.update(received_at=timezone.now() - timedelta(seconds=61))
    assert inbox.process() == 1
    inbox.receive_many("default", [body(factories.life()[2])], source="reconciliation")
    assert inbox.process() == 1


def test_processing_one_account_leaves_the_others_alone() -> None:
    receive(factories.life("pay_1")[0])
    receive(factories.life("pay_2")[0], account="second")
    assert inbox.process("second") == 1
    assert Payment.objects.get().id == "pay_2"


def test_an_event_that_cannot_be_applied_does_not_affect_its_batch(attentions: list[dict[str, Any]]) -> None:
    real = projection_events.rows.row_values

    def breaks(resource: Any) -> dict[str, Any]:
        if getattr(resource, "id", "") == "pay_2":
            raise DataError("out of range")
        return real(resource)

    receive(factories.life("pay_1")[0], factories.life("pay_2")[0], factories.life("pay_3")[0])
    with mock.patch.object(projection_events.rows, "row_values", breaks):
        assert inbox.process() == 3
    assert set(Payment.objects.values_list("id", flat=True)) == {"pay_1", "pay_3"}
    assert Event.objects.get(state="quarantined").error == "the database refuses it: DataError"
    assert len(attentions) == 1


def breaking(error: Exception, object_id: str = "pay_2") -> Any:
    """Have the projection meet an error at one object."""
    real = projection_events.rows.row_values

    def row_values(resource: Any) -> dict[str, Any]:
        if getattr(resource, "id", "") == object_id:
            raise error
        return real(resource)

    return mock.patch.object(projection_events.rows, "row_values", row_values)


def test_a_bug_leaves_the_event_pending_and_an_upgrade_applies_it(
    attentions: list[dict[str, Any]],
) -> None:
    receive(*[factories.life(f"pay_{n}")[0] for n in (1, 2, 3)])
    with breaking(AttributeError("oops")):
        assert inbox.process() == 2
        inbox.process()
    stuck = Event.objects.get(state="pending")
    assert (stuck.object_id, stuck.error) == ("pay_2", "it cannot be applied: AttributeError")
    assert stuck.attempts > 1
    assert [seen["reason"] for seen in attentions] == ["event_not_applied"]
    assert inbox.process(hurry=True) == 0, "a request does not wait for what failed before"
    assert inbox.process() == 1
    assert Payment.objects.count() == 3
    assert not Event.objects.filter(state="pending").exists()


def test_an_outage_does_not_count_against_the_events() -> None:
    receive(factories.life("pay_1")[0], factories.life("pay_2")[0])
    with breaking(OperationalError("canceling statement due to statement timeout")), pytest.raises(OperationalError):
        inbox.process()
    assert Event.objects.filter(state="pending", attempts=0).count() == 2


def test_a_batch_that_memory_does_not_hold_is_tried_in_halves() -> None:
    receive(*[factories.life(f"pay_{n}")[0] for n in (1, 3, 4, 2)])
    Event.objects.filter(object_id="pay_2").update(created_at=timezone.now())
    with breaking(MemoryError()), pytest.raises(MemoryError):
        inbox.process()
    assert Event.objects.get(state="pending").attempts == 0, "it does not count against the event"
    assert Payment.objects.count() == 3


@pytest.mark.case(85)
def test_a_database_message_that_contains_a_row_is_not_stored_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    receive(factories.life("pay_2")[0])
    with breaking(DataError("Failing row contains (ana@example.com)")):
        inbox.process()
    assert "ana@example.com" not in caplog.text
    assert "ana@example.com" not in Event.objects.get().error


def test_an_account_that_the_settings_lack_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match='no account "defualt"'):
        inbox.receive("defualt", factories.body(factories.life()[0]))
    assert not Event.objects.exists()


@pytest.mark.case(19)
def test_nul_in_a_type_or_a_currency_goes_to_quarantine_or_is_replaced() -> None:
    receive(event(factories.balance(currency="CL\x00P"), id="evt_currency"))
    receive({**event(factories.payment()), "id": "evt_type", "type": "payout.x\x00"})
    assert Event.objects.filter(state="quarantined").count() == 1
    assert not any("\x00" in row.error + row.type for row in Event.objects.all())


def test_a_quarantined_event_can_be_parsed_again_after_an_upgrade() -> None:
    item = factories.life()[0]
    with mock.patch("payments_integration.schemas.decode_event", side_effect=schemas.WireError("not yet")):
        receive(item)
    row = Event.objects.get(state="quarantined")
    with mock.patch("payments_integration.schemas.decode_event", side_effect=schemas.WireError("not yet")):
        inbox.replay(row)
    assert Event.objects.filter(state="quarantined").exists()
    inbox.replay(row)
    assert Event.objects.get().id == item["id"]
    inbox.process()
    assert Payment.objects.get().status == "created"


def test_no_batch_is_started_after_the_deadline() -> None:
    receive(factories.life()[0])
    assert inbox.process(deadline=0.0) == 0


def test_a_pass_applies_its_events_without_a_query_for_others(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "BATCH_SIZE": 2}
    early, *late = [event(factories.payment(id=f"pay_{n}"), seconds=n) for n in range(5)]
    receive(early, *late)
    since = Event.objects.get(pk=late[0]["id"]).created_at
    with CaptureQueriesContext(connection) as queries:
        assert inbox.process("default", most=4, since=since) == 4
    claims = [query for query in queries if re.search("FROM .payments_integration_event.", query["sql"])]
    assert len(claims) == 2
    assert list(Event.objects.exclude(state="done").values_list("pk", flat=True)) == [early["id"]]
    assert inbox.process("default") == 1
