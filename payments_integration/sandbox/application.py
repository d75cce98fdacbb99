"""Serve an engine as a WSGI application with every address of the sandbox: the API, the pages and the controls.

It uses no URLconf, middleware or database of the merchant.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse
from django.urls import Resolver404, URLPattern, URLResolver, path, re_path
from django.urls.resolvers import RegexPattern

from . import control_api
from .engine import Engine
from .home import home, live_script
from .protocol import ApiError, error_response
from .resources import new_id
from .validation import is_loopback
from .views import CONNECTION_FAULT_KEY, ENGINE_KEY, api, checkout, openapi, render

logger = logging.getLogger("payments_integration.sandbox")


def _api(route: str, **operations: str) -> URLPattern:
    """Return the route of an API path, with its operations by HTTP method."""
    return path(f"v1/{route}", api, {"operations": operations})


URL_PATTERNS: Final = [
    _api("payment-methods", GET="list_payment_methods"),
    _api("payments", GET="list_payments", POST="create_payment"),
    _api("payments/<str:object_id>", GET="get_payment"),
    _api("payments/<str:object_id>/cancel", POST="cancel_payment"),
    _api("payouts", GET="list_payouts", POST="create_payout"),
    _api("payouts/<str:object_id>", GET="get_payout"),
    _api("payouts/<str:object_id>/cancel", POST="cancel_payout"),
    _api("refunds", GET="list_refunds", POST="create_refund"),
    _api("refunds/<str:object_id>", GET="get_refund"),
    _api("deposit-references", POST="create_deposit_reference"),
    _api("deposit-references/<str:object_id>", GET="get_deposit_reference"),
    _api("balances", GET="list_balances"),
    _api("webhook-endpoints", GET="list_webhook_endpoints", POST="create_webhook_endpoint"),
    _api("webhook-endpoints/<str:object_id>", DELETE="delete_webhook_endpoint"),
    _api("webhook-endpoints/<str:object_id>/rotate-secret", POST="rotate_webhook_secret"),
    _api("events", GET="list_events"),
    _api("events/<str:object_id>", GET="get_event"),
    re_path(r"^v1(?:/.*)?$", api, {"operations": {}}),
    path("openapi.json", openapi),
    path("", home),
    path("live.js", live_script),
    path("checkout/<str:payment_id>", checkout),
    path("_sandbox/books", control_api.books),
    path("_sandbox/projects/<path:api_key>", control_api.one_project),
    path("_sandbox/<str:collection>/<str:object_id>/<str:action>", control_api.object_action),
    path("_sandbox/<str:action>", control_api.project_action),
]


class SandboxApplication:
    """Serves one engine. Under a server other than the sandbox's own, a reset raises ConnectionResetError.

    If ``loopback_only`` is True, requests whose Host is another machine's name are refused. An attacker can point the
    name of their site to this machine (DNS rebinding), and its pages could then use the sandbox as their own.
    """

    def __init__(self, engine: Engine, *, loopback_only: bool = False) -> None:
        self.engine = engine
        self._loopback_only = loopback_only
        self._resolver = URLResolver(RegexPattern(r"^/"), URL_PATTERNS)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request. The environ holds the connection's fault under CONNECTION_FAULT_KEY, for the server."""
        environ[ENGINE_KEY] = self.engine
        response = self._respond(WSGIRequest(environ))
        if problem := self.engine.checkpoint(environ["REQUEST_METHOD"] not in ("GET", "HEAD")):
            error = error_response(ApiError("internal_error", problem), new_id("req"))
            response = HttpResponse(error.body, status=error.status, content_type="application/json")
        fault = environ.get(CONNECTION_FAULT_KEY)
        if fault is not None and fault.kind == "reset" and "payments_sandbox.server" not in environ:
            raise ConnectionResetError("the sandbox resets this connection")
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        # Do not close the response, because that would send request_finished to the merchant's receivers.
        return [response.content]

    def _respond(self, request: WSGIRequest) -> HttpResponse:
        host = request.META.get("HTTP_HOST")  # every browser sends it
        if self._loopback_only and host is not None and not self._is_expected(host):
            text = (
                f"This sandbox answers to 127.0.0.1, localhost and [::1], not to {host!r}.\n"
                "Start it with --host to listen on another address, or with --public-url for another name.\n"
            )
            return HttpResponse(text, status=421, content_type="text/plain; charset=utf-8")
        try:
            match = self._resolver.resolve(request.path_info)
        except Resolver404:
            return render("message.html", {"title": "Not found", "text": "There is no page at this address."}, 404)
        try:
            return cast("HttpResponse", match.func(request, *match.args, **match.kwargs))
        except Exception:
            logger.exception("The sandbox failed at %s", request.path_info)
            return render("message.html", {"title": "Error", "text": "The sandbox failed; see its log."}, 500)

    def _is_expected(self, host: str) -> bool:
        """Return True if a Host names this machine, or is the host in checkout links."""
        if host == urlsplit(self.engine.base_url or "").netloc:
            return True
        try:
            return is_loopback(urlsplit(f"//{host}").hostname or "")
        except ValueError:
            return False
