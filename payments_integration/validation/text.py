"""Make text from others safe to read: no character is hidden, and none changes the order of what a person reads."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from django.utils.functional import Promise

if TYPE_CHECKING:
    # Only the stubs know that such a promise is a text.
    from django_stubs_ext import StrOrPromise as StrOrPromise
else:
    #: A text, or one of ``gettext_lazy``, which is translated when it is shown.
    StrOrPromise = str | Promise

#: Controls, characters that change the reading direction or show nothing, surrogates, and line separators.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Characters of other categories that show nothing either.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0")
#: Marks that show nothing and mean nothing. Marks that join letters or emojis are not included.
_MARKS = re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
#: The characters that may need to be escaped. Most text has only printable ASCII.
_SUSPECT = re.compile(r"[^ -~]")


def visible(value: str, *, keep: str = "") -> str:
    """Return ``value`` with each invisible character that is not in ``keep`` written out (``\\u202e``)."""
    return _SUSPECT.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), value)


def typed(value: str) -> str:
    """Return what a person meant to type: without invisible copied marks, such as marks of the reading direction."""
    return _MARKS.sub("", value)


def _escaped(char: str) -> str:
    is_invisible = char in _BLANK or unicodedata.category(char) in _CATEGORIES
    return f"\\u{ord(char):04x}" if is_invisible else char
