"""Missed events are found; drift is repaired; an interrupted pass goes on; two passes do not run at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, reconciliation, services
from payments_integration.client import get_client
from payments_integration.exceptions import NoAnswer
from payments_integration.models import (
    AccountState,
    Balance,
    DueRefresh,
    Event,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    WebhookEndpoint,
)
from payments_integration.reconciliation import leases
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.integration.mirror import assert_mirror_equals_provider

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]


@pytest.fixture
def sandbox(payments_sandbox: ProviderSandbox, woken: list[str]) -> ProviderSandbox:
    """A provider whose deliveries never arrive."""
    payments_sandbox.engine.faults.add(Fault("drop", times=None))
    return payments_sandbox


def pay(sandbox: ProviderSandbox, **arguments: Any) -> Payment:
    arguments = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card", **arguments}
    payment = services.create_payment(**arguments)
    sandbox.engine.pay(payment.id)
    return payment


def pass_time(sandbox: ProviderSandbox, **delta: float) -> None:
    sandbox.engine.clock.advance(timedelta(**delta).total_seconds())


@pytest.mark.promise(4)
def test_events_that_never_arrived_are_found_applied_and_told(sandbox: ProviderSandbox, receiver: Receiver) -> None:
    payments = [pay(sandbox) for _ in range(3)]
    sandbox.deliver()
    assert not Event.objects.exists()
    pass_time(sandbox, seconds=10)
    run = reconciliation.reconcile_events()
    assert (run.state, run.error) == ("done", "")
    assert run.recovered == len(sandbox.project.events) == Event.objects.count()
    assert sorted(told for told, _ in receiver.events) == sorted(event["id"] for event in sandbox.project.events)
    reconciliation.work_off()
    assert set(Payment.objects.filter(pk__in=[p.pk for p in payments]).values_list("status", flat=True)) == {
        "succeeded"
    }
    assert_mirror_equals_provider(sandbox)
    again = reconciliation.reconcile_events()
    assert (again.recovered, again.state) == (0, "done")


def test_the_watermark_moves_only_to_where_everything_is_in(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    first = AccountState.objects.get().watermark
    assert first is not None
    assert abs((first - sandbox.engine.clock.now()).total_seconds()) < 5
    pass_time(sandbox, hours=3)
    pay(sandbox)
    sandbox.engine.faults.add(Fault("html", operation="list_events", times=None))
    run = reconciliation.reconcile_events()
    assert run.state == "failed"
    assert "NoAnswer" in run.error
    assert AccountState.objects.get().watermark == first
    sandbox.engine.faults.clear()
    pass_time(sandbox, seconds=5)
    assert reconciliation.reconcile_events().recovered > 0
    assert AccountState.objects.get().watermark > first  # type: ignore[operator]


def test_a_span_leaves_the_watermark_alone(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    run = reconciliation.reconcile_events(since=timezone.now() - timedelta(hours=1))
    assert run.recovered > 0
    assert AccountState.objects.get().watermark is None


@pytest.mark.case(65)
def test_an_event_that_shows_up_late_is_found_by_the_next_pass(sandbox: ProviderSandbox) -> None:
    pass_time(sandbox, seconds=1)
    pay(sandbox)
    hidden = sandbox.project.inner.event_store.items
    late = next(item for item in sandbox.project.events if item["type"] == "payment.succeeded")
    pass_time(sandbox, seconds=10)
    with mock.patch.object(inbox, "receive_many", side_effect=_without(late["id"])):
        reconciliation.reconcile_events()
    assert not Event.objects.filter(id=late["id"]).exists()
    assert late["id"] in hidden
    pass_time(sandbox, minutes=20)
    reconciliation.reconcile_events()
    assert Event.objects.filter(id=late["id"]).exists()


def _without(event_id: str) -> Any:
    real = inbox.receive_many

    def receive(account: str, bodies: Iterator[bytes], *, source: str) -> Any:
        return real(account, [body for body in bodies if event_id.encode() not in body], source=source)

    return receive


@pytest.mark.case(52)
def test_an_interrupted_pass_goes_on_at_its_page(sandbox: ProviderSandbox) -> None:
    for _ in range(60):
        pay(sandbox)
    total = len(sandbox.project.events)
    assert total > 200
    pass_time(sandbox, seconds=10)
    real, calls = inbox.receive_many, []

    def dies(account: str, bodies: Iterator[bytes], *, source: str) -> Any:
        page = list(bodies)
        calls.extend([1] if page else [])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(account, page, source=source)

    with mock.patch.object(inbox, "receive_many", side_effect=dies), pytest.raises(KeyboardInterrupt):
        reconciliation.reconcile_events()
    state = AccountState.objects.get()
    assert state.cursor
    assert state.watermark is not None  # the empty windows before it are complete
    assert state.watermark < sandbox.engine.clock.now() - timedelta(minutes=1)
    assert Event.objects.count() == 100
    before = len(sandbox.engine.requests)
    run = reconciliation.reconcile_events()
    assert run.state == "done"
    assert Event.objects.count() == total
    # The first page is not read again: the probe, then two pages, and what followed the window.
    pages = [request for request in sandbox.engine.requests[before:] if request["operation"] == "list_events"]
    assert run.seen < total
    assert len(pages) <= 1 + run.pages + 1


@pytest.mark.case(64)
def test_a_cursor_that_the_provider_forgot_begins_the_window_anew(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    now = sandbox.engine.clock.now().replace(microsecond=0)
    AccountState.objects.create(
        account="default",
        watermark=now - timedelta(minutes=30),
        window_from=now - timedelta(hours=1),
        window_to=now - timedelta(seconds=1),
        cursor="evt_unknown",
    )
    run = reconciliation.reconcile_events()
    assert (run.state, run.error) == ("done", "")
    assert run.recovered == len(sandbox.project.events)


@pytest.mark.case(75)
def test_one_pass_at_a_time(sandbox: ProviderSandbox) -> None:
    with leases.lease("default"):
        run = reconciliation.reconcile_events()
    assert run.state == "skipped"
    assert reconciliation.reconcile_events().state == "done"


@pytest.mark.case(42)
@pytest.mark.case(75)
def test_a_lease_that_was_taken_over_writes_nothing_more() -> None:
    with leases.lease("default") as lost:
        AccountState.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        with leases.lease("default") as held:
            with pytest.raises(leases.LeaseLost):
                lost.write(watermark=timezone.now())
            held.renew()
    assert AccountState.objects.get().watermark is None


def test_a_dead_holders_lease_is_free_after_15_seconds() -> None:
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        holder = leases.lease("default")
        holder.__enter__()
        clock.shift(14)
        with pytest.raises(leases.LeaseTaken), leases.lease("default"):
            pass
        clock.shift(2)
        with leases.lease("default"):
            pass


@pytest.mark.case(66)
def test_after_more_than_29_days_objects_are_compared_too(
    sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
) -> None:
    reconciliation.reconcile_events()
    old = pay(sandbox, merchant_reference="old")
    pass_time(sandbox, days=31)
    AccountState.objects.update(swept_at=timezone.now())
    run = reconciliation.reconcile_events()
    assert run.state == "done"
    assert "gap_too_long" in [seen["reason"] for seen in attentions]
    full = ReconciliationRun.objects.get(kind="full", started_at__gt=run.started_at)
    assert full.state == "done"
    old.refresh_from_db()
    assert old.status == "succeeded"
    assert_mirror_equals_provider(sandbox)


def test_a_page_of_100_known_events_costs_at_most_three_statements(sandbox: ProviderSandbox) -> None:
    for _ in range(60):
        pay(sandbox)
    assert len(sandbox.project.events) > 200
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    since = timezone.now() - timedelta(hours=1)

    def cost() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            run = reconciliation.reconcile_events(since=since)
        return len(queries), run.pages

    statements, pages = cost()
    assert pages >= 3
    # What a pass costs by itself is measured with an empty span; the rest is the pages'.
    with CaptureQueriesContext(connection) as empty:
        reconciliation.reconcile_events(since=since, until=since + timedelta(seconds=1))
    assert statements - len(empty) <= 3 * (pages - 1)


class TestObjects:
    def test_a_refund_that_was_canceled_without_an_event(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        pass_time(sandbox, seconds=10)
        reconciliation.reconcile_events()
        reconciliation.work_off()
        refund = services.create_refund(payment, amount=1000)
        sandbox.engine.cancel_refund(refund.pk)
        pass_time(sandbox, hours=7)
        Refund.objects.update(synced_at=timezone.now() - timedelta(hours=7))
        run = reconciliation.reconcile_objects()
        assert run.state == "done"
        refund.refresh_from_db()
        assert refund.status == "canceled"

    def test_drift_is_recorded_per_field_and_repaired(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        pass_time(sandbox, seconds=10)
        reconciliation.reconcile_events()
        reconciliation.work_off()
        pass_time(sandbox, seconds=30)
        Payment.objects.filter(pk=payment.pk).update(
            amount_received=1, status="failed", payer={"name": "somebody else"}
        )
        AccountState.objects.update(swept_at=None)
        run = reconciliation.reconcile_objects()
        assert (run.drifted, run.repaired) == (1, 1)
        entries = {entry["field"]: entry for entry in run.drift}
        assert (entries["status"]["ours"], entries["status"]["theirs"]) == ("failed", "succeeded")
        assert (entries["amount_received"]["ours"], entries["amount_received"]["theirs"]) == (1, 10000)
        assert entries["payer"]["ours"] == "…"
        assert_mirror_equals_provider(sandbox)

    def test_a_sweep_brings_what_is_absent(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        Payment.objects.all().delete()
        run = reconciliation.reconcile_objects()
        assert run.recovered == 1
        assert Payment.objects.get().pk == payment.pk

    def test_an_object_that_cannot_be_read_is_named_and_hides_no_other(self, sandbox: ProviderSandbox) -> None:
        first, second = pay(sandbox), pay(sandbox)
        sandbox.project.inner.pay_ins.items.at_hand(second.pk)["merchant_reference"] = "x" * 300
        Payment.objects.all().delete()
        run = reconciliation.reconcile_objects()
        assert set(Payment.objects.values_list("pk", flat=True)) == {first.pk}
        assert run.state == "failed"
        assert "merchant_reference" in run.error

    def test_no_drift_costs_two_statements_a_page(self, sandbox: ProviderSandbox) -> None:
        for _ in range(120):
            services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        AccountState.objects.update(swept_at=None)
        reconciliation.reconcile_objects()
        AccountState.objects.update(swept_at=None)
        with CaptureQueriesContext(connection) as queries:
            run = reconciliation.reconcile_objects()
        assert (run.seen, run.drifted) == (120, 0)
        assert len([q for q in queries.captured_queries if "payments_integration_payment" in q["sql"]]) <= 2 * 2 + 3

    def test_gone_objects_are_kept_and_marked(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        stray = Payment.objects.get(pk=payment.pk)
        stray.pk = "pay_gone"
        stray.save(force_insert=True)
        DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_gone", reason="x")
        reconciliation.refresh_due()
        assert Payment.objects.get(pk="pay_gone").gone_at is not None
        assert not DueRefresh.objects.exists()

    @pytest.mark.case(45)
    def test_an_event_between_get_and_save_is_not_overwritten(self, sandbox: ProviderSandbox) -> None:
        payment = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        DueRefresh.objects.create(account="default", object_kind="payment", object_id=payment.pk, reason="x")
        client = get_client("default").payments
        real = client.get

        def get(*args: Any, **kwargs: Any) -> Any:
            answer = real(*args, **kwargs)
            later = (timezone.now() - factories.T0 + timedelta(seconds=30)).total_seconds()
            data = {**sandbox.project.payments[payment.pk], "status": "succeeded", "amount_received": 1000}
            inbox.receive("default", factories.body(factories.event(data, seconds=later)))
            inbox.process()
            return answer

        with mock.patch.object(client, "get", get):
            reconciliation.refresh_due()
        payment.refresh_from_db()
        assert payment.status == "succeeded"

    def test_failures_wait_longer_each_time(self, sandbox: ProviderSandbox) -> None:
        DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_1", reason="x")
        waits = []
        with mock.patch("payments_integration.services.reads.read", side_effect=NoAnswer("down")):
            for _ in range(4):
                DueRefresh.objects.update(due_at=timezone.now())
                reconciliation.refresh_due()
                mark = DueRefresh.objects.get()
                waits.append((mark.due_at - timezone.now()).total_seconds())
        assert [round(wait / 5) for wait in waits] == [1, 2, 4, 8]
        assert (mark.attempts, mark.error) == (4, "NoAnswer: down")

    def test_an_account_that_is_gone_from_the_settings_waits(self) -> None:
        DueRefresh.objects.create(account="former", object_kind="payment", object_id="pay_1", reason="x")
        assert reconciliation.refresh_due() == 0
        assert "not configured" in DueRefresh.objects.get().error


class TestEndpoints:
    def test_a_disabled_endpoint_calls_for_a_person_once(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.check_endpoints()
        assert not attentions
        endpoint = WebhookEndpoint.objects.get()
        sandbox.project.inner.webhooks.by_id[endpoint.pk].status = "disabled"
        reconciliation.check_endpoints()
        reconciliation.check_endpoints()
        assert [seen["reason"] for seen in attentions] == ["endpoint"]
        assert "disabled" in attentions[0]["message"]

    def test_an_endpoint_that_is_gone(self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]) -> None:
        reconciliation.check_endpoints()
        sandbox.project.inner.webhooks.by_id.clear()
        reconciliation.check_endpoints()
        assert "does not list this endpoint" in attentions[0]["message"]
        assert WebhookEndpoint.objects.get().gone_at is not None

    def test_missing_event_types(self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]) -> None:
        sandbox.project.add_endpoint("https://other.example/webhook/", events=["payment.created"])
        reconciliation.check_endpoints()
        assert "payout.succeeded" in attentions[0]["message"]


def test_balances_are_read_and_recorded(sandbox: ProviderSandbox) -> None:
    sandbox.engine.fund("BRL", 777)
    run = reconciliation.reconcile_balances()
    assert run.state == "done"
    assert Balance.objects.get(currency="BRL").available == 777


def test_polling_feeds_the_inbox(sandbox: ProviderSandbox, receiver: Receiver) -> None:
    since = timezone.now() - timedelta(minutes=1)
    pay(sandbox)
    poll = reconciliation.poll("default", since=since)
    assert [event.type for event in poll.events if event.object_kind == "payment"][-1] == "payment.succeeded"
    assert receiver.events
    assert reconciliation.poll("default", since=poll.next_since).events == []


@pytest.mark.case(59)
def test_the_whole_story_after_an_outage(sandbox: ProviderSandbox) -> None:
    """Payments, refunds of two kinds, a payout and a deposit, none of it delivered: one pass makes all equal."""
    sandbox.engine.fund("CLP", 1_000_000)
    card, bank = pay(sandbox), pay(sandbox, method_code=_bank_method(sandbox))
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    reconciliation.work_off()
    destination = {
        "type": "bank_account",
        "account_number": "123456789",
        "holder_name": "Ana Rojas",
        "holder_document": {"type": "RUT", "number": "12.345.678-5"},
    }
    sandbox.engine.whitelist("123456789")
    refund = services.create_refund(card, amount=2500, reason="wrong size")
    by_payout = services.create_refund(bank, destination=destination)
    payout = services.create_payout(
        amount=5000, currency="CLP", country="CL", method_code=_payout_method(sandbox), destination=destination
    )
    for move in (sandbox.engine.process_refund, sandbox.engine.succeed_refund):
        move(refund.pk)
        move(by_payout.pk)
    sandbox.engine.process_payout(payout.pk)
    sandbox.engine.succeed_payout(payout.pk)
    sandbox.deliver()
    pass_time(sandbox, minutes=10)
    assert reconciliation.reconcile_events().state == "done"
    reconciliation.work_off()
    reconciliation.reconcile_balances()
    assert_mirror_equals_provider(sandbox)
    assert Payment.objects.get(pk=card.pk).refunded_amount == 2500
    assert Payout.objects.get(refund_id=by_payout.pk).status == "succeeded"
    assert sandbox.project.audit() == []


def _bank_method(sandbox: ProviderSandbox) -> str:
    return next(
        method.code
        for method in services.list_payment_methods(country="CL", currency="CLP")
        if method.extra.get("family", method.extra.get("method_family")) == "bank_transfer"
    )


def _payout_method(sandbox: ProviderSandbox) -> str:
    return _bank_method(sandbox)
