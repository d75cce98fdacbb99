"""Objects become equal to the provider's: silent ones, swept ones, and all of them after a long gap."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, reconciliation, services
from payments_integration.exceptions import NoAnswer, NotFound
from payments_integration.models import (
    AccountState,
    Balance,
    DueRefresh,
    Payment,
    ReconciliationRun,
    Refund,
    deletion_allowed,
)
from payments_integration.reconciliation import objects
from payments_integration.sandbox import Fault
from payments_integration.sync import get_client
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.integration.mirror import assert_mirror_equals_provider
from tests.integration.reconciling import pass_time, pay

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]


class TestObjects:
    def test_a_refund_that_is_canceled_without_an_event_is_found(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        pass_time(sandbox, seconds=10)
        reconciliation.reconcile_events()
        reconciliation.process_due()
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
        reconciliation.process_due()
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

    def test_a_sweep_inserts_absent_objects(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        with deletion_allowed():
            Payment.objects.all().delete()
        run = reconciliation.reconcile_objects()
        assert run.recovered == 1
        assert Payment.objects.get().pk == payment.pk

    def test_an_unreadable_object_is_recorded_and_hides_no_other(self, sandbox: ProviderSandbox) -> None:
        first, second = pay(sandbox), pay(sandbox)
        sandbox.project.state.payments.items.find(second.pk)["merchant_reference"] = "x" * 300
        with deletion_allowed():
            Payment.objects.all().delete()
        run = reconciliation.reconcile_objects()
        assert set(Payment.objects.values_list("pk", flat=True)) == {first.pk}
        assert run.state == "failed"
        assert "merchant_reference" in run.error

    def test_a_page_without_drift_takes_two_statements(self, sandbox: ProviderSandbox) -> None:
        for _ in range(120):
            services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        AccountState.objects.update(swept_at=None)
        reconciliation.reconcile_objects()
        AccountState.objects.update(swept_at=None)
        with CaptureQueriesContext(connection) as queries:
            run = reconciliation.reconcile_objects()
        assert (run.seen, run.drifted) == (120, 0)
        assert len([q for q in queries.captured_queries if "payments_integration_payment" in q["sql"]]) <= 2 * 2 + 3

    def test_an_object_without_drift_takes_at_most_a_twentieth_of_a_statement(self, sandbox: ProviderSandbox) -> None:
        def cost(payments: int) -> int:
            for _ in range(payments):
                sandbox.project.state.payments.create(
                    {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
                )
            AccountState.objects.update(swept_at=None)
            reconciliation.reconcile_objects()
            AccountState.objects.update(swept_at=None)
            with CaptureQueriesContext(connection) as queries:
                run = reconciliation.reconcile_objects()
            assert (run.seen, run.recovered, run.drifted) == (Payment.objects.count(), 0, 0)
            return len(queries)

        few = cost(100)
        assert cost(300) - few <= 0.05 * 300

    def test_an_object_that_is_gone_is_kept_and_marked(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        stray = Payment.objects.get(pk=payment.pk)
        stray.pk = "pay_gone"
        stray.save(force_insert=True)
        DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_gone", reason="x")
        reconciliation.refresh_due()
        assert Payment.objects.get(pk="pay_gone").gone_at is not None
        assert not DueRefresh.objects.exists()

    def test_a_full_resync_finds_an_object_again_that_the_provider_did_not_know_for_a_while(
        self, sandbox: ProviderSandbox
    ) -> None:
        """No list shows a deposit reference, and it has no events."""
        reference = services.create_deposit_reference(country="MX", currency="MXN", method_code="mx_deposit")
        sandbox.engine.faults.add(
            Fault("error", operation="get_deposit_reference", status=404, code="resource_not_found")
        )
        with pytest.raises(NotFound):
            services.refresh(reference)
        reference.refresh_from_db()
        assert reference.gone_at is not None
        sandbox.engine.disable_deposit_reference(reference.pk)
        pass_time(sandbox, seconds=10)
        assert reconciliation.reconcile_objects(full=True).state == "done"
        reference.refresh_from_db()
        assert (reference.status, reference.gone_at) == ("disabled", None)

    def test_an_open_object_that_is_gone_is_read_again_once_a_day(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller
    ) -> None:
        """No list shows a deposit reference, and it has no events."""
        reference = services.create_deposit_reference(country="MX", currency="MXN", method_code="mx_deposit")
        sandbox.engine.faults.add(
            Fault("error", operation="get_deposit_reference", times=None, status=404, code="resource_not_found")
        )
        with pytest.raises(NotFound):
            services.refresh(reference)
        listed = get_client("default").deposit_references
        with mock.patch.object(listed, "get", wraps=listed.get) as get:
            for _ in range(3 * 24):
                clock.shift(timedelta(hours=1))
                reconciliation.reconcile_objects()
            assert get.call_count == 3
            sandbox.engine.faults.clear()
            clock.shift(timedelta(hours=20))
            reconciliation.reconcile_objects()
        reference.refresh_from_db()
        assert reference.gone_at is None

    def test_objects_that_are_gone_leave_room_for_others(
        self, sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Though they have been silent for longer."""
        gone, known = (
            services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
            for _ in range(2)
        )
        now = timezone.now()
        AccountState.objects.update_or_create(account="default", defaults={"swept_at": now})
        Payment.objects.filter(pk=gone.pk).update(gone_at=now, synced_at=now - timedelta(days=9))
        Payment.objects.filter(pk=known.pk).update(synced_at=now - timedelta(hours=7))
        monkeypatch.setattr(objects, "SILENT_BATCH", 1)
        objects._request_silent("default")
        assert DueRefresh.objects.get().object_id == known.pk
        monkeypatch.setattr(objects, "SILENT_BATCH", 2)
        objects._request_silent("default")
        assert DueRefresh.objects.count() == 2

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

    @pytest.mark.case(44)
    @pytest.mark.promise(3)
    @pytest.mark.parametrize("truth_first", [True, False])
    def test_of_two_simultaneous_events_the_provider_decides_which_is_newer(
        self, sandbox: ProviderSandbox, truth_first: bool
    ) -> None:
        payment = pay(sandbox)
        truth = sandbox.project.payments[payment.pk]
        seconds = (timezone.now() - factories.T0 + timedelta(seconds=30)).total_seconds()
        # The order of the ids does not decide either.
        pair = [
            factories.event({**truth, "status": "failed"}, seconds=seconds, id=f"evt_{'z' if truth_first else 'a'}"),
            factories.event(truth, seconds=seconds, id="evt_m"),
        ]
        for item in reversed(pair) if truth_first else pair:
            inbox.receive("default", factories.body(item))
            inbox.process()
        assert DueRefresh.objects.get(object_id=payment.pk).reason == "order_unclear"
        pass_time(sandbox, seconds=60)
        reconciliation.refresh_due()
        payment.refresh_from_db()
        assert payment.status == truth["status"] != "failed"
        assert not DueRefresh.objects.exists()

    @pytest.mark.usefixtures("still")
    def test_a_silent_object_that_cannot_be_read_keeps_its_retry_times(self, sandbox: ProviderSandbox) -> None:
        payment = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        Payment.objects.update(synced_at=timezone.now() - timedelta(hours=7))
        AccountState.objects.update_or_create(account="default", defaults={"swept_at": timezone.now()})
        sandbox.engine.faults.clear()
        sandbox.engine.faults.add(Fault("html", operation="get_payment", times=None))
        reconciliation.reconcile_objects()
        first = DueRefresh.objects.get(object_id=payment.pk)
        reconciliation.reconcile_objects()
        again = DueRefresh.objects.get(object_id=payment.pk)
        assert (again.attempts, again.due_at) == (first.attempts, first.due_at)

    def test_drift_that_a_worker_repairs_meanwhile_counts_as_repaired(self, sandbox: ProviderSandbox) -> None:
        pay(sandbox)
        pass_time(sandbox, seconds=10)
        reconciliation.reconcile_events()
        reconciliation.process_due()
        pass_time(sandbox, seconds=30)
        Payment.objects.update(amount_received=1)
        AccountState.objects.update(swept_at=None)
        with mock.patch.object(objects, "_repair", side_effect=_after_a_worker(objects._repair)):
            run = reconciliation.reconcile_objects()
        assert (run.drifted, run.repaired) == (1, 1)

    @pytest.mark.usefixtures("still")
    def test_failed_refreshes_wait_longer_each_time(self, sandbox: ProviderSandbox) -> None:
        DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_1", reason="x")
        waits = []
        with mock.patch("payments_integration.sync.read", side_effect=NoAnswer("down")):
            for _ in range(4):
                DueRefresh.objects.update(due_at=timezone.now())
                reconciliation.refresh_due()
                mark = DueRefresh.objects.get()
                waits.append((mark.due_at - timezone.now()).total_seconds())
        assert [round(wait / 5) for wait in waits] == [1, 2, 4, 8]
        assert (mark.attempts, mark.error) == (4, "NoAnswer: down")

    def test_refreshes_of_a_removed_account_wait(self) -> None:
        DueRefresh.objects.create(account="former", object_kind="payment", object_id="pay_1", reason="x")
        assert reconciliation.refresh_due() == 0
        assert "not configured" in DueRefresh.objects.get().error


