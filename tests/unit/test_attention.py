"""``attention`` is sent after the commit of what it is about, and at least once, whenever a process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.db import DataError, OperationalError, transaction
from django.test import override_settings
from django.utils import timezone

from payments_integration import attention, inbox, reconciliation, services, signals
from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import AuthenticationFailed, IdempotencyError, InvalidRequest
from payments_integration.management.commands import payments_process
from payments_integration.models import DueAttention, Event, EventSource, EventState, WebhookEndpoint
from payments_integration.models.operations import new_operation_id
from payments_integration.projection import events as projection_events
from payments_integration.reconciliation import accounts, due
from payments_integration.signals import Reason
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows
from tests.fake_provider import PAYOUT, Fake, payout, refusal

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken")]


class Killed(SystemExit):
    """The process dies."""


@pytest.fixture
def dies_before_sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The process dies between the commit and the signal; call the fixture to start a new one a minute later."""

    def die(due: DueAttention) -> None:
        raise Killed

    with time_machine.travel(timezone.now(), tick=False) as clock, monkeypatch.context() as patch:
        patch.setattr(attention, "_send", die)

        def restart() -> None:
            patch.undo()
            clock.shift(attention.SENDING.length)

        yield restart


def call(message: str = "look at this", instance: Any = None) -> None:
    attention.call_attention(instance or Event(account="default"), Reason.EVENT_QUARANTINED, message)


def messages(attentions: list[dict[str, Any]]) -> list[str]:
    return [seen["message"] for seen in attentions]


def test_it_is_sent_after_the_commit_with_the_row_as_it_is_then(attentions: list[dict[str, Any]]) -> None:
    event = rows.event()
    with transaction.atomic():
        call(instance=event)
        Event.objects.filter(pk=event.pk).update(error="written later in the transaction")
        assert attentions == []
    [seen] = attentions
    assert (seen["sender"], seen["reason"], seen["account"]) == (Event, Reason.EVENT_QUARANTINED, "default")
    assert (seen["instance"].pk, seen["instance"].error) == (event.pk, "written later in the transaction")
    assert not DueAttention.objects.exists()


def test_outside_a_transaction_it_is_sent_at_once(attentions: list[dict[str, Any]]) -> None:
    call()
    assert [(seen["message"], seen["instance"]) for seen in attentions] == [("look at this", None)]
    assert not DueAttention.objects.exists()


def test_nothing_is_sent_about_what_was_rolled_back(attentions: list[dict[str, Any]]) -> None:
    with transaction.atomic():
        call()
        transaction.set_rollback(True)
    assert attentions == []
    assert not DueAttention.objects.exists()


@pytest.mark.parametrize("error", [ValueError("oops"), asyncio.CancelledError(), BaseException("a time-out")])
def test_a_receiver_that_fails_is_not_called_again_and_the_others_run(
    attentions: list[dict[str, Any]], error: BaseException
) -> None:
    def fails(**kwargs: Any) -> None:
        raise error

    signals.attention.connect(fails)
    try:
        call()
    finally:
        signals.attention.disconnect(fails)
    assert messages(attentions) == ["look at this"]
    assert not DueAttention.objects.exists()


def test_with_autocommit_off_the_schedule_sends_it(attentions: list[dict[str, Any]]) -> None:
    """Django calls no hook when the caller commits."""
    transaction.set_autocommit(False)
    try:
        call()
        transaction.commit()
        # A block of our own does not commit it either.
        with transaction.atomic():
            call("in a block")
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert attentions == []
    with time_machine.travel(timezone.now() + attention.SENDING.length):
        attention.send_overdue()
    assert messages(attentions) == ["look at this", "in a block"]


def test_a_database_that_fails_after_the_commit_does_not_fail_the_caller(attentions: list[dict[str, Any]]) -> None:
    with mock.patch.object(attention, "deleted", side_effect=OperationalError("the connection is lost")):
        with transaction.atomic():
            call()
        call("outside a transaction")
    assert len(attentions) == 2
    with time_machine.travel(timezone.now() + attention.SENDING.length):
        attention.send_overdue()
    assert messages(attentions)[2:] == ["look at this", "outside a transaction"], "at least once"


def refuse_a_key(fake: Fake) -> None:
    fake.script = [refusal(IdempotencyError, 409, "idempotency_conflict")]
    services.create_payout(**PAYOUT)


def refuse_a_deferred_call(fake: Fake) -> None:
    fake.script = [refusal(InvalidRequest, 422, "validation_failed")]
    services.defer(services.create_payout, **PAYOUT)


def refuse_access_to_a_deferred_call(fake: Fake) -> None:
    fake.script = [refusal(AuthenticationFailed, 401, "api_key_invalid")]
    services.defer(services.create_payout, **PAYOUT)


def create_an_endpoint_without_secret(fake: Fake) -> None:
    fake.secrets = False
    services.create_webhook_endpoint(url="https://shop.example/webhook/", events=["payment.succeeded"])


def ask_for_approval(fake: Fake) -> None:
    with override_settings(
        PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {PAYOUT["currency"]: 1}}
    ):
        services.create_payout(**PAYOUT, actor="ana")


def deliver_nonsense(fake: Fake) -> None:
    inbox.receive("default", b"[]")


def list_nonsense(fake: Fake) -> None:
    inbox.receive_many("default", [b"[]"], source=EventSource.RECONCILIATION)


def apply_with(error: Exception) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    with mock.patch.object(projection_events.rows, "row_values", side_effect=error):
        inbox.process()


def apply_what_the_database_refuses(fake: Fake) -> None:
    apply_with(DataError("out of range"))


