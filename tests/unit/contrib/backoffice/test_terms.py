"""Which terms a row has, and what a typed text looks for."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import translation

from payments_integration.contrib.backoffice.terms import MAX_TERM, MAX_TERMS, matches, readings, terms_of
from payments_integration.models import Mirror
from tests.factories import rows

PAYER = {
    "name": "José Ángel Núñez",
    "email": "Ana.Torres@Example.com",
    "document": {"type": "RUT", "number": "12.345.678-k"},
    "phone": "+56912345678",
}


def found(text: str, row: Mirror) -> bool:
    return any(matches(reading, terms_of(row)) for reading in readings(text))


def payment(**fields: Any) -> Mirror:
    return rows.unsaved_payment(**{"currency": "CLP", "amount": 7, "merchant_reference": None, **fields})


def test_the_terms_of_a_payment() -> None:
    row = payment(
        payer=PAYER, amount=1500, amount_received=750, merchant_reference="Order-2024",
        next_action={"type": "voucher", "voucher_code": "99 88-77", "more": [{"reference": "RF18 53"}]},
    )  # fmt: skip
    assert terms_of(row) == {
        "$1500 clp": False, "$750 clp": False, "order-2024": False, "2024": False,
        "998877": True, "rf1853": True, "rf18": True, "53": True,
        "jose": True, "angel": True, "nunez": True, "12345678k": True, "56912345678": True,
        "678k": True, "5678": True, "912345678": True,
        "ana.torres@example.com": True, "torres@example.com": True, "example.com": True,
    }  # fmt: skip


def test_a_term_that_is_visible_anyway_is_not_personal() -> None:
    assert terms_of(payment(merchant_reference="ana", payer={"name": "Ana"}))["ana"] is False


def test_an_erased_row_has_no_personal_term() -> None:
    row = payment(payer=None, next_action=None, merchant_reference="order-1")
    assert set(terms_of(row).values()) == {False}


@pytest.mark.parametrize(
    "text",
    [
        "jose", "JOSÉ", "nún", "ang jos", "ana.torres@", "torres@ex", "example.com", "Núñez, José", "<ana.torres",
        "12.345.678-k", "12345678K", "12.345", "+56 9 1234 5678", "56912", "9 1234 5678", "5678", "678-K",
        "  jose \t nunez ",
    ],
)  # fmt: skip
def test_a_payer_is_found_by(text: str) -> None:
    assert found(text, payment(payer=PAYER))


@pytest.mark.parametrize("text", ["ose", "jose pedro", "com", "@", "...", "%", "", "torres pedro@x.cl", "345678k"])
def test_a_payer_is_not_found_by(text: str) -> None:
    assert not found(text, payment(payer=PAYER))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("8888 9999", "voucher_code", "8888-9999-0000"),
        ("888899990000", "voucher_code", "8888-9999-0000"),
        ("0341 91", "voucher_barcode", "03419101"),
        ("RF18 5390", "reference", "RF18 5390 0754 7034"),
        ("rf1853900754", "reference", "RF18 5390 0754 7034"),
        ("7034", "reference", "RF18 5390 0754 7034"),
        ("4471", "reference", 447100),
        (" 00020126580014br.gov.bcb.pix ", "qr_payload", "00020126580014br.gov.bcb.pix"),
    ],
)
@pytest.mark.parametrize("depth", [0, 3])
def test_a_next_action_is_found_at_any_depth(text: str, name: str, value: Any, depth: int) -> None:
    action: Any = {"type": "x", name: value}
    for _ in range(depth):
        action = {"list": [action]}
    assert found(text, payment(next_action=action))
    assert found(text, rows.DepositReference(details=action, currency="CLP"))


def test_half_a_qr_code_is_not_found() -> None:
    row = payment(next_action={"type": "qr", "qr_payload": "00020126580014br.gov.bcb.pix"})
    assert not found("00020126580014br.gov.bcb", row)


def test_a_recipient_is_found() -> None:
    account = {"holder_name": "Ana Pérez", "account_number": "000-123", "holder_document": {"number": "1-9"}}
    for text in ("perez", "000123", "000-12", "19"):
        assert found(text, rows.Payout(destination=account, currency="CLP")), text


@pytest.mark.parametrize(
    ("language", "text", "amount", "currency"),
    [
        ("en", "1,234.50", 123450, "USD"),
        ("en", "1234.5", 123450, "BRL"),
        ("en", "1,234", 1234, "CLP"),
        ("en", "1,234", 123400, "USD"),
        ("en", "1234,50", 123450, "USD"),
        ("es", "1.234,50", 123450, "MXN"),
        ("es", "1.234", 1234, "CLP"),
        ("es", "1.234", 123400, "PEN"),
        ("es", "1234.50", 123450, "USD"),
        ("pt-br", "1.234,50", 123450, "BRL"),
        ("pt-br", "R$ 1.234,50", 123450, "BRL"),
        ("pt-br", "R$\xa01.234,50", 123450, "BRL"),
        ("en", "R$1,234.50", 123450, "BRL"),
        ("en", "$1,234.50", 123450, "USD"),
        ("en", "USD 1234.50", 123450, "USD"),
        ("es", "1234,50 US$", 123450, "USD"),
        ("en", "CLP1,234", 1234, "CLP"),
        ("en", "S/ 15", 1500, "PEN"),
        ("en", "10.00", 10, "CLP"),
        ("es", "1 234,50", 123450, "USD"),
        ("es", "1\xa0234\xa0567 CLP", 1234567, "CLP"),
    ],
)
def test_an_amount_is_read_in_the_users_format(language: str, text: str, amount: int, currency: str) -> None:
    with translation.override(language):
        assert found(text, payment(amount=amount, currency=currency))


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("1234", 12340, "CLP"),
        ("1234", 123450, "USD"),
        ("12", 1234, "CLP"),
        ("1,234.50", 1234, "CLP"),
        ("USD 1234", 1234, "CLP"),
        ("BRL 1234", 123400, "USD"),
        ("0", 1234, "CLP"),
        ("1.2345", 12345, "CLP"),
    ],
)
def test_another_amount_is_not_found(text: str, amount: int, currency: str) -> None:
    with translation.override("en"):
        assert not found(text, payment(amount=amount, amount_received=0, currency=currency))


def test_an_amount_and_a_name_must_both_match() -> None:
    row = payment(payer=PAYER, amount=1500)
    assert found("nunez 1500", row)
    assert found("CLP 1500 nunez", row)
    assert not found("nunez 1501", row)
    assert not found("perez 1500", row)


def test_terms_are_bounded_in_length_and_number() -> None:
    long, many = "x" * 5_000, " ".join(f"w{number}" for number in range(500))
    action = [{"reference": many}, {"voucher_code": long}] * 50
    for row in (
        payment(payer={"name": many, "email": f"{long}@{long}"}, merchant_reference=long, next_action=action),
        payment(payer={"name": long}),
        payment(payer={"name": "\ufdfa" * 500}),
    ):
        found_terms = terms_of(row)
        assert 0 < len(found_terms) <= MAX_TERMS
        assert max(map(len, found_terms)) <= MAX_TERM
    assert found(long, payment(payer={"name": long}))


@pytest.mark.parametrize("value", [None, 1, "text", [], [[["x"]]], {"name": None}, {"name": ["", {"x": True}]}, True])
def test_odd_content_has_no_terms_and_is_no_error(value: Any) -> None:
    row = payment(payer=value, next_action=value, amount=0, amount_received=0)
    assert terms_of(row) == {}


@pytest.mark.parametrize("text", ["\x00", "\udcff", "🦙", "\u202e", "'", "a" * 10_000, "1" * 10_000, "$", "USD", "%"])
def test_odd_texts_are_no_error(text: str) -> None:
    row = payment(payer={"name": text, "email": text}, next_action={"qr_payload": text, "reference": text})
    assert isinstance(found(text, row), bool)
