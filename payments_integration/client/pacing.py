"""How long to wait before the next request (spec, "Limits").

Each process remembers what the provider last said about each API key, apart for reads and for writes.
Interactive calls go while any request is left; background calls leave a reserve to them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

Lane = Literal["read", "write"]

#: No header makes us wait longer than this: after it we ask the provider again.
MAX_WAIT = 60.0
MIN_RETRY_AFTER = 1.0
#: A 429 that does not say how long.
DEFAULT_RETRY_AFTER = 2.0
#: The part of the limit that background calls leave to interactive ones.
RESERVE = 0.3

_DIGITS = re.compile(r"[0-9]{1,18}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


@dataclass(slots=True)
class _Budget:
    limit: int = 0
    remaining: int = 0
    #: On the monotonic clock; what was heard counts until then.
    resets_at: float = 0.0


class Pacer:
    """What is left of one key's rate limits. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._budgets: dict[Lane, _Budget] = {"read": _Budget(), "write": _Budget()}

    def take(self, lane: Lane, *, leave_reserve: bool = False) -> float:
        """0.0: go, the request is counted. Else the seconds to wait before asking again."""
        with self._lock:
            budget = self._budgets[lane]
            wait = budget.resets_at - self._monotonic()
            if wait <= 0:
                return 0.0
            floor = int(budget.limit * RESERVE) if leave_reserve else 0
            if budget.remaining <= floor:
                return wait
            # Counted here already: other threads must not all go on the last request.
            budget.remaining -= 1
            return 0.0

    def learn(self, lane: Lane, headers: Mapping[str, str]) -> None:
        """Take over the RateLimit headers of an answer; headers that make no sense change nothing."""
        remaining = _number(headers.get("RateLimit-Remaining"))
        reset = _number(headers.get("RateLimit-Reset"))
        if remaining is None or reset is None:
            return
        limit = _number(headers.get("RateLimit-Limit")) or 0
        with self._lock:
            self._budgets[lane] = _Budget(limit, remaining, self._monotonic() + min(reset, MAX_WAIT))


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait after a 429, from 1 to 60, whatever the header says."""
    value = headers.get("Retry-After", "").strip()
    wait: float | None = _number(value)
    if wait is None:
        until = http_date(value)
        # The provider's own clock, where it tells it: ours may be wrong.
        now = http_date(headers.get("Date", "")) or datetime.now(UTC)
        wait = DEFAULT_RETRY_AFTER if until is None else (until - now).total_seconds()
    return min(max(wait, MIN_RETRY_AFTER), MAX_WAIT)


def http_date(value: str) -> datetime | None:
    """An HTTP date (RFC 9110, the form that servers must send) as aware UTC; None for anything else."""
    if not _HTTP_DATE.fullmatch(value):
        return None
    try:
        return parsedate_to_datetime(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None
