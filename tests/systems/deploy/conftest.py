"""The example under gunicorn, as docs/install.md has it served, and sockets to speak to it byte by byte."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from payments_integration.signatures import HEADER, sign
from tests import factories
from tests.servers import free_port, listens, wait_until

ROOT = Path(__file__).resolve().parents[3]
SECRET = "whsec_deploy"
#: Seconds for one exchange.
PATIENCE = 60.0


@dataclass(frozen=True)
class Answer:
    """``status`` is 0 where the connection was closed without one."""

    status: int
    raw: bytes


@dataclass(frozen=True)
class Served:
    """A running site."""

    port: int
    database: Path
    log: Path

    def send(self, *parts: bytes, end: bool = False) -> Answer:
        """Send bytes as they are and read the first answer; ``end``: nothing more comes from us, and all is read."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(b"".join(parts))
            if end:
                connection.shutdown(socket.SHUT_WR)
            raw = b""
            try:
                while (end or b"\r\n\r\n" not in raw) and (chunk := connection.recv(65536)):
                    raw += chunk
            except ConnectionResetError:
                pass
        return Answer(int(raw.split(b" ", 2)[1]) if raw else 0, raw)

    def stored(self) -> set[str]:
        """The ids of all events in the inbox."""
        with closing(sqlite3.connect(self.database, timeout=PATIENCE)) as connection:
            return {str(row[0]) for row in connection.execute("SELECT id FROM payments_integration_event")}


def delivery(event_id: str) -> tuple[bytes, bytes]:
    """A signed event: the header line of its signature, and its body."""
    body = json.dumps(
        factories.event(factories.payment(id=f"pay_{event_id}"), id=event_id, seconds=factories.RECENT)
    ).encode()
    return f"{HEADER}: {sign(body, SECRET)}\r\n".encode(), body


def head(*lines: bytes, request: bytes = b"POST /payments/webhook/") -> bytes:
    """The head of a request; ``lines`` end with CRLF each."""
    common = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return b"".join([request, b" HTTP/1.1\r\n", common, *lines, b"\r\n"])


def length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n" % len(body)


@pytest.fixture(scope="session", params=["sync", "gthread"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(f"deploy-{request.param}")
    site = Served(free_port(), folder / "db.sqlite3", folder / "log")
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "DEBUG": "false",
        "SECRET_KEY": "a key for the tests of the example under gunicorn, and for nothing else",
        "ALLOWED_HOSTS": "127.0.0.1",
        "DATABASE_URL": f"sqlite:///{site.database}",
        "PAYMENTS_BASE_URL": "http://127.0.0.1:9",
        "PAYMENTS_WEBHOOK_SECRETS": SECRET,
        "PAYMENTS_PROCESSING": "inline",
    }
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=ROOT, env=environ, check=True, timeout=120)
    serve = ["-m", "gunicorn", "example_project.wsgi", "--bind", f"127.0.0.1:{site.port}", "--workers", "1"]
    kind = ["--worker-class", request.param, "--threads", "4"]
    with site.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *serve, *kind],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: listens(site.port), PATIENCE, f"gunicorn to listen; see {site.log}")
        yield site
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
