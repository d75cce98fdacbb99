"""The smallest example, as its docstring runs it: sandbox, site, a paid order. And limits of all examples."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests

from example_project import minimal
from tests.projects.quickstart.person import Person
from tests.servers import free_port, listens, wait_until

ROOT = Path(minimal.__file__).parents[2]
FILES = ("models.py", "views.py", "payment_handlers.py")
#: Without blank ones: what somebody has to read.
MAX_LINES = 80
#: Of the shop, without migrations. What it needs beyond that belongs into the package.
MAX_LINES_OF_SHOP = 900
PATIENCE = 60.0

Manage = Callable[..., None]


class Site:
    def __init__(self, folder: Path) -> None:
        self.database = folder / "minimal.sqlite3"
        self.port, self.provider = free_port(), free_port()
        self.log = folder / "log"
        self._servers: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def run(self, *arguments: str) -> None:
        subprocess.run(self._command(arguments), cwd=ROOT, env=self._environ, check=True, timeout=PATIENCE)

    def serve(self, port: int, *arguments: str) -> None:
        with self.log.open("ab") as output:
            server = subprocess.Popen(
                self._command(arguments), cwd=ROOT, env=self._environ, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._servers.append(server)
        wait_until(lambda: listens(port) or server.poll() is not None, PATIENCE, f"{arguments}; see {self.log}")
        assert server.poll() is None, self.log.read_text()

    def close(self) -> None:
        for server in self._servers:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
            server.wait(PATIENCE)

    def select(self, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.database, timeout=20)) as connection:
            return connection.execute(sql).fetchall()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-W", "error", "manage.py", *arguments]

    @property
    def _environ(self) -> dict[str, str]:
        ours = ("DJANGO_", "PAYMENTS_", "DATABASE_", "SHOP_")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {
            **rest,
            "DJANGO_SETTINGS_MODULE": "example_project.minimal.settings",
            "DATABASE_URL": f"sqlite:///{self.database}",
            "PAYMENTS_BASE_URL": f"http://127.0.0.1:{self.provider}",
            "PYTHONPATH": str(ROOT),
        }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.close()


def test_the_smallest_example_takes_a_payment(site: Site) -> None:
    site.serve(site.provider, "payments_sandbox", "--port", str(site.provider))
    site.run("migrate", "--verbosity", "0")
    site.run("makemigrations", "--check", "--dry-run", "minimal")
    site.serve(site.port, "runserver", "--noreload", str(site.port))
    site.run("payments_endpoints", "create", f"{site.url}payments/webhook/")

    person = Person()
    person.open(site.url)
    person.press("Order", amount="14990", email="ana@example.com")
    ways = person.address
    _, fields, _ = person.page.buttons["Pay CLP 14,990"]
    form = {**fields, "method_code": "cl_webpay_card"}
    person.press("Pay CLP 14,990", method_code="cl_webpay_card")
    assert person.address.startswith(f"http://127.0.0.1:{site.provider}/checkout/")
    person.press("Fail")
    failed = "SELECT 1 FROM payments_integration_payment WHERE status = 'failed'"
    # The payer may be faster than the webhook. Until it is in, the order's page leads to the status page.
    wait_until(lambda: site.select(failed), PATIENCE, "the failure to arrive")
    person.open(ways)
    assert "Webpay card" in person.page.text, "an attempt that failed leaves the order to be paid again"
    person.press("Pay CLP 14,990", method_code="cl_webpay_card")
    person.press("Pay $14.990")

    wait_until(lambda: site.select("SELECT paid_at FROM minimal_order") != [(None,)], PATIENCE, "the order to be paid")
    person.open(ways)
    assert "/payments/checkout/status/" in person.address
    assert "Your payment has arrived" in person.page.text

    # The first form once more, as by a second tab: its attempt is over, and no payment is made.
    answer = person._session.post(ways, data=form, headers={"Referer": ways}, timeout=PATIENCE)
    assert "/payments/checkout/status/" in answer.url
    books = requests.get(urljoin(f"http://127.0.0.1:{site.provider}", "/_sandbox/books"), timeout=PATIENCE).json()
    assert [payment["status"] for payment in books["projects"][0]["payments"]] in (
        ["failed", "succeeded"],
        ["succeeded", "failed"],
    )


def test_it_is_short() -> None:
    folder = Path(minimal.__file__).parent
    lines = [line for name in FILES for line in (folder / name).read_text().splitlines() if line.strip()]
    assert len(lines) <= MAX_LINES
    assert {path.name for path in folder.glob("*.py")} == {*FILES, "__init__.py", "settings.py", "urls.py"}


def test_the_shop_leaves_the_work_to_the_package() -> None:
    folder = Path(minimal.__file__).parents[1] / "shop"
    files = [path for path in folder.rglob("*.py") if "migrations" not in path.parts]
    assert sum(len(path.read_text().splitlines()) for path in files) <= MAX_LINES_OF_SHOP


@pytest.mark.parametrize(
    ("value", "error"), [("hosted", ""), ("s2s", ""), ("popup", "SHOP_FLOW is hosted or s2s, not 'popup'")]
)
def test_the_shops_flow_is_one_that_there_is(value: str, error: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import example_project.settings"],
        cwd=ROOT,
        env={**os.environ, "SHOP_FLOW": value},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode != 0) == bool(error)
    assert error in ended.stderr
