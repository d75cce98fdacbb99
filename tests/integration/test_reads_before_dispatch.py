"""A handler sees the state that its event brought, or a newer one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.utils import timezone

from payments_integration import inbox, projection, reconciliation, services
from payments_integration.client.answers import Reply
from payments_integration.models import DueRefresh, Event, Payment, RefreshReason
from payments_integration.sandbox import Fault
from payments_integration.signals import event_received, status_changed
from payments_integration.sync import get_client
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.fake_provider import PAYOUT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.case(122),
    pytest.mark.promise(6),
]

PAYMENT: dict[str, Any] = {"currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


class Seen:
    """What handlers were called with: the event's type or the new status, and the status of the row."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.statuses: list[tuple[str, str]] = []
        self.by_answer: list[str] = []

    def on_event(self, event: Event, instance: Any, **_: Any) -> None:
        if instance is not None and hasattr(instance, "status"):
            self.events.append((event.type, instance.status))

    def on_status(self, instance: Any, status: str, event: Event | None, **_: Any) -> None:
        self.statuses.append((status, instance.status))
        if event is None:
            self.by_answer.append(status)


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    event_received.connect(seen.on_event)
    status_changed.connect(seen.on_status)
    yield seen
    event_received.disconnect(seen.on_event)
    status_changed.disconnect(seen.on_status)


@pytest.fixture
def provider(payments_sandbox: ProviderSandbox) -> ProviderSandbox:
    return payments_sandbox


def away(provider: ProviderSandbox, **fault: Any) -> None:
    """No GET of an object brings its state."""
    provider.engine.faults.add(Fault(**{"kind": "reset", "times": None, "method": "GET", **fault}))


def test_a_payment_that_is_paid_at_once(provider: ProviderSandbox, seen: Seen) -> None:
    payment = services.create_payment(amount=10_000, **PAYMENT)
    provider.engine.pay(payment.id)
    provider.deliver()
    reconciliation.process_due()
    assert ("payment.succeeded", "succeeded") in seen.events
    assert ("payment.succeeded", "created") not in seen.events
    assert [status for status, _ in seen.statuses].count("succeeded") == 1
    assert not DueRefresh.objects.filter(projection.is_awaited()).exists()


def test_a_payout_and_a_refund_that_succeed_at_once(provider: ProviderSandbox, seen: Seen) -> None:
    payment = services.create_payment(amount=10_000, **PAYMENT)
    provider.engine.pay(payment.id)
    provider.settle()
    payout = services.create_payout(**PAYOUT)
    refund = services.create_refund(payment, amount=1_000)
    provider.engine.succeed_payout(payout.id)
    provider.engine.succeed_refund(refund.id)
    provider.deliver()
    reconciliation.process_due()
    for kind in ("payout", "refund"):
        assert {status for event, status in seen.events if event == f"{kind}.succeeded"} == {"succeeded"}


def test_inline_the_read_comes_before_the_handler_within_the_request(provider: ProviderSandbox, seen: Seen) -> None:
    payment = services.create_payment(amount=10_000, **PAYMENT)
    provider.engine.pay(payment.id)
    provider.deliver()
    # As the hook of "inline" does, with a deadline that a busy machine keeps.
    reconciliation.process_due("default", deadline=time.monotonic() + 60)
    assert ("payment.succeeded", "succeeded") in seen.events


NO_ANSWERS: dict[str, dict[str, Any]] = {
    "reset": {},
    "error": {"kind": "error", "status": 503, "code": "internal_error"},
    "401": {"kind": "error", "status": 401, "code": "api_key_invalid"},
    "404": {"kind": "error", "status": 404, "code": "resource_not_found"},
    "unreadable": {"kind": "html"},
    "another object": {"kind": "wrong_id"},
}


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_without_an_answer_for_a_minute_the_handler_gets_the_newest_state_known(
    provider: ProviderSandbox, seen: Seen, answer: str, clock: time_machine.Traveller
) -> None:
    payment = services.create_payment(amount=10_000, **PAYMENT)
    provider.engine.pay(payment.id)
    away(provider, path="/payments/pay_", **NO_ANSWERS[answer])
    for item in factories.life("pay_other")[:1]:
        inbox.receive("default", factories.body(item))
    provider.deliver()
    reconciliation.process_due()
    assert [kind for kind, _ in seen.events if kind == "payment.succeeded"] == []
    assert ("payment.created", "created") in seen.events, "objects that wait for no read are dispatched at once"
    clock.shift(timedelta(seconds=30))
    reconciliation.process_due()
    assert [kind for kind, _ in seen.events if kind == "payment.succeeded"] == []
    clock.shift(timedelta(seconds=31))
    reconciliation.process_due()
    assert ("payment.succeeded", "created") in seen.events
    assert [status for status, _ in seen.statuses if status == "succeeded"] == []
    provider.engine.faults.clear()
    DueRefresh.objects.update(due_at=timezone.now())
    if not DueRefresh.objects.exists():  # the provider said that there is no such object
        projection.request_refresh("default", "payment", payment.id, RefreshReason.SILENT)
    reconciliation.process_due()
    assert seen.by_answer.count("succeeded") == 1, "on_status is called after the read"
    assert Payment.objects.get(pk=payment.pk).status == "succeeded"
    assert Event.objects.exclude(state="done").count() == 0


