"""The OpenAPI description: without warnings, complete, and of the API as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import modify_settings
from django.urls import include, path
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.management.commands.spectacular import Command
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.validation import validate_schema
from rest_framework.generics import RetrieveAPIView
from rest_framework.serializers import CharField, Serializer

from payments_integration import sandbox
from payments_integration.api import serializers
from payments_integration.api.errors import CODES
from payments_integration.api.lists import PaymentFilters
from payments_integration.api.schema import describe
from payments_integration.api.types import DESCRIPTIONS
from payments_integration.api.urls import described
from payments_integration.enums import Country, Currency, MethodFamily, PaymentStatus, PayoutStatus, RefundStatus
from payments_integration.models import MIRRORS
from payments_integration.next_action import ActionType
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import AS_ASKED, Caller

pytestmark = pytest.mark.any_database


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
    assert document["info"]["version"] == "1"
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
        expected = {"400", "401", "403", "404", "406", "429", "500", "502", "503"}
        if method == "post":
            expected |= {"202", "409", "413", "415", "422"}
        answers = operation["responses"]
        assert set(answers) - {"200", "201"} == expected, (address, method)
        assert len(set(answers) & {"200", "201"}) == 1
        assert operation["description"]
        for status, answer in answers.items():
            if status >= "400":
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}


def test_every_post_needs_a_key_and_shows_a_body(document: dict[str, Any]) -> None:
    for address, method, operation in operations(document):
        names = {(parameter["in"], parameter["name"]): parameter for parameter in operation.get("parameters", ())}
        asks = method == "post" and not address.startswith("/operations/")
        assert (("header", "Idempotency-Key") in names) is asks
        if asks:
            assert names["header", "Idempotency-Key"]["required"]
            assert ("requestBody" in operation) is not address.endswith("/cancel/")


def test_the_schema_shows_what_lists_take(document: dict[str, Any]) -> None:
    found = {entry["name"]: entry["schema"] for entry in document["paths"]["/payments/"]["get"]["parameters"]}
    assert set(found) == {*PaymentFilters.base_filters, "limit", "cursor", "ordering"}
    assert found["created_from"]["format"] == "date-time"
    assert found["status"]["type"] == "array"
    assert "succeeded" in found["status"]["items"]["enum"]
    listed = document["components"]["schemas"]["PaginatedPaymentList"]
    assert listed["required"] == ["object", "has_more", "next_cursor", "data"]


def test_amounts_are_described_with_64_bits_and_personal_data_as_optional(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        if name in ("Payment", "Payout", "Refund", "PaymentInput", "PayoutInput", "RefundInput"):
            assert schema["properties"]["amount"]["format"] == "int64"
    payment = document["components"]["schemas"]["Payment"]
    optional = set(payment["properties"]) - set(payment["required"])
    assert optional == {"payer", "next_action", "failure_reason", "metadata", "status_url", "receipt_url"}


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
        own |= {"is_final", "display", "status_url", "receipt_url"} if name == "payment" else set()
        assert set(kind().fields) == {*MIRRORS[name].mirrored, *own}
        assert {*MIRRORS[name].personal} & {*kind().fields} <= {*kind.personal}


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from nodes(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from nodes(each)


def test_every_field_and_parameter_is_described(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for node in nodes(schema):
            if isinstance(node.get("properties"), dict):
                for field, found in node["properties"].items():
                    assert found.get("description"), (name, field)
    for address, method, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (address, method, parameter["name"])
    assert "x-spec-enum-id" not in str(document)
    assert "x-not-shown" not in str(document)


def test_no_description_is_left_over(document: dict[str, Any]) -> None:
    named = {name.rpartition(".")[2] for name in DESCRIPTIONS}
    used = {field for node in nodes(document) for field in node.get("properties", {})}
    used |= {each["name"] for *_, operation in operations(document) for each in operation.get("parameters", ())}
    assert named <= used


def test_answers_are_typed_with_the_sandboxs_types(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    theirs = json.loads(Path(sandbox.__file__).with_name("openapi.json").read_text())["components"]["schemas"]
    for component, field, wanted in [
        ("Payment", "status", "PaymentStatus"), ("Payout", "status", "PayoutStatus"),
        ("Refund", "status", "RefundStatus"), ("DepositReference", "status", "DepositReferenceStatus"),
        ("Payment", "currency", "Currency"), ("Payout", "country", "Country"),
        ("Payment", "method_family", "MethodFamily"), ("Event", "type", "EventType"),
        ("ErrorBody", "type", "ErrorType"),
    ]:  # fmt: skip
        assert schemas[component]["properties"][field]["$ref"] == f"#/components/schemas/{wanted}"
        closed, any_text = schemas[wanted]["anyOf"]
        assert (closed["enum"], any_text) == (theirs[wanted]["enum"], {"type": "string"})
    for component, field, wanted in [
        ("Payment", "next_action", "NextAction"), ("Payment", "payer", "Payer"), ("Payment", "metadata", "Metadata"),
        ("Payout", "destination", "BankAccountDestination"), ("DepositReference", "details", "NextAction"),
    ]:  # fmt: skip
        assert schemas[component]["properties"][field]["anyOf"] == [
            {"$ref": f"#/components/schemas/{wanted}"}, {"type": "null"}
        ]  # fmt: skip
        assert {*schemas[wanted].get("properties", ())} == {*theirs[wanted].get("properties", ())}
    assert "name" in schemas["PaymentMethod"]["properties"]
    assert schemas["PaymentMethod"]["required"] == ["code", "object"]


def test_requests_are_closed(document: dict[str, Any]) -> None:
    body = document["components"]["schemas"]["PaymentInput"]["properties"]
    assert body["currency"]["enum"] == Currency.values
    assert body["country"]["enum"] == Country.values


@pytest.mark.django_db
def test_what_a_customer_sends_is_open_if_the_project_says_what_they_pay(
    document: dict[str, Any], settings: Any, boss: Caller
) -> None:
    def body(found: dict[str, Any]) -> Any:
        return found["paths"]["/payments/"]["post"]["requestBody"]["content"]["application/json"]["schema"]

    assert boss.get("schema/").json() == document
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_PAYMENT": AS_ASKED}
    found = describe(described, "/payments/api")
    validate_schema(found)
    assert boss.get("schema/").json() == found  # and not what was served before
    of_staff, of_customer = body(found)["anyOf"]
    assert of_staff == body(document)
    assert (of_customer["type"], of_customer["additionalProperties"]) == ("object", True)
    assert not {"properties", "required"} & {*of_customer}


def test_our_sets_are_those_of_the_sandbox(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, ours in {
        "Country": Country, "Currency": Currency, "PaymentStatus": PaymentStatus, "PayoutStatus": PayoutStatus,
        "RefundStatus": RefundStatus, "MethodFamily": MethodFamily, "NextActionType": ActionType,
    }.items():  # fmt: skip
        assert schemas[name]["anyOf"][0]["enum"] == ours.values, name


def test_an_event_has_the_object_of_its_time(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    *kinds, null = schemas["Event"]["properties"]["data"]["anyOf"]
    assert null == {"type": "null"}
    names = [each["$ref"].rpartition("/")[2] for each in kinds]
    assert names == ["PaymentAtEvent", "PayoutAtEvent", "RefundAtEvent", "BalanceAtEvent"]
    assert {*schemas["PaymentAtEvent"]["properties"]} == {"id", "object", *MIRRORS["payment"].mirrored}


def test_the_schema_and_the_docs_list_every_code(document: dict[str, Any]) -> None:
    listed = document["components"]["schemas"]["ErrorCode"]["anyOf"][0]["enum"]
    page = (Path(__file__).parents[3] / "docs" / "rest-api.md").read_text()
    assert {*CODES} <= {*listed}
    assert [code for code in CODES if f"`{code}`" not in page] == []


@pytest.mark.django_db(transaction=True)
def test_the_provider_accepts_each_example(document: dict[str, Any], boss: Caller, woken: list[str]) -> None:
    with ProviderSandbox() as provider:
        provider.project.fund("CLP", 10_000_000)
        paid = ""
        for address, method, operation in sorted(operations(document), key=lambda each: "refund" in each[0]):
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if not content or "/operations/" in address:
                continue
            [example] = content["examples"].values()
            body = dict(example["value"])
            if "payment_id" in body:
                body["payment_id"] = paid
            response = boss.post(address.lstrip("/").replace("{id}", paid), body, key=f"{method} {address}")
            assert response.status_code == 201, (address, response.content)
            if address == "/payments/":
                paid = response.json()["id"]
                provider.engine.pay(paid)


def test_a_command_writes_the_schema(document: dict[str, Any], settings: Any, tmp_path: Path) -> None:
    """With no login and no database: the command is drf-spectacular's, as the page of the docs says."""
    written = tmp_path / "payments.json"
    call_command(
        Command(), "--urlconf", "payments_integration.api.urls", "--custom-settings",
        "payments_integration.api.schema.SETTINGS", "--format", "openapi-json", "--lang", "en", "--file", str(written),
    )  # fmt: skip
    found = json.loads(written.read_text())
    assert found["paths"] == document["paths"]
    assert found["components"] == document["components"]
    assert found["info"] == document["info"]


