"""What calls return, and the strict reading of 2xx replies (spec, "Resources and their fields")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from payments_integration import wire
from payments_integration.client import splitting
from payments_integration.client.pacing import http_date
from payments_integration.client.reply import Reply
from payments_integration.exceptions import NoAnswer

T = TypeVar("T")

#: The prefix of the ids of each kind (spec, "Resources and their fields").
PREFIXES: dict[str, str] = {
    "payment": "pay_",
    "payout": "pout_",
    "refund": "ref_",
    "deposit_reference": "dep_",
    "webhook_endpoint": "whk_",
}


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A successful answer. Its repr shows no data: that holds payers and bank accounts."""

    #: A wire struct, a list of them, a page, or None (delete).
    data: T = field(repr=False)
    status_code: int
    #: Empty when the provider sent none.
    request_id: str
    #: The Date header in UTC; None when it is missing or unparsable.
    answered_at: datetime | None
    #: Seconds from before sending until the last byte, of the last attempt.
    duration: float


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event as the provider wrote it: ``body`` is its exact JSON text, not looked into."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """One page of a list, newest first."""

    items: list[T] = field(repr=False)
    has_more: bool
    #: ``starting_after`` of the next page: the id of the last item; None when no item has one.
    cursor: str | None
    #: What was wrong with the items that could not be read, by their place.
    unreadable: tuple[str, ...] = ()


class _Page(msgspec.Struct):
    object: str
    has_more: bool
    data: list[msgspec.Raw]


class _Data(msgspec.Struct):
    data: list[msgspec.Raw]


class _Identity(msgspec.Struct):
    id: wire.Id
    object: Any = None


_pages = msgspec.json.Decoder(_Page)
_data = msgspec.json.Decoder(_Data)
_identities = msgspec.json.Decoder(_Identity)
_raws = msgspec.json.Decoder(msgspec.Raw)


def answer(reply: Reply, data: T) -> Answer[T]:
    """Wrap what was read from a reply."""
    return Answer(
        data=data,
        status_code=reply.status_code,
        request_id=reply.request_id,
        answered_at=http_date(reply.headers.get("Date", "")),
        duration=reply.duration,
    )


def resource(
    reply: Reply, struct: type[wire.ResourceT], kind: str, expected_id: str | None = None
) -> Answer[wire.ResourceT]:
    """One object of the kind; NoAnswer when it is another kind, another object or not complete."""
    item = _guard(reply, lambda: _resource(_whole(reply), struct, kind))
    if expected_id is not None and getattr(item, "id", None) != expected_id:
        raise reply.no_answer("$.id is another object's")
    return answer(reply, item)


def resources(reply: Reply, struct: type[wire.ResourceT], kind: str) -> Answer[list[wire.ResourceT]]:
    """A list without paging: ``{data: [...]}``."""
    items = _guard(reply, lambda: _data.decode(_whole(reply)).data)
    return answer(reply, _each(reply, items, lambda raw: _resource(raw, struct, kind)))


def payment_methods(reply: Reply) -> Answer[list[wire.PaymentMethod]]:
    """The payment methods; only their code is known (spec, "Payment method")."""
    items = _guard(reply, lambda: _data.decode(_whole(reply)).data)
    return answer(reply, _each(reply, items, lambda raw: wire.parse_payment_method(wire.decode_object(bytes(raw)))))


def page(reply: Reply, struct: type[wire.ResourceT], kind: str) -> Answer[PageOf[wire.ResourceT]]:
    """One page of a list; NoAnswer that names the place when an item is malformed."""
    found = tolerant_page(reply, struct, kind)
    for problem in found.data.unreadable:
        raise NoAnswer(problem, status_code=reply.status_code, request_id=reply.request_id)
    return found


def tolerant_page(reply: Reply, struct: type[wire.ResourceT], kind: str) -> Answer[PageOf[wire.ResourceT]]:
    """One page of a list; a malformed item is named in ``unreadable`` and does not hide the others."""
    listed = _page(reply)
    items: list[wire.ResourceT] = []
    unreadable: list[str] = []
    for index, raw in enumerate(listed.data):
        try:
            items.append(_guard(reply, partial(_resource, raw, struct, kind), f"$.data[{index}]: "))
        except NoAnswer as error:
            unreadable.append(str(error))
    return answer(
        reply,
        PageOf(items=items, has_more=listed.has_more, cursor=_last_id(listed.data), unreadable=tuple(unreadable)),
    )


def event_page(reply: Reply) -> Answer[PageOf[RawEvent]]:
    """One page of events, each as its exact bytes: a malformed event does not hide the others."""
    listed = _page(reply)
    items = [RawEvent(bytes(raw)) for raw in listed.data]
    return answer(reply, PageOf(items=items, has_more=listed.has_more, cursor=_last_id(listed.data)))


def event(reply: Reply, expected_id: str) -> Answer[RawEvent]:
    """One event as its exact bytes, once it is the one that was asked for."""
    raw = _guard(reply, lambda: _raws.decode(_whole(reply)))
    identity = _identity(raw)
    if identity.object != "event":
        raise reply.no_answer("$.object is not event")
    if identity.id != expected_id:
        raise reply.no_answer("$.id is another object's")
    return answer(reply, RawEvent(bytes(raw)))


def _page(reply: Reply) -> _Page:
    listed = _guard(reply, lambda: _listed(_whole(reply)))
    if listed.object != "list":
        raise reply.no_answer("$.object is not list")
    return listed


def _listed(body: bytes) -> _Page:
    try:
        return _pages.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Perhaps of one item alone: then the others count.
        try:
            parts = splitting.members(body)
            raws = [msgspec.Raw(item) for item in splitting.items(parts.pop("data"))]
            rest = {name: msgspec.json.decode(value) for name, value in parts.items()}
            return msgspec.convert({**rest, "data": raws}, _Page)
        except (ValueError, KeyError, RecursionError):
            raise error from None


def _resource(raw: bytes | msgspec.Raw, struct: type[wire.ResourceT], kind: str) -> wire.ResourceT:
    item = wire.parse_resource(wire.decode_object(bytes(raw)), struct)
    if item.object != kind:
        raise wire.WireError(f"$.object is not {kind}")
    prefix = PREFIXES.get(kind)
    if prefix is not None and not str(getattr(item, "id", "")).startswith(prefix):
        raise wire.WireError(f"$.id does not begin with {prefix}")
    return item


def _last_id(items: list[msgspec.Raw]) -> str | None:
    """The id to continue from. After items without one that repeats some, and skips none."""
    return next((found for raw in reversed(items) if (found := _identity(raw).id)), None)


def _identity(raw: msgspec.Raw) -> _Identity:
    try:
        return _identities.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Identity(id="")


def _each(reply: Reply, items: list[msgspec.Raw], parse: Callable[[msgspec.Raw], T]) -> list[T]:
    return [_guard(reply, partial(parse, raw), f"$.data[{index}]: ") for index, raw in enumerate(items)]


def _whole(reply: Reply) -> bytes:
    if reply.problem:
        raise wire.WireError(reply.problem)
    return reply.body


def _guard(reply: Reply, read: Callable[[], T], place: str = "") -> T:
    """Run a reader; what it cannot read becomes NoAnswer, raised apart from an error that holds the body."""
    try:
        return read()
    except wire.WireError as error:
        why = str(error)
    except msgspec.DecodeError as error:
        why = str(error)
    except (UnicodeDecodeError, RecursionError):
        why = "no JSON"
    raise reply.no_answer(place + why)
