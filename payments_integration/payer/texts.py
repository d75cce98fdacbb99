"""Text from the provider or the merchant, as a payer may see and copy it."""

from __future__ import annotations

from dataclasses import dataclass

from payments_integration.validation.text import visible as escaped

#: Longer text is cut.
MAX_SHOWN = 4000


@dataclass(frozen=True, slots=True)
class Snippet:
    """A value to read, type or copy. It is true if it is not empty."""

    #: Safe to look at; not escaped for HTML.
    shown: str
    #: What a button may copy: the value itself, or empty if the page does not show exactly that.
    exact: str

    def __bool__(self) -> bool:
        return bool(self.shown)

    def __str__(self) -> str:
        return self.shown


def visible(value: str) -> str:
    """``value`` with invisible characters written out (``\\u202e``), cut after MAX_SHOWN characters."""
    shown = escaped(value[:MAX_SHOWN])
    return f"{shown}…" if len(value) > MAX_SHOWN else shown


def snippet(value: str) -> Snippet:
    """The value to show, and to copy only if it is exactly what is shown."""
    shown = visible(value)
    return Snippet(shown, value if shown == value else "")
