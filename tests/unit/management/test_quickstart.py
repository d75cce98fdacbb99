"""``payments_quickstart`` in a small project, whose files are read back as Django would read them."""

from __future__ import annotations

import importlib
import io
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import models

from payments_integration import conf, handlers, signals
from payments_integration.management.commands import payments_quickstart
from payments_integration.payable import Payable
from tests.unit.payable.payables import Order

SETTINGS = 'INSTALLED_APPS = ["payments_integration"]\nDATABASES = {"default": {"ENGINE": "sqlite3"}}\n'
URLS = 'from django.urls import path, re_path\n\nurlpatterns = [\n    re_path("", lambda request: None),\n]\n'
VARIABLES = ("PAYMENTS_BASE_URL", "PAYMENTS_API_KEY", "PAYMENTS_WEBHOOK_SECRETS")


class Project:
    """A package ``quickshop`` with settings, URLs and one app, in the current folder."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder = folder
        self.settings = settings

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def files(self) -> dict[str, bytes]:
        return {
            str(path): path.read_bytes() for path in self.folder.rglob("*") if path.suffix != ".pyc" and path.is_file()
        }

    def start_again(self) -> None:
        """The settings and URLs as the next process reads them."""
        names = runpy.run_path(str(self.folder / "quickshop" / "settings.py"))
        if conf.NAME in names:
            self.settings.PAYMENTS_INTEGRATION = names[conf.NAME]
        for name in [name for name in sys.modules if name.startswith("quickshop.urls")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        self.settings.ROOT_URLCONF = "quickshop.urls"  # has Django forget the routes

    def run(self, *words: str) -> tuple[int, str]:
        """The exit code, and what is shown."""
        out = io.StringIO()
        try:
            call_command("payments_quickstart", *words, stdout=out, stderr=out, no_color=True)
        except SystemExit as ended:
            return int(str(ended.code)), out.getvalue()
        return 0, out.getvalue()


@pytest.fixture
def project(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    project = Project(tmp_path, settings)
    project.write("quickshop/__init__.py", "")
    project.write("quickshop/settings.py", SETTINGS)
    project.write("quickshop/urls.py", URLS)
    project.write("quickorders/__init__.py", "")
    project.write(".gitignore", "*.pyc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(handlers, "registered", [])
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", {"transaction_mode": "IMMEDIATE"})
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "quickshop.settings")
    settings.ROOT_URLCONF = "quickshop.urls"
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "quickorders"]
    del settings.PAYMENTS_INTEGRATION
    yield project
    for name in [name for name in sys.modules if name.startswith(("quickshop", "quickorders"))]:
        del sys.modules[name]


def test_without_write_it_shows_complete_snippets_and_changes_nothing(project: Project) -> None:
    before = project.files()
    code, shown = project.run()
    assert code == 1
    assert project.files() == before
    for text in (
        "  .env:\n\n    PAYMENTS_BASE_URL=http://127.0.0.1:8400\n    PAYMENTS_API_KEY=sk_test_sandbox\n",
        "  quickshop/settings.py, at the end:\n\n    from payments_integration import conf\n\n    PAYMENTS_INT",
        "  .gitignore:\n\n    .env\n",
        "  quickshop/urls.py, first in urlpatterns:\n\n    from django.urls import include, path\n",
        "  quickorders/payment_handlers.py, a new file:\n",
        "payments_quickstart --write",
    ):
        assert text in shown, text


def test_with_write_the_project_is_complete_and_stays_as_it_is(project: Project) -> None:
    code, shown = project.run("--write")
    assert (code, shown.count(": added\n")) == (0, 5)
    project.start_again()
    account = project.settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    assert (account["BASE_URL"], account["API_KEY"]) == ("http://127.0.0.1:8400", "sk_test_sandbox")
    assert account["WEBHOOK_SECRETS"][0].startswith("whsec_")
    assert project.read(".gitignore") == "*.pyc\n.env\n"
    handler = runpy.run_path("quickorders/payment_handlers.py")["mark_paid"]
    assert [registered[0] for registered in handlers.registered] == [handler]

    before = project.files()
    code, shown = project.run("--write")
    assert (code, project.files()) == (0, before)
    assert "All is there; nothing was changed." in shown
    assert "--webhook-url http://127.0.0.1:8000/payments/webhook/" in shown
    assert project.run()[0] == 0


def test_what_it_needs_of_django_is_added_as_well(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(project.settings.DATABASES["default"], "OPTIONS", {})
    installed = [name for name in project.settings.INSTALLED_APPS if name != "rest_framework"]
    for kind in (list, tuple):
        project.write("quickshop/settings.py", SETTINGS.replace('["payments_integration"]', repr(kind(installed))))
        project.settings.INSTALLED_APPS = kind(installed)
        assert project.run("--write")[0] == 0
        names = runpy.run_path("quickshop/settings.py")
        assert names["INSTALLED_APPS"] == kind([*installed, "rest_framework"])
        assert names["DATABASES"]["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_values_that_are_there_are_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYMENTS_API_KEY", "sk_test_environment")
    project.write(".env", "PAYMENTS_BASE_URL=https://provider.example\n")
    assert project.run("--write")[0] == 0
    assert project.read(".env") == "PAYMENTS_BASE_URL=https://provider.example\n"
    project.start_again()
    account = project.settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    assert account["API_KEY"] == "sk_test_environment"
    assert account["WEBHOOK_SECRETS"] == [], "a real provider has a secret of its own"


def test_a_wrong_value_is_named_and_the_settings_stay_usable(project: Project) -> None:
    project.write(".env", "PAYMENTS_BASE_URL=provider\n")
    code, shown = project.run("--write")
    assert code == 1
    assert "Settings: not written: The environment variable PAYMENTS_BASE_URL is missing or wrong." in shown
    assert project.read("quickshop/settings.py") == SETTINGS


def test_a_file_that_is_not_understood_is_named_with_what_to_add(project: Project) -> None:
    project.write("quickshop/urls.py", "from django.urls import path\n\nurlpatterns = list()\n")
    project.start_again()
    code, shown = project.run("--write")
    assert code == 1
    assert "URLs: not written: its urlpatterns do not begin with a list" in shown
    assert 'path("payments/", include("payments_integration.urls")),' in shown
    assert project.read("quickshop/urls.py").endswith("urlpatterns = list()\n")
    assert (project.folder / "quickorders" / "payment_handlers.py").exists(), "the rest is written"


@pytest.mark.parametrize(
    ("routes", "why"),
    [
        ('path("payments/webhook/", print)', "the project has routes under payments/ already"),
        ('re_path("", print), path("pay/", include("payments_integration.urls"))', "another route takes /pay/webh"),
        ("1 / 0", "quickshop.urls cannot be imported: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_urlconf_that_a_person_must_decide_about_is_left_alone(project: Project, routes: str, why: str) -> None:
    text = f"from django.urls import include, path, re_path\n\nurlpatterns = [{routes}]\n"
    project.write("quickshop/urls.py", text)
    project.start_again()
    code, shown = project.run("--write")
    assert code == 1
    assert why in shown
    assert "URLs: not written, because only you can decide how" in shown
    assert project.read("quickshop/urls.py") == text


def test_a_setting_without_an_account_is_for_a_person(project: Project) -> None:
    project.settings.PAYMENTS_INTEGRATION = {"PROCESSING": "celery"}
    code, shown = project.run("--write")
    assert code == 1
    assert 'PAYMENTS_INTEGRATION has no account; add to it:\n\n    "ACCOUNTS": {"default": {"BASE_URL": "http' in shown
    assert project.read("quickshop/settings.py") == SETTINGS
    assert not (project.folder / ".env").exists()


def test_without_an_app_the_handlers_are_shown(project: Project) -> None:
    project.settings.INSTALLED_APPS = [name for name in project.settings.INSTALLED_APPS if name != "quickorders"]
    code, shown = project.run("--write")
    assert code == 1
    assert "payment_handlers.py, in an app of yours (python manage.py startapp orders)" in shown


@pytest.mark.parametrize("found", ["a receiver", "a handler"])
def test_handlers_that_are_there_are_enough(project: Project, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if found == "a receiver":
        project.write("quickorders/payment_handlers.py", "")
        monkeypatch.setattr(signals.status_changed, "receivers", [object()])
    else:
        handlers.registered.append((lambda **_: None, None, ("*",)))
    assert "Handlers" not in project.run()[1]


def test_a_module_without_a_handler_is_named_and_left_alone(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in (signals.event_received, signals.status_changed):
        monkeypatch.setattr(signal, "receivers", [])
    project.write("quickorders/payment_handlers.py", "X = 1\n")
    code, shown = project.run("--write")
    assert code == 1
    assert "quickorders/payment_handlers.py has none for a paid payment; for example" in shown
    assert project.read("quickorders/payment_handlers.py") == "X = 1\n"


def test_a_key_of_another_provider_gets_no_sandbox(project: Project) -> None:
    project.write(".env", "PAYMENTS_API_KEY=sk_live_mine\n")
    code, shown = project.run("--write")
    assert code == 1
    assert "your PAYMENTS_API_KEY is not the sandbox's (sk_test_sandbox), so name the provider's address" in shown
    assert project.read(".env") == "PAYMENTS_API_KEY=sk_live_mine\n"


def test_files_elsewhere_are_not_changed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := project.folder / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    code, shown = project.run("--write")
    assert code == 1
    assert shown.count("not written: it is not in the current folder") == 2
    assert (project.read("quickshop/settings.py"), project.read("quickshop/urls.py")) == (SETTINGS, URLS)


def test_the_handler_marks_an_order_as_paid_if_the_model_has_the_fields() -> None:
    class Fields:
        """The fields of a model, with the names that a handler uses."""

        def __init__(self, *names: str) -> None:
            self.names = names

        def get_fields(self) -> list[Any]:
            return [models.IntegerField(name=name) for name in self.names]

    def body(*names: str) -> str:
        model: Any = type("Order", (), {"__module__": "orders.models", "_meta": Fields(*names)})
        text = payments_quickstart.handler_module(model)
        compile(text, "payment_handlers.py", "exec")
        return text

    assert 'order.save(update_fields=["paid_at"])' in body("amount", "currency", "paid_at")
    assert "order.is_paid(order.amount, order.currency):" in body("amount", "currency")
    assert "order.is_paid(order.amount, payment.currency):" in body("amount")
    assert "    if order is not None:\n        ...  # Mark the order as paid here.\n" in body()
    assert issubclass(Order, Payable)
    assert f"from {Order.__module__} import Order\n" in payments_quickstart.handler_module(Order)
