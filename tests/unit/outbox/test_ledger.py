"""One key, one intent, for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, InterfaceError, OperationalError, connections, models, transaction
from django.db.models import signals
from django.test.utils import isolate_apps
from django.utils.functional import SimpleLazyObject

from payments_integration import permissions, services
from payments_integration.db import statements
from payments_integration.exceptions import (
    ApprovalRequired,
    AuthenticationFailed,
    IdempotencyMismatch,
    InvalidState,
    OperationClosed,
    OutcomeUnknown,
)
from payments_integration.models import Operation, OperationState, Payment, deletion_allowed
from payments_integration.models.operations import operation_id_for
from payments_integration.outbox import ledger
from payments_integration.outbox.operations import Intent, PreconditionFailed
from payments_integration.outbox.operations.refunds import WithinRest
from payments_integration.signals import dispatching
from tests.fake_provider import (
    DESTINATION,
    PAYER,
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    make_due,
    only_operation,
    payment,
    refusal,
    timeout,
)


def test_an_operation_records_the_call_as_it_is_sent(fake: Fake) -> None:
    row = services.create_payment(**PAYMENT, payer=PAYER, actor="nightly job", idempotency_key="k1")
    operation = only_operation()
    assert operation.state == OperationState.DONE
    assert (operation.result_kind, operation.result_id) == ("payment", row.pk)
    assert (operation.account, operation.operation) == ("default", "create_payment")
    assert (operation.amount, operation.currency, operation.actor) == (10_000, "CLP", "nightly job")
    assert bytes(operation.body or b"") == fake.calls[0].body
    assert operation.merchant_reference == operation.pk == row.merchant_reference
    assert "merchant_reference" not in operation.arguments
    assert operation.attempts == 1
    assert operation.closed_at is not None
    assert operation.first_sent_at is not None
    assert operation.claim_token == ""
    assert operation.next_attempt_at is None
    assert operation.request_ids[0].startswith("req_")
    assert operation.error is None


def test_a_visitor_who_is_not_logged_in_is_no_actor(fake: Fake) -> None:
    services.create_payment(**PAYMENT, actor=AnonymousUser())
    assert only_operation().actor == ""


def test_users_whose_primary_keys_begin_alike_are_different_actors() -> None:
    """A project's users may have long primary keys."""
    keys = ["a" * 64, "a" * 65, "a" * 200, hashlib.sha256(b"a" * 65).hexdigest()]
    people = [kind(pk=key) for key in keys for kind in (User, Group)]
    ids = {permissions.user_id(person) for person in people}
    assert len(ids) == len(people)
    assert all(len(each) <= 64 for each in ids)


def test_users_of_two_models_with_the_same_primary_key_are_different_actors() -> None:
    assert [permissions.user_id(kind(pk=7)) for kind in (User, Group)] == ["7", "auth.group:7"]


def test_the_user_of_a_token_is_the_user_with_its_key() -> None:
    assert permissions.user_id(SimpleNamespace(pk=7)) == permissions.user_id(User(pk=7))
    assert permissions.user_id(SimpleNamespace(pk="")) == ""


def test_a_class_made_from_the_user_model_has_its_keys(settings: Any) -> None:
    """Its instances are rows of the user model's table, or have one there."""
    with isolate_apps("tests"):

        class Staff(User):
            class Meta:
                app_label, proxy = "tests", True

        class Customer(User):
            class Meta:
                app_label = "tests"

        class Regular(Customer):
            class Meta:
                app_label = "tests"

        class Profile(models.Model):  # noqa: DJ008
            user = models.OneToOneField(User, models.CASCADE, primary_key=True)

            class Meta:
                app_label = "tests"

    for user in (Staff(pk=7), Customer(pk=7), Regular(pk=7), SimpleLazyObject(lambda: User(pk=7))):
        assert permissions.user_id(user) == "7"
    assert permissions.user_id(Profile(pk=7)) == "tests.profile:7"
    settings.AUTH_USER_MODEL = "tests.Customer"  # a project may derive it from another model
    assert permissions.user_id(Customer(pk=7)) == permissions.user_id(Regular(pk=7)) == "7"


def test_the_actor_is_kept_as_text(fake: Fake) -> None:
    user = User.objects.create(username="ana")
    services.create_payment(**PAYMENT, actor=user)
    assert only_operation().actor == f"{user.pk}:ana"


