"""A project's own tests, run as its developers run them, with a live key in the settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "test-your-integration.md").read_text()

#: An address that no machine has (RFC 5737).
SETTINGS = """
from tests.settings import *

PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": {"BASE_URL": "https://203.0.113.7", "API_KEY": "sk_live_1"}}}
"""

UNGUARDED = """
import socket
from unittest import mock

from django.test import TestCase
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Operation
from payments_integration.services import create_payment

PAYMENT = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


def refused(*args):
    raise AssertionError(f"a test leaves this machine: {args}")


class LiveTests(TestCase):
    def test_a_call_without_a_sandbox(self):
        with mock.patch.object(socket.socket, "connect", refused), self.assertRaises(PaymentsError) as caught:
            create_payment(**PAYMENT)
        said = f"{caught.exception} {caught.exception.__cause__}"
        for text in ("Nothing was sent", "https://203.0.113.7", "ProviderSandbox", "payments_sandbox"):
            self.assertIn(text, said)
        operation = Operation.objects.get()
        self.assertFalse(operation.may_have_run)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "live_settings.py").write_text(SETTINGS)
    (tmp_path / "test_unguarded.py").write_text(UNGUARDED)
    for name, block in zip(("django", "pytest"), re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL), strict=True):
        (tmp_path / f"test_guide_{name}.py").write_text(block)
    return tmp_path


def run(project: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TEST_DATABASE_URL"}
    environment |= {"PYTHONPATH": f"{project}:{ROOT}", "DJANGO_SETTINGS_MODULE": "live_settings"}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", *command],
        cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.case(130)
def test_manage_py_test(project: Path) -> None:
    (project / "test_guide_pytest.py").unlink()
    assert "Ran 2 tests" in run(project, "django", "test")


@pytest.mark.case(130)
def test_pytest(project: Path) -> None:
    assert "3 passed" in run(project, "pytest", "-p", "no:cacheprovider", str(project))
