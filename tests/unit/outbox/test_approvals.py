"""Money over a limit leaves only when another person has said so, and only as it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import InterfaceError, OperationalError, connections, transaction
from django.utils import timezone

from payments_integration import erasure, services
from payments_integration.exceptions import (
    ApprovalRequired,
    InvalidState,
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    TransactionRefused,
)
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund, refundable_rest
from payments_integration.outbox import ledger, sending
from payments_integration.outbox.operations import payouts
from tests.fake_provider import (
    DESTINATION,
    PAYOUT,
    Fake,
    Lost,
    make_due,
    not_found,
    only_operation,
    payment,
    refusal,
    timeout,
)

LIMITED = {**PAYOUT, "amount": 5_000}


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 5_000, "USD": 100},
    }  # fmt: skip


def person(name: str, *codenames: str, **fields: Any) -> User:
    user = User.objects.create(username=name, **{"is_staff": True, **fields})
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


@pytest.fixture
def maker(db: None) -> User:
    return person("ana", "create_payout", "refund_payment")


@pytest.fixture
def checker(db: None) -> User:
    return person("berta", "approve_operation")


@pytest.fixture
def waiting(fake: Fake, maker: User) -> Operation:
    """A payout that waits. The provider has the money."""
    fake.available = 50_000
    with pytest.raises(ApprovalRequired) as caught:
        services.create_payout(**LIMITED, idempotency_key="k1", actor=maker)
    assert isinstance(caught.value.operation, Operation)
    return only_operation()


@pytest.fixture
def paid(fake: Fake, mirrored: Any) -> Payment:
    fields = {"method_code": "cl_bank", "method_family": "bank_transfer"}
    row = mirrored(payment(status="succeeded", amount_received=10_000, **fields))
    assert isinstance(row, Payment)
    return row


@pytest.fixture
def losing_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Arms the connection: committing an approval raises, whether or not it is done."""
    backend = type(connections["default"])
    real = backend._commit

    def arm(error: Exception, *, commits: bool = True) -> None:
        def commit(self: Any) -> None:
            # Asked before: after it, the question itself would begin a transaction (PostgreSQL).
            if not Operation.objects.filter(approved_at__isnull=False).exists():
                real(self)
                return
            monkeypatch.setattr(backend, "_commit", real)
            if commits:
                real(self)
            raise error

        monkeypatch.setattr(backend, "_commit", commit)

    return arm


def ask_refund(paid: Payment, maker: Any, amount: int | None = 6_000, **given: Any) -> Operation:
    with pytest.raises(ApprovalRequired) as caught:
        services.create_refund(paid.pk, amount=amount, destination=DESTINATION, actor=maker, **given)
    operation = caught.value.operation
    assert isinstance(operation, Operation)
    return operation


@contextmanager
def refused(*arguments: str) -> Iterator[None]:
    """A ValidationError that names exactly these."""
    with pytest.raises(ValidationError) as caught:
        yield
    assert list(caught.value.message_dict) == list(arguments)


def nothing_left(fake: Fake) -> None:
    assert fake.calls == []
    assert only_operation().state == OperationState.AWAITING_APPROVAL