def test_the_projects_own_document_is_the_same_as_without_this_api() -> None:
    """Its paths would not be valid there, and the prefix that they have in common with the others names the tags."""
    with GENERATOR_STATS.silence():
        GENERATOR_STATS.reset()
        found, without = (SchemaGenerator(patterns=some).get_schema(public=True) for some in (urlpatterns, OWN))
        assert not GENERATOR_STATS, (GENERATOR_STATS._warn_cache, GENERATOR_STATS._error_cache)
    validate_schema(found)
    assert found == without
    assert [*found["components"]["schemas"]["Payment"]["properties"]] == ["number"]


def test_the_schema_shows_no_docstrings(document: dict[str, Any]) -> None:
    assert "sees_personal" not in str(document)


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


@pytest.mark.django_db
def test_the_page_to_try_the_api_has_the_addresses_and_the_csrf_token(
    staff: Callable[..., Caller], customer: Caller, settings: Any
) -> None:
    settings.CSRF_HEADER_NAME = "HTTP_X_TOKEN"
    response = staff().get("try/", Accept="text/html,*/*;q=0.8")
    page = response.content.decode()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/html")
    assert 'data-schema="../schema/" data-csrf-header="X-TOKEN"' in page
    assert "csrftoken" in response.cookies
    assert "//" not in page.replace("</", "")  # no other host
    assert customer.get("try/").status_code == 403
    assert Caller().get("try/").status_code == 401


