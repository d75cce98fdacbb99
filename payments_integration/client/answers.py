"""Read replies: their headers, 2xx bodies strictly (spec, "Resources and their fields"), and what calls return."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from django.views.decorators.debug import sensitive_variables

from payments_integration import schemas
from payments_integration.client import first_item
from payments_integration.enums import ID_PREFIXES
from payments_integration.exceptions import NoAnswer

T = TypeVar("T")

TOO_LARGE = "the answer is too large"
_REQUEST_ID_HEADERS = ("X-Request-Id", "Request-Id")
_MAX_REQUEST_ID = 255
_DIGITS = re.compile(r"[0-9]{1,18}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


@dataclass(slots=True)
class Reply:
    """A reply of any status, not yet judged.

    ``problem`` is empty if the body arrived whole. Otherwise it says what cut the body short, and ``body`` is empty,
    or the beginning if the answer is too large.
    """

    method: str
    path: str
    status_code: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    problem: str
    #: Seconds from before sending until the last byte.
    duration: float
    #: The request was sent twice, because its connection was lost before the first byte of an answer.
    was_repeated: bool = False
    #: The provider's id of this request; empty if the headers name none.
    request_id: str = field(default="", init=False)
    #: The Date header in UTC; None if it is missing or malformed.
    answered_at: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.answered_at = http_date(self.headers.get("Date", ""))
        for name in _REQUEST_ID_HEADERS:
            value = self.headers.get(name, "")
            if value and value.isascii() and value.isprintable():
                self.request_id = value[:_MAX_REQUEST_ID]
                return

    @property
    def is_too_large(self) -> bool:
        return self.problem == TOO_LARGE

    def no_answer(self, why: str) -> NoAnswer:
        """Return the error for a reply that cannot be used. ``why`` names a place, never a value."""
        message = f"{self.method} {self.path}: {why} (HTTP {self.status_code})"
        error = NoAnswer(message, status_code=self.status_code, request_id=self.request_id)
        error.was_repeated = self.was_repeated
        return error


def http_date(value: str) -> datetime | None:
    """Parse an HTTP date (RFC 9110, the form that servers must send) to aware UTC. None for any other text."""
    if not _HTTP_DATE.fullmatch(value):
        return None
    try:
        return parsedate_to_datetime(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def number_in(value: str | None) -> int | None:
    """Return the number of a header; None if it is missing or malformed."""
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A successful answer. Its repr hides the data, which has payers and bank accounts."""

    #: A struct of ``schemas``, a list of them, a page, or None (delete).
    data: T = field(repr=False)
    status_code: int
    #: Empty if the provider sent none.
    request_id: str
    #: The Date header in UTC; None if it is missing or malformed.
    answered_at: datetime | None
    #: Seconds from before sending until the last byte, of the last attempt.
    duration: float
    #: The request was sent twice in a row with the same key: it may have been executed before this answer.
    was_repeated: bool = False


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event as the provider wrote it: ``body`` is its exact JSON text, not yet decoded."""

    body: bytes = field(repr=False)


class PageUnreadable(NoAnswer):
    """A page is too large, or one of its items is not JSON. A page of fewer items may be readable."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The place of items that the client cannot read, not even alone: an id, or the span of time of their creation."""

    id: str = ""
    span: tuple[datetime, datetime] | None = None

    def __str__(self) -> str:
        where = self.id or "its id is unknown"
        if self.span is not None:
            where = "created from {} to {}".format(*map(datetime.isoformat, self.span))
        return f"an item cannot be read ({where})"


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """One page of a list, newest first."""

    items: list[T] = field(repr=False)
    has_more: bool
    #: ``starting_after`` of the next page: the id of the last item that has one, or None.
    cursor: str | None
    #: One message for each item that could not be read. It names the place.
    unreadable: tuple[str, ...] = ()
    #: When the item of the cursor was created; None if it does not say.
    reached: datetime | None = None
    #: The items that are missing from the page.
    unread: Unread | None = None


#: No list has more items: ten times the largest page.
_MAX_ITEMS = 1000


class _Page(msgspec.Struct):
    object: str
    has_more: bool
    data: list[msgspec.Raw]


class _Data(msgspec.Struct):
    data: list[msgspec.Raw]


class _Identity(msgspec.Struct):
    id: schemas.Id
    created_at: Any = None


_pages = msgspec.json.Decoder(_Page)
_data = msgspec.json.Decoder(_Data)
_identities = msgspec.json.Decoder(_Identity)


def answer(reply: Reply, data: T) -> Answer[T]:
    """Return the data of a reply with its status, request id and time."""
    return Answer(
        data=data,
        status_code=reply.status_code,
        request_id=reply.request_id,
        answered_at=reply.answered_at,
        duration=reply.duration,
        was_repeated=reply.was_repeated,
    )


def resource(
    reply: Reply, struct: type[schemas.ResourceT], kind: str, expected_id: str | None = None
) -> Answer[schemas.ResourceT]:
    """Read one object of the kind. NoAnswer if it is incomplete, of another kind or another object."""
    item = _read(reply, lambda: _resource(_whole_body(reply), struct, kind))
    if expected_id is not None and getattr(item, "id", None) != expected_id:
        raise reply.no_answer("$.id is another object's")
    return answer(reply, item)


