"""What a person may decide, and what not even a person may."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone, translation

from payments_integration import services
from payments_integration.db.claims import ClaimLost
from payments_integration.exceptions import IdempotencyError, NotFound, OutcomeUnknown, RateLimited
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import look_ups, resolution
from payments_integration.outbox.operations import NOT_FOUND
from payments_integration.outbox.resolution import MAY_STILL_RUN
from tests.fake_provider import (
    DEPOSIT,
    PAYOUT,
    Fake,
    Lost,
    deposit,
    endpoint,
    make_due,
    only_operation,
    payment,
    payout,
    refund,
    refusal,
    timeout,
)


def leave_to_a_person(pk: str | None = None) -> None:
    """As it is when no attempt of it can run any more."""
    rows = Operation.objects.all() if pk is None else Operation.objects.filter(pk=pk)
    rows.update(state=OperationState.NEEDS_PERSON, last_sent_at=timezone.now() - MAY_STILL_RUN)


@pytest.fixture
def stuck(fake: Fake) -> Operation:
    """A payout that a person must decide about. It was executed."""
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT, idempotency_key="k1")
    leave_to_a_person()
    Operation.objects.update(next_attempt_at=None, first_sent_at=timezone.now() - timedelta(hours=30))
    return only_operation()


def test_a_look_up_by_a_person_finds_the_result(fake: Fake, stuck: Operation) -> None:
    assert services.look_up(stuck).state == OperationState.DONE
    with pytest.raises(ValidationError):
        services.look_up(stuck.pk)


def test_a_look_up_that_finds_nothing_leaves_the_decision_to_the_person(fake: Fake, stuck: Operation) -> None:
    fake.objects.clear()
    assert services.look_up(stuck).state == OperationState.NEEDS_PERSON


@pytest.mark.promise(5)
def test_a_look_up_that_finds_nothing_leaves_a_call_under_a_known_key_to_the_worker(fake: Fake) -> None:
    """The provider's list may lack an object that its request is still making. The key proves more."""
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    due, attempts = timezone.now() + timedelta(seconds=2), only_operation().attempts
    Operation.objects.update(next_attempt_at=due)
    looked_up = services.look_up(only_operation(), "ana")
    assert (looked_up.state, looked_up.note.endswith(NOT_FOUND)) == (OperationState.UNKNOWN, True)
    assert (looked_up.next_attempt_at, looked_up.attempts) == (due, attempts), "looking does not put it off"
    with pytest.raises(ValidationError):
        services.mark_never_happened(looked_up, "ana", "it is not in the dashboard")
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.promise(5)
def test_a_call_is_not_closed_while_its_request_may_still_run(fake: Fake, stuck: Operation) -> None:
    fake.objects.clear()
    # What our clock wrote while it was ahead proves nothing.
    for minutes, is_closed in ((14, False), (15, True), (-600, True)):
        Operation.objects.update(state=OperationState.NEEDS_PERSON)
        Operation.objects.update(last_sent_at=timezone.now() - timedelta(minutes=minutes))
        if not is_closed:
            with pytest.raises(ValidationError, match=r"may still be executed\. Close it after 20\d\d-"):
                services.mark_never_happened(stuck, "ana", "it is not in the dashboard")
        else:
            assert services.mark_never_happened(stuck, "ana", "no").state == OperationState.CLOSED


