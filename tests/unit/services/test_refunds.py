"""What is left to refund, counted so that it is never refunded twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from payments_integration import services
from payments_integration.client import PageOf
from payments_integration.exceptions import InvalidState, NoAnswer, NotFound, OutcomeUnknown
from payments_integration.models import DueRefresh, Operation, OperationState, Payment, Refund, mirrors
from tests.fake_provider import (
    DESTINATION,
    MAKERS,
    Fake,
    Lost,
    answer,
    only_operation,
    payment,
    refund,
    refusal,
    timeout,
)


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


def test_a_partial_refund_is_sent_and_recorded(fake: Fake, paid: Payment) -> None:
    row = services.create_refund(paid, amount=1_000, reason="broken")
    assert isinstance(row, Refund)
    assert (row.amount, row.payment_id, row.reason) == (1_000, paid.pk, "broken")
    assert json.loads(fake.calls[0].body) == {"payment_id": paid.pk, "amount": 1_000, "reason": "broken"}
    assert (only_operation().target_id, only_operation().amount, only_operation().currency) == (paid.pk, 1_000, "CLP")


def test_a_full_refund_is_sent_with_its_amount(fake: Fake, paid: Payment) -> None:
    fake.objects[paid.pk].amount_received = 12_000
    row = services.create_refund(paid)
    assert row.amount == 12_000, "as read just before, not as mirrored"
    assert json.loads(fake.calls[0].body)["amount"] == 12_000
    assert only_operation().arguments == {"payment": paid.pk}


def test_a_payment_that_is_not_mirrored_can_be_refunded_by_its_id(fake: Fake) -> None:
    made = fake.add(payment(status="succeeded", amount_received=10_000))
    assert services.create_refund(made.id, amount=5).payment_id == made.id
    with pytest.raises(NotFound):
        services.create_refund("pay_unknown", amount=5)
    assert Operation.objects.count() == 1


@pytest.mark.promise(5)
def test_refunds_never_exceed_the_rest(fake: Fake, paid: Payment) -> None:
    services.create_refund(paid, amount=4_000)
    services.create_refund(paid, amount=5_999)
    assert list(refuse(fake, paid, amount=2)) == ["amount"]
    services.create_refund(paid, amount=1)
    assert list(refuse(fake, paid)) == ["payment"]
    assert list(refuse(fake, paid, amount=1)) == ["payment"]


@pytest.mark.promise(5)
@pytest.mark.parametrize("status", ["chargeback", "failed", "expired", "canceled"])
def test_a_payment_whose_money_went_back_is_not_refunded(fake: Fake, mirrored: Any, status: str) -> None:
    row = mirrored(payment(status=status, amount_received=10_000))
    with pytest.raises(ValidationError) as caught:
        services.create_refund(row, amount=1_000)
    assert list(caught.value.message_dict) == ["payment"]
    assert fake.calls == []


def test_refund_operations_of_open_outcome_count(fake: Fake, paid: Payment) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=9_000)
    assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
    for state in (OperationState.DUE, OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL):
        Operation.objects.update(state=state)
        assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
    Operation.objects.update(state=OperationState.CLOSED)
    services.create_refund(paid, amount=10_000)


def test_a_refused_refund_can_be_refunded_again(fake: Fake, paid: Payment) -> None:
    fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
    with pytest.raises(InvalidState):
        services.create_refund(paid, amount=10_000)
    assert services.create_refund(paid, amount=10_000).amount == 10_000


@pytest.mark.parametrize("status", ["failed", "canceled", "returned"])
def test_refunds_that_came_to_nothing_do_not_count(fake: Fake, paid: Payment, mirrored: Any, status: str) -> None:
    mirrored(refund(payment_id=paid.pk, amount=10_000, status=status))
    assert services.create_refund(paid, amount=10_000)


@pytest.mark.case(105)
def test_the_rest_is_exact_whether_or_not_the_provider_counts_refunds_in_progress(fake: Fake, mirrored: Any) -> None:
    """The spec does not say whether ``refunded_amount`` includes them."""
    for counted in (0, 50_000):
        row = mirrored(payment(status="succeeded", amount=150_000, amount_received=150_000, refunded_amount=counted))
        mirrored(refund(payment_id=row.pk, amount=50_000, status="processing"))
        assert services.create_refund(row).amount == 100_000
        assert list(refuse(fake, row)) == ["payment"]


@pytest.mark.case(105)
def test_two_refunds_add_up_to_the_whole(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount=150_000, amount_received=150_000))
    services.create_refund(row, amount=60_000)
    fake.objects[row.pk].refunded_amount = 60_000
    services.create_refund(row, amount=90_000)
    assert list(refuse(fake, row, amount=1)) == ["payment"]


@pytest.mark.case(105)
@pytest.mark.promise(5)
def test_a_refund_made_elsewhere_is_read_before_the_rest_is_refunded(fake: Fake, paid: Payment) -> None:
    """Somebody refunds in the provider's dashboard, and no event has come yet."""
    fake.add(refund(payment_id=paid.pk, amount=4_000, status="processing"))
    assert services.create_refund(paid).amount == 6_000
    assert Refund.objects.filter(payment_id=paid.pk).count() == 2


