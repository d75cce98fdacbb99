"""Print what happens in a sandbox, line by line, for the person who watches its process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from .protocol import Json

#: The most lines that wait for a paused terminal.
CAPACITY: Final = 10_000
STOP_SECONDS: Final = 2.0


class LiveLog:
    """Prints a line for each API request and each delivery, coloured by its result.

    A separate thread prints, because a paused terminal or an unread pipe must not stop the sandbox.
    """

    def __init__(self, write: Callable[[str], object], style: Any) -> None:
        """Start the thread. ``style`` is Django's: see ``django.core.management.color``."""
        self._write, self._style = write, style
        self._lines: queue.Queue[str | None] = queue.Queue(CAPACITY)
        self._left_out = 0
        self._thread = threading.Thread(target=self._print, name="payments-sandbox-log", daemon=True)
        self._thread.start()

    def request(self, entry: Json) -> None:
        """Show an entry of the gateway's log."""
        status = entry["status"]
        text = f"{_time(entry)}  {entry['method']} {entry['path']}  {status or 'no answer'}"
        text += f" {entry['error']}" if entry["error"] else ""
        text += " (the stored answer of its key)" if entry["replayed"] else ""
        self._show(text, self._colour(status), entry["fault"])

    def delivery(self, entry: Json) -> None:
        """Show an entry of the dispatcher's log."""
        text = f"{_time(entry)}  {entry['event_type']} {entry['event_id']} to {entry['url']}  "
        if entry["status"] is not None:
            text += str(entry["status"])
        elif entry["error"]:
            # The first word says what went wrong. The sandbox's page has the whole text.
            text += f"no answer: {entry['error'].partition(':')[0]}"
        else:
            text += "not sent"
        text += f" (attempt {entry['attempt']})" if entry["attempt"] > 1 else ""
        self._show(text, self._style.SUCCESS if entry["acknowledged"] else self._style.ERROR, entry["fault"])

    def stop(self, last: str) -> None:
        """Print the waiting lines and this one, if the reader takes them within STOP_SECONDS."""
        try:
            if text := f"{self._gap()}{last}":
                self._lines.put(text, timeout=STOP_SECONDS)
            self._lines.put(None, timeout=STOP_SECONDS)
        except queue.Full:
            return
        self._thread.join(STOP_SECONDS)

    def _show(self, text: str, colour: Callable[[str], str], fault: str | None) -> None:
        text += f" [fault: {fault}]" if fault else ""
        # Paths and addresses come from outside, and a terminal must not take them for commands.
        shown = "".join(character if character.isprintable() else "?" for character in text)
        try:
            self._lines.put_nowait(f"{self._gap()}{colour(shown)}\n")
            self._left_out = 0
        except queue.Full:
            self._left_out += 1

    def _gap(self) -> str:
        return f"({self._left_out} lines are left out.)\n" if self._left_out else ""

    def _colour(self, status: int | None) -> Any:
        if status is None or status >= 500:
            return self._style.ERROR
        return self._style.WARNING if status >= 400 else self._style.SUCCESS

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)


def _time(entry: Json) -> str:
    """Return the time on the sandbox's clock, in UTC."""
    return str(entry["at"])[11:19]
