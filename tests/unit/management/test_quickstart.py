"""``payments_quickstart`` in a small project, whose files are read back as Django would read them."""

from __future__ import annotations

import importlib
import io
import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import CommandError, call_command
from django.db import models
from django.http import Http404
from django.test import Client, RequestFactory
from django.test.utils import isolate_apps
from django.urls import set_script_prefix

from payments_integration import conf, handlers, services, signals
from payments_integration.exceptions import InvalidRequest, OutcomeUnknown
from payments_integration.management.quickstart import configuration, order_files, order_model, orders
from payments_integration.management.quickstart.order_model import OrderModel
from payments_integration.models import Payment, Payout, StatusChange
from payments_integration.payable import Payable, models as payable_models
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.payable.payables import Order, Sale

SETTINGS = (
    'INSTALLED_APPS = ["payments_integration"]\nDATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3"}}\n'
)
URLS = 'from django.urls import path, re_path\n\nurlpatterns = [\n    re_path("", lambda request: None),\n]\n'
VARIABLES = ("PAYMENTS_BASE_URL", "PAYMENTS_API_KEY", "PAYMENTS_WEBHOOK_SECRETS")


def imported_handlers() -> None:
    """What the next process imports of payment_handlers.py."""
    handlers.registered.append((lambda obj, **_: None, Payment, ()))


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
    monkeypatch.setattr(configuration, "_free_port", lambda: 8400)
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(settings.DATABASES["default"], "OPTIONS", {"transaction_mode": "IMMEDIATE"})
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "quickshop.settings")
    settings.ROOT_URLCONF = "quickshop.urls"
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "quickorders"]
    del settings.PAYMENTS_INTEGRATION
    yield project
    for name in [name for name in sys.modules if name.startswith(("quickshop", "quickorders", "quicksales"))]:
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
        "  quickorders/payment_handlers.py, a new file; no model of yours",
        "payments_quickstart --write",
    ):
        assert text in shown, text


def test_with_write_the_project_is_complete_and_stays_as_it_is(project: Project) -> None:
    code, shown = project.run("--write")
    assert (code, shown.count(": added\n")) == (0, 5)
    assert "URLs: added\n  quickshop/urls.py, first in urlpatterns\nHandlers: added\n" in shown
    project.start_again()
    account = project.settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    assert (account["BASE_URL"], account["API_KEY"]) == ("http://127.0.0.1:8400", "sk_test_sandbox")
    assert account["WEBHOOK_SECRETS"][0].startswith("whsec_")
    assert project.read(".gitignore") == "*.pyc\n.env\n"
    handler = runpy.run_path("quickorders/payment_handlers.py")["follow"]
    assert [registered[0] for registered in handlers.registered] == [handler, handler]

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
        # SQLite here and PostgreSQL on the server, by DATABASE_URL: another driver refuses the option.
        elsewhere = project.read("quickshop/settings.py").replace("backends.sqlite3", "backends.postgresql")
        project.write("quickshop/settings.py", elsewhere)
        assert "OPTIONS" not in runpy.run_path("quickshop/settings.py")["DATABASES"]["default"]


def test_without_the_admin_its_pages_are_not_added(project: Project) -> None:
    project.settings.INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "payments_integration"]
    shown = project.run()[1]
    assert 'INSTALLED_APPS += ["rest_framework"]\n' in shown
    assert "payments_integration.contrib" not in shown


def test_settings_of_one_place_say_where_the_lines_belong(project: Project) -> None:
    """manage.py uses config.settings.local: without the lines, production would take no payment, and only warn."""
    project.write("quickshop/base.py", SETTINGS)
    project.write("quickshop/settings.py", "from quickshop.base import *\n")
    assert (
        "settings.py, at the end; move the lines to the module that production shares\n" in project.run("--write")[1]
    )


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
    assert "URLs: not written: its urlpatterns do not begin with a list; write urlpatterns = [this path] + …" in shown
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
def test_handlers_that_are_there_are_enough(project: Project, found: str) -> None:
    def follow(**_: Any) -> None: ...

    if found == "a receiver":
        signals.status_changed.connect(follow)
    else:
        handlers.registered.append((follow, None, ("*",)))
    try:
        assert "Handlers" not in project.run()[1]
    finally:
        signals.status_changed.disconnect(follow)


def test_a_handler_of_payouts_is_not_enough(project: Project) -> None:
    handlers.registered.append((lambda payout, **_: None, Payout, ("failed",)))
    assert project.run("--write")[1].count("Handlers: added\n") == 1


def test_a_module_without_a_handler_is_named_and_left_alone(project: Project) -> None:
    project.write("quickorders/payment_handlers.py", "X = 1\n")
    code, shown = project.run("--write")
    assert code == 1
    assert "quickorders/payment_handlers.py has none for a change of a payment; for example" in shown
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


def body(price: Any = None, **fields: models.Field[Any, Any]) -> str:
    """The handler for a Payable with these fields."""
    with isolate_apps("tests.factories.receivers"):
        options = {"payments_price": price} if price else {}
        meta = type("Meta", (), {"app_label": "receivers"})
        names = {"__module__": "orders.models", "Meta": meta, "__str__": lambda order: "", **options, **fields}
        model: Any = type("Order", (Payable,), names)
    text = order_files.handlers(model)
    compile(text, "payment_handlers.py", "exec")
    return text


