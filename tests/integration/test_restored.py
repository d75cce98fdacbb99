"""What ``docs/runbook.md`` says of a restored database: the provider knows more than the ledger."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.apps import apps
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import models, transaction
from django.dispatch import Signal

from payments_integration import inbox, services
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown
from payments_integration.models import Event, Operation, OperationState, Payment, Payout, Refund, deletion_allowed
from payments_integration.signals import dispatching, event_received, status_changed
from payments_integration.testing import ProviderSandbox
from tests.unit.payable.payables import Ticket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.promise(5)]

PAYOUT: dict[str, Any] = {
    "amount": 5_000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": {
        "type": "bank_account",
        "account_number": "00123456789",
        "holder_name": "Ana Rojas",
        "holder_document": {"type": "RUT", "number": "12.345.678-5"},
    },
}
KEYED = {**PAYOUT, "merchant_reference": "invoice-17", "idempotency_key": "invoice-17"}


@pytest.fixture
def dumped() -> Callable[[], Callable[[], None]]:
    """Take a dump of the app's tables; what it returns restores it, and reconciles as the page says."""
    tables: list[type[models.Model]] = list(apps.get_app_config("payments_integration").get_models())

    def dump() -> Callable[[], None]:
        rows = {model: list(model._base_manager.all()) for model in tables}

        def restore() -> None:
            with deletion_allowed():
                for model in reversed(tables):
                    model._base_manager.all().delete()
            for model in tables:
                model._base_manager.bulk_create(rows[model])
            call_command("payments_reconcile", account="default", full=True)

        return restore

    return dump


Dump = Callable[[], Callable[[], None]]


def test_a_call_that_the_dump_lacks_finds_its_payout_under_its_key(sandbox: ProviderSandbox, dumped: Dump) -> None:
    restore = dumped()
    payout = services.create_payout(**KEYED)
    restore()
    assert Payout.objects.get() == payout
    assert services.create_payout(**KEYED) == payout
    assert len(sandbox.engine.payouts) == 1
    assert Operation.objects.get().state == OperationState.DONE


def test_without_a_reference_the_provider_sees_the_same_request(sandbox: ProviderSandbox, dumped: Dump) -> None:
    """The app fills in the operation's id, which follows from the key."""
    restore = dumped()
    payout = services.create_payout(**PAYOUT, idempotency_key="invoice-17")
    restore()
    assert services.create_payout(**PAYOUT, idempotency_key="invoice-17") == payout
    assert len(sandbox.engine.payouts) == 1
    assert Operation.objects.get().state == OperationState.DONE


def test_a_day_later_a_person_decides_about_a_payout_of_the_same_reference(
    sandbox: ProviderSandbox, dumped: Dump, clock: time_machine.Traveller
) -> None:
    """The provider has forgotten the key."""
    restore = dumped()
    payout = services.create_payout(**KEYED)
    clock.shift(timedelta(hours=25))
    restore()
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payout(**KEYED)
    assert len(sandbox.engine.payouts) == 1
    assert services.fitting_objects(caught.value.operation) == [payout.pk]
    services.mark_happened(caught.value.operation, payout.pk, "ana", "the invoice is paid")
    assert services.create_payout(**KEYED) == payout


def test_a_day_later_the_key_alone_finds_it(
    sandbox: ProviderSandbox, dumped: Dump, clock: time_machine.Traveller
) -> None:
    """Without a reference of the caller, the reference follows from the key."""
    restore = dumped()
    payout = services.create_payout(**PAYOUT, idempotency_key="invoice-17")
    clock.shift(timedelta(hours=25))
    restore()
    assert services.create_payout(**PAYOUT, idempotency_key="invoice-17") == payout
    assert len(sandbox.engine.payouts) == 1


@pytest.mark.parametrize("hours", [1, 25])
def test_a_call_that_was_due_in_the_dump(
    sandbox: ProviderSandbox, dumped: Dump, clock: time_machine.Traveller, hours: int
) -> None:
    with transaction.atomic(), dispatching():  # a handler's call: a worker sends it
        operation = services.defer(services.create_payout, **KEYED)
    restore = dumped()
    clock.shift(timedelta(minutes=20))
    services.resume_operations()
    (payout_id,) = sandbox.engine.payouts
    clock.shift(timedelta(hours=hours))
    restore()
    services.resume_operations()
    operation.refresh_from_db()
    assert len(sandbox.engine.payouts) == 1
    if hours < 24:
        assert (operation.state, operation.result_id) == (OperationState.DONE, payout_id)
    else:
        assert operation.state == OperationState.NEEDS_PERSON


def test_a_payout_that_waits_for_approval_again_is_found_by_the_operations_id(
    sandbox: ProviderSandbox, dumped: Dump, settings: Any
) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 4_000}}
    boss = User.objects.create(username="boss", is_staff=True, is_superuser=True)
    with pytest.raises(ApprovalRequired) as caught:
        services.create_payout(**PAYOUT, actor="ana")
    operation = caught.value.operation
    restore = dumped()
    payout = services.approve(operation, boss)
    restore()
    waiting = Operation.objects.get(state=OperationState.AWAITING_APPROVAL)
    assert Payout.objects.get(merchant_reference=waiting.merchant_reference) == payout
    assert services.approve(waiting, boss) == payout  # on the same day
    assert len(sandbox.engine.payouts) == 1


