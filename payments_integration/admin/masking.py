"""What people see who may not see personal data: the shape of it, and nothing that names anybody.

What is personal is what an erasure would take (``Mirror.personal``). Keys that this version does not know are masked
too: a provider may add a field with a name in it any day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from payments_integration.models import MIRRORS

#: Stands for a value that is there and not shown.
MASK = "•••"

#: The fields of a form for a bank account that an error report must not repeat.
DESTINATION_FIELDS = ("holder_name", "document_number", "account_number")

_PERSONAL = frozenset(name for model in MIRRORS.values() for name in ("extra", *model.personal))
#: Names that hold nothing personal: those of mirrored objects, of the event around one, of a refund's arguments.
_PLAIN = frozenset(name for model in MIRRORS.values() for name in model.mirrored if name not in _PERSONAL) | {
    "id", "object", "type", "data", "payment", "payout", "endpoint",
}  # fmt: skip
#: Whose members are the spec's, and of them those that say what a thing is and not whose.
_SHAPES = frozenset({"payer", "destination", "next_action", "details"})
_CODES = frozenset({"type", "account_type", "bank_code"})
#: Of an error (spec, "Errors").
_REFUSAL = frozenset({"status_code", "type", "code", "param", "request_id"})
_CODE = re.compile(r"[A-Za-z0-9_]{1,32}")
#: What a name of a field looks like. Anything else is text that somebody chose, such as an address.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "[^"\n]+", line \d+, in [\w.<>]+')
_ERROR = re.compile(r"[A-Za-z_][\w.]*")


def masked(value: Any) -> Any:
    """JSON of an object, an event or a request, its personal values replaced; keys and shape stay."""
    try:
        return _masked(value)
    except RecursionError:
        return MASK


def hidden(value: Any, *, codes: bool = False) -> Any:
    """JSON that is personal throughout; with ``codes`` it still says, for instance, that a document is a passport."""
    try:
        return _hidden(value, codes)
    except RecursionError:
        return MASK


def field(name: str, value: Any) -> Any:
    """The value of a mirrored field that is personal."""
    return hidden(value, codes=name in _SHAPES)


def refusal(value: Any) -> Any:
    """The provider's error: everything but its codes is masked."""
    if not isinstance(value, dict):
        return hidden(value)
    return {key: item if key in _REFUSAL else hidden(item) for key, item in value.items()}


def body(raw: bytes) -> str | None:
    """The bytes of a request or an event, masked and laid out; None where they are not understood."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return json.dumps(masked(content), indent=2, ensure_ascii=False)


def traceback(text: str) -> str:
    """Where an error came from and its class. Its message may quote anything; so may a text that is no traceback."""
    return "\n".join(_traceback(text)) or MASK


def without(text: str, value: Any) -> str:
    """A text, such as a note, without what is personal in a JSON value."""
    for found in sorted(_texts(value), key=len, reverse=True):
        text = text.replace(found, MASK)
    return text


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _member(str(key), item) for name, (key, item) in zip(_names(value), value.items(), strict=True)}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _member(key: str, value: Any) -> Any:
    return _masked(value) if key in _PLAIN else _hidden(value, key in _SHAPES)


def _hidden(value: Any, codes: bool) -> Any:
    if isinstance(value, dict):
        return {
            name: item if codes and key in _CODES and _is_code(item) else _hidden(item, codes)
            for name, (key, item) in zip(_names(value), value.items(), strict=True)
        }
    if isinstance(value, list):
        return [_hidden(item, codes) for item in value]
    return value if value is None or value == "" else MASK


def _names(value: dict[str, Any]) -> Iterator[str]:
    """The keys; one that is no name is masked, and numbered, so that none is lost."""
    for number, key in enumerate(value, 1):
        yield key if _NAME.fullmatch(str(key)) else f"{MASK} {number}"


def _is_code(value: Any) -> bool:
    return isinstance(value, str) and _CODE.fullmatch(value) is not None


def _traceback(text: str) -> Iterator[str]:
    within = False
    for line in text.splitlines():
        if line == _TRACEBACK:
            within = True
            yield line
        elif within and _FRAME.fullmatch(line):
            yield line
        elif within and not line.startswith(" "):
            # What follows, up to the next traceback, is the message.
            within = False
            found = _ERROR.match(line)
            yield f"{found[0] if found else ''}: {MASK}"


def _texts(value: Any) -> Iterator[str]:
    """The texts that masking would replace; short ones would be found everywhere."""
    level = [(value, masked(value))]
    while level:
        own, shown = level.pop()
        if isinstance(own, dict):
            level += zip(own.values(), shown.values(), strict=True) if isinstance(shown, dict) else ()
        elif isinstance(own, list):
            level += zip(own, shown, strict=True) if isinstance(shown, list) else ()
        elif isinstance(own, str) and shown == MASK and len(own) >= 4:
            yield own