def test_the_handler_marks_an_order_as_paid_if_the_model_has_the_fields() -> None:
    minor, code, at = models.BigIntegerField, models.CharField, models.DateTimeField
    assert 'order.save(update_fields=["paid_at"])' in body(amount=minor(), currency=code(max_length=3), paid_at=at())
    assert "is_paid = order.is_paid(order.amount, order.currency)" in body(amount=minor(), currency=code(max_length=3))
    assert "is_paid = order.is_paid(order.amount, obj.currency)" in body(amount=minor())
    assert 'raise NotImplementedError("ask order.is_paid(minor units, currency); ' in body()
    assert issubclass(Order, Payable)
    assert f"from {Order.__module__} import Order\n" in order_files.handlers(Order)


@pytest.mark.case(131)
def test_the_handler_converts_whole_units() -> None:
    text = body(amount=models.DecimalField(max_digits=9, decimal_places=2), currency=models.CharField(max_length=3))
    assert "order.is_paid(to_minor(order.amount, order.currency), order.currency)" in text
    assert "from payments_integration.money import to_minor\n" in text
    text = body(lambda order: (1, "USD"), amount=models.DecimalField(max_digits=9, decimal_places=2))
    assert "order.is_paid(*price)" in text
    assert "to_minor" not in text
    assert "is_paid(order.amount" not in body(amount=models.FloatField())


