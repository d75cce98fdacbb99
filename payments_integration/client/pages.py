"""Walking a list page by page, without ever walking in a circle (spec, "List endpoints")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from payments_integration.client.answers import Answer, PageOf
from payments_integration.exceptions import PagingError

T = TypeVar("T")

MAX_LIMIT = 100


def walk(
    path: str, fetch: Callable[[str | None], Answer[PageOf[T]]], starting_after: str | None = None
) -> Iterator[Answer[PageOf[T]]]:
    """The pages from ``starting_after`` on, fetched as they are asked for.

    Raises PagingError where the list says that it goes on but does not: an empty page, a page without an id
    to continue from, a page that ends where another one ended.
    """
    cursors = {starting_after}
    cursor = starting_after
    while True:
        answer = fetch(cursor)
        page = answer.data
        if page.has_more and page.items and page.cursor is not None and page.cursor in cursors:
            raise PagingError(f"GET {path}: a page ends where an earlier one ended")
        yield answer
        if not page.has_more:
            return
        if not page.items:
            raise PagingError(f"GET {path}: an empty page says that there is more")
        if page.cursor is None:
            raise PagingError(f"GET {path}: a page has no id to continue from")
        cursor = page.cursor
        cursors.add(cursor)
