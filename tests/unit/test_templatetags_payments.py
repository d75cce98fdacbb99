"""``{% load payments %}``."""

from __future__ import annotations

from typing import Any

import pytest
from django.template import Context, Template
from django.utils.translation import override

from tests.unit.checkout import rows


def rendered(source: str, **values: Any) -> str:
    return Template("{% load payments %}" + source).render(Context(values)).strip()


@pytest.mark.parametrize(
    ("language", "amount", "currency", "expected"),
    [
        ("en", 29_980, "CLP", "CLP29,980"),
        ("en", 125_050, "USD", "$1,250.50"),
        ("es", 125_050, "USD", "1.250,50 US$"),
        ("pt-br", 125_050, "BRL", "R$ 1.250,50"),
        ("en", 0, "CLP", "CLP0"),
        ("en", -5, "MXN", "-MX$0.05"),
        ("en", 100, "<b>", "&lt;b&gt;1.00"),
    ],
)
def test_money_is_in_the_decimals_of_its_currency(language: str, amount: int, currency: str, expected: str) -> None:
    with override(language):
        shown = rendered("{{ amount|money:currency }}", amount=amount, currency=currency)
    assert "".join(shown.split()) == "".join(expected.split())


@pytest.mark.parametrize("amount", [None, "", "12", 1.5, True, [], 10**30])
def test_what_is_no_amount_is_nothing(amount: Any) -> None:
    assert rendered("{{ amount|money:'CLP' }}", amount=amount) == ""


def test_a_status_is_a_word_with_a_look() -> None:
    html = rendered("{% payment_status payment %}", payment=rows.unsaved(status="succeeded", amount_received=10_000))
    assert html == '<span class="payments-status payments-status-good">Paid</span>'


def test_a_payment_that_is_not_there_is_looked_for() -> None:
    assert "We are looking for your payment" in rendered("{% payment_status payment %}", payment=None)
    assert "We are looking for your payment" in rendered("{% payment_status missing %}")
    assert rendered("{% next_action missing %}") == ""
    assert rendered("{% next_action payment %}", payment=None) == ""
