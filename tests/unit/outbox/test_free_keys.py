"""A passing refusal uses up no key: the same call is checked again and sent, by one caller, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from payments_integration import conf, services
from payments_integration.exceptions import (
    ApprovalRequired,
    AuthenticationFailed,
    IdempotencyError,
    IdempotencyMismatch,
    InvalidState,
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    PaymentsError,
    PermissionRefused,
    RateLimited,
)
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import recovery
from payments_integration.signals import dispatching
from tests.fake_provider import (
    DEPOSIT,
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    make_due,
    only_operation,
    payment,
    payout,
    refusal,
    timeout,
)

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
PASSING: list[Callable[[], PaymentsError]] = [
    lambda: refusal(AuthenticationFailed, 401, "api_key_invalid"),
    lambda: refusal(PermissionRefused, 403, "merchant_not_active"),
    lambda: refusal(RateLimited, 429, "rate_limited", retry_after=60),
    lambda: NoAnswer("http://127.0.0.1:8400 refused the connection", was_connected=False),
]
any_passing = pytest.mark.parametrize("error", PASSING, ids=["401", "403", "429", "no connection"])

pytestmark = [pytest.mark.case(125), pytest.mark.promise(5)]


def unauthorised() -> PaymentsError:
    return refusal(AuthenticationFailed, 401, "api_key_invalid")


def pay(**changed: Any) -> Any:
    return services.create_payout(**{**PAYOUT, "idempotency_key": "k1", **changed})


def closed(fake: Fake, call: Callable[[], Any] = pay, error: PaymentsError | None = None) -> Operation:
    """The operation of a call that was refused."""
    fake.script = [error or unauthorised()]
    with pytest.raises(PaymentsError):
        call()
    operation = Operation.objects.order_by("-created_at").first()
    assert operation is not None
    assert operation.state == OperationState.CLOSED
    return operation


@any_passing
def test_the_same_call_is_sent_under_the_same_key(fake: Fake, error: Callable[[], PaymentsError]) -> None:
    first = closed(fake, error=error())
    row = pay(actor="another caller")
    assert [call.key for call in fake.calls] == ["k1", "k1"]
    assert fake.calls[0].body == fake.calls[1].body
    operation = only_operation()
    assert (operation.pk, operation.state, operation.result_id) == (first.pk, OperationState.DONE, row.pk)
    assert (operation.error, operation.actor) == (None, "another caller")
    assert pay() == row
    assert len(fake.made("payout")) == 1


@any_passing
def test_it_is_sent_with_its_first_address_of_return(fake: Fake, error: Callable[[], PaymentsError]) -> None:
    """The provider may know the key already, with the first request."""

    def call(language: str) -> Any:
        url = f"https://shop.example/{language}/back"
        return services.create_payment(**PAYMENT, return_url=url, idempotency_key="k1")

    closed(fake, lambda: call("en"), error=error())
    call("es")
    assert fake.calls[0].body == fake.calls[1].body
    assert only_operation().arguments["return_url"] == "https://shop.example/en/back"


@any_passing
def test_it_may_be_refused_any_number_of_times(fake: Fake, error: Callable[[], PaymentsError]) -> None:
    for _ in range(3):
        closed(fake, error=error())
    assert pay()
    assert len(fake.calls) == 4


def test_a_lost_answer_is_an_unknown_outcome_as_of_any_call(fake: Fake) -> None:
    closed(fake)
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        pay()
    with pytest.raises(OutcomeUnknown):
        pay()
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.parametrize("how", ["at once", "after approval", "by a worker"])
def test_the_key_is_as_old_as_its_refused_attempt(fake: Fake, how: str) -> None:
    """If the provider kept it then, it forgets it a day later: a lost answer is not asked for under it any more."""
    limits = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 1} if how == "after approval" else {}}
    boss = User.objects.create(username="berta", is_staff=True, is_superuser=True)
    fake.available = 100_000

    def call() -> None:
        if how == "by a worker":
            services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
        elif how == "at once":
            pay()
        else:
            with pytest.raises(ApprovalRequired):
                pay(actor="ana")
            services.approve(only_operation(), boss)

    with time_machine.travel(START, tick=False) as clock, override_settings(PAYMENTS_INTEGRATION=limits):
        closed(fake, pay if how == "by a worker" else call)
        clock.shift(timedelta(hours=20))
        fake.script = [Lost(timeout())]
        with nullcontext() if how == "by a worker" else pytest.raises(OutcomeUnknown):
            call()
        clock.shift(timedelta(hours=5))
        fake.keys.clear()
        make_due()
        services.resume_operations()
    assert len(fake.calls) == 2
    assert len(fake.made("payout")) == 1


def test_a_refusal_for_another_reason_is_an_answer_for_ever(fake: Fake) -> None:
    closed(fake)
    fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
    for _ in range(2):
        with pytest.raises(InvalidState):
            pay()
    assert len(fake.calls) == 2


def test_a_call_that_a_person_closed_is_not_sent_again(fake: Fake) -> None:
    operation = closed(fake)
    Operation.objects.update(error=None)
    with pytest.raises(OperationClosed):
        pay()
    Operation.objects.update(error=operation.error, body=None)
    with pytest.raises(OperationClosed):
        pay()
    assert len(fake.calls) == 1


@any_passing
def test_a_call_with_other_arguments_takes_the_key(fake: Fake, error: Callable[[], PaymentsError]) -> None:
    """Nothing was executed under it, and a payer may choose another payment method."""
    first = closed(fake, lambda: services.create_payment(**PAYMENT, idempotency_key="k1"), error())
    other = {**PAYMENT, "amount": PAYMENT["amount"] + 1, "merchant_reference": "another order"}
    row = services.create_payment(**other, idempotency_key="k1")
    assert (row.amount, row.merchant_reference) == (other["amount"], "another order")
    operation = only_operation()
    assert (operation.pk, operation.state, operation.result_id) == (first.pk, OperationState.DONE, row.pk)
    assert (operation.amount, operation.merchant_reference) == (other["amount"], "another order")
    assert operation.note.endswith("asked for again with other arguments")
    assert services.create_payment(**other, idempotency_key="k1") == row
    with pytest.raises(IdempotencyMismatch):
        services.create_payment(**PAYMENT, idempotency_key="k1")
    assert len(fake.made("payment")) == 1


def test_another_operation_does_not_take_it(fake: Fake) -> None:
    closed(fake)
    with pytest.raises(IdempotencyMismatch):
        services.create_payment(**PAYMENT, idempotency_key="k1")


def test_of_two_calls_with_different_arguments_one_is_sent(fake: Fake) -> None:
    closed(fake)

    def meanwhile(made: Any) -> Any:
        with pytest.raises(IdempotencyMismatch):
            pay(amount=2)
        return made

    fake.script = [meanwhile]
    assert pay(amount=1).amount == 1
    assert len(fake.calls) == 2


def test_a_provider_that_remembers_the_key_for_the_old_arguments_has_executed_nothing(fake: Fake) -> None:
    closed(fake)
    fake.script = [refusal(IdempotencyError, 409, "idempotency_conflict")]
    with pytest.raises(IdempotencyError):
        pay(amount=1)
    assert only_operation().state == OperationState.REJECTED


def test_other_arguments_after_a_restored_backup(fake: Fake) -> None:
    """The ledger has forgotten that the first call was executed when it was made again."""
    with time_machine.travel(START, tick=False) as clock:
        backup = closed(fake)
        made = pay()
        backup.save_base(raw=True)
        restored = Operation.objects.get()
        assert restored.has_free_key
        clock.shift(timedelta(hours=25))
        with pytest.raises(IdempotencyMismatch):
            pay(amount=1)
        assert (restored.result_id, only_operation().result_id) == ("", made.pk)
        assert pay().pk == made.pk
    assert len(fake.made("payout")) == 1


def test_other_arguments_that_are_deferred_after_a_restored_backup(fake: Fake) -> None:
    """The worker would look for the new amount, and not find what the key was used for."""
    with time_machine.travel(START, tick=False) as clock:
        backup = closed(fake)
        made = pay()
        backup.save_base(raw=True)
        for hours in (0, 25):
            clock.shift(timedelta(hours=hours))
            with transaction.atomic(), pytest.raises(ValidationError, match=made.pk):
                services.defer(services.create_payout, **{**PAYOUT, "amount": 1, "idempotency_key": "k1"})
            assert only_operation().has_free_key
            assert services.possible_resolutions(only_operation()) == {"mark_others"}
        assert pay().pk == made.pk
    assert len(fake.made("payout")) == 1


def test_the_balance_is_checked_again(fake: Fake) -> None:
    fake.available = 10_000
    services.sync_balances()
    closed(fake)
    fake.available = 7
    services.sync_balances()
    with pytest.raises(ValidationError, match="available"):
        pay()
    assert only_operation().state == OperationState.CLOSED
    fake.available = 10_000
    assert pay()


def test_the_refundable_rest_is_checked_again(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    closed(fake, lambda: services.create_refund(row, amount=6_000, idempotency_key="k1"))
    services.create_refund(row, amount=5_000, idempotency_key="k2")
    with pytest.raises(ValidationError):
        services.create_refund(row, amount=6_000, idempotency_key="k1")
    assert Operation.objects.get(idempotency_key="k1").state == OperationState.CLOSED


def test_the_whole_rest_is_what_it_was_when_it_was_first_asked_for(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    closed(fake, lambda: services.create_refund(row, idempotency_key="k1"))
    assert services.create_refund(row, idempotency_key="k1").amount == 10_000
    assert fake.calls[0].body == fake.calls[1].body


def test_the_whole_rest_is_at_most_what_is_left_now(fake: Fake, mirrored: Any) -> None:
    """A job's key is the same with each try: the rest would never be refunded."""
    row = mirrored(payment(amount=10_000, amount_received=10_000, status="succeeded", method_family="card"))
    closed(fake, lambda: services.create_refund(row, idempotency_key="k1"))
    services.create_refund(row, amount=3_000, idempotency_key="k2")
    refund = services.create_refund(row, idempotency_key="k1")
    assert (refund.amount, json.loads(fake.calls[-1].body)["amount"]) == (7_000, 7_000)
    operation = Operation.objects.get(idempotency_key="k1")
    assert (operation.state, operation.amount) == (OperationState.DONE, 7_000)
    assert operation.note.endswith("asked for again for all that is left now")
    assert services.create_refund(row, idempotency_key="k1") == refund
    assert len(fake.made("refund")) == 2


