from __future__ import annotations

import contextlib
import re
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import pytest
from django.utils import translation
from hypothesis import example, given, strategies as st

from payments_integration.enums import Country, Currency
from payments_integration.money import (
    EXPONENTS,
    Example,
    checked_minor,
    example_for,
    exponent,
    format_amount,
    format_count,
    format_for_payer,
    format_money,
    parse_amount,
    to_major,
    to_minor,
)
from payments_integration.sandbox import views as sandbox


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
        (Decimal("92233720368547758.07"), "USD", 2**63 - 1),
    ],
)
def test_whole_units_become_minor_units(amount: Decimal | str | int, currency: str, minor: int) -> None:
    assert to_minor(amount, currency) == minor


@pytest.mark.case(131)
@pytest.mark.parametrize("currency", ["usd", "clp", "EUR", "", None])
def test_a_currency_that_is_none_of_the_spec_is_refused(currency: Any) -> None:
    with pytest.raises(ValueError, match="a currency is one of CLP, COP, PEN, MXN, BRL, USD, not"):
        to_minor(Decimal(990), currency)


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


@pytest.mark.parametrize("language", ["en", "es", "pt-br"])
def test_what_is_below_zero_has_a_minus_sign(language: str) -> None:
    with translation.override(language):
        assert format_money(-300, "CLP") == "CLP\xa0\N{MINUS SIGN}300"
        assert format_amount(-300, "CLP") == "\N{MINUS SIGN}300"


@pytest.mark.case(131)
@pytest.mark.parametrize("wrong", [1.5, "1", True, Decimal("119.90"), Decimal(1), None])
@pytest.mark.parametrize("show", [to_major, format_money, format_amount, partial(format_for_payer, country="EC")])
def test_what_takes_minor_units_names_the_helper(show: Any, wrong: object) -> None:
    with pytest.raises(TypeError, match=r'pass \d+ for USD \S+: money\.to_minor\(Decimal\("[\d.]+"\), "USD"\)'):
        show(wrong, currency="USD")


@pytest.mark.parametrize(
    ("wrong", "currency", "words"),
    [
        (Decimal("58.9"), "BRL", '5890 for BRL 58.90: money.to_minor(Decimal("58.90"), "BRL")'),
        (58.9, "PEN", '5890 for PEN 58.90: money.to_minor(Decimal("58.90"), "PEN")'),
        ("990.00", "CLP", '990 for CLP 990: money.to_minor(Decimal("990"), "CLP")'),
        (
            Decimal("11990.00"),  # 119.90 * 100
            "USD",
            '1199000 for USD 11990.00: money.to_minor(Decimal("11990.00"), "USD"), or 11990 if it is in minor units',
        ),
        (Decimal("990.00"), "CLP", '990 for CLP 990: money.to_minor(Decimal("990"), "CLP")'),
        (Decimal("990.5"), "CLP", str(Example())),
        ("990", "USD", str(Example())),  # perhaps minor units
        (Decimal("NaN"), "USD", str(Example())),
        (Decimal("-1.00"), "USD", str(Example())),
        (Decimal("58.9"), "usd", str(Example())),
        (Decimal("58.9"), None, str(Example())),
        (None, "USD", '11990 for USD 119.90: money.to_minor(Decimal("119.90"), "USD")'),
    ],
)
def test_the_message_has_the_number_that_is_right(wrong: object, currency: str | None, words: str) -> None:
    assert str(example_for(wrong, currency)) == words
    with pytest.raises(TypeError, match=re.escape(words)):
        checked_minor(wrong, currency)


def test_a_float_is_refused_with_the_decimal_to_pass() -> None:
    with pytest.raises(TypeError, match=re.escape('not float, such as Decimal("58.9")')):
        to_minor(58.9, "USD")  # type: ignore[arg-type]


