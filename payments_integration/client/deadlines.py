"""How long an HTTP exchange may take, from connecting to the last byte of the answer.

A read timeout limits only the silence between two bytes: an answer that sends one byte per second never ends it.
:class:`DeadlineReader` shortens the socket's timeout before each read to the time that is left.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at`` on the monotonic clock; ``silence``: seconds without a byte that are allowed until then."""

    at: float
    silence: float

    def timeout(self) -> float:
        """Seconds that the next read may take. Raises TimeoutError after the deadline."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, self.silence)


class DeadlineReader(io.RawIOBase):
    """Reads from a socket until the deadline, then raises TimeoutError."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.timeout())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()


_deadline: ContextVar[Deadline | None] = ContextVar("payments_integration_deadline", default=None)
_budget: ContextVar[float | None] = ContextVar("payments_integration_budget", default=None)


@contextmanager
def within(seconds: float, silence: float) -> Iterator[None]:
    """Every answer that this thread reads in this block ends within ``seconds`` from now."""
    token = _deadline.set(Deadline(time.monotonic() + seconds, silence))
    try:
        yield
    finally:
        _deadline.reset(token)


def current_deadline() -> Deadline | None:
    """The deadline of the surrounding :func:`within` block; None outside one."""
    return _deadline.get()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limit each request that this thread begins in this block to ``seconds``, even if REQUEST_DEADLINE allows more.

    For code that runs while a person waits for a page.
    """
    token = _budget.set(seconds)
    try:
        yield
    finally:
        _budget.reset(token)


def budget(allowed: float) -> float:
    """``allowed`` seconds for a request, or less inside :func:`at_most`."""
    seconds = _budget.get()
    return allowed if seconds is None else max(0.01, min(allowed, seconds))
