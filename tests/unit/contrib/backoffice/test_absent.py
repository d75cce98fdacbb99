"""A site without the back office: the core's admin is whole, and an event costs nothing for what is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SITE = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from tests import settings
OPTIONAL = "payments_integration.contrib"
settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if not name.startswith(OPTIONAL)]
settings.DATABASES["default"]["NAME"] = ":memory:"
settings.DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
import django
django.setup()
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from payments_integration import erasure, inbox, models, signals
from tests import factories

call_command("migrate", verbosity=0)
call_command("check")
call_command("payments_groups", verbosity=0)
made = [
    factories.payment(id="pay_1", payer={"name": "Ana", "email": "ana@example.com"}),
    factories.payout(id="pout_1"), factories.refund(id="ref_1", payment_id="pay_1"),
    factories.deposit_reference(id="dep_1"),
]
bodies = [factories.body(factories.event(obj, id=f"evt_{obj['id']}")) for obj in made]
inbox.receive_many("default", bodies, source="webhook")
assert inbox.process() == 4
assert signals._mirror_listeners == []
client = Client()
client.force_login(User.objects.create_superuser("boss"))
seen = 0
for model, model_admin in admin.site._registry.items():
    if model._meta.app_label != "payments_integration":
        continue
    name = f"admin:payments_integration_{model._meta.model_name}"
    rows = [row.pk for row in model._default_manager.all()[:1]]
    where = [reverse(f"{name}_changelist"), *(reverse(f"{name}_change", args=[quote(str(pk))]) for pk in rows)]
    for address in where:
        response = client.get(address)
        assert response.status_code == 200, address
        assert "Export" not in response.content.decode(), address
        seen += 1
for address in ("/admin/payments_integration/", "/admin/payments_integration/reconciliationrun/technical/",
                "/admin/payments_integration/payment/?q=ana@example.com"):
    assert client.get(address).status_code == 200, address
assert b"pay_1" in client.get("/admin/payments_integration/payment/?q=ana@example.com").content
found = erasure.select(erasure.Selection.of(emails=("ana@example.com",)))
assert erasure.erase(found, actor="test").done["payment"] == 1
import sys
assert not [name for name in sys.modules if name.startswith("payments_integration.contrib.backoffice")]
print(seen)
"""


def test_the_core_has_its_own_admin(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SITE],
        env={**os.environ, "TEST_DATABASE_URL": "sqlite://:memory:"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.splitlines()[-1]) >= 14
