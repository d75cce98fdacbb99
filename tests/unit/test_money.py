from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation
from hypothesis import given, strategies as st

from payments_integration.money import EXPONENTS, exponent, format_money, to_major, to_minor


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [
        ("990", "CLP", 990),
        ("990.00", "CLP", 990),
        (990, "CLP", 990),
        ("12.50", "USD", 1250),
        ("12.5", "PEN", 1250),
        (Decimal("12.34"), "BRL", 1234),
        (Decimal("1E3"), "COP", 100_000),
        (12, "MXN", 1200),
        ("0", "USD", 0),
        ("-1.05", "USD", -105),
        ("5", "XXX", 500),
        (Decimal("92233720368547758.07"), "USD", 2**63 - 1),
    ],
)
def test_whole_units_become_minor_units(amount: Decimal | str | int, currency: str, minor: int) -> None:
    assert to_minor(amount, currency) == minor


@pytest.mark.parametrize("amount", [12.5, 1.0, True, None, b"12", [1]])
def test_amounts_of_inexact_types_are_refused(amount: object) -> None:
    with pytest.raises(TypeError):
        to_minor(amount, "USD")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("amount", "currency"),
    [
        ("0.5", "CLP"),
        ("1.005", "USD"),
        ("0.001", "USD"),
        ("", "USD"),
        ("abc", "USD"),
        ("1e3", "USD"),
        ("1_000", "USD"),
        (" 1", "USD"),
        ("1,5", "USD"),
        ("NaN", "USD"),
        ("Infinity", "USD"),
        ("١٢", "USD"),
        (Decimal("NaN"), "USD"),
        (Decimal("1E999999"), "USD"),
        (Decimal("92233720368547758.08"), "USD"),
        ("9" * 40, "CLP"),
    ],
)
def test_an_amount_that_needs_rounding_or_guessing_is_refused(amount: Decimal | str, currency: str) -> None:
    with pytest.raises(ValueError, match=r"number|decimals|range"):
        to_minor(amount, currency)


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1), st.sampled_from(sorted(EXPONENTS)))
def test_minor_units_survive_a_round_trip_through_whole_units(amount: int, currency: str) -> None:
    major = to_major(amount, currency)
    assert to_minor(major, currency) == amount
    assert to_minor(f"{major:f}", currency) == amount


def test_major_units_keep_the_decimals() -> None:
    assert str(to_major(1250, "USD")) == "12.50"
    assert str(to_major(1250, "CLP")) == "1250"
    for wrong in (1.5, "1", True):
        with pytest.raises(TypeError):
            to_major(wrong, "USD")  # type: ignore[arg-type]


def test_every_currency_of_the_spec_has_its_decimals() -> None:
    assert EXPONENTS == {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
    assert exponent("EUR") == 2


@pytest.mark.parametrize(
    ("amount", "currency", "locale", "text"),
    [
        (123_456, "CLP", "es-CL", "$123.456"),
        (123_456, "COP", "es_CO", "$\xa01.234,56"),
        (123_456, "USD", "en", "$1,234.56"),
        (123_456, "CLP", "en", "CLP123,456"),
        (123_456, "BRL", "pt-br", "R$\xa01.234,56"),
        (-105, "USD", "en", "-$1.05"),
        (105, "USD", "tlh", "$1.05"),
    ],
)
def test_money_is_formatted_for_the_locale(amount: int, currency: str, locale: str, text: str) -> None:
    shown = format_money(amount, currency, locale)
    assert shown.replace("\xa0", "").replace(" ", "") == text.replace("\xa0", "")


def test_money_is_formatted_in_the_active_language_by_default() -> None:
    with translation.override("pt-br"):
        assert format_money(123_456, "BRL").endswith("1.234,56")
    with translation.override(None):
        assert format_money(123_456, "USD") == "$1,234.56"
