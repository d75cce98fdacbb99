"""How requests are read: media types, methods, sizes, limits; every refusal in the envelope."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import time_machine
from django.core.cache import cache
from django.urls import include, path
from django.utils import timezone

from payments_integration import services
from payments_integration.api.views.base import ApiView
from tests.caches import DOWN
from tests.unit.api.conftest import API, Caller, error, make_payment

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

ROOT = Path(__file__).resolve().parents[3]
PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "m"}


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("application/json", 200),
        ("application/json; version=1", 200),
        ("text/html,application/json;q=0.9", 200),
        ("text/html", 406),
        ("application/xml", 406),
    ],
)
def test_formats_by_accept(boss: Caller, accept: str, status: int) -> None:
    response = boss.get("payments/", Accept=accept)
    assert response.status_code == status
    assert response["Content-Type"].startswith("application/json")
    if status == 406:
        assert error(response)["code"] == "not_acceptable"


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_a_method_that_no_path_has_is_answered_405(boss: Caller, method: str) -> None:
    response = getattr(boss.client, method)(f"{API}payments/")
    assert response.status_code == 405
    assert error(response)["code"] == "method_not_allowed"
    assert set(response["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert getattr(Caller().client, method)(f"{API}payments/").status_code == 401


def test_a_method_that_this_path_does_not_have_is_answered_405(boss: Caller) -> None:
    assert boss.post("events/", {}).status_code == 405
    assert boss.get("payments/pay_1/cancel/").status_code == 405
    assert boss.client.head(f"{API}payments/").status_code == 200


@pytest.mark.parametrize(
    "path", ["nothing/", "payments", "payments/a/b/c/", "payments/%2F/", "webhook-endpoints/", "schema"]
)
def test_an_unknown_path_is_answered_404(boss: Caller, path: str) -> None:
    for response in (boss.get(path), boss.post(path, {}), Caller().get(path), boss.client.put(f"{API}{path}")):
        assert response.status_code == 404
        assert error(response)["code"] == "resource_not_found"


@pytest.mark.parametrize(
    "pk", ["pay_2", "pay%00_1", "p" * 300, "%F0%9F%92%B8", "pay_1%0A", "%ff", "PAY_1", "pay_1%20"]
)
def test_an_unknown_id_is_answered_404(boss: Caller, pk: str) -> None:
    make_payment()
    for response in (boss.get(f"payments/{pk}/"), boss.post(f"payments/{pk}/cancel/")):
        assert response.status_code == 404
        assert error(response)["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("text/plain", b"{}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", b"amount=1", 415, "unsupported_media_type"),
        ("multipart/form-data; boundary=x", b"--x", 415, "unsupported_media_type"),
        ("multipart/form-data", b"broken", 415, "unsupported_media_type"),
        ("nonsense", b"{}", 415, "unsupported_media_type"),
        ("application/json", b"{", 400, "parameter_invalid"),
        ("application/json", b"[]", 400, "parameter_invalid"),
        ("application/json", b"null", 400, "parameter_invalid"),
        ("application/json", b'{"amount": NaN}', 400, "parameter_invalid"),
        ("application/json", b'{"a": "\xff"}', 400, "parameter_invalid"),
        ("application/json", b'{"\\ud800": 1}', 400, "parameter_invalid"),
        ("application/json", b'{"a":' * 5000 + b"1" + b"}" * 5000, 400, "parameter_invalid"),
        ("application/json", '{"amount": 1}'.encode("utf-16"), 400, "parameter_invalid"),
        ("application/json", b'{"x": "' + b"x" * 262_144 + b'"}', 413, "request_too_large"),
    ],
)
def test_a_body_that_is_not_a_json_object_is_refused(
    boss: Caller, content_type: str, body: bytes, status: int, code: str
) -> None:
    for client in (boss.client, Caller(boss.user, enforce_csrf_checks=True).client):
        response = client.post(f"{API}payments/", body, content_type=content_type, headers={"Idempotency-Key": "k"})
        if client is boss.client or status == 415:
            assert response.status_code == status
            assert error(response)["code"] == code
        else:
            assert response.status_code == 403, "who has no CSRF token is not listened to"


@pytest.mark.parametrize(
    "query",
    [
        "amount=x", "amount=0", "amount=1.5", "amount=5.000", "amount=5.0", "amount=%2B5", "amount=%D9%A5",
        "amount=" + "9" * 30, "country=XX", "currency=EUR", "account=x",
    ],
)  # fmt: skip
def test_a_wrong_parameter_of_payment_methods_is_refused(boss: Caller, query: str) -> None:
    response = boss.get(f"payment-methods/?{query}")
    assert (response.status_code, error(response)["param"]) == (400, query.partition("=")[0])


def test_a_malformed_parameter_name_is_not_repeated_in_the_answer(boss: Caller) -> None:
    response = boss.post("payments/", {"<script>": 1})
    assert response.status_code == 400
    assert "param" not in error(response)
    assert "script" not in response.content.decode()


@pytest.mark.parametrize("name", ["x\nanother line", "ana@example.com"])
def test_a_malformed_parameter_name_is_not_logged(boss: Caller, caplog: pytest.LogCaptureFixture, name: str) -> None:
    with caplog.at_level(logging.INFO, logger="payments_integration.api"):
        boss.post("payments/", {name: 1})
        boss.get(f"payments/?{quote(name)}=1")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("payments_integration.api")]
    assert len(lines) == 2
    assert not any(name in line or "\n" in line for line in lines)


def test_rate_limits_are_per_user_and_separate_for_reads_and_writes(
    boss: Caller, rows: Any, noted: list[Any], settings: Any, customer: Caller, opened: None
) -> None:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_THROTTLE_RATES": {"read": "2/hour", "write": "1/hour"}
    }  # fmt: skip
    cache.clear()
    assert [boss.get("payments/").status_code for _ in range(3)] == [200, 200, 429]
    response = boss.get("payments/")
    assert error(response)["type"] == "rate_limit_error"
    assert 0 < int(response["Retry-After"]) <= 3600
    assert [boss.post("payments/", PAYMENT).status_code for _ in range(2)] == [201, 429]
    assert len(noted) == 1
    assert customer.get("payments/").status_code == 200


def test_without_a_working_cache_requests_are_answered(boss: Caller, noted: list[Any], settings: Any) -> None:
    rates = {"read": "1/hour", "write": "1/hour"}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_THROTTLE_RATES": rates}
    settings.CACHES = DOWN
    assert [boss.get("payments/").status_code for _ in range(2)] == [200, 200]
    assert boss.post("payments/", PAYMENT).status_code == 201


def test_the_site_that_shares_the_cache_counts_its_own_requests(boss: Caller, settings: Any) -> None:
    configured = {**settings.PAYMENTS_INTEGRATION, "API_THROTTLE_RATES": {"read": "1/hour", "write": "1/hour"}}
    settings.PAYMENTS_INTEGRATION = configured
    assert [boss.get("payments/").status_code for _ in range(2)] == [200, 429]
    other = {"default": {**configured["ACCOUNTS"]["default"], "API_KEY": "sk_live_production"}}
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": other}
    assert boss.get("payments/").status_code == 200


def test_rate_limits_apply_by_default(boss: Caller, settings: Any) -> None:
    del settings.PAYMENTS_INTEGRATION["API_THROTTLE_RATES"]
    with time_machine.travel(timezone.now(), tick=False):
        assert 429 in {boss.get("payments/?limit=x").status_code for _ in range(130)}


@pytest.mark.parametrize(
    "policy",
    [
        "renderer_classes", "parser_classes", "content_negotiation_class", "metadata_class", "versioning_class",
        "filter_backends", "pagination_class", "schema",
        "get_authenticators", "get_permissions", "get_throttles", "get_exception_handler",
    ],
)  # fmt: skip
def test_no_policy_depends_on_the_projects_rest_framework_defaults(policy: str) -> None:
    assert policy in vars(ApiView)


def test_the_api_is_not_imported_before_the_urls() -> None:
    code = (
        "import sys, django; django.setup(); print([name for name in sys.modules if (name + '.').startswith("
        "('payments_integration.api.', 'drf_spectacular.', 'django_filters.', 'rest_framework.views.'))])"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_an_unexpected_exception_is_a_500(boss: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.api.lists.KeysetPages.paginate_queryset", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        boss.get("payments/")


urlpatterns = [
    path("shop/", include(([path("payments/", include("payments_integration.urls"))], "shop"), namespace="shop")),
]


@pytest.mark.urls(__name__)
def test_within_another_namespace_a_result_has_its_address(boss: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_payment()
    monkeypatch.setattr(services, "create_payment", lambda **named: made)
    response = boss.client.post(
        "/shop/payments/api/payments/", b"{}", content_type="application/json", headers={"Idempotency-Key": "k"}
    )
    assert response.status_code == 201
    assert response.headers["Location"] == f"/shop/payments/api/payments/{made.pk}/"
