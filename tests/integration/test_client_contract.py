"""The client against the sandbox: every operation, every documented answer, every way a line can fail.

The two share no code. Where they disagree, one of them has misread the spec.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from payments_integration import conf, schemas
from payments_integration.client import Answer, Client, PageOf
from payments_integration.client.answers import whole
from payments_integration.exceptions import (
    ApiError,
    AuthenticationFailed,
    IdempotencyError,
    InvalidRequest,
    InvalidState,
    NoAnswer,
    NotFound,
    PagingError,
    PaymentsError,
    PermissionRefused,
    ProviderError,
    RateLimited,
)
from payments_integration.sandbox import Engine, Fault, RateLimits, SandboxServer

API_KEY = "sk_test_contract"
NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
DESTINATION = {
    "type": "bank_account",
    "bank_code": "012",
    "account_number": "00998877665544",
    "account_type": "checking",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12345678-5"},
}
PAYMENT = {"amount": 15000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAYOUT = {
    "amount": 5000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}
DEPOSIT = {"country": "MX", "currency": "MXN", "method_code": "mx_deposit"}
ENDPOINT = {"url": "https://shop.example/hook/", "events": ["payment.succeeded"]}


@dataclass
class World:
    """A running sandbox with one object of each kind, made through the client."""

    engine: Engine
    client: Client
    slept: list[float] = field(default_factory=list)
    keys: int = 0

    def key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"

    def fault(self, kind: str, **more: Any) -> Fault:
        return self.engine.faults.add(Fault(kind, **more))

    def pay(self, **more: Any) -> schemas.Payment:
        body = schemas.encode({**PAYMENT, **more})
        return self.client.payments.create(body, idempotency_key=self.key()).data

    def pay_out(self, **more: Any) -> schemas.Payout:
        body = schemas.encode({**PAYOUT, **more})
        return self.client.payouts.create(body, idempotency_key=self.key()).data

    def populate(self) -> None:
        self.engine.fund("CLP", 10_000_000)
        self.payment = self.pay(merchant_reference="order-1", payer={"name": "Ana", "email": "ana@example.com"})
        self.paid = self.pay()
        self.engine.pay(self.paid.id)
        self.payout = self.pay_out(merchant_reference="payout-1")
        self.refund = self.client.refunds.create(self.refund_body(), idempotency_key=self.key()).data
        self.reference = self.client.deposit_references.create(
            schemas.encode(DEPOSIT), idempotency_key=self.key()
        ).data
        self.endpoint = self.client.webhook_endpoints.create(schemas.encode(ENDPOINT), idempotency_key=self.key()).data

    def refund_body(self) -> bytes:
        return schemas.encode({"payment_id": self.paid.id, "amount": 100})


def run(limits: bool | RateLimits = False) -> Iterator[World]:
    engine = Engine(API_KEY, rate_limits=limits)
    engine.clock.freeze(NOW)
    with SandboxServer(engine, deliver=False) as server:
        world = World(engine, None)  # type: ignore[arg-type]
        account = conf.Account("default", server.url, API_KEY)
        world.client = Client(account, sleep=world.slept.append)
        world.populate()
        yield world


@pytest.fixture
def world() -> Iterator[World]:
    yield from run()


def limits(**values: float) -> override_settings:
    return override_settings(PAYMENTS_INTEGRATION={**settings.PAYMENTS_INTEGRATION, **values})


@dataclass(frozen=True)
class Operation:
    """One of the calls: the sandbox's name for it, the client's call, and the sandbox's object after it."""

    name: str
    call: Callable[..., Any]
    #: The sandbox's own objects that the answer must equal.
    truth: Callable[[World, Any], Any]
    #: Whether an id was asked for, that the answer must have.
    asked: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def is_list(self) -> bool:
        return self.name.startswith("list_")

    @property
    def is_post(self) -> bool:
        return not self.name.startswith(("list_", "get_", "delete_"))

    @property
    def is_paged(self) -> bool:
        return self.name in ("list_payments", "list_payouts", "list_refunds", "list_events")


def newest_first(objects: dict[str, Any]) -> list[Any]:
    return list(reversed(objects.values()))