class TestWhatWaits:
    def test_a_payout_at_its_limit_is_recorded_and_not_sent(
        self, fake: Fake, waiting: Operation, maker: User, attention: list[str]
    ) -> None:
        nothing_left(fake)
        assert (waiting.actor, waiting.actor_id) == (f"{maker.pk}:ana", str(maker.pk))
        assert waiting.body_digest == ledger.digest_of(bytes(waiting.body or b""))
        assert (waiting.may_have_run, waiting.first_sent_at, waiting.attempts) == (False, None, 0)
        assert not waiting.claim_token
        assert waiting.amount == json.loads(bytes(waiting.body or b""))["amount"] == 5_000

    def test_attention_is_called_once_for_a_request(self, fake: Fake, maker: User, attention: list[str]) -> None:
        for _ in range(2):
            with pytest.raises(ApprovalRequired):
                services.create_payout(**LIMITED, idempotency_key="k1", actor=maker)
        assert attention == ["operation_awaits_approval"]
        nothing_left(fake)

    @pytest.mark.parametrize("change", [{"amount": 4_999}, {"currency": "PEN", "country": "PE"}])
    def test_an_amount_below_the_limit_or_without_a_limit_is_sent_at_once(
        self, fake: Fake, change: dict[str, Any]
    ) -> None:
        given = {**LIMITED, **change, "amount": change.get("amount", 900_000)}
        given["destination"] = {**DESTINATION, "holder_document": {"type": "PASS", "number": "AB123456"}}
        assert isinstance(services.create_payout(**given), Payout)
        assert only_operation().actor_id == ""

    def test_a_refund_to_a_bank_account_waits_for_approval(self, fake: Fake, paid: Payment, maker: User) -> None:
        operation = ask_refund(paid, maker)
        assert (operation.currency, operation.amount, operation.target_id) == ("CLP", 6_000, paid.pk)
        assert services.create_refund(paid, amount=4_000, destination=DESTINATION), "below it is sent"
        with refused("payment"):
            services.create_refund(paid, amount=1, destination=DESTINATION)

    def test_a_refund_of_the_whole_rest_waits_for_approval(self, fake: Fake, paid: Payment, maker: User) -> None:
        assert ask_refund(paid, maker, None).amount == 10_000

    def test_a_card_is_refunded_without_approval(self, fake: Fake, mirrored: Any, maker: User) -> None:
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        assert isinstance(services.create_refund(row, actor=maker), Refund)

    @pytest.mark.parametrize("no_user", [None, "", AnonymousUser()])
    def test_a_request_over_the_limit_needs_an_actor(self, fake: Fake, paid: Payment, no_user: Any) -> None:
        with refused("actor"):
            services.create_payout(**LIMITED, actor=no_user)
        with refused("actor"):
            services.create_refund(paid, destination=DESTINATION, actor=no_user)
        with refused("actor"), transaction.atomic():
            services.defer(services.create_payout, **LIMITED, actor=no_user)
        assert not Operation.objects.exists()

    @pytest.mark.django_db(transaction=True)
    def test_a_deferred_call_waits_and_calls_attention_after_the_commit(
        self, fake: Fake, attention: list[str]
    ) -> None:
        with transaction.atomic():
            operation = services.defer(services.create_payout, **LIMITED, actor="payroll")
            assert attention == []
        assert operation.state == OperationState.AWAITING_APPROVAL
        assert attention == ["operation_awaits_approval"]
        services.defer(services.create_payout, **LIMITED, actor="payroll")
        assert len(attention) == 2
        assert fake.calls == []

    def test_no_worker_sends_an_operation_that_awaits_approval(
        self, fake: Fake, waiting: Operation, maker: User
    ) -> None:
        Operation.objects.update(created_at=timezone.now() - timedelta(days=40))
        make_due()
        assert services.resume_operations() == {}
        for decide in (services.look_up, services.retry):
            with refused("operation"):
                decide(waiting)
        with refused("operation"):
            services.mark_never_happened(waiting, "ana", "checked")
        with pytest.raises(ApprovalRequired):
            services.create_payout(**LIMITED, idempotency_key="k1", actor=maker)
        nothing_left(fake)