def apply_with_a_mistake(fake: Fake) -> None:
    apply_with(AttributeError("oops"))


def park(fake: Fake) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    inbox.process()
    with override_settings(PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}):
        inbox.dispatch()


def hold_for_long(fake: Fake) -> None:
    rows.event(state=EventState.HELD, received_at=timezone.now() - timedelta(hours=2))
    inbox.release_overdue()


def check_a_disabled_endpoint(fake: Fake) -> None:
    endpoint = services.create_webhook_endpoint(url="https://shop.example/webhook/", events=list(EVENT_TYPES))
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(status="disabled")
    with mock.patch.object(accounts, "sync_webhook_endpoints"):
        reconciliation.check_endpoints()


def list_what_another_ledger_had_made(fake: Fake) -> None:
    rows.account_state(account="default")
    services.refresh(fake.add(payout(merchant_reference=new_operation_id())).id)


SITES: dict[Reason, list[Callable[[Fake], None]]] = {
    Reason.OPERATION_NEEDS_RESOLUTION: [refuse_a_key],
    Reason.DEFERRED_REFUSED: [refuse_access_to_a_deferred_call],
    Reason.DEFERRED_REJECTED: [refuse_a_deferred_call],
    Reason.SECRET_MISSING: [create_an_endpoint_without_secret],
    Reason.OPERATION_AWAITS_APPROVAL: [ask_for_approval],
    Reason.EVENT_QUARANTINED: [deliver_nonsense, list_nonsense, apply_what_the_database_refuses],
    Reason.EVENT_NOT_APPLIED: [apply_with_a_mistake],
    Reason.DISPATCH_PARKED: [park],
    Reason.EVENTS_HELD: [hold_for_long],
    Reason.ENDPOINT: [check_a_disabled_endpoint],
    Reason.LEDGER_INCOMPLETE: [list_what_another_ledger_had_made],
}


@pytest.mark.parametrize(
    ("reason", "happen"), [(reason, happen) for reason, sites in SITES.items() for happen in sites]
)
def test_a_process_that_dies_after_the_commit_leaves_it_to_the_schedule(
    fake: Fake,
    receiver: Receiver,
    attentions: list[dict[str, Any]],
    dies_before_sending: Callable[[], None],
    reason: Reason,
    happen: Callable[[Fake], None],
) -> None:
    receiver.fail = lambda what: True
    with pytest.raises(Killed):
        happen(fake)
    assert attentions == []
    attention.send_overdue()
    assert attentions == [], "the process may still be about to send it"
    dies_before_sending()
    reconciliation.process_due()
    assert [seen["reason"] for seen in attentions] == [reason]
    assert attentions[0]["instance"] is not None or reason == Reason.EVENTS_HELD
    attention.send_overdue()
    assert len(attentions) == 1


def overdue(**fields: Any) -> DueAttention:
    return DueAttention.objects.create(
        **{
            "account": "default",
            "reason": Reason.ENDPOINT,
            "message": "look at this",
            "sender": "webhookendpoint",
            **fields,
        }
    )


def test_of_two_workers_one_sends_it(attentions: list[dict[str, Any]]) -> None:
    overdue()
    send = attention._send

    def send_twice(due: DueAttention) -> None:
        attention.send_overdue()
        send(due)

    with mock.patch.object(attention, "_send", send_twice):
        attention.send_overdue()
    assert len(attentions) == 1


def test_a_clock_that_was_ahead_delays_it_by_no_hours(attentions: list[dict[str, Any]]) -> None:
    overdue(claimed_until=timezone.now() + timedelta(hours=3))
    attention.send_overdue()
    assert len(attentions) == 1


def test_one_account_at_a_time(attentions: list[dict[str, Any]]) -> None:
    overdue(account="second")
    attention.send_overdue("default")
    assert attentions == []
    attention.send_overdue("second")
    assert len(attentions) == 1


def test_a_reason_of_a_newer_version_is_left_to_that_version(attentions: list[dict[str, Any]]) -> None:
    overdue(reason="a_later_invention")
    attention.send_overdue()
    assert attentions == []
    assert DueAttention.objects.count() == 1


def test_the_row_may_be_gone(attentions: list[dict[str, Any]]) -> None:
    overdue(object_id="whk_deleted")
    attention.send_overdue()
    assert [seen["instance"] for seen in attentions] == [None]


def test_a_record_that_cannot_be_sent_ends_no_pass(
    attentions: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    overdue(sender="a_model_of_a_newer_version")
    overdue(message="the next one")
    reconciliation.process_due()
    assert messages(attentions) == ["the next one"]
    assert "could not be sent" in caplog.text
    assert DueAttention.objects.count() == 1


def test_a_pass_of_cron_sends_that_of_an_account_that_is_no_longer_configured(
    attentions: list[dict[str, Any]],
) -> None:
    overdue(account="removed")
    with mock.patch.object(payments_process.reconciliation, "run_due", return_value=[]):
        call_command("payments_process", account="default")
        assert attentions == []
        call_command("payments_process")
    assert messages(attentions) == ["look at this"]


@pytest.mark.django_db
def test_nothing_to_send_takes_one_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        attention.send_overdue()


def test_a_table_that_only_the_last_look_of_a_wake_up_reads_is_named_too(
    attentions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_troubles", {})
    error = OperationalError("the table is gone")
    cause: Any = Exception()
    cause.sqlstate = "42P01"
    error.__cause__ = cause
    with mock.patch.object(due, "are_there", side_effect=error), pytest.raises(OperationalError):
        reconciliation.process_due("default")
    assert [(seen["reason"], seen["account"]) for seen in attentions] == [(Reason.DATABASE, "default")]
