"""The OpenAPI document describes what the sandbox does: paths, enums, fields, codes and events.

tests/projects/contract validates real requests and responses against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.validation import validate_schema

from payments_integration.sandbox import Engine, protocol
from payments_integration.sandbox.application import URL_PATTERNS
from payments_integration.sandbox.deposits import CREATE_FIELDS as DEPOSIT_FIELDS
from payments_integration.sandbox.endpoints import CREATE_FIELDS as ENDPOINT_FIELDS
from payments_integration.sandbox.openapi import document
from payments_integration.sandbox.operations import OPERATIONS
from payments_integration.sandbox.payments import CREATE_FIELDS as PAYMENT_FIELDS
from payments_integration.sandbox.payouts import CREATE_FIELDS as PAYOUT_FIELDS
from payments_integration.sandbox.protocol import OPERATION_IDS, REQUEST_METHODS
from payments_integration.sandbox.refunds import CREATE_FIELDS as REFUND_FIELDS
from payments_integration.sandbox.views import api

from .support import ACCOUNT, CARD, DEPOSIT, PAYER, TRANSFER, Client, Receiver

DOCUMENT = document()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
METHODS = ("get", "post", "put", "patch", "delete")


def described() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method in item:
            assert method in METHODS
            yield method.upper(), path, item[method]


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        target: Any = DOCUMENT
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = target
    return part


def everything(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from everything(value)
    elif isinstance(part, list):
        for value in part:
            yield from everything(value)


def unknown_fields(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """The fields of an object, and of all objects in it, that the schema does not name."""
    schema = resolve(schema)
    if isinstance(value, list):
        return [name for item in value for name in unknown_fields(item, schema["items"], where)]
    if not isinstance(value, dict):
        return []
    if "oneOf" in schema:
        by = schema["discriminator"]
        return unknown_fields(value, {"$ref": by["mapping"][value[by["propertyName"]]]}, where)
    if "additionalProperties" in schema and "properties" not in schema:
        return []
    found = []
    for name, part in value.items():
        if name not in schema["properties"]:
            found.append(f"{where}{name}")
        else:
            found += unknown_fields(part, schema["properties"][name], f"{where}{name}.")
    return found


def test_the_document_is_valid_openapi() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    validate_schema(DOCUMENT)


def test_every_reference_exists_and_every_component_is_used() -> None:
    used = {part["$ref"] for part in everything(DOCUMENT) if isinstance(part.get("$ref"), str)}
    for target in used:
        assert resolve({"$ref": target})
    there = {
        f"#/components/{kind}/{name}"
        for kind, items in DOCUMENT["components"].items()
        if kind != "securitySchemes"
        for name in items
    }
    assert there == used


def test_paths_and_methods_are_those_of_the_sandbox() -> None:
    routed = {
        (method, re.sub(r"<str:object_id>", "{}", str(route.pattern)).removeprefix("v1"), operation)
        for route in URL_PATTERNS
        if route.callback is api
        for method, operation in route.default_args["operations"].items()
    }
    assert routed == {
        (method, re.sub(r"\{\w+\}", "{}", path), operation["operationId"]) for method, path, operation in described()
    }
    assert {operation for _, _, operation in routed} == set(OPERATIONS) == set(OPERATION_IDS)
    assert {method.upper() for method, _, _ in routed} == set(REQUEST_METHODS)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("Country", protocol.COUNTRIES),
        ("Currency", protocol.CURRENCIES),
        ("DocumentType", protocol.DOCUMENT_TYPES),
        ("AccountType", protocol.ACCOUNT_TYPES),
        ("MethodFamily", protocol.FAMILIES),
        ("NextActionType", protocol.NEXT_ACTIONS),
        ("PaymentStatus", protocol.PAYMENT_STATUSES),
        ("PayoutStatus", protocol.PAYOUT_STATUSES),
        ("RefundStatus", protocol.REFUND_STATUSES),
        ("DepositReferenceStatus", ("active", "disabled")),
        ("WebhookEndpointStatus", ("active", "disabled")),
        ("EventType", protocol.EVENT_TYPES),
        ("ErrorCode", tuple(protocol.CATALOGUE)),
        ("ErrorType", tuple(dict.fromkeys(kind for _, kind in protocol.CATALOGUE.values()))),
    ],
)
def test_enums_are_those_of_the_sandbox(name: str, there: tuple[str, ...]) -> None:
    words = SCHEMAS[name]["enum"]
    assert sorted(words) == sorted(there)
    assert len(words) == len(set(words))


def test_limits_are_those_of_the_sandbox() -> None:
    assert SCHEMAS["Metadata"]["maxProperties"] == protocol.MAX_METADATA_KEYS
    assert SCHEMAS["Metadata"]["additionalProperties"]["maxLength"] == protocol.MAX_METADATA_VALUE
    key = DOCUMENT["components"]["parameters"]["IdempotencyKey"]
    assert key["schema"]["maxLength"] == protocol.MAX_IDEMPOTENCY_KEY
    for name in ("CreatePayment", "CreatePayout", "CreateRefund"):
        assert SCHEMAS[name]["properties"]["amount"]["maximum"] == protocol.INT64_MAX


def test_only_posts_have_an_idempotency_key() -> None:
    for method, path, operation in described():
        names = [resolve(parameter)["name"] for parameter in operation["parameters"]]
        assert ("Idempotency-Key" in names) == (method == "POST"), path
        assert re.findall(r"\{(\w+)\}", path) == [
            resolve(parameter)["name"] for parameter in operation["parameters"] if resolve(parameter)["in"] == "path"
        ]


def test_every_response_has_the_rate_limit_headers() -> None:
    for _, path, operation in described():
        for status, answer in operation["responses"].items():
            headers = resolve(answer)["headers"]
            for name in ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"):
                assert resolve(headers[name])["required"], (path, status)
            assert ("Retry-After" in headers) == (status == "429")
            assert ("WWW-Authenticate" in headers) == (status == "401")


@pytest.mark.parametrize("code", sorted(protocol.CATALOGUE))
def test_every_error_code_has_its_status_and_type(code: str) -> None:
    status, kind = protocol.CATALOGUE[code]
    checked = 0
    for _, path, operation in described():
        for described_status, answer in operation["responses"].items():
            if int(described_status) < 400:
                continue
            content = resolve(answer)["content"]["application/json"]
            narrowed = content["schema"]["allOf"][1]["properties"]["error"]["properties"]
            if code not in narrowed["code"]["enum"]:
                continue
            body_statuses = ("413", "415") if code == "parameter_invalid" else ()
            assert described_status in (str(status), *body_statuses), (path, code)
            assert kind in narrowed["type"].get("enum", [narrowed["type"].get("const")])
            assert content["examples"][code]["value"]["error"]["type"] == kind
            checked += 1
    assert checked
    assert f"`{code}`" in SCHEMAS["ErrorCode"]["description"]


def test_query_parameters_are_those_of_the_sandbox(client: Client) -> None:
    values = {
        "limit": "1", "status": "created", "type": "payment.created", "merchant_reference": "x", "country": "CL",
        "currency": "CLP", "amount": "1", "payment_id": "pay_x", "created_from": "2026-01-01T00:00:00Z",
        "created_to": "2026-01-01T00:00:00Z", "starting_after": "x",
    }  # fmt: skip
    lists = [(path, operation) for method, path, operation in described() if method == "GET" and "{" not in path]
    assert len(lists) == 7
    for path, operation in lists:
        names = {resolve(parameter)["name"] for parameter in operation["parameters"]}
        for name, value in values.items():
            reply = client.get(path, **{name: value})
            refused = reply.status == 400 and reply.error["param"] == name
            assert refused != (name in names), (path, name, reply.raw)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("CreatePayment", PAYMENT_FIELDS),
        ("CreatePayout", PAYOUT_FIELDS),
        ("CreateRefund", REFUND_FIELDS),
        ("CreateDepositReference", DEPOSIT_FIELDS),
        ("CreateWebhookEndpoint", ENDPOINT_FIELDS),
    ],
)
def test_the_fields_of_requests_are_those_of_the_sandbox(client: Client, name: str, fields: tuple[str, ...]) -> None:
    assert set(SCHEMAS[name]["properties"]) == set(fields)
    (path,) = [
        path
        for _, path, operation in described()
        if operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        == {"$ref": f"#/components/schemas/{name}"}
    ]
    example = next(iter(_request_examples(path).values()))
    for field in SCHEMAS[name]["required"]:
        reply = client.post(path, {key: value for key, value in example.items() if key != field})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_missing", field)


def _request_examples(path: str) -> dict[str, Any]:
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return {name: example["value"] for name, example in content["examples"].items()}


def test_the_sandbox_accepts_every_example_of_a_request(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 1_000_000)
    card, transfer = client.card(amount=12_500), client.bank()
    for payment in (card, transfer):
        engine.pay(payment["id"])
    taken = 0
    for method, path, operation in described():
        if method != "POST" or "requestBody" not in operation:
            continue
        for example in _request_examples(path).values():
            changes = {}
            if path == "/refunds":
                changes["payment_id"] = (transfer if "destination" in example else card)["id"]
            assert client.post(path, {**example, **changes}).status == 201, (path, example)
            taken += 1
    assert taken == 8


def test_every_field_of_the_sandbox_is_described(engine: Engine, client: Client, receiver: Receiver) -> None:
    full = {"payer": PAYER, "metadata": {"a": "b"}, "merchant_reference": "m", "return_url": "https://x.example/"}
    shown: list[tuple[str, Any]] = [("PaymentMethodList", client.get("/payment-methods").json)]
    engine.fund("CLP", 1_000_000)
    endpoint = client.make("/webhook-endpoints", {"url": "https://shop.example/"})
    shown += [("WebhookEndpointWithSecret", endpoint), ("WebhookEndpointList", client.get("/webhook-endpoints").json)]
    actions = {method["next_action"]: method["code"] for method in shown[0][1]["data"] if method["country"] == "CL"}
    assert set(actions) == set(protocol.NEXT_ACTIONS)
    for code in actions.values():
        if code != "cl_deposit":
            shown.append(("Payment", client.make("/payments", {**CARD, "method_code": code, "flow": "s2s", **full})))
    card, transfer = client.card(**full), client.bank(flow="s2s")
    for payment in (card, transfer):
        engine.pay(payment["id"])
        shown.append(("Payment", engine.payments[payment["id"]]))
    shown.append(("Payout", client.make("/payouts", {**TRANSFER, "destination": ACCOUNT, "merchant_reference": "m"})))
    shown.append(("Refund", client.make("/refunds", {"payment_id": card["id"], "amount": 1, "reason": "r"})))
    shown.append(("Refund", client.make("/refunds", {"payment_id": transfer["id"], "destination": ACCOUNT})))
    reference = client.make("/deposit-references", {**DEPOSIT, "payer": PAYER, "merchant_reference": "m"})
    shown += [("DepositReference", reference), ("Payment", engine.transfer(reference["id"], 5))]
    shown.append(("BalanceList", client.get("/balances").json))
    for name in ("Payment", "Payout", "Refund", "Event"):
        shown.append((f"{name}Page", client.get(f"/{name.lower()}s", limit=100).json))
    engine.deliver_due()
    shown += [("Event", event) for event in receiver.events]
    shown.append(("DeletedWebhookEndpoint", client.delete(f"/webhook-endpoints/{endpoint['id']}").json))
    for name, value in shown:
        assert unknown_fields(value, {"$ref": f"#/components/schemas/{name}"}) == [], name
        assert set(resolve(SCHEMAS[name])["required"]) <= set(value), name


def test_every_event_type_has_a_webhook() -> None:
    assert set(DOCUMENT["webhooks"]) == set(protocol.EVENT_TYPES)
    for event_type, item in DOCUMENT["webhooks"].items():
        assert set(item) == {"post"}
        assert item["post"]["security"] == []
        content = item["post"]["requestBody"]["content"]["application/json"]
        narrowed = resolve(content["schema"])["allOf"][1]["properties"]
        assert narrowed["type"]["const"] == content["examples"]["event"]["value"]["type"] == event_type
        assert narrowed["data"]["$ref"].rpartition("/")[2].lower() == event_type.partition(".")[0]


def test_the_signature_of_deliveries_is_described(engine: Engine, client: Client, receiver: Receiver) -> None:
    parameter = resolve(DOCUMENT["webhooks"]["payment.created"]["post"]["parameters"][0])
    endpoint = client.make("/webhook-endpoints", {"url": "https://shop.example/", "events": ["payment.created"]})
    client.card()
    client.post(f"/webhook-endpoints/{endpoint['id']}/rotate-secret")
    engine.deliver_due()
    client.card()
    engine.deliver_due()
    assert len(receiver.got) == 2
    for _, headers, _ in receiver.got:
        assert re.search(parameter["schema"]["pattern"], headers[parameter["name"]])


def test_details_that_the_provider_does_not_show_are_marked() -> None:
    marked = [part for part in everything(DOCUMENT) if "x-not-shown" in part]
    assert marked
    for part in marked:
        assert part["x-not-shown"] is True
        assert "not shown" in part["description"].lower()
    unmarked = [
        part
        for part in everything(DOCUMENT["components"])
        if "not shown by the provider. the sandbox" in str(part.get("description", "")).lower()
        and "x-not-shown" not in part
    ]
    assert unmarked == []


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/", "HTTPS://Shop.Example", "https://u:p@x.example/~a;b=c/(d)?e=%20f&g=/?#h?",
        "https://[::1]:8000/a", "https://shop.example?a=b",
    ],
)  # fmt: skip
def test_a_valid_url_is_accepted(client: Client, url: str) -> None:
    assert client.make("/webhook-endpoints", {"url": url})["url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "https://\x84", "https://tienda-\xf1.example/", "https://x.example/\xe9", "https://\u017fhop.example/",
        "https://x.example/%zz", "https://x.example/{a}", "https://x.example/#a#b", "https://x.example/[a]",
        "https://[x]/", "https://x.example/a b", "https://x.example/\n", "https://x.example:0/", "https://:80/",
        "http\u017f://x.example/",
    ],
)  # fmt: skip
def test_an_invalid_url_is_refused(client: Client, url: str) -> None:
    for path, body, name in (("/webhook-endpoints", {}, "url"), ("/payments", CARD, "return_url")):
        reply = client.post(path, {**body, name: url})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_invalid", name)


def test_the_document_is_served_without_a_key_and_not_logged(engine: Engine, client: Client) -> None:
    client.api_key = None
    reply = client.call("GET", "/openapi.json")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    assert reply.json == document("")
    assert reply.json["servers"] == [{"url": "/v1"}]
    assert engine.requests == []
    engine.base_url = "https://sandbox.example/"
    assert client.call("GET", "/openapi.json").json["servers"] == [{"url": "https://sandbox.example/v1"}]
    assert client.call("HEAD", "/openapi.json").status == 200
    refused = client.call("POST", "/openapi.json")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET")


def test_each_call_returns_a_new_document() -> None:
    document()["paths"].clear()
    assert document() == DOCUMENT
    assert DOCUMENT["servers"][0]["variables"]["base_url"]["default"] == "http://127.0.0.1:8400"