@pytest.mark.case(105)
@pytest.mark.promise(5)
def test_refunds_made_elsewhere_are_read_if_the_payment_has_refunds(fake: Fake, paid: Payment) -> None:
    services.create_refund(paid, amount=1_000)
    fake.add(refund(payment_id=paid.pk, amount=8_000, status="processing"))
    assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
    assert services.create_refund(paid, amount=1_000)


@pytest.mark.promise(3)
def test_a_refund_that_is_listed_as_it_is_mirrored_is_not_written(fake: Fake, paid: Payment) -> None:
    """Otherwise one that was returned would be newer than the payment, and count as missing in its refunded_amount."""
    first = services.create_refund(paid, amount=1_000)
    services.create_refund(paid, amount=1_000)
    again = Refund.objects.get(pk=first.pk)
    assert (again.version, again.state_at, again.synced_at) == (first.version, first.state_at, first.synced_at)


@pytest.mark.promise(5)
def test_a_refund_whose_event_came_before_its_lost_answer_counts_once(
    fake: Fake, paid: Payment, mirrored: Any
) -> None:
    """Nothing new is listed. The operation whose outcome is unknown is linked all the same."""
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=3_000)
    (made,) = fake.made("refund")
    mirrored(made)
    DueRefresh.objects.all().delete()
    Operation.objects.update(claimed_until=None)
    assert services.create_refund(paid, amount=7_000).amount == 7_000
    assert fake.reads == ["list refund", "list refund", f"get {made.id}"], "the list, the look-up and what it found"


@pytest.mark.promise(5)
def test_a_refund_whose_answer_was_lost_counts_once(fake: Fake, paid: Payment) -> None:
    """The provider lists it: it is linked to its operation before the rest is decided."""
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=3_000)
    Operation.objects.update(claimed_until=None)
    assert services.create_refund(paid).amount == 7_000
    assert set(Operation.objects.values_list("state", flat=True)) == {OperationState.DONE}
    assert Refund.objects.filter(payment_id=paid.pk).count() == 2


@pytest.mark.promise(5)
def test_a_refund_that_may_yet_be_sent_again_stays_unknown_and_counts(fake: Fake, paid: Payment) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=3_000)
    Operation.objects.update(claimed_until=None)
    before = Operation.objects.get()
    assert services.create_refund(paid).amount == 7_000
    after = Operation.objects.get(pk=before.pk)
    assert (after.state, after.attempts, after.next_attempt_at, after.claim_token) == (
        OperationState.UNKNOWN, before.attempts, before.next_attempt_at, "",
    )  # fmt: skip


