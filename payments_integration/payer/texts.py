"""Prepare text from the provider or the merchant for a payer to see and copy."""

from __future__ import annotations

from typing import NamedTuple

from payments_integration.validation.text import visible as escaped

#: Longer text is cut.
MAX_SHOWN = 4000


class Snippet(NamedTuple):
    """A value to read, type or copy. It is falsy if it is empty."""

    #: Without invisible characters, but not escaped for HTML.
    shown: str
    #: The value that a button may copy; empty if the page does not show exactly this value.
    exact: str

    def __bool__(self) -> bool:
        return bool(self.shown)

    def __str__(self) -> str:
        return self.shown


def visible(value: str) -> str:
    """Return ``value`` with invisible characters written out (``\\u202e``), cut after MAX_SHOWN characters."""
    shown = escaped(value[:MAX_SHOWN])
    return f"{shown}…" if len(value) > MAX_SHOWN else shown


def snippet(value: str) -> Snippet:
    """Return the value to show, which may be copied only if it is shown exactly."""
    shown = visible(value)
    return Snippet(shown, value if shown == value else "")
