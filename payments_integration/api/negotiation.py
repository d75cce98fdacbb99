"""How requests are parsed and answers rendered: strict JSON only.

The project's own defaults for Django REST framework do not apply.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import IO, Any

import msgspec
from django.http import UnreadablePostError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions, parsers, renderers, versioning
from rest_framework.negotiation import DefaultContentNegotiation

from payments_integration import schemas
from payments_integration.validation.validator import MAX_BODY_BYTES

JSON = "application/json"


class TooLarge(exceptions.APIException):
    status_code = 413
    default_detail = _("The request is larger than 256 KB.")
    default_code = "request_too_large"


class JSONParser(parsers.BaseParser):
    """A JSON object in UTF-8 of at most 256 KB; no body counts as an empty one."""

    media_type = JSON

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        try:
            body = stream.read(MAX_BODY_BYTES + 1)
        except UnreadablePostError:
            raise exceptions.ParseError(_("The request broke off.")) from None
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge
        if not body:
            return {}
        try:
            return schemas.decode_object(body)
        except schemas.WireError:
            # The message of WireError may quote the body.
            raise exceptions.ParseError(_("This is not a JSON object in UTF-8.")) from None


class JSONRenderer(renderers.BaseRenderer):
    """Compact JSON. A value that JSON cannot express, such as an infinite number, becomes null."""

    media_type = JSON
    format = "json"
    charset = None
    render_style = "text"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return b"" if data is None else encode(data)


def encode(data: Any) -> bytes:
    return msgspec.json.encode(data, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON")


class ContentNegotiation(DefaultContentNegotiation):
    """By the Accept header alone: no query parameter chooses a format."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)  # type: ignore[assignment]


class Versioning(versioning.AcceptHeaderVersioning):
    """``Accept: application/json; version=1``. Without a version it is 1; an unknown one is answered 406."""

    default_version = "1"
    allowed_versions = ("1",)
    version_param = "version"
    invalid_version_message = _("There is no such version; known: 1.")  # type: ignore[assignment]
