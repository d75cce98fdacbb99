"""What the HTTP views share: their engine, their pages, and the forms and JSON that come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

from django.http import HttpRequest, HttpResponse
from django.template import Context
from django.template import Engine as TemplateEngine

from .engine import Engine
from .shapes import Wire

ENGINE_KEY: Final = "payments_sandbox.engine"
TEMPLATES: Final = Path(__file__).resolve().parent.parent / "templates"

# Not the project's TEMPLATES setting: the pages look the same whatever the merchant configured.
_pages = TemplateEngine(dirs=[str(TEMPLATES)])


def engine_of(request: HttpRequest) -> Engine:
    """The engine that the WSGI application put into the request."""
    return cast("Engine", request.META[ENGINE_KEY])


def page(name: str, context: dict[str, object], status: int = 200) -> HttpResponse:
    """An HTML page from the sandbox's own templates."""
    html = _pages.get_template(f"payments_sandbox/{name}").render(Context(context, use_l10n=False))
    response = HttpResponse(html, status=status, content_type="text/html; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def query(request: HttpRequest) -> dict[str, str]:
    """The query parameters; of a repeated one the last. Django's own parsing obeys the merchant's limits."""
    return dict(parse_qsl(request.META.get("QUERY_STRING", ""), keep_blank_values=True))


def form(request: HttpRequest) -> dict[str, str]:
    """The fields of a posted form."""
    return dict(parse_qsl(request.read().decode("utf-8", "replace"), keep_blank_values=True))


def json_object(request: HttpRequest) -> Wire:
    """The JSON object in the body, empty without one. Raises ValueError."""
    raw = request.read()
    data = json.loads(raw) if raw.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("the body must be a JSON object")
    return data


def from_elsewhere(request: HttpRequest) -> bool:
    """Whether a browser sent this on behalf of another site's page."""
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
