"""Read lists page by page (spec, "List endpoints")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from payments_integration.client.answers import Answer, PageOf, PageUnreadable, Reply, Unread
from payments_integration.client.requestor import Requestor
from payments_integration.exceptions import PagingError

T = TypeVar("T")

MAX_LIMIT = 100
#: After this many pages of a smaller size, a larger one is tried again.
_PAGES_OF_A_SIZE = 10


class Filters(TypedDict, total=False):
    """The filters of all lists, and how the read waits. The spec says which list has which filters."""

    status: str | None
    merchant_reference: str | None
    payment_id: str | None
    type: str | None
    created_from: datetime | None
    created_to: datetime | None
    #: Seconds (default: 10, in the background 120).
    max_wait: float | None
    background: bool


class Paged(Generic[T]):
    """A list of the provider that has pages."""

    path: str
    #: True if the list can be narrowed by time.
    by_time = False
    _requestor: Requestor

    def _read(self, reply: Reply, limit: int) -> Answer[PageOf[T]]:
        raise NotImplementedError

    def pages(self, starting_after: str | None = None, **filters: Unpack[Filters]) -> Iterator[Answer[PageOf[T]]]:
        """Yield every page after ``starting_after``, newest first. Fetches each when it is asked for.

        ``unreadable`` and ``unread`` name what a page lacks. A page that cannot be read is requested again with a
        tenth of its items, finally with one. The list goes on after the id of that item. If its id cannot be read
        either, the time around it is halved until it is alone. A list that cannot be narrowed (``by_time``) ends
        there.

        Raises PagingError if the list says that it has more but does not advance: an empty page, a page without an id
        to continue from, or a page that ends where an earlier one ended.
        """
        return self._walk(filters, starting_after, MAX_LIMIT)

    def _page(self, limit: int, starting_after: str | None, filters: Filters) -> Answer[PageOf[T]]:
        query: dict[str, Any] = {"limit": limit, "starting_after": starting_after, **filters}
        max_wait, background = query.pop("max_wait", None), query.pop("background", False)
        return self._read(self._requestor.get(self.path, query, max_wait=max_wait, background=background), limit)

    def _walk(self, filters: Filters, cursor: str | None, limit: int) -> Iterator[Answer[PageOf[T]]]:
        cursors, pages = {cursor}, 0
        reached: datetime | None = None
        while True:
            try:
                answer = self._page(limit, cursor, filters)
            except PageUnreadable:
                limit, pages = limit // 10, 0
                continue
            page = answer.data
            if page.has_more and page.cursor is not None and page.cursor in cursors:
                raise PagingError(f"GET {self.path}: a page ends where an earlier one ended")
            is_empty = not page.items and not page.unreadable
            if page.has_more and page.cursor is None and limit == 1 and not is_empty:
                if self.by_time:
                    yield from self._halves(filters, answer, reached)
                else:
                    yield replace(answer, data=replace(page, has_more=False))
                return
            yield answer
            if not page.has_more:
                return
            if is_empty:
                raise PagingError(f"GET {self.path}: an empty page says that there is more")
            if page.cursor is None:
                raise PagingError(f"GET {self.path}: a page has no id to continue from")
            cursor, reached = page.cursor, page.reached or reached
            cursors.add(cursor)
            pages += 1
            if pages == _PAGES_OF_A_SIZE:
                limit, pages = min(limit * 10, MAX_LIMIT), 0

    def _halves(
        self, filters: Filters, answer: Answer[PageOf[T]], reached: datetime | None
    ) -> Iterator[Answer[PageOf[T]]]:
        """Split the rest of the list into two halves by time, and yield the pages of each, the newer half first.

        Halving ends at one second: if an item of that second cannot be read, it hides the older ones. Halves begin and
        end at half seconds: each pass then names the same span, and a time in whole seconds falls into one half only.
        """
        created_from, created_to = filters.get("created_from"), reached or filters.get("created_to")
        if created_to is None:
            created_to = (answer.answered_at or datetime.now(UTC)) + timedelta(days=1)
        start = math.floor(created_from.timestamp() - 0.5) if created_from is not None else 0
        end = math.ceil(created_to.timestamp() - 0.5)
        if end - start <= 1:
            found = Unread(span=(_half_second(start), _half_second(end)))
            yield replace(answer, data=replace(answer.data, has_more=False, unreadable=(str(found),), unread=found))
            return
        middle = (start + end) // 2
        for first, last in ((middle, end), (start, middle)):
            narrowed: Filters = {
                **filters, "created_from": _half_second(first), "created_to": _half_second(last)
            }  # fmt: skip
            yield from self._walk(narrowed, None, 1)


def _half_second(second: int) -> datetime:
    return datetime.fromtimestamp(second + 0.5, UTC)