@pytest.mark.django_db
def test_the_handler_of_a_payable_follows_the_money_both_ways(
    payments_sandbox: ProviderSandbox, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    exec(order_files.handlers(Order), {"__name__": "orders.payment_handlers"})
    order = Order.objects.create(number="A-1", amount=10_000, currency="CLP")
    payment = services.create_payment(
        amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference="A-1"
    )
    payments_sandbox.settle()
    order.refresh_from_db()
    assert order.paid_at is None
    payments_sandbox.engine.pay(payment.pk)
    payments_sandbox.settle()
    order.refresh_from_db()
    assert order.paid_at is not None
    payments_sandbox.engine.fund("CLP", 10_000)
    payments_sandbox.engine.succeed_refund(services.create_refund(payment).pk)
    payments_sandbox.settle()
    order.refresh_from_db()
    assert order.paid_at is None, "refunded in full"


@pytest.mark.django_db
@pytest.mark.parametrize("is_written", [False, True])
def test_a_handler_fails_until_its_line_is_written(
    payments_sandbox: ProviderSandbox,
    woken: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    is_written: bool,
) -> None:
    """A handler that does nothing leaves each order unpaid for ever, and nobody hears of it.

    A second line to write could be forgotten: if it is the one for an unpaid order, that holds back the payment.
    """
    seen: list[bool] = []
    monkeypatch.setattr(handlers, "registered", [])
    text = order_files.handlers(Sale)
    if is_written:
        text = re.sub(r"raise NotImplementedError\(.*\)", "seen.append(is_paid)", text, count=1)
    exec(text, {"__name__": "orders.payment_handlers", "seen": seen})
    sale = Sale.objects.create(number="A-1", amount=10_000, currency="CLP")
    payment = services.create_payment(
        amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference=sale.number
    )
    unwritten = pytest.warns(
        UserWarning, match="A handler failed for .*: NotImplementedError: mark the order as not paid"
    )
    with nullcontext() if is_written else unwritten:
        payments_sandbox.settle()
        payments_sandbox.engine.pay(payment.pk)
        payments_sandbox.settle()
    failed = StatusChange.objects.filter(object_id=payment.pk, attempts=1).exclude(state="done")
    assert (failed.exists(), seen[-1:]) == ((False, [True]) if is_written else (True, []))
    assert ("NotImplementedError: mark the order as not paid" in caplog.text) is not is_written


# The model


def app_with(project: Project, label: str, *names: str, payable: bool = False) -> None:
    """An app of the project with models of these names."""
    project.write(f"{label}/__init__.py", "")
    imported = "from payments_integration.payable import Payable\n" if payable else ""
    lines = [f"from django.db import models\n{imported}"]
    for name in names:
        base, field = ("Payable", '\n    merchant_reference_field = "id"') if payable else ("models.Model", "")
        lines.append(f"class {name}({base}):{field}\n    note = models.CharField(max_length=9)\n")
    project.write(f"{label}/models.py", "\n".join(lines))
    project.settings.INSTALLED_APPS = [*project.settings.INSTALLED_APPS, label]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test's models leave in the registry goes. The suite's own orders are none of the project."""

    def own(*_: Any) -> list[type[models.Model]]:
        return [
            model for model in apps.get_models() if issubclass(model, Payable) and model.__module__.startswith("quick")
        ]

    for module in (orders, payable_models):
        monkeypatch.setattr(module, "payables", own)
    before = {label: dict(found) for label, found in apps.all_models.items()}
    yield
    for label in list(apps.all_models):
        if label not in before:
            del apps.all_models[label]
    apps.clear_cache()


@pytest.mark.parametrize("payable", [True, False])
def test_the_handler_goes_into_the_app_of_the_order(project: Project, registry: None, payable: bool) -> None:
    """The first app of the project has none."""
    app_with(project, "quicksales", "OrderItem", "ShopOrder", payable=payable)
    code, shown = project.run("--write")
    assert code == 0
    assert not (project.folder / "quickorders" / "payment_handlers.py").exists()
    text = project.read("quicksales/payment_handlers.py")
    if payable:
        assert "assumed: payments are for quicksales.ShopOrder (it is a Payable), and not for quicksales.Or" in shown
        assert "order = ShopOrder.objects.select_for_update().of(obj)" in text
    else:
        assert "assumed: payments are for quicksales.ShopOrder (by its name; it is no Payable yet); name" in shown
        assert "If ShopOrder inherits from Payable, this finds it" in text
    blank = "raise NotImplementedError" if payable else "..."
    assert f'Write your own lines in place of "{blank}" in quicksales/payment_handlers.py.\n' in shown


def test_an_order_without_a_table_gets_its_migration_first(project: Project, registry: None) -> None:
    app_with(project, "quicksales", "Order", payable=True)
    project.write("quicksales/migrations/__init__.py", "")
    assert "Next: python manage.py makemigrations quicksales, python manage.py migrate, " in project.run("--write")[1]
    project.write("quicksales/migrations/0001_initial.py", "from django.db.migrations import Migration\n")
    sys.modules.pop("quicksales.migrations", None)
    imported_handlers()
    importlib.invalidate_caches()
    assert "Next: python manage.py migrate, " in project.run("--write")[1]


def test_an_order_that_becomes_a_payable_gets_its_migration_first(project: Project, registry: None) -> None:
    shop_with(project, f"{AMOUNT}\n{CURRENCY}")
    project.write("quicksales/migrations/__init__.py", "")
    shown = project.run("--order", "--write")[1]
    assert "Next: python manage.py makemigrations quicksales, python manage.py migrate, " in shown


def test_the_model_can_be_named(project: Project, registry: None) -> None:
    app_with(project, "quicksales", "Order", "Basket")
    code, shown = project.run("--write", "--model", "quicksales.Basket")
    assert code == 0
    assert "quicksales/payment_handlers.py, a new file; for quicksales.Basket\n" in shown
    assert "If Basket inherits from Payable" in project.read("quicksales/payment_handlers.py")
    for wrong, why in (
        ("quicksales.Nothing", "App 'quicksales' doesn't have a 'Nothing' model"),
        ("nothing.Order", "No installed app with label 'nothing'"),
        ("Basket", "one dot separates the app's label and the model"),
        ("apps.quicksales.Basket", "one dot separates the app's label and the model"),
    ):
        with pytest.raises(CommandError, match=f"--model {wrong}: {why}. Name it as app.Model"):
            project.run("--model", wrong)


def test_a_project_without_an_order_is_told_what_was_looked_for(project: Project) -> None:
    assert "no model of yours has the name of an order: if there is one, name it with --model" in project.run()[1]


# The model of a shop that exists


def shop_with(
    project: Project, fields: str, *, bases: str = "models.Model", more: str = "", name: str = "Order"
) -> None:
    label = "quicksales"
    project.write(f"{label}/__init__.py", "")
    text = f"from django.db import models\n{more}\n\nclass {name}({bases}):\n"
    lines = (f"    {line}\n" for line in fields.splitlines())
    project.write(f"{label}/models.py", text + "".join(lines))
    project.settings.INSTALLED_APPS = [*project.settings.INSTALLED_APPS, label]


AMOUNT, CURRENCY = "amount = models.IntegerField()", "currency = models.CharField(max_length=3)"


def test_the_files_of_an_order_are_written_once(project: Project, registry: None) -> None:
    shop_with(project, f"number = models.CharField(max_length=9, unique=True)\n{AMOUNT}\n{CURRENCY}")
    before = project.files()
    code, shown = project.run("--order", "--dry-run")
    assert (code, project.files()) == (1, before)
    mine = "def pay(request, pk): ...\n"
    project.write("quicksales/payment_views.py", mine)
    assert project.run("--order", "--write")[0] == 0
    assert project.read("quicksales/payment_views.py") == mine
    assert "quicksales/models.py; the table stays as it is, and no migration is made" in shown
    assert "database" not in project.read("quicksales/test_payments.py").partition("payments_integration")[2]
    lines = project.read("quicksales/models.py").splitlines()
    start = lines.index("class Order(Payable):")
    assert [line.strip() for line in lines[start + 1 : start + 4]] == [
        'merchant_reference_field = "number"',
        'payments_amount_field = "amount"',
        'payments_currency_field = "currency"',
    ]
    assert 'path("<int:pk>/", pay, name="order")' in project.read("quicksales/payment_urls.py")
    assert "paid_at" not in project.read("quicksales/payment_handlers.py")
    assert "is_paid = order.is_paid(*price)" in project.read("quicksales/payment_handlers.py")
    compile(project.read("quicksales/test_payments.py"), "test_payments.py", "exec")
    assert 'path("pay/", include("quicksales.payment_urls"))' in project.read("quickshop/urls.py")


@isolate_apps("tests.factories.receivers")
def test_a_key_that_is_a_relation_is_the_reference() -> None:
    class Document(models.Model):  # noqa: DJ008
        class Meta:
            app_label = "receivers"

    class Bill(Payable, Document):  # type: ignore[misc]  # noqa: DJ008
        amount, currency = models.BigIntegerField(), models.CharField(max_length=3)

        class Meta:
            app_label = "receivers"

    class Client(models.Model):  # noqa: DJ008
        id = models.UUIDField(primary_key=True)

        class Meta:
            app_label = "receivers"

    class Contract(Payable):
        of = models.OneToOneField(Client, models.PROTECT, primary_key=True)
        amount, currency = models.BigIntegerField(), models.CharField(max_length=3)

        class Meta:
            app_label = "receivers"

    found: list[tuple[Any, str, str]] = [(Bill, "id", "int"), (Contract, "of_id", "uuid")]
    for model, reference, converter in found:
        order = order_model.read(model, amount=None, currency=None)
        assert order.reference == reference
        assert f"<{converter}:pk>" in order_files.urls(order)
        model.merchant_reference_field = reference
        # W021 asks for the price, which the quickstart declares too.
        assert [each.id for each in model.check() if not each.id.endswith("W021")] == []


PAYABLE = "from payments_integration.payable import Payable\n"


def another_payable(reference: str) -> str:
    price = "payments_amount_field = 'amount'\n    payments_currency = 'CLP'"
    lines = f"merchant_reference_field = '{reference}'\n    {price}\n    {AMOUNT}\n    number = models.CharField("
    return f"{PAYABLE}\n\nclass Booking(Payable):\n    {lines}max_length=9, unique=True)\n"


@pytest.mark.parametrize(
    ("bases", "fields", "is_refused"),
    [
        ("models.Model", "", True),
        ("models.Model", "\ncode = models.IntegerField(unique=True)", True),
        ("models.Model", "\ncode = models.CharField(max_length=9, unique=True)", False),
        ("Payable", "", True),
        ("Payable", "\npayments_account = 'second'", False),
        ("Payable", "\nmerchant_reference_field = 'id'", False),  # W020 says it
    ],
)
def test_a_second_model_with_numbers_is_refused(
    project: Project, registry: None, bases: str, fields: str, is_refused: bool
) -> None:
    """Order 7 and Booking 7 would have one key and one payment."""
    fields = f"{AMOUNT}\n{CURRENCY}{fields}"
    shop_with(project, fields, bases=bases, more=another_payable("id"))
    before = project.files()
    if is_refused:
        with pytest.raises(CommandError, match=r"as that of quicksales\.Booking: .* \"number\" with .* \"order-7\""):
            project.run("--order", "quicksales.Order", "--write")
        assert project.files() == before
    else:
        project.run("--order", "quicksales.Order", "--write")
        assert project.files() != before


def test_the_files_of_another_model_are_not_enough(project: Project, registry: None) -> None:
    known = "merchant_reference_field = 'id'\npayments_amount_field = 'amount'\npayments_currency = 'CLP'"
    shop_with(project, f"{known}\n{AMOUNT}", bases="Payable", more=another_payable("number"))
    assert project.run("--order", "quicksales.Booking", "--write")[0] == 0
    imported_handlers()
    for _ in range(2):
        project.start_again()
        code, shown = project.run("--order", "quicksales.Order", "--write")
        assert code == 1
        for what, name in (("View", "views"), ("URL of the view", "urls"), ("Handlers", "handlers")):
            assert f"\n{what}: not written, because only you can decide how" in f"\n{shown}"
            assert f"quicksales/payment_{name}.py, which is for Booking (name yours differently); add to it" in shown
    for name in ("views", "handlers"):
        path = f"quicksales/payment_{name}.py"
        project.write(path, project.read(path).replace("import Booking", "import Booking, Order"))
    assert project.run("--order", "quicksales.Order", "--write")[0] == 0


def test_a_model_of_another_app_gets_handlers_of_its_own(project: Project, registry: None) -> None:
    shop_with(project, f"{AMOUNT}\n{CURRENCY}\nmerchant_reference_field = 'id'", bases="Payable", more=PAYABLE)
    app_with(project, "quickbookings", "Booking", payable=True)
    project.write("quickbookings/payment_handlers.py", "from quickbookings.models import Booking\n")
    imported_handlers()
    assert "quicksales/payment_handlers.py, a new file; " in project.run("--order", "quicksales.Order", "--write")[1]


@pytest.mark.parametrize("has_app", [False, True])
def test_an_api_without_sessions_gets_a_test_and_no_view(project: Project, registry: None, has_app: bool) -> None:
    """A login by session would fail in the test, and the view would know no customer."""
    owner = "customer = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT)"
    shop_with(project, f"{AMOUNT}\n{CURRENCY}\n{owner}", more="from django.conf import settings\n")
    # The app alone, which startproject lists, tells no view who signed in.
    apps = project.settings.INSTALLED_APPS
    project.settings.INSTALLED_APPS = [name for name in apps if has_app or "session" not in name]
    project.settings.MIDDLEWARE = []
    for word, code in (("--dry-run", 1), ("--write", 0)):
        ended, shown = project.run("--order", word)
        assert (ended, "Open the REST API: docs/rest-api.md." in shown) == (code, True)
    assert {path.name for path in project.folder.glob("quicksales/*pay*.py")} == {
        "payment_handlers.py",
        "test_payments.py",
    }
    assert "pay/" not in project.read("quickshop/urls.py")
    text = project.read("quicksales/test_payments.py")
    compile(text, "test_payments.py", "exec")
    assert '"CLP": ("CL", "cl_webpay_card"),' in text, "the price may be in any currency"
    assert not re.search(r"self\.client|reverse", text)


@pytest.fixture
def prefix() -> Iterator[None]:
    """FORCE_SCRIPT_NAME, which django.setup() hands to the URLs. runserver and the test client do not remove it."""
    set_script_prefix("/tienda/")
    yield
    set_script_prefix("/")


def test_the_sandbox_gets_the_address_at_runserver(project: Project, prefix: None) -> None:
    project.run("--write")
    project.start_again()
    runpy.run_path("quickorders/payment_handlers.py")
    code, shown = project.run()
    assert (code, "--webhook-url http://127.0.0.1:8000/payments/webhook/\n" in shown) == (0, True)


def test_the_test_calls_the_path_behind_the_prefix(project: Project, registry: None, prefix: None) -> None:
    shop_with(project, f"{AMOUNT}\n{CURRENCY}")
    assert project.run("--order", "--write")[0] == 0
    text = project.read("quicksales/test_payments.py")
    compile(text, "test_payments.py", "exec")
    assert 'url = reverse("pay:order", args=[order.pk]).removeprefix("/tienda")\n' in text


def test_a_project_without_time_zones_is_not_called_complete(project: Project) -> None:
    """Only its owner can decide what becomes of the times that are stored."""
    project.settings.USE_TZ = False
    code, shown = project.run("--write")
    assert (code, "Time zones: not written, because only you can decide how\n  quickshop/settings.py" in shown) == (
        1,
        True,
    )
    assert "    USE_TZ = True\n" in shown
    assert "USE_TZ" not in project.read("quickshop/settings.py")


class MoneyRouter:
    def db_for_write(self, model: type[models.Model], **hints: Any) -> str | None:
        return "money" if model._meta.app_label == "payments_integration" else None


def test_a_router_names_the_database_of_the_option_of_the_migration_the_handler_and_the_test(
    project: Project, registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TestCase may use "default" only, ``migrate`` alone makes no table elsewhere, and the handler locks an order
    outside the app's transaction.
    """
    shop_with(project, f"number = models.CharField(max_length=9, unique=True)\n{AMOUNT}\n{CURRENCY}")
    sqlite = {"ENGINE": "django.db.backends.sqlite3"}
    monkeypatch.setitem(project.settings.DATABASES, "money", sqlite)
    project.write("quickshop/settings.py", SETTINGS.replace('{"default"', f'{{"money": {sqlite}, "default"'))
    project.settings.DATABASE_ROUTERS = [MoneyRouter()]
    code, shown = project.run("--order", "--write")
    assert (code, "python manage.py migrate, python manage.py migrate --database money, then" in shown) == (0, True)
    assert runpy.run_path("quickshop/settings.py")["DATABASES"]["money"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    test = project.read("quicksales/test_payments.py")
    assert 'class PaymentTests(TestCase):\n    databases = "__all__"\n\n    def setUp' in test
    handler = project.read("quicksales/payment_handlers.py")
    assert '@on_status(Refund)\n@transaction.atomic(using="default")' in handler
    assert "database_only" not in handler


def test_a_project_without_users_gets_a_view_for_anyone(settings: Any) -> None:
    settings.AUTH_USER_MODEL = "gone.User"
    order = order_model.read(Sale, amount=None, currency=None)
    assert "login_required" not in order_files.views(order)
    assert "user" not in order_files.tests(order)


@isolate_apps("tests.factories.receivers")
def test_the_view_of_orders_of_customers_and_guests_refuses_another_customers_order() -> None:
    class Basket(models.Model):  # noqa: DJ008
        customer = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")

        class Meta:
            app_label = "receivers"

    view = order_files.views(order_model.OrderModel(Basket, "id", "", "", "USD", ""))
    names: dict[str, Any] = {}
    source = view.replace("from tests.unit.management.test_quickstart import Basket\n", "Basket = None\n")
    exec(compile(source, "payment_views.py", "exec"), names)
    ana, berta = User(pk=1), User(pk=2)
    names["get_object_or_404"] = lambda model, pk: mock.Mock(customer=ana, payments_price=lambda: None)
    request = RequestFactory().post("/pay/1/")
    for user, refused in ((berta, True), (AnonymousUser(), True), (ana, False)):
        request.user = user
        with pytest.raises(Http404) if refused else nullcontext():
            assert names["pay"](request, pk=1).status_code == 409


def test_the_command_that_writes_has_the_options_of_the_one_that_showed(project: Project, registry: None) -> None:
    """Without them it would write handlers for another model, and those would be enough from then on."""
    shop_with(project, f"fee = models.IntegerField()\n{CURRENCY}")
    shown = project.run("--order", "quicksales.Order", "--amount", "fee", "--dry-run")[1]
    assert "run: python manage.py payments_quickstart --order quicksales.Order --amount fee --write\n" in shown
    assert (
        "run: python manage.py payments_quickstart --order --amount fee --write\n"
        in (project.run("--order", "--amount", "fee")[1])
    )


@pytest.mark.parametrize(
    ("name", "number", "amount", "currency"),
    [("Pedido", "codigo", "importe", "moneda"), ("OrdenDeCompra", "numero", "monto", "moneda"),
     ("Venda", "codigo", "valor_total", "moeda")],
)  # fmt: skip
def test_a_shop_in_spanish_or_portuguese_is_understood(
    project: Project, registry: None, name: str, number: str, amount: str, currency: str
) -> None:
    fields = f"{number} = models.CharField(max_length=9, unique=True)\n{amount} = models.IntegerField()\n"
    shop_with(project, f"{fields}{currency} = models.CharField(max_length=3)", name=name)
    code, shown = project.run("--order")
    assert code == 1
    for line in (
        f"class {name}(Payable):",
        f'merchant_reference_field = "{number}"',
        f'payments_amount_field = "{amount}"',
        f'payments_currency_field = "{currency}"',
    ):
        assert line in shown


@pytest.mark.parametrize(
    ("fields", "words", "wanted"),
    [
        (f"{AMOUNT}", ("--order",), "no text field 'currency'.*--currency CLP or COP"),
        (f"fee = models.IntegerField()\n{CURRENCY}", ("--order",), r"Which field of quicksales.Order .*fee\..* a pay"),
        (f"valor = models.FloatField()\n{CURRENCY}", ("--order",), "Which field .*'valor' is a FloatField"),
        (f"valor = models.FloatField()\n{CURRENCY}", ("--order", "--amount", "valor"), "Make it a DecimalField"),
        (f"{AMOUNT}\n{CURRENCY}", ("--order", "--amount", "currency"), "no integer field and no DecimalField 'curr"),
        (f"{AMOUNT}\n{CURRENCY}\nis_paid = models.BooleanField()", ("--order",), "'is_paid', which Payable uses"),
        (f"{AMOUNT}\n{CURRENCY}\ndef totals(self): ...", ("--order",), "'totals', which Payable uses"),
        (f"{AMOUNT}\n{CURRENCY}", ("--order", "quicksales.Sale"), "--order quicksales.Sale: .*Name it as app.Model"),
    ],
)  # fmt: skip
def test_what_the_model_does_not_tell_is_asked_for(
    project: Project, registry: None, fields: str, words: tuple[str, ...], wanted: str
) -> None:
    shop_with(project, fields)
    before = project.files()
    with pytest.raises(CommandError, match=wanted):
        project.run("--write", *words)
    assert project.files() == before


def test_of_several_models_one_is_named(project: Project, registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    app_with(project, "quicksales", "Order", "Invoice")
    with pytest.raises(CommandError, match=r"Name one: --order quicksales\.Order or --order quicksales\.Invoice"):
        project.run("--order")
    monkeypatch.setattr("sys.stdin", mock.Mock(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _question: "quicksales.Invoice")
    with pytest.raises(CommandError, match=r"Which field of quicksales\.Invoice"):
        project.run("--order")
    project.settings.INSTALLED_APPS = [name for name in project.settings.INSTALLED_APPS if name != "quicksales"]
    with pytest.raises(CommandError, match="No model of yours"):
        project.run("--order")


def test_a_model_that_cannot_be_edited_safely_is_shown(project: Project, registry: None) -> None:
    manager = "\n\nclass Managed(models.Manager):\n    pass\n"
    shop_with(project, f"{AMOUNT}\nobjects = Managed()", more=manager)
    before = project.read("quicksales/models.py")
    code, shown = project.run("--order", "--write", "--currency", "CLP")
    assert code == 1
    assert "Order as a Payable: not written, because only you can decide how" in shown
    assert "Let its manager inherit from payments_integration.payable.PayableManager. If it has its own" in shown
    assert 'payments_currency = "CLP"' in shown
    assert project.read("quicksales/models.py") == before


@pytest.mark.parametrize(
    ("bases", "needed"),
    [("Model", "Model, Payable"), ("ours.Model", "Model, Payable"), ("Mixin, models.Model", "Mixin, Payable")],
)
def test_a_base_class_of_the_project_stays(project: Project, registry: None, bases: str, needed: str) -> None:
    """The text does not tell what ``Model`` is: the columns of the base class would go."""
    more = "\nclass Model(models.Model):\n    note = models.TextField()\n\n    class Meta:\n        abstract = True\n"
    if bases == "ours.Model":
        more += "\n\nclass models:\n    Model = Model\n"
        bases = "models.Model"
    more = f"import django.db.models as django\n{more}\n\nclass Mixin:\n    pass\n"
    shop_with(project, "amount = django.IntegerField()", bases=bases, more=more)
    before = project.read("quicksales/models.py")
    code, shown = project.run("--order", "--write", "--currency", "CLP")
    assert code == 1
    assert "Order as a Payable: not written, because only you can decide how" in shown
    assert f"class Order({needed}):" in shown
    assert project.read("quicksales/models.py") == before


def test_a_payable_keeps_its_bases(project: Project, registry: None) -> None:
    more = "from payments_integration.payable import Payable as Model\n"
    fields = f"{AMOUNT}\n{CURRENCY}\nmerchant_reference_field = 'id'"
    shop_with(project, fields, bases="Model", more=more)
    before = project.read("quicksales/models.py")
    assert project.run("--order", "--write")[0] == 0
    lines = '    payments_amount_field = "amount"\n    payments_currency_field = "currency"\n\n'
    assert project.read("quicksales/models.py") == before.replace("(Model):\n", f"(Model):\n{lines}")


@pytest.mark.parametrize("price", ["payments_currency = 'CLP'", "payments_currency_field = 'code'"])
def test_a_payable_has_named_its_currency(project: Project, registry: None, price: str) -> None:
    fields = f"merchant_reference_field = 'id'\npayments_amount_field = 'amount'\n{price}\n{AMOUNT}\n"
    fields += "code = models.CharField(max_length=3)"
    shop_with(project, fields, bases="Payable", more="from payments_integration.payable import Payable\n")
    assert project.run("--order", "--write")[0] == 0
    text = project.read("quicksales/test_payments.py")
    assert ('(11990, "CLP")' if "CLP" in price else 'code="USD"') in text


def test_a_payable_gets_the_number_that_it_lacks(project: Project, registry: None) -> None:
    fields = f"payments_amount_field = 'amount'\npayments_currency = 'CLP'\n{AMOUNT}"
    shop_with(project, fields, bases="Payable", more="from payments_integration.payable import Payable\n")
    assert project.run("--order", "--write")[0] == 0
    _, after = project.read("quicksales/models.py").split("class Order(Payable):\n")
    assert after.startswith('    merchant_reference_field = "id"\n')
    assert "reference = str(order.id)" in project.read("quicksales/payment_views.py")


def test_an_order_may_know_its_price_without_a_field(project: Project, registry: None) -> None:
    """As docs/orders.md says. Another number, such as a counter, is no price."""
    model = (
        "merchant_reference_field = 'id'\nchanges = models.IntegerField(default=0)\n"
        "def payments_price(self):\n    return self.total * 100, 'USD'"
    )
    shop_with(project, model, bases="Payable", more="from payments_integration.payable import Payable\n")
    before = project.read("quicksales/models.py")
    code, shown = project.run("--order", "--write")
    assert (code, project.read("quicksales/models.py")) == (0, before)
    assert 'Write your own lines in place of "..." in quicksales/test_payments.py.\n' in shown
    text = project.read("quicksales/test_payments.py")
    compile(text, "test_payments.py", "exec")
    assert "order = Order.objects.create()\n        ...  # give it a price, for example by its lines\n" in text
    assert "self.assertEqual((payment.amount, payment.currency), order.payments_price())\n" in text
    assert "# Assert what your handler marked. If it fails, settle() only warns" in text, "no paid_at: only you know"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ('kind = models.CharField(max_length=9, choices=[("a", "A")])', "kind='a'"),
        ('kind = models.CharField(max_length=9, choices=[("Group", [("a", "A"), ("b", "B")])])', "kind='a'"),
        ('kind = models.IntegerField(choices=[("Group", [(10, "A")]), (20, "B")])', "kind=10"),
        ('kind = models.IntegerField(choices=[(None, "none"), (10, "A")])', "kind=10"),
        ('kind = models.FloatField(choices=[(0.5, "half")])', "kind=0.5"),
        ('kind = models.CharField(max_length=9, choices=[(None, "none"), ("a", "A")])', "kind='a'"),
        ('Kind = Enum("Kind", {"A": 10}, type=int)\nkind = models.IntegerField(choices=[(Kind.A, "A")])', "kind=10"),
        (
            'Kind = Enum("Kind", {"A": "a"})\nkind = models.CharField(max_length=9, choices=[(Kind.A, "A")])',
            "kind='a'",
        ),
        ('currency = models.CharField(max_length=3, choices=[("EUR", "Euro"), ("PEN", "Sol")])', 'currency="PEN"'),
    ],
)
def test_the_test_has_a_value_that_the_model_allows(project: Project, registry: None, field: str, value: str) -> None:
    """A model may call ``full_clean`` when it is saved."""
    shop_with(project, f"from enum import Enum\n{AMOUNT}\n{CURRENCY}\n{field}")
    assert project.run("--order", "--write", "--amount", "amount")[0] == 0
    assert value in project.read("quicksales/test_payments.py")


def test_the_test_makes_a_user_with_what_the_model_needs(
    project: Project, registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(User._meta.get_field("date_joined"), "default", models.NOT_PROVIDED)
    owner = "customer = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT)"
    shop_with(project, f"{AMOUNT}\n{CURRENCY}\n{owner}", more="from django.conf import settings\n")
    project.run("--order", "--write")
    text = project.read("quicksales/test_payments.py")
    assert '.create(username="ana@example.com", date_joined=timezone.now())' in text
    assert "import timezone" in text


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("payment_views.py", "def charge(request): ...\n", "payment_views.py, which has no pay; add to it"),
        ("payment_views.py", "from django.urls import *\n", "payment_views.py, which has no pay; add to it"),
        ("payment_urls.py", "app_name = 'shop'\n", 'payment_urls.py, which does not set app_name = "pay"; add to it'),
        ("payment_urls.py", "app_name = (\n", 'payment_urls.py, which does not set app_name = "pay"; add to it'),
    ],
)
def test_no_url_is_written_that_the_files_there_do_not_fit(
    project: Project, registry: None, name: str, text: str, why: str
) -> None:
    shop_with(project, f"{AMOUNT}\n{CURRENCY}")
    project.write(f"quicksales/{name}", text)
    for _ in range(2):
        code, shown = project.run("--order", "--write")
        assert code == 1
        assert why in shown
        for what in ("View", "URL of the view", "Route of the view"):
            assert f"\n{what}: not written, because only you can decide how" in shown
        assert "def pay(request, pk):" in shown
        assert 'app_name = "pay"' in shown
        assert 'path("pay/", include("quicksales.payment_urls")),' in shown
        project.start_again()
    assert project.read(f"quicksales/{name}") == text
    assert {path.name for path in project.folder.glob("quicksales/payment_*.py")} == {name, "payment_handlers.py"}
    assert "pay/" not in project.read("quickshop/urls.py")


@pytest.mark.django_db
def test_the_test_names_the_page_to_which_a_middleware_sends_it(settings: Any) -> None:
    """Otherwise it would end in Payment.DoesNotExist: a redirect to a login looks like one to the payment."""
    names: dict[str, Any] = {}
    exec(order_files.tests(OrderModel(Sale, "number", "amount", "currency", "", "")), names)
    names["reverse"] = lambda *_, **__: "/pay/1/"
    settings.MIDDLEWARE = ["tests.unit.test_testing.asking_for_a_login"]
    test = names["PaymentTests"]("test_an_order_is_paid_and_refunded")
    test.client = Client()
    test.setUp()
    try:
        with pytest.raises(AssertionError, match=r"/login/\?next=/pay/1/"):
            test.test_an_order_is_paid_and_refunded()
    finally:
        test.doCleanups()


@pytest.fixture
def pay(rf: RequestFactory, db: None) -> Callable[[Sale], Any]:
    """The generated view, which an order's page calls."""
    names: dict[str, Any] = {}
    exec(order_files.views(OrderModel(Sale, "number", "amount", "currency", "", "")), names)

    def post(order: Sale) -> Any:
        request = rf.post("/pay/", secure=True)
        request.user = AnonymousUser()
        return names["pay"](request, order.pk)

    return post


def test_the_view_is_exempt_from_the_transaction_of_each_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_files, "atomic_databases", lambda: ["default", "money"])
    names: dict[str, Any] = {}
    exec(order_files.views(OrderModel(Sale, "number", "amount", "currency", "", "")), names)
    assert names["pay"]._non_atomic_requests == {"default", "money"}


