"""What a process pays for the app before it uses it."""

from __future__ import annotations

import subprocess
import sys

SETUP = """
import sys
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="a-key-for-this-test-only",
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
        "django.contrib.sessions", "payments_integration",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
from payments_integration import handlers, services, signals
assert "payments_integration.admin.payments" in sys.modules
print(" ".join(sorted(sys.modules)))
"""
#: Loaded with a first request, a first message, a first secret, the URLs, a first phone number, a first picture.
HEAVY = frozenset(
    {
        "requests", "urllib3", "celery", "kombu", "cryptography", "rest_framework", "django_filters",
        "drf_spectacular", "phonenumbers", "babel", "num2words", "stdnum", "segno", "barcode", "tqdm",
        "hypothesis", "pytest",
    }
)  # fmt: skip


def test_no_heavy_library_is_imported_before_its_first_use() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(ended.stdout.split())
    assert "django" in loaded
    assert not HEAVY & loaded