def test_every_currency_of_the_spec_has_its_decimals() -> None:
    assert EXPONENTS == {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
    assert exponent("EUR") == 2


@pytest.mark.parametrize(
    ("amount", "currency", "locale", "text"),
    [
        (15_990, "CLP", "en", "CLP 15,990"),
        (15_990, "CLP", "es", "CLP 15.990"),
        (15_990, "CLP", "pt-br", "CLP 15.990"),
        (123_456, "CLP", "es-CL", "CLP 123.456"),
        (123_456, "COP", "es_CO", "COP 1.234,56"),
        (6_200_000, "COP", "es_CO", "COP 62.000"),
        (6_200_000, "COP", "en", "COP 62,000"),
        (6_200_000, "PEN", "es_PE", "PEN 62,000.00"),
        (123_456, "MXN", "es-mx", "MXN 1,234.56"),
        (123_456, "USD", "en", "USD 1,234.56"),
        (123_456, "BRL", "pt-br", "BRL 1.234,56"),
        (-105, "USD", "en", "USD −1.05"),
        (105, "USD", "tlh", "USD 1.05"),
        (2**63 - 1, "USD", "en", "USD 92,233,720,368,547,758.07"),
    ],
)
def test_staff_read_the_code_and_their_own_separators(amount: int, currency: str, locale: str, text: str) -> None:
    assert format_money(amount, currency, locale) == text.replace(" ", "\xa0")
    assert format_amount(amount, currency, locale) == text.partition(" ")[2]


def test_the_precision_that_a_project_sets_for_its_thread_does_not_count() -> None:
    """Such as 2, in the belief that it counts decimals."""
    with localcontext(prec=2):
        assert to_minor(Decimal("1599000.12"), "USD") == 159900012
        assert str(to_major(159900012, "USD")) == "1599000.12"
        assert format_amount(159900012, "USD", "en") == "1,599,000.12"
        assert format_for_payer(159900012, "CLP", "CL") == "$159.900.012"
        assert parse_amount("1,599,000.12", "USD", "en") == 159900012


@pytest.mark.parametrize(("language", "text"), [("en", "1,891"), ("es", "1.891"), ("pt-br", "1.891")])
def test_a_number_beside_an_amount_has_the_same_separators(language: str, text: str) -> None:
    with translation.override(language):
        assert format_count(1891) == text == format_amount(1891, "CLP")


def test_money_is_formatted_in_the_active_language_by_default() -> None:
    with translation.override("pt-br"):
        assert format_money(123_456, "BRL") == "BRL\xa01.234,56"
    with translation.override(None):
        assert format_money(123_456, "USD") == "USD\xa01,234.56"


@pytest.mark.parametrize("language", ["en", "es", "pt-br", None])
def test_payers_read_what_their_country_writes_in_every_language(language: str | None) -> None:
    with translation.override(language):
        assert format_for_payer(14_990, "CLP", "CL") == "$14.990"
        assert format_for_payer(28_900, "MXN", "MX") == "$289.00"
        assert format_for_payer(5_890, "PEN", "PE") == "S/\xa058.90"
        assert format_for_payer(123_456, "BRL", "BR") == "R$\xa01.234,56"
        assert format_for_payer(123_456, "USD", "PE") == "USD\xa01,234.56"
        assert format_for_payer(123_456, "USD", "CL") == "US$1.234,56"


def test_without_a_country_of_the_spec_payers_read_the_code() -> None:
    for country in ("", "AR", "None"):
        assert format_for_payer(14_990, "CLP", country) == "CLP\xa014,990"


@pytest.mark.parametrize("currency", ["ABC", "<b", "\\g", "a.b", ".*x"])
def test_a_currency_that_nobody_knows_is_shown_as_it_is(currency: str) -> None:
    assert format_for_payer(123_456, currency, "CL") == f"{currency}\xa01.234,56"


@pytest.mark.parametrize("country", Country.values)
@pytest.mark.parametrize("currency", Currency.values)
def test_app_and_sandbox_write_the_same(currency: str, country: str) -> None:
    """Two implementations, because the sandbox imports nothing of the app."""
    for amount in (0, 5, 99, 1_250, 123_456, 99_999_999_999, 2**63 - 1):
        assert sandbox.format_amount(amount, currency, country) == format_for_payer(amount, currency, country)
        assert sandbox.format_amount(amount, currency) == format_money(amount, currency, "en")
        shown = sandbox.format_number(amount, currency, country)
        assert format_for_payer(amount, currency, country).endswith(shown)
        if 0 < amount < 10**13:
            assert sandbox.parse_amount(shown, currency, country) == amount


#: The languages of the app, and each other way to write separators.
LOCALES = ["en", "es", "pt-br", "es-cl", "es-mx", "fr", "de-ch", "en-in", "pl"]


@given(st.integers(min_value=0, max_value=2**63 - 1), st.sampled_from(sorted(EXPONENTS)), st.sampled_from(LOCALES))
def test_what_is_shown_can_be_typed(amount: int, currency: str, locale: str) -> None:
    for shown in (format_amount(amount, currency, locale), format_money(amount, currency, locale)):
        for typed in (shown, f" {shown} ", shown.replace("\xa0", " ").replace("\u202f", " ")):
            assert parse_amount(typed, currency, locale) == amount
    assert parse_amount(f"{to_major(amount, currency):f}", currency, locale) == amount


@given(st.text(alphabet="0123456789.,", min_size=1, max_size=12), st.sampled_from(["CLP", "USD"]))
@example("1.000", "CLP")
@example("1.200.000", "CLP")
@example("1,200,000.50", "USD")
@example("1,000", "USD")
@example("1,000.50", "USD")
def test_no_text_has_two_meanings(typed: str, currency: str) -> None:
    found = set()
    for locale in LOCALES:
        with contextlib.suppress(ValueError):
            found.add(parse_amount(typed, currency, locale))
    assert len(found) <= 1


@pytest.mark.parametrize(
    ("typed", "currency", "locale"),
    [
        ("1.000", "CLP", "en"),
        ("1,000", "CLP", "es"),
        ("1.000", "USD", "en"),
        ("1,505", "USD", "es"),
        ("1,000.50", "USD", "es"),
        ("1.000,50", "USD", "en"),
        ("1,00,000", "USD", "en"),
        ("0,100", "USD", "en"),
        (",100", "USD", "en"),
        ("1,000,", "USD", "en"),
        ("1,000.505", "USD", "en"),
        ("1,000.0", "CLP", "en"),
        ("10.0", "CLP", "en"),
        ("USD 5", "CLP", "en"),
        ("$5", "USD", "en"),
        ("-5", "USD", "en"),
        ("1e3", "USD", "en"),
        ("٥", "USD", "en"),
        ("", "USD", "en"),
        ("1" * 21, "USD", "en"),
        ("92,233,720,368,547,758.08", "USD", "en"),
    ],
)
def test_a_typed_amount_that_can_be_misread_is_refused(typed: str, currency: str, locale: str) -> None:
    with pytest.raises(ValueError, match=r"amount|decimals|range"):
        parse_amount(typed, currency, locale)
