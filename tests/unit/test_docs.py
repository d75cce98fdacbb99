"""The docs name what exists, and everything public is in the docs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from inspect import iscoroutinefunction as is_async
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django import shortcuts
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.management import get_commands, load_command_class
from django.dispatch import Signal
from django.test import RequestFactory

from payments_integration import __version__, conf, enums, exceptions, handlers, models, services, signals, tasks
from payments_integration.api.request_bodies import DestinationInput, PayerInput
from payments_integration.client import Client
from payments_integration.client.resources import Payments
from payments_integration.exceptions import NoAnswer
from payments_integration.outbox.operations import base, payments as payment_calls
from payments_integration.schedule import BEAT_SCHEDULE
from payments_integration.services import payments as payment_services
from payments_integration.sync import get_client
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver
from tests.integration.runbook import page as runbook
from tests.unit.payable.payables import Sale

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ALL = "\n".join(page.read_text() for page in PAGES)
STATUSES = {
    "payment": enums.PaymentStatus.values,
    "payout": enums.PayoutStatus.values,
    "refund": enums.RefundStatus.values,
    "deposit reference": enums.DepositReferenceStatus.values,
    "webhook endpoint": enums.ActiveStatus.values,
}


def table(title: str, page: str = REFERENCE) -> list[list[str]]:
    """The cells of the rows below a heading, without the first row and the rule."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.split(" | ") for row in rows if not re.fullmatch(r"\w+( \| .*)?", row)]


def first_names(title: str) -> list[str]:
    return [re.findall(r"\w+", cells[0])[0] for cells in table(title)]


def test_the_settings_table_has_every_option_with_its_default() -> None:
    section = REFERENCE.partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `?(.*?)`? \|", section.partition("\n| key |")[0], re.MULTILINE))
    options = {field.name: field for field in dataclasses.fields(conf.Settings)}
    assert set(rows) == set(options)
    keys = re.findall(r"^\| `([A-Z_]+)`", section.partition("\n| key |")[2], re.MULTILINE)
    assert keys == list(conf.ACCOUNT_KEYS)
    defaults = conf.Settings()
    for name, shown in rows.items():
        if name != "ACCOUNTS":
            value = getattr(defaults, name)
            assert ast.literal_eval(shown) == (list(value) if isinstance(value, tuple) else value), name


def test_the_functions_table_has_every_service_with_its_arguments() -> None:
    shown = [cells[0].strip("`") for cells in table("Functions")]
    found = {name: getattr(services, name) for name in vars(services)["__all__"]}
    functions = [name for name, value in found.items() if inspect.isfunction(value) and not is_async(value)]
    assert sorted(shown) == sorted(f"{name}{own_arguments(getattr(services, name))}" for name in functions)


def test_the_async_page_has_every_service_for_async_views() -> None:
    page = (ROOT / "docs" / "take-a-payment.md").read_text()
    names = [name for name in vars(services)["__all__"] if is_async(getattr(services, name))]
    assert len(names) == 10
    assert [name for name in names if f"`{name}`" not in page] == []


def own_arguments(function: Callable[..., Any]) -> str:
    """A signature without annotations, and without the arguments that the page explains above the table."""
    parameters = inspect.signature(function).parameters.values()
    changes_something = any(parameter.name == "idempotency_key" for parameter in parameters)
    common = {"account", "idempotency_key", "actor"} if changes_something else {"account"}
    own = [item.replace(annotation=inspect.Parameter.empty) for item in parameters if item.name not in common]
    return str(inspect.Signature(own))


def test_functions_that_change_something_take_a_key_an_account_and_an_actor() -> None:
    parameters = {name: inspect.signature(getattr(services, name)).parameters for name in first_names("Functions")}
    with_key = {name for name, found in parameters.items() if "idempotency_key" in found}
    assert with_key == set(base.CALLS)
    for name in with_key:
        assert {"account", "actor"} <= set(parameters[name]), name


def test_the_signals_table_has_every_signal() -> None:
    assert first_names("Signals") == [name for name, value in vars(signals).items() if isinstance(value, Signal)]


def test_the_handlers_table_has_every_decorator_with_its_arguments() -> None:
    for name in ("on_event", "on_status"):
        found = inspect.signature(getattr(handlers, name))
        parameters = [item.replace(annotation=inspect.Parameter.empty) for item in found.parameters.values()]
        assert f"`{name}{inspect.Signature(parameters)}`" in [cells[0] for cells in table("Handlers")]


