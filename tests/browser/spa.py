"""What a Django site needs for the checkout page on another origin; that page's build, and its server.

``cross_origin`` stands for django-cors-headers: it reads the same settings, with the same defaults.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.urls import include, path
from rest_framework.request import Request

from payments_integration.api.schema import describe
from payments_integration.api.urls import described

#: https://github.com/adamchainz/django-cors-headers: ``corsheaders.defaults.default_headers``.
DEFAULT_HEADERS = ["accept", "authorization", "content-type", "user-agent", "x-csrftoken", "x-requested-with"]
SPA = Path(__file__).parents[2] / "example_project" / "spa"
#: `make test-browser` installs the packages of SPA's package.json here.
PACKAGES = Path(sys.prefix) / "node" / "node_modules"


def cross_origin(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        response = HttpResponse() if is_preflight else get_response(request)
        if request.headers.get("Origin") in getattr(settings, "CORS_ALLOWED_ORIGINS", ()):
            response["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response["Access-Control-Allow-Credentials"] = "true"
            response["Access-Control-Allow-Headers"] = ", ".join(
                getattr(settings, "CORS_ALLOW_HEADERS", DEFAULT_HEADERS)
            )
            response["Access-Control-Expose-Headers"] = ", ".join(getattr(settings, "CORS_EXPOSE_HEADERS", []))
        return response

    return respond


def csrf(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"token": get_token(request)})


def payment_of_order(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """API_PAYMENT: what the order costs is the shop's to say."""
    return {
        "amount": 12_990,
        "currency": "CLP",
        "country": "CL",
        "method_code": body.get("method_code"),
        "merchant_reference": body.get("order"),
        "return_url": f"{settings.CORS_ALLOWED_ORIGINS[0]}/?order={body.get('order')}",
    }


urlpatterns = [path("csrf/", csrf), path("payments/", include("payments_integration.urls"))]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a copy of SPA in ``folder``, with types from the API's description, as docs/rest-api.md says."""
    shutil.copytree(
        SPA, folder, ignore=shutil.ignore_patterns("node_modules", "*.js", "payments.*"), dirs_exist_ok=True
    )
    (folder / "payments.json").write_text(json.dumps(describe(described, "/payments/api")))
    return compile_in(folder)


def compile_in(folder: Path) -> subprocess.CompletedProcess[str]:
    commands = f"{PACKAGES / '.bin'}{os.pathsep}{os.environ['PATH']}"
    script = json.loads((SPA / "package.json").read_text())["scripts"]["build"]
    return subprocess.run(
        ["sh", "-c", script], cwd=folder, env={**os.environ, "PATH": commands}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


class _Page(SimpleHTTPRequestHandler):
    site = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/":
            return super().do_GET()
        page = Path(self.directory, "index.html").read_text().replace("http://127.0.0.1:8000", self.site).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
        return None

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def page_server(folder: Path, site: str) -> Iterator[str]:
    """The URL of the page that was built in ``folder``; it calls ``site``."""
    handler = type("Page", (_Page,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