class TestApproving:
    def test_an_approved_operation_is_sent_as_it_was_recorded(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        Operation.objects.update(created_at=timezone.now() - timedelta(days=5))
        row = services.approve(waiting, checker, "for the May invoices", digest=waiting.body_digest)
        assert isinstance(row, Payout)
        (call,) = fake.calls
        assert (call.body, call.key) == (bytes(waiting.body or b""), "k1")
        operation = only_operation()
        assert (operation.state, operation.result_id) == (OperationState.DONE, row.pk)
        assert operation.approved_by == f"{checker.pk}:berta"
        assert operation.approved_at == operation.first_sent_at is not None
        assert operation.note.endswith(f"{checker.pk}:berta approved it: for the May invoices")

    def test_the_requester_gets_the_row_by_the_same_key_after_approval(
        self, fake: Fake, waiting: Operation, checker: User, maker: User
    ) -> None:
        row = services.approve(waiting.pk, checker)
        assert services.create_payout(**LIMITED, idempotency_key="k1", actor=maker) == row
        assert len(fake.calls) == 1

    @pytest.mark.case(81)
    @pytest.mark.promise(5)
    def test_the_requester_cannot_approve(self, fake: Fake, waiting: Operation, maker: User) -> None:
        with pytest.raises(PermissionDenied):
            services.approve(waiting, maker)
        maker.user_permissions.add(Permission.objects.get(codename="approve_operation"))
        maker = User.objects.get(pk=maker.pk)
        with refused("actor"):
            services.approve(waiting, maker)
        User.objects.filter(pk=maker.pk).update(is_superuser=True, username="somebody-else")
        with refused("actor"):
            services.approve(waiting, User.objects.get(pk=maker.pk))
        nothing_left(fake)

    @pytest.mark.case(81)
    def test_a_superuser_cannot_approve_their_own_request(self, fake: Fake) -> None:
        boss = person("boss", is_superuser=True)
        with pytest.raises(ApprovalRequired):
            services.create_payout(**LIMITED, actor=boss)
        with refused("actor"):
            services.approve(only_operation(), boss, "I may do everything")
        nothing_left(fake)
        assert fake.reads == [], "the provider was not even asked"

    @pytest.mark.case(81)
    @pytest.mark.parametrize("asked", ["berta", "Berta", "{pk}:berta", "{pk}:old-name", "{pk}", "17000:berta"])
    def test_a_requester_recorded_as_text_cannot_approve(self, fake: Fake, checker: User, asked: str) -> None:
        with pytest.raises(ApprovalRequired):
            services.create_payout(**LIMITED, actor=asked.format(pk=checker.pk))
        with refused("actor"):
            services.approve(only_operation(), checker)
        nothing_left(fake)

    @pytest.mark.case(81)
    def test_another_user_with_the_requesters_name_cannot_approve(
        self, fake: Fake, waiting: Operation, maker: User
    ) -> None:
        User.objects.filter(pk=maker.pk).update(username="ana-old")
        with refused("actor"):
            services.approve(waiting, person("ana", "approve_operation"))
        nothing_left(fake)

    def test_a_customer_of_another_table_with_the_users_number_is_another_person(
        self, fake: Fake, checker: User
    ) -> None:
        fake.available = 50_000
        with pytest.raises(ApprovalRequired):
            services.create_payout(**LIMITED, actor=Group(pk=checker.pk, name="Shop customers"))
        assert only_operation().actor_id
        assert services.approve(only_operation(), checker)

    @pytest.mark.case(81)
    @pytest.mark.parametrize("mark", ["is_hijacked", "is_impersonate"])
    def test_nobody_is_a_second_person_in_another_users_session(
        self, fake: Fake, waiting: Operation, checker: User, maker: User, mark: str
    ) -> None:
        setattr(checker, mark, True)
        with refused("actor"):
            services.approve(waiting, checker)
        setattr(maker, mark, True)
        with refused("actor"):
            services.create_payout(**LIMITED, actor=maker)
        assert Operation.objects.count() == 1
        nothing_left(fake)
        services.create_payout(**{**LIMITED, "amount": 4_999}, actor=maker)

    def test_any_permitted_user_can_approve_the_request_of_a_job(self, fake: Fake, checker: User) -> None:
        fake.available = 50_000
        with pytest.raises(ApprovalRequired):
            services.create_payout(**LIMITED, actor="payroll")
        assert services.approve(only_operation(), checker)

    def test_only_a_user_with_the_permission_can_approve(self, fake: Fake, waiting: Operation, checker: User) -> None:
        for user in (
            person("carl"),
            person("dora", is_staff=False),
            person("gone", is_superuser=True, is_active=False),
        ):
            with pytest.raises(PermissionDenied):
                services.approve(waiting, user)
        for no_user in ("berta", None, AnonymousUser()):
            with refused("actor"):
                services.approve(waiting, no_user)
        nothing_left(fake)
        assert services.approve(waiting, person("root", is_superuser=True))

    @pytest.mark.case(82)
    @pytest.mark.promise(5)
    def test_an_operation_that_was_changed_since_the_request_is_not_sent(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        body = bytes(waiting.body or b"")
        changed = body.replace(b"00123456789", b"99999999999")
        assert changed != body
        Operation.objects.update(body=changed)
        with refused("operation"):
            services.approve(waiting, checker)
        Operation.objects.update(body_digest=ledger.digest_of(changed))
        with refused("operation"):
            services.approve(waiting, checker, digest=waiting.body_digest)
        Operation.objects.update(body=body, body_digest=waiting.body_digest, amount=1)
        with refused("operation"):
            services.approve(waiting, checker)
        nothing_left(fake)

    @pytest.mark.case(82)
    def test_a_changed_request_needs_a_rejection_and_a_new_request(
        self, fake: Fake, waiting: Operation, maker: User, checker: User
    ) -> None:
        changed = {**LIMITED, "amount": 6_000}
        with pytest.raises(Exception, match="different call"):
            services.create_payout(**changed, idempotency_key="k1", actor=maker)
        services.reject(waiting, checker, "6,000, not 5,000")
        with pytest.raises(OperationClosed):
            services.create_payout(**LIMITED, idempotency_key="k1", actor=maker)
        with pytest.raises(ApprovalRequired) as caught:
            services.create_payout(**changed, idempotency_key="k2", actor=maker)
        assert services.approve(caught.value.operation, checker).amount == 6_000
        assert len(fake.calls) == 1

    @pytest.mark.case(82)
    def test_a_refund_must_fit_into_the_rest_at_approval(
        self, fake: Fake, paid: Payment, maker: User, checker: User
    ) -> None:
        operation = ask_refund(paid, maker)
        # Made in the provider's dashboard meanwhile; nothing here has heard of it.
        fake.objects[paid.pk].refunded_amount = 4_001
        with refused("amount"):
            services.approve(operation, checker)
        nothing_left(fake)
        fake.objects[paid.pk].refunded_amount = 4_000
        assert services.approve(operation, checker).amount == 6_000

    @pytest.mark.case(82)
    def test_a_payout_must_be_covered_by_the_balance_at_approval(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        fake.available = 4_999
        with refused("amount"):
            services.approve(waiting, checker)
        nothing_left(fake)
        fake.available = 5_000
        assert services.approve(waiting, checker)

    def test_without_a_listed_balance_the_provider_decides_at_approval(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        fake.available = None
        assert services.approve(waiting, checker)

    def test_an_operation_still_waits_if_the_provider_does_not_answer_at_approval(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        fake.read_script = [timeout()]
        with pytest.raises(NoAnswer):
            services.approve(waiting, checker)
        nothing_left(fake)

    def test_an_erased_operation_can_only_be_rejected(self, fake: Fake, waiting: Operation, checker: User) -> None:
        Operation.objects.update(body=None)
        with refused("operation"):
            services.approve(waiting, checker)
        nothing_left(fake)
        assert services.reject(waiting, checker, "erased").state == OperationState.CLOSED

    def test_an_operation_of_a_removed_account_cannot_be_approved(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        Operation.objects.update(account="old")
        with pytest.raises(ValidationError, match="not configured any more"):
            services.approve(waiting, checker)
        nothing_left(fake)

    @pytest.mark.case(83)
    @pytest.mark.parametrize("state", [s for s in OperationState if s != OperationState.AWAITING_APPROVAL])
    def test_an_operation_that_does_not_await_approval_is_not_approved(
        self, fake: Fake, waiting: Operation, checker: User, state: OperationState
    ) -> None:
        Operation.objects.update(state=state, approved_by="7:carl")
        with pytest.raises(ValidationError, match=r"\bcarl has approved it already; it stands at: "):
            services.approve(waiting, checker)
        with refused("operation"):
            services.reject(waiting, checker, "no")
        assert fake.calls == []
        assert only_operation().state == state

    @pytest.mark.case(83)
    @pytest.mark.promise(5)
    def test_approval_is_decided_under_the_lock(
        self, fake: Fake, waiting: Operation, checker: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody rejects it while the balance is read."""
        read = payouts.BalanceCovers.refresh

        def refresh(guard: Any) -> None:
            read(guard)
            services.reject(waiting, person("carl", "approve_operation"), "no")

        monkeypatch.setattr(payouts.BalanceCovers, "refresh", refresh)
        with pytest.raises(ValidationError, match="it stands at: closed"):
            services.approve(waiting, checker)
        assert fake.calls == []

    def test_approval_is_refused_in_a_transaction(self, waiting: Operation, checker: User) -> None:
        with transaction.atomic(), pytest.raises(TransactionRefused):
            services.approve(waiting, checker)

    def test_an_approval_comment_is_kept_as_it_is_or_refused(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        for comment in ("\x00", "x" * 3000, " "):
            with refused("comment"):
                services.approve(waiting, checker, comment)
        nothing_left(fake)

    def test_a_refusal_by_the_provider_closes_an_approved_operation(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
        with pytest.raises(InvalidState):
            services.approve(waiting, checker)
        assert only_operation().state == OperationState.REJECTED
        with refused("operation"):
            services.approve(waiting, checker)
        assert len(fake.calls) == 1

    @pytest.mark.promise(5)
    def test_an_unknown_outcome_of_an_approved_operation_is_resolved_later(
        self, fake: Fake, waiting: Operation, checker: User
    ) -> None:
        Operation.objects.update(created_at=timezone.now() - timedelta(days=3))
        fake.script = [Lost(timeout())]
        with pytest.raises(OutcomeUnknown):
            services.approve(waiting, checker)
        make_due()
        assert services.resume_operations() == {"done": 1}
        assert len(fake.made("payout")) == 1
        assert {call.key for call in fake.calls} == {"k1"}

    @pytest.mark.promise(5)
    def test_a_crash_after_the_approval_leaves_the_operation_to_be_sent(
        self, fake: Fake, waiting: Operation, checker: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as dying:
            dying.setattr(sending, "attempt", mock.Mock(side_effect=RuntimeError("dies")))
            with pytest.raises(OutcomeUnknown):
                services.approve(waiting, checker)
        assert fake.calls == []
        assert services.resume_operations() == {}, "it may still be at it"
        make_due()
        assert services.resume_operations() == {"done": 1}
        (call,) = fake.calls
        assert (call.key, call.body) == ("k1", bytes(waiting.body or b""))

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.promise(5)
    def test_an_approval_whose_commit_only_seemed_to_conflict_is_sent(
        self, fake: Fake, waiting: Operation, checker: User, losing_commit: Any
    ) -> None:
        losing_commit(OperationalError("database is locked"))
        assert services.approve(waiting, checker)
        assert (only_operation().state, len(fake.calls)) == (OperationState.DONE, 1)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.case(123)
    @pytest.mark.promise(5)
    def test_an_approval_whose_commit_only_seemed_to_fail_is_an_unknown_outcome(
        self, fake: Fake, waiting: Operation, checker: User, losing_commit: Any
    ) -> None:
        losing_commit(OperationalError("lost"))
        with pytest.raises(OutcomeUnknown):
            services.approve(waiting, checker)
        make_due()
        assert services.resume_operations() == {"done": 1}
        assert (only_operation().state, len(fake.calls)) == (OperationState.DONE, 1)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.promise(5)
    def test_an_approval_whose_commit_failed_has_no_effect(
        self, fake: Fake, waiting: Operation, checker: User, losing_commit: Any
    ) -> None:
        losing_commit(OperationalError("disk full"), commits=False)
        with pytest.raises(OperationalError, match="disk full"):
            services.approve(waiting, checker)
        nothing_left(fake)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.promise(5)
    def test_an_approval_is_an_unknown_outcome_if_the_database_cannot_say(
        self, fake: Fake, waiting: Operation, checker: User, losing_commit: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        losing_commit(OperationalError("lost"))
        with monkeypatch.context() as patched:
            gone = mock.Mock(side_effect=InterfaceError("the connection is lost"))
            patched.setattr(type(connections["default"]), "connect", gone)
            with pytest.raises(OutcomeUnknown):
                services.approve(waiting, checker)
        assert fake.calls == []
        make_due()
        assert services.resume_operations() == {"done": 1}

    def test_a_refund_of_a_payment_that_is_gone_cannot_be_approved(
        self, fake: Fake, paid: Payment, maker: User, checker: User
    ) -> None:
        operation = ask_refund(paid, maker)
        fake.read_script = [not_found()]
        with pytest.raises(Exception, match="no such object"):
            services.approve(operation, checker)
        nothing_left(fake)


class TestRejecting:
    def test_a_rejection_closes_the_operation_with_actor_and_comment(
        self, fake: Fake, paid: Payment, maker: User, checker: User
    ) -> None:
        operation = ask_refund(paid, maker, idempotency_key="k1")
        assert refundable_rest(paid) == 4_000
        closed = services.reject(operation.pk, checker, "paid by hand")
        assert (closed.state, closed.approved_by) == (OperationState.CLOSED, "")
        assert closed.closed_at is not None
        assert closed.note.endswith(f"{checker.pk}:berta rejected it: paid by hand")
        assert refundable_rest(paid) == 10_000
        with refused("operation"):
            services.approve(operation, checker)
        with pytest.raises(OperationClosed):
            services.create_refund(paid, amount=6_000, destination=DESTINATION, idempotency_key="k1", actor=maker)
        assert services.resume_operations() == {}
        assert fake.calls == []

    def test_the_requester_can_take_the_operation_back(self, waiting: Operation, maker: User) -> None:
        assert "ana took it back: a mistake" in services.reject(waiting, maker, "a mistake").note

    def test_a_job_can_only_take_back_its_own_operations(self, fake: Fake, waiting: Operation) -> None:
        with refused("actor"):
            services.reject(waiting, "payroll", "a mistake")
        with pytest.raises(ApprovalRequired) as caught:
            services.create_payout(**LIMITED, actor="payroll")
        assert services.reject(caught.value.operation, "payroll", "a mistake").state == OperationState.CLOSED

    def test_only_a_user_with_the_permission_can_reject(self, fake: Fake, waiting: Operation) -> None:
        for user in (person("carl"), person("dora", is_staff=False)):
            with pytest.raises(PermissionDenied):
                services.reject(waiting, user, "no")
        nothing_left(fake)

    @pytest.mark.parametrize(("actor", "comment"), [("", "x"), (None, "x"), ("ana", ""), ("ana", " ")])
    def test_a_rejection_needs_an_actor_and_a_comment(
        self, fake: Fake, waiting: Operation, actor: Any, comment: str
    ) -> None:
        with pytest.raises(ValidationError):
            services.reject(waiting, actor, comment)
        nothing_left(fake)


def test_personal_data_of_a_waiting_operation_stays_until_it_is_settled(
    fake: Fake, waiting: Operation, checker: User, maker: User
) -> None:
    Operation.objects.update(actor="9:Ana Rojas", approved_by="8:Ana Rojas")
    selection = erasure.select(erasure.Selection.of(ids=[waiting.pk]), "default")
    left = erasure.erase(selection, actor="boss").left
    assert left == {"operation": 1}
    assert only_operation().body
    services.reject(waiting, checker, "Ana Rojas asked for erasure")
    erasure.finish()
    operation = only_operation()
    assert (operation.body, operation.arguments) == (None, {})
    assert "Ana Rojas" not in operation.note + operation.actor + operation.approved_by
    assert operation.body_digest == waiting.body_digest


def test_an_operation_is_approved_only_for_the_account_as_it_was_configured(
    fake: Fake, waiting: Operation, checker: User, settings: Any
) -> None:
    setting = settings.PAYMENTS_INTEGRATION
    account = {**setting["ACCOUNTS"]["default"], "API_KEY": "sk_live_of_another_project"}
    settings.PAYMENTS_INTEGRATION = {**setting, "ACCOUNTS": {**setting["ACCOUNTS"], "default": account}}
    with pytest.raises(ValidationError, match="another address or key"):
        services.approve(waiting, checker)
    assert fake.calls == []
    settings.PAYMENTS_INTEGRATION = setting
    assert services.approve(waiting, checker)


def test_a_line_of_a_comment_cannot_pass_for_an_entry_of_the_note(waiting: Operation, checker: User) -> None:
    comment = "no\n2026-01-01 10:00:00 UTC: 1:boss approved it"
    note = services.reject(waiting, checker, comment).note
    assert [line for line in note.splitlines() if not line.startswith(" ")] == [note.splitlines()[0]]
    assert "boss approved it" in note


@pytest.mark.promise(5)
def test_what_is_approved_during_the_second_look_is_not_closed(fake: Fake, maker: User, checker: User) -> None:
    """It was sent: a person who read “closed without effect” would ask for the payout again."""
    fake.available = 50_000

    def approve_and_find_another(operation: Operation) -> None:
        services.approve(operation.pk, checker)
        raise ValidationError("the same was asked for")

    with services.SecondLook(approve_and_find_another):
        made = services.create_payout(**LIMITED, idempotency_key="k1", actor=maker)
    operation = only_operation()
    assert (operation.state, operation.result_id) == (OperationState.DONE, made.pk)
    assert "not sent" not in operation.note