def secret_of(w: World, data: schemas.WebhookEndpoint) -> dict[str, Any]:
    (known,) = (secret for secret in secrets_of(w, data.id) if secret == data.secret)
    return {**w.engine.endpoints[data.id], "secret": known}


def secrets_of(w: World, endpoint_id: str) -> list[str]:
    return w.engine.endpoint(endpoint_id).secrets_at(w.engine.clock.now())


OPERATIONS = [
    Operation(
        "list_payment_methods",
        lambda w, **more: w.client.payment_methods.list("CL", "CLP", 15000, **more),
        lambda w, data: None,
    ),
    Operation(
        "list_payments",
        lambda w, **more: whole(next(w.client.payments.pages(**more))),
        lambda w, data: newest_first(w.engine.payments),
    ),
    Operation(
        "create_payment",
        lambda w, **more: w.client.payments.create(schemas.encode(PAYMENT), idempotency_key=w.key(), **more),
        lambda w, data: newest_first(w.engine.payments)[0],
    ),
    Operation(
        "get_payment",
        lambda w, **more: w.client.payments.get(w.payment.id, **more),
        lambda w, data: w.engine.payments[w.payment.id],
        asked=True,
    ),
    Operation(
        "cancel_payment",
        lambda w, **more: w.client.payments.cancel(w.payment.id, idempotency_key=w.key(), **more),
        lambda w, data: w.engine.payments[w.payment.id],
        asked=True,
    ),
    Operation(
        "list_payouts",
        lambda w, **more: whole(next(w.client.payouts.pages(**more))),
        lambda w, data: newest_first(w.engine.payouts),
    ),
    Operation(
        "create_payout",
        lambda w, **more: w.client.payouts.create(schemas.encode(PAYOUT), idempotency_key=w.key(), **more),
        lambda w, data: newest_first(w.engine.payouts)[0],
    ),
    Operation(
        "get_payout",
        lambda w, **more: w.client.payouts.get(w.payout.id, **more),
        lambda w, data: w.engine.payouts[w.payout.id],
        asked=True,
    ),
    Operation(
        "cancel_payout",
        lambda w, **more: w.client.payouts.cancel(w.payout.id, idempotency_key=w.key(), **more),
        lambda w, data: w.engine.payouts[w.payout.id],
        asked=True,
    ),
    Operation(
        "list_refunds",
        lambda w, **more: whole(next(w.client.refunds.pages(**more))),
        lambda w, data: newest_first(w.engine.refunds),
    ),
    Operation(
        "create_refund",
        lambda w, **more: w.client.refunds.create(w.refund_body(), idempotency_key=w.key(), **more),
        lambda w, data: newest_first(w.engine.refunds)[0],
    ),
    Operation(
        "get_refund",
        lambda w, **more: w.client.refunds.get(w.refund.id, **more),
        lambda w, data: w.engine.refunds[w.refund.id],
        asked=True,
    ),
    Operation(
        "create_deposit_reference",
        lambda w, **more: w.client.deposit_references.create(schemas.encode(DEPOSIT), idempotency_key=w.key(), **more),
        lambda w, data: newest_first(w.engine.deposit_references)[0],
    ),
    Operation(
        "get_deposit_reference",
        lambda w, **more: w.client.deposit_references.get(w.reference.id, **more),
        lambda w, data: w.engine.deposit_references[w.reference.id],
        asked=True,
    ),
    Operation(
        "list_balances",
        lambda w, **more: w.client.balances.list(**more),
        lambda w, data: list(w.engine.balances.values()),
    ),
    Operation(
        "list_webhook_endpoints",
        lambda w, **more: w.client.webhook_endpoints.list(**more),
        lambda w, data: list(w.engine.endpoints.values()),
    ),
    Operation(
        "create_webhook_endpoint",
        lambda w, **more: w.client.webhook_endpoints.create(schemas.encode(ENDPOINT), idempotency_key=w.key(), **more),
        secret_of,
    ),
    Operation(
        "delete_webhook_endpoint",
        lambda w, **more: w.client.webhook_endpoints.delete(w.endpoint.id, **more),
        lambda w, data: None,
    ),
    Operation(
        "rotate_webhook_secret",
        lambda w, **more: w.client.webhook_endpoints.rotate_secret(w.endpoint.id, idempotency_key=w.key(), **more),
        secret_of,
        asked=True,
    ),
    Operation(
        "list_events",
        lambda w, **more: whole(next(w.client.events.pages(**more))),
        lambda w, data: list(reversed(w.engine.events)),
    ),
]
DELETE = next(operation for operation in OPERATIONS if operation.name.startswith("delete_"))
every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=str)