def resources(reply: Reply, struct: type[schemas.ResourceT], kind: str) -> Answer[list[schemas.ResourceT]]:
    """Read a list without pages: ``{data: [...]}``."""
    items = _read(reply, lambda: _data.decode(_whole_body(reply)).data)
    return answer(reply, _each(reply, items, lambda raw: _resource(raw, struct, kind)))


def payment_methods(reply: Reply) -> Answer[list[schemas.PaymentMethod]]:
    """Read the payment methods. The spec shows only their code (spec, "Payment method")."""
    items = _read(reply, lambda: _data.decode(_whole_body(reply)).data)
    return answer(
        reply, _each(reply, items, lambda raw: schemas.parse_payment_method(schemas.decode_object(bytes(raw))))
    )


def whole(answer: Answer[PageOf[T]]) -> Answer[PageOf[T]]:
    """Return the page if each of its items could be read. NoAnswer, with the place, otherwise."""
    for problem in answer.data.unreadable:
        raise NoAnswer(problem, status_code=answer.status_code, request_id=answer.request_id)
    return answer


def page(reply: Reply, struct: type[schemas.ResourceT], kind: str, limit: int) -> Answer[PageOf[schemas.ResourceT]]:
    """Read one page of a list. ``unreadable`` names items that could not be read; the other items are returned."""
    listed = _page(reply, limit)
    items: list[schemas.ResourceT] = []
    unreadable = list(listed.unreadable)
    for index, raw in enumerate(listed.items):
        try:
            items.append(_read(reply, partial(_resource, raw, struct, kind), f"$.data[{index}]: "))
        except NoAnswer as error:
            unreadable.append(str(error))
    return answer(reply, replace(listed, items=items, unreadable=tuple(unreadable)))


def event_page(reply: Reply, limit: int) -> Answer[PageOf[RawEvent]]:
    """Read one page of events, each as its exact bytes, so that a malformed one does not affect the others."""
    listed = _page(reply, limit)
    return answer(reply, replace(listed, items=[RawEvent(bytes(raw)) for raw in listed.items]))


def _page(reply: Reply, limit: int) -> PageOf[Any]:
    """Return the items of a page as JSON. PageUnreadable if they cannot be read, unless ``limit`` is one item.

    An item that is not JSON is returned as it is; an item that is too large is named.
    """
    if reply.is_too_large:
        _refuse_several(reply, reply.problem, limit)
        found = Unread(_first_id(reply))
        return PageOf([], True, found.id or None, (str(found),), unread=found)
    listed, item = _read(reply, lambda: _listed(_whole_body(reply)))
    if listed.object != "list":
        raise reply.no_answer("$.object is not list")
    if len(listed.data) > _MAX_ITEMS:
        raise reply.no_answer("more items than a page may have")
    if item:
        _refuse_several(reply, "an item is not JSON", limit)
        return PageOf([msgspec.Raw(item)], listed.has_more, _first_id(reply) or None)
    cursor, reached = _last(listed.data)
    return PageOf(listed.data, listed.has_more, cursor, reached=reached)


def _listed(body: bytes) -> tuple[_Page, bytes]:
    """Split off the items if only they are not JSON. Returns the page, then without items, and their text."""
    try:
        return _pages.decode(body), b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        item, rest = first_item.cut(body)
        try:
            return _pages.decode(rest), item
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise error from None


def _refuse_several(reply: Reply, why: str, limit: int) -> None:
    if limit > 1:
        raise PageUnreadable(
            f"{reply.method} {reply.path}: {why}", status_code=reply.status_code, request_id=reply.request_id
        )


def _first_id(reply: Reply) -> str:
    return _identity(msgspec.Raw(b'{"id": %b}' % (first_item.first_id(reply.body) or b'""'))).id


def _resource(raw: bytes | msgspec.Raw, struct: type[schemas.ResourceT], kind: str) -> schemas.ResourceT:
    item = schemas.parse_resource(schemas.decode_object(bytes(raw)), struct)
    if item.object != kind:
        raise schemas.WireError(f"$.object is not {kind}")
    prefix = ID_PREFIXES.get(kind)
    if prefix is not None and not str(getattr(item, "id", "")).startswith(prefix):
        raise schemas.WireError(f"$.id does not begin with {prefix}")
    return item


def _last(items: list[msgspec.Raw]) -> tuple[str | None, datetime | None]:
    """Return the id to continue from, and when its item was created.

    Items after it that have no id are read again; none is skipped.
    """
    last = next((found for raw in reversed(items) if (found := _identity(raw)).id), None)
    return (last.id, schemas.time_of(last.created_at)) if last is not None else (None, None)


def _identity(raw: msgspec.Raw) -> _Identity:
    try:
        return _identities.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Identity(id="")


def _each(reply: Reply, items: list[msgspec.Raw], parse: Callable[[msgspec.Raw], T]) -> list[T]:
    return [_read(reply, partial(parse, raw), f"$.data[{index}]: ") for index, raw in enumerate(items)]


def _whole_body(reply: Reply) -> bytes:
    if reply.problem:
        raise schemas.WireError(reply.problem)
    return reply.body


@sensitive_variables()  # also below: what reads the body
def _read(reply: Reply, read: Callable[[], T], place: str = "") -> T:
    """Call ``read``. Its error becomes NoAnswer, raised outside the except block because the error holds the body."""
    try:
        return read()
    except schemas.WireError as error:
        why = str(error)
    except msgspec.DecodeError as error:
        why = str(error)
    except (UnicodeDecodeError, RecursionError):
        why = "not JSON"
    raise reply.no_answer(place + why)
