"""Routes, and the OpenAPI description: of each route, and of the whole API under any prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from threading import Lock
from typing import Any

from django import forms
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import SPECTACULAR_DEFAULTS, patched_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiRequest, OpenApiResponse
from rest_framework.serializers import Serializer

from payments_integration import __version__
from payments_integration.api import lists
from payments_integration.api.negotiation import JSON
from payments_integration.api.schema_examples import ERRORS, EXAMPLES
from payments_integration.api.serializers import ErrorSerializer, OperationSerializer, list_of

_ABOUT = """\
Payments, payouts, refunds and related objects, with the payment provider's names, from the merchant's own mirror.
Amounts are integers in minor units (CLP has none, the other currencies two digits); times are ISO 8601.

Every POST needs an `Idempotency-Key`. Every error has the same envelope. A method that a path does not have is
answered 405, an unknown path 404.
"""

#: All settings that affect the result: the project's own SPECTACULAR_SETTINGS are for its own API.
_SETTINGS: dict[str, Any] = {
    **{name: value for name, value in SPECTACULAR_DEFAULTS.items() if not name.startswith(("SERVE_", "DEFAULT_"))},
    "TITLE": "Payments",
    "DESCRIPTION": _ABOUT,
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "",
    "POSTPROCESSING_HOOKS": [],
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    # Docstrings are for developers of this app.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
}
#: drf-spectacular's settings are patched for the whole process.
_lock = Lock()

_listed = cache(list_of)
_ALWAYS = (400, 401, 403, 406, 429)
_OF_POST = (409, 413, 415, 422, 502, 503)
_REQUEST_ID = "req_4f1c9a"


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP method of one path. ``permissions`` decides by it, and the description shows it."""

    #: The operationId in the description, and the name in generated clients.
    id: str
    summary: str
    #: The codename of the permission that a member of staff needs; empty: every member of staff may call it.
    permission: str
    #: One object of the answer.
    answer: type[Serializer[Any]]
    _: KW_ONLY
    description: str = ""
    #: Whether a customer, who is not staff, may call it for their own rows.
    customers: bool = False
    #: The body, if it takes one. It describes only; the service validates.
    body: type[Serializer[Any]] | None = None
    #: Whether the answer is a list of them.
    many: bool = False
    #: The status of a successful answer.
    status: int = 200
    #: Further error statuses; those that all routes have are not listed.
    errors: tuple[int, ...] = ()
    #: Query parameters and their schemas, for a route that is not a list of rows.
    query: dict[str, dict[str, Any]] = field(default_factory=dict)


