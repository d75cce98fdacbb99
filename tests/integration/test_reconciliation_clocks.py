"""Reconciliation with clocks that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from payments_integration import health, inbox, projection, reconciliation, services
from payments_integration.models import (
    AccountState,
    DepositReference,
    Event,
    ObjectDispatch,
    Payment,
    RefreshReason,
    deletion_allowed,
)
from payments_integration.reconciliation.commands import run_due
from payments_integration.sandbox import Fault
from payments_integration.signals import Reason
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.integration.reconciling import after_each_page, pass_time, pay

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]


@pytest.mark.case(78)
class TestClocks:
    """A wrong clock, ours or the provider's, makes no pass skip events."""

    def test_a_date_far_ahead_is_not_trusted(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.reconcile_events()
        _answers_are_dated(sandbox, timedelta(days=2))
        assert reconciliation.reconcile_events().state == "done"
        state = AccountState.objects.get()
        sandbox.engine.clock.set_offset(0)
        assert [seen["reason"] for seen in attentions] == ["provider_clock"]
        assert state.clock_offset is not None
        assert abs(state.clock_offset) < 60
        assert state.watermark is not None
        assert state.watermark < timezone.now() + timedelta(minutes=16)
        clock.shift(timedelta(minutes=2))
        pay(sandbox)
        for _ in range(3):
            clock.shift(timedelta(days=1))
            reconciliation.reconcile_events()
        assert _missing(sandbox) == set()

    @pytest.mark.parametrize(("hours", "message"), [(3, "3 h ahead of"), (-3, "3 h behind"), (72, "3 d ahead of")])
    def test_health_shows_a_large_difference_until_the_clocks_agree(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]], hours: int, message: str
    ) -> None:
        def shown() -> list[str]:
            problems = health.examine("default").accounts["default"].problems
            return [problem.message for problem in problems if problem.code == Reason.PROVIDER_CLOCK]

        reconciliation.reconcile_events()
        _answers_are_dated(sandbox, timedelta(hours=hours))
        reconciliation.reconcile_events()
        assert shown() == [f"the provider's clock is {message} ours"]
        _answers_are_dated(sandbox, timedelta())
        reconciliation.reconcile_events()
        assert not shown()

    def test_a_watermark_in_the_future_makes_the_pass_read_everything_again(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.reconcile_events()
        pay(sandbox)
        clock.shift(timedelta(days=10))
        AccountState.objects.update(watermark=timezone.now() + timedelta(days=1))
        assert reconciliation.reconcile_events().state == "done"
        assert _missing(sandbox) == set()
        assert [seen["reason"] for seen in attentions] == ["provider_clock"]
        watermark = AccountState.objects.get().watermark
        assert watermark is not None
        assert abs(watermark - timezone.now()) < timedelta(minutes=1)

    def test_a_watermark_slightly_in_the_future_is_accepted(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        """The clocks of two servers of the provider differ."""
        pay(sandbox)
        ahead = timezone.now() + timedelta(minutes=5)
        AccountState.objects.update_or_create(account="default", defaults={"watermark": ahead})
        pass_time(sandbox, seconds=10)
        run = reconciliation.reconcile_events()
        assert _missing(sandbox) == set()
        assert not attentions
        assert run.pages <= 2

    def test_a_date_far_behind_hides_no_event(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
    ) -> None:
        """It may be the wrong one, so the pass reads up to our time. The watermark stays at the Date."""
        reconciliation.reconcile_events()
        pay(sandbox)
        clock.shift(timedelta(seconds=10))
        _answers_are_dated(sandbox, timedelta(days=-1))
        assert reconciliation.reconcile_events().state == "done"
        watermark = AccountState.objects.get().watermark
        sandbox.engine.clock.set_offset(0)
        assert _missing(sandbox) == set()
        assert {seen["reason"] for seen in attentions} == {"provider_clock"}
        assert watermark is not None
        assert abs(watermark - (timezone.now() - timedelta(days=1))) < timedelta(minutes=1)

    @pytest.mark.case(109)
    @pytest.mark.parametrize("hours", [6, 24 * 40], ids=["six hours", "forty days"])
    def test_a_slow_clock_of_ours_hides_no_event(
        self,
        sandbox: ProviderSandbox,
        clock: time_machine.Traveller,
        attentions: list[dict[str, Any]],
        receiver: Receiver,
        hours: int,
    ) -> None:
        _our_clock_is_slow(sandbox, timedelta(hours=hours))
        for _ in range(2):
            payment = pay(sandbox)
            clock.shift(timedelta(minutes=5))
            run = reconciliation.reconcile_events()
            assert (run.state, run.error) == ("done", "")
            assert _missing(sandbox) == set()
            watermark = AccountState.objects.get().watermark
            assert watermark is not None
            assert abs(watermark - timezone.now()) < timedelta(minutes=1)  # our time, the earlier
        assert {seen["reason"] for seen in attentions} == {"provider_clock"}
        reconciliation.process_due()
        assert receiver.statuses[-1][1] == Payment.objects.get(pk=payment.pk).status == "succeeded"

    @pytest.mark.case(109)
    @pytest.mark.promise(6)
    def test_a_clock_of_ours_that_is_forty_days_ahead_makes_no_event_too_old(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, receiver: Receiver
    ) -> None:
        reconciliation.reconcile_events()
        clock.shift(timedelta(days=40))
        _our_clock_is_slow(sandbox, -timedelta(days=40))
        pay(sandbox)
        reconciliation.reconcile_events()
        reconciliation.process_due()
        assert sorted(receiver.dispatched) == sorted(event["id"] for event in sandbox.project.events) != []

    @pytest.mark.case(109)
    def test_a_slow_clock_that_is_set_right_misses_no_event(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller
    ) -> None:
        reconciliation.reconcile_events()
        _our_clock_is_slow(sandbox, timedelta(hours=6))
        clock.shift(timedelta(minutes=5))
        reconciliation.reconcile_events()
        pay(sandbox)
        clock.shift(timedelta(hours=6))
        sandbox.engine.clock.set_offset(0)
        reconciliation.reconcile_events()
        assert _missing(sandbox) == set()

    @pytest.mark.case(109)
    def test_an_interrupted_pass_of_a_fast_clock_hides_no_event(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller
    ) -> None:
        """It read into the provider's future. What happens until then comes before its cursor."""
        reconciliation.reconcile_events()
        ahead = timedelta(hours=3)
        clock.shift(ahead)
        _our_clock_is_slow(sandbox, -ahead)
        for _ in range(40):
            pay(sandbox)
        with after_each_page(_dies), pytest.raises(KeyboardInterrupt):
            reconciliation.reconcile_events()
        assert AccountState.objects.get().cursor
        clock.shift(-ahead)
        sandbox.engine.clock.set_offset(0)
        clock.shift(timedelta(hours=1))
        pay(sandbox)
        for _ in range(2):
            clock.shift(timedelta(hours=5))
            reconciliation.reconcile_events()
        assert _missing(sandbox) == set()

    @pytest.mark.parametrize("is_interrupted", [False, True], ids=["whole", "interrupted"])
    def test_an_undated_answer_and_a_fast_clock_hide_no_event(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, *, is_interrupted: bool
    ) -> None:
        """Without a Date our clock says where the pass ends. The Dates of its pages say how far it is complete."""
        ahead = timedelta(hours=6)
        clock.shift(ahead)
        _our_clock_is_slow(sandbox, -ahead)
        for _ in range(40):
            pay(sandbox)
        sandbox.engine.faults.add(Fault("no_date", operation="list_events"))
        if is_interrupted:
            with after_each_page(_dies), pytest.raises(KeyboardInterrupt):
                reconciliation.reconcile_events()
        else:
            reconciliation.reconcile_events()
        pay(sandbox)
        clock.shift(-ahead)
        sandbox.engine.clock.set_offset(0)
        for _ in range(2):
            clock.shift(timedelta(hours=7))
            reconciliation.reconcile_events()
        assert _missing(sandbox) == set()

    def test_a_sandbox_whose_clock_was_moved_is_read_up_to_its_own_time(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        sandbox.engine.clock.advance(5 * 86400)
        pay(sandbox)
        pass_time(sandbox, seconds=10)
        reconciliation.reconcile_events()
        assert _missing(sandbox) == set()
        assert not attentions


class TestAheadAndSetRight:
    """Our clock was six hours ahead. Nothing waits for the times that were written meanwhile."""

    @pytest.fixture
    def ahead(self, sandbox: ProviderSandbox, clock: time_machine.Traveller) -> Callable[[], Any]:
        @contextmanager
        def ahead() -> Iterator[None]:
            clock.shift(timedelta(hours=6))
            _our_clock_is_slow(sandbox, -timedelta(hours=6))
            yield
            clock.shift(-timedelta(hours=6))
            sandbox.engine.clock.set_offset(0)

        return ahead

    def test_an_object_that_is_due_is_read(self, sandbox: ProviderSandbox, ahead: Callable[[], Any]) -> None:
        payment = pay(sandbox)
        with ahead():
            projection.request_refresh("default", "payment", payment.pk, RefreshReason.DRIFT)
        reconciliation.process_due()
        assert Payment.objects.get().status == "succeeded"

    def test_a_silent_object_is_read(self, sandbox: ProviderSandbox, ahead: Callable[[], Any]) -> None:
        with ahead():
            payment = services.create_payment(amount=10000, currency="CLP", country="CL", method_code="cl_webpay_card")
        AccountState.objects.update(swept_at=timezone.now())
        sandbox.engine.pay(payment.pk)
        reconciliation.reconcile_objects()
        assert Payment.objects.get().status == "succeeded"

    def test_lists_are_swept(self, sandbox: ProviderSandbox, ahead: Callable[[], Any]) -> None:
        with ahead():
            reconciliation.reconcile_objects()
        payment = pay(sandbox)
        with deletion_allowed():
            Payment.objects.all().delete()
        reconciliation.reconcile_objects()
        assert Payment.objects.get().pk == payment.pk

    def test_a_full_resync_reads_what_no_list_has(self, sandbox: ProviderSandbox, ahead: Callable[[], Any]) -> None:
        with ahead():
            reference = services.create_deposit_reference(country="MX", currency="MXN", method_code="mx_deposit")
        sandbox.engine.disable_deposit_reference(reference.pk)
        reconciliation.reconcile_objects(full=True)
        assert DepositReference.objects.get().status == "disabled"

    def test_passes_without_a_worker_go_on(self, sandbox: ProviderSandbox, ahead: Callable[[], Any]) -> None:
        with ahead():
            run_due("default")
        pay(sandbox)
        run_due("default")
        assert _missing(sandbox) == set()

    def test_a_handler_that_failed_is_called_again(self, receiver: Receiver, ahead: Callable[[], Any]) -> None:
        receiver.fail = lambda _what: True
        with ahead():
            inbox.receive("default", factories.body(factories.life()[0]))
            reconciliation.process_due()
        assert ObjectDispatch.objects.exclude(next_attempt_at=None).exists()
        receiver.fail = lambda _what: False
        receiver.events.clear()
        reconciliation.process_due()
        assert len(receiver.events) == 1

    def test_an_event_waits_no_longer_than_the_reorder_window(
        self, ahead: Callable[[], Any], settings: Any, receiver: Receiver
    ) -> None:
        settings.PAYMENTS_INTEGRATION = {
            **settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery", "REORDER_WINDOW": 60
        }  # fmt: skip
        with ahead():
            inbox.receive("default", factories.body(factories.life()[0]))
            reconciliation.process_due()
            assert not receiver.events
        reconciliation.process_due()
        assert len(receiver.events) == 1


def _dies(pages: int) -> None:
    if pages == 2:
        raise KeyboardInterrupt


def _our_clock_is_slow(sandbox: ProviderSandbox, by: timedelta) -> None:
    """The provider's clock is ahead of ours, and the app does not know it."""
    sandbox.engine.clock.set_offset(by.total_seconds())
    AccountState.objects.update(clock_offset=None)


def _answers_are_dated(sandbox: ProviderSandbox, offset: timedelta) -> None:
    """From now on. The app does not know of it, unlike a sandbox clock that a test advances."""
    sandbox.engine.clock.set_offset(offset.total_seconds())
    AccountState.objects.update(clock_offset=0)


def _missing(sandbox: ProviderSandbox) -> set[str]:
    return {event["id"] for event in sandbox.project.events} - set(Event.objects.values_list("id", flat=True))
