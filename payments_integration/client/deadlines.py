"""Limit how long an HTTP exchange may take, from looking up the host to the last byte of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Called with the seconds within which the exchange ends.
Check = Callable[[float], None]


_budget: ContextVar[float | None] = ContextVar("payments_integration_budget", default=None)
_check: ContextVar[Check | None] = ContextVar("payments_integration_check", default=None)


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
    """Return the seconds for a request: ``allowed``, or less inside :func:`at_most`."""
    seconds = _budget.get()
    return allowed if seconds is None else max(0.01, min(allowed, seconds))


@contextmanager
def before_sending(check: Check) -> Iterator[None]:
    """Call ``check`` right before the first byte of each request that this thread sends in this block.

    Looking up the host and connecting take time, in which a claim may end. ``check`` gets the seconds within which the
    exchange ends. If it raises an error, the request is not sent, and the call raises this error.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def current_check() -> Check | None:
    """Return the check of the surrounding :func:`before_sending` block; None outside one."""
    return _check.get()
