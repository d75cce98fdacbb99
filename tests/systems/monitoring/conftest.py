"""A site under gunicorn and a Celery worker, with the files that docs/monitoring.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from payments_integration.signatures import HEADER, sign
from tests import factories
from tests.servers import free_port, listens
from tests.systems.brokers.processes import Process, Processes, python

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
#: The files of the page, by name.
FILES = dict(re.findall(r'```python title="(.+?)"\n(.*?)```', PAGE, re.DOTALL))
SECRET = "whsec_monitoring"
#: Deliveries before the first test: enough that every process gets some.
MANY, REFUSED = 40, 7
TOKEN = "a-token-for-the-tests"

#: What stands above the page's lines in a project.
ABOVE = {
    "settings.py": "from example_project.settings import *\n"
    "from example_project.settings import INSTALLED_APPS\n"
    'ROOT_URLCONF = "yourproject.urls"\nCELERY_WORKER_CONCURRENCY = 2\n',
    "urls.py": "from example_project.urls import urlpatterns\n",
    "celery.py": "from example_project.celery import app\n",
    "gunicorn.conf.py": "",
}


@dataclass(frozen=True)
class Site:
    port: int
    worker_port: int
    gunicorn: Process
    worker: Process
    processes: Processes

    def deliver(self, number: int, *, secret: str = SECRET) -> int:
        body = factories.body(
            factories.event(factories.payment(id=f"pay_{number}"), id=f"evt_{number}", seconds=factories.RECENT)
        )
        headers = {HEADER: sign(body, secret), "Content-Type": "application/json"}
        return fetch(f"http://127.0.0.1:{self.port}/payments/webhook/", headers, body)[0]

    def scrape(self) -> str:
        """The site's page, as Prometheus reads it."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        status, text = fetch(f"http://127.0.0.1:{self.port}/metrics", headers)
        assert status == 200, text
        return text

    def scrape_worker(self) -> str:
        return fetch(f"http://127.0.0.1:{self.worker_port}/metrics", {})[1]


def fetch(url: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def total(text: str, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def dispatched(text: str) -> float:
    return total(text, "payments_receipt_to_dispatched_seconds_count", source="webhook")


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("monitoring")
    (folder / "yourproject").mkdir()
    (folder / "yourproject" / "__init__.py").touch()
    for name, above in ABOVE.items():
        (folder / ("" if name == "gunicorn.conf.py" else "yourproject") / name).write_text(above + FILES[name])
    (folder / "metrics").mkdir()
    port, worker_port = free_port(), free_port()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PAYMENTS_", "DJANGO_"))},
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "DJANGO_SETTINGS_MODULE": "yourproject.settings",
        "DEBUG": "false",
        "SECRET_KEY": "a key for the tests of the metrics, and for nothing else at all",
        "ALLOWED_HOSTS": "127.0.0.1",
        "DATABASE_URL": f"sqlite:///{folder / 'db.sqlite3'}",
        "BROKER_FOLDER": str(folder / "broker"),
        "PAYMENTS_BASE_URL": "http://127.0.0.1:9",
        "PAYMENTS_WEBHOOK_SECRETS": SECRET,
        "PAYMENTS_PROCESSING": "celery",
        "PAYMENTS_METRICS_TOKEN": TOKEN,
    }
    migrate = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=folder, env=environ, check=True, timeout=120)
    environ |= {"PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"), "METRICS_PORT": str(worker_port)}
    processes = Processes(folder)
    try:
        serve = ["example_project.wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "2", "--worker-class", "gthread"]
        gunicorn = processes.start("gunicorn", python("gunicorn", *serve, "--threads", "4"), environ)
        work = ["-A", "yourproject.celery", "worker", "--pool", "prefork", "--loglevel", "info"]
        worker = processes.start("worker", python("celery", *work), environ)
        processes.wait("gunicorn to listen", lambda: listens(port))
        processes.wait("the worker to serve its metrics", lambda: listens(worker_port))
        served = Site(port, worker_port, gunicorn, worker, processes)
        assert {served.deliver(number) for number in range(MANY)} == {200}
        assert {served.deliver(number, secret="whsec_wrong") for number in range(REFUSED)} == {400}
        processes.wait("the worker to dispatch", lambda: dispatched(served.scrape()) == MANY)
        yield served
    finally:
        processes.stop()