def every(wanted: Callable[[Operation], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", [one for one in OPERATIONS if wanted(one)], ids=str)


def plain(data: Any) -> Any:
    """The client's answer as the provider's plain dicts."""
    if isinstance(data, PageOf):
        return [plain(item) for item in data.items]
    if isinstance(data, list):
        return [plain(item) for item in data]
    if isinstance(data, schemas.Resource):
        fields = {name: getattr(data, name) for name in data.__struct_fields__ if name != "extra"}
        assert data.extra == {}, "the sandbox sends fields that the client does not know"
        return fields
    return json.loads(data.body)


def shown(truth: Any, read: Any) -> Any:
    """The sandbox's object as the structs show it: times parsed, missing fields None."""
    if isinstance(truth, list):
        assert len(truth) == len(read)
        return [shown(*pair) for pair in zip(truth, read, strict=True)]
    if truth["object"] == "event":
        return truth
    times = {name: datetime.fromisoformat(text) for name, text in truth.items() if name.endswith("_at") and text}
    return {**dict.fromkeys(read), **truth, **times}


def caught(call: Callable[..., Any], *args: Any, **more: Any) -> PaymentsError:
    with pytest.raises(PaymentsError) as error:
        call(*args, **more)
    assert API_KEY not in repr(error.value) + str(vars(error.value))
    return error.value


# Successes


def test_the_contract_covers_all_calls(world: World) -> None:
    for operation in sorted(OPERATIONS, key=lambda operation: operation is DELETE):
        operation.call(world)
    assert len({entry["operation"] for entry in world.engine.requests}) == len(OPERATIONS) == 20


@every_operation
def test_every_call_succeeds(operation: Operation, world: World) -> None:
    answer = operation.call(world)
    assert isinstance(answer, Answer)
    assert 200 <= answer.status_code < 300
    assert answer.answered_at == NOW
    assert 0 < answer.duration < 5
    truth = operation.truth(world, answer.data)
    if truth is not None:
        read = plain(answer.data)
        assert read == shown(truth, read)
    assert world.engine.audit() == []


def test_payment_methods_are_listed(world: World) -> None:
    methods = world.client.payment_methods.list("CL", "CLP").data
    assert {method.extra["country"] for method in methods} == {"CL"}
    assert "cl_webpay_card" in {method.code for method in methods}
    assert len(world.client.payment_methods.list().data) > len(methods)


def test_an_endpoint_is_deleted(world: World) -> None:
    assert DELETE.call(world).data is None
    assert world.engine.endpoints == {}
    assert isinstance(caught(DELETE.call, world), NotFound)


def test_a_payment_and_a_payout_are_canceled(world: World) -> None:
    assert world.client.payments.cancel(world.payment.id, idempotency_key="c1").data.status == "canceled"
    assert world.client.payouts.cancel(world.payout.id, idempotency_key="c2").data.status == "canceled"


def test_secrets_are_shown_on_create_and_rotate_only(world: World) -> None:
    assert world.endpoint.secret
    rotated = world.client.webhook_endpoints.rotate_secret(world.endpoint.id, idempotency_key="r").data
    assert rotated.secret
    assert rotated.secret != world.endpoint.secret
    assert [endpoint.secret for endpoint in world.client.webhook_endpoints.list().data] == [None]


@every(lambda operation: operation.is_post)
def test_the_same_key_gives_the_same_answer(operation: Operation, world: World) -> None:
    first = operation.call(world)
    world.keys -= 1
    assert operation.call(world).data == first.data
    assert world.engine.audit() == []


# Lists


def test_every_list_is_read_page_by_page(world: World) -> None:
    for _ in range(120):
        world.pay()
    payments = list(world.client.payments.list())
    assert [payment.id for payment in payments] == [one["id"] for one in newest_first(world.engine.payments)]
    assert len(payments) == 122
    events = [json.loads(event.body) for page in world.client.events.pages() for event in page.data.items]
    assert events == list(reversed(world.engine.events))
    assert len(events) > 100


def test_filters_narrow_a_list(world: World) -> None:
    client = world.client
    assert [one.id for one in client.payments.list(merchant_reference="order-1")] == [world.payment.id]
    assert [one.id for one in client.payments.list(status="succeeded")] == [world.paid.id]
    assert [one.id for one in client.payouts.list(merchant_reference="payout-1", status="created")] == [
        world.payout.id
    ]
    assert [one.id for one in client.refunds.list(payment_id=world.paid.id)] == [world.refund.id]
    assert list(client.refunds.list(payment_id=world.payment.id)) == []
    (event,) = next(client.events.pages(type="payment.succeeded")).data.items
    assert json.loads(event.body)["data"]["id"] == world.paid.id


def test_time_filters_are_exact_to_the_microsecond(world: World) -> None:
    client, tick = world.client, timedelta(microseconds=1)
    at = world.paid.created_at
    assert world.payment.created_at != at
    assert [one.id for one in client.payments.list(created_from=at, created_to=at)] == [world.paid.id]
    assert list(client.payments.list(created_from=at + tick, created_to=at)) == []
    assert world.paid.id not in [one.id for one in client.payments.list(created_to=at - tick)]
    stored = [datetime.fromisoformat(event["created_at"]) for event in world.engine.events]
    found = next(client.events.pages(created_from=stored[1], created_to=stored[-2])).data.items
    assert len(list(found)) == len(stored) - 2


@every(lambda operation: operation.is_paged)
def test_pages_of_one_item_bring_every_item(operation: Operation, world: World) -> None:
    found: list[Any] = []
    answer = operation.call(world, limit=1)
    while True:
        found += plain(answer.data)
        if not answer.data.has_more:
            break
        answer = operation.call(world, limit=1, starting_after=answer.data.cursor)
    truth = operation.truth(world, None)
    assert found == shown(truth, found)


@pytest.mark.case(64)
@every(lambda operation: operation.is_paged)
def test_an_unknown_cursor_is_an_error(operation: Operation, world: World) -> None:
    error = caught(operation.call, world, starting_after="pay_never")
    assert isinstance(error, NotFound)
    assert error.code == "resource_not_found"


@pytest.mark.case(64)
@pytest.mark.parametrize("name", ["payments", "payouts", "refunds", "events"])
def test_an_empty_page_with_more_is_a_paging_error(name: str, world: World) -> None:
    world.fault("empty_page", operation=f"list_{name}", times=None)
    assert isinstance(caught(list, getattr(world.client, name).pages()), PagingError)


# Errors

KINDS: dict[str, type[ProviderError]] = {
    "parameter_invalid": InvalidRequest,
    "parameter_missing": InvalidRequest,
    "amount_out_of_range": InvalidRequest,
    "api_key_invalid": AuthenticationFailed,
    "api_key_revoked": AuthenticationFailed,
    "merchant_not_active": PermissionRefused,
    "method_not_allowed": PermissionRefused,
    "country_not_allowed": PermissionRefused,
    "resource_not_found": NotFound,
    "idempotency_conflict": IdempotencyError,
    "idempotency_in_progress": IdempotencyError,
    "invalid_state": InvalidState,
    "insufficient_balance": InvalidState,
    "method_not_available": InvalidRequest,
    "blocked_payer": PermissionRefused,
    "limit_exceeded": InvalidRequest,
    "rate_limited": RateLimited,
    "internal_error": ApiError,
    "provider_unavailable": ApiError,
    "service_unavailable": ApiError,
}


@every_operation
@pytest.mark.parametrize("code", KINDS)
def test_every_error_code_is_raised(code: str, operation: Operation, world: World) -> None:
    fault = world.fault("error", code=code, operation=operation.name)
    error = caught(operation.call, world, max_wait=0)
    assert type(error) is KINDS[code]
    assert error.code == code
    assert error.request_id.startswith("req_")
    assert error.request_id in str(error)
    assert (error.status_code >= 500) == (KINDS[code] is ApiError)
    assert fault.used == 1
    assert world.slept == []


def natural(code: str, world: World) -> Callable[[], Any]:
    """A call that fails with this error without a simulated fault."""
    client, engine = world.client, world.engine

    def payment(**more: Any) -> Callable[[], Any]:
        return lambda: world.pay(**more)

    if code == "parameter_missing":
        return lambda: client.payments.create(b"{}", idempotency_key="k")
    if code == "api_key_revoked":
        engine.revoke_key()
        return client.balances.list
    if code == "api_key_invalid":
        account = conf.Account("default", client.account.base_url, "sk_test_wrong")
        return Client(account).balances.list
    if code == "merchant_not_active":
        engine.set_terms(active=False)
    elif code == "method_not_allowed":
        engine.set_terms(forbidden_methods=["cl_webpay_card"])
    elif code == "country_not_allowed":
        engine.set_terms(countries=["MX"])
    elif code == "method_not_available":
        engine.set_terms(unavailable_methods=["cl_webpay_card"])
    elif code == "provider_unavailable":
        engine.set_terms(broken_methods=["cl_webpay_card"])
    calls: dict[str, Callable[[], Any]] = {
        "parameter_invalid": payment(currency="BTC"),
        "amount_out_of_range": payment(amount=0),
        "resource_not_found": lambda: client.payments.get("pay_never"),
        "invalid_state": lambda: client.payments.cancel(world.paid.id, idempotency_key="k"),
        "insufficient_balance": lambda: world.pay_out(amount=10**9),
        "blocked_payer": payment(payer={"email": "blocked@example.com"}),
    }
    return calls.get(code, payment())


@pytest.mark.parametrize(
    ("code", "param"),
    [
        ("parameter_invalid", "currency"),
        ("parameter_missing", "amount"),
        ("amount_out_of_range", "amount"),
        ("api_key_invalid", None),
        ("api_key_revoked", None),
        ("merchant_not_active", None),
        ("method_not_allowed", "method_code"),
        ("country_not_allowed", "country"),
        ("resource_not_found", None),
        ("invalid_state", None),
        ("insufficient_balance", "amount"),
        ("method_not_available", "method_code"),
        ("blocked_payer", "payer"),
        ("provider_unavailable", None),
    ],
)
def test_errors_of_real_situations_are_raised(code: str, param: str | None, world: World) -> None:
    error = caught(natural(code, world))
    assert type(error) is KINDS[code]
    assert (error.code, error.param) == (code, param)


def test_canceling_a_payout_too_late_is_invalid_state(world: World) -> None:
    world.engine.process_payout(world.payout.id)
    error = caught(world.client.payouts.cancel, world.payout.id, idempotency_key="k")
    assert isinstance(error, InvalidState)


# The idempotency key


@pytest.mark.case(57)
@every(lambda operation: operation.name.startswith("create_"))
def test_a_key_used_for_other_arguments_is_a_conflict(operation: Operation, world: World) -> None:
    operation.call(world)
    world.keys -= 1
    group = getattr(world.client, operation.name.removeprefix("create_") + "s")
    error = caught(group.create, b'{"other": 1}', idempotency_key=world.key())
    assert isinstance(error, IdempotencyError)
    assert (error.code, error.status_code) == ("idempotency_conflict", 409)


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.case(57)
def test_a_key_in_use_is_an_idempotency_error(world: World) -> None:
    world.fault("slow", operation="create_payment", delay=300)
    body = schemas.encode(PAYMENT)
    with limits(READ_TIMEOUT=0.2):
        error = caught(world.client.payments.create, body, idempotency_key="k")
    assert isinstance(error, NoAnswer)
    wait_until(lambda: "k" in world.engine.default_project.state.idempotency.uses)
    busy = caught(world.client.payments.create, body, idempotency_key="k")
    assert isinstance(busy, IdempotencyError)
    assert (busy.code, busy.status_code) == ("idempotency_in_progress", 409)
    world.engine.gateway.closing.set()  # ends the pause
    wait_until(lambda: any((e["idempotency_key"], e["status"]) == ("k", 201) for e in world.engine.requests))
    payment = world.client.payments.create(body, idempotency_key="k").data
    assert payment.id == newest_first(world.engine.payments)[0]["id"]
    assert len(world.engine.payments) == 3


# The rate limit


@pytest.mark.case(58)
@every_operation
@pytest.mark.parametrize(("header", "slept"), [(None, 2), ("-1", 2), ("soon", 2), ("3", 3), ("999999", 60)], ids=str)
def test_a_call_waits_after_a_429_and_succeeds(
    header: str | None, slept: float, operation: Operation, world: World
) -> None:
    world.fault("rate_limited", operation=operation.name, retry_after=header, times=2)
    before = len(world.engine.requests)
    assert operation.call(world, max_wait=120).status_code < 300
    assert world.slept == [slept, slept]
    sent = world.engine.requests[before:]
    assert [entry["status"] for entry in sent][:2] == [429, 429]
    assert len({(entry["path"], entry["idempotency_key"]) for entry in sent}) == 1
    assert len(sent) == 3


@pytest.mark.case(58)
@every_operation
def test_a_429_without_time_to_wait_is_raised(operation: Operation, world: World) -> None:
    world.fault("rate_limited", operation=operation.name, retry_after="11")
    error = caught(operation.call, world)
    assert isinstance(error, RateLimited)
    assert error.retry_after == 11
    assert world.slept == []


def test_calls_keep_to_the_rate_limit() -> None:
    """A burst of calls that follows the headers is never answered with 429."""
    for world in run(RateLimits(reads=20, writes=20, burst=0.6)):
        client = Client(world.client.account)
        for _ in range(20):
            client.balances.list()
        statuses = [entry["status"] for entry in world.engine.requests]
        assert statuses.count(429) == 0
        assert len(statuses) > 20


# Faults


def executed(world: World, operation: Operation, call: Callable[[], Any]) -> bool:
    """Whether the sandbox did the work."""

    def state() -> str:
        books = world.engine.books()
        return json.dumps([books["projects"], [len(secrets_of(world, one)) for one in world.engine.endpoints]])

    before = state()
    call()
    return state() != before


@every_operation
@pytest.mark.parametrize(
    ("kind", "more", "status"),
    [
        pytest.param("reset", {"work": False}, None, id="reset before"),
        pytest.param("reset", {"work": True}, None, id="reset after"),
        pytest.param("redirect", {"work": False}, 302, id="redirect before"),
        pytest.param("redirect", {"work": True}, 302, id="redirect after"),
        pytest.param("redirect", {"work": True, "status": 307}, 307, id="redirect that keeps the method"),
        pytest.param("html", {"work": False, "status": 502}, 502, id="HTML 502"),
        pytest.param("html", {"work": False, "status": 404}, 404, id="HTML 404"),
        pytest.param("html", {"work": True, "status": 500}, 500, id="HTML 500 after"),
    ],
)
def test_a_fault_is_no_answer(
    kind: str, more: dict[str, Any], status: int | None, operation: Operation, world: World
) -> None:
    world.fault(kind, operation=operation.name, **more)
    requests = len(world.engine.requests)
    errors: list[PaymentsError] = []
    worked = executed(world, operation, lambda: errors.append(caught(operation.call, world)))
    (error,) = errors
    assert type(error) is NoAnswer
    assert error.status_code == status
    assert len(world.engine.requests) == requests + 1
    changes = operation.is_post or operation is DELETE
    assert worked == (changes and more["work"])


@every_operation
@pytest.mark.parametrize("kind", ["html", "truncate"])
@pytest.mark.parametrize("work", [True, False])
def test_a_200_without_the_object_is_no_answer(kind: str, work: bool, operation: Operation, world: World) -> None:
    world.fault(kind, operation=operation.name, work=work)
    if operation is DELETE:  # its body is not shown in the spec: the status is enough
        assert operation.call(world).status_code == 200
        return
    error = caught(operation.call, world)
    assert type(error) is NoAnswer
    assert error.status_code in (200, 201)


@pytest.mark.case(53)
@every(lambda operation: operation.is_post)
@pytest.mark.parametrize("kind", ["reset", "html", "truncate", "redirect", "wrong_kind"])
def test_the_same_key_finds_the_lost_answer(kind: str, operation: Operation, world: World) -> None:
    world.fault(kind, operation=operation.name, work=True)
    assert type(caught(operation.call, world)) is NoAnswer
    counts = [len(world.engine.payments), len(world.engine.payouts), len(world.engine.refunds)]
    world.keys -= 1
    data = operation.call(world).data
    read = plain(data)
    assert read == shown(operation.truth(world, data), read)
    assert counts == [len(world.engine.payments), len(world.engine.payouts), len(world.engine.refunds)]
    assert world.engine.audit() == []


@every_operation
def test_a_slow_answer_is_no_answer(operation: Operation, world: World) -> None:
    world.fault("slow", operation=operation.name, work=True, delay=30)
    started = time.monotonic()
    with limits(READ_TIMEOUT=0.1):
        assert type(caught(operation.call, world)) is NoAnswer
    assert time.monotonic() - started < 10


@pytest.mark.case(54)
@every_operation
def test_an_answer_that_drips_past_the_deadline_is_no_answer(operation: Operation, world: World) -> None:
    fault = world.fault("drip", operation=operation.name, count=40, delay=0.3)
    if operation is DELETE:
        with limits(REQUEST_DEADLINE=5.0):
            assert operation.call(world).status_code == 200
        return
    keys = world.keys
    # On a busy machine the second may be over before the headers are in: then once more.
    for _ in range(5):
        world.keys, fault.used = keys, 0
        started = time.monotonic()
        with limits(REQUEST_DEADLINE=1.0):
            error = caught(operation.call, world)
        assert type(error) is NoAnswer
        assert time.monotonic() - started < 10
        if error.status_code is not None:
            break
    assert error.status_code in (200, 201)


@every_operation
def test_an_answer_that_drips_within_the_deadline_is_read(operation: Operation, world: World) -> None:
    world.fault("drip", operation=operation.name, count=5, delay=0.02)
    assert operation.call(world).status_code < 300


@every_operation
def test_an_answer_without_a_date_is_read(operation: Operation, world: World) -> None:
    world.fault("no_date", operation=operation.name)
    assert operation.call(world).answered_at is None


@pytest.mark.case(56)
@every(lambda operation: operation.asked)
def test_another_objects_id_is_no_answer(operation: Operation, world: World) -> None:
    world.fault("wrong_id", operation=operation.name)
    error = caught(operation.call, world)
    assert type(error) is NoAnswer
    assert error.status_code == 200


#: Balances and payment methods have no id; events are returned as bytes.
@pytest.mark.case(56)
@every(
    lambda operation: (
        operation is not DELETE and operation.name not in ("list_balances", "list_payment_methods", "list_events")
    )
)
def test_an_object_of_another_kind_is_no_answer(operation: Operation, world: World) -> None:
    world.fault("wrong_kind", operation=operation.name)
    error = caught(operation.call, world)
    assert type(error) is NoAnswer
    assert error.status_code in (200, 201)


@every_operation
@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("work", [True, False])
def test_a_5xx_with_an_envelope_is_an_api_error(status: int, work: bool, operation: Operation, world: World) -> None:
    world.fault("error", operation=operation.name, status=status, work=work)
    error = caught(operation.call, world)
    assert type(error) is ApiError
    assert (error.status_code, error.code) == (status, "internal_error")


def test_the_client_works_after_a_fault(world: World) -> None:
    """After every fault the next call on the same client works."""
    for kind in ("reset", "html", "truncate", "redirect", "wrong_kind", "error"):
        world.fault(kind, operation="get_payment")
        caught(world.client.payments.get, world.payment.id)
        assert world.client.payments.get(world.payment.id).data == world.payment


def test_two_accounts_do_not_see_each_other(world: World) -> None:
    world.engine.add_project("sk_test_other")
    other = Client(conf.Account("other", world.client.account.base_url, "sk_test_other"))
    assert list(other.payments.list()) == []
    assert isinstance(caught(other.payments.get, world.payment.id), NotFound)
