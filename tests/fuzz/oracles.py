"""Rules that hold for any bytes; written from the provider's spec, apart from the code that they judge."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db import models

from payments_integration.db.fields import ExactCharField

INT64 = (-(2**63), 2**63 - 1)
#: MariaDB refuses JSON that nests to 32 levels.
JSON_DEPTH = 31
#: MariaDB's datetime begins in the year 1000, timestamps of everybody in 1970; all end in 9999.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
#: Python's own limit for reading a number back.
MAX_DIGITS = 4300

KINDS = ("payment", "payout", "refund", "balance")
_HEADER = re.compile(r"t=([0-9]{1,15})((?:,v1=[0-9a-f]{64}){1,2})", re.ASCII)
_PLAIN_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z", re.ASCII)
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_]{1,40}", re.ASCII)
#: Fields with ids of the provider: always ASCII.
_IDS = (
    "id",
    "payment",
    "refund",
    "object_id",
    "payment_id",
    "refund_id",
    "deposit_reference",
    "deposit_reference_id",
    "payout",
    "payout_id",
)


# The signature


def digest(key: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over ``<t>.<body>`` in lower-case hex, as RFC 2104 has it."""
    secret = key.encode()
    if len(secret) > 64:
        secret = hashlib.sha256(secret).digest()
    secret = secret.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in secret) + timestamp.encode() + b"." + body).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in secret) + inner).hexdigest()


def may_accept(body: bytes, header: str, secrets: Iterable[str], now: float) -> bool:
    """Whether anybody who reads the spec kindly may accept this: one ``t`` in time, and one ``v1`` that fits it."""
    parts = [part.strip(" ").split("=", 1) for part in header.split(",")]
    times = [part[1] for part in parts if part[0] == "t" and len(part) == 2]
    if len(times) != 1 or not re.fullmatch("[0-9]+", times[0], re.ASCII) or len(times[0]) > 20:
        return False
    signed = {part[1] for part in parts if part[0] == "v1" and len(part) == 2}
    # The digits as they stand, and as a number: leading zeros are in the signed text or they are not.
    texts = {times[0], str(int(times[0]))}
    expected = {digest(secret, text, body) for secret in secrets for text in texts}
    return abs(now - int(times[0])) <= 300 and bool(expected & signed)


def must_accept(body: bytes, header: str, secrets: Iterable[str], now: float) -> bool:
    """Whether the header is to the letter what the spec has a delivery carry, and fits."""
    found = _HEADER.fullmatch(header)
    if found is None or str(int(found[1])) != found[1] or abs(now - int(found[1])) > 300:
        return False
    signed = set(re.findall("v1=([0-9a-f]{64})", found[2]))
    return any(digest(secret, found[1], body) in signed for secret in secrets)


# Rows


def problems(row: models.Model) -> list[str]:
    """What the strictest of the three databases would not store, or not give back as it is; empty: nothing."""
    return [
        f"{row._meta.model_name}.{field.attname}: {problem}"
        for field in row._meta.concrete_fields
        for problem in _value_problems(field, getattr(row, field.attname))
    ]


def _value_problems(field: Any, value: Any) -> Iterable[str]:
    if value is None:
        if not field.null and not field.primary_key:
            yield "null"
        return
    # A foreign key holds what its target's key is.
    field = getattr(field, "target_field", field)
    if isinstance(field, models.JSONField):
        yield from json_problems(value)
    elif isinstance(field, models.CharField | models.TextField):
        yield from _text_problems(value)
        if field.max_length is not None and isinstance(value, str) and len(value) > field.max_length:
            yield f"{len(value)} characters where {field.max_length} fit"
        if isinstance(field, ExactCharField) and field.name in _IDS and not str(value).isascii():
            yield "an id that is not ASCII"
    elif isinstance(field, models.DateTimeField):
        if not isinstance(value, datetime) or value.tzinfo is None or not FIRST <= value <= LAST:
            yield "a time out of range or without a zone"
    elif isinstance(field, models.BooleanField):
        if not isinstance(value, bool):
            yield f"no truth value but {type(value).__name__}"
    elif isinstance(field, models.IntegerField):
        low, high = (
            INT64
            if isinstance(field, models.BigIntegerField | models.PositiveBigIntegerField)
            else (-(2**31), 2**31 - 1)
        )
        if isinstance(field, models.PositiveIntegerField | models.PositiveBigIntegerField):
            low = 0
        if type(value) is not int or not low <= value <= high:
            yield f"no whole number in range but {type(value).__name__}"
    elif isinstance(field, models.FloatField):
        if not isinstance(value, float | int) or not math.isfinite(value):
            yield "no finite number"
    elif isinstance(field, models.BinaryField):
        if not isinstance(value, bytes | memoryview):
            yield f"no bytes but {type(value).__name__}"
    elif not isinstance(field, models.UUIDField | models.AutoField):
        yield f"a field that no rule is for: {type(field).__name__}"


def _text_problems(value: object) -> Iterable[str]:
    if not isinstance(value, str):
        yield f"no text but {type(value).__name__}"
    elif "\0" in value:
        yield "NUL"
    elif any("\ud800" <= letter <= "\udfff" for letter in value):
        yield "a lone surrogate"


