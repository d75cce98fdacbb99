"""Use Django's cache so that the app works without it, and so that two sites can share it.

Each cache raises its driver's errors. They are logged, and the caller goes on as with an empty cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from django.core.cache import cache

from payments_integration import conf
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)


def key(*parts: object) -> str:
    """Return the key of what ``parts`` name. Sites with other accounts at the provider have other keys."""
    site = sorted(map(conf.fingerprint, conf.aliases()))
    # Some caches refuse a space or a long key.
    return f"payments-{hashlib.sha256(repr((site, parts)).encode()).hexdigest()}"


def read(keys: Collection[str]) -> dict[str, Any]:
    """Return what is kept. A cache that serializes as JSON returns tuples as lists and times as texts."""
    with contained():
        return cache.get_many(keys)
    return {}


def keep(values: dict[str, Any], seconds: float | None) -> None:
    """Keep values by key. None: without a limit of time."""
    with contained():
        cache.set_many(values, seconds)


def is_first(key: str, seconds: float) -> bool | None:
    """Return True to the first caller in this time, and False to others. None: the cache does not work."""
    with contained():
        return bool(cache.add(key, True, seconds))
    return None


class contained:  # noqa: N801  (used like a function)
    """Log the errors of a block that needs the cache, and go on after it."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        logger.exception("Django's cache does not work. The app goes on without it")
        return True
