"""Read once what a row's page asks for more than once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def once(row: Any, name: str, read: Callable[[], T]) -> T:
    """Return the result of ``read``, which is kept on the row under ``name``. The row lives for one request."""
    kept: dict[str, Any] = row.__dict__
    if name not in kept:
        kept[name] = read()
    return cast("T", kept[name])
