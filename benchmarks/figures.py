"""Figures with their limits: shown, and kept as JSON for comparison."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """``better``: whether more or less of it is better. Without a limit it is only recorded."""

    name: str
    value: float
    limit: float | None
    better: Literal["more", "less"]
    unit: str = ""

    @property
    def holds(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.better == "more" else self.value <= self.limit


def report(found: list[Figure], path: Path | None) -> int:
    """Print a table; the exit code is 1 when a limit is broken."""
    for figure in found:
        sign = "at least" if figure.better == "more" else "at most"
        limit = "" if figure.limit is None else f"{sign} {figure.limit:g}: {'kept' if figure.holds else 'BROKEN'}"
        print(f"{figure.name:44}{figure.value:>9.4g} {figure.unit:16}{limit}".rstrip())
    if path is not None:
        path.write_text(json.dumps([asdict(figure) for figure in found], indent=1) + "\n")
    return 0 if all(figure.holds for figure in found) else 1
