"""Mask personal data for users who may not see it: keys and structure stay, values become ``•••``.

Personal data is what an erasure removes (``Mirror.personal``). Values of keys that this version does not know are
masked too, because the provider may add a field with a person's name at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from payments_integration.exceptions import REFUSAL_CODES
from payments_integration.models import MIRRORS

#: Shown in place of a masked value.
MASK = "•••"

#: The fields of the bank account form that an error report must not contain.
SENSITIVE_FIELDS = ("holder_name", "document_number", "account_number")

_PERSONAL = frozenset(name for model in MIRRORS.values() for name in ("extra", *model.personal))
#: Objects whose members the spec defines, and the members that hold a code and nothing personal.
_SPECIFIED = frozenset({"payer", "destination", "next_action", "details"})
_CODES = frozenset({"type", "account_type", "bank_code"})
_CODE = r"[A-Za-z0-9_]{1,32}"
#: The form of a field's name. Any other key may be text that a person wrote, such as an address.
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"

#: The time at the start of an entry of an operation's note.
_ENTRY_TIME = r"[0-9]{4}-[0-9-]+ [0-9:]+(?: \w+)?: "
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = r'  File "[^"\n]+", line \d+, in [\w.<>]+'
_ERROR = r"[A-Za-z_][\w.]*"


def masked(value: Any) -> Any:
    """Mask the personal values in the JSON of an object, an event or a request. Keys and structure stay."""
    try:
        return _masked(value)
    except RecursionError:
        return MASK


def hidden(value: Any, *, codes: bool = False) -> Any:
    """Mask JSON that is personal as a whole. With ``codes``, keep codes such as a document's type."""
    try:
        return _hidden(value, codes)
    except RecursionError:
        return MASK


def field(name: str, value: Any) -> Any:
    return hidden(value, codes=name in _SPECIFIED)


def provider_error(value: Any) -> Any:
    """Mask the provider's error, except its codes."""
    if not isinstance(value, dict):
        return hidden(value)
    return {key: item if key in REFUSAL_CODES else hidden(item) for key, item in value.items()}


def body(raw: bytes) -> str | None:
    """Return the bytes of a request or an event, masked and indented; None if they are not a JSON object."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return json.dumps(masked(content), indent=2, ensure_ascii=False)


def traceback(text: str) -> str:
    """Return the frames and the class of an error. Messages are masked, and so is any text that is not a traceback."""
    return "\n".join(_traceback(text)) or MASK


def reason(text: str, raw: bytes) -> str:
    """Return the reason why a body cannot be used, with any text that it repeats from the body masked."""
    try:
        return without(text, json.loads(raw))
    except (ValueError, RecursionError):
        return text


def note(text: str, value: Any) -> str:
    """Return when and what was done from an operation's note, without comments and details, which follow a colon.

    ``value``: the operation's arguments. Their personal values are masked in the rest.
    """
    return without("\n".join(_entry(line) for line in text.splitlines() if not line.startswith(" ")), value)


def without(text: str, value: Any) -> str:
    """Mask the personal values of a JSON document in a text."""
    for found in sorted(_texts(value), key=len, reverse=True):
        text = text.replace(found, MASK)
    return text


def _entry(line: str) -> str:
    """Return a line of a note up to the colon after what was done."""
    time = re.match(_ENTRY_TIME, line)
    begun = time.end() if time else 0
    done, colon, _rest = line[begun:].partition(": ")
    return f"{line[:begun]}{done}: {MASK}" if colon else line


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _member(str(key), item) for name, (key, item) in zip(_names(value), value.items(), strict=True)}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _member(key: str, value: Any) -> Any:
    return _masked(value) if key in _plain() else _hidden(value, key in _SPECIFIED)


@cache
def _plain() -> frozenset[str]:
    """Return the keys without personal data: of mirrored objects, of an event's envelope, of a refund's arguments."""
    mirrored = {name for model in MIRRORS.values() for name in model.mirrored}
    return frozenset(mirrored - _PERSONAL | {"id", "object", "type", "data", "payment", "payout", "endpoint"})


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
    """Yield the keys. A key that is not a field's name is masked and numbered, so that none is lost."""
    for number, key in enumerate(value, 1):
        yield key if re.fullmatch(_NAME, str(key)) else f"{MASK} {number}"


def _is_code(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(_CODE, value) is not None


def _traceback(text: str) -> Iterator[str]:
    within = False
    for line in text.splitlines():
        if line == _TRACEBACK:
            within = True
            yield line
        elif within and re.fullmatch(_FRAME, line):
            yield line
        elif within and not line.startswith(" "):
            # The lines up to the next traceback are the message.
            within = False
            found = re.match(_ERROR, line)
            yield f"{found[0] if found else ''}: {MASK}"


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts that masking replaces, except texts under four characters, which occur inside other words."""
    level = [(value, masked(value))]
    while level:
        own, shown = level.pop()
        if isinstance(own, dict):
            level += zip(own.values(), shown.values(), strict=True) if isinstance(shown, dict) else ()
        elif isinstance(own, list):
            level += zip(own, shown, strict=True) if isinstance(shown, list) else ()
        elif isinstance(own, str) and shown == MASK and len(own) >= 4:
            yield own
