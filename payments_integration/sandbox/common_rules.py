"""Apply the rules of all requests: JSON bodies, idempotency keys and rate limits ("Common rules", "Limits")."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from .clock import Clock
from .protocol import DAY, MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY, ApiError, ApiRequest, Json, encode_json

RETENTION: Final = timedelta(seconds=DAY)


def bearer_token(authorization: str) -> str | None:
    """Return the API key in an Authorization header, or None."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def idempotency_key(request: ApiRequest) -> str:
    """Return the request's key. Raises parameter_missing and parameter_invalid."""
    key = request.headers.get("idempotency-key", "")
    if not key:
        raise ApiError("parameter_missing", "Every POST carries this header.", param="Idempotency-Key")
    if len(key) > MAX_IDEMPOTENCY_KEY:
        raise ApiError(
            "parameter_invalid", f"At most {MAX_IDEMPOTENCY_KEY} characters are allowed.", param="Idempotency-Key"
        )
    return key


def json_object(request: ApiRequest, *, bodiless: bool) -> Json:
    """Return the JSON object in the body. If ``bodiless`` is True, only an empty object or no body is accepted."""
    if len(request.body) > MAX_BODY_BYTES:
        raise ApiError("parameter_invalid", f"The body has more than {MAX_BODY_BYTES} bytes.", status=413)
    if bodiless and not request.body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError("parameter_invalid", "The body must be sent as application/json.", status=415)
    try:
        data = json.loads(request.body.decode(), object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant)
        encode_json({"data": data})  # fails for text that cannot be encoded, such as half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ApiError("parameter_invalid", "The body is not valid JSON in UTF-8.") from error
    if not isinstance(data, dict):
        raise ApiError("parameter_invalid", "The body must be a JSON object.")
    if bodiless and data:
        raise ApiError("parameter_invalid", "This request takes no body.", param=next(iter(data)))
    return data


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> Json:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("an object has the same name twice")
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass
class KeyUse:
    """One idempotency key in use: a digest of its request, and the answer."""

    fingerprint: str
    since: datetime
    response: tuple[int, bytes] | None = None  # HTTP status and body; None: the first request is still running


class IdempotencyKeys:
    """The keys in use, oldest first. Not thread-safe, so callers hold the engine's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.uses: dict[str, KeyUse] = {}

    def begin(self, key: str, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Reserve the key for this request and return None, or return the stored response to the same request.

        A request is the same if method, path and bytes are equal. Raises idempotency_conflict for another request, and
        idempotency_in_progress while the first one runs.
        """
        now = self._clock.now()
        fingerprint = hashlib.sha256(f"{method} {path}\n".encode() + body).hexdigest()
        use = self.uses.get(key)
        if use is not None and use.response is not None and now - use.since >= RETENTION:
            del self.uses[key]  # so that the new use is added as the newest
            use = None
        if use is None:
            self.uses[key] = KeyUse(fingerprint, now)
            return None
        if use.fingerprint != fingerprint:
            raise ApiError("idempotency_conflict")
        if use.response is None:
            raise ApiError("idempotency_in_progress")
        return use.response

    def store(self, key: str, response: tuple[int, bytes]) -> None:
        """Store the response to the request that reserved the key."""
        self.uses[key].response = response

    def release(self, key: str) -> None:
        """Free the key after a 5xx, so that it can be used again."""
        del self.uses[key]

    def prune(self) -> None:
        """Delete responses older than 24 hours."""
        now = self._clock.now()
        expired: list[str] = []
        for key, use in self.uses.items():  # oldest first
            if use.response is not None:
                if now - use.since < RETENTION:
                    break
                expired.append(key)
        for key in expired:
            del self.uses[key]


@dataclass(frozen=True)
class RateLimits:
    """Requests per second, with bursts of ``burst`` times as many. ``enforced=False`` only sends the headers."""

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
    """Counts real seconds, because on a frozen sandbox clock all requests would be blocked."""

    def __init__(self, limits: RateLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, bool], _Bucket] = {}

    def take(self, api_key: str, *, write: bool) -> tuple[bool, dict[str, str]]:
        """Count one request of this key. Returns True if it is allowed, and the headers.

        Limit is the capacity of the bucket, Remaining its tokens, Reset the seconds until it is full again.
        """
        now = self._monotonic()
        bucket = self._buckets.setdefault((api_key, write), self._full_bucket(write, now))
        bucket.tokens = min(bucket.capacity, bucket.tokens + (now - bucket.at) * bucket.rate)
        bucket.at = now
        allowed = not self.limits.enforced or bucket.tokens >= 1
        if allowed and self.limits.enforced:
            bucket.tokens -= 1
        headers = self._headers(bucket)
        if not allowed:
            headers["Retry-After"] = str(max(1, math.ceil((1 - bucket.tokens) / bucket.rate)))
        return allowed, headers

    def forget(self, api_keys: Collection[str] | None) -> None:
        """Give these keys full buckets; None means all keys."""
        for used in [used for used in self._buckets if api_keys is None or used[0] in api_keys]:
            del self._buckets[used]

    def full_headers(self, *, write: bool) -> dict[str, str]:
        """Return the headers of a full bucket, for a request without a valid key."""
        return self._headers(self._full_bucket(write, 0))

    def _full_bucket(self, write: bool, now: float) -> _Bucket:
        rate = self.limits.writes if write else self.limits.reads
        capacity = rate * self.limits.burst
        return _Bucket(rate, capacity, capacity, now)

    def _headers(self, bucket: _Bucket) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(int(bucket.capacity)),
            "RateLimit-Remaining": str(max(0, int(bucket.tokens))),
            "RateLimit-Reset": str(math.ceil((bucket.capacity - bucket.tokens) / bucket.rate)),
        }
