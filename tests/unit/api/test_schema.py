"""The OpenAPI description: without warnings, complete, and of the API as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from django.urls import include, path
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.validation import validate_schema

from payments_integration import __version__
from payments_integration.api import serializers
from payments_integration.api.schema import describe
from payments_integration.api.schema_examples import EXAMPLES
from payments_integration.api.urls import described
from payments_integration.models import MIRRORS
from tests.unit.api.conftest import Caller


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with GENERATOR_STATS.silence():
        GENERATOR_STATS.reset()
        found = describe(described, "/payments/api")
        assert not GENERATOR_STATS, (GENERATOR_STATS._warn_cache, GENERATOR_STATS._error_cache)
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for address, methods in document["paths"].items():
        for method, operation in methods.items():
            yield address, method, operation


def test_the_schema_is_valid_openapi_without_warnings(document: dict[str, Any]) -> None:
    validate_schema(document)
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__
    assert document["servers"] == [{"url": "/payments/api"}]


def test_the_schema_has_every_path(document: dict[str, Any]) -> None:
    views = {"/" + str(pattern.pattern).replace("<str:id>", "{id}"): pattern.callback.cls for pattern in described}
    assert set(document["paths"]) == set(views)
    for address, view in views.items():
        assert {method.upper() for method in document["paths"][address]} == set(view.routes)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


def test_the_schema_lists_every_status_that_can_be_answered(document: dict[str, Any]) -> None:
    for address, method, operation in operations(document):
        expected = {"400", "401", "403", "406", "429"}
        if "{id}" in address or (address == "/refunds/" and method == "post"):
            expected.add("404")
        if method == "post":
            expected |= {"202", "409", "413", "415", "422", "502", "503"}
        if address == "/payment-methods/":
            expected |= {"502", "503"}
        answers = operation["responses"]
        assert set(answers) - {"200", "201"} == expected, (address, method)
        assert len(set(answers) & {"200", "201"}) == 1
        assert operation["summary"]
        assert operation["description"]
        assert operation["tags"]
        for status, answer in answers.items():
            assert answer["description"]
            assert "Request-Id" in answer["headers"]
            content = answer["content"]["application/json"]
            assert content["examples"], (address, method, status)
            if status >= "400":
                assert content["schema"] == {"$ref": "#/components/schemas/Error"}
        for status in {"429", "503"} & set(answers):
            assert "Retry-After" in answers[status]["headers"]


def test_every_post_needs_a_key_and_shows_a_body(document: dict[str, Any]) -> None:
    for address, method, operation in operations(document):
        names = {(parameter["in"], parameter["name"]): parameter for parameter in operation.get("parameters", ())}
        assert (("header", "Idempotency-Key") in names) is (method == "post")
        if method == "post":
            assert names["header", "Idempotency-Key"]["required"]
        if method == "post" and not address.endswith("/cancel/"):
            content = operation["requestBody"]["content"]["application/json"]
            assert content["examples"]
            name = content["schema"]["$ref"].rpartition("/")[2]
            assert document["components"]["schemas"][name]["additionalProperties"] is False


def test_the_examples_have_the_fields_that_answers_have(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for kind, example in EXAMPLES.items():
        schema = schemas[kind.__name__.removesuffix("Serializer")]
        assert set(schema.get("required", ())) <= set(example), kind
        if kind is not serializers.PaymentMethodSerializer:
            assert set(example) <= set(schema["properties"]), kind


def test_every_mirrored_field_is_shown() -> None:
    kinds = {
        "payment": serializers.PaymentSerializer,
        "payout": serializers.PayoutSerializer,
        "refund": serializers.RefundSerializer,
        "deposit_reference": serializers.DepositReferenceSerializer,
        "balance": serializers.BalanceSerializer,
    }
    for name, kind in kinds.items():
        own = {"object", "account"} | ({"id"} if name != "balance" else set())
        assert set(kind().fields) == {*MIRRORS[name].mirrored, *own}
        assert {*MIRRORS[name].personal} & {*kind().fields} <= {*kind.personal}


def test_the_schema_shows_no_docstrings(document: dict[str, Any]) -> None:
    assert "sees_personal" not in str(document)
    assert "x-spec-enum-id" not in str(document)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
        ("application/yaml", "application/yaml"),
    ],
)
def test_the_schema_is_served_to_permitted_users_in_json_and_yaml(
    document: dict[str, Any], staff: Callable[..., Caller], customer: Caller, accept: str, content_type: str
) -> None:
    response = staff().get("schema/", Accept=accept)
    assert response.status_code == 200
    assert response["Content-Type"].startswith(content_type)
    read = yaml.safe_load if "yaml" in accept else json.loads
    assert read(response.content) == document
    assert customer.get("schema/").status_code == 403
    assert Caller().get("schema/").status_code == 401


urlpatterns = [path("elsewhere/", include("payments_integration.urls"))]


@pytest.mark.django_db
@pytest.mark.urls("tests.unit.api.test_schema")
def test_the_schema_names_the_prefix_under_which_the_api_is_mounted(boss: Caller, document: dict[str, Any]) -> None:
    found = boss.client.get("/elsewhere/api/schema/").json()
    assert found["servers"] == [{"url": "/elsewhere/api"}]
    assert found["paths"] == document["paths"]


def test_the_projects_own_schema_settings_are_unchanged(document: dict[str, Any], settings: Any) -> None:
    assert spectacular_settings.TITLE == ""
    assert spectacular_settings.OAS_VERSION == "3.0.3"