def test_the_errors_table_has_every_error_with_its_base() -> None:
    shown = {tuple(re.findall(r"\w+", " ".join(cells[:2]))) for cells in table("Errors")}
    errors = [value for value in vars(exceptions).values() if isinstance(value, type)]
    ours = [error for error in errors if issubclass(error, exceptions.PaymentsError)]
    # A base that is private only shares code.
    public = [error for error in ours if not error.__name__.startswith("_")]
    bases = {error: next(base for base in error.__mro__[1:] if not base.__name__.startswith("_")) for error in public}
    assert shown == {(error.__name__, base.__name__) for error, base in bases.items()}


def test_the_states_tables_have_every_state() -> None:
    assert first_names("States") == [*models.EventState.values, *models.OperationState.values]


def test_the_statuses_table_has_every_status_with_its_kinds() -> None:
    shown = {
        (status, kind)
        for names, kinds, _ in table("Event types and statuses")
        for status in re.findall(r"`(\w+)`", names)
        for kind in re.findall(r"payment|payout|refund|deposit reference|webhook endpoint", kinds)
    }
    assert shown == {(status, kind) for kind, statuses in STATUSES.items() for status in statuses}


def test_the_event_types_are_those_that_the_docs_say() -> None:
    named = {f"{kind}.{status}" for kind in ("payment", "payout", "refund") for status in STATUSES[kind]}
    assert set(enums.EVENT_TYPES) == (named - {"refund.canceled"}) | {"payout.delayed", "balance.updated"}


def test_the_page_has_the_fields_of_a_payer_and_a_destination() -> None:
    rows = {cells[0]: set(re.findall(r"`(\w+)`", cells[1])) for cells in table("Payer and destination")}
    assert rows["`payer`"] == set(PayerInput().fields)
    assert rows["`destination`"] - set(enums.AccountType.values) == set(DestinationInput().fields)
    assert rows["`document`, `holder_document`"] - {"type", "number"} == set(enums.DocumentType.values)


def own_commands() -> dict[str, str]:
    """Each command of the app and of its optional apps, with the app that it is in."""
    return {name: app for name, app in get_commands().items() if str(app).startswith("payments_integration")}


def test_the_commands_table_has_every_command() -> None:
    assert {cells[0].strip("`") for cells in table("Commands")} == set(own_commands())


def test_every_command_explains_its_options() -> None:
    for name, app in own_commands().items():
        parsers = [load_command_class(app, name).create_parser("", name)]
        for parser in parsers:
            for action in parser._actions:
                assert action.help or not action.option_strings, (name, action.option_strings)
                parsers += action.choices.values() if isinstance(action.choices, dict) else []


def test_the_tasks_table_has_every_task_with_its_interval() -> None:
    shown = {cells[0].strip("`"): float(cells[1].removesuffix(" s")) for cells in table("Tasks")}
    assert shown == {entry["task"].rpartition(".")[2]: entry["schedule"] for entry in BEAT_SCHEDULE.values()}


def test_the_checks_table_has_every_check() -> None:
    package = ROOT / "payments_integration"
    ids = {name for path in package.rglob("*.py") for name in re.findall(r'[".]([EW]0\d\d)"', path.read_text())}
    shown = [name for cells in table("System checks") for name in re.findall(r"\w+", cells[0])]
    assert sorted(shown) == sorted(ids)


def test_every_command_that_is_named_exists() -> None:
    mine = set(own_commands())
    names = (
        "sandbox|trigger|reconcile|process|worker|endpoints|listen|health|prune|erase|groups|journal|quickstart|views"
        "|rename_account|forget|search_terms"
    )
    assert set(re.findall(rf"\b(payments_(?:{names}))\b", ALL)) == mine
    assert set(re.findall(r"manage\.py (payments_\w+)", ALL)) <= mine


def test_every_reason_is_in_the_runbook_with_where_it_shows() -> None:
    """``tests/integration/runbook`` follows the entries."""
    package = ROOT / "payments_integration"
    healths = {name for path in (package / "health").glob("*.py") for name in reasons_used(path)}
    others = {
        name
        for path in package.rglob("*.py")
        if not {"health", "admin", "prometheus"} & {*path.relative_to(package).parts}
        for name in reasons_used(path)
    }
    entries = runbook.entries()
    assert sorted(entries) == sorted(signals.Reason)
    sent = {code for code, entry in entries.items() if "`attention` sends it" in " ".join(entry.text.split())}
    assert sent == {signals.Reason[name] for name in others}
    assert {code for code, entry in entries.items() if entry.screen} == {signals.Reason[name] for name in healths}