@pytest.mark.case(124)
@pytest.mark.parametrize("reconciled", [True, False])
def test_two_days_later_neither_send_again_nor_approve_pays_twice(
    sandbox: ProviderSandbox, dumped: Dump, clock: time_machine.Traveller, settings: Any, reconciled: bool
) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 4_000}}
    boss = User.objects.create(username="boss", is_staff=True, is_superuser=True)
    with transaction.atomic(), dispatching():
        due = services.defer(services.create_payout, **{**PAYOUT, "amount": 3_000})
    with pytest.raises(ApprovalRequired) as caught:
        services.create_payout(**PAYOUT, actor="ana")
    waiting = caught.value.operation
    restore = dumped()
    services.resume_operations()
    due.refresh_from_db()
    sent, approved = due.result_id, services.approve(waiting, boss)
    assert len(sandbox.engine.payouts) == 2
    clock.shift(timedelta(days=2))
    restore()
    if not reconciled:
        # The list of the provider shows it too.
        with deletion_allowed():
            Payout.objects.all().delete()
    assert services.resume_operations() == {"needs_person": 1}
    assert services.retry(due, "ana").result_id == sent
    assert services.approve(waiting, boss).pk == approved.pk
    assert len(sandbox.engine.payouts) == 2


@pytest.mark.case(124)
@pytest.mark.parametrize("hours", [1, 48])
@pytest.mark.parametrize(
    ("signal", "is_keyed", "is_read_first"),
    [
        (event_received, True, False),
        (event_received, False, False),
        (status_changed, False, False),
        (status_changed, False, True),
    ],
    ids=["event with a key", "event", "change of an event", "change of an answer"],
)
def test_a_handler_that_is_called_again_pays_nothing_twice(
    sandbox: ProviderSandbox,
    dumped: Dump,
    clock: time_machine.Traveller,
    hours: int,
    signal: Signal,
    is_keyed: bool,
    is_read_first: bool,
) -> None:
    """Its operation is new, and after two days the provider has forgotten the key."""
    asked: list[Operation] = []

    def pay_out(instance: Any, event: Event | None = None, status: str = "", **kwargs: Any) -> None:
        if status != "succeeded" and (event is None or status or event.type != "payment.succeeded"):
            return
        reference = f"share-{instance.pk}"
        keyed = {"merchant_reference": reference, "idempotency_key": reference} if is_keyed else {}
        asked.extend(services.defer(services.create_payout, **PAYOUT, **keyed) for _ in range(1 if is_keyed else 2))

    signal.connect(pay_out, sender=Payment)
    try:
        restore = dumped()
        payment = services.create_payment(
            amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", idempotency_key="order-4"
        )
        sandbox.engine.pay(payment.pk)
        if is_read_first:
            services.refresh(payment.pk)
        for _ in range(2):
            call_command("payments_process", account="default")
        made = sorted(sandbox.engine.payouts)
        clock.shift(timedelta(hours=hours))
        asked.clear()
        restore()
        call_command("payments_process", account="default")
        assert len(asked) == len(made) == (1 if is_keyed else 2)
        inbox.replay(Event.objects.get(type="payment.succeeded"))
        call_command("payments_process", account="default")
    finally:
        signal.disconnect(pay_out, sender=Payment)
    assert len(asked) == 2 * len(made)
    assert sorted(sandbox.engine.payouts) == made
    done = Operation.objects.filter(operation="create_payout", state=OperationState.DONE)
    assert sorted(done.values_list("result_id", flat=True)) == made


@pytest.mark.case(124)
def test_what_was_made_since_the_backup_calls_for_attention(
    sandbox: ProviderSandbox, dumped: Dump, attentions: list[dict[str, Any]]
) -> None:
    call_command("payments_reconcile", account="default")
    restore = dumped()
    services.create_payout(**PAYOUT)
    restore()
    assert [seen["reason"] for seen in attentions] == ["ledger_incomplete"]


def test_a_new_order_with_the_number_of_a_lost_one_counts_as_paid(sandbox: ProviderSandbox, dumped: Dump) -> None:
    """The page says to raise the sequence of the numbers, because the app cannot tell the two orders apart."""
    restore = dumped()
    lost = Ticket.objects.create(total=10_000)
    payment = services.create_payment(
        amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card",
        merchant_reference=str(lost.pk), idempotency_key=lost.attempt_key(),
    )  # fmt: skip
    sandbox.engine.pay(payment.pk)
    number = lost.pk
    lost.delete()
    restore()
    assert Ticket.objects.create(pk=number, total=10_000).is_paid(10_000, "CLP")
    assert not Ticket.objects.create(pk=number + 1, total=10_000).is_paid(10_000, "CLP")


def test_a_whole_refund_is_not_made_again(
    sandbox: ProviderSandbox, dumped: Dump, clock: time_machine.Traveller
) -> None:
    payment = services.create_payment(
        amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", idempotency_key="order-3"
    )
    sandbox.engine.pay(payment.pk)
    services.refresh(payment)
    restore = dumped()
    refund = services.create_refund(payment, idempotency_key="return-3")
    clock.shift(timedelta(hours=25))
    restore()
    assert Refund.objects.get() == refund
    with pytest.raises(ValidationError):
        services.create_refund(payment, idempotency_key="return-3")
    assert len(sandbox.engine.refunds) == 1
