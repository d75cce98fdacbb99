"""``manage.py payments_sandbox`` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.management.base import CommandError

from payments_integration.management.commands.payments_sandbox import Command, _secret_of, funding
from payments_integration.sandbox.engine import DEFAULT_API_KEY, DEFAULT_FUNDS

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
import django
from django.conf import settings
settings.configure(SECRET_KEY="x", DATABASES={}, INSTALLED_APPS=[])
django.setup()
from payments_integration.management.commands.payments_sandbox import Command
Command().run_from_argv(["manage.py", "payments_sandbox", *sys.argv[1:]])
"""
Start = Callable[..., "tuple[subprocess.Popen[str], str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        processes.append(process)
        assert process.stdout is not None
        shown = ""
        while "cl_khipu" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        return process, shown

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_a_signal(start: Start, number: signal.Signals) -> None:
    process, shown = start("--api-key", "sk_test_mine", "--fund", "clp=5000", "--fund", "USD=7",
                           "--webhook-url", "http://127.0.0.1:9/hook", "--webhook-secret", "whsec_mine")  # fmt: skip
    match = re.search(r"Base URL\s+(http://\S+)", shown)
    assert match is not None
    url = match[1]
    assert "sk_test_mine" in shown
    assert "whsec_mine" in shown
    assert f"curl {url}/v1/payments" in shown
    headers = {"Authorization": "Bearer sk_test_mine"}
    balances = requests.get(f"{url}/v1/balances", headers=headers, timeout=30).json()["data"]
    assert {item["currency"]: item["available"] for item in balances if item["available"]} == {"CLP": 5_000, "USD": 7}
    endpoints = requests.get(f"{url}/v1/webhook-endpoints", headers=headers, timeout=30).json()["data"]
    assert [endpoint["url"] for endpoint in endpoints] == ["http://127.0.0.1:9/hook"]
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert output == "Stopped.\n"
    assert process.returncode == 0


def test_the_command_starts_with_money_in_every_currency(start: Start) -> None:
    _process, shown = start()
    url = shown.partition("Base URL")[2].split()[0]
    found = requests.get(f"{url}/v1/balances", headers={"Authorization": f"Bearer {DEFAULT_API_KEY}"}, timeout=30)
    assert {item["currency"]: item["available"] for item in found.json()["data"]} == DEFAULT_FUNDS


def test_the_command_needs_no_checks_and_no_migrations() -> None:
    assert Command.requires_system_checks == []
    assert Command.requires_migrations_checks is False


def test_fund_takes_a_currency_and_minor_units() -> None:
    assert funding("clp=100") == ("CLP", 100)
    for text in ("CLP", "CLP=", "CLP=1.5", "CLP=-1"):
        with pytest.raises(ArgumentTypeError, match="minor units"):
            funding(text)


def test_invalid_options_are_refused() -> None:
    parser = Command().create_parser("manage.py", "payments_sandbox")
    for arguments in (["--webhook-secret", "x"], ["--fund", "EUR=5"]):
        options = vars(parser.parse_args(arguments))
        with pytest.raises(CommandError):
            Command().handle(**options)


def test_deliveries_are_signed_with_the_secret_of_the_project_s_account(settings: Any) -> None:
    account = {"BASE_URL": "http://127.0.0.1:8400", "API_KEY": DEFAULT_API_KEY}
    for secrets, chosen in ((["whsec_one", "whsec_two"], "whsec_one"), ([], None)):
        settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {**account, "WEBHOOK_SECRETS": secrets}}}
        assert _secret_of(DEFAULT_API_KEY) == chosen
        assert _secret_of("sk_test_other") is None
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": []}
    assert _secret_of(DEFAULT_API_KEY) is None, "settings that are wrong keep nobody from a sandbox"