class RouteSchema(AutoSchema):
    @property
    def route(self) -> Route:
        found: Route = self.view.routes[self.method]  # type: ignore[attr-defined]
        return found

    def get_operation_id(self) -> str:
        return self.route.id

    def get_summary(self) -> str:
        return self.route.summary

    def get_description(self) -> str:  # type: ignore[override]
        needs = f"`payments_integration.{self.route.permission}`" if self.route.permission else "no further permission"
        others = ", and customers for their own objects if the project lets them in" if self.route.customers else ""
        by_default = f"For staff with {needs}{others}."
        return f"{self.route.description}\n\n{by_default}".strip()

    def get_tags(self) -> list[str]:
        return [self.view.tag]  # type: ignore[attr-defined]

    def get_request_serializer(self) -> Any:
        body = self.route.body
        if body is None:
            return None
        example = OpenApiExample("A body", value=EXAMPLES[body], request_only=True)
        return {JSON: OpenApiRequest(body, examples=[example])}

    def get_response_serializers(self) -> Any:
        route = self.route
        answers = {route.status: _answer(route)}
        if self.method == "POST":
            words = (
                "Recorded and not finished: it waits for a second person, or its outcome is not known yet. To learn "
                "the result, repeat the call with the same key, or read the address in Location."
            )
            example = OpenApiExample("An operation", value=EXAMPLES[OperationSerializer], status_codes=["202"])
            answers[202] = OpenApiResponse(OperationSerializer, words, [example])
        return answers | {status: _error(status) for status in self._errors()}

    def _errors(self) -> list[int]:
        found = {*_ALWAYS, *self.route.errors}
        if self.method == "POST":
            found |= set(_OF_POST)
        if "{id}" in self.path:
            found.add(404)
        return sorted(found)

    def get_override_parameters(self) -> list[Any]:
        return [*self._request_parameters(), *self._response_headers()]

    def _request_parameters(self) -> Iterator[OpenApiParameter]:
        if "{id}" in self.path:
            yield OpenApiParameter("id", {"type": "string"}, OpenApiParameter.PATH, required=True)
        if self.method == "POST":
            yield OpenApiParameter(
                "Idempotency-Key",
                {"type": "string", "minLength": 1, "maxLength": 255},
                OpenApiParameter.HEADER,
                required=True,
                description="Your own key, a new one for each intent. However often a call is sent with the same key, "
                "it is done once. Keys of different users or accounts never collide.",
                examples=[OpenApiExample("A key", value="7d1f6e0c-order-1001")],
            )
        for name, schema in self.route.query.items():
            yield OpenApiParameter(name, schema)
        filters = getattr(self.view, "filters", None)
        if self.route.many and filters is not None:
            for name, kind in filters.base_filters.items():
                yield OpenApiParameter(name, _schema_of(kind.field))
            limit = {"type": "integer", "minimum": 1, "maximum": lists.MAX_LIMIT, "default": lists.DEFAULT_LIMIT}
            yield OpenApiParameter("limit", limit)
            yield OpenApiParameter("cursor", {"type": "string"}, description="The `next_cursor` of the page before.")
            yield OpenApiParameter(
                "ordering",
                {"type": "string", "enum": [*lists.ORDERINGS], "default": lists.ORDERINGS[0]},
                description="A cursor keeps its own ordering.",
            )

    def _response_headers(self) -> Iterator[OpenApiParameter]:
        statuses = [self.route.status, *([202] if self.method == "POST" else []), *self._errors()]
        yield _header("Request-Id", "Also in the server's log.", statuses, required=True)
        yield _header("Retry-After", "Seconds.", [s for s in statuses if s in (429, 503)], {"type": "integer"})
        yield _header("WWW-Authenticate", "How to sign in.", [401])
        if self.method == "POST":
            created = [201] if self.route.status == 201 else []
            yield _header("Location", "Where to read the result.", [*created, 202])


def _header(
    name: str, about: str, statuses: list[int], schema: dict[str, Any] | None = None, *, required: bool = False
) -> OpenApiParameter:
    return OpenApiParameter(
        name,
        schema or OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description=about,
        required=required,
        response=statuses,
    )


def _answer(route: Route) -> OpenApiResponse:
    example: dict[str, Any] = EXAMPLES[route.answer]
    kind: Any = route.answer
    if route.many:
        kind = _listed(route.answer)
        example = {"object": "list", "has_more": False, "next_cursor": None, "data": [example]}
    name = route.answer.__name__.removesuffix("Serializer")
    shown = OpenApiExample(f"{name}s" if route.many else name, value=example, status_codes=[str(route.status)])
    return OpenApiResponse(kind, route.summary, [shown])


def _error(status: int) -> OpenApiResponse:
    about, error = ERRORS[status]
    shown = OpenApiExample(
        error["code"], value={"error": {**error, "request_id": _REQUEST_ID}}, status_codes=[str(status)]
    )
    return OpenApiResponse(ErrorSerializer, about, [shown])


def _schema_of(field: forms.Field) -> dict[str, Any]:
    """The schema of a filter's value."""
    if isinstance(field, lists.TimeField):
        return {"type": "string", "format": "date-time"}
    if isinstance(field, forms.ChoiceField):
        choices: Any = field.choices
        return {"type": "string", "enum": [value for value, _label in choices if value]}
    return {"type": "string", "minLength": 1, "maxLength": field.max_length}  # type: ignore[attr-defined]


def describe(patterns: Sequence[Any], base: str) -> dict[str, Any]:
    """OpenAPI 3.1 of these URL patterns, found below ``base`` (a path without the last slash)."""
    with _lock, translation.override("en"), patched_settings({**_SETTINGS, "SERVERS": [{"url": base or "/"}]}):
        generator = SchemaGenerator(patterns=[*patterns], api_version="1")  # type: ignore[no-untyped-call]
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    document["info"]["version"] = __version__
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Input"):
            # Other parameters are refused.
            schema["additionalProperties"] = False
        for member in schema.get("properties", {}).values():
            member.pop("x-spec-enum-id", None)  # a hint to a hook that is not used here
    return document
