"""What each answer means, for each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from msgspec import structs

from payments_integration import schemas, services
from payments_integration.exceptions import (
    ApiError,
    AuthenticationFailed,
    IdempotencyError,
    InvalidRequest,
    InvalidState,
    NoAnswer,
    NotFound,
    OperationClosed,
    OutcomeUnknown,
    PermissionRefused,
    ProviderError,
    RateLimited,
    UnsendableRequest,
)
from payments_integration.models import DueRefresh, Operation, OperationState, Payment
from payments_integration.outbox import outcomes
from tests.fake_provider import (
    DEPOSIT,
    ENDPOINT,
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    endpoint,
    make_due,
    only_operation,
    payment,
    payout,
    refund,
    refusal,
    timeout,
)

Do = Callable[[], Any]


@pytest.fixture(
    params=[
        "create_payment",
        "cancel_payment",
        "create_payout",
        "cancel_payout",
        "create_refund",
        "create_deposit_reference",
        "create_webhook_endpoint",
        "rotate_webhook_secret",
        "delete_webhook_endpoint",
    ]
)
def call(request: pytest.FixtureRequest, mirrored: Any) -> Do:
    """Each operation in turn."""
    name = request.param
    if name == "cancel_payment":
        row = mirrored(payment())
        return lambda: services.cancel_payment(row)
    if name == "cancel_payout":
        row = mirrored(payout())
        return lambda: services.cancel_payout(row)
    if name == "create_refund":
        row = mirrored(payment(status="succeeded", amount_received=10_000))
        return lambda: services.create_refund(row, amount=1_000)
    if name == "rotate_webhook_secret":
        row = mirrored(endpoint())
        return lambda: services.rotate_webhook_secret(row)
    if name == "delete_webhook_endpoint":
        row = mirrored(endpoint())
        return lambda: services.delete_webhook_endpoint(row)
    arguments = {
        "create_payment": PAYMENT,
        "create_payout": PAYOUT,
        "create_deposit_reference": DEPOSIT,
        "create_webhook_endpoint": ENDPOINT,
    }[name]
    return lambda: getattr(services, name)(**arguments)


REFUSALS = [
    (InvalidRequest, 400, "parameter_invalid"),
    (PermissionRefused, 403, "method_not_allowed"),
    (PermissionRefused, 403, "country_not_allowed"),
    (PermissionRefused, 403, "blocked_payer"),
    (InvalidState, 403, "limit_exceeded"),
    (NotFound, 404, "resource_not_found"),
    (InvalidState, 422, "insufficient_balance"),
    (InvalidState, 409, "invalid_state"),
]
#: About access or rate.
PASSING = [
    (AuthenticationFailed, 401, "api_key_invalid"),
    (AuthenticationFailed, 401, "api_key_revoked"),
    (InvalidRequest, 401, "something_new"),
    (AuthenticationFailed, 403, "api_key_revoked"),
    (InvalidRequest, 400, "api_key_invalid"),
    (PermissionRefused, 403, "merchant_not_active"),
    (InvalidRequest, 422, "merchant_not_active"),
    (RateLimited, 429, "rate_limited"),
]


def test_a_valid_answer_ends_the_operation_as_done(fake: Fake, call: Do) -> None:
    row = call()
    operation = only_operation()
    assert operation.state == OperationState.DONE
    assert operation.result_id == (row.pk if row is not None else operation.target_id)
    assert len(fake.calls) == 1
    assert fake.calls[0].key in (operation.idempotency_key, "")


@pytest.mark.any_database
@pytest.mark.parametrize(("kind", "status", "code"), REFUSALS)
def test_a_refusal_of_the_first_attempt_rejects_the_operation(
    fake: Fake, call: Do, kind: type[ProviderError], status: int, code: str
) -> None:
    fake.script = [refusal(kind, status, code)]
    with pytest.raises(kind) as caught:
        call()
    operation = only_operation()
    assert operation.state == OperationState.REJECTED
    assert operation.error == {
        "status_code": status,
        "type": kind.type,
        "code": code,
        "message": "no",
        "param": None,
        "request_id": caught.value.request_id,
    }
    assert not operation.may_have_run
    make_due()
    assert services.resume_operations() == {}
    assert len(fake.calls) == 1


@pytest.mark.case(125)
@pytest.mark.parametrize(("kind", "status", "code"), PASSING)
def test_a_refusal_of_access_or_rate_closes_the_operation(
    fake: Fake, call: Do, kind: type[ProviderError], status: int, code: str
) -> None:
    fake.script = [refusal(kind, status, code)]
    with pytest.raises(kind) as caught:
        call()
    operation = only_operation()
    assert (operation.state, operation.may_have_run) == (OperationState.CLOSED, False)
    assert (operation.error or {})["code"] == code
    assert code in operation.note
    assert operation.request_ids[-1] == caught.value.request_id
    make_due()
    assert services.resume_operations() == {}
    assert len(fake.calls) == 1


@pytest.mark.case(150)
def test_a_call_without_a_connection_is_closed(fake: Fake, call: Do) -> None:
    text = "http://127.0.0.1:8400 refused the connection. Is the sandbox running?"
    fake.script = [NoAnswer(text, was_connected=False)]
    with pytest.raises(NoAnswer) as caught:
        call()
    assert str(caught.value) == f"Nothing was sent: {text} Call again with the same key."
    assert not caught.value.was_connected
    operation = only_operation()
    assert (operation.state, operation.may_have_run) == (OperationState.CLOSED, False)
    assert f"Nothing was sent: {text}" in operation.note
    make_due()
    assert services.resume_operations() == {}
    assert len(fake.calls) == 1


def repeated(error: Any) -> Any:
    """An error or answer of an exchange that the client repeated on a new connection."""
    error.was_repeated = True
    return error


@pytest.mark.any_database
@pytest.mark.case(90)
@pytest.mark.parametrize(
    "error",
    [
        refusal(InvalidState, 422, "insufficient_balance"),
        refusal(AuthenticationFailed, 401, "api_key_invalid"),
        refusal(RateLimited, 429, "rate_limited"),
        NoAnswer("it refused the connection", was_connected=False),
    ],
)
def test_a_refusal_of_a_request_that_the_client_repeated_is_unknown(fake: Fake, call: Do, error: Exception) -> None:
    fake.script = [repeated(error)]
    with pytest.raises(OutcomeUnknown):
        call()
    operation = only_operation()
    assert (operation.state, operation.may_have_run) == (OperationState.UNKNOWN, True)


@pytest.mark.case(89)
def test_a_success_of_a_request_that_the_client_repeated_proves_identity_only(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may be that of the first attempt: the object is read."""
    monkeypatch.setattr("tests.fake_provider.answer", lambda data: repeated(_Answer(data)))

    def moved(made: Any) -> Any:
        old = structs.replace(made)
        made.status = "processing"
        return old

    fake.script = [moved]
    assert services.create_payout(**PAYOUT).status == "processing"
    assert fake.reads[-1].startswith("get pout_")
    assert only_operation().state == OperationState.DONE


