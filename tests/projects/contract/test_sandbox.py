"""The sandbox against the description of the provider's interface: any request, and merchants' flows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ignored_auth,
    missing_required_header,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from payments_integration.sandbox import Engine, Fault, RateLimits, SandboxServer
from payments_integration.sandbox.openapi import document
from payments_integration.sandbox.protocol import EVENT_TYPES

DOCUMENT = document("http://127.0.0.1")
COMPONENTS = DOCUMENT["components"]
AUTH = {"Authorization": "Bearer sk_test_sandbox"}
CONTENT = "application/json"
SCHEMA = schemathesis.openapi.from_dict(document("http://127.0.0.1"), config=schemathesis.Config(seed=5))
#: The checks of every answer.
ALWAYS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    unsupported_method,
    allow_header_conformance,
    missing_required_header,
]
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    # One sandbox serves all examples of an operation: what earlier ones left must do no harm.
    suppress_health_check=list(HealthCheck),
)
#: In place of the document's own, which all examples share: they would all be the one first request.
EXAMPLE_KEY = COMPONENTS["parameters"]["IdempotencyKey"]["example"]

ACCOUNT = {
    "type": "bank_account",
    "account_number": "123456789",
    "holder_name": "Ana Soto",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}
CARD = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
TRANSFER = {**CARD, "method_code": "cl_bank_transfer"}
PAYOUT = {**TRANSFER, "destination": ACCOUNT}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}


@dataclass
class Receiver:
    """A merchant's webhook that acknowledges everything."""

    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> int:
        self.got.append((headers, body))
        return 200


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def engine(receiver: Receiver) -> Iterator[Engine]:
    engine = Engine(rate_limits=False, transport=receiver)
    for currency in ("CLP", "BRL"):
        engine.fund(currency, 10**12)
    yield engine
    assert engine.audit() == []


@pytest.fixture
def server(engine: Engine) -> Iterator[SandboxServer]:
    with SandboxServer(engine, deliver=False) as server:
        yield server


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


# judging


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        target: Any = DOCUMENT
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = target
    return part


@cache
def validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(
        {**json.loads(schema), "components": {"schemas": COMPONENTS["schemas"]}}, validate_formats=True
    )


def problems(value: Any, schema: dict[str, Any]) -> list[str]:
    return [
        f"{list(error.instance_path)}: {error.message}" for error in validator(json.dumps(schema)).iter_errors(value)
    ]


def check(operation: dict[str, Any], answer: requests.Response) -> None:
    """The answer is one that the document has for the operation: status, headers, type and body."""
    described = resolve(operation["responses"][str(answer.status_code)])
    assert answer.headers["Content-Type"] == CONTENT
    for name, reference in described["headers"].items():
        header = resolve(reference)
        assert name in answer.headers or not header.get("required"), name
        if name in answer.headers:
            text = answer.headers[name]
            value = int(text) if header["schema"]["type"] == "integer" else text
            assert problems(value, header["schema"]) == [], name
    assert problems(answer.json(), described["content"][CONTENT]["schema"]) == []


@dataclass
class Merchant:
    """Calls operations by name; every answer is held against the document."""

    server: SandboxServer
    session: requests.Session
    headers: dict[str, str] = field(default_factory=lambda: dict(AUTH))
    keys: Iterator[int] = field(default_factory=itertools.count)
    answered: set[tuple[str, int]] = field(default_factory=set)

    def ask(
        self, name: str, object_id: str = "", *, body: Any = None, key: str | None = None, raw: bytes | None = None,
        content_type: str = CONTENT, **query: Any,
    ) -> requests.Response:  # fmt: skip
        method, path, operation = OPERATIONS[name]
        headers = dict(self.headers)
        if method == "POST":
            headers["Idempotency-Key"] = key or f"key-{next(self.keys)}"
        if body is not None:
            raw = json.dumps(body).encode()
        if raw is not None:
            headers["Content-Type"] = content_type
        answer = self.session.request(
            method, f"{self.server.url}/v1{re.sub(r'{.*}', object_id, path)}",
            params=query, data=raw, headers=headers, timeout=30, allow_redirects=False,
        )  # fmt: skip
        check(operation, answer)
        self.answered.add((name, answer.status_code))
        return answer

    def do(self, name: str, object_id: str = "", *, body: Any = None, **query: Any) -> dict[str, Any]:
        answer = self.ask(name, object_id, body=body, **query)
        assert answer.ok, answer.text
        return answer.json()

    def fails(self, code: str, status: int, name: str, object_id: str = "", **how: Any) -> None:
        answer = self.ask(name, object_id, **how)
        assert (answer.json()["error"]["code"], answer.status_code) == (code, status)


OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}


@pytest.fixture
def merchant(server: SandboxServer, session: requests.Session) -> Merchant:
    return Merchant(server, session)


# the document by itself


@pytest.mark.parametrize("name", sorted(COMPONENTS["schemas"]))
def test_the_documents_schemas_are_valid(name: str) -> None:
    jsonschema_rs.meta.validate(COMPONENTS["schemas"][name])
    assert isinstance(problems({}, {"$ref": f"#/components/schemas/{name}"}), list)


def test_every_example_matches_its_schema() -> None:
    seen = 0
    for item in (*DOCUMENT["paths"].values(), *DOCUMENT["webhooks"].values()):
        for operation in item.values():
            parts = [operation.get("requestBody"), *(resolve(answer) for answer in operation["responses"].values())]
            for part in parts:
                content = (part or {}).get("content", {}).get(CONTENT)
                for example in (content or {}).get("examples", {}).values():
                    assert problems(example["value"], content["schema"]) == [], operation["operationId"]
                    seen += 1
    assert seen > 200


# requests that the document allows, and others


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_null(part) for part in value.values())
    if isinstance(value, list):
        return any(has_null(part) for part in value)
    return value is None


def fresh_key(case: Any, engine: Engine) -> None:
    if case.headers is not None and case.headers.get("Idempotency-Key") == EXAMPLE_KEY:
        case.headers["Idempotency-Key"] = f"fresh-{len(engine.gateway.log)}"


@SCHEMA.parametrize()
@BOUNDED
def test_no_request_gets_an_answer_that_is_not_described(
    case: Any, engine: Engine, server: SandboxServer, session: requests.Session
) -> None:
    fresh_key(case, engine)
    # null counts as absent in the sandbox, see "Choices" in docs/sandbox.md
    refusing = [] if has_null(case.body) else [negative_data_rejection]
    sending = {"base_url": f"{server.url}/v1", "session": session, "headers": AUTH}
    case.call_and_validate(**sending, checks=[*ALWAYS, *refusing])


@pytest.fixture
def known(engine: Engine, merchant: Merchant) -> Callable[[str], str]:
    """Makes an object of the kind that a parameter's name says; returns its id."""

    def payment() -> str:
        return merchant.do("create_payment", body=CARD)["id"]

    def paid() -> str:
        return engine.pay(payment())["id"]

    event = engine.events[-1]["id"]
    makers: dict[str, Callable[[], str]] = {
        "payment_id": payment,
        "payout_id": lambda: merchant.do("create_payout", body=PAYOUT)["id"],
        "refund_id": lambda: merchant.do("create_refund", body={"payment_id": paid(), "amount": 1})["id"],
        "deposit_reference_id": lambda: merchant.do("create_deposit_reference", body=DEPOSIT)["id"],
        "endpoint_id": lambda: engine.add_endpoint("https://shop.example/")["id"],
        "event_id": lambda: event,
        "paid": paid,
    }
    return lambda name: makers[name]()


@SCHEMA.include(path_regex="{|^/refunds$").parametrize()
@BOUNDED
def test_no_request_about_an_existing_object_gets_an_answer_that_is_not_described(
    case: Any, engine: Engine, known: Callable[[str], str], server: SandboxServer, session: requests.Session
) -> None:
    fresh_key(case, engine)
    for name in case.path_parameters or {}:
        case.path_parameters[name] = known(name)
    if isinstance(case.body, dict) and isinstance(case.body.get("payment_id"), str):
        case.body["payment_id"] = known("paid")
    case.call_and_validate(base_url=f"{server.url}/v1", session=session, headers=AUTH, checks=ALWAYS)


def test_every_link_of_the_document_leads_to_an_answer(merchant: Merchant, engine: Engine) -> None:
    bodies = {
        "create_payment": CARD,
        "create_payout": PAYOUT,
        "create_deposit_reference": DEPOSIT,
        "create_webhook_endpoint": {"url": "https://shop.example/"},
        "create_refund": {"payment_id": engine.pay(merchant.do("create_payment", body=CARD)["id"])["id"]},
    }
    followed = 0
    for name, (_, _, operation) in OPERATIONS.items():
        links = [link for answer in operation["responses"].values() for link in answer.get("links", {}).values()]
        if not links:
            continue
        made = merchant.do(name, body=bodies[name])["id"]
        for link in links:
            ((target, expression),) = link["parameters"].items()
            assert expression == "$response.body#/id"
            where, _, parameter = target.partition(".")
            if where == "path":
                merchant.do(link["operationId"], made)
            else:
                merchant.do(link["operationId"], **{parameter: made})
            followed += 1
    assert followed == 9


