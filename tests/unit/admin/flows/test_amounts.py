"""Typed amounts."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from payments_integration.admin.flows.forms import MoneyField, parse_amount

pytestmark = pytest.mark.any_database


@pytest.mark.parametrize(
    ("typed", "currency", "minor"),
    [
        ("10,50", "USD", 1050),
        (" 7 ", "CLP", 7),
        ("0.01", "BRL", 1),
        ("92233720368547758.07", "USD", 2**63 - 1),
        ("92,233,720,368,547,758.07", "USD", 2**63 - 1),
        ("\u202d1,500.50\u202c", "USD", 150_050),
        ("\ufeff1500", "CLP", 1500),
        ("1.200.000", "CLP", 1_200_000),
        ("1.200.000,50", "USD", 120_000_050),
        ("1.000.000,00", "USD", 100_000_000),
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
        ("60,000.5", "CLP", "no decimals"),
        ("60.000,50", "CLP", "no decimals"),
        ("1,234.5678", "USD", "2 decimals"),
        ("1.234.567,890", "USD", "more than one way"),
        ("1.505", "USD", "more than one way. Write it like 1,234.50"),
        ("1.5050", "USD", "2 decimals"),
        ("x", "USD", "in digits"),
    ],
)
def test_an_invalid_amount_is_explained(typed: str, currency: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        parse_amount(typed, currency)
