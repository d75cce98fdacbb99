"""Money moves at most once per intent: against the sandbox, with faults and kills at every step."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import requests
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings
from django.utils import timezone

from payments_integration import projection, services, wakeup
from payments_integration.db.encryption import decrypt
from payments_integration.exceptions import (
    InvalidState,
    NotFound,
    OutcomeUnknown,
    PaymentsError,
    ProviderError,
    RateLimited,
)
from payments_integration.models import (
    DepositReference,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
    WebhookEndpoint,
    deletion_allowed,
)
from payments_integration.outbox import ledger, outcomes, sending
from payments_integration.outbox.operations.payments import CreatePayment
from payments_integration.outbox.operations.payouts import CreatePayout
from payments_integration.outbox.operations.webhook_endpoints import RotateWebhookSecret
from payments_integration.sandbox import Fault
from payments_integration.sandbox.payments import Payments
from payments_integration.testing.provider import API_KEY, ProviderSandbox
from tests.servers import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

DESTINATION = {
    "type": "bank_account",
    "account_number": "00123456789",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}
PAYOUT = {
    "amount": 5_000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
ENDPOINT = {"url": "https://shop.example/hook/", "events": ["payment.succeeded"]}
#: So that silence is noticed soon. Only where there is some: a busy machine is not always quicker than that.
SHORT = {"CONNECT_TIMEOUT": 1.0, "READ_TIMEOUT": 0.5, "REQUEST_DEADLINE": 1.0}

REPEATABLE_READ = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "mysql": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
}

Do = Callable[[ProviderSandbox], Any]


class Killed(SystemExit):
    """The process dies here."""


@pytest.fixture
def sandbox() -> Iterator[ProviderSandbox]:
    previous = wakeup.set_hook(None)
    with ProviderSandbox() as provider:
        provider.engine.fund("CLP", 1_000_000)
        yield provider
        assert provider.engine.audit() == []
    wakeup.set_hook(previous)


def paid(sandbox: ProviderSandbox) -> Payment:
    row = services.create_payment(**PAYMENT, merchant_reference="paid before")
    sandbox.engine.pay(row.pk)
    return services.refresh(row)


def make_due() -> None:
    Operation.objects.update(next_attempt_at=None, claimed_until=None)


def posts(sandbox: ProviderSandbox, operation: str) -> list[Any]:
    return [entry for entry in sandbox.engine.requests if entry["operation"] == operation]


def made(sandbox: ProviderSandbox) -> dict[str, int]:
    """How many objects the calls under test made at the provider."""
    engine = sandbox.engine
    return {
        "create_payment": sum(1 for p in engine.payments.values() if p["merchant_reference"] != "paid before"),
        "create_payout": sum(1 for p in engine.payouts.values() if p["refund_id"] is None),
        "create_refund": len(engine.refunds),
        "create_deposit_reference": len(engine.deposit_references),
        "create_webhook_endpoint": len(engine.endpoints) - 1,
    }


CREATES: dict[str, Callable[..., Any]] = {
    "create_payment": lambda payment, **kw: services.create_payment(**PAYMENT, **kw),
    "create_payout": lambda payment, **kw: services.create_payout(**PAYOUT, **kw),
    "create_refund": lambda payment, **kw: services.create_refund(
        payment, amount=4_000, destination=DESTINATION, **kw
    ),
    "create_deposit_reference": lambda payment, **kw: services.create_deposit_reference(**DEPOSIT, **kw),
    "create_webhook_endpoint": lambda payment, **kw: services.create_webhook_endpoint(**ENDPOINT, **kw),
}
MODELS: dict[str, Any] = {
    "create_payment": Payment,
    "create_payout": Payout,
    "create_refund": Refund,
    "create_deposit_reference": DepositReference,
    "create_webhook_endpoint": WebhookEndpoint,
}


@pytest.fixture(params=list(CREATES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def create(sandbox: ProviderSandbox, name: str) -> Callable[..., Any]:
    payment = paid(sandbox) if name == "create_refund" else None
    return lambda **kwargs: CREATES[name](payment, **kwargs)


def the_operation(name: str) -> Operation:
    return Operation.objects.exclude(merchant_reference="paid before").get(operation=name)


def assert_made_once(sandbox: ProviderSandbox, name: str) -> None:
    """Exactly one object there, exactly one here, and the operation says which."""
    assert made(sandbox)[name] == 1
    operation = the_operation(name)
    assert operation.state == OperationState.DONE
    row = MODELS[name].objects.get(pk=operation.result_id)
    if name == "create_webhook_endpoint":
        assert sandbox.engine.endpoint(row.pk).secret in projection.active_secrets("default")


# every way not to get an answer

FAULTS = [
    Fault("reset"),
    Fault("reset", work=True),
    Fault("truncate"),
    Fault("html"),
    Fault("html", work=True),
    Fault("redirect"),
    Fault("redirect", work=True),
    Fault("error", code="internal_error", status=500),
    Fault("error", code="service_unavailable", status=503, work=True),
    Fault("in_progress"),
    Fault("wrong_kind"),
]


@pytest.mark.case(53)
@pytest.mark.case(55)
@pytest.mark.case(56)
@pytest.mark.case(57)
@pytest.mark.promise(5)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}-{fault.work}")
def test_a_call_without_an_answer_is_resolved_once(
    sandbox: ProviderSandbox, name: str, create: Callable[..., Any], fault: Fault
) -> None:
    sandbox.engine.faults.add(Fault(**{**_wire(fault), "operation": name}))
    with pytest.raises(OutcomeUnknown):
        create(idempotency_key="k1")
    assert the_operation(name).state == OperationState.UNKNOWN
    with pytest.raises(OutcomeUnknown):
        create(idempotency_key="k1")
    make_due()
    services.resume_operations()
    assert_made_once(sandbox, name)
    again = create(idempotency_key="k1")
    assert again.pk == the_operation(name).result_id
    assert made(sandbox)[name] == 1


@pytest.mark.case(54)
@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "fault",
    [Fault("slow", delay=60.0, work=True), Fault("slow", delay=60.0), Fault("drip", count=20, delay=3.0)],
    ids=["slow after", "slow before", "drip"],
)
def test_a_call_to_a_silent_provider_is_resolved_once(sandbox: ProviderSandbox, settings: Any, fault: Fault) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, **SHORT}
    sandbox.engine.faults.add(Fault(**{**_wire(fault), "operation": "create_payout"}))
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    assert time.monotonic() - began < 50, "it gave up before the answer came"

    def is_done() -> bool:
        make_due()
        counts = services.resume_operations()
        assert counts in ({"unknown": 1}, {"done": 1}), "still running there, or done"
        return counts == {"done": 1}

    if not is_done():
        sandbox.engine.gateway.closing.set()  # ends the pause
        wait_until(is_done, 60, "the provider to be done with it")
    assert_made_once(sandbox, "create_payout")


@pytest.mark.case(58)
@pytest.mark.parametrize("retry_after", [None, "-1", "0", "soon", "1", "999999"])
def test_a_call_that_is_rate_limited_is_not_made_twice(sandbox: ProviderSandbox, retry_after: str | None) -> None:
    sandbox.engine.faults.add(Fault("rate_limited", operation="create_payout", retry_after=retry_after, times=1))
    began = time.monotonic()
    if retry_after == "999999":
        with pytest.raises(RateLimited):
            services.create_payout(**PAYOUT, idempotency_key="k1")
        assert the_operation("create_payout").state == OperationState.CLOSED
        make_due()
        assert services.resume_operations() == {}
        assert made(sandbox)["create_payout"] == 0
        services.create_payout(**PAYOUT, idempotency_key="k1")
        assert_made_once(sandbox, "create_payout")
    else:
        services.create_payout(**PAYOUT)
        assert_made_once(sandbox, "create_payout")
        assert len({entry["idempotency_key"] for entry in posts(sandbox, "create_payout")}) == 1
    assert time.monotonic() - began < 11


# every place to die

CRASHES: dict[str, tuple[Any, str]] = {
    "recorded, not sent": (sending, "attempt"),
    "sent, nothing saved": (outcomes, "done"),
    "saving: the operation closed, the mirror not written": (projection, "write_answer"),
    "saved, not returned": (sending, "Sent"),
}


@pytest.mark.case(50)
@pytest.mark.case(51)
@pytest.mark.promise(5)
@pytest.mark.parametrize("point", list(CRASHES))
def test_a_call_whose_process_was_killed_is_resolved_once(
    sandbox: ProviderSandbox,
    name: str,
    create: Callable[..., Any],
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(*CRASHES[point], die)
        with pytest.raises(Killed):
            create(idempotency_key="k1")
    expected = 0 if point == "recorded, not sent" else 1
    assert made(sandbox)[name] == expected
    operation = the_operation(name)
    if point == "saved, not returned":
        assert operation.state == OperationState.DONE
    else:
        assert operation.state == OperationState.UNKNOWN
        assert services.resume_operations() == {}, "the dead one's claim still stands"
        make_due()
        assert services.resume_operations() == {"done": 1}
    assert_made_once(sandbox, name)
    assert create(idempotency_key="k1").pk == the_operation(name).result_id
    assert made(sandbox)[name] == 1


@pytest.mark.promise(5)
def test_an_operation_survives_repeated_kills_while_it_is_resumed(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(outcomes.Claim, "release", die)
        with pytest.raises(Killed):
            services.create_payout(**PAYOUT)
        for _ in range(5):
            make_due()
            with pytest.raises(Killed):
                services.resume_operations()
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert_made_once(sandbox, "create_payout")
    assert len(posts(sandbox, "create_payout")) == 7


@pytest.mark.parametrize("fault", ["reset", "wrong_id"])
@pytest.mark.parametrize("kind", ["payment", "payout"])
@pytest.mark.case(51)
@pytest.mark.case(56)
def test_a_cancel_whose_answer_is_lost_is_resolved(sandbox: ProviderSandbox, kind: str, fault: str) -> None:
    row: Any = services.create_payment(**PAYMENT) if kind == "payment" else services.create_payout(**PAYOUT)
    cancel: Any = getattr(services, f"cancel_{kind}")
    sandbox.engine.faults.add(Fault(fault, operation=f"cancel_{kind}", work=True))
    with pytest.raises(OutcomeUnknown):
        cancel(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    row.refresh_from_db()
    assert row.status == "canceled"


# the provider forgets, or is another one


@pytest.mark.case(60)
@pytest.mark.promise(5)
@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("name", ["create_payment", "create_payout", "create_refund"], indirect=True)
def test_an_operation_older_than_a_day_is_looked_up(
    sandbox: ProviderSandbox, name: str, create: Callable[..., Any], executed: bool
) -> None:
    sandbox.engine.faults.add(Fault("reset", operation=name, work=executed))
    with pytest.raises(OutcomeUnknown):
        create()
    sent = timezone.now() - timedelta(hours=25)
    Operation.objects.filter(operation=name).update(first_sent_at=sent, last_sent_at=sent)
    make_due()
    services.resume_operations()
    operation = the_operation(name)
    assert len([entry for entry in posts(sandbox, name) if entry["idempotency_key"] == operation.idempotency_key]) == 1
    if executed:
        assert_made_once(sandbox, name)
    else:
        assert operation.state == OperationState.NEEDS_PERSON
        assert made(sandbox)[name] == 0
        services.mark_never_happened(operation, "ana", "the dashboard does not have it")
        create()
        assert made(sandbox)[name] == 1


@pytest.mark.case(91)
@pytest.mark.promise(5)
def test_an_unknown_operation_is_looked_up_after_the_api_key_is_replaced(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("reset", operation="create_payout", work=True))
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    sandbox.engine.add_key("sk_test_new")
    make_due()
    with _key(sandbox, "sk_test_new"):
        assert services.resume_operations() == {"done": 1}
    assert len(posts(sandbox, "create_payout")) == 1
    assert_made_once(sandbox, "create_payout")


@pytest.mark.case(90)
@pytest.mark.case(91)
@pytest.mark.promise(5)
def test_a_revoked_api_key_does_not_reject_an_attempt_that_ran(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("reset", operation="create_payout", work=True))
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    sandbox.engine.revoke_key(API_KEY)
    make_due()
    assert services.resume_operations() == {"unknown": 1}
    sandbox.engine.add_key("sk_test_new")
    make_due()
    with _key(sandbox, "sk_test_new"):
        assert services.resume_operations() == {"done": 1}
    assert_made_once(sandbox, "create_payout")


@pytest.mark.case(57)
def test_a_key_that_the_provider_knows_for_another_request_needs_a_person(sandbox: ProviderSandbox) -> None:
    services.create_payout(**PAYOUT, idempotency_key="k1")
    with deletion_allowed():
        Operation.objects.all().delete()
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_payout(**PAYOUT, idempotency_key="k1", metadata={"another": "call"})
    assert caught.value.operation.state == OperationState.NEEDS_PERSON
    assert made(sandbox)["create_payout"] == 1


@pytest.mark.case(62)
@pytest.mark.promise(5)
def test_of_two_equal_refunds_the_unknown_one_finds_its_own(sandbox: ProviderSandbox) -> None:
    payment = paid(sandbox)
    kwargs: dict[str, Any] = {"amount": 3_000, "destination": DESTINATION}
    first = services.create_refund(payment, **kwargs)
    sandbox.engine.faults.add(Fault("reset", operation="create_refund", work=True))
    with pytest.raises(OutcomeUnknown):
        services.create_refund(payment, **kwargs)
    Operation.objects.filter(state=OperationState.UNKNOWN).update(first_sent_at=timezone.now() - timedelta(hours=24))
    make_due()
    assert services.resume_operations() == {"done": 1}
    linked = set(Operation.objects.filter(operation="create_refund").values_list("result_id", flat=True))
    assert linked == set(sandbox.engine.refunds)
    assert first.pk in linked


# webhooks and answers


@pytest.mark.case(61)
@pytest.mark.promise(2)
def test_a_webhook_that_arrives_before_the_answer_makes_one_row(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    contradicts = CreatePayout.contradicts

    def deliver_first(*args: Any) -> str:
        assert sandbox.deliver() >= 1
        return contradicts(*args)

    monkeypatch.setattr(CreatePayout, "contradicts", deliver_first)
    row = services.create_payout(**PAYOUT)
    sandbox.settle()
    assert_made_once(sandbox, "create_payout")
    assert Payout.objects.count() == 1
    assert Payout.objects.get().pk == row.pk


@pytest.mark.case(89)
@pytest.mark.promise(3)
def test_an_old_answer_of_a_repeated_post_does_not_overwrite_an_event(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("reset", operation="create_payment", work=True))
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT)
    payment_id = next(iter(sandbox.engine.payments))
    sandbox.engine.pay(payment_id)
    sandbox.deliver()
    make_due()
    assert services.resume_operations() == {"done": 1}
    row = Payment.objects.get()
    assert (row.pk, row.status) == (payment_id, "succeeded")
    sandbox.settle()
    row.refresh_from_db()
    assert row.status == "succeeded"


@pytest.mark.case(63)
@pytest.mark.promise(1)
def test_deliveries_are_accepted_through_a_lost_rotation(sandbox: ProviderSandbox) -> None:
    row = services.create_webhook_endpoint(
        url="https://testserver/payments/webhook/default/", events=["payment.created"]
    )
    path = f"/webhook-endpoints/{row.pk}/rotate-secret"
    sandbox.engine.faults.add(Fault("reset", path=path, work=True))
    with pytest.raises(OutcomeUnknown):
        services.rotate_webhook_secret(row)
    secret = sandbox.engine.endpoint(row.pk).secret
    assert secret not in projection.active_secrets("default")
    services.create_payment(**PAYMENT)
    sandbox.deliver()
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert secret in projection.active_secrets("default")
    services.create_payment(**PAYMENT)
    sandbox.deliver()
    statuses = {entry["status"] for entry in sandbox.engine.deliveries if entry["endpoint_id"] == row.pk}
    assert statuses == {200}


@pytest.mark.case(63)
@pytest.mark.promise(1)
@pytest.mark.parametrize("ahead", [0, 600], ids=["right clock", "clock ahead at the newer one"])
def test_the_secret_of_an_older_rotation_does_not_replace_a_newer_one(sandbox: ProviderSandbox, ahead: int) -> None:
    row = services.create_webhook_endpoint(
        url="https://testserver/payments/webhook/default/", events=["payment.created"]
    )
    sandbox.engine.faults.add(Fault("reset", path=f"/webhook-endpoints/{row.pk}/rotate-secret", work=True))
    with pytest.raises(OutcomeUnknown):
        services.rotate_webhook_secret(row)
    services.rotate_webhook_secret(row)
    WebhookEndpoint.objects.filter(pk=row.pk).update(secret_since=timezone.now() + timedelta(seconds=ahead))
    newer = sandbox.engine.endpoint(row.pk).secret
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert newer in projection.active_secrets("default")
    # It is unknown which of the two the provider uses, so there is one more rotation.
    assert services.resume_operations() == {"done": 1}
    row.refresh_from_db()
    assert decrypt(row.secret_token) == sandbox.engine.endpoint(row.pk).secret != newer
    assert not Operation.objects.exclude(state=OperationState.DONE).exists()


@pytest.mark.case(63)
@pytest.mark.promise(1)
def test_a_rotation_that_leaves_after_its_claim_was_lost_is_followed_by_another(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stood still just before the request left. Others closed its operation and rotated again."""
    row = services.create_webhook_endpoint(
        url="https://testserver/payments/webhook/default/", events=["payment.created"]
    )
    send = RotateWebhookSecret.send

    def overtaken(self: Any, client: Any, operation: Operation, **options: Any) -> Any:
        monkeypatch.setattr(RotateWebhookSecret, "send", send)
        Operation.objects.filter(pk=operation.pk).update(
            state=OperationState.DONE, result_kind="webhook_endpoint", result_id=row.pk, claim_token=""
        )
        services.rotate_webhook_secret(row)
        return send(self, client, operation, **options)

    monkeypatch.setattr(RotateWebhookSecret, "send", overtaken)
    services.rotate_webhook_secret(row)
    late = sandbox.engine.endpoint(row.pk).secret
    assert services.resume_operations() == {"done": 1}
    row.refresh_from_db()
    assert decrypt(row.secret_token) == sandbox.engine.endpoint(row.pk).secret != late
    assert not Operation.objects.exclude(state=OperationState.DONE).exists()