# what merchants do


def card_flow(merchant: Merchant, engine: Engine) -> None:
    payment = merchant.do("create_payment", body={**CARD, "metadata": {"cart": "1"}, "merchant_reference": "order-1"})
    engine.open_checkout(payment["id"])
    engine.pay(payment["id"])
    merchant.do("get_payment", payment["id"])
    refund = merchant.do("create_refund", body={"payment_id": payment["id"], "amount": 4_000, "reason": "sold out"})
    engine.succeed_refund(refund["id"])
    merchant.do("get_refund", refund["id"])
    engine.return_refund(refund["id"])
    again = merchant.do("create_refund", body={"payment_id": payment["id"], "amount": 1_000})
    engine.fail_refund(again["id"])
    engine.chargeback(payment["id"])
    assert merchant.do("get_payment", payment["id"])["status"] == "chargeback"


def transfer_flow(merchant: Merchant, engine: Engine) -> None:
    payment = merchant.do("create_payment", body={**TRANSFER, "flow": "s2s"})
    engine.pay(payment["id"], 6_000)
    engine.pay(payment["id"], 6_000)
    assert merchant.do("get_payment", payment["id"])["status"] == "overpaid"
    refund = merchant.do("create_refund", body={"payment_id": payment["id"], "destination": ACCOUNT})
    assert merchant.do("get_payout", refund["payout_id"])["refund_id"] == refund["id"]
    engine.cancel_refund(refund["id"])


def unhappy_flow(merchant: Merchant, engine: Engine) -> None:
    merchant.do("cancel_payment", merchant.do("create_payment", body=CARD)["id"])
    engine.fail(merchant.do("create_payment", body={**CARD, "method_code": "cl_card_direct", "flow": "s2s"})["id"])
    expired = merchant.do("create_payment", body=CARD)["id"]
    engine.expire(expired)
    engine.pay(expired)
    engine.hold(merchant.do("create_payment", body=TRANSFER)["id"])


def payout_flow(merchant: Merchant, engine: Engine) -> None:
    returned = merchant.do("create_payout", body=PAYOUT)["id"]
    engine.hold_payout(returned)
    engine.delay_payout(returned)
    engine.succeed_payout(returned)
    engine.return_payout(returned)
    assert merchant.do("get_payout", returned)["status"] == "returned"
    engine.fail_payout(merchant.do("create_payout", body=PAYOUT)["id"])
    merchant.do("cancel_payout", merchant.do("create_payout", body=PAYOUT)["id"])


def deposit_flow(merchant: Merchant, engine: Engine) -> None:
    reference = merchant.do("create_deposit_reference", body={**DEPOSIT, "merchant_reference": "customer-1"})
    payment = engine.transfer(reference["id"], 5_000)
    assert merchant.do("get_payment", payment["id"])["flow"] == "deposit_reference"
    engine.disable_deposit_reference(reference["id"])
    merchant.do("get_deposit_reference", reference["id"])


def every_next_action(merchant: Merchant, engine: Engine) -> None:
    methods = merchant.do("list_payment_methods", country="CL", currency="CLP", amount=10_000)["data"]
    for method in methods:
        if "payment" in method["uses"]:
            body = {**CARD, "method_code": method["code"], "flow": "s2s"}
            assert merchant.do("create_payment", body=body)["next_action"]["type"] == method["next_action"]


def every_list(merchant: Merchant, engine: Engine) -> None:
    for name in ("list_payments", "list_payouts", "list_refunds", "list_events"):
        first = merchant.do(name, limit=2)
        assert first["has_more"]
        merchant.do(name, limit=100, starting_after=first["data"][-1]["id"])
    merchant.do("list_balances")
    event = merchant.do("list_events", type="payment.succeeded")["data"][0]
    assert merchant.do("get_event", event["id"]) == event


