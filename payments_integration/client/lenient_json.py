"""Cut a JSON list answer into its items without decoding them.

For answers with one item that is not valid JSON (a lone surrogate, NaN, too deep nesting). The other items are still
read; otherwise reconciliation could not move past that page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: A string, a bracket, a comma, or the text between them.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\[\]{},"]+', re.DOTALL)
_MEMBER = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:(.*)', re.DOTALL)
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


def _parts(body: bytes, opening: bytes) -> Iterator[bytes]:
    """The texts between the commas of the outermost brackets."""
    body = body.strip(_SPACE)
    expected: list[bytes] = []
    begin = at = 0
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            raise ValueError("a string does not end")
        text, at = token[0], token.end()
        if not expected:
            if at != len(opening) or text != opening:
                raise ValueError(f"the text does not begin with {opening.decode()}")
            begin = at
        if text in _CLOSING:
            expected.append(_CLOSING[text])
        elif text in (b"]", b"}"):
            if expected.pop() != text:
                raise ValueError("the brackets do not match")
            if not expected:
                if at != len(body):
                    raise ValueError("text follows the last bracket")
                if body[begin : at - 1].strip(_SPACE):
                    yield body[begin : at - 1]
                return
        elif text == b"," and len(expected) == 1:
            yield body[begin : at - 1]
            begin = at
    raise ValueError("the last bracket is missing")
