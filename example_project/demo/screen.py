"""What the demo prints: steps, lines and tables, in colour where there is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence


class Screen:
    """Writes to standard output, at once."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._steps = 0

    def title(self, text: str) -> None:
        print(self._paint(text, "1"), flush=True)

    def step(self, text: str) -> None:
        """A numbered headline."""
        self._steps += 1
        print(f"\n{self._paint(f'{self._steps:2}  {text}', '1;36')}", flush=True)

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def good(self, text: str) -> None:
        print(f"  {self._paint('✓', '32')} {text}", flush=True)

    def bad(self, text: str) -> None:
        print(f"  {self._paint('✗', '1;31')} {text}", flush=True)

    def table(self, title: str, rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as they need be; all but the first are set to the right."""
        rows = [tuple(row) for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        print(f"\n    {self._paint(title, '1')}", flush=True)
        for row in rows:
            first, *others = (
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            print("    " + "   ".join([first, *others]).rstrip(), flush=True)

    def line(self, text: str = "") -> None:
        print(text, flush=True)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text
