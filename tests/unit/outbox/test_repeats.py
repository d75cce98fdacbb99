"""A job asks for what was paid: after a restored backup, when the provider has forgotten the key, or after a user."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from payments_integration import projection, services
from payments_integration.exceptions import OutcomeUnknown, RateLimited
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund, deletion_allowed
from payments_integration.signals import dispatching
from tests.fake_provider import PAYOUT, Fake, only_operation, payment, payout, refund, refusal

pytestmark = [pytest.mark.case(124), pytest.mark.promise(5)]

INVOICE = {**PAYOUT, "merchant_reference": "invoice-7", "idempotency_key": "invoice-7"}
LONG_AGO = timedelta(days=3)


def made_before(fake: Fake, mirrored: Any, *, age: timedelta = LONG_AGO, **fields: Any) -> Payout:
    """A payout that the restored ledger does not know, as reconciliation has mirrored it."""
    fields = {"merchant_reference": "invoice-7", "created_at": timezone.now() - age, **fields}
    row = mirrored(payout(**fields), known=True)
    assert isinstance(row, Payout)
    return row


def test_a_person_decides_before_a_payout_is_made_again(fake: Fake, mirrored: Any, attention: list[str]) -> None:
    row = made_before(fake, mirrored)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**INVOICE)
    operation = only_operation()
    assert operation.state == OperationState.NEEDS_PERSON
    assert f"it was not sent: {row.pk} fits it" in operation.note
    assert fake.calls == []
    assert attention == ["operation_needs_resolution"]
    assert services.fitting_objects(operation) == [row.pk]
    assert {"mark_happened", "mark_others", "retry"} <= services.possible_resolutions(operation)
    services.mark_happened(operation, row.pk, "ana", "the invoice is paid")
    assert services.create_payout(**INVOICE).pk == row.pk
    assert fake.calls == []


def test_it_is_sent_when_a_person_says_that_the_other_is_another_one(fake: Fake, mirrored: Any) -> None:
    row = made_before(fake, mirrored)
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**INVOICE)
    with pytest.raises(ValidationError, match="These are others"):
        services.retry(only_operation(), "ana")
    services.mark_others(only_operation(), [row.pk], "ana", "it went to somebody else")
    assert services.retry(only_operation(), "ana").state == OperationState.DONE
    assert len(fake.calls) == 1


def test_it_is_linked_if_its_key_is_its_reference(fake: Fake, mirrored: Any) -> None:
    call = {**PAYOUT, "idempotency_key": "invoice-7"}
    first = services.create_payout(**call)
    reference = first.merchant_reference
    with deletion_allowed():
        Operation.objects.all().delete()
    Payout.objects.update(created_at=timezone.now() - LONG_AGO)
    assert services.create_payout(**call).pk == first.pk
    assert only_operation().merchant_reference == reference
    assert len(fake.calls) == 1


def test_a_deferred_payout_waits_as_well(fake: Fake, mirrored: Any) -> None:
    made_before(fake, mirrored)
    with dispatching():
        services.defer(services.create_payout, **INVOICE)
    assert services.resume_operations() == {"needs_person": 1}
    assert fake.calls == []


@pytest.mark.parametrize(
    "fields",
    [
        {"age": timedelta(hours=22)},  # the provider knows its key
        {"age": timedelta(days=60)},
        {"amount": 4_999},
        {"currency": "USD"},
        {"merchant_reference": "invoice-8"},
        {"status": "failed"},
        {"status": "returned"},
        {"refund_id": "re_1"},
    ],
    ids=str,
)
def test_other_payouts_do_not_count(fake: Fake, mirrored: Any, fields: dict[str, Any]) -> None:
    made_before(fake, mirrored, **fields)
    services.create_payout(**INVOICE)
    assert len(fake.calls) == 1


@pytest.mark.parametrize("name", ["account_number", "holder_name"])
def test_a_payout_to_somebody_else_counts(fake: Fake, mirrored: Any, name: str) -> None:
    """A seller changed the account, the invoice was paid to it, and then the backup with the old one was restored."""
    made_before(fake, mirrored, destination={**PAYOUT["destination"], name: "9876543210"})
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**INVOICE)
    assert fake.calls == []


def test_a_payout_of_an_operation_does_not_count(fake: Fake) -> None:
    """The same amount for the same reference, each week."""
    for week in range(3):
        services.create_payout(**{**INVOICE, "idempotency_key": f"week-{week}"})
        Payout.objects.update(created_at=timezone.now() - timedelta(days=7))
    assert len(fake.calls) == 3


def test_a_payout_from_before_the_installation_does_not_count(
    fake: Fake, mirrored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_before(fake, mirrored)
    monkeypatch.setattr(projection, "dispatch_begins_at", lambda account: timezone.now() - timedelta(days=2))
    services.create_payout(**INVOICE)
    assert len(fake.calls) == 1


class TestRefunds:
    @pytest.fixture
    def paid(self, mirrored: Any) -> Payment:
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        assert isinstance(row, Payment)
        return row

    @pytest.fixture
    def earlier(self, fake: Fake, mirrored: Any, paid: Payment) -> Refund:
        row = mirrored(refund(payment_id=paid.pk, amount=1_000, created_at=timezone.now() - LONG_AGO), known=True)
        assert isinstance(row, Refund)
        return row

    def test_a_person_decides_before_a_refund_is_made_again(self, fake: Fake, paid: Payment, earlier: Refund) -> None:
        with pytest.raises(OutcomeUnknown):
            services.create_refund(paid, amount=1_000, idempotency_key="line-1")
        assert only_operation().state == OperationState.NEEDS_PERSON
        assert services.fitting_objects(only_operation()) == [earlier.pk]
        assert fake.calls == []

    def test_a_user_has_seen_the_earlier_refund(self, fake: Fake, paid: Payment, earlier: Refund) -> None:
        boss = User(pk=1, username="ana", is_superuser=True, is_active=True, is_staff=True)
        services.create_refund(paid, amount=1_000, actor=boss)
        assert len(fake.calls) == 1

    def test_a_refund_of_another_amount_is_made(self, fake: Fake, paid: Payment, earlier: Refund) -> None:
        services.create_refund(paid, amount=999, idempotency_key="line-1")
        assert len(fake.calls) == 1


class TestAUserWasFaster:
    """Staff press "Pay again", and a job that has seen the failure pays again with a key of its own."""

    @pytest.fixture
    def boss(self, db: None) -> User:
        return User.objects.create(username="ana", is_superuser=True, is_staff=True)

    def test_a_person_decides_about_the_payout_of_the_job(self, fake: Fake, boss: User, attention: list[str]) -> None:
        made = services.create_payout(**{**INVOICE, "idempotency_key": "again"}, actor=boss)
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**INVOICE)
        operation = Operation.objects.exclude(result_id=made.pk).get()
        assert operation.state == OperationState.NEEDS_PERSON
        assert "it was not sent: ana has asked for the same (op_" in operation.note
        assert attention == ["operation_needs_resolution"]
        assert len(fake.calls) == 1
        assert {"retry", "mark_never_happened"} == services.possible_resolutions(operation)
        assert services.retry(operation, boss).state == OperationState.DONE
        assert len(fake.calls) == 2

    def test_so_does_one_after_a_user_has_paid_to_another_account(self, fake: Fake, boss: User) -> None:
        other = {**PAYOUT["destination"], "account_number": "9876543210"}
        services.create_payout(**{**INVOICE, "destination": other, "idempotency_key": "again"}, actor=boss)
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**INVOICE)
        assert len(fake.calls) == 1

    def test_so_does_one_that_the_job_defers(self, fake: Fake, boss: User) -> None:
        services.create_payout(**{**INVOICE, "idempotency_key": "again"}, actor=boss)
        with dispatching():
            services.defer(services.create_payout, **INVOICE)
        assert services.resume_operations() == {"needs_person": 1}
        assert len(fake.calls) == 1

    def test_so_does_one_whose_key_is_free_after_a_temporary_refusal(self, fake: Fake, boss: User) -> None:
        """The job met 429, a person paid by hand, and the job tries again."""
        fake.script = [refusal(RateLimited, 429, "rate_limited")]
        with pytest.raises(RateLimited):
            services.create_payout(**INVOICE)
        services.create_payout(**{**INVOICE, "idempotency_key": "by hand"}, actor=boss)
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**INVOICE)
        operation = Operation.objects.get(idempotency_key="invoice-7")
        assert operation.state == OperationState.NEEDS_PERSON
        assert len(fake.made("payout")) == 1

    @pytest.mark.parametrize("other", [{"amount": 4_999}, {"merchant_reference": "invoice-8"}], ids=str)
    def test_another_payout_is_made(self, fake: Fake, boss: User, other: dict[str, Any]) -> None:
        services.create_payout(**{**INVOICE, "idempotency_key": "again"}, actor=boss)
        services.create_payout(**{**INVOICE, **other})
        assert len(fake.calls) == 2

    def test_it_is_made_if_the_payout_of_the_user_failed(self, fake: Fake, boss: User) -> None:
        services.create_payout(**{**INVOICE, "idempotency_key": "again"}, actor=boss)
        Payout.objects.update(status="returned")
        services.create_payout(**INVOICE)
        assert len(fake.calls) == 2

    def test_it_is_made_a_day_later(self, fake: Fake, boss: User) -> None:
        services.create_payout(**{**INVOICE, "idempotency_key": "again"}, actor=boss)
        Operation.objects.update(created_at=timezone.now() - timedelta(hours=25))
        services.create_payout(**INVOICE)
        assert len(fake.calls) == 2

    def test_jobs_and_users_repeat_what_they_did_themselves(self, fake: Fake, boss: User) -> None:
        """Such as two payouts of a batch with one reference."""
        for key in "ab":
            services.create_payout(**{**INVOICE, "idempotency_key": key})
        services.create_payout(**{**INVOICE, "idempotency_key": "c"}, actor=boss)
        services.create_payout(**{**INVOICE, "idempotency_key": "d"}, actor=boss)
        assert len(fake.calls) == 4
