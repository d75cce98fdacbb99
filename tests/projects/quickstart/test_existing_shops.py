"""docs/add-to-your-shop.md, followed word for word in existing projects: to a paid order and a refund."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.projects.foreign.installation import build_wheel
from tests.projects.quickstart.person import Person
from tests.projects.quickstart.reader import ROOT, Block, Reader, blocks_of
from tests.projects.quickstart.shops import DECIMALS, MINOR_UNITS, OF_OSCAR, Shop
from tests.servers import wait_until

BLOCKS = blocks_of((ROOT / "docs" / "add-to-your-shop.md").read_text())
PATIENCE = 30.0


class ShopReader(Reader):
    """Adds the options of its shop to the command, and the button to the shop's page."""

    options = ""
    #: Whether requests must be HTTPS.
    is_secure = False

    def follow(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.language == "html":
                path = self.folder / "shop/templates/order.html"
                path.write_text(path.read_text().replace("</body>", f"{block.text}</body>"))
        super().follow([block for block in blocks if block.language != "html"])

    def _run(self, command: str, typed: str | None = None) -> str:
        if " --dry-run" in command:
            # What is missing is its exit code.
            before = self._files()
            with pytest.raises(AssertionError, match=r"payments_quickstart --order \S+.* --write"):
                super()._run(command + self.options, typed)
            assert self._files() == before
            return ""
        if command == "pytest":
            command = "pytest -q -p no:randomly shop"
        return super()._run(command + (self.options if "--order" in command else ""), typed)

    def _files(self) -> dict[Path, bytes]:
        files = [path for path in self.folder.rglob("*") if path.suffix in (".py", ".html") or path.name == ".env"]
        return {path: path.read_bytes() for path in files}

    @property
    def _environ(self) -> dict[str, str]:
        return {**super()._environ, **({"HTTPS": "1"} if self.is_secure else {})}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[ShopReader]:
    reader = ShopReader(tmp_path)
    yield reader
    reader.close()


def of(*headings: str) -> list[Block]:
    return [block for block in BLOCKS if block.heading in headings]


@pytest.mark.parametrize("shop", [DECIMALS, MINOR_UNITS], ids=["decimals", "minor units"])
def test_the_page_leads_to_a_paid_order_and_a_refund(reader: ShopReader, shop: Shop) -> None:
    reader.options = shop.options
    for command in ("django-admin startproject project .", "python manage.py startapp shop"):
        reader._run(command)
    (reader.folder / "shop/tests.py").unlink()
    shop.build(reader.folder)
    for command in ("python manage.py makemigrations shop", "python manage.py migrate"):
        reader._run(command)
    key = reader._run("python manage.py shell -v 0", typed=dedent(shop.order)).split()[-1]

    reader.is_secure = True
    reader.follow(of("Install", "Let the command look at your order"))
    reader.is_secure = False
    assert "No changes detected" in reader._run("python manage.py makemigrations --check")
    assert ("non_atomic_requests" in reader.read("shop/payment_views.py")) == (shop is DECIMALS)
    reader.follow(of("The first purchase"))
    buy_and_refund(reader, key)

    before = reader._files()
    reader._run("python manage.py payments_quickstart --order shop.Order --write")
    assert reader._files() == before, "all is there"


def buy_and_refund(reader: ShopReader, key: str) -> None:
    """In the browser: the button of the shop's page, the provider's page, and the section about the refund."""
    person = Person()
    person.open(f"http://127.0.0.1:{reader.site}/admin/")
    person.press("Log in", username="ana", password="ana")
    person.open(f"/orders/{key}/")
    person.press("Pay")
    assert person.address.startswith(f"http://127.0.0.1:{reader.provider}/checkout/")
    [pay] = [label for label in person.page.buttons if label.startswith("Pay ")]
    assert "".join(filter(str.isdigit, pay)) == "11990"
    person.press(pay)

    def is_paid() -> bool:
        person.open(f"http://127.0.0.1:{reader.site}/orders/{key}/")
        return "None" not in person.page.text

    wait_until(is_paid, PATIENCE, "the handler to mark the order as paid")
    reader.follow(of("The refund"))
    wait_until(lambda: not is_paid(), PATIENCE, "the handler to see that nothing is left")


@pytest.fixture(scope="session")
def oscar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with django-oscar and the built wheel."""
    folder = tmp_path_factory.mktemp("oscar")
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=300)
    pip = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check", "--python", environment]
    packages = ["django-oscar[sorl-thumbnail]", "pytest", "pytest-django", build_wheel(folder)]
    subprocess.run([*pip, "install", *packages], check=True, timeout=900)
    return environment / "bin"


def test_the_page_leads_to_a_paid_order_of_oscar(oscar: Path, tmp_path: Path) -> None:
    # The handler fails until its line is written, and the test says so.
    warnings = "error,default:A handler failed:UserWarning"
    reader = ShopReader(tmp_path, programs=oscar, modules="", patience=900, warnings=warnings)
    try:
        for command in ("django-admin startproject project .", "python manage.py startapp shop"):
            reader._run(command)
        (reader.folder / "shop/tests.py").unlink()
        OF_OSCAR.build(reader.folder)
        reader.follow(of("Install"))
        by_package = "python manage.py payments_quickstart --order order.Order 2>&1 || true"
        section = of("The order of another package")
        assert reader._run(by_package).endswith(section[0].text)
        reader.follow(section)
        assert "No changes detected" in reader._run("python manage.py makemigrations --check")
        reader._run("pytest")
        key = reader._run("python manage.py shell -v 0", typed=dedent(OF_OSCAR.order)).split()[-1]
        reader.follow(of("The first purchase"))
        buy_and_refund(reader, key)
    finally:
        reader.close()
