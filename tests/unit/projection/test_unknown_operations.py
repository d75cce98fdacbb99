"""An object of an operation that this ledger does not have proves that another ledger sent it.

One of an operation that ended without effect proves that it had one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import inbox, services
from payments_integration.exceptions import InvalidState, OutcomeUnknown, RateLimited
from payments_integration.models import AccountState, Operation, OperationState
from payments_integration.models.operations import new_operation_id
from payments_integration.signals import Reason
from tests import factories
from tests.factories import rows
from tests.fake_provider import PAYOUT, Fake, payment, payout, refusal, timeout

pytestmark = pytest.mark.case(124)


@pytest.fixture(autouse=True)
def known_account(db: None) -> None:
    rows.account_state(account="default")


@pytest.mark.parametrize("make", [payment, payout])
def test_an_answer_that_brings_one_calls_for_attention_once_a_day(fake: Fake, attention: list[str], make: Any) -> None:
    reference = new_operation_id()
    for other in (reference, new_operation_id()):
        services.refresh(fake.add(make(merchant_reference=other)).id)
    assert attention == [Reason.LEDGER_INCOMPLETE]
    assert AccountState.objects.get().unknown_operation == reference
    AccountState.objects.update(unknown_operation_at=timezone.now() - timedelta(hours=25))
    services.refresh(fake.add(make(merchant_reference=new_operation_id())).id)
    assert attention == [Reason.LEDGER_INCOMPLETE] * 2


def test_an_event_that_brings_one_does_too(fake: Fake, attention: list[str]) -> None:
    event = factories.event(factories.payout(merchant_reference=new_operation_id()))
    inbox.receive("default", factories.body(event))
    inbox.process()
    assert attention == [Reason.LEDGER_INCOMPLETE]


@pytest.mark.parametrize("reference", ["order-1", "op_1", f"op_{'0' * 32}x", "", None])
def test_other_references_prove_nothing(fake: Fake, attention: list[str], reference: str | None) -> None:
    services.refresh(fake.add(payout(merchant_reference=reference)).id)
    assert attention == []


def test_objects_of_our_own_operations_prove_nothing(fake: Fake, attention: list[str]) -> None:
    services.create_payout(**PAYOUT)
    made = fake.made("payout")[0]
    services.refresh(fake.add(payout(merchant_reference=Operation.objects.get().pk)).id)
    assert made.merchant_reference == Operation.objects.get().pk
    assert attention == []


@pytest.mark.promise(5)
@pytest.mark.parametrize("state", [OperationState.CLOSED, OperationState.REJECTED])
def test_an_object_of_an_operation_that_ended_without_effect_is_left_to_a_person(
    fake: Fake, attention: list[str], state: OperationState
) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT, idempotency_key="k1")
    operation = Operation.objects.get()
    Operation.objects.update(state=state, next_attempt_at=None, closed_at=timezone.now())
    late = fake.add(payout(**{**PAYOUT, "merchant_reference": operation.pk}))
    for _ in range(2):
        services.refresh(late.id)
    assert attention == [Reason.OPERATION_NEEDS_RESOLUTION]
    operation.refresh_from_db()
    assert operation.state == OperationState.NEEDS_PERSON
    assert f"{late.id} has its reference" in operation.note
    assert services.mark_happened(operation, late.id, "ana", "the bank says so").result_id == late.id
    assert services.create_payout(**PAYOUT, idempotency_key="k1").pk == late.id


class TestExplained:
    """An object that something else explains opens no operation that ended without effect."""

    def refused(self, fake: Fake) -> Operation:
        fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
        with pytest.raises(InvalidState):
            services.create_payout(**PAYOUT)
        return Operation.objects.get()

    def brought(self, fake: Fake, operation: Operation, attention: list[str]) -> str:
        """The operation's state after its reference came with an object."""
        services.refresh(fake.add(payout(**{**PAYOUT, "merchant_reference": operation.pk})).id)
        operation.refresh_from_db()
        assert attention == []
        return operation.state

    @pytest.mark.promise(5)
    def test_by_another_call_with_its_reference_whose_event_comes_first(
        self, fake: Fake, attention: list[str]
    ) -> None:
        operation = self.refused(fake)
        fake.script = [lambda made: services.refresh(made.id) and made]
        services.create_payout(**PAYOUT, merchant_reference=operation.pk, idempotency_key="k2")
        operation.refresh_from_db()
        assert (operation.state, attention) == (OperationState.REJECTED, [])

    def test_by_an_object_of_another_account(self, fake: Fake, attention: list[str]) -> None:
        operation = self.refused(fake)
        Operation.objects.update(account="gone")
        assert self.brought(fake, operation, attention) == OperationState.REJECTED

    def test_by_a_person_who_has_said_so(self, fake: Fake, attention: list[str]) -> None:
        operation = self.refused(fake)
        made = fake.add(payout(**{**PAYOUT, "merchant_reference": operation.pk}))
        Operation.objects.update(state=OperationState.CLOSED, other_objects=[made.id])
        services.refresh(made.id)
        operation.refresh_from_db()
        assert (operation.state, attention) == (OperationState.CLOSED, [])

    def test_by_a_call_under_a_free_key_which_finds_it(self, fake: Fake, attention: list[str]) -> None:
        fake.script = [refusal(RateLimited, 429, "rate_limited")]
        with pytest.raises(RateLimited):
            services.create_payout(**PAYOUT)
        assert self.brought(fake, Operation.objects.get(), attention) == OperationState.CLOSED