class _Answer:
    """An answer with the mark of a repetition."""

    def __init__(self, data: Any) -> None:
        self.data, self.status_code, self.request_id, self.duration = data, 200, "req_1", 0.1
        self.answered_at = timezone.now().replace(microsecond=0)


UNKNOWNS: list[Exception] = [
    timeout(),
    refusal(ApiError, 500, "internal_error"),
    refusal(ApiError, 503, "service_unavailable"),
    refusal(ApiError, 400, "provider_unavailable"),
    refusal(InvalidRequest, 422, "provider_unavailable"),
    refusal(InvalidState, 422, "service_unavailable"),
    refusal(InvalidRequest, 400, "internal_error"),
    refusal(InvalidRequest, 408, "timeout"),
    refusal(IdempotencyError, 409, "idempotency_in_progress"),
    refusal(InvalidRequest, 409, "idempotency_in_progress"),
    refusal(InvalidState, 422, "idempotency_in_progress"),
    refusal(InvalidState, 409, "state_changed"),
    RuntimeError("a bug of ours"),
]


@pytest.mark.any_database
@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("error", UNKNOWNS, ids=lambda error: getattr(error, "code", type(error).__name__))
@pytest.mark.case(53)
@pytest.mark.case(56)
@pytest.mark.case(57)
@pytest.mark.promise(5)
def test_an_unknown_outcome_is_resolved_under_the_same_key(
    fake: Fake, call: Do, error: Exception, executed: bool
) -> None:
    fake.script = [Lost(error) if executed else error]
    with pytest.raises(OutcomeUnknown) as caught:
        call()
    assert caught.value.operation.state == OperationState.UNKNOWN
    assert only_operation().state == OperationState.UNKNOWN
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 2
    assert (fake.calls[0].key, fake.calls[0].body) == (fake.calls[1].key, fake.calls[1].body)
    done = Operation.objects.order_by("created_at")[0]
    assert done.state == OperationState.DONE
    for kind in ("payout", "refund", "deposit_reference"):
        assert len(fake.made(kind)) <= 1
    assert done.attempts == 2