def reasons_used(path: Path) -> list[str]:
    text = re.sub(r"^ACTIONS: .*?^}$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\bReason\.([A-Z_]+)\b", text)


def test_the_page_on_erasure_lists_every_personal_field() -> None:
    section = OPERATE.partition("## Erasing a payer")[2]
    for model in models.MIRRORS.values():
        for name in model.personal:
            plural = str(model._meta.verbose_name_plural)
            row = re.search(rf"^\| {plural} \| (.*?) \|", section, re.MULTILINE)
            assert row is not None, plural
            assert {"extra": "unknown fields"}.get(name, name.replace("_", " ")) in row[1], (plural, name)


def test_every_task_that_is_named_exists() -> None:
    for name in re.findall(r"payments_integration\.tasks\.(\w+)", ALL):
        assert hasattr(tasks, name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_name_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings], anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_of_tests_benchmarks_and_example_exist(page: Path) -> None:
    for name in re.findall(r"`((?:tests|benchmarks|example_project)/[\w./]+)`", page.read_text()):
        assert (ROOT / name).exists(), name


def test_an_evening_is_enough_to_read_what_a_webhook_and_a_refund_do() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Read the code\n")[2].partition("\n## ")[0]
    files = [ROOT / "payments_integration" / name for name in re.findall(r"`([\w/]+\.py)`", section)]
    assert len(files) > 15
    assert sum(len(file.read_text().splitlines()) for file in files) < 5000


def test_the_query_that_converts_columns_finds_the_apps_tables_only() -> None:
    """A merchant's own app may be called payments."""
    [pattern] = re.findall(r"table_name REGEXP '(.*)'", (ROOT / "docs" / "install.md").read_text())
    own = [model for model in apps.get_models() if model.__module__.startswith("payments_integration.")]
    tables = {model._meta.db_table for model in own}
    assert {table for table in tables if not re.search(pattern, table)} == set()
    assert not re.search(pattern, "payments_order")
    assert not re.search(pattern, "payments_v_payment")


