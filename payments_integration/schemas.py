"""Define the provider's JSON as typed structs (spec, "Resources and their fields").

Shared by ``client`` (answers) and ``projection`` (events). Decoding is strict: an integer is within int64, a time has
a zone, text is UTF-8, and no value is converted to another type. Malformed JSON raises :class:`WireError`. Unknown
fields are kept in ``extra``, unknown statuses as they are.

If a JSON object has the same key twice, the last one counts (case 16 of the failure catalogue).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import WireError as WireError
from payments_integration.money import INT64_MAX

#: The deepest nesting that is accepted: MariaDB refuses 32 levels, and the spec needs four.
MAX_DEPTH = 31

Int64 = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]
Time = Annotated[datetime, Meta(tz=True)]
#: Ids and codes are stored in indexed columns; longer ones are refused, never cut.
Id = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"\A[\x20-\x7e]+\Z")]
Code = Annotated[str, Meta(min_length=1, max_length=64)]
#: A currency names a balance.
CurrencyCode = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[!-~]+\Z")]
Text = Annotated[str, Meta(max_length=255)]
JsonObject = dict[str, Any]


class Resource(Struct, kw_only=True):
    """The fields that every mirrored object has. ``object`` names its kind."""

    object: str
    #: Fields of the answer that this version does not know.
    extra: JsonObject = {}

    def __repr__(self) -> str:
        # Payers, documents and bank accounts stay out of logs and tracebacks.
        shown = (f"{name}={value!r}" for name in ("id", "status") if (value := getattr(self, name, None)))
        return f"{type(self).__name__}({', '.join(shown)})"


class Payment(Resource, kw_only=True):
    id: Id
    status: Code
    amount: Int64
    amount_received: Int64
    fee: Int64 | None = None
    net_amount: Int64 | None = None
    currency: CurrencyCode
    country: Code
    method_code: Text
    method_family: Code
    flow: Code | None = None
    checkout_url: str | None = None
    refunded_amount: Int64 | None = None
    merchant_reference: Text | None = None
    payer: JsonObject | None = None
    next_action: JsonObject | None = None
    failure_reason: str | None = None
    metadata: JsonObject | None = None
    created_at: Time
    expires_at: Time | None = None
    succeeded_at: Time | None = None


class Payout(Resource, kw_only=True):
    id: Id
    status: Code
    amount: Int64
    fee: Int64 | None = None
    currency: CurrencyCode
    country: Code
    method_code: Text
    destination: JsonObject | None = None
    merchant_reference: Text | None = None
    failure_reason: str | None = None
    refund_id: Id | None = None
    metadata: JsonObject | None = None
    created_at: Time
    succeeded_at: Time | None = None


class Refund(Resource, kw_only=True):
    id: Id
    status: Code
    payment_id: Id
    payout_id: Id | None = None
    amount: Int64
    currency: CurrencyCode
    reason: str | None = None
    created_at: Time


class DepositReference(Resource, kw_only=True):
    id: Id
    status: Code
    country: Code
    currency: CurrencyCode
    method_code: Text
    merchant_reference: Text | None = None
    details: JsonObject
    created_at: Time


class Balance(Resource, kw_only=True):
    currency: CurrencyCode
    available: Int64
    pending: Int64
    reserve: Int64
    hold: Int64
    debt: Int64
    updated_at: Time | None = None


class WebhookEndpoint(Resource, kw_only=True):
    # A default, because the spec's table of endpoints does not list ``object``.
    object: str = "webhook_endpoint"
    id: Id
    url: str
    events: list[Text]
    status: Code
    created_at: Time | None = None
    secret: str | None = None

    def __repr__(self) -> str:
        return f"WebhookEndpoint(id={self.id!r}, url={self.url!r}, status={self.status!r})"


class Event(Struct, kw_only=True):
    """An event whose ``data`` is not checked yet: its struct depends on ``data.object``."""

    id: Id
    object: str
    type: Text
    created_at: Time
    data: JsonObject

    def __repr__(self) -> str:
        return f"Event(id={self.id!r}, type={self.type!r})"


class PaymentMethod(Struct, kw_only=True):
    """A payment method. The spec guarantees only the code ("Fields of a payment method record: not shown").

    ``extra`` has the rest.
    """

    code: Text
    extra: JsonObject = {}


class ErrorBody(Struct, kw_only=True):
    type: str
    code: str
    message: str
    request_id: str
    param: str | None = None


class ErrorEnvelope(Struct, kw_only=True):
    error: ErrorBody


AnyResource = Payment | Payout | Refund | DepositReference | Balance | WebhookEndpoint
ResourceT = TypeVar("ResourceT", bound=Resource)
StructT = TypeVar("StructT", bound=Struct)

RESOURCES: dict[str, type[AnyResource]] = {
    "payment": Payment,
    "payout": Payout,
    "refund": Refund,
    "deposit_reference": DepositReference,
    "balance": Balance,
    "webhook_endpoint": WebhookEndpoint,
}
#: The kinds that events carry.
EVENT_RESOURCES: dict[str, type[Payment | Payout | Refund | Balance]] = {
    "payment": Payment,
    "payout": Payout,
    "refund": Refund,
    "balance": Balance,
}
#: The fields of each kind that a column of their name mirrors. The rest: ``id`` is the key of the row, ``object`` its
#: kind, ``extra`` not a field of the provider's, and a secret is stored encrypted.
MIRRORED: dict[str, tuple[str, ...]] = {
    kind: tuple(name for name in struct.__struct_fields__ if name not in {"id", "object", "extra", "secret"})
    for kind, struct in RESOURCES.items()
}

#: Bounds of what every database stores.
EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
_event_decoder = msgspec.json.Decoder(Event)
_error_decoder = msgspec.json.Decoder(ErrorEnvelope)
_object_decoder = msgspec.json.Decoder(JsonObject)
# msgspec fills a struct's table of types at its first use. If two threads do so together, the process can crash, so a
# decoder of each struct fills it here.
for _kind in (*RESOURCES.values(), PaymentMethod):
    msgspec.json.Decoder(_kind)


def decode_event(body: bytes) -> Event:
    """Decode an event. Its ``data`` is still a plain dict: see :func:`event_resource`."""
    event: Event = _decode(_event_decoder, body)
    if event.object != "event":
        raise WireError("$.object is not event")
    # A text cannot nest deeper than its number of opening brackets.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        check_depth(event.data)
    event.created_at = _utc(event.created_at)
    return event


def event_resource(event: Event) -> Payment | Payout | Refund | Balance | None:
    """Return the mirrored object that the event carries; None if this version does not know its object.

    ``data.object`` names it: a later type of event, such as ``payment.refunded``, may carry a refund. Raises WireError
    if a type that the spec lists carries another object than its own, or the object lacks a field that the spec
    requires.
    """
    kind = event.data.get("object")
    if event.type in EVENT_TYPES and kind != event.type.partition(".")[0]:
        raise WireError(f"$.data.object does not fit the type {event.type}")
    struct = EVENT_RESOURCES.get(kind) if isinstance(kind, str) else None
    return None if struct is None else parse_resource(event.data, struct)


def decode_object(body: bytes) -> JsonObject:
    """Decode a JSON object with any fields."""
    data: JsonObject = _decode(_object_decoder, body)
    check_depth(data)
    return data


def decode_error(body: bytes) -> ErrorBody:
    envelope: ErrorEnvelope = _decode(_error_decoder, body)
    return envelope.error


def parse_resource(data: JsonObject, kind: type[ResourceT]) -> ResourceT:
    """Check a decoded object against its struct. Unknown fields go to ``extra``."""
    resource = _convert(data, kind)
    for name in _TIME_FIELDS[kind]:
        value = getattr(resource, name)
        if value is not None:
            setattr(resource, name, _utc(value))
    return resource


def parse_payment_method(data: JsonObject) -> PaymentMethod:
    return _convert(data, PaymentMethod)


def time_of(value: object) -> datetime | None:
    """Return a decoded time in UTC; None if it is not a time, or out of range."""
    try:
        return _utc(msgspec.convert(value, Time))
    except (msgspec.ValidationError, WireError):
        return None


def encode(value: Any) -> bytes:
    """Encode as compact JSON. Equal values give the same bytes."""
    return msgspec.json.encode(value)


def canonical(event: Event) -> bytes:
    """Encode the event's content in one canonical form, so that a repeated event can be recognised.

    The object's fields without a value are left out: a delivery may have them as null, and a list lack them.
    """
    data = {name: value for name, value in event.data.items() if value is not None}
    return msgspec.json.encode(msgspec.structs.replace(event, data=data), order="sorted")


def texts_in(value: object) -> Iterator[tuple[str, str]]:
    """Yield each text of a JSON value at any depth, after the key that it has, or that its list has."""
    level: list[tuple[str, Any]] = [("", value)]
    while level:
        name, item = level.pop()
        if isinstance(item, str):
            yield name, item
        elif isinstance(item, dict):
            level += item.items()
        elif isinstance(item, list):
            level += [(name, inner) for inner in item]


def check_depth(value: object) -> None:
    """Raise WireError if lists and objects nest deeper than MAX_DEPTH."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise WireError(f"nested deeper than {MAX_DEPTH} levels")