@pytest.mark.case(57)
@pytest.mark.parametrize("kind", [IdempotencyError, InvalidRequest, ApiError])
def test_a_person_decides_about_an_idempotency_conflict(
    fake: Fake, call: Do, attention: list[str], kind: type[ProviderError]
) -> None:
    fake.script = [refusal(kind, 409, "idempotency_conflict")]
    with pytest.raises(OutcomeUnknown):
        call()
    assert only_operation().state == OperationState.NEEDS_PERSON
    assert attention == ["operation_needs_resolution"]
    make_due()
    assert services.resume_operations() == {}


@pytest.mark.any_database
@pytest.mark.parametrize(("kind", "status", "code"), REFUSALS)
@pytest.mark.case(90)
@pytest.mark.promise(5)
def test_a_refusal_after_an_attempt_that_may_have_run_proves_nothing(
    fake: Fake, call: Do, kind: type[ProviderError], status: int, code: str
) -> None:
    fake.script = [timeout(), refusal(kind, status, code)]
    with pytest.raises(OutcomeUnknown):
        call()
    make_due()
    counts = services.resume_operations()
    gone = kind is NotFound and only_operation().operation == "delete_webhook_endpoint"
    assert counts == ({"done": 1} if gone else {"unknown": 1})
    assert only_operation().may_have_run
    if not gone:
        make_due()
        assert services.resume_operations() == {"done": 1}


def test_a_rate_limited_first_attempt_of_a_worker_is_due_again(fake: Fake) -> None:
    fake.script = [refusal(RateLimited, 429, "rate_limited"), refusal(InvalidState, 422, "insufficient_balance")]
    services.defer(services.create_payout, **PAYOUT)
    assert only_operation().state == OperationState.DUE
    make_due()
    # The first attempt was certainly not executed, so the refusal counts.
    assert services.resume_operations() == {"rejected": 1}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
@pytest.mark.case(51)
@pytest.mark.promise(5)
def test_an_interruption_while_sending_is_an_unknown_outcome(fake: Fake, error: BaseException) -> None:
    fake.script = [Lost(error)]
    with pytest.raises(type(error)):
        services.create_payout(**PAYOUT)
    operation = only_operation()
    assert operation.state == OperationState.UNKNOWN
    assert services.resume_operations() == {}, "the claim still stands"
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


@pytest.mark.case(51)
@pytest.mark.promise(5)
def test_a_database_failure_after_the_answer_is_an_unknown_outcome(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(outcomes.projection, "write_answer", fail)
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT)
    assert only_operation().state == OperationState.UNKNOWN, "closing it was rolled back with the mirror"
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert len(fake.made("payout")) == 1


def test_a_request_that_the_client_refuses_to_send_is_closed(fake: Fake) -> None:
    fake.script = [UnsendableRequest("too large")]
    with pytest.raises(OperationClosed):
        services.create_payment(**PAYMENT)
    assert only_operation().state == OperationState.CLOSED
    fake.script = [timeout(), UnsendableRequest("too large")]
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    make_due()
    assert services.resume_operations() == {"needs_person": 1}


