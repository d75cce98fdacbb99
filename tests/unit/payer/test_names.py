"""Names of methods and reasons, from one table that a project extends."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy

from payments_integration import checkout
from payments_integration.payer.names import method_name, reason_text
from payments_integration.sandbox.catalog import METHODS


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("co_pse", "PSE"),
        ("mx_oxxo", "OXXO"),
        ("mx_spei", "SPEI"),
        ("br_pix", "Pix"),
        ("cl_webpay_card", "Webpay card"),
        ("pe_bank_transfer_usd", "Transfer in dollars"),
        ("br_bank_slip", "Bank slip"),
        ("oxxo", "OXXO"),
        ("cl_", "Cl"),
        ("", ""),
        ("a\u202eb", "A\\u202eb"),
    ],
)
def test_a_code_is_read_as_people_say_it(code: str, name: str) -> None:
    assert method_name(code) == name


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.code)
def test_a_code_has_nearly_the_name_of_the_listing(method: Any) -> None:
    """What a page shows of a payment is recognised by who has seen the name in the checkout."""
    listed, coded = method_name(method.code, method.name).lower(), method_name(method.code).lower()
    assert listed == coded or set(listed.split()) & set(coded.split())


def test_words_are_in_the_readers_language() -> None:
    with translation.override("es"):
        assert method_name("cl_bank_transfer") == "Transferencia bancaria"
        assert method_name("pe_bcp", "BCP online") == "BCP en línea"
        assert reason_text("rejected_by_bank") == "rechazado por el banco"


@pytest.mark.parametrize("reason", ["rejected_by_bank", "Rejected by bank", " rejected_by_bank "])
def test_a_known_reason_has_words(reason: str) -> None:
    assert reason_text(reason) == "rejected by the bank"


@pytest.mark.parametrize("reason", ["R-17: call us", "rejected_by_bank!", ""])
def test_any_other_reason_stays_as_it_came(reason: str) -> None:
    assert reason_text(reason) == reason


def test_a_project_adds_names_and_replaces_ours(settings: Any) -> None:
    own = {"cl_webpay_card": "Webpay", "R-17": gettext_lazy("Bank transfer"), "declined": "no"}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "NAMES": own}
    assert method_name("cl_webpay_card", "Webpay card") == "Webpay"
    assert checkout.method_name("cl_webpay_card") == "Webpay"
    assert reason_text("declined") == "no"
    with translation.override("es"):
        assert reason_text("R-17") == "Transferencia bancaria"