# refusals


def test_refusals_of_the_provider_close_the_operation(sandbox: ProviderSandbox) -> None:
    with pytest.raises(InvalidState) as caught:
        services.create_payout(**{**PAYOUT, "amount": 10_000_000}, idempotency_key="k1")
    assert caught.value.code == "insufficient_balance"
    sandbox.engine.fund("CLP", 100_000_000)
    with pytest.raises(InvalidState):
        services.create_payout(**{**PAYOUT, "amount": 10_000_000}, idempotency_key="k1")
    assert made(sandbox)["create_payout"] == 0
    with pytest.raises(NotFound):
        services.cancel_payment("pay_unknown")
    payout = services.create_payout(**PAYOUT)
    sandbox.engine.process_payout(payout.pk)
    with pytest.raises(InvalidState):
        services.cancel_payout(payout)
    sandbox.engine.revoke_key(API_KEY)
    with pytest.raises(ProviderError):
        services.create_payout(**PAYOUT)
    make_due()
    assert services.resume_operations() == {}


def test_a_cancel_that_cannot_work_is_refused_here(sandbox: ProviderSandbox) -> None:
    payout = services.create_payout(**PAYOUT)
    sandbox.engine.process_payout(payout.pk)
    services.refresh(payout)
    sent = len(sandbox.engine.requests)
    with pytest.raises(ValidationError):
        services.cancel_payout(payout)
    assert [entry["method"] for entry in sandbox.engine.requests[sent:]] == ["GET"]