def test_a_customer_without_a_username_is_kept_by_the_text(fake: Fake) -> None:
    group = Group.objects.create(name="regulars")
    services.create_payment(**PAYMENT, actor=group)
    assert (only_operation().actor, only_operation().actor_id) == (f"{group.pk}:regulars", f"auth.group:{group.pk}")


@pytest.mark.parametrize("actor", [7, object(), Group()])
def test_what_is_no_user_and_no_text_is_refused_as_an_actor(fake: Fake, actor: object) -> None:
    with pytest.raises(ValidationError, match="must be a user or text"):
        services.create_payment(**PAYMENT, actor=actor)
    assert not Operation.objects.exists()


@pytest.mark.promise(5)
def test_an_operation_is_committed_as_sent_before_the_request_leaves(fake: Fake) -> None:
    seen: list[Operation] = []

    def look(made: Any) -> Any:
        seen.append(only_operation())
        return made

    fake.script = [look]
    services.create_payment(**PAYMENT)
    assert seen[0].state == OperationState.UNKNOWN
    assert seen[0].may_have_run
    assert seen[0].claim_token
    assert seen[0].claimed_until is not None
    assert seen[0].claimed_until == seen[0].next_attempt_at
    assert seen[0].first_sent_at is not None
    assert len(seen[0].sent_to) == 64


def test_without_a_key_two_calls_are_two_intents(fake: Fake) -> None:
    services.create_payment(**PAYMENT)
    services.create_payment(**PAYMENT)
    assert len(fake.calls) == 2
    assert fake.calls[0].key != fake.calls[1].key


@pytest.mark.promise(5)
def test_a_repeated_key_returns_the_row_as_it_is_now(fake: Fake) -> None:
    first = services.create_payout(**PAYOUT, idempotency_key="k1")
    fake.objects[first.pk].status = "processing"
    services.refresh(first)
    again = services.create_payout(**PAYOUT, idempotency_key="k1")
    assert (again.pk, again.status) == (first.pk, "processing")
    assert len(fake.calls) == 1
    assert Operation.objects.count() == 1


def test_a_repeated_key_reads_a_deleted_row_again(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, idempotency_key="k1")
    with deletion_allowed():
        Payment.objects.all().delete()
    assert services.create_payment(**PAYMENT, idempotency_key="k1") == first
    assert len(fake.calls) == 1


@pytest.mark.promise(5)
@pytest.mark.parametrize("error", [refusal(AuthenticationFailed, 401, "api_key_invalid"), timeout()])
def test_a_deleted_row_that_cannot_be_read_is_an_unknown_outcome(fake: Fake, error: Exception) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    with deletion_allowed():
        Payment.objects.all().delete()
    fake.read_script.append(error)
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT, idempotency_key="k1")
    assert isinstance(services.create_payment(**PAYMENT, idempotency_key="k1"), Payment)
    assert len(fake.calls) == 1


def test_the_payers_ip_and_device_are_not_compared(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, payer=PAYER, idempotency_key="k1")
    moved = {**PAYER, "ip": "198.51.100.7", "device_id": "another"}
    assert services.create_payment(**PAYMENT, payer=moved, idempotency_key="k1", actor="x") == first
    only_ip = services.create_payment(**PAYMENT, payer={"ip": "198.51.100.7"}, idempotency_key="k2")
    assert services.create_payment(**PAYMENT, idempotency_key="k2") == only_ip


