"""Check the fields of the control interface's bodies. An error names the field and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from .catalog import MAX_AMOUNT, METHODS
from .clock import parse_iso
from .faults import DELIVERY_KINDS, REQUEST_KINDS
from .project import MAX_FUNDING
from .protocol import (
    CATALOGUE,
    COUNTRIES,
    CURRENCIES,
    EVENT_TYPES,
    OPERATION_IDS,
    REQUEST_METHODS,
    ApiError,
    Json,
)
from .validation import MAX_TEXT, is_web_url

#: The farthest that the clock can be moved at once: a hundred years, in seconds.
MAX_SECONDS: Final = 3_155_760_000
_KEY: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True)
class Field:
    """One field of a body. ``allowed`` completes "This must be …". null counts as absent unless it is ``nullable``."""

    allowed: str
    fits: Callable[[Any], bool]
    required: bool = False
    nullable: bool = False


Fields: TypeAlias = Mapping[str, Field]


def check(data: Json, known: Fields) -> Json:
    """Return the given fields. Raises parameter_invalid and parameter_missing."""
    for name in data:
        if name not in known:
            allowed = f"Use {', '.join(known)}." if known else "This request takes none."
            raise ApiError("parameter_invalid", f"This parameter is not known. {allowed}", param=name)
    found: Json = {}
    for name, field in known.items():
        value = data.get(name)
        if value is None:
            if field.required:
                raise ApiError("parameter_missing", f"This is required. It must be {field.allowed}.", param=name)
            if field.nullable and name in data:
                found[name] = None
        elif field.fits(value):
            found[name] = value
        else:
            raise ApiError("parameter_invalid", f"This must be {field.allowed}.", param=name)
    return found


def one_of(options: Iterable[str]) -> Field:
    """Accept one text of a fixed set."""
    known = tuple(options)
    return Field(f"one of {', '.join(known)}", lambda value: isinstance(value, str) and value in known)


def some_of(options: Iterable[str], *, at_least: int = 0) -> Field:
    """Accept a list of texts of a fixed set."""
    known = tuple(options)

    def fits(value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) >= at_least
            and all(isinstance(item, str) and item in known for item in value)
        )

    return Field(f"a list with any of {', '.join(known)}", fits)


def integer(low: int, high: int, unit: str = "") -> Field:
    """Accept an integer within bounds."""
    return Field(f"an integer from {low} to {high}{unit}", lambda value: type(value) is int and low <= value <= high)


def number(low: float, high: float, unit: str = "") -> Field:
    """Accept a finite number within bounds."""

    def fits(value: Any) -> bool:
        return type(value) in (int, float) and low <= value <= high and math.isfinite(value)

    return Field(f"a number from {low:g} to {high:g}{unit}", fits)


def _is_moment(value: Any) -> bool:
    if value is True:
        return True
    try:
        return isinstance(value, str) and bool(parse_iso(value))
    except (ValueError, OverflowError):
        return False


MINOR_UNITS: Final = ", in minor units"
TEXT: Final = Field(
    f"a string of 1 to {MAX_TEXT} characters", lambda value: isinstance(value, str) and 0 < len(value) <= MAX_TEXT
)
FLAG: Final = Field("true or false", lambda value: isinstance(value, bool))
TRUE: Final = Field("true", lambda value: value is True)
STRING: Final = Field("a string", lambda value: isinstance(value, str))
OBJECT: Final = Field("an object", lambda value: isinstance(value, dict))
KEY: Final = Field(
    "an API key of 1 to 255 visible ASCII characters",
    lambda value: isinstance(value, str) and _KEY.fullmatch(value) is not None,
)
URL: Final = Field("an absolute http or https URL", lambda value: isinstance(value, str) and is_web_url(value))
MOMENT: Final = Field("true or an ISO 8601 date-time with a time zone", _is_moment)
TEXTS: Final = Field(
    "a list of strings", lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value)
)
SECONDS: Final = number(-MAX_SECONDS, MAX_SECONDS, " of seconds")
CURRENCY: Final = one_of(CURRENCIES)
METHOD_LIST: Final = some_of(METHODS)


def required(field: Field) -> Field:
    """Return the same field as a required one."""
    return replace(field, required=True)


#: The bodies of the actions on an object. The other actions have none. Unknown fields are refused, because a misspelt
#: amount must not pay the whole payment.
OBJECT_FIELDS: Final[dict[tuple[str, str], Fields]] = {
    ("payments", "pay"): {"amount": integer(1, MAX_AMOUNT, MINOR_UNITS)},
    ("payments", "fail"): {"reason": TEXT},
    ("payouts", "fail"): {"reason": TEXT},
    ("payouts", "return"): {"reason": TEXT},
    ("deposit-references", "transfer"): {"amount": required(integer(1, MAX_AMOUNT, MINOR_UNITS))},
    ("events", "redeliver"): {"endpoint_id": TEXT},
}
FAULT_FIELDS: Final[Fields] = {
    "kind": required(one_of((*REQUEST_KINDS, *DELIVERY_KINDS))),
    "times": replace(integer(1, 1_000_000_000), allowed="an integer above 0, or null for no end", nullable=True),
    "probability": number(0, 1),
    "method": one_of(REQUEST_METHODS),
    "path": Field("a path such as /payments", lambda value: isinstance(value, str) and value.startswith("/")),
    "operation": one_of(OPERATION_IDS),
    "event_type": one_of(EVENT_TYPES),
    "endpoint_id": TEXT,
    "api_key": KEY,
    "work": FLAG,
    "status": integer(200, 599),
    "code": one_of(CATALOGUE),
    "retry_after": STRING,
    "delay": number(0, MAX_SECONDS, " of seconds"),
    "count": integer(1, 1_000),
}
#: The bodies of the actions on a project. The other actions have none.
PROJECT_FIELDS: Final[dict[str, Fields]] = {
    "fund": {"currency": required(CURRENCY), "amount": required(integer(1, MAX_FUNDING, MINOR_UNITS))},
    "reserve": {"currency": required(CURRENCY), "amount": required(integer(0, MAX_FUNDING, MINOR_UNITS))},
    "clock": {"advance": SECONDS, "offset": SECONDS, "freeze": MOMENT, "unfreeze": TRUE},
    # Any text, because the trigger's own error suggests the type that was meant.
    "trigger": {
        "event": replace(STRING, allowed=f"one of {', '.join(EVENT_TYPES)}", required=True),
        "set": OBJECT,
        "object": STRING,
    },
    "faults": FAULT_FIELDS,
    "endpoints": {"url": required(URL), "events": some_of(EVENT_TYPES, at_least=1), "secret": TEXT},
    "projects": {"api_key": required(KEY)},
    "keys": {"api_key": required(KEY)},
    "revoke": {"api_key": KEY},
    "whitelist": {"account_number": required(TEXT)},
    "terms": {
        "active": FLAG,
        "countries": some_of(COUNTRIES),
        "forbidden_methods": METHOD_LIST,
        "unavailable_methods": METHOD_LIST,
        "broken_methods": METHOD_LIST,
        "blocked_payers": TEXTS,
        "require_whitelist": FLAG,
    },
}
