"""Ask this process to end: loops finish the item in hand and start no further one.

Only ``payments_worker`` asks, on SIGTERM or SIGINT. In every other process the request is never set.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

#: A plain value, because a signal handler sets it. The code that the signal interrupts could hold a lock.
_request = SimpleNamespace(is_made=False, is_urgent=False)
#: How long a sleep may go on after the request.
_SLICE = 0.25


def request(*, urgent: bool = False) -> None:
    """Ask every loop of this process to stop. Safe in a signal handler. ``urgent``: nothing waits for the others."""
    _request.is_made = True
    _request.is_urgent = urgent


def clear() -> None:
    """Begin anew: no stop is asked for."""
    _request.is_made = _request.is_urgent = False


def is_urgent() -> bool:
    return bool(_request.is_urgent)


def is_requested() -> bool:
    return bool(_request.is_made)


def is_over(deadline: float | None) -> bool:
    """Return True to start no further item: the deadline (``time.monotonic()``) has passed, or the process ends."""
    return is_requested() or (deadline is not None and time.monotonic() >= deadline)


def sleep(seconds: float) -> None:
    """Sleep, and return early if the process is asked to stop."""
    # Counted, not measured: a test may stop the monotonic clock.
    while not is_requested() and seconds > 0:
        time.sleep(min(seconds, _SLICE))
        seconds -= _SLICE
