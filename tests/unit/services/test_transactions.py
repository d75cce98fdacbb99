"""Nothing is sent inside a transaction; ``defer`` is the way to ask for it there."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from payments_integration import services
from payments_integration.exceptions import TransactionRefused
from payments_integration.models import Operation, OperationState
from payments_integration.signals import dispatching
from tests.fake_provider import (
    DEPOSIT,
    ENDPOINT,
    PAYMENT,
    PAYOUT,
    Fake,
)

DEFERRED: list[Callable[[], Any]] = [
    lambda: services.create_payment(**PAYMENT),
    lambda: services.cancel_payment("pay_1"),
    lambda: services.create_payout(**PAYOUT),
    lambda: services.cancel_payout("pout_1"),
    lambda: services.create_refund("pay_1"),
    lambda: services.create_deposit_reference(**DEPOSIT),
    lambda: services.create_webhook_endpoint(**ENDPOINT),
    lambda: services.rotate_webhook_secret("whk_1"),
    lambda: services.delete_webhook_endpoint("whk_1"),
]
NOT_DEFERRED: list[Callable[[], Any]] = [
    lambda: services.refresh("pay_1"),
    services.sync_balances,
    services.sync_webhook_endpoints,
    services.list_payment_methods,
    services.resume_operations,
    lambda: services.look_up("op_1"),
    lambda: services.retry("op_1"),
    lambda: services.approve("op_1", actor="a"),
    lambda: services.mark_happened("op_1", "pay_1", "a", "b"),
]
CALLS = DEFERRED + NOT_DEFERRED


def test_a_handler_sends_nothing_in_a_thread_without_its_transaction(fake: Fake) -> None:
    """If the handler failed after it, its next run would move the money a second time."""

    def handler() -> None:
        with dispatching():
            asyncio.run(services.acreate_payout(**PAYOUT))

    with pytest.raises(TransactionRefused, match=r"services\.defer"):
        handler()
    assert not fake.calls


@pytest.mark.django_db(transaction=True)
def test_a_handler_defers_only_in_its_own_transaction(fake: Fake) -> None:
    """Deferred in another thread's connection, the payout would be made although the handler is rolled back."""

    def in_its_thread() -> Operation:
        try:
            return services.defer(services.create_payout, **PAYOUT)
        finally:
            if not connection.in_atomic_block:
                connection.close()

    def in_a_transaction_of_its_own() -> Operation:
        """A function of the shop that saves an order with its payout."""
        try:
            with transaction.atomic():
                return services.defer(services.create_payout, **PAYOUT)
        finally:
            if not connection.in_atomic_block:
                connection.close()

    async def defer(function: Callable[[], Operation]) -> Operation:
        return await sync_to_async(function)()

    with dispatching():
        for function in (in_its_thread, in_a_transaction_of_its_own):
            with pytest.raises(TransactionRefused, match=r"asyncio\.run"):
                asyncio.run(defer(function))
        for function in (in_its_thread, in_a_transaction_of_its_own):
            with transaction.atomic():
                assert async_to_sync(defer)(function).state == OperationState.DUE
                transaction.set_rollback(True)
    assert not Operation.objects.exists()


SENDS_WHAT_IS_RECORDED = [services.retry, services.resume_operations, lambda pk: services.approve(pk, actor=None)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("function", SENDS_WHAT_IS_RECORDED)
def test_a_handler_sends_nothing_that_is_recorded_in_another_thread(fake: Fake, function: Callable[..., Any]) -> None:
    with transaction.atomic(), dispatching():
        operation = services.defer(services.create_payout, **PAYOUT)

    async def send() -> None:
        await sync_to_async(function)(operation.pk)

    with dispatching(), pytest.raises(TransactionRefused):
        asyncio.run(send())
    assert not fake.calls


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_every_call_is_refused_in_a_transaction(fake: Fake, number: int) -> None:
    with transaction.atomic(), pytest.raises(TransactionRefused) as caught:
        CALLS[number]()
    # First what also gives a view its checkout_url.
    advice = "services.defer" if number < len(DEFERRED) else "transaction.on_commit"
    assert 0 < str(caught.value).find("non_atomic_requests") < str(caught.value).find(advice)
    assert ("services.defer" in str(caught.value)) is (number < len(DEFERRED))
    assert not Operation.objects.exists()
    assert not fake.calls
    assert not fake.reads


@pytest.mark.django_db(transaction=True)
def test_a_read_runs_after_the_commit(fake: Fake) -> None:
    with transaction.atomic():
        transaction.on_commit(services.list_payment_methods)
        assert not fake.reads
    assert len(fake.reads) == 1


@pytest.mark.django_db(transaction=True)
def test_a_call_with_autocommit_off_is_refused(fake: Fake) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionRefused):
            services.create_payment(**PAYMENT)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert not fake.calls


def test_the_transaction_of_a_test_case_does_not_refuse_calls(fake: Fake) -> None:
    assert connection.in_atomic_block
    services.create_payment(**PAYMENT)
    assert len(fake.calls) == 1


def test_a_deferred_call_is_validated_at_once(fake: Fake) -> None:
    with transaction.atomic():
        with pytest.raises(ValidationError):
            services.defer(services.create_payout, **{**PAYOUT, "amount": 0})
        with pytest.raises(TypeError):
            services.defer(services.refresh, "pay_1")
        with pytest.raises(TypeError):
            services.defer(services.create_payout, 5, **PAYOUT)  # type: ignore[call-arg]
    assert not Operation.objects.exists()


def test_services_have_the_documented_signatures() -> None:
    signature = inspect.signature(services.create_payout)
    assert signature.return_annotation is not inspect.Signature.empty
    assert "Intent" not in str(signature)
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in signature.parameters.values())
    for function in (services.cancel_payment, services.create_refund, services.rotate_webhook_secret):
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        assert kinds[0] is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}