def test_the_pages_can_be_registered_on_another_site(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = ModuleType("shop.admin")
    shop.site = site = AdminSite(name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.admin", shop)
    page = (ROOT / "docs" / "admin.md").read_text()
    exec(re.findall(r"```python\n(from django.contrib import admin\nfrom shop.admin .*?)```", page, re.DOTALL)[0], {})
    ours = {
        model: type(page) for model, page in admin.site._registry.items() if type(page).__module__.startswith("pay")
    }
    assert {model: type(page) for model, page in site._registry.items()} == ours


def test_the_docs_are_short() -> None:
    """What is added to a page takes the place of something."""
    pages = list((ROOT / "docs").glob("*.md"))
    assert len(pages) <= 26
    assert sum(len(page.read_text().split()) for page in pages) <= 38_150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_heading_is_no_sentence(page: Path) -> None:
    """As if the line below had been joined to it."""
    assert re.findall(r"^##+ .*\.$", page.read_text(), re.MULTILINE) == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", REFERENCE.partition("\n## Glossary\n")[2], re.MULTILINE)
    assert len(terms) > 25
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_imports_in_examples_work(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for line in re.findall(r"^from payments_integration[\w.]* import .*$", block, re.MULTILINE):
            exec(line, {})


#: What a snippet may use without importing it: the names of a settings file or URLconf, and the reader's own objects.
GIVEN = {
    "CELERY_BEAT_SCHEDULE", "DATABASES", "INSTALLED_APPS", "MIDDLEWARE", "PAYMENTS_INTEGRATION", "SENTRY_DSN",
    "complaint", "engine", "order", "payment", "request", "urlpatterns",
}  # fmt: skip
#: What ``manage.py shell`` imports by itself.
SHELL = {"quickstart.md": {"Order"}}
#: Lines for modules of the app, which import these already.
OWN_MODULES = "### Add a call of the provider"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_python_and_import_what_they_use(page: Path, tmp_path: Path) -> None:
    text = page.read_text().partition(OWN_MODULES)[0]
    for number, block in enumerate(re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)):
        # "…" stands for arguments, items or statements that are left out.
        code = re.sub(r"(?<=[(\[{,\s])…,\s*|,\s*…(?=\s*[)\]}])", "", dedent(block)).replace("…", "...")
        ast.parse(code, f"{page.name}, snippet {number + 1}")
        (tmp_path / f"snippet_{number + 1}.py").write_text(code)
    check = ["check", "--isolated", "--select", "F821", "--target-version", "py311", "--output-format", "concise"]
    ruff = [str(Path(sys.executable).parent / "ruff"), *check, str(tmp_path)]
    found = subprocess.run(ruff, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode in (0, 1), found.stderr
    assert set(re.findall(r"(\w+\.py):.*Undefined name `(\w+)`", found.stdout)) <= {
        (path.name, name) for path in tmp_path.iterdir() for name in GIVEN | SHELL.get(page.name, set())
    }


@pytest.mark.django_db
def test_the_first_example_of_the_readme_runs(
    payments_sandbox: ProviderSandbox, woken: list[str], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    updates: list[Any] = []

    class Orders:
        """A model whose rows also have the fields ``customer``, ``total`` and ``status``."""

        class objects:  # noqa: N801  (as a manager is named)
            select_for_update = Sale.objects.select_for_update

            @staticmethod
            def filter(**conditions: Any) -> Any:
                updates.append(conditions)
                return SimpleNamespace(update=lambda **fields: updates.append(fields))

    sale = Sale.objects.create(number="order-1", amount=11_990, currency="USD")
    monkeypatch.setattr(Sale, "total", Decimal("119.90"), raising=False)
    monkeypatch.setattr(shortcuts, "get_object_or_404", lambda model, **conditions: sale)
    monkeypatch.setitem(sys.modules, "shop.models", SimpleNamespace(Order=Orders))
    example: dict[str, Any] = {}
    exec(block.group(1), example)
    request = RequestFactory().post("/", secure=True)
    request.user = get_user_model()(pk=1)
    answers = [example["pay"](request, "order-1") for _ in range(2)]
    payment = models.Payment.objects.get(merchant_reference="order-1")
    assert payment.amount == 11_990
    assert [answer["Location"] for answer in answers] == [payment.checkout_url, payment.checkout_url]
    payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    assert updates == [{"pk": sale.pk, "status": "new"}, {"status": "paid"}]


@pytest.mark.case(130)
def test_the_error_in_the_guide_to_testing_is_the_one_that_tests_get() -> None:
    page = (ROOT / "docs" / "test-your-integration.md").read_text()
    client = Client(conf.Account("default", "https://api.example.com", "sk_live_1"))
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.7", 443))]
    with mock.patch("socket.getaddrinfo", return_value=elsewhere), pytest.raises(NoAnswer) as caught:
        client.balances.list()
    assert str(caught.value) in " ".join(page.split())


@pytest.mark.django_db
def test_the_example_of_a_new_call_of_the_provider_works(
    payments_sandbox: ProviderSandbox, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    section = CONTRIBUTING.partition(f"\n{OWN_MODULES}\n")[2].partition("\n### ")[0]
    call, line, function = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    # The sandbox has no such call; a cancel answers alike.
    monkeypatch.setattr(Payments, "expire", Payments.cancel, raising=False)
    names = {**vars(base), **vars(payment_calls), **vars(payment_services)}
    exec(call, names)
    registered = eval(line.strip().removesuffix(","), names)
    monkeypatch.setitem(base._calls, "expire_payment", registered)
    exec(function, names)
    payment = services.create_payment(amount=5_000, currency="CLP", country="CL", method_code="cl_webpay_card")
    assert names["expire_payment"](payment) == payment
    operation = models.Operation.objects.get(operation="expire_payment")
    assert operation.state == models.OperationState.DONE
    assert registered.look_up(get_client("default"), operation) == base.Unclear("the payment is canceled")


def test_the_newest_version_of_the_changelog_is_this_one() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [heading for heading in headings if heading != "[Unreleased]"]
    assert headings == ["[Unreleased]", *versions]
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - (unreleased|\d{{4}}-\d\d-\d\d)", versions[0]), versions[0]


def test_each_promise_of_the_readme_has_tests() -> None:
    promises = {int(number) for number in re.findall(r"^(\d)\. \*\*", README, re.MULTILINE)}
    assert promises == set(range(1, 8))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {int(number) for number in re.findall(r"mark\.promise\((\d)\)", tests)} == promises
