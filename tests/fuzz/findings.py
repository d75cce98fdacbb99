"""What a run found: the input made small, and a test to keep."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MINIMIZE_SECONDS = 5.0
_WIDTH = 90


@dataclass(frozen=True)
class Finding:
    """An input that a target does not survive."""

    target: str
    data: bytes
    error: str

    @property
    def name(self) -> str:
        return f"{self.target}_{hashlib.sha256(self.data).hexdigest()[:8]}"

    def as_test(self) -> str:
        """A test for ``tests/unit/test_fuzz_found.py``."""
        parts = [self.data[at : at + _WIDTH] for at in range(0, len(self.data), _WIDTH)] or [b""]
        lines = "\n".join(f"        {part!r}" for part in parts)
        mark = "@pytest.mark.django_db\n" if self.target == "delivery" else ""
        return (
            f"{mark}def test_{self.name}() -> None:\n"
            f'    targets.TARGETS["{self.target}"].check(\n{lines}\n    )\n'
            f"    # {self.error.splitlines()[0][:100]}\n"
        )

    def save(self, folder: Path) -> Path:
        path = folder / self.name
        path.write_bytes(self.data)
        return path


def failure(check: Callable[[bytes], Any], data: bytes) -> tuple[str, str, int] | None:
    """The error, and where it was raised; None where the check passes."""
    try:
        check(data)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error}", frame.filename, frame.lineno or 0
    return None


def examine(target: str, check: Callable[[bytes], Any], data: bytes) -> Finding | None:
    """Make an input small that fails; None where it does not fail."""
    found = failure(check, data)
    if found is None:
        return None
    end = time.monotonic() + MINIMIZE_SECONDS
    size = max(len(data) // 2, 1)
    while size and time.monotonic() < end:
        at, shorter = 0, False
        while at < len(data) and time.monotonic() < end:
            candidate = data[:at] + data[at + size :]
            now = failure(check, candidate)
            if now is not None and now[1:] == found[1:]:
                data, found, shorter = candidate, now, True
            else:
                at += size
        if not shorter:
            size //= 2
    return Finding(target, data, found[0])
