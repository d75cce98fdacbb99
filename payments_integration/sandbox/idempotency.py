"""Idempotency keys of one project: the first answer, repeated for 24 hours ("Common rules")."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .clock import Clock
from .errors import ApiError
from .shapes import DAY

RETENTION: Final = timedelta(seconds=DAY)


@dataclass
class Answer:
    """A status and the exact bytes of a body."""

    status: int
    body: bytes


@dataclass
class _Use:
    fingerprint: bytes
    since: datetime
    answer: Answer | None = None  # None: the first request is still running


class IdempotencyKeys:
    """Who holds a key, for which request, and what was answered. Not locked: the engine's lock covers it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    def claim(self, key: str, method: str, path: str, body: bytes) -> Answer | None:
        """Take the key for this request, or give the answer it already has.

        The same request means the same method, path and bytes. Raises idempotency_conflict for another one
        and idempotency_in_progress while the first runs.
        """
        now = self._clock.now()
        fingerprint = hashlib.sha256(f"{method} {path}\n".encode() + body).digest()
        use = self._uses.get(key)
        if use is not None and use.answer is not None and now - use.since >= RETENTION:
            del self._uses[key]  # so that the key moves to the newest end
            use = None
        if use is None:
            self._uses[key] = _Use(fingerprint, now)
            return None
        if use.fingerprint != fingerprint:
            raise ApiError("idempotency_conflict")
        if use.answer is None:
            raise ApiError("idempotency_in_progress")
        return use.answer

    def settle(self, key: str, answer: Answer) -> None:
        """Keep the answer of the request that claimed the key."""
        self._uses[key].answer = answer

    def release(self, key: str) -> None:
        """Forget a claim whose request came to nothing (a 5xx): the key can be used again."""
        del self._uses[key]

    def prune(self) -> None:
        """Forget answers older than 24 hours."""
        now = self._clock.now()
        past: list[str] = []
        for key, use in self._uses.items():  # oldest first
            if use.answer is not None:
                if now - use.since < RETENTION:
                    break
                past.append(key)
        for key in past:
            del self._uses[key]