CONTRADICTIONS: list[Any] = [
    ("create_payment", lambda made: payment(amount=1)),
    ("create_payment", lambda made: payment(currency="USD")),
    pytest.param(
        "create_payment", lambda made: payment(merchant_reference="dashboard-1"), marks=pytest.mark.case(126)
    ),
    ("create_refund", lambda made: refund(payment_id="pay_other", amount=1_000)),
    ("create_refund", lambda made: refund(payment_id=made.payment_id, amount=999)),
    ("cancel_payment", lambda made: payment(status="canceled")),
]


@pytest.mark.parametrize(("name", "change"), CONTRADICTIONS)
@pytest.mark.case(56)
def test_an_answer_that_contradicts_the_operation_is_an_unknown_outcome(
    fake: Fake, mirrored: Any, name: str, change: Callable[[Any], Any]
) -> None:
    row = mirrored(payment(status="succeeded" if name == "create_refund" else "created", amount_received=10_000))
    fake.script = [change]
    calls: dict[str, Do] = {
        "create_payment": lambda: services.create_payment(**PAYMENT),
        "create_refund": lambda: services.create_refund(row, amount=1_000),
        "cancel_payment": lambda: services.cancel_payment(row),
    }
    with pytest.raises(OutcomeUnknown):
        calls[name]()
    assert only_operation().state == OperationState.UNKNOWN
    make_due()
    assert services.resume_operations() == {"done": 1}


def test_an_object_of_another_account_is_not_taken_over(fake: Fake, mirrored: Any) -> None:
    theirs = mirrored(payment(), account="second")
    fake.script = [lambda made: schemas.Payment(**{**_fields(made), "id": theirs.pk})]
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    theirs.refresh_from_db()
    assert theirs.account == "second"
    assert only_operation().state == OperationState.UNKNOWN
    assert only_operation().claim_token == "", "it was judged, not given up"


def is_left_alone(made: Any, was: Operation) -> None:
    """The object belongs to the operation that made it, as before."""
    assert Operation.objects.get(result_id=made.pk) == was
    now = Operation.objects.get(pk=was.pk)
    assert [getattr(now, each.name) for each in Operation._meta.fields] == [
        getattr(was, each.name) for each in Operation._meta.fields
    ]


CREATED: dict[str, Callable[[Payment], Any]] = {
    "create_payment": lambda paid: services.create_payment(**PAYMENT, merchant_reference="order-1"),
    "create_payout": lambda paid: services.create_payout(**PAYOUT, merchant_reference="order-1"),
    "create_refund": lambda paid: services.create_refund(paid, amount=1_000),
    "create_deposit_reference": lambda paid: services.create_deposit_reference(
        **DEPOSIT, merchant_reference="order-1"
    ),
    "create_webhook_endpoint": lambda paid: services.create_webhook_endpoint(**ENDPOINT),
}


@pytest.mark.case(102)
@pytest.mark.promise(5)
@pytest.mark.parametrize("is_repeated", [False, True], ids=["first", "repeated"])
@pytest.mark.parametrize("name", CREATED)
def test_an_answer_with_another_operations_object_is_an_unknown_outcome(
    fake: Fake, mirrored: Any, name: str, is_repeated: bool
) -> None:
    paid = mirrored(payment(status="succeeded", amount_received=10_000))
    made = CREATED[name](paid)
    was = Operation.objects.get()
    theirs = fake.objects[made.pk]
    fake.script = [timeout()] if is_repeated else [lambda mine: theirs]
    with pytest.raises(OutcomeUnknown) as caught:
        CREATED[name](paid)
    if is_repeated:
        fake.script = [lambda mine: theirs]
        make_due()
        assert services.resume_operations() == {"unknown": 1}
    mine = Operation.objects.get(pk=caught.value.operation.pk)
    assert (mine.state, mine.result_id, mine.claim_token) == (OperationState.UNKNOWN, "", "")
    assert "another operation's object" in mine.note
    is_left_alone(made, was)


