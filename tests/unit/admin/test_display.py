"""What a person decides by is shown as it is."""

from __future__ import annotations

import pytest

from payments_integration.admin import display


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ana\u202egro.elpmaxe@x", "ana\\u202egro.elpmaxe@x"),
        ("order\u200b-1", "order\\u200b-1"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("\ufeffx", "\\ufeffx"),
        ("a\x00b\x1b[2Jc", "a\\u0000b\\u001b[2Jc"),
        ("half \ud83d", "half \\ud83d"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Íñigo 日本 🙂", "Íñigo 日本 🙂"),
    ],
)
def test_nothing_hides_or_rearranges_text(value: str, shown: str) -> None:
    assert display.text(value) == shown


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_shown_as_such(value: str | None) -> None:
    assert display.text(value) == display.EMPTY
