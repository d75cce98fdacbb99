"""What a process pays for the app before it uses it. ``benchmarks/start.py`` says what that is in milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import sys
import django
from django.conf import settings

ADMIN = ["django.contrib.admin", "django.contrib.messages", "django.contrib.sessions"]
settings.configure(
    SECRET_KEY="a-key-for-this-test-only",
    INSTALLED_APPS=[
        *(ADMIN if sys.argv[1] == "admin" else []),
        "django.contrib.auth", "django.contrib.contenttypes", "payments_integration",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
from payments_integration import handlers, inbox, models, reconciliation, services, signals
print(" ".join(sorted(sys.modules)))
"""
#: Loaded with a first event, a first request, a first message, a first secret, the URLs, a first phone number, a first
#: picture, a first file.
HEAVY = frozenset(
    {
        "msgspec", "requests", "urllib3", "celery", "kombu", "cryptography", "rest_framework", "django_filters",
        "drf_spectacular", "phonenumbers", "babel", "num2words", "stdnum", "segno", "barcode", "tqdm", "csv",
        "hypothesis", "pytest",
    }
)  # fmt: skip
#: Of the app, what something must happen for first. Of the packages only what they are asked for.
FLOWS = (
    "api", "checkout", "client", "erasure", "health", "inbox", "management", "projection", "reconciliation", "sandbox",
    "services", "testing",
)  # fmt: skip
MODULES = ("documents", "tasks", "urls", "webhooks", "wire")
#: Pages of the admin, loaded when one is opened.
PAGES = (
    "attention", "bulk_refunding", "charts", "confirming", "destinations", "exporting", "figures", "money", "overview",
    "paying_out", "payment_methods", "refunding", "registering", "takings", "timeline",
)  # fmt: skip


def loaded(variant: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP, variant], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stdout.split())


@pytest.mark.parametrize("variant", ["admin", "bare"])
def test_nothing_heavy_is_imported_before_its_first_use(variant: str) -> None:
    modules = loaded(variant)
    assert "django" in modules
    assert "payments_integration.models" in modules
    assert not HEAVY & modules
    assert not {f"payments_integration.{name}" for name in MODULES} & modules
    flows = tuple(f"payments_integration.{name}." for name in FLOWS)
    assert [name for name in sorted(modules) if name.startswith(flows)] == []


def test_the_admins_classes_are_loaded_without_their_pages() -> None:
    modules = loaded("admin")
    assert "payments_integration.admin.payments" in modules
    assert not {f"payments_integration.admin.{name}" for name in PAGES} & modules


def test_without_the_admin_nothing_of_it_is_loaded() -> None:
    assert [name for name in loaded("bare") if name.startswith("payments_integration.admin")] == []
