"""Text that somebody else wrote, as a payer may see and copy it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

#: Nobody reads on, or copies more by hand.
MAX_SHOWN = 4000

#: Controls, what turns the reading direction or shows nothing, halves of a surrogate pair, breaks of a line.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Letters and marks of other categories that show nothing either.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A value to be read, typed or copied. It is true where there is one."""

    #: Safe to look at; not escaped.
    shown: str
    #: What a button may copy: the value itself, and empty where that is not what is shown.
    exact: str

    def __bool__(self) -> bool:
        return bool(self.shown)

    def __str__(self) -> str:
        return self.shown


def visible(value: str) -> str:
    """``value`` with what cannot be seen written out (``\\u202e``): nothing may hide or rearrange what somebody pays
    by. Cut after MAX_SHOWN characters.
    """
    shown = "".join(f"\\u{ord(char):04x}" if _is_unseen(char) else char for char in value[:MAX_SHOWN])
    return f"{shown}…" if len(value) > MAX_SHOWN else shown


def snippet(value: str) -> Snippet:
    """The value to be shown, and to be copied only if it is exactly what is shown."""
    shown = visible(value)
    return Snippet(shown, value if shown == value else "")


def _is_unseen(char: str) -> bool:
    return char in _BLANK or unicodedata.category(char) in _UNSEEN
