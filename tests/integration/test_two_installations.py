"""Two installations side by side, each with its database and its group of accounts, and one provider."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from payments_integration.sandbox import Engine, SandboxServer
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from payments_integration.signatures import HEADER, sign

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {"east": ["east", "north"], "west": ["west"]}
#: One process each, so that both are at work at the same time.
CREATE = """
import django, json, sys
django.setup()
from django.core.management import call_command
from payments_integration import conf, services
call_command("migrate", verbosity=0)
for account in conf.aliases(None):
    for number in range(3):
        services.create_payment(
            amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card", account=account,
            merchant_reference=f"order-{number}",
        )
"""
WORK = """
import django, json, sys
django.setup()
from django.core.management import call_command
from django.test import Client
answers = {}
for account, body, headers in json.load(sys.stdin):
    response = Client().post(
        f"/payments/webhook/{account}/", body, content_type="application/json", headers=headers
    )
    answers.setdefault(account, []).append(response.status_code)
for _ in range(2):
    call_command("payments_process", stdout=sys.stderr)
print(json.dumps(answers))
"""


def environment(folder: Path, name: str, url: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "DEBUG": "false",
        "SECRET_KEY": f"the key of {name}, which is long enough for the checks 0123456789",
        "ALLOWED_HOSTS": "*",
        "DATABASE_URL": f"sqlite:///{folder / name}.sqlite3",
        "BROKER_FOLDER": str(folder / f"{name}-broker"),
        "SHOP_SANDBOX_URL": "",
        "PAYMENTS_BASE_URL": url,
        "PAYMENTS_ACCOUNTS": ",".join(GROUPS[name]),
        **{f"PAYMENTS_{alias.upper()}_API_KEY": f"sk_test_{alias}" for alias in GROUPS[name]},
        **{f"PAYMENTS_{alias.upper()}_WEBHOOK_SECRETS": f"whsec_{alias}" for alias in GROUPS[name]},
    }


def run(script: str, folder: Path, url: str, given: Any = None) -> dict[str, Any]:
    """The script in every installation at once; what each has printed."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", script], env=environment(folder, name, url), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in GROUPS
    }  # fmt: skip
    printed = {}
    for name, process in running.items():
        out, errors = process.communicate(json.dumps(given), timeout=300)
        assert process.returncode == 0, f"{name}: {errors[-3000:]}"
        printed[name] = json.loads(out or "null")
    return printed


def rows(folder: Path, name: str, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / f"{name}.sqlite3")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.promise(4)
@pytest.mark.promise(5)
def test_neither_touches_the_accounts_of_the_other(tmp_path: Path) -> None:
    engine = Engine("sk_test_east", rate_limits=False, funds=DEFAULT_FUNDS)
    projects = {
        alias: engine.default_project if alias == "east" else engine.add_project(f"sk_test_{alias}")
        for aliases in GROUPS.values()
        for alias in aliases
    }
    with SandboxServer(engine, deliver=False) as server:
        run(CREATE, tmp_path, server.url)
        for project in projects.values():
            for payment_id in list(project.payments):
                project.pay(payment_id)
        # All events of all accounts go to both: each takes its own, and the passes of both bring the others.
        deliveries = [
            (alias, body := json.dumps(event), {HEADER: sign(body.encode(), f"whsec_{alias}")})
            for alias, project in projects.items()
            for event in project.events[::2]
        ]
        answers = run(WORK, tmp_path, server.url, deliveries)
        assert engine.books()["audit"] == []
    for name, aliases in GROUPS.items():
        assert {alias: set(found) for alias, found in answers[name].items()} == {
            alias: {200} if alias in aliases else {404} for alias in projects
        }
        theirs = {
            (alias, payment_id, payment["status"])
            for alias in aliases
            for payment_id, payment in projects[alias].payments.items()
        }
        assert set(rows(tmp_path, name, "SELECT account, id, status FROM payments_integration_payment")) == theirs
        assert {status for _, _, status in theirs} == {"succeeded"}
        events = {(alias, event["id"], "done") for alias in aliases for event in projects[alias].events}
        assert set(rows(tmp_path, name, "SELECT account, id, state FROM payments_integration_event")) == events
        for table in ("statuschange", "operation", "accountstate", "reconciliationrun", "balance"):
            found = rows(tmp_path, name, f"SELECT DISTINCT account FROM payments_integration_{table}")
            assert {account for (account,) in found} == set(aliases), table
    assert all(len(project.payments) == 3 for project in projects.values())
