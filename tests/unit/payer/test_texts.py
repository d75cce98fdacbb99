"""Foreign text is shown as it is, and nothing in it hides."""

from __future__ import annotations

import pytest

from payments_integration.payer.texts import MAX_SHOWN, snippet, visible


@pytest.mark.parametrize("value", ["", "00123", "Banco Ñandú 漢字 🦙", "O'Higgins & <b>"])
def test_visible_text_is_shown_and_can_be_copied(value: str) -> None:
    assert visible(value) == value
    assert snippet(value).exact == value
    assert bool(snippet(value)) is bool(value)


@pytest.mark.parametrize("char", [
    "\x00", "\n", "\x1b", "\x7f", "\x85", "\xad", "\u061c", "\u115f", "\u180e", "\u200b", "\u200f", "\u2028", "\u202e",
    "\u2066", "\u2800", "\u3164", "\ufeff", "\ufff9", "\ud800", "\U000e0041",
])  # fmt: skip
def test_invisible_characters_are_written_out_and_never_copied(char: str) -> None:
    found = snippet(f"12{char}34")
    assert char not in found.shown
    assert found.shown == f"12\\u{ord(char):04x}34"
    # A button must not copy what its owner did not see.
    assert found.exact == ""


def test_long_text_is_cut_and_never_copied() -> None:
    found = snippet("7" * (MAX_SHOWN + 1))
    assert found.shown == "7" * MAX_SHOWN + "…"
    assert found.exact == ""
    assert snippet("7" * MAX_SHOWN).exact == "7" * MAX_SHOWN
