"""What the ledger takes for unsent may have been sent, before a backup was restored: it looks before it sends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import ApprovalRequired, AuthenticationFailed, NoAnswer, OutcomeUnknown
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.models.operations import new_operation_id
from payments_integration.signals import dispatching
from tests.fake_provider import (
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    endpoint,
    only_operation,
    payment,
    payout,
    refund,
    refusal,
    timeout,
)

pytestmark = [pytest.mark.case(124), pytest.mark.promise(5)]
OLD = timedelta(hours=2)


def deferred(age: timedelta = OLD, late: timedelta | None = None, **call: Any) -> Operation:
    """A payout that a handler asked for, and that was never sent as far as the ledger knows."""
    with dispatching(timezone.now() - late if late is not None else None):
        operation = services.defer(services.create_payout, **{**PAYOUT, **call})
    Operation.objects.filter(pk=operation.pk).update(created_at=timezone.now() - age)
    return Operation.objects.get(pk=operation.pk)


def state(operation: Operation) -> str:
    operation.refresh_from_db()
    return operation.state


@pytest.fixture
def paid(mirrored: Any) -> Payment:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    assert isinstance(row, Payment)
    return row


@pytest.mark.parametrize("where", ["mirror", "provider"])
def test_a_worker_links_what_was_sent_before_the_backup_was_restored(fake: Fake, mirrored: Any, where: str) -> None:
    operation = deferred()
    made = payout(merchant_reference=operation.pk)
    mirrored(made, known=where == "provider") if where == "mirror" else fake.add(made)
    assert services.resume_operations() == {"done": 1}
    assert fake.calls == []
    operation.refresh_from_db()
    assert operation.result_id == made.id


def test_a_worker_sends_it_if_nothing_fits(fake: Fake) -> None:
    operation = deferred()
    fake.add(payout(merchant_reference=operation.pk, amount=4_999))
    fake.add(payout(merchant_reference="another"))
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1
    assert fake.reads.count("list payout") == 1


def test_a_young_operation_is_sent_without_a_look(fake: Fake) -> None:
    deferred(age=timedelta(minutes=59))
    assert services.resume_operations() == {"done": 1}
    assert "list payout" not in fake.reads


def test_a_young_operation_of_another_api_key_is_looked_up_first(fake: Fake) -> None:
    """A backup was restored, and the API key was renewed: the provider may keep the keys of each API key apart."""
    operation = deferred(age=timedelta(minutes=5))
    Operation.objects.update(sent_to="elsewhere")
    made = fake.add(payout(merchant_reference=operation.pk))
    assert services.resume_operations() == {"done": 1}
    assert (only_operation().result_id, fake.calls) == (made.id, [])


def test_a_young_operation_of_an_account_that_is_gone_can_be_looked_at(fake: Fake) -> None:
    operation = deferred(age=timedelta(minutes=5))
    Operation.objects.update(account="gone")
    assert "mark_happened" not in services.possible_resolutions(Operation.objects.get(pk=operation.pk))


def test_a_clock_that_was_set_back_makes_no_operation_young(fake: Fake) -> None:
    operation = deferred(age=-OLD)
    made = fake.add(payout(merchant_reference=operation.pk))
    assert services.resume_operations() == {"done": 1}
    assert state(operation) == OperationState.DONE
    assert operation.result_id == made.id
    assert fake.calls == []


def test_a_retry_under_a_valid_key_needs_no_look(fake: Fake) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    Operation.objects.update(
        created_at=timezone.now() - OLD, first_sent_at=timezone.now() - OLD, next_attempt_at=None, claimed_until=None
    )
    assert services.resume_operations() == {"done": 1}
    assert "list payout" not in fake.reads
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    "error", [timeout(), refusal(AuthenticationFailed, 401, "invalid_api_key"), NoAnswer("reset")], ids=str
)
def test_without_an_answer_it_stays_due_and_a_person_gets_an_error(fake: Fake, error: Exception) -> None:
    operation = deferred()
    fake.read_script = [error]
    assert services.resume_operations() == {"due": 1}
    operation.refresh_from_db()
    assert operation.next_attempt_at is not None
    fake.read_script = [error]
    with pytest.raises(ValidationError, match="The provider cannot be asked now"):
        services.retry(operation)
    assert fake.calls == []
    assert state(operation) == OperationState.DUE
    assert services.retry(operation).state == OperationState.DONE


def test_a_person_who_sends_it_again_links_it(fake: Fake) -> None:
    operation = deferred(timedelta(days=2))
    assert services.resume_operations() == {"needs_person": 1}
    made = fake.add(payout(merchant_reference=operation.pk, created_at=timezone.now() - timedelta(days=2)))
    assert "retry" in services.possible_resolutions(Operation.objects.get())
    retried = services.retry(operation, "ana")
    assert (retried.state, retried.result_id) == (OperationState.DONE, made.id)
    assert "ana wanted to send it" in retried.note
    assert fake.calls == []


class TestWhatMayBeAnotherOne:
    """Refunds have no reference, so one that fits may have been made elsewhere."""

    @pytest.fixture
    def operation(self, fake: Fake, paid: Payment) -> Operation:
        with dispatching():
            operation = services.defer(services.create_refund, paid, amount=1_000)
        Operation.objects.update(created_at=timezone.now() - OLD)
        return Operation.objects.get(pk=operation.pk)

    def test_a_worker_leaves_it_to_a_person(self, fake: Fake, paid: Payment, operation: Operation) -> None:
        other = fake.add(refund(payment_id=paid.pk, amount=1_000))
        assert services.resume_operations() == {"needs_person": 1}
        assert f"it was not sent: {other.id} fits it" in only_operation().note
        assert fake.calls == []

    def test_a_person_is_told_which_and_may_say_that_it_is_another_one(
        self, fake: Fake, paid: Payment, operation: Operation, mirrored: Any
    ) -> None:
        other = refund(payment_id=paid.pk, amount=1_000, created_at=timezone.now() - timedelta(hours=20))
        mirrored(other)
        with pytest.raises(ValidationError, match=f"{other.id} fits it"):
            services.retry(operation, "ana")
        assert state(operation) == OperationState.DUE
        assert "mark_others" in services.possible_resolutions(operation)
        assert services.fitting_objects(operation) == [other.id]
        marked = services.mark_others(operation, [other.id], "ana", "made in the dashboard for a complaint")
        assert f"ana says that {other.id} is not its result: made in the dashboard" in marked.note
        assert services.fitting_objects(marked) == []
        assert services.retry(operation, "ana").state == OperationState.DONE
        assert len(fake.made("refund")) == 2

    def test_one_that_is_found_later_is_named_again(self, fake: Fake, paid: Payment, operation: Operation) -> None:
        services.mark_others(operation, ["ref_1"], "ana", "checked")
        other = fake.add(refund(payment_id=paid.pk, amount=1_000))
        with pytest.raises(ValidationError, match=other.id):
            services.retry(operation)

    def test_a_later_look_up_does_not_link_it(self, fake: Fake, paid: Payment, operation: Operation) -> None:
        other = fake.add(refund(payment_id=paid.pk, amount=1_000))
        services.mark_others(operation, [other.id], "ana", "checked")
        fake.script = [timeout()]
        assert services.resume_operations() == {"unknown": 1}
        Operation.objects.update(first_sent_at=timezone.now() - timedelta(hours=24), next_attempt_at=None)
        assert services.resume_operations() == {"needs_person": 1}
        assert only_operation().result_id == ""

    @pytest.mark.parametrize("ids", [[], ["ref_1 "], ["pay_1"], [None]])
    def test_only_ids_of_such_objects_are_taken(self, operation: Operation, ids: list[Any]) -> None:
        with pytest.raises(ValidationError) as caught:
            services.mark_others(operation, ids, "ana", "checked")
        assert list(caught.value.message_dict) == ["object_ids"]

    def test_it_needs_a_comment_and_no_worker_that_resolves_it(self, fake: Fake, operation: Operation) -> None:
        with pytest.raises(ValidationError):
            services.mark_others(operation, ["ref_1"], "ana", "")
        Operation.objects.update(may_have_run=True, state=OperationState.UNKNOWN)
        assert "mark_others" not in services.possible_resolutions(only_operation())
        with pytest.raises(ValidationError, match="It may have been sent"):
            services.mark_others(operation, ["ref_1"], "ana", "checked")


class TestApproval:
    @pytest.fixture
    def boss(self) -> User:
        return User.objects.create(username="boss", is_staff=True, is_superuser=True)

    @pytest.fixture
    def waiting(self, fake: Fake, settings: Any) -> Operation:
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 4_000}}
        fake.available = 100_000
        with pytest.raises(ApprovalRequired) as caught:
            services.create_payout(**PAYOUT, actor="ana")
        Operation.objects.update(created_at=timezone.now() - timedelta(days=2))
        operation = caught.value.operation
        assert isinstance(operation, Operation)
        return operation

    def test_what_was_approved_before_is_linked(self, fake: Fake, waiting: Operation, boss: User) -> None:
        made = fake.add(payout(merchant_reference=waiting.pk))
        assert services.approve(waiting, boss).pk == made.id
        assert fake.calls == []
        assert state(waiting) == OperationState.DONE
        assert "wanted to approve it; found by looking it up" in waiting.note
        assert waiting.approved_by == ""

    def test_two_that_fit_are_named(self, fake: Fake, waiting: Operation, boss: User) -> None:
        first, second = (fake.add(payout(merchant_reference=waiting.pk)) for _ in range(2))
        with pytest.raises(ValidationError) as caught:
            services.approve(waiting, boss)
        assert first.id in str(caught.value)
        assert second.id in str(caught.value)
        assert state(waiting) == OperationState.AWAITING_APPROVAL
        services.mark_others(waiting, [first.id, second.id], boss, "of a test")
        services.approve(waiting, boss)
        assert len(fake.calls) == 1

    def test_nothing_fits(self, fake: Fake, waiting: Operation, boss: User) -> None:
        services.approve(waiting, boss)
        assert len(fake.calls) == 1

    def test_without_an_answer_it_still_waits(self, fake: Fake, waiting: Operation, boss: User) -> None:
        fake.read_script = [timeout()]
        with pytest.raises(NoAnswer):
            services.approve(waiting, boss)
        assert state(waiting) == OperationState.AWAITING_APPROVAL
        assert fake.calls == []

    def test_a_link_that_another_operation_takes_leaves_it_waiting(
        self, fake: Fake, waiting: Operation, boss: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake.add(payout(merchant_reference=waiting.pk))
        monkeypatch.setattr("payments_integration.outbox.outcomes.link", lambda *_, **__: False)
        with pytest.raises(ValidationError, match="belongs to another operation"):
            services.approve(waiting, boss)
        assert state(waiting) == OperationState.AWAITING_APPROVAL
        assert waiting.claim_token == ""


class TestLateHandler:
    """A handler is called again for an old event, and asks again for what was paid: its operation is new."""

    def test_the_object_of_then_is_linked(self, fake: Fake, mirrored: Any) -> None:
        operation = deferred(timedelta(), late=timedelta(days=5), merchant_reference="invoice-17")
        made = mirrored(payout(merchant_reference="invoice-17", created_at=timezone.now() - timedelta(days=5)))
        assert services.resume_operations() == {"done": 1}
        assert state(operation) == OperationState.DONE
        assert operation.result_id == made.pk
        assert fake.calls == []

    def test_a_handler_in_time_needs_no_look(self, fake: Fake) -> None:
        deferred(timedelta(), late=timedelta(hours=22), merchant_reference="invoice-17")
        assert services.resume_operations() == {"done": 1}
        assert "list payout" not in fake.reads

    def test_without_a_reference_a_person_decides_about_an_object_of_another_ledger(
        self, fake: Fake, mirrored: Any
    ) -> None:
        operation = deferred(timedelta(), late=timedelta(days=5))
        then = timezone.now() - timedelta(days=5)
        made = mirrored(payout(merchant_reference=new_operation_id(), created_at=then))
        known = deferred(timedelta(minutes=1), merchant_reference="another")
        mirrored(payout(merchant_reference=known.pk, created_at=then))
        assert services.resume_operations() == {"needs_person": 1, "done": 1}
        assert state(operation) == OperationState.NEEDS_PERSON
        assert f"{made.pk} fits it" in operation.note
        assert services.mark_happened(operation, made.pk, "ana", "of before the restore").result_id == made.pk

    def test_objects_of_known_operations_hide_no_others(
        self, fake: Fake, mirrored: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(2):
            known = deferred(timedelta(minutes=1))
            mirrored(payout(merchant_reference=known.pk))
        Operation.objects.update(state=OperationState.DONE)
        monkeypatch.setattr("payments_integration.outbox.operations.base.MAX_SCANNED", 1)
        operation = deferred(timedelta(minutes=1), late=timedelta(days=5))
        assert services.resume_operations() == {"done": 1}
        assert state(operation) == OperationState.DONE
        assert len(fake.calls) == 1

    def test_the_events_of_a_batch_are_told_apart(self, fake: Fake) -> None:
        with dispatching(timezone.now() - timedelta(days=5)):
            pass
        assert services.defer(services.create_payout, **PAYOUT).caused_at is None


@pytest.mark.parametrize("changed", [{}, {"amount": 6_000}], ids=["same", "other arguments"])
def test_what_an_old_event_asks_for_under_a_free_key_is_looked_up_first(fake: Fake, changed: dict[str, Any]) -> None:
    """The key was left free a moment ago by a view of today."""
    fake.available = 10_000
    fake.script = [refusal(AuthenticationFailed, 401, "api_key_invalid")]
    with pytest.raises(AuthenticationFailed):
        services.create_payout(**PAYOUT, merchant_reference="o1", idempotency_key="k1")
    call = {**PAYOUT, "merchant_reference": "o1", **changed}
    made = fake.add(payout(amount=call["amount"], merchant_reference="o1"))
    with dispatching(timezone.now() - timedelta(days=5)):
        services.defer(services.create_payout, **call, idempotency_key="k1")
    assert services.resume_operations() == {"done": 1}
    assert Operation.objects.get().result_id == made.id
    assert len(fake.calls) == 1


def test_it_never_happened_reads_the_provider_of_an_old_operation(fake: Fake) -> None:
    operation = deferred()
    made = fake.add(payout(merchant_reference=operation.pk))
    with pytest.raises(ValidationError, match=f"{made.id} fits it"):
        services.mark_never_happened(operation, "ana", "checked")


def test_a_rotation_that_was_never_sent_can_be_called_off(fake: Fake, mirrored: Any) -> None:
    """A look-up of a rotation always says that it happened."""
    row = mirrored(endpoint())
    with dispatching():
        operation = services.defer(services.rotate_webhook_secret, row)
    Operation.objects.update(created_at=timezone.now() - OLD)
    assert services.mark_never_happened(operation, "ana", "not needed").state == OperationState.CLOSED


def test_a_cancel_that_took_effect_is_not_sent_again(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    with dispatching():
        services.defer(services.cancel_payment, row)
    Operation.objects.update(created_at=timezone.now() - OLD)
    fake.objects[row.pk].status = "canceled"
    assert services.resume_operations() == {"done": 1}
    assert fake.calls == []


@pytest.mark.parametrize("call", ["cancel", "payment", "rotate", "delete"])
def test_any_call_is_sent_if_nothing_speaks_against_it(fake: Fake, mirrored: Any, call: str) -> None:
    calls: dict[str, Any] = {
        "cancel": lambda: services.defer(services.cancel_payment, mirrored(payment())),
        "payment": lambda: services.defer(services.create_payment, **PAYMENT),
        "rotate": lambda: services.defer(services.rotate_webhook_secret, mirrored(endpoint())),
        "delete": lambda: services.defer(services.delete_webhook_endpoint, mirrored(endpoint())),
    }
    with dispatching():
        calls[call]()
    Operation.objects.update(created_at=timezone.now() - OLD)
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 1
