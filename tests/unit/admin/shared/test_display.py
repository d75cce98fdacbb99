"""Values are shown completely and safely."""

from __future__ import annotations

import pytest

from payments_integration.admin.shared import display


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
def test_control_and_direction_characters_are_shown_escaped(value: str, shown: str) -> None:
    assert display.text(value) == shown


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_value_is_a_dash(value: str | None) -> None:
    assert display.text(value) == display.EMPTY