def test_an_operation_that_was_never_sent_is_not_looked_up(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    operation = services.defer(services.create_payout, **PAYOUT)
    with pytest.raises(ValidationError):
        services.look_up(operation)


@pytest.mark.promise(5)
def test_a_person_cannot_retry_under_a_forgotten_key(fake: Fake, stuck: Operation) -> None:
    with pytest.raises(ValidationError) as caught:
        services.retry(stuck)
    assert list(caught.value.message_dict) == ["operation"]
    assert len(fake.calls) == 1


@pytest.mark.case(91)
def test_a_person_cannot_retry_at_another_address(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(first_sent_at=timezone.now(), sent_to="elsewhere")
    with pytest.raises(ValidationError):
        services.retry(stuck)


def test_a_person_can_retry_while_the_key_is_known(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(first_sent_at=timezone.now() - timedelta(hours=1))
    assert services.retry(stuck).state == OperationState.DONE
    assert len(fake.made("payout")) == 1
    assert fake.calls[0].key == fake.calls[1].key
    with pytest.raises(ValidationError):
        services.retry(stuck)


def test_a_person_can_retry_an_operation_that_was_never_sent(fake: Fake) -> None:
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
        services.retry(only_operation())


def test_an_operation_that_a_worker_holds_cannot_be_resolved(fake: Fake, stuck: Operation) -> None:
    Operation.objects.update(
        claimed_until=timezone.now() + timedelta(minutes=1), first_sent_at=timezone.now() - timedelta(hours=1)
    )
    for action in (services.look_up, services.retry):
        with pytest.raises(ValidationError):
            action(stuck)
    with pytest.raises(ValidationError):
        services.mark_never_happened(stuck, "ana", "checked")
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, fake.made("payout")[0].id, "ana", "checked")
    assert only_operation().state == OperationState.NEEDS_PERSON


def test_an_operation_marked_never_happened_is_closed_with_actor_and_comment(fake: Fake, stuck: Operation) -> None:
    user = User.objects.create(username="ana")
    fake.objects.clear()
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


def test_only_an_operation_that_needs_a_person_or_was_never_sent_can_be_closed(fake: Fake, stuck: Operation) -> None:
    for state in (OperationState.UNKNOWN, OperationState.DONE, OperationState.REJECTED):
        Operation.objects.update(state=state)
        with pytest.raises(ValidationError):
            services.mark_never_happened(stuck, "ana", "checked")


def test_an_operation_that_was_never_sent_can_be_called_off(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited")]
    operation = services.defer(services.create_payout, **PAYOUT)
    assert services.mark_never_happened(operation, "ana", "wrong amount").state == OperationState.CLOSED
    make_due()
    assert services.resume_operations() == {}
    assert len(fake.calls) == 1


@pytest.mark.parametrize(("actor", "comment"), [("", "x"), (None, "x"), ("ana", ""), ("ana", " ")])
def test_a_resolution_needs_an_actor_and_a_comment(fake: Fake, stuck: Operation, actor: Any, comment: str) -> None:
    with pytest.raises(ValidationError):
        services.mark_never_happened(stuck, actor, comment)
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, "pout_1", actor, comment)


def test_an_operation_marked_happened_is_linked_to_its_object(fake: Fake, stuck: Operation) -> None:
    made = fake.made("payout")[0]
    done = services.mark_happened(stuck, made.id, "ana", "seen in the dashboard")
    assert (done.state, done.result_id) == (OperationState.DONE, made.id)
    assert services.create_payout(**PAYOUT, idempotency_key="k1").pk == made.id


@pytest.mark.case(126)
@pytest.mark.parametrize("object_id", [" {}", "{} ", "{}/cancel", "", "ref_1"])
def test_an_object_id_that_is_none_is_refused(fake: Fake, stuck: Operation, object_id: str) -> None:
    made = fake.made("payout")[0]
    with pytest.raises(ValidationError) as caught:
        services.mark_happened(stuck, object_id.format(made.id), "ana", "seen in the dashboard")
    assert list(caught.value.message_dict) == ["object_id"]


def test_a_deposit_reference_can_be_marked_happened(fake: Fake) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_deposit_reference(**DEPOSIT)
    leave_to_a_person()
    made = fake.add(deposit())
    assert services.mark_happened(only_operation(), made.id, "ana", "seen").result_id == made.id


def test_an_object_that_does_not_fit_cannot_be_linked(fake: Fake, stuck: Operation) -> None:
    for other in (payout(amount=4_999), payout(currency="USD")):
        fake.add(other)
        with pytest.raises(ValidationError):
            services.mark_happened(stuck, other.id, "ana", "seen")
    with pytest.raises(NotFound):
        services.mark_happened(stuck, "pout_unknown", "ana", "seen")
    assert only_operation().state == OperationState.NEEDS_PERSON


def test_an_object_of_another_operation_cannot_be_linked(fake: Fake, stuck: Operation) -> None:
    other = services.create_payout(**PAYOUT)
    with pytest.raises(ValidationError):
        services.mark_happened(stuck, other.pk, "ana", "seen")
    stuck.refresh_from_db()
    assert stuck.state == OperationState.NEEDS_PERSON
    assert not stuck.claim_token


def test_a_refund_of_another_payment_cannot_be_linked(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(row, amount=1_000)
    other = fake.add(refund(payment_id="pay_other", amount=1_000))
    with pytest.raises(ValidationError):
        services.mark_happened(only_operation(), other.id, "ana", "seen")


def test_a_cancel_can_only_be_linked_to_its_own_object(fake: Fake, mirrored: Any) -> None:
    row, other = mirrored(payment()), mirrored(payment())
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.cancel_payment(row)
    with pytest.raises(ValidationError):
        services.mark_happened(only_operation(), other.pk, "ana", "seen")
    with pytest.raises(ValidationError, match="It did not happen: the object is created"):
        services.mark_happened(only_operation(), row.pk, "ana", "seen")
    assert only_operation().state == OperationState.UNKNOWN
    fake.objects[row.pk].status = "canceled"
    assert services.mark_happened(only_operation(), row.pk, "ana", "seen").state == OperationState.DONE


def test_a_refusal_says_the_status_in_the_language_of_the_page(fake: Fake, mirrored: Any) -> None:
    row, paid = mirrored(payment()), mirrored(payment(status="succeeded"))
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.cancel_payment(row)
    with translation.override("es"):
        with pytest.raises(ValidationError, match="creado"):
            services.mark_happened(only_operation(), row.pk, "ana", "seen")
        with pytest.raises(ValidationError, match="«pagado»"):
            services.cancel_payment(paid)


def test_two_cancels_can_be_linked_to_one_object(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    services.cancel_payment(row)
    fake.objects[row.pk].status = "created"
    services.refresh(row)
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.cancel_payment(row)
    fake.objects[row.pk].status = "canceled"
    assert services.mark_happened(caught.value.operation, row.pk, "ana", "seen").state == OperationState.DONE


NEVER = "It may have happened: {} fits it"


class TestItNeverHappened:
    """A person closes an operation only while nothing at the provider or in the mirror may be its result."""

    @pytest.mark.case(104)
    @pytest.mark.promise(5)
    def test_it_is_refused_while_the_provider_has_an_object_that_fits(self, fake: Fake, stuck: Operation) -> None:
        [made] = fake.made("payout")
        with pytest.raises(ValidationError, match=NEVER.format(made.id)):
            services.mark_never_happened(stuck, "ana", "not in the dashboard")
        assert only_operation().state == OperationState.NEEDS_PERSON

    @pytest.mark.case(104)
    @pytest.mark.promise(5)
    @pytest.mark.parametrize("account", ["configured", "removed"])
    def test_it_is_refused_while_the_mirror_has_one(
        self, fake: Fake, stuck: Operation, mirrored: Any, account: str, settings: Any
    ) -> None:
        """A webhook brought it, and the provider's list does not show it yet or cannot be asked any more."""
        [made] = fake.made("payout")
        Operation.objects.update(account="second")
        mirrored(made, account="second")
        fake.objects.clear()
        if account == "removed":
            settings.PAYMENTS_INTEGRATION = {
                "ACCOUNTS": {"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "k"}}
            }
            fake.reads.clear()
        with pytest.raises(ValidationError, match=NEVER.format(made.id)):
            services.mark_never_happened(stuck, "ana", "not in the dashboard")
        assert bool(fake.reads) is (account == "configured")
        assert only_operation().state == OperationState.NEEDS_PERSON

    @pytest.mark.case(104)
    def test_it_is_refused_while_the_provider_cannot_be_asked(self, fake: Fake, stuck: Operation) -> None:
        fake.objects.clear()
        fake.read_script = [timeout()]
        with pytest.raises(ValidationError, match="The provider cannot be asked now"):
            services.mark_never_happened(stuck, "ana", "checked")
        assert services.mark_never_happened(stuck, "ana", "checked").state == OperationState.CLOSED

    def test_an_object_of_another_operation_does_not_count(self, fake: Fake) -> None:
        services.create_payout(**PAYOUT, merchant_reference="order 7")
        fake.script = [timeout()]
        with pytest.raises(OutcomeUnknown) as caught:
            services.create_payout(**PAYOUT, merchant_reference="order 7")
        leave_to_a_person(caught.value.operation.pk)
        assert services.mark_never_happened(caught.value.operation, "ana", "x").state == OperationState.CLOSED

    def test_an_operation_that_was_never_sent_asks_the_mirror_alone(self, fake: Fake, mirrored: Any) -> None:
        """The database was restored from a backup: the payout was made, and the operation does not know."""
        fake.script = [refusal(RateLimited, 429, "rate_limited")]
        operation = services.defer(services.create_payout, **PAYOUT)
        made = mirrored(payout(merchant_reference=operation.pk))
        fake.reads.clear()
        assert services.possible_resolutions(operation) >= {"mark_happened", "mark_never_happened"}
        with pytest.raises(ValidationError, match=NEVER.format(made.pk)):
            services.mark_never_happened(operation, "ana", "checked")
        assert fake.reads == []
        assert services.mark_happened(operation, made.pk, "ana", "seen").result_id == made.pk

    @pytest.mark.case(104)
    def test_a_deposit_reference_asks_the_mirror_alone(self, fake: Fake, mirrored: Any) -> None:
        for number in range(2):
            fake.script = [Lost(timeout())]
            with pytest.raises(OutcomeUnknown):
                services.create_deposit_reference(**DEPOSIT, merchant_reference=f"ana-{number}")
        leave_to_a_person()
        made = mirrored(fake.made("deposit_reference")[0])
        first, second = Operation.objects.order_by("merchant_reference")
        with pytest.raises(ValidationError, match=NEVER.format(made.pk)):
            services.mark_never_happened(first, "ana", "checked")
        assert services.mark_never_happened(second, "ana", "checked").state == OperationState.CLOSED

    @pytest.mark.case(104)
    def test_a_cancel_that_took_effect_happened(self, fake: Fake, mirrored: Any) -> None:
        row = mirrored(payment())
        fake.script = [Lost(timeout())]
        with pytest.raises(OutcomeUnknown):
            services.cancel_payment(row)
        leave_to_a_person()
        with pytest.raises(ValidationError, match="It happened: found canceled"):
            services.mark_never_happened(only_operation(), "ana", "checked")
        fake.objects[row.pk].status = "pending"
        assert services.mark_never_happened(only_operation(), "ana", "checked").state == OperationState.CLOSED

    def test_an_earlier_refund_leaves_the_decision_to_the_person(self, fake: Fake, mirrored: Any) -> None:
        """Refunds have no reference, and this one was made in the dashboard before ours was sent."""
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        fake.add(refund(payment_id=row.pk, amount=1_000, created_at=timezone.now() - timedelta(hours=5)))
        fake.script = [timeout()]
        with pytest.raises(OutcomeUnknown):
            services.create_refund(row, amount=1_000)
        leave_to_a_person()
        assert services.mark_never_happened(only_operation(), "ana", "checked").state == OperationState.CLOSED

    def test_nor_does_it_keep_a_refund_open_that_was_never_sent(self, fake: Fake, mirrored: Any) -> None:
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        fake.script = [refusal(RateLimited, 429, "rate_limited")]
        operation = services.defer(services.create_refund, row, amount=1_000)
        mirrored(refund(payment_id=row.pk, amount=1_000, created_at=timezone.now() - timedelta(hours=5)))
        assert services.mark_never_happened(operation, "ana", "checked").state == OperationState.CLOSED

    @pytest.mark.promise(5)
    def test_payouts_of_others_do_not_keep_it_open_for_ever(self, fake: Fake, mirrored: Any) -> None:
        """Made in the dashboard for the same order, after ours was sent in vain."""
        fake.script = [timeout()]
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT, merchant_reference="order-7")
        others = [mirrored(fake.add(payout(**PAYOUT, merchant_reference="order-7"))).pk for _ in range(2)]
        sent = timezone.now() - timedelta(hours=24)
        Operation.objects.update(first_sent_at=sent, last_sent_at=sent, next_attempt_at=None)
        assert services.resume_operations() == {"needs_person": 1}
        with pytest.raises(ValidationError, match=r"It may have happened: .* say with “These are others”"):
            services.mark_never_happened(only_operation(), "ana", "not in the dashboard")
        assert "mark_others" in services.possible_resolutions(only_operation())
        services.mark_others(only_operation(), others, "ana", "of the dashboard")
        assert services.look_up(only_operation()).note.endswith("it was not found at the provider")
        closed = services.mark_never_happened(only_operation(), "ana", "not in the dashboard")
        assert (closed.state, closed.result_id) == (OperationState.CLOSED, "")

    @pytest.mark.case(104)
    def test_a_later_refund_may_be_ours(self, fake: Fake, mirrored: Any) -> None:
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        fake.script = [Lost(timeout())]
        with pytest.raises(OutcomeUnknown):
            services.create_refund(row, amount=1_000)
        leave_to_a_person()
        with pytest.raises(ValidationError, match=NEVER.format(fake.made("refund")[0].id)):
            services.mark_never_happened(only_operation(), "ana", "checked")


@pytest.mark.promise(5)
def test_what_another_person_says_of_an_object_meanwhile_is_kept(
    fake: Fake, stuck: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people go through the objects that fit. Each press is based on what the operation was when it was read."""
    [made] = fake.made("payout")

    def overtaken(name: str, press: Callable[[], object]) -> None:
        """Have another person press once, directly after the operation was read."""
        real = getattr(resolution, name)

        def after_read(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(resolution, name, real)
            press()
            return real(*args, **kwargs)

        monkeypatch.setattr(resolution, name, after_read)

    overtaken("decider", lambda: services.mark_others(stuck, [made.id], "bob", "of the dashboard"))
    with pytest.raises(ValidationError, match="somebody is working on it now"):
        services.mark_others(stuck, ["pout_other"], "ana", "of the dashboard")
    assert only_operation().other_objects == [made.id]
    assert "bob says" in only_operation().note
    Operation.objects.update(other_objects=[])
    overtaken("check_account", lambda: services.mark_others(stuck, [made.id], "eve", "of the dashboard"))
    with pytest.raises(ValidationError, match="somebody is working on it now"):
        services.look_up(stuck)
    assert services.look_up(stuck).state == OperationState.NEEDS_PERSON
    assert only_operation().result_id == ""


@pytest.mark.django_db
@pytest.mark.parametrize("decide", [services.look_up, services.retry])
@pytest.mark.parametrize("operation", ["op_unknown", None])
def test_an_operation_that_does_not_exist_cannot_be_resolved(decide: Any, operation: Any) -> None:
    with pytest.raises(ValidationError, match="no such operation"):
        decide(operation)


def test_a_resolution_is_refused_if_another_worker_takes_over(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    monkeypatch.setattr(look_ups, "resolve_by_reading", mock.Mock(side_effect=ClaimLost))
    make_due()
    with pytest.raises(ValidationError, match="somebody else is working on it"):
        services.look_up(only_operation())


class TestPossibleResolutions:
    """A page offers a resolution exactly when the function of that name accepts the operation."""

    #: What is special about the operation: the call, and changed fields.
    VARIANTS: ClassVar[dict[str, tuple[str, dict[str, Any]]]] = {
        "just sent": ("create_payout", {"last_sent_at": timezone.now()}),
        "sent": ("create_payout", {}),
        "never sent": ("create_payout", {"may_have_run": False, "first_sent_at": None, "sent_to": ""}),
        "key forgotten": ("create_payout", {"first_sent_at": timezone.now() - timedelta(hours=30)}),
        "sent elsewhere": ("create_payout", {"sent_to": "elsewhere"}),
        "key conflict": ("create_payout", {"error": {"code": "idempotency_conflict"}}),
        "erased": ("create_payout", {"body": None}),
        "cancel": ("cancel_payout", {}),
        "deletion": ("delete_webhook_endpoint", {}),
        "account removed": ("create_payout", {"account": "removed"}),
        "call of another version": ("create_payout", {"operation": "create_voucher"}),
    }

    @pytest.fixture
    def resolutions(self, fake: Fake, mirrored: Any) -> Callable[[str], dict[str, Callable[[Operation], Any]]]:
        """Record an operation without an answer, by the name of its call; returns the functions that resolve it."""

        def record(call: str) -> dict[str, Callable[[Operation], Any]]:
            send: Callable[[], Any]
            if call == "create_payout":
                found, send = fake.add(payout(**{**PAYOUT, "fee": 300})).id, lambda: services.create_payout(**PAYOUT)
            elif call == "cancel_payout":
                found, send = mirrored(payout()).pk, lambda: services.cancel_payout(found)
            else:
                found, send = mirrored(endpoint()).pk, lambda: services.delete_webhook_endpoint(found)
            fake.script = [timeout()]
            with pytest.raises(OutcomeUnknown):
                send()

            def mark_happened(operation: Operation) -> Operation:
                if call == "cancel_payout":
                    fake.objects[found].status = "canceled"
                return services.mark_happened(operation, found, "ana", "seen")

            return {
                "look_up": services.look_up,
                "retry": services.retry,
                "mark_happened": mark_happened,
                "mark_never_happened": lambda operation: services.mark_never_happened(operation, "ana", "checked"),
            }

        return record

    @pytest.mark.parametrize("name", ["look_up", "retry", "mark_happened", "mark_never_happened"])
    @pytest.mark.parametrize("state", OperationState)
    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.any_database
    def test_a_resolution_is_offered_exactly_when_it_is_accepted(
        self, resolutions: Any, variant: str, state: OperationState, name: str
    ) -> None:
        call, fields = self.VARIANTS[variant]
        functions = resolutions(call)
        if state in (OperationState.DUE, OperationState.AWAITING_APPROVAL, OperationState.REJECTED):
            # In these states no attempt can have been executed.
            fields = {"may_have_run": False, **fields}
        elif state in (OperationState.UNKNOWN, OperationState.DONE):
            fields = {**fields, "may_have_run": True}
        fields = {"last_sent_at": timezone.now() - MAY_STILL_RUN, **fields}
        Operation.objects.update(state=state, claimed_until=None, claim_token="", **fields)
        operation = only_operation()
        is_offered = name in services.possible_resolutions(operation)
        if is_offered:
            functions[name](operation)
        else:
            with pytest.raises(ValidationError):
                functions[name](operation)
            operation.refresh_from_db()
            assert (operation.state, operation.claim_token) == (state, "")

    def test_what_is_offered_for_an_operation_that_needs_a_person(self, resolutions: Any) -> None:
        resolutions("create_payout")
        leave_to_a_person()
        assert services.possible_resolutions(only_operation()) == {
            "look_up", "retry", "mark_happened", "mark_never_happened",
        }  # fmt: skip

    def test_nothing_is_offered_for_a_closed_operation(self, resolutions: Any) -> None:
        resolutions("create_payout")
        for state in (OperationState.DONE, OperationState.REJECTED, OperationState.CLOSED):
            Operation.objects.update(state=state)
            assert services.possible_resolutions(only_operation()) == set()