def test_the_permission_is_checked_again(fake: Fake) -> None:
    closed(fake)
    with pytest.raises(PermissionDenied):
        pay(actor=User.objects.create(username="temp", is_staff=True))
    assert len(fake.calls) == 1


def test_the_approval_limit_counts_again(fake: Fake) -> None:
    closed(fake)
    limits = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 5_000}}
    with override_settings(PAYMENTS_INTEGRATION=limits):
        with pytest.raises(ValidationError, match="say who asks"):
            pay()
        assert only_operation().state == OperationState.CLOSED
        with pytest.raises(ApprovalRequired):
            pay(actor="ana")
        assert only_operation().state == OperationState.AWAITING_APPROVAL
        assert len(fake.calls) == 1
        checker = User.objects.create(username="berta", is_staff=True, is_superuser=True)
        fake.available = 10_000
        fake.script = [unauthorised()]
        with pytest.raises(AuthenticationFailed):
            services.approve(only_operation(), checker)
        # The approval was for that request.
        with pytest.raises(ApprovalRequired):
            pay(actor="ana")
        assert only_operation().approved_by == ""
        assert services.approve(only_operation(), checker)
    assert len(fake.made("payout")) == 1


def test_of_two_callers_one_sends(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has read the row before, and finds it taken."""
    closed(fake)
    decide, rows = recovery.reopenable, []

    def overtaken(operation: Operation, **options: Any) -> Any:
        decided = decide(operation, **options)
        if not rows:
            rows.append(None)
            rows[0] = pay()
        return decided

    monkeypatch.setattr(recovery, "reopenable", overtaken)
    assert pay() == rows[0]
    assert len(fake.made("payout")) == 1
    assert len(fake.calls) == 2


def test_of_two_callers_one_sends_while_the_other_is_under_way(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(fake)

    def meanwhile(made: Any) -> Any:
        with pytest.raises(OutcomeUnknown):
            pay()
        return made

    fake.script = [meanwhile]
    assert pay()
    assert len(fake.calls) == 2


@any_passing
def test_deferred_calls_stay_due_and_are_sent_later(
    fake: Fake, attention: list[str], error: Callable[[], PaymentsError]
) -> None:
    fake.script = [error() for _ in range(5)]
    began = timezone.now()
    for number in range(5):
        operation = services.defer(services.create_payout, **PAYOUT, idempotency_key=f"k{number}")
        assert (operation.state, operation.may_have_run) == (OperationState.DUE, False)
        assert operation.next_attempt_at is not None
        assert operation.next_attempt_at > began + timedelta(seconds=3)
        assert operation.note
    is_access = isinstance(error(), AuthenticationFailed | PermissionRefused)
    assert attention == (["deferred_refused"] * 5 if is_access else [])
    for _ in range(2):
        with time_machine.travel(began + timedelta(minutes=6)):
            make_due()
            fake.script = [error() for _ in range(5)]
            assert services.resume_operations() == {"due": 5}
    assert attention == ["deferred_refused"] * 5, "once each, a rate limit or no connection if it lasts"
    make_due()
    assert services.resume_operations() == {"done": 5}
    assert len(fake.made("payout")) == 5


def test_a_deferred_call_takes_a_free_key(fake: Fake, django_capture_on_commit_callbacks: Any) -> None:
    first = closed(fake)
    with transaction.atomic():
        assert services.defer(services.create_payout, **PAYOUT, idempotency_key="k1").state == OperationState.DUE
        transaction.set_rollback(True)
    assert only_operation().state == OperationState.CLOSED
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        operation = services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
    assert operation.pk == first.pk
    assert (only_operation().state, only_operation().deferred) == (OperationState.DONE, True)
    assert services.defer(services.create_payout, **PAYOUT, idempotency_key="k1").state == OperationState.DONE
    assert len(fake.made("payout")) == 1


def test_below_23_hours_the_key_protects(fake: Fake) -> None:
    """Its age counts from the first attempt: the ledger may be restored, and the provider know the key."""
    with time_machine.travel(START, tick=False) as clock:
        first = closed(fake)
        clock.shift(timedelta(hours=22))
        fake.script = [Lost(timeout())]
        with pytest.raises(OutcomeUnknown):
            pay()
        assert "list payout" not in fake.reads
        operation = only_operation()
        assert (operation.first_sent_at, operation.sent_after) == (first.first_sent_at, first.sent_after)
        clock.shift(timedelta(hours=2))
        assert services.resume_operations() == {"done": 1}
        assert len(fake.calls) == 2, "looked up"


@pytest.mark.parametrize("change", ["age", "place", "no date"])
def test_without_the_keys_protection_it_is_looked_up(fake: Fake, change: str) -> None:
    with time_machine.travel(START, tick=False) as clock:
        operation = closed(fake, lambda: pay(merchant_reference="o1"))
        if change == "age":
            clock.shift(timedelta(hours=24))
        else:
            clock.shift(timedelta(hours=2))
            changed = {"sent_to": "elsewhere"} if change == "place" else {"sent_after": None}
            Operation.objects.update(**changed)
        fake.read_script = [timeout()] if change == "place" else [None, timeout()]
        with pytest.raises(NoAnswer):
            pay(merchant_reference="o1")
        assert only_operation().state == OperationState.CLOSED
        fake.read_script, fake.reads = [], []
        made = payout(amount=5_000, merchant_reference="o1", created_at=START)
        fake.add(made)
        assert pay(merchant_reference="o1").pk == made.id
        assert (only_operation().pk, only_operation().state) == (operation.pk, OperationState.DONE)
        assert len(fake.calls) == 1


def test_what_is_not_found_is_sent(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        closed(fake)
        clock.shift(timedelta(days=3))
        assert pay()
        assert "list payout" in fake.reads
        assert len(fake.made("payout")) == 1


def test_what_fits_twice_is_refused(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        closed(fake, lambda: pay(merchant_reference="o1"))
        clock.shift(timedelta(days=3))
        ids = [fake.add(payout(amount=5_000, merchant_reference="o1", created_at=START)).id for _ in range(2)]
        for _ in range(2):
            with pytest.raises(ValidationError, match=ids[0]) as caught:
                pay(merchant_reference="o1")
        assert ids[1] in str(caught.value)
        assert (only_operation().state, len(fake.calls)) == (OperationState.CLOSED, 1)


def test_a_person_who_says_that_they_are_others_has_it_sent(fake: Fake, mirrored: Any) -> None:
    """Otherwise an order whose key ``attempt_key`` gives could never be paid."""

    def buy() -> Any:
        return services.create_payment(**{**PAYMENT, "merchant_reference": "o1", "idempotency_key": "k1"})

    with time_machine.travel(START, tick=False) as clock:
        operation = closed(fake, buy)
        clock.shift(timedelta(days=3))
        assert "mark_others" not in services.possible_resolutions(operation), "nothing fits it"
        for _ in range(2):
            mirrored(payment(amount=PAYMENT["amount"], merchant_reference="o1", created_at=START), known=False)
        with pytest.raises(ValidationError, match="These are others"):
            buy()
        others = services.fitting_objects(only_operation())
        assert services.possible_resolutions(only_operation()) == {"mark_others"}
        services.mark_others(operation, others, "ana", "of the old shop")
        assert (only_operation().state, len(fake.calls)) == (OperationState.CLOSED, 1)
        assert buy().pk not in others
        assert (only_operation().pk, only_operation().state) == (operation.pk, OperationState.DONE)
        with pytest.raises(ValidationError, match="It may have been sent"):
            services.mark_others(operation, others, "ana", "too late")


def test_what_only_the_mirror_shows_is_linked(fake: Fake, mirrored: Any) -> None:
    with time_machine.travel(START, tick=False) as clock:
        closed(fake, lambda: pay(merchant_reference="o1"))
        clock.shift(timedelta(days=3))
        row = mirrored(payout(amount=5_000, merchant_reference="o1", created_at=START), known=False)
        assert pay(merchant_reference="o1") == row
        assert len(fake.calls) == 1


def test_a_young_call_needs_no_look(fake: Fake) -> None:
    """The sandbox was not running, so no answer told the time."""
    fake.has_answered, fake.read_script = False, [timeout()]
    closed(fake, lambda: services.create_deposit_reference(**DEPOSIT, idempotency_key="k2"))
    assert services.create_deposit_reference(**DEPOSIT, idempotency_key="k2")
    closed(fake)
    assert pay()
    assert not any(read.startswith("list payout") for read in fake.reads)


def test_a_young_call_under_another_api_key_is_looked_up_first(fake: Fake) -> None:
    """The API key was wrong, and is another one now."""
    closed(fake)
    Operation.objects.update(sent_to="elsewhere")
    assert pay()
    assert fake.reads.count("list payout") == 1
    assert only_operation().sent_to == conf.fingerprint("default")


def test_a_cancel_needs_no_look(fake: Fake, mirrored: Any) -> None:
    with time_machine.travel(START, tick=False) as clock:
        row = mirrored(payment())
        closed(fake, lambda: services.cancel_payment(row, idempotency_key="k1"))
        clock.shift(timedelta(days=3))
        assert services.cancel_payment(row, idempotency_key="k1").status == "canceled"


def test_a_handler_that_takes_the_key_two_days_later_has_it_sent(fake: Fake) -> None:
    with time_machine.travel(START, tick=False) as clock:
        closed(fake)
        clock.shift(timedelta(days=2))
        with dispatching(timezone.now()):
            services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
        assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


def test_a_second_refusal_after_an_attempt_that_may_have_run_proves_nothing(fake: Fake) -> None:
    closed(fake)
    fake.script = [timeout(), unauthorised()]
    with pytest.raises(OutcomeUnknown):
        pay()
    make_due()
    assert services.resume_operations() == {"unknown": 1}


def test_the_messages_say_what_was_and_what_is_next(fake: Fake) -> None:
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payment(**PAYMENT, idempotency_key="k1")
    message = str(caught.value)
    assert "the provider did not answer in time." in message
    assert "sends it again with the same key, or looks it up, after " in message
    with pytest.raises(OutcomeUnknown, match="sends it again"):
        services.create_payment(**PAYMENT, idempotency_key="k1")
    Operation.objects.update(state=OperationState.NEEDS_PERSON)
    with pytest.raises(OutcomeUnknown, match="A person decides"):
        services.create_payment(**PAYMENT, idempotency_key="k1")
    Operation.objects.update(state=OperationState.DUE)
    with pytest.raises(OutcomeUnknown, match="The app sends it by itself"):
        services.create_payment(**PAYMENT, idempotency_key="k1")
