"""A temporary folder for each run, with its own database, broker, logs and settings."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Set for the process that plays the demo, and for its children.
VARIABLE = "DEMO_HOME"
HOST = "127.0.0.1"
API_KEY = "sk_test_demo"
#: For visitors of the shop; if these ports are in use, free ones replace them.
USUAL_PORTS = (8000, 8400)

#: Beat's default intervals are for production, and too long for a demo.
SCHEDULE = {
    "SCHEDULE_PROCESS_EVENTS": "2",
    "SCHEDULE_RESUME_OPERATIONS": "2",
    "SCHEDULE_RECONCILE_EVENTS": "300",
    "SCHEDULE_RECONCILE_OBJECTS": "300",
    "SCHEDULE_SYNC_BALANCES": "300",
}


@dataclass(frozen=True, slots=True)
class Home:
    """Where this run lives and listens."""

    folder: Path
    site_url: str
    sandbox_url: str

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def site_port(self) -> str:
        return self.site_url.rpartition(":")[2]

    @property
    def sandbox_port(self) -> str:
        return self.sandbox_url.rpartition(":")[2]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def current(environ: Mapping[str, str] = os.environ) -> Home | None:
    """The home of this process; None if it has none yet."""
    if VARIABLE not in environ:
        return None
    return Home(Path(environ[VARIABLE]), environ["DEMO_SITE_URL"], environ["DEMO_SANDBOX_URL"])


def move_in(*, usual_ports: bool) -> None:
    """Create a home and restart this process in it, because settings are read at start-up."""
    folder = Path(tempfile.mkdtemp(prefix="payments-demo-"))
    for name in ("logs", "tmp"):
        (folder / name).mkdir()
    site, sandbox = (f"http://{HOST}:{port}" for port in _ports(usual=usual_ports))
    os.environ.update(
        {
            VARIABLE: str(folder),
            "DEMO_SITE_URL": site,
            "DEMO_SANDBOX_URL": sandbox,
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DEBUG": "false",
            "SECRET_KEY": secrets.token_urlsafe(48),
            "ALLOWED_HOSTS": f"{HOST},localhost",
            "DATABASE_URL": f"sqlite:///{folder / 'db.sqlite3'}",
            "BROKER_URL": "filesystem://",
            "BROKER_FOLDER": str(folder / "broker"),
            "TMPDIR": str(folder / "tmp"),
            "PAYMENTS_BASE_URL": sandbox,
            "PAYMENTS_API_KEY": API_KEY,
            "PAYMENTS_WEBHOOK_SECRETS": "",
            "PAYMENTS_ENCRYPTION_KEYS": secrets.token_urlsafe(32),
            "PAYMENTS_PROCESSING": "celery",
            "PAYMENTS_REORDER_WINDOW": "0",
            "SHOP_SANDBOX_URL": sandbox,
            "PYTHONUNBUFFERED": "1",
            **SCHEDULE,
        }
    )
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606  (the very command that runs already)


def _ports(*, usual: bool) -> list[int]:
    """Two free ports, bound at the same time so that they differ."""
    with socket.socket() as first, socket.socket() as second:
        for held, port in zip((first, second), USUAL_PORTS if usual else (0, 0), strict=True):
            # As servers do: a connection of a run that just ended does not occupy the port.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((HOST, port))
            except OSError:
                held.bind((HOST, 0))
        return [held.getsockname()[1] for held in (first, second)]
