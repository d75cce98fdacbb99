"""What is left to refund, counted so that it is never refunded twice."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import InvalidState, NotFound, OutcomeUnknown
from payments_integration.models import DueRefresh, Operation, OperationState, Payment, Refund
from payments_integration.projection.ordering import UNDATED_SPAN
from payments_integration.services import refunds

from .conftest import only
from .fakes import DESTINATION, MAKERS, Fake, Lost, payment, refund, refusal, timeout


@pytest.fixture
def paid(mirrored: Any) -> Payment:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    assert isinstance(row, Payment)
    return row


def refuse(fake: Fake, *args: Any, **kwargs: Any) -> dict[str, list[str]]:
    sent = len(fake.calls)
    with pytest.raises(ValidationError) as caught:
        services.create_refund(*args, **kwargs)
    assert len(fake.calls) == sent
    return caught.value.message_dict


def test_a_part(fake: Fake, paid: Payment) -> None:
    row = services.create_refund(paid, amount=1_000, reason="broken")
    assert isinstance(row, Refund)
    assert (row.amount, row.payment_id, row.reason) == (1_000, paid.pk, "broken")
    assert json.loads(fake.calls[0].body) == {"payment_id": paid.pk, "amount": 1_000, "reason": "broken"}
    assert (only().target_id, only().amount, only().currency) == (paid.pk, 1_000, "CLP")


def test_everything_goes_out_as_an_amount(fake: Fake, paid: Payment) -> None:
    fake.objects[paid.pk].amount_received = 12_000
    row = services.create_refund(paid)
    assert row.amount == 12_000, "as read just before, not as mirrored"
    assert json.loads(fake.calls[0].body)["amount"] == 12_000
    assert only().arguments == {"payment": paid.pk}


def test_by_id_of_a_payment_that_is_not_mirrored(fake: Fake) -> None:
    made = fake.add(payment(status="succeeded", amount_received=10_000))
    assert services.create_refund(made.id, amount=5).payment_id == made.id
    with pytest.raises(NotFound):
        services.create_refund("pay_unknown", amount=5)
    assert Operation.objects.count() == 1


@pytest.mark.promise(5)
def test_never_more_than_is_left(fake: Fake, paid: Payment) -> None:
    services.create_refund(paid, amount=4_000)
    services.create_refund(paid, amount=5_999)
    assert list(refuse(fake, paid, amount=2)) == ["amount"]
    services.create_refund(paid, amount=1)
    assert list(refuse(fake, paid)) == ["payment"]
    assert list(refuse(fake, paid, amount=1)) == ["payment"]


@pytest.mark.promise(5)
@pytest.mark.parametrize("status", ["chargeback", "failed", "expired", "canceled"])
def test_whoever_has_the_money_back_gets_it_no_second_time(fake: Fake, mirrored: Any, status: str) -> None:
    row = mirrored(payment(status=status, amount_received=10_000))
    with pytest.raises(ValidationError) as caught:
        services.create_refund(row, amount=1_000)
    assert list(caught.value.message_dict) == ["payment"]
    assert fake.calls == []


def test_operations_of_open_outcome_count(fake: Fake, paid: Payment) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=9_000)
    assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
    for state in (OperationState.DUE, OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL):
        Operation.objects.update(state=state)
        assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
    Operation.objects.update(state=OperationState.CLOSED)
    services.create_refund(paid, amount=10_000)


def test_a_refusal_gives_the_amount_back(fake: Fake, paid: Payment) -> None:
    fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
    with pytest.raises(InvalidState):
        services.create_refund(paid, amount=10_000)
    assert services.create_refund(paid, amount=10_000).amount == 10_000


@pytest.mark.parametrize("status", ["failed", "canceled", "returned"])
def test_refunds_that_came_to_nothing_do_not_count(fake: Fake, paid: Payment, mirrored: Any, status: str) -> None:
    mirrored(refund(payment_id=paid.pk, amount=10_000, status=status))
    assert services.create_refund(paid, amount=10_000)


def test_the_larger_of_two_counts_is_believed(fake: Fake, mirrored: Any) -> None:
    """``refunded_amount`` knows refunds that are not mirrored, and the mirror may know some that it does not
    count.
    """
    row = mirrored(payment(status="succeeded", amount_received=10_000, refunded_amount=3_000))
    assert list(refuse(fake, row, amount=7_001)) == ["amount"]
    mirrored(refund(payment_id=row.pk, amount=2_000, status="succeeded"))
    mirrored(refund(payment_id=row.pk, amount=3_000, status="succeeded"))
    DueRefresh.objects.all().delete()  # the payment was read since
    assert list(refuse(fake, row, amount=5_001)) == ["amount"]
    mirrored(refund(payment_id=row.pk, amount=1_000, status="processing"))
    DueRefresh.objects.all().delete()
    assert list(refuse(fake, row, amount=4_001)) == ["amount"]
    assert services.create_refund(row, amount=4_000)


@pytest.mark.promise(5)
def test_what_may_not_be_counted_yet_counts_as_well(mirrored: Any) -> None:
    """One refund only ``refunded_amount`` knows, another came after it: nobody knows yet that they are two."""
    row = mirrored(payment(status="succeeded", amount_received=10_000, refunded_amount=3_000))
    made = mirrored(refund(payment_id=row.pk, amount=2_000, status="succeeded"))
    assert made.state_at > row.state_at
    with transaction.atomic():
        with pytest.raises(ValidationError) as caught:
            services.defer(services.create_refund, row, amount=5_001)
        assert list(caught.value.message_dict) == ["amount"]
        services.defer(services.create_refund, row, amount=5_000)


@pytest.mark.promise(5)
def test_after_an_answer_that_nobody_can_date_no_refund_is_known_to_be_counted(mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000, refunded_amount=3_000))
    made = mirrored(refund(payment_id=row.pk, amount=2_000, status="succeeded"))
    # Read before the refund, by a clock that is ahead.
    Payment.objects.update(state_at=made.state_at + timedelta(minutes=10), state_span=UNDATED_SPAN)
    row.refresh_from_db()
    with transaction.atomic():
        with pytest.raises(ValidationError):
            services.defer(services.create_refund, row, amount=5_001)
        services.defer(services.create_refund, row, amount=5_000)


@pytest.mark.promise(5)
@pytest.mark.parametrize("refunded", [2_000, 5_000])
def test_a_payment_in_doubt_is_read_before_the_decision(fake: Fake, mirrored: Any, refunded: int) -> None:
    """Whether the new refund is the one in ``refunded_amount`` or another, the provider says."""
    with time_machine.travel(timezone.now(), tick=False) as clock:
        row = mirrored(payment(status="succeeded", amount_received=10_000, refunded_amount=2_000))
        clock.shift(5)
        mirrored(refund(payment_id=row.pk, amount=2_000, status="succeeded"))
        clock.shift(5)
        fake.objects[row.pk].refunded_amount = refunded
        with pytest.raises(ValidationError):
            services.create_refund(row, amount=10_001 - refunded)
        fake.reads.clear()
        assert services.create_refund(row, amount=10_000 - refunded)
        assert fake.reads == [f"get {row.pk}"]


def test_what_is_left_is_told_as_a_number_too(fake: Fake, paid: Payment) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_refund(paid, amount=10_001)
    error = caught.value.error_dict["amount"][0]
    assert (error.code, error.params) == ("max_value", {"rest": 10_000})
    assert caught.value.message_dict == {"amount": ["At most 10000 minor units are left to refund."]}


def test_before_refusing_the_payment_is_read_once(fake: Fake, paid: Payment) -> None:
    fake.objects[paid.pk].amount_received = 12_000
    assert services.create_refund(paid, amount=11_000).amount == 11_000
    assert fake.reads == [f"get {paid.pk}"]
    fake.reads.clear()
    DueRefresh.objects.all().delete()
    refuse(fake, paid, amount=2_000)
    assert fake.reads.count(f"get {paid.pk}") == 1


def test_before_refusing_its_refunds_in_progress_are_read_too(fake: Fake, paid: Payment, mirrored: Any) -> None:
    row = mirrored(refund(payment_id=paid.pk, amount=8_000))
    fake.objects[row.pk].status = "failed"
    assert services.create_refund(paid, amount=10_000)
    other = mirrored(payment(status="succeeded", amount_received=10_000))
    row = mirrored(refund(payment_id=other.pk, amount=8_000))
    del fake.objects[row.pk]
    assert list(refuse(fake, other, amount=10_000)) == ["amount"]


def test_a_destination_for_all_but_cards(fake: Fake, mirrored: Any, paid: Payment) -> None:
    transfer = mirrored(payment(status="succeeded", amount_received=10_000, method_family="bank_transfer"))
    assert list(refuse(fake, transfer, amount=1)) == ["destination"]
    assert services.create_refund(transfer, amount=1, destination=DESTINATION)
    assert json.loads(fake.calls[0].body)["destination"] == DESTINATION
    assert list(refuse(fake, paid, amount=1, destination=DESTINATION)) == ["destination"]


def test_documents_are_those_of_the_payment_s_country(fake: Fake, mirrored: Any) -> None:
    row = mirrored(
        payment(status="succeeded", amount_received=10_000, method_family="cash", country="EC", currency="USD")
    )
    peruvian = {**DESTINATION, "holder_document": {"type": "RUC", "number": "20512333797"}}
    assert list(refuse(fake, row, amount=1, destination=peruvian)) == ["destination"]


@pytest.mark.case(51)
@pytest.mark.promise(5)
def test_a_lost_one_is_not_refunded_again(fake: Fake, paid: Payment) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, idempotency_key="k1")
    assert list(refuse(fake, paid, amount=1)) == ["payment"]
    Operation.objects.update(next_attempt_at=None)
    assert services.resume_operations() == {"done": 1}
    assert services.create_refund(paid, idempotency_key="k1").amount == 10_000
    assert len(fake.made("refund")) == 1
    assert list(refuse(fake, paid, amount=1)) == ["payment"]


@pytest.mark.parametrize(
    ("kind", "statuses", "others"),
    [
        ("payment", ["created", "requires_action"], ["processing", "succeeded", "expired", "canceled"]),
        ("payout", ["created"], ["processing", "succeeded", "on_hold", "canceled"]),
    ],
)
def test_cancels_by_status(fake: Fake, mirrored: Any, kind: str, statuses: list[str], others: list[str]) -> None:
    cancel: Any = getattr(services, f"cancel_{kind}")
    for status in statuses:
        assert cancel(mirrored(MAKERS[kind](status=status))).status == "canceled"
    sent = len(fake.calls)
    for status in others:
        row = mirrored(MAKERS[kind](status=status))
        fake.reads.clear()
        with pytest.raises(ValidationError) as caught:
            cancel(row)
        assert list(caught.value.message_dict) == [kind]
        assert fake.reads == [f"get {row.pk}"]
    assert len(fake.calls) == sent
    row = mirrored(MAKERS[kind](status="processing"))
    fake.objects[row.pk].status = "created"
    assert cancel(row.pk).status == "canceled", "the mirror was behind"


@pytest.mark.promise(5)
def test_a_refund_that_is_done_while_we_count_is_not_missed(
    fake: Fake, paid: Payment, mirrored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's answer is committed between our two reads."""
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=9_000)
    made = fake.made("refund")[0]
    newest, reads = refunds._newest, []

    def with_a_commit_in_between(queryset: Any) -> Any:
        reads.append(queryset.model)
        if len(reads) == 2:
            mirrored(made)
            Operation.objects.update(state=OperationState.DONE, result_id=made.id)
        return newest(queryset)

    monkeypatch.setattr(refunds, "_newest", with_a_commit_in_between)
    assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
