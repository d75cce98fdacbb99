"""The OpenAPI description of one call: all of it follows from its ``Call``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django import forms
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiRequest, OpenApiResponse

from payments_integration.api import paging
from payments_integration.api.calls import Call
from payments_integration.api.examples import ERRORS, EXAMPLES
from payments_integration.api.filters import MomentField
from payments_integration.api.negotiation import JSON
from payments_integration.api.representations import ErrorSerializer, OperationSerializer, list_of

_listed = cache(list_of)
_ALWAYS = (400, 401, 403, 406, 429)
_OF_POST = (409, 413, 415, 422, 502, 503)
_REQUEST_ID = "req_4f1c9a"


class Described(AutoSchema):
    @property
    def call(self) -> Call:
        found: Call = self.view.calls[self.method]  # type: ignore[attr-defined]
        return found

    def get_operation_id(self) -> str:
        return self.call.id

    def get_summary(self) -> str:
        return self.call.summary

    def get_description(self) -> str:  # type: ignore[override]
        needs = f"`payments_integration.{self.call.needs}`" if self.call.needs else "no further permission"
        others = "customers for what is their own" if self.call.customers else "nobody else"
        by_default = f"Staff with {needs}; where the project lets them in, {others}."
        return f"{self.call.description}\n\n{by_default}".strip()

    def get_tags(self) -> list[str]:
        return [self.view.tag]  # type: ignore[attr-defined]

    def get_request_serializer(self) -> Any:
        takes = self.call.takes
        if takes is None:
            return None
        example = OpenApiExample("A body", value=EXAMPLES[takes], request_only=True)
        return {JSON: OpenApiRequest(takes, examples=[example])}

    def get_response_serializers(self) -> Any:
        call = self.call
        answers = {call.status: _answer(call)}
        if self.method == "POST":
            words = "Recorded, and not over: it waits for a second person, or its outcome is not known yet. The same "
            words += "call with the same key tells what became of it; so does the address in Location."
            example = OpenApiExample("An operation", value=EXAMPLES[OperationSerializer], status_codes=["202"])
            answers[202] = OpenApiResponse(OperationSerializer, words, [example])
        return answers | {status: _error(status) for status in self._errors()}

    def _errors(self) -> list[int]:
        found = {*_ALWAYS, *self.call.errors}
        if self.method == "POST":
            found |= set(_OF_POST)
        if "{id}" in self.path:
            found.add(404)
        return sorted(found)

    def get_override_parameters(self) -> list[Any]:
        return [*self._asked(), *self._answered()]

    def _asked(self) -> Iterator[OpenApiParameter]:
        if "{id}" in self.path:
            yield OpenApiParameter("id", {"type": "string"}, OpenApiParameter.PATH, required=True)
        if self.method == "POST":
            yield OpenApiParameter(
                "Idempotency-Key",
                {"type": "string", "minLength": 1, "maxLength": 255},
                OpenApiParameter.HEADER,
                required=True,
                description="Yours, new for each intent. The same call with the same key is done once, however often "
                "it is sent, and for ever. Keys of two users, and of two accounts, are two keys.",
                examples=[OpenApiExample("A key", value="7d1f6e0c-order-1001")],
            )
        for name, schema in self.call.query.items():
            yield OpenApiParameter(name, schema)
        kinds = getattr(self.view, "filters", None)
        if self.call.many and kinds is not None:
            for name, kind in kinds.base_filters.items():
                yield OpenApiParameter(name, _schema_of(kind.field))
            yield OpenApiParameter(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": paging.MAX_LIMIT, "default": paging.DEFAULT_LIMIT},
            )
            yield OpenApiParameter("cursor", {"type": "string"}, description="The `next_cursor` of the page before.")
            yield OpenApiParameter(
                "ordering",
                {"type": "string", "enum": [*paging.ORDERINGS], "default": paging.ORDERINGS[0]},
                description="A cursor goes on in its own order.",
            )

    def _answered(self) -> Iterator[OpenApiParameter]:
        """Headers of the answers."""
        statuses = [self.call.status, *([202] if self.method == "POST" else []), *self._errors()]
        yield _header("Request-Id", "Stands in the log, too.", statuses, required=True)
        yield _header("Retry-After", "Seconds.", [s for s in statuses if s in (429, 503)], {"type": "integer"})
        yield _header("WWW-Authenticate", "How to sign in.", [401])
        if self.method == "POST":
            created = [201] if self.call.status == 201 else []
            yield _header("Location", "Where to read what came of it.", [*created, 202])


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


def _answer(call: Call) -> OpenApiResponse:
    example: dict[str, Any] = EXAMPLES[call.gives]
    kind: Any = call.gives
    if call.many:
        kind = _listed(call.gives)
        example = {"object": "list", "has_more": False, "next_cursor": None, "data": [example]}
    name = call.gives.__name__.removesuffix("Serializer")
    shown = OpenApiExample(f"{name}s" if call.many else name, value=example, status_codes=[str(call.status)])
    return OpenApiResponse(kind, call.summary, [shown])


def _error(status: int) -> OpenApiResponse:
    about, error = ERRORS[status]
    shown = OpenApiExample(
        error["code"], value={"error": {**error, "request_id": _REQUEST_ID}}, status_codes=[str(status)]
    )
    return OpenApiResponse(ErrorSerializer, about, [shown])


def _schema_of(field: forms.Field) -> dict[str, Any]:
    """The type of a filter."""
    if isinstance(field, MomentField):
        return {"type": "string", "format": "date-time"}
    if isinstance(field, forms.ChoiceField):
        choices: Any = field.choices
        return {"type": "string", "enum": [value for value, _label in choices if value]}
    return {"type": "string", "minLength": 1, "maxLength": field.max_length}  # type: ignore[attr-defined]
