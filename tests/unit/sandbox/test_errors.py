"""The error envelope, and how to cause each error code with its status."""

from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Engine, Fault
from payments_integration.sandbox.protocol import CATALOGUE

from .support import CARD, DEPOSIT, PAYOUT, Client, Reply

TYPES = {
    "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "invalid_state_error",
    "idempotency_error", "rate_limit_error", "api_error",
}  # fmt: skip
CODES = {
    "parameter_invalid", "parameter_missing", "amount_out_of_range", "api_key_invalid", "api_key_revoked",
    "merchant_not_active", "method_not_allowed", "country_not_allowed", "resource_not_found",
    "idempotency_conflict", "idempotency_in_progress", "invalid_state", "insufficient_balance",
    "method_not_available", "blocked_payer", "limit_exceeded", "rate_limited", "internal_error",
    "provider_unavailable", "service_unavailable",
}  # fmt: skip


def check(reply: Reply, status: int, kind: str, code: str, param: str | None = None) -> None:
    assert reply.status == status
    assert set(reply.json) == {"error"}
    error = reply.error
    assert set(error) == {"type", "code", "message", "request_id"} | ({"param"} if param else set())
    assert all(isinstance(value, str) and value for value in error.values())
    assert (error["type"], error["code"], error.get("param")) == (kind, code, param)
    assert reply.headers["Content-Type"] == "application/json"
    assert {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Date"} <= set(reply.headers)


def test_the_catalogue_has_every_code_and_type() -> None:
    assert set(CATALOGUE) == CODES
    assert {kind for _, kind in CATALOGUE.values()} == TYPES


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_can_be_caused_by_a_fault(engine: Engine, client: Client, code: str) -> None:
    engine.faults.add(Fault("error", code=code, operation="create_payment"))
    status, kind = CATALOGUE[code]
    check(client.post("/payments", CARD), status, kind, code)
    assert engine.payments == {}
    assert client.post("/payments", CARD).status == 201


def test_request_ids_are_unique_and_logged(engine: Engine, client: Client) -> None:
    ids = [client.get("/payments/pay_none").error["request_id"] for _ in range(2)]
    assert ids[0] != ids[1]
    assert [entry["request_id"] for entry in engine.requests] == ids


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer sk_test_other", "Basic c2s6", "sk_test_sandbox"]
)
@pytest.mark.parametrize("path", ["/v1/payments", "/v1/nothing"])
def test_a_missing_or_wrong_api_key(client: Client, header: str | None, path: str) -> None:
    client.api_key = None
    headers = {} if header is None else {"authorization": header}
    reply = client.call("GET", path, **headers)
    check(reply, 401, "authentication_error", "api_key_invalid")
    assert "POST /_sandbox/projects" in reply.error["message"], "so that a project with several accounts finds the way"
    assert reply.headers["WWW-Authenticate"] == "Bearer"


def test_a_revoked_api_key(engine: Engine, client: Client) -> None:
    engine.add_key("sk_test_new")
    engine.revoke_key()
    check(client.get("/payments"), 401, "authentication_error", "api_key_revoked")
    assert Client(engine, "sk_test_new").get("/payments").status == 200


def test_an_inactive_merchant_is_refused(engine: Engine, client: Client) -> None:
    engine.terms.active = False
    check(client.get("/balances"), 403, "permission_error", "merchant_not_active")
    check(client.post("/payments", CARD), 403, "permission_error", "merchant_not_active")


@pytest.mark.parametrize(
    ("path", "body"), [("/payments", CARD), ("/payouts", PAYOUT), ("/deposit-references", DEPOSIT)]
)
def test_requests_outside_the_agreement_are_refused(
    engine: Engine, client: Client, path: str, body: dict[str, Any]
) -> None:
    code = body["method_code"]
    engine.fund("CLP", 100_000)
    engine.terms.broken_methods = {code}
    check(client.post(path, body), 502, "api_error", "provider_unavailable")
    engine.terms.unavailable_methods = {code}
    check(client.post(path, body), 422, "invalid_request_error", "method_not_available", "method_code")
    listed = {method["code"]: method["available"] for method in client.get("/payment-methods").json["data"]}
    assert listed[code] is False
    engine.terms.forbidden_methods = {code}
    check(client.post(path, body), 403, "permission_error", "method_not_allowed", "method_code")
    engine.terms.countries.discard("CL")
    check(client.post(path, body), 403, "permission_error", "country_not_allowed", "country")
    assert code not in {method["code"] for method in client.get("/payment-methods").json["data"]}