def json_problems(value: Any, depth: int = 1) -> Iterable[str]:
    """What is in a JSON value that PostgreSQL or MariaDB refuse or that does not come back the same."""
    if isinstance(value, dict | list):
        if depth > JSON_DEPTH:
            yield f"JSON deeper than {JSON_DEPTH}"
            return
        for key in value if isinstance(value, dict) else ():
            yield from _text_problems(key)
        for child in value.values() if isinstance(value, dict) else value:
            yield from json_problems(child, depth + 1)
    elif isinstance(value, str):
        yield from _text_problems(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield "JSON with a number that is none"
        elif value.is_integer() and abs(value) >= 2**53:
            yield "JSON with a float that PostgreSQL gives back as another number"
    elif isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 10**MAX_DIGITS:
            yield "JSON with a number that cannot be read back"
    elif value is not None and not isinstance(value, bool):
        yield f"no JSON but {type(value).__name__}"


# Events


def reading(body: bytes) -> Any:
    """The document as a reader reads it that is not ours; ValueError where it is no JSON in UTF-8."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    return json.loads(body.decode("utf-8"), parse_constant=refuse, parse_int=_number)


def _number(digits: str) -> int:
    """The number; some that is as good where there are too many digits for Python."""
    return int(digits) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS


def misread(row: models.Model, data: dict[str, Any]) -> list[str]:
    """The mirrored fields that do not say what the provider's object says."""
    wrong = []
    names: tuple[str, ...] = getattr(row, "mirrored")  # noqa: B009  (of the mirrors alone)
    for name in names:
        ours, theirs = getattr(row, name), data.get(name)
        if theirs is None:
            same = ours is None
        elif isinstance(ours, datetime):
            same = isinstance(theirs, str) and same_time(ours, theirs)
        else:
            same = type(ours) is type(theirs) and stored(ours) == stored(theirs)
        if not same:
            wrong.append(name)
    return wrong


def same_time(ours: datetime, theirs: str) -> bool:
    """The same moment, to the microsecond."""
    try:
        read = datetime.fromisoformat(theirs.upper())  # RFC 3339 has a small t and z too
    except ValueError:
        return False
    return read.tzinfo is not None and abs((ours - read).total_seconds()) <= 1e-6


def stored(value: Any) -> Any:
    """The value as a mirror may have it. NUL has a substitute: PostgreSQL stores none."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {stored(key): stored(child) for key, child in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [stored(child) for child in value] if isinstance(value, list) else value


def must_understand(body: bytes) -> bool:
    """Whether this is beyond doubt an event as the spec describes it: it must not go to quarantine."""
    try:
        event = json.loads(body.decode("utf-8"), object_pairs_hook=_each_key_once)
    except (ValueError, RecursionError):
        return False
    if not isinstance(event, dict) or event.get("object") != "event" or not isinstance(event.get("data"), dict):
        return False
    data, kind = event["data"], event["data"].get("object")
    if kind not in KINDS or event.get("type") != f"{kind}.{data.get('status', 'updated')}":
        return False
    if set(event) != {"id", "object", "type", "created_at", "data"}:
        return False
    if not (_plain_text(event["id"]) and event["id"].startswith("evt_") and _plain_time(event["created_at"])):
        return False
    required, optional = _FIELDS[kind]
    if not required.keys() <= data.keys() or not data.keys() <= required.keys() | optional.keys() | {"object"}:
        return False
    return all(_PLAIN[rule](data[name]) for name, rule in required.items()) and all(
        name not in data or data[name] is None or _PLAIN[rule](data[name]) for name, rule in optional.items()
    )


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def _plain_text(value: object) -> bool:
    return isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) is not None


def _plain_time(value: object) -> bool:
    if not isinstance(value, str) or _PLAIN_TIME.fullmatch(value) is None:
        return False
    try:
        return 1971 <= datetime.fromisoformat(value).year <= 8999
    except ValueError:
        return False


def _plain_number(value: object) -> bool:
    return type(value) is int and INT64[0] <= value <= INT64[1]


def _plain_object(value: object) -> bool:
    return isinstance(value, dict) and all(_plain_text(key) and _plain_text(text) for key, text in value.items())


_PLAIN = {"text": _plain_text, "time": _plain_time, "int": _plain_number, "object": _plain_object}
_FIELDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "payment": (
        {"id": "text", "status": "text", "amount": "int", "amount_received": "int", "currency": "text"}
        | {"country": "text", "method_code": "text", "method_family": "text", "created_at": "time"},
        {"fee": "int", "net_amount": "int", "flow": "text", "checkout_url": "text", "refunded_amount": "int"}
        | {"merchant_reference": "text", "payer": "object", "next_action": "object", "failure_reason": "text"}
        | {"metadata": "object", "expires_at": "time", "succeeded_at": "time"},
    ),
    "payout": (
        {"id": "text", "status": "text", "amount": "int", "currency": "text", "country": "text"}
        | {"method_code": "text", "created_at": "time"},
        {"fee": "int", "destination": "object", "merchant_reference": "text", "failure_reason": "text"}
        | {"refund_id": "text", "metadata": "object", "succeeded_at": "time"},
    ),
    "refund": (
        {"id": "text", "status": "text", "payment_id": "text", "amount": "int", "currency": "text"}
        | {"created_at": "time"},
        {"payout_id": "text", "reason": "text"},
    ),
    "balance": (
        {"currency": "text", "available": "int", "pending": "int", "reserve": "int", "hold": "int", "debt": "int"},
        {"updated_at": "time"},
    ),
}
