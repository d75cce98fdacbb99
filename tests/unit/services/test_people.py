"""What a person may decide, and what not even a person may."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import IdempotencyError, NotFound, OutcomeUnknown, RateLimited
from payments_integration.models import Operation, OperationState
from payments_integration.services import leases, lookups

from .conftest import make_due, only
from .fakes import DEPOSIT, PAYOUT, Fake, Lost, deposit, payment, payout, refund, refusal, timeout


@pytest.fixture
def stuck(fake: Fake) -> Operation:
    """A payout that a person must decide about. It was executed."""
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT, idempotency_key="k1")
    Operation.objects.update(
        state=OperationState.NEEDS_PERSON,
        next_attempt_at=None,
        first_sent_at=timezone.now() - timedelta(hours=30),
    )
    return only()


def test_look_up(fake: Fake, stuck: Operation) -> None:
    assert services.look_up(stuck).state == OperationState.DONE
    with pytest.raises(ValidationError):
        services.look_up(stuck.pk)


def test_look_up_without_success_leaves_it_to_the_person(fake: Fake, stuck: Operation) -> None:
    fake.objects.clear()
    assert services.look_up(stuck).state == OperationState.NEEDS_PERSON


def test_nothing_to_look_up_where_nothing_was_sent(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    operation = services.defer(services.create_payout, **PAYOUT)
    with pytest.raises(ValidationError):
        services.look_up(operation)


@pytest.mark.promise(5)
def test_not_even_a_person_sends_it_under_a_forgotten_key(fake: Fake, stuck: Operation) -> None:
    with pytest.raises(ValidationError) as caught:
        services.retry(stuck)
    assert list(caught.value.message_dict) == ["operation"]
    assert len(fake.calls) == 1


@pytest.mark.case(91)
def test_nor_to_another_place(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(first_sent_at=timezone.now(), sent_to="elsewhere")
    with pytest.raises(ValidationError):
        services.retry(stuck)


def test_retry_while_the_key_is_known(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(first_sent_at=timezone.now() - timedelta(hours=1))
    assert services.retry(stuck).state == OperationState.DONE
    assert len(fake.made("payout")) == 1
    assert fake.calls[0].key == fake.calls[1].key
    with pytest.raises(ValidationError):
        services.retry(stuck)


def test_retry_of_one_never_sent(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    operation = services.defer(services.create_payout, **PAYOUT)
    Operation.objects.update(created_at=timezone.now() - timedelta(days=2))
    make_due()
    assert services.resume_operations() == {"needs_person": 1}
    assert services.retry(operation).state == OperationState.DONE


def test_retry_of_a_conflict_is_refused(fake: Fake) -> None:
    fake.script = [refusal(IdempotencyError, 409, "idempotency_conflict")]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    with pytest.raises(ValidationError):
        services.retry(only())


def test_what_somebody_works_on_is_left_alone(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(
        lease_until=timezone.now() + timedelta(minutes=1), first_sent_at=timezone.now() - timedelta(hours=1)
    )
    for action in (services.look_up, services.retry):
        with pytest.raises(ValidationError):
            action(stuck)
    with pytest.raises(ValidationError):
        services.mark_never_happened(stuck, "ana", "checked")
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, fake.made("payout")[0].id, "ana", "checked")
    assert only().state == OperationState.NEEDS_PERSON


def test_mark_never_happened(fake: Fake, stuck: Operation) -> None:
    user = User.objects.create(username="ana")
    closed = services.mark_never_happened(stuck, user, "not in the dashboard")
    assert closed.state == OperationState.CLOSED
    assert closed.closed_at is not None
    assert f"{user.pk}:ana" in closed.note
    assert "not in the dashboard" in closed.note
    with pytest.raises(ValidationError):
        services.mark_never_happened(stuck, user, "again")
    for action in (services.look_up, services.retry):
        with pytest.raises(ValidationError):
            action(stuck)
    assert services.resume_operations() == {}


def test_never_happened_is_no_answer_while_it_is_being_resolved(fake: Fake, stuck: Operation) -> None:
    for state in (OperationState.UNKNOWN, OperationState.DONE, OperationState.REJECTED):
        Operation.objects.update(state=state)
        with pytest.raises(ValidationError):
            services.mark_never_happened(stuck, "ana", "checked")


def test_one_never_sent_can_be_called_off(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    operation = services.defer(services.create_payout, **PAYOUT)
    assert services.mark_never_happened(operation, "ana", "wrong amount").state == OperationState.CLOSED
    make_due()
    assert services.resume_operations() == {}
    assert len(fake.calls) == 1


@pytest.mark.parametrize(("actor", "comment"), [("", "x"), (None, "x"), ("ana", ""), ("ana", " ")])
def test_who_and_why_must_be_said(fake: Fake, stuck: Operation, actor: Any, comment: str) -> None:
    with pytest.raises(ValidationError):
        services.mark_never_happened(stuck, actor, comment)
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, "pout_1", actor, comment)


def test_mark_happened(fake: Fake, stuck: Operation) -> None:
    made = fake.made("payout")[0]
    done = services.mark_happened(stuck, made.id, "ana", "seen in the dashboard")
    assert (done.state, done.result_id) == (OperationState.DONE, made.id)
    assert services.create_payout(**PAYOUT, idempotency_key="k1").pk == made.id


def test_mark_happened_of_a_deposit_reference(fake: Fake) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_deposit_reference(**DEPOSIT)
    Operation.objects.update(state=OperationState.NEEDS_PERSON)
    made = fake.add(deposit())
    assert services.mark_happened(only(), made.id, "ana", "seen").result_id == made.id


def test_it_cannot_be_something_else(fake: Fake, stuck: Operation) -> None:
    for other in (payout(amount=4_999), payout(currency="USD")):
        fake.add(other)
        with pytest.raises(ValidationError):
            services.mark_happened(stuck, other.id, "ana", "seen")
    with pytest.raises(NotFound):
        services.mark_happened(stuck, "pout_unknown", "ana", "seen")
    assert only().state == OperationState.NEEDS_PERSON


def test_it_cannot_be_another_operation_s(fake: Fake, stuck: Operation) -> None:
    other = services.create_payout(**PAYOUT)
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, other.pk, "ana", "seen")
    stuck.refresh_from_db()
    assert stuck.state == OperationState.NEEDS_PERSON
    assert not stuck.lease_token


def test_a_refund_belongs_to_its_payment(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(row, amount=1_000)
    other = fake.add(refund(payment_id="pay_other", amount=1_000))
    with pytest.raises(ValidationError):
        services.mark_happened(only(), other.id, "ana", "seen")


def test_a_cancel_is_about_its_object(fake: Fake, mirrored: Any) -> None:
    row, other = mirrored(payment()), mirrored(payment())
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.cancel_payment(row)
    with pytest.raises(ValidationError):
        services.mark_happened(only(), other.pk, "ana", "seen")
    assert services.mark_happened(only(), row.pk, "ana", "seen").state == OperationState.DONE


def test_two_cancels_may_be_about_one_object(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    services.cancel_payment(row)
    fake.objects[row.pk].status = "created"
    services.refresh(row)
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.cancel_payment(row)
    assert services.mark_happened(caught.value.operation, row.pk, "ana", "seen").state == OperationState.DONE


@pytest.mark.django_db
@pytest.mark.parametrize("decide", [services.look_up, services.retry])
@pytest.mark.parametrize("operation", ["op_unknown", None])
def test_an_operation_that_does_not_exist_is_told(decide: Any, operation: Any) -> None:
    with pytest.raises(ValidationError, match="no such operation"):
        decide(operation)


def test_what_was_taken_over_meanwhile_is_a_refusal(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    monkeypatch.setattr(lookups, "look_up", mock.Mock(side_effect=leases.LeaseLost))
    make_due()
    with pytest.raises(ValidationError, match="somebody else is working on it"):
        services.look_up(only())
