"""A language in which every message stands in ⟦brackets⟧: a word outside of them cannot be translated."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.utils import translation

_WORDS = re.compile(r"[A-Za-z]{2,}")
#: Attributes that people read or hear.
_SPOKEN = ("title", "aria-label", "alt", "placeholder", "data-label")
#: Elements whose text is no text for people, or is shown as it was sent.
_UNREAD = {"script", "style", "pre", "code"}


def mark_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = translation._trans  # type: ignore[attr-defined]

    def mark(real: Callable[..., str]) -> Callable[..., str]:
        return lambda *args: f"⟦{real(*args)}⟧"

    for name in ("gettext", "pgettext", "ngettext", "npgettext"):
        monkeypatch.setattr(backend, name, mark(getattr(backend, name)))


def unmarked(text: str) -> list[str]:
    """Words outside the brackets; what is put into a message is inside."""
    while (inner := re.sub(r"⟦[^⟦⟧]*⟧", " ", text)) != text:
        text = inner
    return _WORDS.findall(text)


class Words(HTMLParser):
    """What people read on a page: its texts, and the attributes that are read aloud."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._texts: list[str] = []
        self._unread = 0
        self.feed(html)
        self.close()
        # In one piece, because a message may have elements within.
        self.found.append(" ".join(self._texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in _UNREAD
        self.found += [value for name, value in attrs if name in _SPOKEN and value]

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in _UNREAD

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self._texts.append(data)