def test_the_view_says_that_the_order_is_paid_already(pay: Callable[[Sale], Any]) -> None:
    """It was paid in another way, so there is no new attempt: that is no error of the site."""
    order = Sale.objects.create(number="order-1", amount=10_000, currency="CLP")
    rows.payment(
        merchant_reference="order-1", amount=10_000, amount_received=10_000, currency="CLP", status="succeeded"
    )
    answer = pay(order)
    assert (answer.status_code, answer.content) == (409, b"This is paid already.")
    assert answer["Content-Type"].startswith("text/plain")


def test_an_order_without_a_price_is_named(pay: Callable[[Sale], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """``payments_price()`` is None for an empty field, and ``is_paid(*None)`` a TypeError that names nothing."""
    sale = Sale.objects.create(number="order-1", amount=10_000)
    answer = pay(sale)
    assert (answer.status_code, answer.content) == (409, b"This has no price yet.")
    monkeypatch.setattr(handlers, "registered", [])
    names: dict[str, Any] = {"__name__": "orders.payment_handlers"}
    with mock.patch.object(signals.status_changed, "connect"):
        exec(order_files.handlers(Sale), names)
    with pytest.raises(ValueError, match=f"Sale {sale.pk} has no amount or currency"):
        names["follow"](rows.payment(merchant_reference="order-1"))


def test_the_view_needs_no_authentication(rf: RequestFactory, payments_sandbox: ProviderSandbox, db: None) -> None:
    """A project may have an API only, without AuthenticationMiddleware."""
    names: dict[str, Any] = {}
    exec(order_files.views(OrderModel(Sale, "number", "amount", "currency", "", "")), names)
    order = Sale.objects.create(number="order-1", amount=10_000, currency="CLP")
    answer = names["pay"](rf.post("/pay/", secure=True), order.pk)
    assert (answer.status_code, answer["Location"]) == (302, order.payments.get().checkout_url)


def test_the_view_survives_a_refusal_and_a_lost_answer(pay: Callable[[Sale], Any]) -> None:
    order = Sale.objects.create(number="order-1", amount=10_000, currency="CLP")
    refusal = InvalidRequest(code="method_not_available", status_code=422)
    with mock.patch.object(services, "create_payment", side_effect=refusal):
        answer = pay(order)
    assert answer.status_code == 409
    assert b"This way of paying is not available just now." in answer.content
    with mock.patch.object(services, "create_payment", side_effect=OutcomeUnknown("op_1", "no answer")):
        answer = pay(order)
    # There may be a payment. Its status page is no second try.
    assert answer.status_code == 302
    assert "/checkout/status/" in answer["Location"]


def test_the_view_asks_for_the_price_of_a_changed_order(
    pay: Callable[[Sale], Any], payments_sandbox: ProviderSandbox
) -> None:
    """The status page went on asking for the old price. Paid, it left an order that the view could not sell."""
    order = Sale.objects.create(number="order-1", amount=10_000, currency="CLP")
    first, again = pay(order), pay(order)
    assert first["Location"] == again["Location"] == order.payments.get().checkout_url
    order.amount = 15_000
    order.save()
    changed = pay(order)
    assert [(each.amount, each.status) for each in order.payments] == [(15_000, "created"), (10_000, "canceled")]
    assert changed["Location"] == pay(order)["Location"] == order.payments.get(amount=15_000).checkout_url

    payments_sandbox.engine.pay(order.payments.get(amount=15_000).pk)
    order.amount = 20_000
    order.save()
    # The money is on its way, and no event has come.
    assert (pay(order).status_code, order.payments.count()) == (409, 2)


def test_a_route_is_not_added_to_a_urlconf_that_does_not_import(project: Project, registry: None) -> None:
    """It may be there already."""
    shop_with(project, f"{AMOUNT}\n{CURRENCY}")
    assert project.run("--order", "--write")[0] == 0
    project.write("quicksales/payment_views.py", "def pay(request): 1 / 0\n\n\npay(None)\n")
    project.start_again()
    before = project.read("quickshop/urls.py")
    code, shown = project.run("--order", "--write")
    assert code == 1
    assert "Route of the view: not written, because only you can decide how" in shown
    assert "if it is not there; quickshop.urls cannot be imported: ZeroDivisionError" in shown
    assert project.read("quickshop/urls.py") == before


# The sandbox's port


def test_a_busy_port_is_passed_over(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with mock.patch.object(configuration, "SANDBOX_PORT", port):
            found = configuration._free_port()
        assert port < found < port + configuration.PORTS


def test_the_port_in_env_is_changed_when_asked(project: Project) -> None:
    assert project.run("--write", "--port", "8411")[0] == 0
    assert "PAYMENTS_BASE_URL=http://127.0.0.1:8411\n" in project.read(".env")
    project.start_again()
    imported_handlers()
    before = project.read(".env")
    code, shown = project.run("--write", "--port", "8412")
    assert (code, shown.count(": added\n")) == (0, 1)
    assert project.read(".env") == before.replace("8411", "8412")
    assert project.run("--write", "--port", "8412") == project.run("--write")


@pytest.mark.parametrize("text", ["", "PAYMENTS_BASE_URL=https://provider.example\nPAYMENTS_API_KEY=sk_live_1\n"])
def test_an_address_that_is_no_sandbox_is_not_changed(project: Project, text: str) -> None:
    project.write(".env", text)
    project.settings.PAYMENTS_INTEGRATION = {
        "ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_live_1"}}
    }
    code, shown = project.run("--write", "--port", "8412")
    assert code == 1
    assert ".env has no address of a sandbox; change it where it is" in shown
    assert project.read(".env") == text
