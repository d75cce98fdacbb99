"""Documentation is tested: what it names exists, and what exists is named."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands

from payments_integration import conf, models, reasons, services, tasks
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text()
OPERATE = (ROOT / "docs" / "8-operate.md").read_text()
ALL = "\n".join(page.read_text() for page in PAGES)


def test_the_settings_table_has_every_option_with_its_default() -> None:
    table = README.partition("## The settings")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `?(.*?)`? \|", table, re.MULTILINE))
    options = {field.name: field for field in dataclasses.fields(conf.Settings)}
    assert set(rows) == set(options)
    defaults = conf.Settings()
    for name, shown in rows.items():
        if name != "ACCOUNTS":
            value = getattr(defaults, name)
            assert ast.literal_eval(shown) == (list(value) if isinstance(value, tuple) else value), name


def test_every_service_is_in_the_table_with_its_arguments() -> None:
    table = README.partition("## The functions")[2].partition("\n## ")[0]
    for name in services.__all__:
        function = getattr(services, name)
        assert f"`{name}(" in table, name
        assert inspect.isfunction(function)
    for name, arguments in re.findall(r"`(\w+)\(([^`]*)\)`", table):
        parameters = inspect.signature(getattr(services, name)).parameters
        for argument in re.findall(r"(\w+)(?:=[^,]+)?(?:, |$)", arguments):
            assert argument in parameters or name == "defer", (name, argument)


def test_every_command_that_is_named_exists() -> None:
    mine = {name for name, app in get_commands().items() if app == "payments_integration"}
    names = "sandbox|reconcile|process|endpoints|listen|health|prune|archive|erase|groups"
    assert set(re.findall(rf"\b(payments_(?:{names}))\b", ALL)) == mine
    assert set(re.findall(r"manage\.py (payments_\w+)", ALL)) <= mine


def test_every_reason_is_in_the_table_with_where_it_shows() -> None:
    table = OPERATE.partition("## What each problem means")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (yes)? ?\| (yes)? ?\| (.+) \|$", table, re.MULTILINE)
    listed = [(code, sent, shown) for codes, sent, shown, _ in rows for code in re.findall(r"`(\w+)`", codes)]
    assert sorted(code for code, _, _ in listed) == sorted(reasons.Reason)
    package = ROOT / "payments_integration"
    healths = {name for path in (package / "health").glob("*.py") for name in used(path)}
    others = {
        name
        for path in package.rglob("*.py")
        if path.parent.name not in ("health", "admin") and path.name != "reasons.py"
        for name in used(path)
    }
    assert {code for code, sent, _ in listed if sent} == {reasons.Reason[name] for name in others}
    assert {code for code, _, shown in listed if shown} == {reasons.Reason[name] for name in healths}


def used(path: Path) -> list[str]:
    return re.findall(r"\bReason\.([A-Z_]+)\b", path.read_text())


def test_what_is_personal_is_what_the_page_says() -> None:
    table = OPERATE.partition("## Erasing a payer")[2]
    for model in models.MIRRORS.values():
        for name in model.personal:
            plural = str(model._meta.verbose_name_plural)
            row = re.search(rf"^\| {plural} \| (.*?) \|", table, re.MULTILINE)
            assert row is not None, plural
            assert {"extra": "unknown fields"}.get(name, name.replace("_", " ")) in row[1], (plural, name)


def test_every_task_of_the_schedule_is_one_of_ours() -> None:
    for name in re.findall(r"payments_integration\.tasks\.(\w+)", ALL):
        assert hasattr(tasks, name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_imports_in_examples_work(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for line in re.findall(r"^from payments_integration[\w.]* import .*$", block, re.MULTILINE):
            exec(line, {})


@pytest.mark.django_db
def test_the_readmes_first_example_runs(
    payments_sandbox: ProviderSandbox, woken: list[str], receiver: Receiver
) -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    told: list[Any] = []

    class Order:
        reference = "order-1"

        class objects:  # noqa: N801  (as a manager is named)
            @staticmethod
            def filter(**conditions: Any) -> Any:
                told.append(conditions)
                return type("Rows", (), {"update": staticmethod(lambda **fields: told.append(fields))})

    redirected: list[Any] = []
    exec(block.group(1), {"order": Order, "Order": Order, "redirect": redirected.append})
    payment = models.Payment.objects.get(merchant_reference="order-1")
    assert redirected == [payment.checkout_url]
    payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    assert told == [{"reference": "order-1"}, {"status": "paid"}]


@pytest.mark.django_db
def test_the_example_of_a_test_runs(payments_sandbox: ProviderSandbox, woken: list[str]) -> None:
    page = (ROOT / "docs" / "7-test-your-integration.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block.group(1), names)
    names["test_an_order_is_paid"](payments_sandbox)


def test_promises_are_the_ones_of_the_readme_and_each_has_tests() -> None:
    promises = {int(number) for number in re.findall(r"^(\d)\. \*\*", README, re.MULTILINE)}
    assert promises == set(range(1, 8))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {int(number) for number in re.findall(r"mark\.promise\((\d)\)", tests)} == promises
