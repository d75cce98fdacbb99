"""Lists page by page (spec, "List endpoints")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from payments_integration.client.answers import Answer, PageOf
from payments_integration.client.requestor import Requestor
from payments_integration.exceptions import PagingError, UnsendableRequest

if TYPE_CHECKING:
    from payments_integration.client.transport import Reply

T = TypeVar("T")

MAX_LIMIT = 100


def get_page(
    requestor: Requestor, path: str, limit: int, starting_after: str | None, filters: Mapping[str, object]
) -> Reply:
    """GET one page. ``filters`` also holds the ``max_wait`` and ``background`` of the call."""
    if not 1 <= limit <= MAX_LIMIT:
        raise UnsendableRequest(f"limit is 1 to {MAX_LIMIT}")
    query = dict(filters)
    max_wait, background = query.pop("max_wait", None), query.pop("background", False)
    return requestor.get(
        path,
        {"limit": limit, "starting_after": starting_after, **query},
        max_wait=max_wait if isinstance(max_wait, int | float) else None,
        background=background is True,
    )


def walk(
    path: str, fetch: Callable[[str | None], Answer[PageOf[T]]], starting_after: str | None = None
) -> Iterator[Answer[PageOf[T]]]:
    """The pages after ``starting_after``, each fetched when it is asked for.

    Raises PagingError when the list says that it has more but does not advance: an empty page, a page without an id
    to continue from, or a page that ends where an earlier one ended.
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
