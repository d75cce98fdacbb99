"""Fetching the next page while this one is worked on, with the lease kept alive meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

#: Well within the 15 seconds of a lease.
BEAT_SECONDS = 4.0


def ahead(pages: Iterator[T], beat: Callable[[], None]) -> Iterator[T]:
    """Yield from ``pages``, one fetched ahead in a thread; ``beat`` is called in this thread while waiting.

    The thread does HTTP only; the database stays with the caller.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="payments-fetch") as pool:
        future = pool.submit(next, pages, None)
        while True:
            while not wait([future], timeout=BEAT_SECONDS).done:
                beat()
            page = future.result()
            if page is None:
                return
            future = pool.submit(next, pages, None)
            yield page