def test_every_flow_event_and_delivery_matches_the_document(
    merchant: Merchant, engine: Engine, receiver: Receiver
) -> None:
    endpoint = merchant.do("create_webhook_endpoint", body={"url": "https://shop.example/", "events": [*EVENT_TYPES]})
    for flow in (card_flow, transfer_flow, unhappy_flow, payout_flow, deposit_flow, every_next_action, every_list):
        flow(merchant, engine)
    engine.deliver_due()
    merchant.do("rotate_webhook_secret", endpoint["id"])
    merchant.do("list_webhook_endpoints")
    merchant.do("create_payment", body=CARD)
    engine.deliver_due()
    merchant.do("delete_webhook_endpoint", endpoint["id"])
    for headers, body in receiver.got:
        event = json.loads(body)
        hook = DOCUMENT["webhooks"][event["type"]]["post"]
        (signature,) = map(resolve, hook["parameters"])
        assert problems(headers[signature["name"]], signature["schema"]) == []
        assert headers["Content-Type"] in hook["requestBody"]["content"]
        assert problems(event, hook["requestBody"]["content"][CONTENT]["schema"]) == []
    assert {json.loads(body)["type"] for _, body in receiver.got} == set(EVENT_TYPES)
    assert {name for name, status in merchant.answered if status < 300} == set(OPERATIONS)


def test_every_failure_matches_the_document(merchant: Merchant, engine: Engine) -> None:
    terms = engine.terms
    fails = merchant.fails
    fails("parameter_missing", 400, "create_payment", body={})
    fails("parameter_invalid", 400, "create_payment", raw=b"{")
    fails("parameter_invalid", 413, "create_payment", raw=b" " * (256 * 1024 + 1))
    fails("parameter_invalid", 415, "create_payment", raw=b"{}", content_type="text/plain")
    fails("parameter_invalid", 400, "list_payments", limit=0)
    fails("resource_not_found", 404, "list_payments", starting_after="pay_none")
    fails("amount_out_of_range", 422, "create_payment", body={**CARD, "amount": 10**13})
    fails("method_not_available", 422, "create_payment", body={**CARD, "method_code": "br_pix"})
    fails("insufficient_balance", 422, "create_payout", body={**PAYOUT, "amount": 10**12})
    payment = merchant.do("create_payment", body=CARD, key="taken")
    fails("idempotency_conflict", 409, "create_payment", body=TRANSFER, key="taken")
    fails("invalid_state", 422, "create_refund", body={"payment_id": payment["id"]})
    fails("resource_not_found", 404, "create_refund", body={"payment_id": "pay_none"})
    merchant.do("cancel_payment", payment["id"])
    fails("invalid_state", 422, "cancel_payment", payment["id"])
    blocked = {**CARD, "payer": {"email": "blocked@example.com"}}
    fails("blocked_payer", 403, "create_payment", body=blocked)
    for _ in range(10):
        engine.add_endpoint("https://shop.example/")
    fails("limit_exceeded", 422, "create_webhook_endpoint", body={"url": "https://shop.example/"})
    terms.broken_methods = {"cl_webpay_card"}
    fails("provider_unavailable", 502, "create_payment", body=CARD)
    terms.forbidden_methods = {"cl_webpay_card"}
    fails("method_not_allowed", 403, "create_payment", body=CARD)
    terms.countries.discard("CL")
    fails("country_not_allowed", 403, "create_payment", body=CARD)
    engine.faults.add(Fault("in_progress"))
    fails("idempotency_in_progress", 409, "create_payment", body=CARD)
    for code, status in (("internal_error", 500), ("service_unavailable", 503)):
        engine.faults.add(Fault("error", code=code))
        fails(code, status, "list_balances")
    terms.active = False
    fails("merchant_not_active", 403, "list_balances")
    engine.revoke_key()
    fails("api_key_revoked", 401, "list_balances")
    merchant.headers = {}
    fails("api_key_invalid", 401, "list_balances")


def test_a_rate_limited_answer_matches_the_document(session: requests.Session) -> None:
    # A bucket that fills by one in 1,000 seconds: nothing depends on how long the test takes.
    engine = Engine(rate_limits=RateLimits(reads=0.001, writes=0.001, burst=1_000))
    with SandboxServer(engine, deliver=False) as server:
        merchant = Merchant(server, session)
        merchant.do("list_balances")
        merchant.fails("rate_limited", 429, "list_balances")
        merchant.do("create_payment", body=CARD)
        merchant.fails("rate_limited", 429, "create_payment", body=CARD)
