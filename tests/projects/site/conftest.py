"""The site, built once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects.site.built import Site

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def site() -> Site:
    """Built where ``make docs`` leaves it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return Site(ROOT / "build" / "site")
