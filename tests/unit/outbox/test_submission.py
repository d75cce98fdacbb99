"""Deferred operations: recorded in the caller's transaction, sent after it commits."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from payments_integration import services
from payments_integration.exceptions import IdempotencyMismatch, InvalidState, RateLimited
from payments_integration.models import Operation, OperationState, deletion_allowed
from payments_integration.signals import dispatching, is_dispatching
from tests.fake_provider import (
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    only_operation,
    payment,
    refusal,
    timeout,
)


@pytest.mark.django_db(transaction=True)
def test_a_deferred_operation_is_sent_after_the_commit(fake: Fake) -> None:
    with transaction.atomic():
        operation = services.defer(services.create_payout, **PAYOUT, actor="shop")
        assert operation.state == OperationState.DUE
        assert operation.deferred
        assert not fake.calls
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE
    assert operation.result_id == fake.made("payout")[0].id
    assert len(fake.calls) == 1


@pytest.mark.django_db(transaction=True)
def test_a_deferred_operation_that_is_rolled_back_is_never_sent(fake: Fake) -> None:
    with transaction.atomic():
        services.defer(services.create_payout, **PAYOUT)
        transaction.set_rollback(True)
    assert services.resume_operations() == {}
    assert not Operation.objects.exists()
    assert not fake.calls


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(50)
def test_a_deferred_operation_is_sent_after_a_crash(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        operation = services.defer(services.create_payout, **PAYOUT)
        # The process dies after the commit: hooks that are never run.
        connection.run_on_commit.clear()
    assert services.resume_operations() == {"done": 1}
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE
    assert len(fake.calls) == 1


def test_a_deferred_operation_without_a_transaction_is_sent_at_once(fake: Fake) -> None:
    operation = services.defer(services.create_payment, **PAYMENT)
    assert operation.state == OperationState.DONE
    assert operation.deferred


@pytest.mark.parametrize("outcome", [Lost(timeout()), RuntimeError("a bug"), refusal(InvalidState, 422, "x")])
def test_sending_a_deferred_operation_raises_nothing(
    fake: Fake, attention: list[str], outcome: Exception, django_capture_on_commit_callbacks: Any
) -> None:
    fake.script = [outcome]
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        services.defer(services.create_payment, **PAYMENT)
    rejected = isinstance(outcome, InvalidState)
    assert only_operation().state == (OperationState.REJECTED if rejected else OperationState.UNKNOWN)
    assert attention == (["deferred_rejected"] if rejected else [])


def test_a_deferred_operation_that_is_rate_limited_waits(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited", retry_after=60)]
    operation = services.defer(services.create_payment, **PAYMENT)
    assert operation.state == OperationState.DUE
    assert not operation.may_have_run
    assert operation.first_sent_at is None
    assert operation.next_attempt_at is not None
    assert fake.calls[0].max_wait < 5


def test_an_operation_deferred_in_a_receiver_is_only_recorded(
    fake: Fake, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic(), dispatching():
        assert is_dispatching()
        services.defer(services.create_payment, **PAYMENT)
    assert not is_dispatching()
    assert not fake.calls
    assert only_operation().state == OperationState.DUE
    assert services.resume_operations() == {"done": 1}


def test_is_dispatching_nests_and_ends_with_an_error() -> None:
    with dispatching():
        with pytest.raises(RuntimeError), dispatching():
            raise RuntimeError
        assert is_dispatching()
    assert not is_dispatching()


def test_a_receiver_that_runs_again_asks_for_the_same_operations(fake: Fake) -> None:
    """Calls that differ, equal ones and those of another event are operations of their own."""

    def receive(event: str) -> list[str]:
        with dispatching(name=lambda: event):
            return [services.defer(services.create_payout, **{**PAYOUT, "amount": n}).pk for n in (700, 700, 800)]

    first = receive("evt_1")
    assert len({*first, *receive("evt_2")}) == 6
    assert receive("evt_1") == first
    assert services.resume_operations() == {"done": 6}
    assert receive("evt_1") == first
    assert services.resume_operations() == {}


def test_a_call_whose_savepoint_is_rolled_back_is_the_same_call_when_made_again(fake: Fake) -> None:
    """A receiver books and pays, in a savepoint; if booking fails it pays alone. Which way it goes may differ."""

    def receive(*, booking_fails: bool) -> None:
        with transaction.atomic(), dispatching(name=lambda: "evt_1"):
            services.defer(services.create_payout, **PAYOUT)
            try:
                with transaction.atomic():
                    services.defer(services.create_payout, **PAYOUT)
                    if booking_fails:
                        raise LookupError
            except LookupError:
                services.defer(services.create_payout, **PAYOUT)

    receive(booking_fails=True)
    assert services.resume_operations() == {"done": 2}
    for booking_fails in (False, True):
        receive(booking_fails=booking_fails)
        assert services.resume_operations() == {}


@pytest.mark.promise(5)
def test_a_call_that_a_savepoint_without_a_block_rolled_back_is_the_same_call_when_made_again(fake: Fake) -> None:
    """Django keeps the callbacks that were registered since the savepoint."""

    def receive(*, booking_fails: bool) -> None:
        with transaction.atomic(), dispatching(name=lambda: "evt_1"), connection.cursor() as cursor:
            cursor.execute("SAVEPOINT booking")
            services.defer(services.create_payout, **PAYOUT)
            if booking_fails:
                cursor.execute("ROLLBACK TO SAVEPOINT booking")
                services.defer(services.create_payout, **PAYOUT)

    receive(booking_fails=True)
    assert services.resume_operations() == {"done": 1}
    receive(booking_fails=False)
    assert services.resume_operations() == {}


def test_an_unknown_cause_makes_each_call_a_new_operation(fake: Fake) -> None:
    for _ in range(2):
        with dispatching():
            services.defer(services.create_payout, **PAYOUT)
    assert Operation.objects.count() == 2


def test_the_id_of_an_operation_follows_from_its_key_and_account(fake: Fake) -> None:
    first = services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
    with deletion_allowed():
        Operation.objects.all().delete()
    assert services.defer(services.create_payout, **PAYOUT, idempotency_key="k1").pk == first.pk
    others = [{"idempotency_key": "k2"}, {"idempotency_key": "k1", "account": "second"}]
    assert first.pk not in {services.defer(services.create_payout, **PAYOUT, **other).pk for other in others}


def test_a_deferred_call_with_a_known_key_returns_its_operation(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, idempotency_key="k1")
    operation = services.defer(services.create_payment, **PAYMENT, idempotency_key="k1")
    assert operation.result_id == first.pk
    with pytest.raises(IdempotencyMismatch):
        services.defer(services.create_payment, **{**PAYMENT, "amount": 1}, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_a_deferred_refund_in_a_transaction_is_checked_against_the_mirror(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=0))
    fake.objects[row.pk].amount_received = 10_000
    with transaction.atomic(), pytest.raises(ValidationError):
        services.defer(services.create_refund, row, amount=5)
    with transaction.atomic(), pytest.raises(ValidationError, match="refresh"):
        services.defer(services.create_refund, "pay_elsewhere", amount=5)
    assert not fake.reads
    assert services.defer(services.create_refund, row, amount=5).state == OperationState.DONE


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_an_operation_deferred_with_autocommit_off_is_only_recorded(fake: Fake, commits: bool) -> None:
    """Django calls no hook when the caller commits: the next pass sends it."""
    transaction.set_autocommit(False)
    try:
        Operation.objects.update(note="")  # a write of the caller's own, which opens the transaction
        assert services.defer(services.create_payout, **PAYOUT).state == OperationState.DUE
        (transaction.commit if commits else transaction.rollback)()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert not fake.calls
    assert services.resume_operations() == ({"done": 1} if commits else {})
    assert len(fake.made("payout")) == commits


@pytest.mark.django_db(transaction=True)
def test_an_operation_deferred_in_a_block_with_autocommit_off_is_only_recorded(fake: Fake) -> None:
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            services.defer(services.create_payout, **PAYOUT)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    services.resume_operations()
    assert len(fake.made("payout")) == 1
