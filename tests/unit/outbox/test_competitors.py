"""Operations that compete with a new one: their results are linked before the new one is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import ApiError, OutcomeUnknown
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.outbox import recovery
from payments_integration.outbox.operations import Precondition
from payments_integration.outbox.operations.refunds import WithinRest
from tests.fake_provider import Fake, Lost, only_operation, payment, refusal, timeout


class Competing(Precondition):
    """A precondition with the competitors that it was given."""

    def __init__(self, *operations: Operation) -> None:
        self.operations = operations

    def competitors(self) -> Iterable[Operation]:
        return self.operations


@pytest.fixture
def paid(mirrored: Any) -> Payment:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    assert isinstance(row, Payment)
    return row


@pytest.fixture
def lost(fake: Fake, paid: Payment) -> Operation:
    """A refund that the provider made, and whose answer was lost."""
    return lose(fake, paid)


def lose(fake: Fake, paid: Payment, *, executed: bool = True) -> Operation:
    fake.script = [Lost(timeout()) if executed else timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_refund(paid, amount=1_000)
    fake.reads.clear()
    operation = caught.value.operation
    assert isinstance(operation, Operation)
    return operation


def claim(operation: Operation) -> None:
    """Another worker sends it now."""
    operation.claim_token, operation.claimed_until = "other", timezone.now() + timedelta(minutes=1)
    operation.save()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[float]]:
    """Replace the clock by one that sleeping moves. The argument is called at each sleep; returns what was slept."""

    def install(work: Callable[[], Any] = lambda: None) -> list[float]:
        sleeps: list[float] = []

        def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            work()

        clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(sleeps), sleep=sleep)
        monkeypatch.setattr(recovery, "time", clock)
        return sleeps

    return install


def snapshot(operation: Operation) -> list[Any]:
    kept = Operation.objects.get(pk=operation.pk)
    return [kept.state, kept.attempts, kept.next_attempt_at, kept.claim_token, kept.claimed_until, kept.note]


@pytest.mark.promise(5)
def test_a_competitor_is_linked_to_the_refund_that_it_made(fake: Fake, lost: Operation, slept: Any) -> None:
    sleeps = slept()
    recovery.link_competitors(Competing(lost))
    assert (only_operation().state, only_operation().result_id) == (OperationState.DONE, fake.made("refund")[0].id)
    assert sleeps == [], "no worker holds it"


@pytest.mark.promise(5)
def test_a_competitor_that_is_being_sent_is_waited_for(fake: Fake, lost: Operation, slept: Any) -> None:
    claim(lost)
    answers = iter([None, OperationState.DONE])

    def other_worker() -> None:
        if state := next(answers):
            Operation.objects.update(state=state, claim_token="", claimed_until=None)

    sleeps = slept(other_worker)
    recovery.link_competitors(Competing(lost))
    assert len(sleeps) == 2
    assert lost.state == OperationState.DONE
    assert fake.reads == [], "its outcome is known: it is not looked up"


@pytest.mark.promise(5)
def test_a_competitor_that_ends_without_an_outcome_is_looked_up(fake: Fake, lost: Operation, slept: Any) -> None:
    claim(lost)
    slept(lambda: Operation.objects.update(claim_token="", claimed_until=None))
    recovery.link_competitors(Competing(lost))
    assert only_operation().state == OperationState.DONE


def test_the_wait_for_all_competitors_together_ends_after_ten_seconds(
    fake: Fake, paid: Payment, lost: Operation, slept: Any
) -> None:
    second = lose(fake, paid)
    claim(lost)
    claim(second)
    before = snapshot(lost), snapshot(second)
    sleeps = slept()
    recovery.link_competitors(Competing(lost, second))
    assert sum(sleeps) == pytest.approx(10.0, abs=0.2)
    assert (snapshot(lost), snapshot(second)) == before, "the other workers keep them"
    assert fake.reads == []


@pytest.mark.parametrize("error", [timeout(), refusal(ApiError, 500, "internal_error")])
def test_a_look_up_that_the_provider_does_not_answer_gives_the_claim_back(
    fake: Fake, lost: Operation, error: Exception
) -> None:
    before = snapshot(lost)
    fake.read_script = [error]
    recovery.link_competitors(Competing(lost))
    assert fake.reads == ["list refund"]
    assert snapshot(lost) == before


def test_an_error_on_our_side_gives_the_claim_back_and_is_raised(fake: Fake, lost: Operation) -> None:
    before = snapshot(lost)
    fake.read_script = [RuntimeError("a bug")]
    with pytest.raises(RuntimeError):
        recovery.link_competitors(Competing(lost))
    assert snapshot(lost) == before


def test_a_competitor_that_is_not_found_is_left_as_it_was(fake: Fake, paid: Payment) -> None:
    operation = lose(fake, paid, executed=False)
    before = snapshot(operation)
    recovery.link_competitors(Competing(operation))
    assert fake.reads == ["list refund"]
    assert snapshot(operation) == before


@pytest.mark.promise(5)
def test_one_refund_is_not_linked_if_two_operations_may_have_made_it(fake: Fake, paid: Payment) -> None:
    operations = [lose(fake, paid), lose(fake, paid, executed=False)]
    before = [snapshot(operation) for operation in operations]
    recovery.link_competitors(Competing(*operations))
    assert len(fake.made("refund")) == 1
    assert [snapshot(operation) for operation in operations] == before


def test_a_competitor_that_another_worker_takes_during_the_look_up_is_left_to_it(
    fake: Fake, lost: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = fake.read

    def taken_over(what: str) -> None:
        Operation.objects.update(claim_token="other")
        read(what)

    monkeypatch.setattr(fake, "read", taken_over)
    recovery.link_competitors(Competing(lost))
    assert (only_operation().state, only_operation().claim_token) == (OperationState.UNKNOWN, "other")


def test_only_sent_refunds_of_the_same_payment_compete(fake: Fake, mirrored: Any, lost: Operation) -> None:
    others = [mirrored(payment(status="succeeded", amount_received=10_000)) for _ in range(2)]
    lose(fake, others[0])
    precondition = WithinRest("default", lost.target_id, takes_all=False, payment=None)
    assert list(precondition.competitors()) == [lost]
    assert list(WithinRest("second", lost.target_id, takes_all=False, payment=None).competitors()) == []
    itself = WithinRest("default", lost.target_id, takes_all=False, payment=None, operation_id=lost.pk)
    assert list(itself.competitors()) == [], "an operation does not compete with itself"
    for changes in ({"state": OperationState.DUE, "may_have_run": False}, {"state": OperationState.NEEDS_PERSON}):
        Operation.objects.filter(pk=lost.pk).update(**changes)
        assert list(precondition.competitors()) == []


@pytest.mark.promise(5)
def test_a_competitor_that_cannot_be_looked_up_still_counts(fake: Fake, paid: Payment, lost: Operation) -> None:
    """The payment and its refunds are read, and then the look-up of the competitor fails: its refund counts twice."""
    fake.read_script = [None, None, timeout()]
    assert services.create_refund(paid).amount == 8_000
    assert snapshot(lost)[3:5] == ["", None]
