"""``GET /openapi.json``: the description of the provider's interface, for the address it is served at."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from .distortion import dump
from .openapi import document
from .web import engine_of


def contract(request: HttpRequest) -> HttpResponse:
    """The document as JSON. It has no secret and needs no key; no fault and no rate limit touches it."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET"])
    return HttpResponse(dump(document(engine_of(request).base_url or "")), content_type="application/json")