def test_the_order_of_keys_in_a_dict_is_not_compared(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, metadata={"a": "1", "b": "2"}, idempotency_key="k1")
    assert services.create_payment(**PAYMENT, metadata={"b": "2", "a": "1"}, idempotency_key="k1") == first


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 10_001},
        {"currency": "USD"},
        {"merchant_reference": "o1"},
        {"payer": {**PAYER, "name": "Another"}},
        {"metadata": {"a": "b"}},
        {"flow": "s2s"},
    ],
)
def test_the_same_key_with_other_arguments_is_a_mismatch(fake: Fake, change: dict[str, Any]) -> None:
    services.create_payment(**PAYMENT, payer=PAYER, idempotency_key="k1")
    (name,) = change
    with pytest.raises(IdempotencyMismatch, match=rf"operation op_\w+ \(create_payment\) with another {name};"):
        services.create_payment(**{**PAYMENT, "payer": PAYER, **change}, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_defaults_that_are_filled_in_are_not_compared(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    # What was filled in is no argument of the caller.
    with pytest.raises(IdempotencyMismatch):
        services.create_payment(**PAYMENT, merchant_reference=only_operation().pk, idempotency_key="k1")


def test_the_same_key_for_another_operation_is_a_mismatch(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    services.cancel_payment(row, idempotency_key="k1")
    with pytest.raises(IdempotencyMismatch):
        services.create_payout(**PAYOUT, idempotency_key="k1")


def test_each_account_has_its_own_keys(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    fake.keys.clear()
    services.create_payment(**PAYMENT, idempotency_key="k1", account="second")
    assert len(fake.calls) == 2


def test_what_a_handler_paid_is_not_paid_again_through_another_account(
    fake: Fake, attentions: list[dict[str, Any]]
) -> None:
    """The setting with the account changed, and somebody has the event's handlers run again."""

    def handler(account: str) -> Operation:
        with transaction.atomic(), dispatching(name=lambda: "evt_1"):
            return services.defer(services.create_payout, **PAYOUT, account=account)

    first = handler("default")
    services.resume_operations()
    assert handler("default") == first
    again = handler("second")
    services.resume_operations()
    again.refresh_from_db()
    assert (again.state, len(fake.calls)) == (OperationState.CLOSED, 1)
    [told] = attentions
    assert "could not be sent: the same call was sent through another account" in told["message"]


def test_a_key_that_another_account_has_too_makes_a_double_click_no_mismatch(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1", account="second")
    fake.keys.clear()
    first = []

    def id_for(account: str, key: str) -> str:
        """The first click is recorded and sent while the second one looks for the key."""
        monkeypatch.setattr(ledger, "operation_id_for", operation_id_for)
        first.append(services.create_payment(**PAYMENT, idempotency_key="k1"))
        return operation_id_for(account, key)

    monkeypatch.setattr(ledger, "operation_id_for", id_for)
    assert [services.create_payment(**PAYMENT, idempotency_key="k1")] == first
    assert len(fake.calls) == 2


def test_keys_that_differ_by_case_are_different_keys(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    services.create_payment(**PAYMENT, idempotency_key="K1")
    assert len(fake.calls) == 2


def test_a_repeated_key_after_a_rejection_raises_the_same_error(fake: Fake) -> None:
    fake.script = [refusal(InvalidState, 422, "insufficient_balance")]
    with pytest.raises(InvalidState) as first:
        services.create_payout(**PAYOUT, idempotency_key="k1")
    with pytest.raises(InvalidState) as second:
        services.create_payout(**PAYOUT, idempotency_key="k1")
    assert str(first.value) == str(second.value)
    assert (second.value.code, second.value.status_code) == ("insufficient_balance", 422)
    assert second.value.request_id == first.value.request_id
    assert len(fake.calls) == 1


@pytest.mark.promise(5)
def test_a_repeated_key_of_an_unresolved_operation_sends_nothing(fake: Fake) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown) as first:
        services.create_payout(**PAYOUT, idempotency_key="k1")
    with pytest.raises(OutcomeUnknown) as second:
        services.create_payout(**PAYOUT, idempotency_key="k1")
    assert second.value.operation == first.value.operation
    assert len(fake.calls) == 1


def test_a_repeated_key_of_a_closed_operation_raises_operation_closed(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    Operation.objects.update(state=OperationState.CLOSED)
    with pytest.raises(OperationClosed):
        services.create_payment(**PAYMENT, idempotency_key="k1")


def test_a_repeated_key_of_a_waiting_operation_raises_approval_required(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    Operation.objects.update(state=OperationState.AWAITING_APPROVAL)
    with pytest.raises(ApprovalRequired):
        services.create_payment(**PAYMENT, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_a_repeated_refund_is_not_checked_against_the_rest(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    first = services.create_refund(row, idempotency_key="k1")
    assert services.create_refund(row.pk, idempotency_key="k1") == first


def test_a_repeated_cancel_is_not_checked_against_the_status(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment())
    services.cancel_payment(row, idempotency_key="k1")
    assert services.cancel_payment(row, idempotency_key="k1").status == "canceled"
    assert len(fake.calls) == 1


URL = "https://shop.example/en/back"


@pytest.mark.parametrize("first", [{}, {"return_url": URL}])
@pytest.mark.parametrize("second", [{}, {"return_url": "https://www.shop.example/es/volver"}])
def test_the_address_of_return_is_not_compared(fake: Fake, first: dict[str, str], second: dict[str, str]) -> None:
    """It changes with the page's language and host, and with SECRET_KEY."""
    made = services.create_payment(**PAYMENT, **first, idempotency_key="k1")
    assert services.create_payment(**PAYMENT, **second, idempotency_key="k1") == made
    with pytest.raises(IdempotencyMismatch, match="with another amount; nothing was sent"):
        services.create_payment(**{**PAYMENT, "amount": 1}, **second, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_an_address_of_return_is_recognised_after_its_body_was_erased(fake: Fake) -> None:
    made = services.create_payment(**PAYMENT, return_url=URL, idempotency_key="k1")
    Operation.objects.update(body=None, arguments={})
    assert services.create_payment(**PAYMENT, return_url=URL, idempotency_key="k1") == made


@pytest.mark.case(83)
def test_of_two_calls_at_once_the_second_finds_the_first(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner commits between our look and our insert."""
    first = services.create_payment(**PAYMENT, idempotency_key="k1")
    looks: list[int] = []
    find = ledger.find

    def blind(intent: Any) -> Operation | None:
        looks.append(1)
        return None if len(looks) < 3 else find(intent)

    monkeypatch.setattr(ledger, "find", blind)
    assert services.create_payment(**PAYMENT, idempotency_key="k1") == first
    assert len(fake.calls) == 1


@pytest.mark.promise(5)
@pytest.mark.parametrize("error", [refusal(AuthenticationFailed, 401, "api_key_invalid"), timeout()])
@pytest.mark.parametrize("step", ["prepare", "refresh"])
def test_of_two_calls_at_once_the_second_finds_the_first_although_reading_fails(
    fake: Fake, mirrored: Any, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """The winner commits while the loser reads, and the reading fails: after an error, a caller uses another key."""
    paid = mirrored(payment(status="succeeded", amount_received=10_000))
    refund = partial(services.create_refund, paid, amount=6_000, idempotency_key="k1")
    made: list[Any] = []

    def overtaken(precondition: WithinRest) -> None:
        if not made:
            made.append(None)
            made[0] = refund()
            raise error

    monkeypatch.setattr(WithinRest, step, overtaken)
    if step == "refresh":
        doubts = iter([PreconditionFailed({"payment": ["Nothing is left to refund."]})])
        decide = WithinRest.decide

        def doubtful(precondition: WithinRest, intent: Any) -> Any:
            for doubt in doubts:
                raise doubt
            return decide(precondition, intent)

        monkeypatch.setattr(WithinRest, "decide", doubtful)
    assert refund() == made[0]
    assert len(fake.calls) == 1


@pytest.mark.case(83)
def test_of_two_calls_at_once_the_second_finds_the_first_in_a_callers_transaction(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    monkeypatch.setattr(ledger, "find", lambda intent: None)
    with transaction.atomic():
        operation = services.defer(services.create_payment, **PAYMENT, idempotency_key="k1")
        assert operation == only_operation()
        with pytest.raises(IdempotencyMismatch):
            services.defer(services.create_payment, **{**PAYMENT, "amount": 1}, idempotency_key="k1")
    monkeypatch.setattr(ledger, "_find_locked", lambda intent: None)
    with transaction.atomic(), pytest.raises(IntegrityError):
        services.defer(services.create_payment, **PAYMENT, idempotency_key="k1")
    assert len(fake.calls) == 1


def test_the_key_of_an_operation_that_was_sent_under_a_newer_api_key_is_recognised(fake: Fake, settings: Any) -> None:
    """Another account has the API key under which it was recorded, so both operations would have one id."""
    with dispatching():
        services.defer(services.create_payout, **PAYOUT, idempotency_key="k1")
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    accounts = {"default": {**accounts["default"], "API_KEY": "sk_test_new"}, "second": accounts["default"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    services.resume_operations()
    with pytest.raises(IdempotencyMismatch):
        services.create_payout(**PAYOUT, idempotency_key="k1", account="second")


def test_the_hash_of_arguments_never_changes(fake: Fake) -> None:
    """Operations of older versions must still be recognised: this value must never change."""
    services.create_payout(**{**PAYOUT, "destination": DESTINATION}, idempotency_key="k1")
    content = (
        '["create_payout",{"amount":5000,"country":"CL","currency":"CLP","destination":'
        '{"account_number":"00123456789","account_type":"checking","bank_code":"012","holder_document":'
        '{"number":"12.345.678-5","type":"RUT"},"holder_name":"Ana Rojas","type":"bank_account"},'
        '"method_code":"cl_bank_transfer"}]'
    )
    assert only_operation().arguments_hash == hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.case(87)
def test_a_repeated_key_is_recognised_after_its_body_was_erased(fake: Fake) -> None:
    first = services.create_payment(**PAYMENT, payer=PAYER, idempotency_key="k1")
    Operation.objects.update(body=None, arguments={})
    assert services.create_payment(**PAYMENT, payer=PAYER, idempotency_key="k1") == first
    with pytest.raises(IdempotencyMismatch):
        services.create_payment(**PAYMENT, idempotency_key="k1")


def test_a_call_at_once_waits_ten_seconds_for_the_rate_limit(fake: Fake) -> None:
    services.create_payment(**PAYMENT, idempotency_key="k1")
    assert fake.calls[0].max_wait == 10.0


@pytest.fixture
def commits_lose_their_answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Arms the connection: the next commit with an operation in it is done, and then seems to fail."""
    backend = type(connections["default"])
    real = backend._commit
    armed: list[Exception] = []

    def commit(self: Any) -> None:
        # Asked before: after it, the question itself would begin a transaction (PostgreSQL).
        is_recorded = bool(armed) and Operation.objects.exists()
        real(self)
        if is_recorded:
            raise armed.pop()

    def arm(error: Exception | None = None) -> None:
        armed.append(error or OperationalError("server closed the connection unexpectedly"))

    monkeypatch.setattr(backend, "_commit", commit)
    yield arm
    assert not armed


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(51)
@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "error", [OperationalError("lost"), InterfaceError("closed"), OperationalError("database is locked")]
)
@pytest.mark.parametrize("key", [None, "k1"])
def test_a_call_is_an_unknown_outcome_if_its_commit_only_seemed_to_fail(
    fake: Fake, commits_lose_their_answer: Any, error: Exception, key: str | None
) -> None:
    commits_lose_their_answer(error)
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payout(**PAYOUT, idempotency_key=key)
    assert caught.value.operation.pk == only_operation().pk
    assert not fake.calls
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(51)
@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "error", [OperationalError("lost"), InterfaceError("closed"), OperationalError("database is locked")]
)
@pytest.mark.parametrize("key", [None, "k1"])
def test_a_call_is_an_unknown_outcome_if_its_insert_only_seemed_to_fail(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, error: Exception, key: str | None
) -> None:
    """An operation that nothing is decided about is committed by its INSERT."""
    real, errors = statements._insert, [error]

    def insert(row: Any, *args: Any) -> int:
        count = real(row, *args)
        if errors and isinstance(row, Operation):
            raise errors.pop()
        return count

    monkeypatch.setattr(statements, "_insert", insert)
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payment(**PAYMENT, idempotency_key=key)
    assert caught.value.operation.pk == only_operation().pk
    assert not fake.calls
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payment")) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(51)
@pytest.mark.promise(5)
def test_a_call_at_once_finds_the_one_that_was_recorded_since_it_looked(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = services.create_payment(**PAYMENT, idempotency_key="k1")
    with monkeypatch.context() as patched:
        real, looks = ledger.find, iter([True])
        patched.setattr(ledger, "find", lambda intent: None if next(looks, False) else real(intent))
        assert services.create_payment(**PAYMENT, idempotency_key="k1") == first
    assert len(fake.calls) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(123)
@pytest.mark.promise(5)
def test_a_deferred_call_is_kept_if_its_commit_only_seemed_to_fail(fake: Fake, commits_lose_their_answer: Any) -> None:
    commits_lose_their_answer()
    with pytest.raises(OutcomeUnknown) as caught:
        services.defer(services.create_payout, **PAYOUT)
    assert caught.value.operation.state == OperationState.DUE
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(123)
@pytest.mark.promise(5)
@pytest.mark.parametrize("gone", [OperationalError("the server is away"), TimeoutError()])
def test_a_call_is_an_unknown_outcome_if_nothing_says_whether_it_was_committed(
    fake: Fake, commits_lose_their_answer: Any, monkeypatch: pytest.MonkeyPatch, gone: Exception
) -> None:
    def connect(*_: Any) -> None:
        raise gone

    commits_lose_their_answer()
    connections["default"].ensure_connection()
    with monkeypatch.context() as patched:
        patched.setattr(type(connections["default"]), "connect", connect)
        with pytest.raises(OutcomeUnknown) as caught:
            services.create_payout(**PAYOUT)
    assert caught.value.operation.pk == only_operation().pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise(5)
@pytest.mark.parametrize("deferred", [True, False])
def test_a_commit_that_failed_leaves_no_operation(fake: Fake, monkeypatch: pytest.MonkeyPatch, deferred: bool) -> None:
    def fail(self: Any) -> None:
        patched.undo()
        raise OperationalError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(type(connections["default"]), "_commit", fail)
        with pytest.raises(OperationalError, match="disk full"):
            services.defer(services.create_payout, **PAYOUT) if deferred else services.create_payout(**PAYOUT)
    assert not Operation.objects.exists()
    assert not fake.calls


@pytest.mark.django_db(transaction=True)
def test_an_error_before_anything_is_written_is_raised(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(statements, "insert_like_save", fail)
    with pytest.raises(OperationalError, match="gone"):
        services.create_payout(**PAYOUT)


@pytest.mark.promise(5)
def test_recording_a_call_that_is_not_deferred_needs_its_own_commit(fake: Fake) -> None:
    """The second barrier, should a way in forget the first."""
    intent = Intent(operation="create_payment", account="default", arguments={})
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        ledger.record(intent, deferred=False)
    assert not Operation.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(123)
@pytest.mark.promise(5)
@pytest.mark.parametrize("signal", [signals.pre_save, signals.post_save])
@pytest.mark.parametrize(
    "call", [partial(services.create_payout, **PAYOUT), partial(services.create_payment, **PAYMENT)]
)
def test_an_error_of_another_app_while_an_operation_is_written_leaves_none(
    fake: Fake, signal: Any, call: Callable[[], Any]
) -> None:
    def fail(sender: Any, **_: Any) -> None:
        raise ConnectionError("the search engine is away")

    signal.connect(fail, sender=Operation)
    try:
        with pytest.raises(ConnectionError):
            call()
    finally:
        signal.disconnect(fail, sender=Operation)
    assert not Operation.objects.exists()
    assert not fake.calls


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(123)
@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", [ConnectionError, TimeoutError])
@pytest.mark.parametrize("name", ["at once", "deferred"])
def test_a_hook_of_another_app_that_fails_after_the_commit_makes_no_second_payout(
    fake: Fake, kind: type[Exception], name: str
) -> None:
    """The caller asks again, whatever it was told but "unknown"; then the workers come."""

    def register(sender: Any, **_: Any) -> None:
        transaction.on_commit(fail)

    def fail() -> None:
        raise kind("the cache is away")

    call = partial(services.defer, services.create_payout) if name == "deferred" else services.create_payout
    signals.post_save.connect(register, sender=Operation)
    try:
        for _ in range(2):
            try:
                call(**PAYOUT)
            except OutcomeUnknown:
                break
            except kind:
                continue
            else:
                break
    finally:
        signals.post_save.disconnect(register, sender=Operation)
    make_due()
    services.resume_operations()
    assert len(fake.made("payout")) == 1
    assert only_operation().state == OperationState.DONE


@pytest.mark.django_db(transaction=True)
@pytest.mark.case(123)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_end_of_the_process_is_raised_again(fake: Fake, kind: type[BaseException]) -> None:
    fake.script = [Lost(kind())]
    with pytest.raises(kind):
        services.create_payout(**PAYOUT)
    assert only_operation().state == OperationState.UNKNOWN
