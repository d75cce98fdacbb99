"""No invisible character of foreign text stays invisible."""

from __future__ import annotations

import pytest

from payments_integration.validation.text import visible


@pytest.mark.parametrize("value", ["", "00123", "Banco Ñandú 漢字 🦙", "O'Higgins & <b>"])
def test_visible_text_is_unchanged(value: str) -> None:
    assert visible(value) == value


@pytest.mark.parametrize(
    "char", ["\x00", "\n", "\x7f", "\u061c", "\u200b", "\u202e", "\u2065", "\ud800", "\U000e0041"]
)
def test_an_invisible_character_is_written_out(char: str) -> None:
    assert visible(f"1{char}2") == f"1\\u{ord(char):04x}2"


def test_line_breaks_can_be_kept() -> None:
    assert visible("a\n\tb\r", keep="\n\t") == "a\n\tb\\u000d"
