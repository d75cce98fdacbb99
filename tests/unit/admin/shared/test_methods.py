"""Payment methods by name."""

from __future__ import annotations

from django.test import Client

from payments_integration.admin.shared.methods import method_name
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def test_a_code_is_shown_as_words() -> None:
    assert method_name("cl_webpay_card") == "Webpay card"
    assert method_name("") == "–"


def test_the_payment_page_shows_the_name_and_keeps_the_code_with_the_identifiers(boss: Client) -> None:
    row = rows.payment(method_code="cl_webpay_card", country="CL")
    html = page(boss, url("payment", "change", row.pk))
    assert html.index("Webpay card") < html.index("cl_webpay_card")
