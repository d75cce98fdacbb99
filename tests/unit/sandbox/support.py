"""Helpers of the sandbox's tests: a client without sockets, a receiver of deliveries, and example bodies."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from payments_integration.sandbox import Engine
from payments_integration.sandbox.application import SandboxApplication

CARD = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
TRANSFER = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer"}
DOCUMENT = {"type": "RUT", "number": "11111111-1"}
ACCOUNT = {
    "type": "bank_account",
    "bank_code": "001",
    "account_number": "123456789",
    "account_type": "checking",
    "holder_name": "Ana Soto",
    "holder_document": DOCUMENT,
}
PAYOUT = {**TRANSFER, "destination": ACCOUNT}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
PAYER = {
    "name": "Ana Soto",
    "email": "ana@example.com",
    "phone": "+56912345678",
    "document": DOCUMENT,
    "ip": "203.0.113.7",
    "device_id": "device-1",
}


@dataclass
class Reply:
    """A response: status, headers and body."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, str]:
        return self.json["error"]


class Client:
    """Calls the sandbox's WSGI application in this thread."""

    keys = itertools.count()

    def __init__(self, engine: Engine, api_key: str | None = "sk_test_sandbox") -> None:
        self.application = SandboxApplication(engine)
        self.api_key = api_key

    def call(
        self, method: str, path: str, raw: bytes = b"", query: dict[str, Any] | None = None, **headers: str
    ) -> Reply:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": urlencode(query or {}),
            "SERVER_NAME": "sandbox",
            "SERVER_PORT": "80",
            "CONTENT_LENGTH": str(len(raw)),
            "wsgi.input": io.BytesIO(raw),
            "wsgi.url_scheme": "http",
            "CONTENT_TYPE": headers.pop("content_type", "application/json" if raw else ""),
        }
        if self.api_key is not None:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {self.api_key}"
        environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        started: list[Any] = []
        body = b"".join(self.application(environ, lambda *args: started.extend(args)))
        return Reply(int(started[0].split()[0]), dict(started[1]), body)

    def get(self, path: str, **query: Any) -> Reply:
        return self.call("GET", f"/v1{path}", query=query)

    def delete(self, path: str) -> Reply:
        return self.call("DELETE", f"/v1{path}")

    def post(self, path: str, body: Any = None, key: str | None = None) -> Reply:
        raw = b"" if body is None else json.dumps(body).encode()
        return self.call("POST", f"/v1{path}", raw, idempotency_key=key or f"key-{next(self.keys)}")

    def control(self, path: str, body: Any = None, method: str = "POST", **query: Any) -> Reply:
        raw = b"" if body is None else json.dumps(body).encode()
        return self.call(method, f"/_sandbox/{path}", raw, query=query)

    def listed(self, name: str, /, **query: str) -> Reply:
        return self.call("GET", f"/_sandbox/{name}", query=query)

    def make(self, path: str, body: Any) -> dict[str, Any]:
        reply = self.post(path, body)
        assert reply.status == 201, reply.raw
        return reply.json

    def card(self, **changes: Any) -> dict[str, Any]:
        return self.make("/payments", {**CARD, **changes})

    def bank(self, **changes: Any) -> dict[str, Any]:
        return self.make("/payments", {**TRANSFER, **changes})

    def payout(self, **changes: Any) -> dict[str, Any]:
        return self.make("/payouts", {**PAYOUT, **changes})


@dataclass
class Receiver:
    """A merchant's webhook: a transport that stores each delivery and returns ``status`` or raises ``error``."""

    status: int = 200
    error: Exception | None = None
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> int:
        self.got.append((url, headers, body))
        if self.error is not None:
            raise self.error
        return self.status

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.got]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def types_of(engine: Engine, prefix: str = "") -> list[str]:
    """The types of all events so far, oldest first."""
    return [event["type"] for event in engine.events if event["type"].startswith(prefix)]
