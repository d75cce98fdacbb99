"""A site with ``"PROCESSING": "worker"``, and its workers as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from payments_integration import wakeup
from payments_integration.models import Event
from payments_integration.signatures import HEADER, sign
from payments_integration.wakeup import _on_wake, _publisher
from tests import factories

ROOT = Path(__file__).resolve().parents[3]
#: Seconds that anything may take on a busy machine.
PATIENCE = 120.0
#: Seconds that no test waits for: what happens nevertheless was not a look, and not the schedule.
NEVER = 3600.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


class Process:
    """A worker, or another command of the app."""

    def __init__(self, job: dict[str, Any], arguments: list[str]) -> None:
        self._log = Path(job["folder"]) / f"{uuid.uuid4().hex}.log"
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.integration.worker.child", json.dumps(job), *arguments],
                cwd=ROOT,
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        """Wait until it has logged this."""
        until(lambda: text in self.log or self._process.poll() is not None)
        assert text in self.log, self.log

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def ends(self) -> int:
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.log}") from None

    def stop(self) -> None:
        """Ask it to stop; it ends well."""
        self.send(signal.SIGTERM)
        assert self.ends() == 0, self.log

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(PATIENCE)


class Site:
    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        self._options = options
        self.folder = folder
        self.hold = folder / "hold"
        self.entered = folder / "entered"
        self.asked = folder / "asked"
        self._processes: list[Process] = []

    def start(self, *arguments: str, interval: float = NEVER) -> Process:
        job = {
            "database": str(connection.settings_dict["NAME"]), "options": self._options, "folder": str(self.folder),
            "interval": interval,
        }  # fmt: skip
        process = Process(job, list(arguments))
        self._processes.append(process)
        return process

    def worker(self, *arguments: str, interval: float = NEVER) -> Process:
        """A worker that has begun to look for work."""
        worker = self.start("payments_worker", *arguments, interval=interval)
        worker.says("payments_worker has started for default, second")
        return worker

    def deliver(self, count: int = 1) -> list[str]:
        """Events of as many payments; returns their ids."""
        ids = []
        for _ in range(count):
            number = uuid.uuid4().hex[:12]
            payment = factories.payment(id=f"pay_{number}")
            event = factories.event(payment, id=f"evt_{number}", created_at=factories.iso(timezone.now()))
            body = factories.body(event)
            response = Client().post(
                "/payments/webhook/",
                body,
                content_type="application/json",
                headers={HEADER: sign(body, "whsec_default")},
            )
            assert response.status_code == 200
            ids.append(event["id"])
        _publisher.flush(PATIENCE)
        return ids

    def close(self) -> None:
        for process in self._processes:
            process.kill()


def done() -> int:
    return Event.objects.filter(state="done").count()


@pytest.fixture
def site(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "worker"}
    previous = wakeup.set_hook(_on_wake)
    site = Site(settings.PAYMENTS_INTEGRATION, tmp_path)
    yield site
    site.close()
    _publisher.flush(PATIENCE)
    wakeup.set_hook(previous)
