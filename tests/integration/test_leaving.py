"""docs/operate.md, followed word for word in a project with every optional app: nothing of the app remains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.databases import SQLITE

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text()
NAME = f"leaving_{os.getpid()}"
PATIENCE = 120

OPTIONAL = ["finance", "backoffice", "receipts", "notify", "reports", "prometheus", "opentelemetry"]
SETTINGS = f"""
import json, os

SECRET_KEY = "a-key-for-this-test-only"
ALLOWED_HOSTS = ["testserver"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {{"default": json.loads(os.environ["DATABASE"])}}
ROOT_URLCONF = "urls"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
    "django.contrib.sessions", "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {{"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]}},
}}]
# payments
INSTALLED_APPS += ["rest_framework", "payments_integration"]
INSTALLED_APPS += [{", ".join(f'"payments_integration.contrib.{name}"' for name in OPTIONAL)}]
PAYMENTS_INTEGRATION = {{"ACCOUNTS": {{"default": {{
    "BASE_URL": "https://provider.example", "API_KEY": "sk_test_x", "WEBHOOK_SECRETS": ["whsec_leaving"],
}}}}}}
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls)]
# payments
urlpatterns += [path("payments/", include("payments_integration.urls"))]
"""
MODELS = """
from django.db import models
from payments_integration.payable import Payable


class Order(Payable):
    merchant_reference_field = "reference"
    reference = models.CharField(max_length=64, unique=True)
    amount = models.BigIntegerField()
"""
#: Several commands in one process, as lines of the page, and then some code.
RUN = """
import builtins, importlib, json, os, shlex, sys

sys.path.insert(0, os.getcwd())
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line

given = json.load(sys.stdin)
builtins.input = lambda prompt="": "yes"
for line in given["commands"]:
    importlib.invalidate_caches()
    execute_from_command_line(shlex.split(line, comments=True))
print("\\n", end="", flush=True)
exec(given["code"])
"""
#: A payment that a delivery brings, an order, and someone whom a group lets see payments.
USE = """
import json
from django.contrib.auth.models import Group, User
from django.test import Client
from payments_integration import testing
from shop.models import Order

payment = {
    "id": "pay_1", "object": "payment", "status": "succeeded", "amount": 1000, "amount_received": 1000,
    "currency": "CLP", "country": "CL", "method_code": "cl_webpay", "method_family": "card",
    "merchant_reference": "order-1", "created_at": "2026-01-01T00:00:00Z",
}
body = json.dumps({
    "id": "evt_1", "object": "event", "type": "payment.succeeded", "created_at": "2026-01-01T00:00:01Z",
    "data": payment,
}).encode()
order = Order.objects.create(reference="order-1", amount=1000)
assert Client().post("/payments/webhook/", **testing.signed_delivery(body, "whsec_leaving")).status_code == 200
assert order.payments.get().status == "succeeded"
User.objects.create_user("ana").groups.set(Group.objects.all())
"""
REMAINS = """
import json
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from shop.models import Order

ours = {"app_label__startswith": "payments_"}
print(json.dumps({
    "tables and views": [
        name for name in connection.introspection.table_names(include_views=True) if "payments_" in name
    ],
    "migrations": list(MigrationRecorder.Migration.objects.filter(app__startswith="payments_").values_list("app")),
    "content types": list(ContentType.objects.filter(**ours).values_list("model", flat=True)),
    "permissions": Permission.objects.filter(codename__contains="payment").count(),
    "groups": sorted(Group.objects.values_list("name", flat=True)),
    "orders": list(Order.objects.values_list("reference", "amount")),
    "users": list(User.objects.values_list("username", flat=True)),
}))
"""
IMPORTED = """
from payments_integration.contrib.finance.models import Movement
from payments_integration.models import Event, Payment

payment = Payment.objects.get()
print(payment.status, payment.amount, Event.objects.get().pk, Movement.objects.count())
"""


def database(folder: Path, name: str) -> dict[str, Any]:
    keys = ("ENGINE", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    found = {key: connection.settings_dict[key] for key in keys}
    return {**found, "NAME": str(folder / f"{name}.sqlite3") if SQLITE else name}


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """One to leave, and one to import what was exported."""
    names = [NAME, f"{NAME}_again"]
    if not SQLITE:
        for name in names:
            on_server(f"CREATE DATABASE {name}")
    yield [database(tmp_path, name) for name in names]
    if not SQLITE:
        for name in names:
            on_server(f"DROP DATABASE {name}")


def on_server(statement: str) -> None:
    with connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(statement)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop" / "migrations").mkdir(parents=True)
        for name in ("shop/__init__.py", "shop/migrations/__init__.py"):
            (folder / name).touch()
        files = {"settings.py": SETTINGS, "urls.py": URLS, "shop/models.py": MODELS}
        for name, text in files.items():
            (folder / name).write_text(text)

    def run(self, on: dict[str, Any], commands: list[str], code: str = "") -> str:
        """The last line that is printed."""
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN], cwd=self.folder, text=True, timeout=PATIENCE,
            capture_output=True, check=False, input=json.dumps({"commands": commands, "code": code}),
            env={**os.environ, "PYTHONPATH": str(ROOT), "DATABASE": json.dumps(on)},
        )  # fmt: skip
        assert ended.returncode == 0, (commands, ended.stdout, ended.stderr)
        return ended.stdout.splitlines()[-1]

    def without_payments(self) -> None:
        """What the page says of the code."""
        for name in ("settings.py", "urls.py"):
            path = self.folder / name
            path.write_text(path.read_text().partition("# payments")[0])
        models = self.folder / "shop" / "models.py"
        text = models.read_text().replace("from payments_integration.payable import Payable\n", "")
        text = text.replace("(Payable)", "(models.Model)").replace('    merchant_reference_field = "reference"\n', "")
        models.write_text(text)


def commands(heading: str) -> list[str]:
    section = re.search(rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, heading
    blocks = re.findall(r"^```console\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    found = [line.removeprefix("python ") for line in lines if line.startswith("python manage.py ")]
    assert found, heading
    return found


def test_nothing_of_the_app_remains_but_the_orders_and_the_export(
    tmp_path: Path, databases: list[dict[str, Any]]
) -> None:
    site, (here, again) = Site(tmp_path), databases
    site.run(here, ["manage.py makemigrations shop", "manage.py migrate", "manage.py payments_groups"], USE)
    site.run(here, commands("Export what you keep"))
    imported = site.run(again, ["manage.py migrate", "manage.py loaddata payments.json.gz"], IMPORTED)
    assert imported == "succeeded 1000 evt_1 1"

    removal = commands("Remove the tables")
    assert [re.findall(r"payments_\w+", command)[0] for command in removal] == [
        "payments_backoffice", "payments_finance", "payments_receipts", "payments_notify", "payments_integration",
    ]  # fmt: skip
    site.run(here, removal)

    site.without_payments()
    checks = ["manage.py check --fail-level WARNING", "manage.py makemigrations --check --dry-run"]
    remains = site.run(here, [*checks, *commands("Remove what Django keeps")], REMAINS)
    assert json.loads(remains) == {
        "tables and views": [],
        "migrations": [],
        "content types": [],
        "permissions": 0,
        "groups": [f"Payments: {name}" for name in ("approver", "finance", "operations", "support", "viewer")],
        "orders": [["order-1", 1000]],
        "users": ["ana"],
    }