def test_a_refund_that_cannot_be_read_refuses_the_rest(
    fake: Fake, paid: Payment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its amount is unknown, so the rest is too."""
    page = answer(PageOf(items=[], has_more=False, cursor=None, unreadable=("data[0]: no amount",)))
    monkeypatch.setattr(fake.refunds, "pages", lambda **_: iter([page]), raising=False)
    with pytest.raises(NoAnswer):
        services.create_refund(paid)
    assert not Operation.objects.exists()


@pytest.mark.promise(5)
def test_a_deferred_refund_relies_on_the_mirror(mirrored: Any) -> None:
    """In a transaction nothing can be read: the larger of the two figures counts, and the provider decides."""
    row = mirrored(payment(status="succeeded", amount_received=10_000, refunded_amount=3_000))
    mirrored(refund(payment_id=row.pk, amount=2_000, status="succeeded"))
    with transaction.atomic():
        with pytest.raises(ValidationError) as caught:
            services.defer(services.create_refund, row, amount=7_001)
        assert list(caught.value.message_dict) == ["amount"]
        services.defer(services.create_refund, row, amount=7_000)


@pytest.mark.case(105)
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
        assert fake.reads == [f"get {row.pk}", "list refund"]


def test_the_error_over_the_rest_holds_the_rest_as_a_number(fake: Fake, paid: Payment) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_refund(paid, amount=10_001)
    error = caught.value.error_dict["amount"][0]
    assert (error.code, error.params) == ("max_value", {"rest": 10_000, "currency": paid.currency})
    assert caught.value.message_dict == {"amount": ["At most 10000 minor units are left to refund."]}


def test_the_payment_is_read_once_before_a_refund_is_refused(fake: Fake, paid: Payment) -> None:
    fake.objects[paid.pk].amount_received = 12_000
    assert services.create_refund(paid, amount=11_000).amount == 11_000
    assert fake.reads == [f"get {paid.pk}", "list refund"]
    fake.reads.clear()
    DueRefresh.objects.all().delete()
    refuse(fake, paid, amount=2_000)
    assert fake.reads.count(f"get {paid.pk}") == 1


def test_refunds_in_progress_are_read_before_a_refund_is_refused(fake: Fake, paid: Payment, mirrored: Any) -> None:
    row = mirrored(refund(payment_id=paid.pk, amount=8_000))
    fake.objects[row.pk].status = "failed"
    assert services.create_refund(paid, amount=10_000)
    other = mirrored(payment(status="succeeded", amount_received=10_000))
    row = mirrored(refund(payment_id=other.pk, amount=8_000))
    del fake.objects[row.pk]
    assert list(refuse(fake, other, amount=10_000)) == ["amount"]


def test_a_refund_needs_a_destination_unless_a_card_was_charged(fake: Fake, mirrored: Any, paid: Payment) -> None:
    transfer = mirrored(payment(status="succeeded", amount_received=10_000, method_family="bank_transfer"))
    assert list(refuse(fake, transfer, amount=1)) == ["destination"]
    assert services.create_refund(transfer, amount=1, destination=DESTINATION)
    assert json.loads(fake.calls[0].body)["destination"] == DESTINATION
    assert list(refuse(fake, paid, amount=1, destination=DESTINATION)) == ["destination"]


def test_a_destinations_document_must_be_of_the_payments_country(fake: Fake, mirrored: Any) -> None:
    row = mirrored(
        payment(status="succeeded", amount_received=10_000, method_family="cash", country="EC", currency="USD")
    )
    peruvian = {**DESTINATION, "holder_document": {"type": "RUC", "number": "20512333797"}}
    assert list(refuse(fake, row, amount=1, destination=peruvian)) == ["destination"]


@pytest.mark.case(51)
@pytest.mark.promise(5)
def test_a_refund_whose_answer_was_lost_is_not_made_again(fake: Fake, paid: Payment) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, idempotency_key="k1")
    assert list(refuse(fake, paid, amount=1)) == ["payment"]
    assert only_operation().state == OperationState.DONE, "found among the refunds that were read before the refusal"
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
def test_a_cancel_depends_on_the_status(
    fake: Fake, mirrored: Any, kind: str, statuses: list[str], others: list[str]
) -> None:
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
    as_committed, reads = mirrors.as_committed, []

    def with_a_commit_in_between(queryset: Any) -> Any:
        reads.append(queryset.model)
        if len(reads) == 2:
            mirrored(made)
            Operation.objects.update(state=OperationState.DONE, result_id=made.id)
        return as_committed(queryset)

    monkeypatch.setattr(mirrors, "as_committed", with_a_commit_in_between)
    assert list(refuse(fake, paid, amount=1_001)) == ["amount"]
