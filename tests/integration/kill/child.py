"""Processes to be killed: the app with the tests' settings, forked from a warm one for every job.

    python -m tests.integration.kill.child

reads jobs as lines of JSON, and answers each with a line: what the job returned, where it was killed, or its error.
A killed fork leaves only what it has committed or sent.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn
from unittest import mock

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

import time_machine  # noqa: E402
from django.db import connections  # noqa: E402
from django.db.backends.base.base import BaseDatabaseWrapper  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.test.client import ClientHandler  # noqa: E402
from django.urls import get_resolver  # noqa: E402

from payments_integration import conf, db, inbox, outbox, tasks, wakeup, webhooks  # noqa: E402
from payments_integration.client.pagination import Paged  # noqa: E402
from payments_integration.client.transport import Transport  # noqa: E402
from payments_integration.contrib import finance  # noqa: E402
from payments_integration.inbox import claiming, groups  # noqa: E402
from payments_integration.signals import event_received, status_changed  # noqa: E402
from tests.conftest import Receiver  # noqa: E402
from tests.integration.kill import jobs  # noqa: E402

Job = dict[str, Any]


class Killer:
    """Kills this process at the chosen point by SIGKILL, which cannot be caught."""

    def __init__(self, job: Job, pipe: int) -> None:
        self.passed: list[str] = []
        self._pipe = pipe
        self._at: int | None = job.get("die_at")
        self._lock = threading.Lock()

    def die(self, where: str) -> NoReturn:
        os.write(self._pipe, json.dumps({"killed": where}).encode())
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        raise AssertionError("unreachable")

    def boundary(self, what: str) -> None:
        """Called before every statement, commit and request."""
        with self._lock:
            self.passed.append(what)
            if len(self.passed) == self._at:
                self.die(what)

    def watch(self) -> None:
        """Count the boundaries of this process."""
        commit, exchange = BaseDatabaseWrapper._commit, Transport.exchange  # type: ignore[attr-defined]

        def committing(connection: Any) -> Any:
            self.boundary("COMMIT")
            return commit(connection)

        def exchanging(transport: Transport, method: str, path: str, **rest: Any) -> Any:
            self.boundary(f"{method} {path}")
            return exchange(transport, method, path, **rest)

        def executing(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            self.boundary(sql[:60])
            return execute(sql, *rest)

        mock.patch.object(BaseDatabaseWrapper, "_commit", committing).start()
        mock.patch.object(Transport, "exchange", exchanging).start()
        connections["default"].execute_wrappers.append(executing)

    def wait_at(self, place: str, *, after: bool, nth: int, having: str) -> None:
        """Die before or after the nth call of a function, ``module:name`` or ``module:class.name``.

        ``having``: only calls with this keyword argument count.
        """
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        owner: Any = import_module(module)
        for part in outer:
            owner = getattr(owner, part)
        real, calls = getattr(owner, name), [0]

        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += not having or bool(kwargs.get(having))
            is_it = calls[0] == nth and (not having or bool(kwargs.get(having)))
            if is_it and not after:
                self.die(f"before {path}")
            result = real(*args, **kwargs)
            if is_it:
                self.die(f"after {path}")
            return result

        mock.patch.object(owner, name, call).start()


def execute(job: Job, pipe: int) -> None:
    """Run one job in a fork."""
    time_machine.travel(job["now"], tick=True).start()
    connections["default"].settings_dict["NAME"] = job["database"]
    override_settings(**{conf.NAME: job["options"]}).enable()
    killer = Killer(job, pipe)
    if point := job.get("point"):
        killer.wait_at(**point)
    for sent in (event_received, status_changed):
        sent.receivers = []  # the example shop is installed
    receiver = Receiver()
    if job["has_receivers"]:
        event_received.connect(receiver.on_event)
        status_changed.connect(receiver.on_status)
    if job["database_only"]:
        mock.patch.object(claiming, "are_database_only", return_value=True).start()
    # However slow the machine, each process gets as far as the others.
    mock.patch.object(wakeup, "INLINE_SECONDS", 600.0).start()
    mock.patch.object(webhooks, "_STORE_SECONDS", 600.0).start()
    mock.patch.object(groups, "MOST_SECONDS", 600.0).start()
    if not job["woken"]:
        wakeup.set_hook(None)
    if size := job.get("page_size"):
        page = Paged._page
        mock.patch.object(Paged, "_page", lambda listed, limit, *rest: page(listed, min(limit, size), *rest)).start()
    killer.watch()
    result = getattr(jobs, job["function"])(**job["arguments"])
    connections.close_all()
    os.write(pipe, json.dumps({"result": result, "passed": killer.passed}).encode())


def run(job: Job) -> bytes:
    """Run a job in a fork; returns how it ended, as JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            execute(job, writer)
        except BaseException:
            os.write(writer, json.dumps({"error": traceback.format_exc()}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) == answer.startswith(b'{"killed"'), (status, answer)
    return answer


def warm_up() -> None:
    """What a process does when it is first used, but for connecting. Each fork would do it again."""
    assert get_resolver().url_patterns
    assert tasks.process_events.name
    assert connections["default"].ops.compiler("SQLCompiler")
    ClientHandler().load_middleware()
    for package in (db, inbox, outbox, finance):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            if not module.ispkg:
                import_module(module.name)
    gc.freeze()
    assert threading.active_count() == 1, "a fork has only the thread that forks"


def main() -> None:
    warm_up()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(run(json.loads(line)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
