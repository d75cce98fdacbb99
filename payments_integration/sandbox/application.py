"""The WSGI application over an engine. It uses no URLconf, middleware or database of the merchant."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse
from django.urls import Resolver404, URLResolver
from django.urls.resolvers import RegexPattern

from . import urls
from .engine import Engine
from .views import LINE_KEY
from .web import ENGINE_KEY, page

logger = logging.getLogger("payments_integration.sandbox")


class SandboxApplication:
    """Serves one engine. Under a server other than the sandbox's own, a reset shows as a ConnectionResetError."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._resolver = URLResolver(RegexPattern(r"^/"), urls)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """One request. What the server should do to the connection is left in the environ under LINE_KEY."""
        environ[ENGINE_KEY] = self.engine
        response = self._respond(WSGIRequest(environ))
        line = environ.get(LINE_KEY)
        if line is not None and line.kind == "reset" and "payments_sandbox.server" not in environ:
            raise ConnectionResetError("the sandbox cuts this connection")
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        # not closed: that would send request_finished to the merchant's receivers
        return [response.content]

    def _respond(self, request: WSGIRequest) -> HttpResponse:
        try:
            match = self._resolver.resolve(request.path_info)
        except Resolver404:
            return page("message.html", {"title": "Not found", "text": "There is nothing at this address."}, 404)
        try:
            return cast("HttpResponse", match.func(request, *match.args, **match.kwargs))
        except Exception:
            logger.exception("The sandbox failed at %s", request.path_info)
            return page("message.html", {"title": "Error", "text": "The sandbox failed; see its log."}, 500)