@pytest.mark.case(66)
def test_a_gap_of_more_than_29_days_leads_to_a_resync(
    sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
) -> None:
    reconciliation.reconcile_events()
    old = pay(sandbox, merchant_reference="old")
    clock.shift(timedelta(days=31))
    AccountState.objects.update(swept_at=timezone.now())
    run = reconciliation.reconcile_events()
    assert run.state == "done"
    assert "gap_too_long" in [seen["reason"] for seen in attentions]
    full = ReconciliationRun.objects.get(kind="full", started_at__gt=run.started_at)
    assert full.state == "done"
    old.refresh_from_db()
    assert old.status == "succeeded"
    assert_mirror_equals_provider(sandbox)


def _after_a_worker(repair: Any) -> Any:
    def act(*args: Any, **kwargs: Any) -> None:
        reconciliation.refresh_due()
        repair(*args, **kwargs)

    return act


@pytest.mark.case(66)
class TestDueResync:
    """A gap leads to one complete resync, also if passes fail or processes die meanwhile."""

    @pytest.fixture
    def chargeback(self, sandbox: ProviderSandbox, clock: time_machine.Traveller) -> Payment:
        """A payment whose last event the provider has deleted by the end of the outage."""
        payment = pay(sandbox)
        reconciliation.reconcile_events()
        clock.shift(timedelta(days=1))
        sandbox.engine.chargeback(payment.pk)
        clock.shift(timedelta(days=40))
        AccountState.objects.update(swept_at=timezone.now())
        return payment

    def test_a_failed_resync_is_repeated(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, chargeback: Payment
    ) -> None:
        sandbox.engine.faults.add(Fault("html", operation="list_payments", times=1))
        assert reconciliation.reconcile_events().state == "done"
        assert _resyncs()[-1] == "failed"
        chargeback.refresh_from_db()
        assert chargeback.status == "succeeded"
        clock.shift(timedelta(minutes=31))
        assert reconciliation.reconcile_events().state == "done"
        assert _resyncs()[-1] == "done"
        chargeback.refresh_from_db()
        assert chargeback.status == "chargeback"
        clock.shift(timedelta(minutes=31))
        count = len(_resyncs())
        reconciliation.reconcile_events()
        assert len(_resyncs()) == count

    def test_a_pass_that_died_leaves_the_resync_due(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, chargeback: Payment
    ) -> None:
        count = len(_resyncs())
        # A first window is complete, so the watermark does not show the gap any more.
        with (
            mock.patch.object(inbox, "release", side_effect=[0, 0, 0, KeyboardInterrupt]),
            pytest.raises(KeyboardInterrupt),
        ):
            reconciliation.reconcile_events()
        assert len(_resyncs()) == count
        assert reconciliation.reconcile_events().state == "done"
        assert len(_resyncs()) == count + 1
        chargeback.refresh_from_db()
        assert chargeback.status == "chargeback"

    def test_a_due_resync_replaces_the_daily_sweep(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, chargeback: Payment
    ) -> None:
        AccountState.objects.update(swept_at=None, resync_due_at=timezone.now())
        run = reconciliation.reconcile_objects()
        assert (run.kind, run.state) == ("full", "done")
        assert AccountState.objects.get().resync_due_at is None
        chargeback.refresh_from_db()
        assert chargeback.status == "chargeback"

    def test_one_resync_runs_at_a_time(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, chargeback: Payment
    ) -> None:
        AccountState.objects.update(resync_due_at=timezone.now())
        others: list[object] = []

        def slow(*args: Any, **kwargs: Any) -> Any:
            clock.shift(timedelta(minutes=20))
            others.append(objects.resync_if_due("default"))
            return real(*args, **kwargs)

        real = objects._compare
        with mock.patch.object(objects, "_compare", slow):
            run = objects.resync_if_due("default")
        assert run is not None
        assert run.state == "done"
        assert len(others) >= 2
        assert not any(others)

    def test_an_unreadable_object_does_not_repeat_the_resync(self, sandbox: ProviderSandbox) -> None:
        payment = pay(sandbox)
        sandbox.project.state.payments.items.find(payment.pk)["merchant_reference"] = "x" * 300
        reconciliation.reconcile_events()
        assert _resyncs() == ["failed"]
        assert AccountState.objects.get().resync_due_at is None


def _resyncs() -> list[str]:
    return list(ReconciliationRun.objects.filter(kind="full").order_by("pk").values_list("state", flat=True))


def test_balances_are_read_and_recorded(sandbox: ProviderSandbox) -> None:
    sandbox.engine.fund("BRL", 777)
    run = reconciliation.reconcile_balances()
    assert run.state == "done"
    assert Balance.objects.get(currency="BRL").available == 777
