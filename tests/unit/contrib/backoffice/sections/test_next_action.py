"""``next_action`` as the payer sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
import segno
from django.test import Client

from payments_integration.contrib.backoffice.admin.sections import next_actions
from payments_integration.next_action.codes import MAX_QR
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

BANK = {"bank_name": "Banco <b>X</b>", "account_number": "000123", "account_holder": "Shop SpA"}


def shown(client: Client, value: Any, **fields: Any) -> str:
    row = rows.payment(next_action=value, **fields)
    html = page(client, url("payment", "change", row.pk))
    return html.split("What the payer was shown</h2>")[1].split('pi-section"')[0] if "payer was shown" in html else ""


def test_a_redirect_is_a_link(boss: Client) -> None:
    html = shown(boss, {"type": "redirect", "redirect_url": "https://bank.example/pay?a=1"})
    assert 'href="https://bank.example/pay?a=1"' in html
    assert 'rel="noopener noreferrer"' in html


def test_nothing_to_do_has_no_section(boss: Client) -> None:
    assert shown(boss, {"type": "none"}) == ""
    assert "spare" in shown(boss, {"type": "none", "further": "spare"})


@pytest.mark.case(84)
@pytest.mark.parametrize("kind", ["redirect", "qr", "voucher", "crystal_ball"])
@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "data:text/html,x", "//evil.example", "https:evil"]
)
def test_only_web_addresses_become_links(boss: Client, address: str, kind: str) -> None:
    html = shown(boss, {"type": kind, "redirect_url": address, "qr_payload": address, "voucher_code": address})
    assert "<a " not in html
    assert address.strip() in html


def test_a_qr_code_is_drawn_with_its_content_as_text(boss: Client) -> None:
    payload = "00020126<script>alert(1)</script>"
    html = shown(boss, {"type": "qr", "qr_payload": payload, "expires_at": "2026-03-04T05:06:07Z"})
    drawn = html[html.index("<svg") : html.index("</svg>") + 6]
    svg = ElementTree.fromstring(drawn)
    assert svg.attrib["role"] == "img"
    title = svg.find("title")
    assert title is not None
    assert title.text == "QR code"
    assert segno.make(payload, micro=False).svg_inline(border=4).split(' d="')[1].split('"')[0] in drawn
    # Black on white with its quiet zone, in every theme; nothing that a strict content policy refuses.
    assert 'fill="#fff"' in drawn
    assert 'stroke="#000"' in drawn
    assert "style=" not in drawn
    assert "&lt;script&gt;" in html
    assert "2026-03-04 05:06:07" in html


@pytest.mark.parametrize("payload", ["", "x" * (MAX_QR + 1), "\ud800"])
def test_text_that_no_qr_code_can_hold_stays_text(payload: str) -> None:
    html = next_actions.as_html({"type": "qr", "qr_payload": payload})
    assert "<svg" not in html
    html.encode()


def test_a_voucher_shows_its_numbers(boss: Client) -> None:
    html = shown(boss, {"type": "voucher", "voucher_code": "123456", "voucher_barcode": "34191790010104351004791020"})
    assert "123456" in html
    assert "34191790010104351004791020" in html


@pytest.mark.parametrize("beside", [True, False])
def test_bank_details_show_reference_and_expiry(boss: Client, beside: bool) -> None:
    more = {"reference": "REF-9", "expires_at": "2026-03-04T05:06:07Z"}
    value = {"type": "bank_transfer_details", "bank_transfer": {**BANK, **(more if beside else {})}}
    html = shown(boss, value if beside else {**value, **more})
    for words in ("Banco &lt;b&gt;X&lt;/b&gt;", "000123", "Shop SpA", "REF-9", "2026-03-04 05:06:07"):
        assert words in html
    assert "<b>X" not in html


def test_further_fields_of_a_next_action_are_shown(boss: Client) -> None:
    html = shown(boss, {"type": "phone_otp", "phone_hint": "ends in 77", "expires_at": "soon"})
    assert "ends in 77" in html
    assert "soon" in html
    assert "confirm by phone" in html


@pytest.mark.parametrize("value", [{"type": "crystal_ball", "vision": 1}, {"vision": 1}, ["vision"], "vision"])
def test_a_next_action_of_unknown_form_is_shown_as_fields(boss: Client, value: Any) -> None:
    html = shown(boss, value)
    assert "vision" in html
    assert "{" not in html


def test_an_empty_value_has_no_section_and_erased_data_is_shown_as_erased(boss: Client) -> None:
    assert shown(boss, None) == ""
    html = shown(boss, {"type": "qr", "qr_payload": "000201"}, erased_at=rows.AT)
    assert "erased" in html
    assert "000201" not in html


def test_without_the_permission_personal_data_keeps_its_structure(staff: Callable[..., Client]) -> None:
    value = {"type": "bank_transfer_details", "bank_transfer": BANK, "reference": "REF-9"}
    viewer, seer = staff("view_payment"), staff("view_payment", "view_personal_data")
    assert "REF-9" in shown(seer, value)
    html = shown(viewer, value)
    assert "transfer to a bank account" in html
    for secret in ("REF-9", "000123", "Shop SpA"):
        assert secret not in html
    qr = shown(viewer, {"type": "qr", "qr_payload": "000201"})
    assert "<svg" not in qr
    assert "000201" not in qr


def test_the_details_of_a_deposit_reference_are_shown_as_a_next_action(boss: Client) -> None:
    row = rows.deposit_reference(details={"type": "bank_transfer_details", "bank_transfer": BANK, "reference": "R-9"})
    html = page(boss, url("depositreference", "change", row.pk)).split('class="pi-next"')[1].split("</div>")[0]
    for words in ("000123", "Shop SpA", "R-9", "<dl>"):
        assert words in html
