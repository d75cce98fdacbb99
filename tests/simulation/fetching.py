"""Pages fetched ahead, without a thread: the next one is there before this one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from payments_integration.reconciliation.runs import HEARTBEAT_SECONDS

T = TypeVar("T")
Ahead = Callable[[Iterator[T], Callable[[], None]], Iterator[T]]


def ahead(monotonic: Callable[[], float]) -> Ahead[T]:
    """What stands for ``reconciliation.runs.fetched_ahead``."""

    def fetch(pages: Iterator[T], beat: Callable[[], None]) -> Iterator[T]:
        page, error = _next(pages, beat, monotonic)
        while error is None and page is not None:
            upcoming, error_then = _next(pages, beat, monotonic)
            yield page
            page, error = upcoming, error_then
        if error is not None:
            raise error

    return fetch


def _next(
    pages: Iterator[T], beat: Callable[[], None], monotonic: Callable[[], float]
) -> tuple[T | None, Exception | None]:
    begun = monotonic()
    error: Exception | None = None
    page: T | None = None
    try:
        page = next(pages, None)
    except Exception as caught:
        error = caught
    if monotonic() - begun >= HEARTBEAT_SECONDS:
        beat()
    return page, error
