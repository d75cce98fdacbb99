"""The jobs of ``docs/deployment.md``, word for word, and that of ``contrib.django_tasks``.

A queue that is not installed is replaced by one that calls a job when it is enqueued.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from payments_integration import inbox
from payments_integration.models import Event
from tests import factories
from tests.conftest import Receiver

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deployment.md").read_text()
FILES: dict[str, str] = dict(re.findall(r'^```python title="shop/tasks\.py, (\w+)"\n(.*?)^```$', PAGE, re.M | re.S))
DJANGO_TASKS = "payments_integration.contrib.django_tasks"

Job = Callable[..., Any]


def enqueued_by(name: str) -> Callable[[Job], Any]:
    """A decorator that gives a job this method, which runs it."""

    def decorate(job: Job) -> Any:
        return SimpleNamespace(**{name: job})

    return decorate


def rq_job(queue: str, *, timeout: int) -> Callable[[Job], Any]:
    assert (queue, timeout) == ("default", 1500)
    return enqueued_by("delay")


def dramatiq_actor(*, max_retries: int, time_limit: int) -> Callable[[Job], Any]:
    assert (max_retries, time_limit) == (0, 1_500_000)
    return enqueued_by("send")


#: By library: the module that its file imports, and what it uses of it.
QUEUES: dict[str, tuple[str, dict[str, Any]]] = {
    "RQ": ("django_rq", {"job": rq_job}),
    "Huey": ("huey.contrib.djhuey", {"db_task": lambda: lambda job: job}),
    "Dramatiq": ("dramatiq", {"actor": dramatiq_actor}),
    "Procrastinate": ("procrastinate.contrib.django", {"app": SimpleNamespace(task=enqueued_by("defer"))}),
}


def replace(monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, Any]) -> None:
    """A module of this name, in packages that exist."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = []
        monkeypatch.setitem(sys.modules, package.__name__, package)
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_page_has_a_file_for_each_library() -> None:
    assert set(FILES) == set(QUEUES)


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
@pytest.mark.parametrize("library", QUEUES)
def test_a_wake_up_has_the_job_done(library: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, *QUEUES[library])
    names: dict[str, Any] = {}
    exec(FILES[library], names)
    inbox.receive("default", factories.body(factories.life()[0]))
    names["wake_up"]("second")
    assert Event.objects.get().state == "pending", "it is another account's"
    names["wake_up"]("default")
    assert Event.objects.get().state == "done"
    assert len(receiver.events) == 1


def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, DJANGO_TASKS, raising=False)
    try:
        return importlib.import_module(DJANGO_TASKS)
    finally:
        sys.modules.pop(DJANGO_TASKS, None)


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_djangos_tasks_do_the_work(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("django.tasks") is None:  # Django 5.2
        replace_tasks = ModuleType("django.tasks")
        vars(replace_tasks)["task"] = enqueued_by("enqueue")
        monkeypatch.setitem(sys.modules, "django.tasks", replace_tasks)
    inbox.receive("default", factories.body(factories.life()[0]))
    imported(monkeypatch).wake_up("default")
    assert Event.objects.get().state == "done"
    assert len(receiver.events) == 1


def test_without_djangos_tasks_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "django.tasks", None)
    with pytest.raises(ImproperlyConfigured, match=r"needs Django 6\.0.*run payments_worker and leave WAKE_UP out"):
        imported(monkeypatch)