@pytest.mark.parametrize("payer", [{"email": "bad@example.com"}, {"document": {"type": "CC", "number": "666"}}])
def test_a_blocked_payer_is_refused(engine: Engine, client: Client, payer: dict[str, Any]) -> None:
    body = {**CARD, "payer": payer}
    assert client.post("/payments", body).status == 201
    engine.terms.blocked_payers = {"bad@example.com", "666"}
    check(client.post("/payments", body), 403, "permission_error", "blocked_payer", "payer")
    check(
        client.post("/deposit-references", {**DEPOSIT, "payer": payer}),
        403,
        "permission_error",
        "blocked_payer",
        "payer",
    )


@pytest.mark.parametrize(
    "path",
    ["/payments/pay_x", "/payouts/pout_x", "/refunds/ref_x", "/deposit-references/dep_x", "/events/evt_x"],
)
def test_an_object_that_does_not_exist(client: Client, path: str) -> None:
    check(client.get(path), 404, "not_found_error", "resource_not_found")


@pytest.mark.parametrize(
    "path", ["/payments/pay_x/cancel", "/payouts/pout_x/cancel", "/webhook-endpoints/whk_x/rotate-secret"]
)
def test_an_action_on_an_object_that_does_not_exist(client: Client, path: str) -> None:
    check(client.post(path), 404, "not_found_error", "resource_not_found")


@pytest.mark.parametrize("path", ["", "/", "/nothing", "/payments/", "/payments/a/b/c", "/webhook-endpoints/whk_x/x"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
def test_a_path_that_does_not_exist(client: Client, path: str, method: str) -> None:
    check(client.call(method, f"/v1{path}"), 404, "not_found_error", "resource_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/payments", "GET, POST"),
        ("PUT", "/payments/pay_x", "GET"),
        ("GET", "/payments/pay_x/cancel", "POST"),
        ("POST", "/balances", "GET"),
        ("HEAD", "/balances", "GET"),
        ("GET", "/webhook-endpoints/whk_x", "DELETE"),
        ("OPTIONS", "/events", "GET"),
    ],
)
def test_an_http_method_that_is_not_allowed(client: Client, method: str, path: str, allowed: str) -> None:
    reply = client.call(method, f"/v1{path}")
    check(reply, 405, "invalid_request_error", "method_not_allowed")
    assert reply.headers["Allow"] == allowed


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"amount": NaN}', b'{"amount": 1e999, "amount": 1}',
        b'{"a": 1, "a": 2}', b'{"merchant_reference": "\\ud800"}', b"[" * 100_000,
        b'{"amount": ' + b"9" * 5_000 + b"}", b'\xef\xbb\xbf{"amount": 1}',
    ],
)  # fmt: skip
def test_a_body_that_is_not_json(client: Client, raw: bytes) -> None:
    reply = client.call("POST", "/v1/payments", raw, idempotency_key="k", content_type="application/json")
    check(reply, 400, "invalid_request_error", "parameter_invalid")


def test_a_body_with_another_content_type(client: Client) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        reply = client.call("POST", "/v1/payments", b"{}", idempotency_key="k", content_type=content_type)
        check(reply, 415, "invalid_request_error", "parameter_invalid")
    reply = client.call(
        "POST", "/v1/payments", b"{}", idempotency_key="k", content_type="Application/JSON; charset=utf-8"
    )
    check(reply, 400, "invalid_request_error", "parameter_missing", "amount")


def test_a_body_above_256_kb_is_refused(client: Client) -> None:
    def send(size: int) -> Reply:
        raw = b'{"merchant_reference": "x"}'
        return client.call("POST", "/v1/payments", raw + b" " * (size - len(raw)), idempotency_key="k")

    check(send(256 * 1024), 400, "invalid_request_error", "parameter_missing", "amount")
    check(send(256 * 1024 + 1), 413, "invalid_request_error", "parameter_invalid")


def test_operations_without_a_body_refuse_one(client: Client) -> None:
    payment = client.card()
    path = f"/payments/{payment['id']}/cancel"
    check(client.post(path, {"reason": "x"}), 400, "invalid_request_error", "parameter_invalid", "reason")
    assert client.post(path, {}).status == 200


def test_a_bug_in_the_sandbox_is_an_internal_error(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(engine.default_project.state.payments, "create", broken)
    check(client.post("/payments", CARD, key="k"), 500, "api_error", "internal_error")
    monkeypatch.undo()
    assert client.post("/payments", CARD, key="k").status == 201