@pytest.mark.parametrize(
    "reason", [RefreshReason.REFUND_CHANGED, RefreshReason.DRIFT, RefreshReason.SILENT, RefreshReason.FULL_RESYNC]
)
def test_a_read_for_another_reason_holds_nothing_back(provider: ProviderSandbox, seen: Seen, reason: str) -> None:
    away(provider)
    projection.request_refresh("default", "payment", "pay_1", reason)
    for item in factories.life()[:2]:
        inbox.receive("default", factories.body(item))
    inbox.process()
    assert inbox.dispatch() == 2


@contextmanager
def dated(seconds: float) -> Iterator[None]:
    """Answers have the Date of another clock than the events'."""
    real = Reply.__post_init__

    def post_init(reply: Reply) -> None:
        real(reply)
        if reply.answered_at is not None:
            reply.answered_at += timedelta(seconds=seconds)

    with mock.patch.object(Reply, "__post_init__", post_init):
        yield


@pytest.mark.case(153)
@pytest.mark.promise(3)
@pytest.mark.parametrize("ahead", [30, 240])
def test_an_event_just_after_an_answer_that_is_dated_ahead_is_not_taken_for_history(
    provider: ProviderSandbox, seen: Seen, clock: time_machine.Traveller, ahead: int
) -> None:
    with dated(ahead):
        payment = services.create_payment(amount=10_000, **PAYMENT)
        provider.engine.pay(payment.id)
        provider.deliver()
        reconciliation.process_due()
        clock.shift(timedelta(days=36))
        services.refresh(payment)
        clock.shift(timedelta(seconds=8))
        provider.engine.chargeback(payment.id)
        provider.deliver()
        reconciliation.process_due()
    assert Payment.objects.get().status == "chargeback"
    assert seen.events[-1] == ("payment.chargeback", "chargeback"), "its handler waits for the read"
    assert [status for status, _ in seen.statuses].count("chargeback") == 1


@pytest.mark.case(153)
@pytest.mark.promise(3)
@pytest.mark.parametrize("behind", [0, 8, 30, 240])
def test_late_events_after_an_answer_that_is_dated_behind_do_not_take_the_status_back(
    provider: ProviderSandbox, seen: Seen, clock: time_machine.Traveller, behind: int
) -> None:
    with dated(-behind):
        payment = services.create_payment(amount=10_000, **PAYMENT)
        clock.shift(timedelta(minutes=10))
        provider.engine.pay(payment.id)
        services.refresh(payment)  # the payer is back
        clock.shift(timedelta(seconds=12))
        [page] = get_client("default").events.pages()
        for raw in reversed(page.data.items):
            inbox.receive("default", raw.body)
            reconciliation.process_due()
            assert Payment.objects.get().status == "succeeded"
    assert [status for status, _ in seen.statuses] == ["created", "succeeded"]


def test_a_newer_event_ends_the_wait(provider: ProviderSandbox, seen: Seen) -> None:
    """The row is then newer than the event that waited."""
    payment = services.create_payment(amount=10_000, **PAYMENT)
    provider.engine.pay(payment.id)
    away(provider)
    row = Payment.objects.get(pk=payment.pk)
    for seconds, status in ((3, "succeeded"), (60, "chargeback")):
        at = (row.state_at - factories.T0).total_seconds() + seconds
        content = factories.payment(id=payment.id, status=status, amount_received=10_000)
        inbox.receive("default", factories.body(factories.event(content, seconds=at, id=f"evt_{status}")))
    inbox.process()
    inbox.dispatch()
    assert [kind for kind, _ in seen.events] == ["payment.succeeded", "payment.chargeback"]
    assert {status for _, status in seen.events} == {"chargeback"}
