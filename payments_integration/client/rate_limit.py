"""Apply the provider's rate limits (spec, "Limits"): how long to wait before the next request.

Each process remembers what the provider last reported for each API key, with reads and writes apart. Interactive calls
use the limit to the end; background calls leave a reserve for them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

#: The provider counts reads (GET) and writes apart.
Bucket = Literal["read", "write"]

#: The longest wait that a header may cause. After it, the next request asks the provider again.
MAX_WAIT = 60.0
MIN_RETRY_AFTER = 1.0
#: For a 429 without a usable Retry-After.
DEFAULT_RETRY_AFTER = 2.0
#: The share of the limit that background calls leave for interactive ones.
RESERVE = 0.3

_DIGITS = re.compile(r"[0-9]{1,18}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


@dataclass(slots=True)
class Window:
    """The requests that are left, as the provider last reported."""

    limit: int = 0
    remaining: int = 0
    #: The numbers are valid until then, on the monotonic clock.
    resets_at: float = 0.0


class RateLimiter:
    """Counts the requests that one API key has left. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Bucket, Window] = {"read": Window(), "write": Window()}

    def acquire(self, bucket: Bucket, *, leave_reserve: bool = False) -> float:
        """Count one request and return 0.0, or return the seconds to wait before asking again."""
        with self._lock:
            window = self._windows[bucket]
            wait = window.resets_at - self._monotonic()
            if wait <= 0:
                return 0.0
            floor = int(window.limit * RESERVE) if leave_reserve else 0
            if window.remaining <= floor:
                return wait
            # Counted before the request leaves, so that two threads do not both take the last one.
            window.remaining -= 1
            return 0.0

    def update(self, bucket: Bucket, headers: Mapping[str, str]) -> Window | None:
        """Store the RateLimit headers of an answer and return them. Malformed headers change nothing."""
        remaining = _number(headers.get("RateLimit-Remaining"))
        reset = _number(headers.get("RateLimit-Reset"))
        if remaining is None or reset is None:
            return None
        limit = _number(headers.get("RateLimit-Limit")) or 0
        with self._lock:
            window = Window(limit, remaining, self._monotonic() + min(reset, MAX_WAIT))
            self._windows[bucket] = window
            return replace(window)  # a copy, because other requests count theirs in it


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait after a 429: between 1 and 60, even if the header is malformed."""
    value = headers.get("Retry-After", "").strip()
    wait: float | None = _number(value)
    if wait is None:
        until = http_date(value)
        # The provider's own clock if the answer shows it: ours may be wrong.
        now = http_date(headers.get("Date", "")) or datetime.now(UTC)
        wait = DEFAULT_RETRY_AFTER if until is None else (until - now).total_seconds()
    return min(max(wait, MIN_RETRY_AFTER), MAX_WAIT)


def http_date(value: str) -> datetime | None:
    """Parse an HTTP date (RFC 9110, the form that servers must send) to aware UTC. None for any other text."""
    if not _HTTP_DATE.fullmatch(value):
        return None
    try:
        return parsedate_to_datetime(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None
