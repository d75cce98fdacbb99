"""Token buckets per API key, and the RateLimit headers on every answer ("Limits")."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RateLimits:
    """Requests per second; ``burst`` times as many may come at once. ``enforced=False`` only sends the headers."""

    reads: float = 100.0
    writes: float = 20.0
    burst: float = 2.0
    enforced: bool = True


@dataclass
class _Bucket:
    rate: float
    capacity: float
    tokens: float
    at: float


class RateLimiter:
    """Counts real seconds, not those of the sandbox's clock: a frozen clock must not lock everybody out."""

    def __init__(self, limits: RateLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, bool], _Bucket] = {}

    def take(self, api_key: str, *, write: bool) -> tuple[bool, dict[str, str]]:
        """Use one request of this key; returns whether it is allowed, and the headers.

        Limit is the size of the bucket, Remaining what is left in it, Reset the seconds until it is full
        again.
        """
        now = self._monotonic()
        bucket = self._bucket(api_key, write, now)
        bucket.tokens = min(bucket.capacity, bucket.tokens + (now - bucket.at) * bucket.rate)
        bucket.at = now
        allowed = not self.limits.enforced or bucket.tokens >= 1
        if allowed and self.limits.enforced:
            bucket.tokens -= 1
        headers = self._headers(bucket)
        if not allowed:
            headers["Retry-After"] = str(max(1, math.ceil((1 - bucket.tokens) / bucket.rate)))
        return allowed, headers

    def untouched(self, *, write: bool) -> dict[str, str]:
        """The headers for a request without a valid key: a full bucket."""
        rate = self._rate(write)
        return self._headers(_Bucket(rate, rate * self.limits.burst, rate * self.limits.burst, 0))

    def _rate(self, write: bool) -> float:
        return self.limits.writes if write else self.limits.reads

    def _bucket(self, api_key: str, write: bool, now: float) -> _Bucket:
        rate = self._rate(write)
        capacity = rate * self.limits.burst
        return self._buckets.setdefault((api_key, write), _Bucket(rate, capacity, capacity, now))

    def _headers(self, bucket: _Bucket) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(int(bucket.capacity)),
            "RateLimit-Remaining": str(max(0, int(bucket.tokens))),
            "RateLimit-Reset": str(math.ceil((bucket.capacity - bucket.tokens) / bucket.rate)),
        }
