"""Typed amounts, and amounts in words."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from payments_integration.admin.flows.forms import MoneyField, amount_in_words, parse_amount
from payments_integration.enums import Currency


@pytest.mark.parametrize(
    ("typed", "currency", "minor"),
    [
        ("10,50", "USD", 1050),
        (" 7 ", "CLP", 7),
        ("0.01", "BRL", 1),
        ("92233720368547758.07", "USD", 2**63 - 1),
        ("92,233,720,368,547,758.07", "USD", 2**63 - 1),
    ],
)
def test_a_field_gives_minor_units(typed: str, currency: str, minor: int) -> None:
    cleaned = MoneyField(currency=currency).clean(typed)
    assert (cleaned, type(cleaned)) == (minor, int)


@pytest.mark.parametrize(
    ("typed", "currency", "words"),
    [
        ("0", "CLP", "more than zero"),
        ("0,00", "USD", "more than zero"),
        ("92233720368547758.08", "USD", "too large"),
        ("1.000", "CLP", "more than one way. Write it like 123,450"),
        ("1.5", "CLP", "no decimals"),
        ("1.505", "USD", "more than one way. Write it like 1,234.50"),
        ("1.5050", "USD", "2 decimals"),
        ("x", "USD", "in digits"),
    ],
)
def test_an_invalid_amount_is_explained(typed: str, currency: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        parse_amount(typed, currency)


@pytest.mark.parametrize(
    ("language", "amount", "currency", "words"),
    [
        ("en", 1_000_000, "CLP", "one million Chilean pesos"),
        ("en", 123_450, "USD", "one thousand, two hundred and thirty-four US dollars and fifty cents"),
        ("en", 100, "USD", "one US dollar"),
        ("en", 5, "USD", "zero US dollars and five cents"),
        ("es", 1_000_000, "CLP", "un millón de pesos chilenos"),
        ("es", 1, "CLP", "un peso chileno"),
        ("es-mx", 2_121, "MXN", "veintiún pesos mexicanos con veintiún centavos"),
        ("es", 5_801, "PEN", "cincuenta y ocho soles peruanos con un céntimo"),
        ("es", 3_150, "USD", "treinta y un dólares estadounidenses con cincuenta centavos"),
        ("es", 21_000, "CLP", "veintiún mil pesos chilenos"),
        ("es", 31_000_000, "CLP", "treinta y un millones de pesos chilenos"),
        ("es", 1_121, "CLP", "mil ciento veintiún pesos chilenos"),
        ("pt-br", 1_250, "BRL", "doze reais e cinquenta centavos"),
        ("pt-br", 101, "BRL", "um real e um centavo"),
        ("pt-br", 200_000_000, "BRL", "dois milhões de reais"),
        ("pt-br", 21_000_000, "CLP", "vinte e um milhões de pesos chilenos"),
        ("pt-br", 1_200_000, "CLP", "um milhão e duzentos mil pesos chilenos"),
        ("fr", 1_250, "USD", "douze and 50/100 (dollars des États-Unis)"),
    ],
)
def test_an_amount_is_written_in_words_of_the_active_language(
    language: str, amount: int, currency: str, words: str
) -> None:
    with translation.override(language):
        assert amount_in_words(amount, currency) == words


@pytest.mark.parametrize("language", ["xx", "eu", None])
def test_an_unknown_language_falls_back_to_english(language: str | None) -> None:
    with translation.override(language):
        assert amount_in_words(1_000, "CLP") == "one thousand Chilean pesos"


def test_a_number_too_large_for_a_language_is_in_english() -> None:
    with translation.override("pt-br"):
        assert amount_in_words(2**63 - 1, "CLP").startswith("nine quintillion")


@pytest.mark.parametrize("currency", [*Currency.values, "XXX", "<b>"])
def test_every_currency_and_none_at_all_has_words(currency: str) -> None:
    for language in ("en", "es", "pt-br"):
        with translation.override(language):
            for amount in (1, 100, 2**63 - 1):
                assert amount_in_words(amount, currency)


def test_without_the_extra_an_amount_has_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.admin.flows.forms.find_spec", lambda name: None)
    assert amount_in_words(1_000, "CLP") == ""
