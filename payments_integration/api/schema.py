"""Declare routes, and write the OpenAPI description of each route and of the whole API under any prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from threading import Lock
from typing import Any

from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import SPECTACULAR_DEFAULTS, patched_settings, spectacular_settings
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.serializers import Serializer

from payments_integration.api.serializers import ErrorSerializer, OperationSerializer
from payments_integration.api.types import complete

_ABOUT = """\
Payments, payouts, refunds and related objects, with the payment provider's names, from the merchant's own mirror.
Amounts are integers in minor units (CLP has none, the other currencies two digits); times are ISO 8601.
Statuses may appear that are not listed.

Every POST that asks for something needs an `Idempotency-Key`: your own key, a new one for each intent. However often a
call is sent with the same key, it is done once. Such a POST may be answered 202 with an operation: the call is
recorded and not finished. To learn the result, repeat the call with the same key, or read the address in Location.

Every error has the same envelope.
"""

#: The API's version. It changes only if a client of the last version could break.
VERSION = "1"
#: All settings that affect the result, because the project's own SPECTACULAR_SETTINGS are for its own API. Also for
#: ``spectacular --urlconf payments_integration.api.urls --custom-settings payments_integration.api.schema.SETTINGS``.
SETTINGS: dict[str, Any] = {
    **{name: value for name, value in SPECTACULAR_DEFAULTS.items() if not name.startswith(("SERVE_", "DEFAULT_"))},
    "TITLE": "Payments",
    "DESCRIPTION": _ABOUT,
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "",
    "POSTPROCESSING_HOOKS": ["payments_integration.api.types.complete"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    # Docstrings are for developers of this app, not for clients of the API.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
}
#: Held while drf-spectacular's settings are patched, because the patch affects the whole process.
_lock = Lock()
_is_describing: ContextVar[bool] = ContextVar("_is_describing", default=False)

_ERRORS = (400, 401, 403, 404, 406, 429, 500, 502, 503)
_ERRORS_OF_POST = (409, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP method of one path. ``permissions`` reads it to decide, and the description shows it."""

    #: The operationId in the description, and the name in generated clients.
    id: str
    #: The codename of the permission that a member of staff needs. Empty if every member of staff may call it.
    permission: str
    _: KW_ONLY
    description: str = ""
    #: True if a customer, who is not staff, may call it for their own rows.
    customers: bool = False
    #: The body, if it takes one. It only describes; the service validates.
    body: type[Serializer[Any]] | None = None
    #: A body that the sandbox accepts.
    example: Mapping[str, Any] | None = None
    #: True if the answer is a list.
    many: bool = False

    #: True for a POST that settles an operation and creates no object. It takes no key, because the operation's state
    #: says if it was done.
    changes_operation: bool = False

    @property
    def status(self) -> int:
        return 201 if self.body and not self.changes_operation else 200


class RouteSchema(AutoSchema):
    def __get__(self, instance: Any, owner: Any) -> Any:
        # A view without a schema is left out. The project's own document is of another version of OpenAPI, in which
        # these paths are not valid, and its components may have the same names.
        # The command's ``--custom-settings`` names our settings. ``describe`` patches them, which other threads undo.
        is_ours = _is_describing.get() or complete in spectacular_settings.POSTPROCESSING_HOOKS
        return super().__get__(instance, owner) if is_ours else None

    @property
    def route(self) -> Route:
        found: Route = self.view.routes[self.method]  # type: ignore[attr-defined]
        return found

    def get_operation_id(self) -> str:
        return self.route.id

    def get_summary(self) -> str:
        return self.route.id.replace("_", " ").capitalize()

    def get_description(self) -> str:  # type: ignore[override]
        needs = f"`payments_integration.{self.route.permission}`" if self.route.permission else "no further permission"
        others = ", and customers for their own objects if the project lets them in" if self.route.customers else ""
        return f"{self.route.description}\n\nFor staff with {needs}{others}.".strip()

    def get_request_serializer(self) -> Any:
        return self.route.body

    def get_response_serializers(self) -> Any:
        answers = {self.route.status: self.view.serializer_class(many=self.route.many)}  # type: ignore[attr-defined]
        errors: tuple[int, ...] = _ERRORS
        if self.method == "POST":
            answers[202] = OperationSerializer
            errors += _ERRORS_OF_POST
        return answers | {each: OpenApiResponse(ErrorSerializer, HTTPStatus(each).phrase) for each in errors}

    def get_examples(self) -> list[Any]:
        example = self.route.example
        return [] if example is None else [OpenApiExample(self.route.id, dict(example), request_only=True)]

    def get_override_parameters(self) -> list[Any]:
        if self.method != "POST" or self.route.changes_operation:
            return [*filter(None, [self.view.query_serializer])]  # type: ignore[attr-defined]
        key = {"type": "string", "minLength": 1, "maxLength": 255}
        about = "Your own key, a new one for each intent: a call is done once per key."
        return [OpenApiParameter("Idempotency-Key", key, OpenApiParameter.HEADER, required=True, description=about)]


def describe(patterns: Sequence[Any], base: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these URL patterns below ``base``, a path without the last slash."""
    with _lock, translation.override("en"), patched_settings({**SETTINGS, "SERVERS": [{"url": base or "/"}]}):
        token = _is_describing.set(True)
        try:
            generator = SchemaGenerator(patterns=[*patterns])  # type: ignore[no-untyped-call]
            document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
        finally:
            _is_describing.reset(token)
    return document
