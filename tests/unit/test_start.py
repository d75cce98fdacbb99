"""Modules that a process imports when the app starts. ``benchmarks/start.py`` measures the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import payments_integration

SETUP = """
import sys
import django
from django.conf import settings

ADMIN = ["django.contrib.admin", "django.contrib.messages", "django.contrib.sessions"]
OPTIONAL = ["finance", "receipts", "reports"]
BACK_OFFICE = ["finance", "backoffice"]
settings.configure(
    SECRET_KEY="a-key-for-this-test-only",
    INSTALLED_APPS=[
        *(ADMIN if sys.argv[1] != "bare" else []),
        "django.contrib.auth", "django.contrib.contenttypes", "payments_integration",
        *(f"payments_integration.contrib.{name}" for name in OPTIONAL if sys.argv[1] == "optional"),
        *(f"payments_integration.contrib.{name}" for name in BACK_OFFICE if sys.argv[1] == "backoffice"),
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
from payments_integration import handlers, inbox, models, reconciliation, services, signals
print(" ".join(sorted(sys.modules)))
"""
#: Libraries that are imported with the first use of a feature.
HEAVY = frozenset(
    {
        "msgspec", "requests", "urllib3", "celery", "kombu", "cryptography", "rest_framework", "django_filters",
        "drf_spectacular", "phonenumbers", "babel", "stdnum", "segno", "barcode", "environ", "csv",
        "xlsxwriter", "hypothesis", "pytest",
    }
)  # fmt: skip
#: Packages of the app whose modules are imported with their first use.
FLOWS = (
    "api", "checkout", "client", "erasure", "health", "inbox", "management", "outbox", "projection", "reconciliation",
    "sandbox", "services", "sync", "testing",
)  # fmt: skip
MODULES = (
    "schemas", "tasks", "urls", "webhooks",
    "validation.documents", "validation.objects", "validation.validator",
)  # fmt: skip
#: Pages of the admin, imported when one is opened.
PAGES = (
    "admin.flows.approvals", "admin.flows.confirmation", "admin.flows.forms", "admin.flows.panels",
    "admin.flows.payout", "admin.flows.refund", "admin.flows.webhook_endpoint", "admin.technical.account_page",
    "admin.technical.page", "admin.technical.setup",
    *(
        f"contrib.backoffice.admin.{name}"
        for name in (
            "attention", "bulk_refund", "cash_book", "export", "notes", "pay_again", "payment_methods",
            "sections.records", "sections.story", "sections.timeline", "suggestions", "xlsx",
        )
    ),
)  # fmt: skip


def loaded(variant: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP, variant], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stdout.split())


@pytest.mark.parametrize("variant", ["admin", "bare", "optional"])
def test_starting_the_app_imports_no_large_library(variant: str) -> None:
    modules = loaded(variant)
    assert "django" in modules
    assert "payments_integration.models" in modules
    assert not HEAVY & modules
    assert not {f"payments_integration.{name}" for name in MODULES} & modules
    flows = tuple(f"payments_integration.{name}." for name in FLOWS)
    assert [name for name in sorted(modules) if name.startswith(flows)] == []


@pytest.mark.parametrize(
    ("variant", "models"),
    [("admin", "admin.models.payments"), ("backoffice", "contrib.backoffice.admin.model_admins")],
)
def test_starting_the_admin_does_not_import_its_pages(variant: str, models: str) -> None:
    modules = loaded(variant)
    assert f"payments_integration.{models}" in modules
    assert not {f"payments_integration.{name}" for name in PAGES} & modules


def test_the_pages_that_are_not_imported_exist() -> None:
    root = Path(payments_integration.__file__).parent
    assert [name for name in PAGES if not (root / f"{name.replace('.', '/')}.py").is_file()] == []


def test_starting_the_optional_apps_does_not_import_their_pages() -> None:
    modules = loaded("optional")
    assert "payments_integration.contrib.finance.admin" in modules
    assert "payments_integration.contrib.finance.closing" not in modules
    assert "payments_integration.contrib.receipts.admin" in modules
    assert not {f"payments_integration.contrib.receipts.{name}" for name in ("mails", "views")} & modules


def test_without_the_admin_its_modules_are_not_imported() -> None:
    assert [name for name in loaded("bare") if name.startswith("payments_integration.admin")] == []


def test_starting_the_admin_compiles_the_patterns_of_every_text_only() -> None:
    root = Path(payments_integration.__file__).parent.parent
    files = [root / f"{name.replace('.', '/')}.py" for name in loaded("admin") if name.startswith("payments_int")]
    compiling = [file.name for file in files if file.is_file() and "re.compile(" in file.read_text(encoding="utf-8")]
    assert compiling == ["text.py"], "re.fullmatch(PATTERN, text) compiles with its first use"
