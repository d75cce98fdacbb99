"""The refundable rest of a payment, over mirrored rows and recorded operations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from payments_integration.models import OperationState, Payment, Refund, refundable_rest, rest_after
from tests.factories import rows


def rest(refunded: int | None, *refunds: tuple[int, str], promised: int = 0, status: str = "succeeded") -> int:
    """What is left of 1,000 received minor units."""
    payment = Payment(status=status, amount=1_000, amount_received=1_000, refunded_amount=refunded, state_at=rows.AT)
    made = [Refund(amount=amount, status=state, state_at=rows.AT) for amount, state in refunds]
    return rest_after(payment, made, promised)


@pytest.mark.parametrize("refunded", [None, 0])
def test_without_refunds_the_received_amount_is_left(refunded: int | None) -> None:
    assert rest(refunded) == 1_000


def test_the_larger_of_refunded_amount_and_listed_refunds_counts() -> None:
    assert rest(300, (200, "succeeded")) == 700
    assert rest(200, (200, "succeeded"), (300, "processing")) == 500
    assert rest(None, (300, "succeeded")) == 700


@pytest.mark.parametrize("status", ["failed", "canceled", "returned"])
def test_a_refund_that_gave_nothing_back_does_not_count(status: str) -> None:
    assert rest(0, (400, status), (100, "succeeded")) == 900


@pytest.mark.parametrize("status", ["created", "processing", "succeeded", "quarked"])
def test_a_refund_in_any_other_status_counts(status: str) -> None:
    assert rest(0, (400, status)) == 600


def test_a_refund_that_was_returned_after_the_payment_was_read_is_not_refunded_any_more() -> None:
    payment = Payment(status="succeeded", amount_received=1_000, refunded_amount=400, state_at=rows.AT)
    returned = Refund(amount=400, status="returned", state_at=rows.AT + timedelta(seconds=1))
    assert rest_after(payment, [returned]) == 1_000


def test_promised_refunds_are_taken_from_the_rest_in_addition() -> None:
    assert rest(300, (200, "succeeded"), promised=400) == 300
    assert rest(1_000, promised=1) == -1, "the caller sees that more was promised than there is"


@pytest.mark.parametrize("status", ["chargeback", "failed", "expired", "canceled"])
def test_nothing_is_left_of_a_payment_whose_money_is_not_the_merchants(status: str) -> None:
    assert rest(0, status=status) == 0


OPEN = [OperationState.DUE, OperationState.UNKNOWN, OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL]


@pytest.mark.django_db
@pytest.mark.parametrize("state", OperationState)
def test_an_operation_counts_while_its_refund_may_still_happen(state: OperationState) -> None:
    payment = rows.payment(amount_received=1_000)
    asked = rows.operation(target_id=payment.pk, amount=300, state=state)
    assert refundable_rest(payment) == (700 if state in OPEN else 1_000)
    assert refundable_rest(payment, without=asked.pk) == 1_000


@pytest.mark.django_db
def test_only_refunds_of_the_same_payment_count() -> None:
    payment, other = rows.payment(amount_received=1_000), rows.payment()
    rows.refund(payment=other, amount=100)
    rows.operation(target_id=other.pk, amount=100, state=OperationState.DUE)
    rows.operation(target_id=payment.pk, amount=100, state=OperationState.DUE, operation="cancel_payment")
    assert refundable_rest(payment) == 1_000


@pytest.mark.django_db
def test_an_operation_that_is_linked_to_its_refund_counts_once() -> None:
    payment = rows.payment(amount_received=1_000)
    made = rows.refund(payment=payment, amount=300)
    rows.operation(target_id=payment.pk, amount=300, state=OperationState.UNKNOWN, result_id=made.pk)
    assert refundable_rest(payment) == 700
