"""A site whose processes a test starts and kills."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import time_machine
from django.conf import settings
from django.db import connection

from payments_integration import conf
from payments_integration.models import DueRefresh, Event, ObjectDispatch, Operation, StatusChange
from payments_integration.signatures import sign
from payments_integration.testing import ProviderSandbox
from tests.databases import other_sessions
from tests.servers import wait_until

ROOT = Path(__file__).resolve().parents[3]
#: Seconds that a child may take.
PATIENCE = 120.0


class Warm:
    """The process that children are forked from: started once, with everything imported and nothing connected."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.integration.kill.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            start_new_session=True,
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, f"a child neither ended nor died in {PATIENCE:g} s: {job}"
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(f"{job['function']} failed in its process:\n{answer['error']}")
        return answer

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@dataclass(frozen=True)
class Point:
    """A place in the app: before (or after) the nth call of ``module:name``."""

    place: str
    after: bool = False
    nth: int = 1
    having: str = ""

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.place.partition(':')[2]}" + f" {self.having}".rstrip()


@dataclass(frozen=True)
class End:
    """How a child ended. ``killed``: where it was killed; empty if it ended with a ``result``."""

    killed: str
    result: Any = None
    #: The statements, commits and requests that it came by.
    passed: list[str] = field(default_factory=list)


@dataclass
class Site:
    """A site on the test's database, and its provider; its processes can be killed."""

    warm: Warm
    sandbox: ProviderSandbox
    clock: time_machine.Traveller
    #: Whether the site has receivers, and whether its processes react to wake-ups.
    has_receivers: bool = True
    #: Whether all receivers are declared so: their items are dispatched in groups.
    database_only: bool = False
    woken: bool = True
    page_size: int | None = None

    def run(self, job: str, /, *, die_at: int | None = None, point: Point | None = None, **arguments: Any) -> End:
        """One process of the site, from its start to its end or to a death that the database has noticed."""
        sessions = other_sessions()
        answer = self.warm.run(
            {
                "function": job,
                "arguments": arguments,
                "die_at": die_at,
                "point": vars(point) if point is not None else None,
                "now": time.time(),
                "database": str(connection.settings_dict["NAME"]),
                "options": getattr(settings, conf.NAME),
                "has_receivers": self.has_receivers,
                "database_only": self.database_only,
                "woken": self.woken,
                "page_size": self.page_size,
            }
        )
        # A server that has not noticed a client's death keeps its locks: the next process would have less to do.
        if "killed" in answer:
            wait_until(lambda: other_sessions() <= sessions, PATIENCE, "the database to notice a death", pause=0.002)
        return End(answer.get("killed", ""), answer.get("result"), answer.get("passed", []))

    def deliver(self) -> None:
        """The provider sends all that is due, to one process."""
        requests: list[tuple[str, str, str]] = []

        def post(url: str, headers: dict[str, str], body: bytes) -> int:
            requests.append((urlsplit(url).path, headers["Service-Signature"], body.decode()))
            return 200

        self.sandbox.engine.transport = post
        self.sandbox.deliver()
        if not requests:
            return
        answers = self.run("deliver", requests=requests).result
        assert answers == [200] * len(requests)

    def deliver_each(self, event_type: str, *, die_at: int | None = None, point: Point | None = None) -> list[End]:
        """The provider sends what is due, each to a process of its own; those of one type are killed as said."""
        ends: list[End] = []

        def post(url: str, headers: dict[str, str], body: bytes) -> int:
            is_it = json.loads(body)["type"] == event_type
            deadly: dict[str, Any] = {"die_at": die_at, "point": point} if is_it else {}
            request = (urlsplit(url).path, headers["Service-Signature"], body.decode())
            end = self.run("deliver", requests=[request], **deadly)
            if is_it:
                ends.append(end)
            if end.killed:
                raise ConnectionResetError("the process died")
            return int(end.result[0])

        self.sandbox.engine.transport = post
        self.sandbox.deliver()
        return ends

    def request(self, event_id: str) -> tuple[str, str, str]:
        """One delivery: path, signature and body."""
        body = self.sandbox.project.state.events.body(event_id) or b""
        return "/payments/webhook/", sign(body, self.sandbox.webhook_secret), body.decode()

    def later(self, minutes: float) -> None:
        """Time passes: for the site, whose processes run no more, and for the provider."""
        self.clock.shift(minutes * 60)
        self.sandbox.engine.tick()

    def recover(self) -> None:
        """Every dead process has been replaced; the schedule runs until there is nothing left to do."""
        for _ in range(10):
            if not has_open_work():
                return
            self.later(1)
            self.run("sweep")
        raise AssertionError("the schedule does not come to an end")


def has_open_work() -> bool:
    """Whether the schedule has anything left that it does by itself."""
    return (
        Event.objects.exclude(state="done").exists()
        or StatusChange.objects.exclude(state="done").exists()
        or DueRefresh.objects.exists()
        or ObjectDispatch.objects.exclude(claim_token="").exists()
        or Operation.objects.filter(state__in=("due", "unknown")).exists()
    )
