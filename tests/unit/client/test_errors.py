"""The exception for each status and body, and the data that it must not show."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from django.test import RequestFactory
from django.views.debug import ExceptionReporter

from payments_integration.client import Client
from payments_integration.exceptions import (
    PROVIDER_ERRORS,
    ApiError,
    AuthenticationFailed,
    IdempotencyError,
    InvalidRequest,
    InvalidState,
    NoAnswer,
    NotFound,
    PermissionRefused,
    ProviderError,
    RateLimited,
    provider_error,
)
from tests.unit.client import samples
from tests.unit.client.samples import BASE, BODY, CASES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def envelope(**changes: Any) -> dict[str, Any]:
    error = {
        "type": "invalid_request_error",
        "code": "parameter_invalid",
        "message": "amount must be positive",
        "param": "amount",
        "request_id": "req_77",
    }
    return {"error": {name: value for name, value in {**error, **changes}.items() if value is not ...}}


def fail(client: Client, provider: responses.RequestsMock, status: int, body: Any = None, **more: Any) -> Any:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    provider.post(f"{BASE}/payments", body=content, status=status, **more)
    with pytest.raises((ProviderError, NoAnswer)) as caught:
        client.payments.create(BODY, idempotency_key="k", max_wait=0)
    assert caught.value.__context__ is None
    return caught.value


@every_case
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 422, 499])
def test_every_call_raises_the_providers_error(
    case: Case, status: int, client: Client, provider: responses.RequestsMock
) -> None:
    provider.add(case.method, BASE + case.path, json=envelope(), status=status)
    with pytest.raises(InvalidRequest) as caught:
        case.call(client)
    error = caught.value
    assert (error.type, error.code, error.message) == (
        "invalid_request_error",
        "parameter_invalid",
        "amount must be positive",
    )
    assert (error.param, error.request_id, error.status_code) == ("amount", "req_77", status)
    assert error.retry_after is None
    assert len(provider.calls) == 1


@pytest.mark.parametrize("kind", sorted(PROVIDER_ERRORS))
def test_the_class_of_an_error_follows_its_type(kind: str, client: Client, provider: responses.RequestsMock) -> None:
    error = fail(client, provider, 400, envelope(type=kind, param=...))
    assert type(error) is PROVIDER_ERRORS[kind]
    assert error.type == kind
    assert error.param is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("api_key_invalid", AuthenticationFailed),
        ("api_key_revoked", AuthenticationFailed),
        ("merchant_not_active", PermissionRefused),
        ("resource_not_found", NotFound),
    ],
)
def test_the_class_follows_a_code_that_says_more_than_its_type(
    code: str, kind: type[ProviderError], client: Client, provider: responses.RequestsMock
) -> None:
    error = fail(client, provider, 400, envelope(type="invalid_request_error", code=code))
    assert type(error) is type(provider_error(error.fields())) is kind
    assert error.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, AuthenticationFailed),
        (403, PermissionRefused),
        (404, NotFound),
        (405, InvalidRequest),
        (409, IdempotencyError),
        (422, InvalidState),
        (418, ApiError),
    ],
)
def test_the_class_of_an_unknown_type_follows_the_status(
    status: int, kind: type[ProviderError], client: Client, provider: responses.RequestsMock
) -> None:
    error = fail(client, provider, status, envelope(type="brand_new_error"))
    assert type(error) is kind
    assert error.type == "brand_new_error"


@pytest.mark.parametrize("kind", ["api_error", "invalid_request_error", "brand_new_error"])
@pytest.mark.parametrize("status", [500, 502, 503, 504, 599])
def test_5xx_is_an_api_error(kind: str, status: int, client: Client, provider: responses.RequestsMock) -> None:
    error = fail(client, provider, status, envelope(type=kind))
    assert type(error) is ApiError
    assert (error.status_code, error.type) == (status, kind)


MALFORMED: list[Any] = [
    "",
    "<html>Bad gateway</html>",
    "{}",
    "[]",
    "null",
    b"\xff",
    {"error": "no"},
    {"error": None},
    envelope(type=...),
    envelope(code=...),
    envelope(message=...),
    envelope(request_id=...),
    envelope(code=7),
    envelope(message=None),
    json.dumps(envelope())[:-1],
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500, 503])
def test_an_error_without_an_envelope_is_no_answer(
    body: Any, status: int, client: Client, provider: responses.RequestsMock
) -> None:
    error = fail(client, provider, status, body, headers={"X-Request-Id": "req_9"})
    assert isinstance(error, NoAnswer)
    assert (error.status_code, error.request_id) == (status, "req_9")
    why = "the answer is not the provider's; check BASE_URL" if status < 500 else "no error envelope"
    assert str(error) == f"POST /payments: {why} (HTTP {status})"


@every_case
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304, 300])
def test_redirects_are_not_followed(case: Case, status: int, client: Client, provider: responses.RequestsMock) -> None:
    provider.add(
        case.method,
        BASE + case.path,
        json=case.reply,
        status=status,
        headers={"Location": f"{BASE}/elsewhere"},
    )
    with pytest.raises(NoAnswer, match="redirect") as caught:
        case.call(client)
    assert caught.value.status_code == status
    assert len(provider.calls) == 1


@every_case
@pytest.mark.parametrize(
    "error", [requests.ConnectTimeout, requests.ReadTimeout, requests.ConnectionError, ConnectionResetError]
)
def test_a_failed_connection_is_no_answer(
    case: Case, error: type[Exception], client: Client, provider: responses.RequestsMock
) -> None:
    provider.add(case.method, BASE + case.path, body=error("https://pay.example/?document=12.345.678-5"))
    with pytest.raises(NoAnswer) as caught:
        case.call(client)
    assert caught.value.status_code is None
    assert str(caught.value).startswith(f"{case.method} {BASE}{case.path}: ")
    assert "document" not in str(caught.value)
    assert caught.value.__context__ is None
    assert len(provider.calls) == 1  # the library's own retries could move money twice


def test_long_texts_of_an_error_are_cut(client: Client, provider: responses.RequestsMock) -> None:
    error = fail(client, provider, 400, envelope(message="a\nb\x00" + "x" * 9999, code="c" * 999, param="p" * 999))
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith("a b x")
    assert len(error.message) == 500
    assert len(error.code) == 64
    assert len(str(error.param)) == 255


def everything_shown(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.args) + str(vars(error))
    return shown + caplog.text + "".join(str(record.__dict__) for record in caplog.records)


SECRETS = [samples.API_KEY, samples.DOCUMENT_NUMBER, samples.ACCOUNT_NUMBER, "Ana Rojas"]


@pytest.mark.parametrize("status", [200, 302, 400, 422, 429, 500])
@pytest.mark.parametrize("well_formed", [True, False])
def test_an_error_repeats_no_personal_data_of_its_request(
    status: int,
    well_formed: bool,
    client: Client,
    provider: responses.RequestsMock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = f"you sent {' and '.join(SECRETS)}"
    body = json.dumps(envelope(message=echo, param=echo)) if well_formed else echo
    provider.post(f"{BASE}/payments", body=body, status=status, headers={"Location": "/?" + echo})
    with pytest.raises((ProviderError, NoAnswer)) as caught:
        client.payments.create(samples.PERSONAL_BODY, idempotency_key="k", max_wait=0)
    shown = everything_shown(caught.value, caplog)
    for secret in SECRETS:
        assert secret not in shown
    if well_formed and status >= 400:
        assert "you sent *** and ***" in shown


def test_a_request_is_logged_without_its_data(
    client: Client, provider: responses.RequestsMock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "payments_integration.client")
    provider.get(f"{BASE}/payments", json=samples.page(), headers={"X-Request-Id": "req_9"})
    list(client.payments.list(merchant_reference="order-17"))
    (record,) = caplog.records
    assert record.name == "payments_integration.client"
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith("GET /payments: HTTP 200 in 0.")
    assert record.getMessage().endswith(", request req_9")


def frames_of(caught: pytest.ExceptionInfo[Any], rf: RequestFactory) -> tuple[set[tuple[str, str]], str]:
    """The client's frames in Django's error report, as (module, function), and all variables shown there."""
    reporter = ExceptionReporter(rf.get("/"), caught.type, caught.value, caught.tb)
    frames = [
        frame
        for frame in reporter.get_traceback_frames()
        if "payments_integration/client" in frame["filename"] or frame["function"] == "sensitive_variables_wrapper"
    ]
    return {(Path(frame["filename"]).stem, frame["function"]) for frame in frames}, str(
        [(name, value) for frame in frames for name, value in frame["vars"]]
    )


@pytest.mark.parametrize("status", [None, 422, 429])
def test_django_error_reports_hide_the_body(
    status: int | None, client: Client, provider: responses.RequestsMock, rf: RequestFactory
) -> None:
    """E-mails to ADMINS and most error trackers show the variables of every frame."""
    if status is None:
        provider.post(f"{BASE}/payments", body=ConnectionResetError())
    else:
        provider.post(f"{BASE}/payments", json=envelope(), status=status)
    with pytest.raises((NoAnswer, ProviderError)) as caught:
        client.payments.create(samples.PERSONAL_BODY, idempotency_key="k", max_wait=0)
    seen, shown = frames_of(caught, rf)
    assert {("resources", "create"), ("requestor", "post"), ("requestor", "_send")} <= seen
    assert (("transport", "exchange") in seen) == (status is None)
    for secret in SECRETS:
        assert secret not in shown


@pytest.mark.parametrize("name", ["payments", "payouts"])
def test_django_error_reports_hide_the_answer(
    name: str, client: Client, provider: responses.RequestsMock, rf: RequestFactory
) -> None:
    sample = {"payments": samples.PAYMENT, "payouts": samples.PAYOUT}[name]
    provider.get(f"{BASE}/{name}", json=samples.page(sample, {**sample, "amount": "much"}))
    provider.get(f"{BASE}/{name}/x", json=sample)
    for call in (lambda: list(getattr(client, name).list()), lambda: getattr(client, name).get("x")):
        with pytest.raises(NoAnswer) as caught:
            call()
        seen, shown = frames_of(caught, rf)
        assert "answers" in {module for module, _ in seen}
        for secret in SECRETS:
            assert secret not in shown


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 2),
        ("", 2),
        ("soon", 2),
        ("-1", 2),
        ("1.5", 2),
        ("٣", 2),
        ("0", 1),
        ("1", 1),
        ("17", 17),
        (" 17 ", 17),
        ("60", 60),
        ("61", 60),
        ("999999", 60),
        ("9" * 400, 2),
        ("Sun, 01 Mar 2026 12:00:31 GMT", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 1),
        ("Sun, 01 Mar 2026 19:00:00 GMT", 60),
        ("Sun, 99 Mar 2026 19:00:00 GMT", 2),
    ],
)
@pytest.mark.parametrize("well_formed", [True, False])
def test_retry_after_is_between_1_and_60_seconds(
    header: str | None, seconds: float, well_formed: bool, client: Client, provider: responses.RequestsMock
) -> None:
    headers = {"Date": samples.DATE} | ({} if header is None else {"Retry-After": header})
    body: Any = envelope(type="rate_limit_error", code="rate_limited") if well_formed else "<html>"
    error = fail(client, provider, 429, body, headers=headers)
    assert type(error) is RateLimited
    assert error.retry_after == seconds
    assert error.code == "rate_limited"
    assert error.request_id == ("req_77" if well_formed else "")
