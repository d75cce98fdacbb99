"""The money pages in themes of the admin. Each theme changes the settings, so it has a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("theme", ["django", "grappelli", "jazzmin", "unfold"])
def test_buttons_and_fields_are_legible_in_the_theme(theme: str) -> None:
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_DATABASE"))}
    command = ["pytest", "-q", "-W", "default", "--ds", "tests.browser.themes.settings"]
    ended = subprocess.run(
        [sys.executable, "-m", *command, "tests/browser/themes/legibility.py"],
        env={**usual, "ADMIN_THEME": theme},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
