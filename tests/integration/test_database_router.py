"""ATOMIC_REQUESTS and a router change nothing: what is answered 200 is committed, where payments are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.django_db  # the process makes databases of its own, on the same server
@pytest.mark.case(77)
@pytest.mark.promise(1)
def test_the_app_works_with_two_databases_and_atomic_requests() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.routed"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stdout + done.stderr
