"""Nothing is sent inside a transaction; ``defer`` is the way to ask for it there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from payments_integration import services
from payments_integration.exceptions import IdempotencyMismatch, InvalidState, RateLimited, TransactionRefused
from payments_integration.models import Operation, OperationState
from payments_integration.services import ledger
from payments_integration.services.intents import Intent
from payments_integration.telling import is_telling, telling

from .conftest import only
from .fakes import DEPOSIT, ENDPOINT, PAYMENT, PAYOUT, Fake, Lost, payment, refusal, timeout

CALLS: list[Callable[[], Any]] = [
    lambda: services.create_payment(**PAYMENT),
    lambda: services.cancel_payment("pay_1"),
    lambda: services.create_payout(**PAYOUT),
    lambda: services.cancel_payout("pout_1"),
    lambda: services.create_refund("pay_1"),
    lambda: services.create_deposit_reference(**DEPOSIT),
    lambda: services.create_webhook_endpoint(**ENDPOINT),
    lambda: services.rotate_webhook_secret("whk_1"),
    lambda: services.delete_webhook_endpoint("whk_1"),
    lambda: services.refresh("pay_1"),
    services.sync_balances,
    services.sync_webhook_endpoints,
    services.list_payment_methods,
    services.resume_operations,
    lambda: services.look_up("op_1"),
    lambda: services.retry("op_1"),
    lambda: services.mark_happened("op_1", "pay_1", "a", "b"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_refused_before_anything_is_done(fake: Fake, number: int) -> None:
    with transaction.atomic(), pytest.raises(TransactionRefused) as caught:
        CALLS[number]()
    assert "defer" in str(caught.value)
    assert "non_atomic_requests" in str(caught.value)
    assert not Operation.objects.exists()
    assert not fake.calls
    assert not fake.reads


@pytest.mark.django_db(transaction=True)
def test_refused_with_autocommit_off(fake: Fake) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionRefused):
            services.create_payment(**PAYMENT)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert not fake.calls


def test_a_test_case_is_no_callers_transaction(fake: Fake) -> None:
    assert connection.in_atomic_block
    services.create_payment(**PAYMENT)
    assert len(fake.calls) == 1


@pytest.mark.django_db(transaction=True)
def test_deferred_is_sent_after_the_commit(fake: Fake) -> None:
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
def test_deferred_and_rolled_back_is_never_sent(fake: Fake) -> None:
    with transaction.atomic():
        services.defer(services.create_payout, **PAYOUT)
        transaction.set_rollback(True)
    assert services.resume_operations() == {}
    assert not Operation.objects.exists()
    assert not fake.calls


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(50)
def test_deferred_and_killed_before_sending(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        operation = services.defer(services.create_payout, **PAYOUT)
        # The process dies after the commit: hooks that are never run.
        connection.run_on_commit.clear()
    assert services.resume_operations() == {"done": 1}
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE
    assert len(fake.calls) == 1


def test_deferred_without_a_transaction_is_sent_at_once(fake: Fake) -> None:
    operation = services.defer(services.create_payment, **PAYMENT)
    assert operation.state == OperationState.DONE
    assert operation.deferred


@pytest.mark.parametrize("outcome", [Lost(timeout()), RuntimeError("a bug"), refusal(InvalidState, 422, "x")])
def test_what_happens_to_a_deferred_one_raises_nothing(
    fake: Fake, attention: list[str], outcome: Exception, django_capture_on_commit_callbacks: Any
) -> None:
    fake.script = [outcome]
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        services.defer(services.create_payment, **PAYMENT)
    rejected = isinstance(outcome, InvalidState)
    assert only().state == (OperationState.REJECTED if rejected else OperationState.UNKNOWN)
    assert attention == (["deferred_rejected"] if rejected else [])


def test_a_deferred_one_that_is_limited_waits(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited", retry_after=60)]
    operation = services.defer(services.create_payment, **PAYMENT)
    assert operation.state == OperationState.DUE
    assert not operation.may_have_run
    assert operation.first_sent_at is None
    assert operation.next_attempt_at is not None
    assert fake.calls[0].max_wait < 5


def test_while_a_receiver_is_told_it_is_only_marked(fake: Fake, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic(), telling():
        assert is_telling()
        services.defer(services.create_payment, **PAYMENT)
    assert not is_telling()
    assert not fake.calls
    assert only().state == OperationState.DUE
    assert services.resume_operations() == {"done": 1}


def test_telling_nests_and_ends_with_an_error() -> None:
    with telling():
        with pytest.raises(RuntimeError), telling():
            raise RuntimeError
        assert is_telling()
    assert not is_telling()


def test_deferred_is_validated_at_once(fake: Fake) -> None:
    with transaction.atomic():
        with pytest.raises(ValidationError):
            services.defer(services.create_payout, **{**PAYOUT, "amount": 0})
        with pytest.raises(TypeError):
            services.defer(services.refresh, "pay_1")
        with pytest.raises(TypeError):
            services.defer(services.create_payout, 5, **PAYOUT)  # type: ignore[call-arg]
    assert not Operation.objects.exists()


def test_deferred_with_a_key_that_is_known(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, idempotency_key="k1")
    operation = services.defer(services.create_payment, **PAYMENT, idempotency_key="k1")
    assert operation.result_id == first.pk
    with pytest.raises(IdempotencyMismatch):
        services.defer(services.create_payment, **{**PAYMENT, "amount": 1}, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_deferred_takes_the_mirrors_word_inside_a_transaction(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=0))
    fake.objects[row.pk].amount_received = 10_000
    with transaction.atomic(), pytest.raises(ValidationError):
        services.defer(services.create_refund, row, amount=5)
    with transaction.atomic(), pytest.raises(ValidationError, match="refresh"):
        services.defer(services.create_refund, "pay_elsewhere", amount=5)
    assert not fake.reads
    assert services.defer(services.create_refund, row, amount=5).state == OperationState.DONE


def test_signatures_are_those_of_the_calls() -> None:
    signature = inspect.signature(services.create_payout)
    assert signature.return_annotation is not inspect.Signature.empty
    assert "Intent" not in str(signature)
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in signature.parameters.values())
    for function in (services.cancel_payment, services.create_refund, services.rotate_webhook_secret):
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        assert kinds[0] is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.promise(5)
def test_recording_for_a_caller_who_waits_insists_on_its_own_commit(fake: Fake) -> None:
    """The second barrier, should a way in forget the first."""
    intent = Intent(operation="create_payment", account="default", arguments={})
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        ledger.record(intent, deferred=False)
    assert not Operation.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_deferred_with_autocommit_off_is_only_recorded(fake: Fake, commits: bool) -> None:
    """Nobody says when the caller commits: the next pass sends it."""
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
def test_deferred_in_a_block_with_autocommit_off_is_only_recorded(fake: Fake) -> None:
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            services.defer(services.create_payout, **PAYOUT)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    services.resume_operations()
    assert len(fake.made("payout")) == 1