@pytest.mark.case(102)
def test_an_answer_with_the_object_of_an_operation_that_has_no_answer_yet_is_unknown(fake: Fake) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    was, (theirs,) = Operation.objects.get(), fake.made("payment")
    fake.script = [lambda mine: theirs]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payment(**PAYMENT)
    assert caught.value.operation.state == OperationState.UNKNOWN
    assert not Payment.objects.exists()
    make_due()
    assert services.resume_operations() == {"done": 2}
    was.refresh_from_db()
    assert was.result_id == theirs.id


@pytest.mark.case(102)
def test_changes_name_the_object_of_the_operation_that_made_it(fake: Fake) -> None:
    made = services.create_payment(**PAYMENT)
    assert services.cancel_payment(made).status == "canceled"
    assert set(Operation.objects.values_list("state", "result_id")) == {("done", made.pk)}


@pytest.mark.case(89)
@pytest.mark.promise(3)
def test_the_answer_of_a_repeated_post_only_identifies_the_object(fake: Fake, mirrored: Any) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    made = fake.made("payment")[0]
    mirrored(schemas.Payment(**{**_fields(made), "status": "succeeded", "amount_received": 10_000}))
    # The provider repeats its first answer, from before the payer paid.
    fake.script = [lambda again: made]
    make_due()
    assert services.resume_operations() == {"done": 1}
    row = Payment.objects.get(pk=made.id)
    assert row.status == "succeeded"
    assert f"get {made.id}" in fake.reads


def test_the_object_stays_marked_if_the_get_after_a_repeated_post_fails(fake: Fake) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    fake.read_script = [None, timeout()]  # the key's age, the object
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert DueRefresh.objects.filter(object_id=only_operation().result_id).exists()


def test_a_worker_that_lost_its_claim_changes_nothing(fake: Fake) -> None:
    """The claim ran out while the request was under way, and another worker has finished the operation."""
    finished: list[dict[str, int]] = []

    def overtaken(made: Any) -> Any:
        if not finished:
            make_due()
            finished.append({})
            finished[0] = services.resume_operations()
        return made

    fake.script = [overtaken]
    row = services.create_payout(**PAYOUT)
    assert finished == [{"done": 1}]
    assert row.pk == only_operation().result_id
    assert only_operation().attempts == 2
    assert len(fake.made("payout")) == 1


@pytest.mark.case(42)
def test_a_worker_that_lost_its_claim_of_an_open_operation_changes_nothing(fake: Fake) -> None:
    def overtaken(made: Any) -> Any:
        Operation.objects.update(claim_token="another", note="theirs")
        return made

    fake.script = [overtaken]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    assert only_operation().note == "theirs"
    assert only_operation().claim_token == "another"


def _fields(resource: Any) -> dict[str, Any]:
    return {name: getattr(resource, name) for name in resource.__struct_fields__}


def test_the_operation_of_an_error_equals_its_row(fake: Fake) -> None:
    """It is not read again after its outcome: what the caller holds must be what there is."""
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payment(**PAYMENT, idempotency_key="k1")
    held = caught.value.operation
    kept = Operation.objects.get()
    names = [field.attname for field in Operation._meta.concrete_fields]
    assert [(name, getattr(held, name)) for name in names] == [(name, getattr(kept, name)) for name in names]
    assert held.state == OperationState.UNKNOWN
    assert held.claim_token == ""


@pytest.mark.promise(2)
@pytest.mark.promise(3)
def test_an_event_that_arrives_before_the_answer_is_kept(fake: Fake, mirrored: Any) -> None:
    """What was just made is inserted without being looked for; the database says that it is there already."""

    def overtaken(made: Any) -> Any:
        mirrored(payment(id=made.id, status="succeeded", amount_received=10_000))
        return made

    fake.script = [overtaken]
    row = services.create_payment(**PAYMENT, idempotency_key="k1")
    assert row == Payment.objects.get()
    assert row.status == "succeeded", "the answer is older"
    operation = Operation.objects.get()
    assert (operation.state, operation.result_id) == (OperationState.DONE, row.pk)
