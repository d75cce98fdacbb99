"""Payment methods by name."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import translation

from payments_integration.admin.shared.methods import method_name
from tests.factories import rows
from tests.unit.admin.conftest import page, url


@pytest.mark.parametrize(
    ("code", "country", "name"),
    [
        ("cl_webpay_card", "CL", "Webpay card"),
        ("br_pix", "BR", "Pix"),
        ("br_pix", "CL", "Br pix"),
        ("cl_bank_transfer", "CL", "Bank transfer"),
        ("oxxo", "", "Oxxo"),
        ("cl_", "CL", "Cl_"),
        ("", "CL", "–"),
        ("a\u202eb", "CL", "A\\u202eb"),
    ],
)
def test_a_code_is_read_as_words(code: str, country: str, name: str) -> None:
    assert method_name(code, country) == name


def test_a_family_is_in_the_readers_language() -> None:
    with translation.override("es"):
        assert method_name("cl_bank_transfer", "CL") == "Transferencia bancaria"


def test_the_payment_page_shows_the_name_and_keeps_the_code_with_the_identifiers(boss: Client) -> None:
    row = rows.payment(method_code="cl_webpay_card", country="CL")
    html = page(boss, url("payment", "change", row.pk))
    assert html.index("Webpay card") < html.index("Timeline") < html.index("cl_webpay_card")
