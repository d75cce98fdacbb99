"""Find the first item of a list whose JSON cannot be decoded: its text, and its id.

Used for a page of one item that is not valid JSON (a lone surrogate, NaN, too deep nesting) or that is too large to
read to its end. The list goes on after the id: without it no pass could move past this item.
"""

from __future__ import annotations

import re

from payments_integration.schemas import MAX_DEPTH

_STRING = rb'"(?:[^"\\]++|\\.)*+"'


def _balanced(depth: int) -> bytes:
    """Return a pattern for an array or object of at most this many levels. It never goes back: linear time."""
    deeper = b"|" + _balanced(depth - 1) if depth > 1 else b""
    return rb'[\[{](?:[^"\[\]{}]++|' + _STRING + deeper + rb")*+[\]}]"


#: The text up to the next comma or bracket of its own level.
_REST = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + b"|" + _balanced(MAX_DEPTH + 1) + rb")*+", re.DOTALL)
_NAME = re.compile(rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:\s*', re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_OBJECT = re.compile(rb"\s*\{")
_ARRAY = re.compile(rb"\[\s*")
_WHOLE_ARRAY = re.compile(_balanced(MAX_DEPTH + 2), re.DOTALL)


def cut(body: bytes) -> tuple[bytes, bytes]:
    """Return the text of all items, and the list without them. Use both only if the list has one item."""
    opening = _items(body)
    if opening is None:
        return b"", body
    array = _WHOLE_ARRAY.match(body, opening.start())
    # The item is too deep, or has a text without an end: its brackets say nothing, so the last bracket ends the list.
    end = array.end() - 1 if array is not None else body.rfind(b"]")
    if end < opening.end():
        return b"", body
    return body[opening.end() : end].rstrip(b" \t\r\n"), body[: opening.end()] + body[end:]


def first_id(body: bytes) -> bytes:
    """Return the JSON text of the first item's id, even if the rest of the answer is missing; b"" without an id."""
    opening = _items(body)
    at = _value_of(b"id", body, opening.end()) if opening is not None else None
    found = _TEXT.match(body, at) if at is not None else None
    return found[0] if found is not None else b""


def _items(body: bytes) -> re.Match[bytes] | None:
    at = _value_of(b"data", body, 0)
    return _ARRAY.match(body, at) if at is not None else None


def _value_of(name: bytes, body: bytes, at: int) -> int | None:
    """Return where a member's value begins, in the object that begins at ``at``; None if the text ends before it."""
    opening = _OBJECT.match(body, at)
    at = opening.end() if opening is not None else len(body)
    while (member := _NAME.match(body, at)) is not None:
        if member[1] == name:
            return member.end()
        rest = _REST.match(body, member.end())
        at = rest.end() if rest is not None else at
        if body[at : at + 1] != b",":
            return None
        at += 1
    return None
