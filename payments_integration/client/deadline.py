"""How long a whole HTTP exchange may take; ``bounded`` sees to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at`` on the monotonic clock; ``silence``: seconds without a byte that are allowed until then."""

    at: float
    silence: float

    def timeout(self) -> float:
        """Seconds that the next read may take; TimeoutError once the deadline has passed."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, self.silence)


_deadline: ContextVar[Deadline | None] = ContextVar("payments_integration_deadline", default=None)


@contextmanager
def within(seconds: float, silence: float) -> Iterator[None]:
    """Every answer that begins in this block, in this thread, ends within ``seconds`` from now."""
    token = _deadline.set(Deadline(time.monotonic() + seconds, silence))
    try:
        yield
    finally:
        _deadline.reset(token)


def deadline() -> Deadline | None:
    """That of the block, if there is one."""
    return _deadline.get()


_budget: ContextVar[float | None] = ContextVar("payments_integration_budget", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Requests begun in this block, in this thread, get no more than this, whatever the settings allow.

    For a caller whom somebody else waits for.
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
