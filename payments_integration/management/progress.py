"""Show how far a command is to the person who waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

#: Seconds between the lines of a long command, if the output is no terminal.
LINE_SECONDS = 60.0


class Progress:
    """One line on a terminal, rewritten once a second; elsewhere a new line each minute.

    Use it as a context manager. The line on the terminal is removed at the end.
    """

    def __init__(self, stream: Any) -> None:
        """Write to ``stream``: a command's ``stderr``, so that standard output holds only results."""
        self._stream = stream
        self._is_terminal = bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
        self._seconds = 1.0 if self._is_terminal else LINE_SECONDS
        self._begun = time.monotonic()
        self._next = self._begun if self._is_terminal else self._begun + LINE_SECONDS
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._is_shown and self._is_terminal:
            self._write("\r\x1b[K")

    def show(self, text: Callable[[float], str]) -> None:
        """Show the text if a line is due. ``text`` is called with the seconds since the start."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            self._is_shown = True
            line = text(now - self._begun)
            self._write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")

    def count(self, what: str, number: int) -> None:
        """Show how many there are so far, such as 12000 of "events deleted"."""
        self.show(lambda seconds: f"{number} {what}, {number / max(seconds, 0.001):.0f}/s")

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        # A stderr that is gone or closed must not end the work. Without ``style_func`` the line would look like an
        # error.
        with suppress(OSError, ValueError, AttributeError):
            self._stream.write(text, style_func=str, ending="")
            self._stream.flush()
