"""The OpenAPI description of the whole API, whatever prefix it is mounted under."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings

from payments_integration import __version__

_ABOUT = """\
Payments, payouts, refunds and what belongs to them, under the names of the payment provider, from the merchant's own
mirror. Amounts are integers in minor units (CLP has none, the other currencies two digits); times are ISO 8601.

Every POST needs an `Idempotency-Key`. Every error has the same envelope. A method that an address does not have is
answered 405, an address that there is not 404; both in the envelope.
"""

#: All that shapes the result: the project's own SPECTACULAR_SETTINGS are for its own API.
_SETTINGS: dict[str, Any] = {
    "TITLE": "Payments",
    "DESCRIPTION": _ABOUT,
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "",
    "SCHEMA_PATH_PREFIX_TRIM": False,
    "SCHEMA_PATH_PREFIX_INSERT": "",
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": [],
    "COMPONENT_SPLIT_REQUEST": False,
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    "APPEND_PATHS": {},
    "APPEND_COMPONENTS": {},
    "CAMELIZE_NAMES": False,
    "SECURITY": [],
    "AUTHENTICATION_WHITELIST": None,
    "PARSER_WHITELIST": None,
    "RENDERER_WHITELIST": None,
    "DISABLE_ERRORS_AND_WARNINGS": False,
    "TAGS": [],
    "EXTENSIONS_INFO": {},
    "EXTENSIONS_ROOT": {},
    # Docstrings are for whoever changes the code.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
}
#: The settings are patched for the whole process.
_lock = Lock()


def describe(patterns: Sequence[Any], base: str) -> dict[str, Any]:
    """OpenAPI 3.1 of these URL patterns, found below ``base`` (a path without the last slash)."""
    with _lock, translation.override("en"), patched_settings({**_SETTINGS, "SERVERS": [{"url": base or "/"}]}):
        generator = SchemaGenerator(patterns=[*patterns], api_version="1")  # type: ignore[no-untyped-call]
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    document["info"]["version"] = __version__
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Given"):
            # A body that names anything else is refused.
            schema["additionalProperties"] = False
        for field in schema.get("properties", {}).values():
            field.pop("x-spec-enum-id", None)  # a hint to a hook that is not used here
    return document