_FIELDS: dict[type[Struct], frozenset[str]] = {
    kind: frozenset(kind.__struct_fields__) - {"extra"} for kind in (*RESOURCES.values(), PaymentMethod)
}
_TIME_FIELDS: dict[type[Struct], tuple[str, ...]] = {
    kind: tuple(name for name in kind.__struct_fields__ if name.endswith("_at")) for kind in RESOURCES.values()
}


def _convert(data: JsonObject, kind: type[StructT]) -> StructT:
    fields = _FIELDS[kind]
    known, extra = data, {}
    if not fields.issuperset(data):
        known = {name: value for name, value in data.items() if name in fields}
        extra = {name: value for name, value in data.items() if name not in fields}
    try:
        struct = msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        raise WireError(str(error)) from None
    if extra:
        struct.extra = extra  # type: ignore[attr-defined]
    return struct


def _decode(decoder: msgspec.json.Decoder[StructT] | Any, body: bytes) -> Any:
    try:
        str(body, "utf-8")  # the decoder does not check strings in fields that it skips
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(str(error) if isinstance(error, msgspec.DecodeError) else "not UTF-8") from None
    except RecursionError:
        raise WireError("nested too deeply") from None


def _utc(value: datetime) -> datetime:
    """Return the same time in UTC. WireError outside the years that every database stores."""
    try:
        value = value.astimezone(UTC)
    except OverflowError:
        raise WireError("a time is out of range") from None
    if not EARLIEST <= value <= LATEST:
        raise WireError("a time is out of range")
    return value