@pytest.mark.django_db
@modify_settings(INSTALLED_APPS={"remove": ["drf_spectacular_sidecar"]})
def test_without_the_app_the_page_says_what_to_install(boss: Caller) -> None:
    response = boss.get("try/")
    assert response.status_code == 404
    assert 'add "drf_spectacular_sidecar" to INSTALLED_APPS' in response.json()["error"]["message"]
    assert "try" not in boss.get("").json()["links"]


class PaymentSerializer(Serializer[Any]):
    """A component with the name of one of this API's."""

    number = CharField()


class OwnView(RetrieveAPIView[Any]):
    serializer_class = PaymentSerializer
    schema = AutoSchema()


OWN = [path(f"shop/v1/{name}/<int:id>/", type(name, (OwnView,), {}).as_view()) for name in ("orders", "carts")]
urlpatterns = [path("elsewhere/", include("payments_integration.urls")), *OWN]


@pytest.mark.django_db
@pytest.mark.urls("tests.unit.api.test_schema")
def test_the_schema_names_the_prefix_under_which_the_api_is_mounted(boss: Caller, document: dict[str, Any]) -> None:
    found = boss.client.get("/elsewhere/api/schema/").json()
    assert found["servers"] == [{"url": "/elsewhere/api"}]
    assert found["paths"] == document["paths"]


def test_a_document_that_another_thread_makes_meanwhile_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """drf-spectacular patches its settings for all threads, and takes back all patches at the end of each."""

    class Interrupted(SchemaGenerator):
        def get_schema(self, *args: Any, **kwargs: Any) -> Any:
            spectacular_settings.clear_patches()
            return super().get_schema(*args, **kwargs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr("payments_integration.api.schema.SchemaGenerator", Interrupted)
    assert len(describe(described, "/payments/api")["paths"]) > 15


def test_the_projects_own_schema_settings_are_unchanged(document: dict[str, Any], settings: Any) -> None:
    assert spectacular_settings.TITLE == ""
    assert spectacular_settings.OAS_VERSION == "3.0.3"