# at the same time


def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    """Results and errors of calls that start at once, each with a connection of its own."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        try:
            barrier.wait(timeout=10)
            return call(number)
        except (PaymentsError, ValidationError) as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.case(83)
@pytest.mark.promise(5)
def test_a_double_click_moves_money_once(sandbox: ProviderSandbox) -> None:
    results = in_threads(8, lambda number: services.create_payout(**PAYOUT, idempotency_key="k1"))
    rows = [result for result in results if isinstance(result, Payout)]
    assert rows
    assert all(isinstance(result, Payout | OutcomeUnknown) for result in results), results
    assert len(posts(sandbox, "create_payout")) == 1
    assert Operation.objects.count() == 1
    assert_made_once(sandbox, "create_payout")


@pytest.mark.promise(5)
def test_concurrent_refunds_do_not_exceed_the_payment(sandbox: ProviderSandbox) -> None:
    payment = paid(sandbox)
    results = in_threads(6, lambda number: services.create_refund(payment.pk, amount=4_000, destination=DESTINATION))
    refunds = [result for result in results if isinstance(result, Refund)]
    refusals = [result for result in results if isinstance(result, ValidationError)]
    assert (len(refunds), len(refusals)) == (2, 4), results
    assert len(posts(sandbox, "create_refund")) == 2, "the others were refused here"


@pytest.fixture(params=["only succeeded refunds", "refunds in progress as well"])
def counting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderSandbox]:
    """A provider whose ``refunded_amount`` counts these; the spec does not say which."""
    if request.param != "only succeeded refunds":
        add = Payments.add_refund

        def add_and_count(self: Any, payment: Any, amount: int) -> None:
            add(self, payment, amount)
            payment["refunded_amount"] += amount

        monkeypatch.setattr(Payments, "add_refund", add_and_count)
        monkeypatch.setattr(Payments, "count_refunded", lambda self, payment, amount: None)
    with ProviderSandbox() as provider:
        provider.engine.fund("CLP", 1_000_000)
        yield provider


def refund_of(payment: Payment, amount: int | None = None) -> int:
    refund: Refund = services.create_refund(payment.pk, amount=amount, destination=DESTINATION)
    return refund.amount


@pytest.mark.case(105)
@pytest.mark.promise(5)
@pytest.mark.parametrize("is_done", [False, True], ids=["in progress", "succeeded"])
def test_the_refundable_rest_is_exact(counting: ProviderSandbox, is_done: bool) -> None:
    def finish() -> None:
        for refund in list(counting.engine.refunds.values()) if is_done else ():
            if refund["status"] != "succeeded":
                counting.engine.succeed_refund(refund["id"])

    first, second, third = (paid(counting) for _ in range(3))
    assert refund_of(first, 5_000) == 5_000
    finish()
    assert refund_of(first) == 5_000, "the rest"
    assert refund_of(second, 4_000) == 4_000
    finish()
    assert refund_of(second, 6_000) == 6_000
    # In the provider's dashboard; no event has come.
    made_elsewhere(counting, third, 3_000)
    finish()
    assert refund_of(third, 1_000) == 1_000
    made_elsewhere(counting, third, 2_000)
    assert refund_of(third) == 4_000
    for payment in (first, second, third):
        with pytest.raises(ValidationError):
            refund_of(payment, 1)
        assert services.refresh(payment).refundable_amount == 0


@pytest.mark.case(105)
@pytest.mark.promise(5)
def test_four_refunds_at_once_take_the_whole_payment_and_no_more(counting: ProviderSandbox) -> None:
    payment = paid(counting)
    made_elsewhere(counting, payment, 1_000)
    services.refresh(payment)
    results = in_threads(4, lambda number: refund_of(payment, 3_000))
    assert sorted(map(str, results))[:3] == ["3000"] * 3, results
    assert sum(isinstance(result, ValidationError) for result in results) == 1, results
    assert sum(refund["amount"] for refund in counting.engine.refunds.values()) == 10_000


def made_elsewhere(sandbox: ProviderSandbox, payment: Payment, amount: int) -> None:
    """A refund in the provider's dashboard: no event comes, and we hear of it only if we ask."""
    sandbox.engine.faults.add(Fault("drop", times=None))
    body = {"payment_id": payment.pk, "amount": amount, "destination": DESTINATION}
    key = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": uuid.uuid4().hex}
    requests.post(f"{sandbox.url}/v1/refunds", json=body, headers=key, timeout=10).raise_for_status()


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.promise(5)
def test_concurrent_refunds_do_not_exceed_the_payment_under_repeatable_read(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    """Each counts in a snapshot from before the other, though it waits for the payment's lock."""
    payment = paid(sandbox)
    both_have_begun = threading.Barrier(2)
    find = ledger.find

    def find_at_once(intent: Any) -> Any:
        found = find(intent)
        if connections["default"].in_atomic_block:
            with suppress(threading.BrokenBarrierError):
                both_have_begun.wait(timeout=2)
        return found

    def refund(number: int) -> Any:
        if level := REPEATABLE_READ.get(connection.vendor):  # SQLite has none: one writer at a time
            with connection.cursor() as cursor:
                cursor.execute(level)
        asked: dict[str, Any] = {"amount": 6_000, "destination": DESTINATION}
        try:
            if not deferred:
                return services.create_refund(payment.pk, **asked)
            with transaction.atomic():
                return services.defer(services.create_refund, payment.pk, **asked)
        except OperationalError as error:
            return error

    monkeypatch.setattr(ledger, "find", find_at_once)
    results = in_threads(2, refund)
    assert sum(isinstance(result, Refund | Operation) for result in results) == 1, results
    assert sum(refund["amount"] for refund in sandbox.engine.refunds.values()) == 6_000
    if not deferred:
        # Only the outermost transaction can be repeated, and a deferred call's is the caller's.
        assert sum(isinstance(result, ValidationError) for result in results) == 1, results


@pytest.mark.case(102)
@pytest.mark.promise(5)
def test_of_two_operations_that_are_answered_with_one_object_at_once_one_has_it(
    sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, both_sent, answers = CreatePayment.send, threading.Barrier(2, timeout=10), []

    def answered_alike(*args: Any, **kwargs: Any) -> Any:
        answers.append(send(*args, **kwargs))
        both_sent.wait()
        return answers[0]

    monkeypatch.setattr(CreatePayment, "send", answered_alike)
    in_threads(2, lambda n: services.create_payment(**PAYMENT, merchant_reference="order-1"))
    assert sorted(Operation.objects.values_list("state", flat=True)) == [OperationState.DONE, OperationState.UNKNOWN]
    assert Operation.objects.exclude(result_id="").get().result_id == Payment.objects.get().pk == answers[0].data.id


@pytest.mark.case(41)
@pytest.mark.case(42)
@pytest.mark.promise(5)
def test_many_workers_resume_each_operation_once(sandbox: ProviderSandbox) -> None:
    for _ in range(5):
        sandbox.engine.faults.add(Fault("reset", operation="create_payout", work=True))
        with pytest.raises(OutcomeUnknown):
            services.create_payout(**PAYOUT)
    make_due()
    results = in_threads(4, lambda number: services.resume_operations())
    assert sum(result.get("done", 0) for result in results) == 5
    assert len(posts(sandbox, "create_payout")) == 10
    assert made(sandbox)["create_payout"] == 5


@pytest.mark.case(50)
@pytest.mark.promise(5)
def test_a_call_deferred_in_a_transaction_is_sent_after_it_commits(sandbox: ProviderSandbox) -> None:
    with transaction.atomic():
        operation = services.defer(services.create_payout, **PAYOUT)
        assert made(sandbox)["create_payout"] == 0
    operation.refresh_from_db()
    assert_made_once(sandbox, "create_payout")


def _key(sandbox: ProviderSandbox, key: str) -> override_settings:
    accounts = {"default": {"BASE_URL": sandbox.url, "API_KEY": key}}
    return override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": accounts})


def _wire(fault: Fault) -> dict[str, Any]:
    fields = fault.wire()
    fields.pop("used")
    return fields
