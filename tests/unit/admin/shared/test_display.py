"""Values are shown completely and safely."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import translation

from payments_integration.admin.shared import display
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database


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


@pytest.mark.parametrize(
    ("event_type", "words"),
    [
        ("payment.requires_action", "payment: requires action"),
        ("payout.delayed", "payout: delayed"),
        ("balance.updated", "balance: changed"),
        ("payment.quarked", "payment.quarked"),
        ("quark.created", "quark.created"),
        ("odd", "odd"),
    ],
)
def test_an_event_is_named_in_words_as_far_as_they_are_known(event_type: str, words: str) -> None:
    assert display.event_name(event_type) == words


def test_a_kind_is_named_in_words_as_far_as_it_is_known() -> None:
    assert [display.kind_word(kind) for kind in ("deposit_reference", "operation", "quark", "")] == [
        "deposit reference", "operation", "quark", display.EMPTY,
    ]  # fmt: skip


def test_seconds_have_one_decimal_as_the_language_writes_it() -> None:
    with translation.override("es"):
        assert display.seconds(0.44, signed=True) == "+0,4\xa0s"
        assert display.seconds(-1.25) == "-1,2\xa0s"
        assert display.seconds(-0.04, signed=True) == "+0,0\xa0s", "never minus zero"
    assert display.seconds(None) == display.EMPTY


def test_a_method_is_shown_as_words() -> None:
    assert display.method_name("cl_webpay_card") == "Webpay card"
    assert display.method_name("") == "–"


def test_the_payment_page_shows_the_name_and_keeps_the_code_with_the_identifiers(boss: Client) -> None:
    row = rows.payment(method_code="cl_webpay_card", country="CL")
    html = page(boss, url("payment", "change", row.pk))
    assert html.index("Webpay card") < html.index("cl_webpay_card")
