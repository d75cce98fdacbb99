"""Read JSON that cannot be decoded as a whole: cut it into its items, or find the id of the first one.

For answers with one item that is not valid JSON (a lone surrogate, NaN, too deep nesting), and for answers that are
too large to be read to their end. Otherwise reconciliation could not move past such a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from payments_integration.schemas import MAX_DEPTH

#: No list has more items or members than this: ten times the largest page.
MAX_PARTS = 1000
#: Brackets that are followed one by one; only items that are nested too deeply have such brackets.
_MAX_BRACKETS = 1_000_000

_STRING = rb'"(?:[^"\\]++|\\.)*+"'


def _balanced(depth: int) -> bytes:
    """A pattern for an array or object of at most so many levels. It never goes back, so its time is linear."""
    deeper = b"|" + _balanced(depth - 1) if depth > 1 else b""
    return rb'[\[{](?:[^"\[\]{}]++|' + _STRING + deeper + rb")*+[\]}]"


#: The text up to the next comma or bracket of the level that it begins in. It skips a whole valid item at once: token
#: by token, an answer of many small objects would take ten seconds.
_REST = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + b"|" + _balanced(MAX_DEPTH + 1) + rb")*+", re.DOTALL)
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+[\[\]{}]", re.DOTALL)
_MEMBER = re.compile(rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:(.*)', re.DOTALL)
_NAME = re.compile(rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:\s*', re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_FIRST_MEMBER = re.compile(rb"\s*\{")
_FIRST_ITEM = re.compile(rb"\[\s*\{")
_CLOSING = {b"[": b"]", b"{": b"}"}
_SPACE = b" \t\r\n"


def members(body: bytes) -> dict[str, bytes]:
    """The JSON text of each member of an object; the last one counts where a name is repeated.

    Raises ValueError if the brackets do not match.
    """
    found: dict[str, bytes] = {}
    for part in _parts(body, b"{"):
        member = _MEMBER.fullmatch(part)
        if member is None:
            raise ValueError("not a member of an object")
        found[member[1].decode()] = member[2].strip(_SPACE)
    return found


def items(body: bytes) -> list[bytes]:
    """The JSON text of each item of an array. Raises ValueError if the brackets do not match."""
    return [part.strip(_SPACE) for part in _parts(body, b"[")]


def first_id(body: bytes) -> bytes:
    """The JSON text of the id of a list's first item, also if the rest of the answer is missing; b"" if not there."""
    at = _value_of(b"data", body, _FIRST_MEMBER.match(body))
    at = _value_of(b"id", body, _FIRST_ITEM.match(body, at) if at is not None else None)
    found = _TEXT.match(body, at) if at is not None else None
    return found[0] if found is not None else b""


def _value_of(name: bytes, body: bytes, opening: re.Match[bytes] | None) -> int | None:
    """Where the value of an object's member begins; None if the text ends before."""
    at = opening.end() if opening is not None else len(body)
    while (member := _NAME.match(body, at)) is not None:
        if member[1] == name:
            return member.end()
        at = _end_of_rest(body, member.end())
        if body[at : at + 1] != b",":
            return None
        at += 1
    return None


def _parts(body: bytes, opening: bytes) -> Iterator[bytes]:
    """The texts between the commas of the outermost brackets."""
    body = body.strip(_SPACE)
    if body[:1] != opening:
        raise ValueError(f"the text does not begin with {opening.decode()}")
    begin = at = 1
    for _ in range(MAX_PARTS):
        at = _end_of_rest(body, at)
        while body[at : at + 1] in _CLOSING:  # nested too deeply, or without an end
            at = _end_of_rest(body, _end_of_brackets(body, at))
        if body[at : at + 1] == b",":
            yield body[begin:at]
            begin = at = at + 1
        elif at + 1 == len(body) and body[at:] == _CLOSING[opening]:
            if body[begin:at].strip(_SPACE):
                yield body[begin:at]
            return
        else:
            raise ValueError("the brackets do not match, or a string does not end")
    raise ValueError("too many items")


def _end_of_rest(body: bytes, at: int) -> int:
    rest = _REST.match(body, at)
    return rest.end() if rest is not None else at


def _end_of_brackets(body: bytes, at: int) -> int:
    """Where the array or object ends that begins here, however deep."""
    expected: list[bytes] = []
    for _ in range(_MAX_BRACKETS):
        found = _TO_BRACKET.match(body, at)
        if found is None:
            raise ValueError("the last bracket is missing")
        at = found.end()
        bracket = body[at - 1 : at]
        if bracket in _CLOSING:
            expected.append(_CLOSING[bracket])
        elif expected.pop() != bracket:
            raise ValueError("the brackets do not match")
        if not expected:
            return at
    raise ValueError("too many brackets")
