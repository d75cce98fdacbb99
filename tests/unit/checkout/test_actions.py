"""``{% next_action %}``: every type of the spec, with any content."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone, translation

from payments_integration.checkout.actions import fingerprint, shown_action
from payments_integration.checks import check_deployment
from payments_integration.enums import PaymentStatus
from payments_integration.next_action import ActionType
from tests.factories import checkout as rows
from tests.unit.checkout.conftest import Page, check_is_harmless, shown
from tests.unit.validation.test_urls import BAD

TYPES = [*ActionType.values, "crystal_ball"]
BOLETO = "00190500954014481606906809350314337370000000"
BANK = {"bank_name": "Banco Ñandú", "account_number": "000123456", "account_holder": "Tienda SpA"}
ACTIONS: dict[str, dict[str, Any]] = {
    "redirect": {"redirect_url": "https://bank.example/pay?a=1&b=2"},
    "qr": {"qr_payload": "00020126580014br.gov.bcb.pix"},
    "voucher": {"voucher_code": "1234 5678", "voucher_barcode": BOLETO},
    "bank_transfer_details": {"bank_transfer": BANK},
    "phone_otp": {},
    "none": {},
    "crystal_ball": {"vision": "gold"},
}
#: Every text of the shape.
TEXTS = ("redirect_url", "qr_payload", "voucher_code", "voucher_barcode", "reference", "expires_at")


def action(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "reference": "R-77", **ACTIONS.get(kind, {}), **fields}


def full(kind: str, value: Any) -> dict[str, Any]:
    """An action of which every text is ``value``."""
    return {
        "type": kind,
        **dict.fromkeys(TEXTS, value),
        "bank_transfer": {**dict.fromkeys(BANK, value), "reference": value, "note": value},
        "hint": value,
    }


def page_of(kind: str, **fields: Any) -> Page:
    return check_is_harmless(shown(rows.unsaved(next_action=action(kind, **fields))))


def copies(page: Page) -> list[str]:
    return [button["data-payments-copy"] for button in page.all("button")]


# --- each type


def test_a_redirect_is_a_button() -> None:
    page = page_of("redirect")
    [link] = page.all("a")
    assert link["href"] == "https://bank.example/pay?a=1&b=2"
    assert link["rel"] == "noopener noreferrer"
    assert "target" not in link  # the payer comes back to the same window
    assert "Continue to pay" in page.text
    assert "$10.000" in page.text


def test_a_qr_code_is_drawn_and_its_content_can_be_copied() -> None:
    html = shown(rows.unsaved(next_action=action("qr")))
    assert "<svg" in html
    page = check_is_harmless(html)
    assert copies(page) == ["00020126580014br.gov.bcb.pix", "R-77"]
    assert "00020126580014br.gov.bcb.pix" in page.text


def test_a_voucher_has_its_code_and_a_bar_code() -> None:
    html = shown(rows.unsaved(next_action=action("voucher")))
    page = check_is_harmless(html)
    assert len(page.all("svg")) == 1
    assert copies(page) == ["1234 5678", BOLETO, "R-77"]
    # What cannot be drawn is there as text.
    odd = page_of("voucher", voucher_barcode="código 1")
    assert odd.all("svg") == []
    assert "código 1" in odd.text


@pytest.mark.parametrize(
    ("country", "words"), [("CL", "este cupón de pago"), ("PE", "este cupón de pago"), ("MX", "esta ficha de pago")]
)
def test_a_voucher_is_called_as_its_country_calls_it(country: str, words: str) -> None:
    with translation.override("es"):
        assert words in shown(rows.unsaved(country=country, next_action=action("voucher")))


def test_a_bank_transfer_names_the_account_and_the_reference() -> None:
    page = page_of("bank_transfer_details")
    assert copies(page) == ["Banco Ñandú", "000123456", "Tienda SpA", "R-77"]
    for words in ("Bank", "Account number", "Account holder", "Reference", "Include the reference", "$10.000"):
        assert words in page.text
    beside = page_of("bank_transfer_details", reference=None, bank_transfer={**BANK, "reference": "R-88"})
    assert "R-88" in copies(beside)


def test_phone_otp_asks_to_confirm_on_the_phone() -> None:
    assert "on your phone" in page_of("phone_otp").text
    assert copies(page_of("phone_otp")) == ["R-77"]


def test_the_action_none_says_that_there_is_nothing_to_do() -> None:
    assert page_of("none").text == "There is nothing you need to do."
    assert check_is_harmless(shown(rows.unsaved(next_action=None))).text == "There is nothing you need to do."


def test_an_unknown_type_uses_the_template_for_unknown_types() -> None:
    for kind in ("crystal_ball", "../../admin/base_site", "_copy", "QR", "", "\x00", "🦙"):
        page = page_of(kind, redirect_url="https://bank.example/", qr_payload="0002", voucher_barcode="123")
        assert "cannot be shown here" in page.text
        assert "https://bank.example/" in page.text
        assert page.all("a") == page.all("svg") == []


def test_a_merchant_can_override_each_template(tmp_path: Any) -> None:
    own = tmp_path / "payments_integration" / "next_action"
    own.mkdir(parents=True)
    (own / "qr.html").write_text("mine: {{ action.qr_payload }} {{ object.pk }}")
    (own / "unknown.html").write_text("mine too")
    with override_settings(
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path], "APP_DIRS": True}
        ]
    ):
        payment = rows.unsaved(next_action=action("qr"))
        assert f"mine: 00020126580014br.gov.bcb.pix {payment.pk}" in Page(shown(payment)).text
        assert "mine too" in shown(action("crystal_ball"))


# --- when


@pytest.mark.parametrize("status", [*PaymentStatus.values, "quantum"])
def test_only_payable_statuses_show_how_to_pay(status: str) -> None:
    """A voucher of a payment that is over, or whose money is on its way, would be paid for nothing."""
    html = shown(rows.unsaved(status=status, next_action=action("voucher"), checkout_url="https://pay.example/"))
    may = status in {"created", "requires_action", "partially_paid"}
    assert bool(html.strip()) is may
    assert bool(fingerprint(rows.unsaved(status=status, next_action=action("voucher")))) is may


def test_a_gone_or_erased_payment_shows_no_action() -> None:
    for fields in ({"gone_at": timezone.now()}, {"erased_at": timezone.now()}):
        assert shown(rows.unsaved(next_action=action("qr"), **fields)).strip() == ""
        details = action("bank_transfer_details")
        assert shown(rows.deposit_reference(details=details, **fields)).strip() == ""


def test_the_hosted_flow_links_to_the_checkout_url() -> None:
    for value in (None, {"type": "none"}, {}, "x"):
        html = shown(rows.unsaved(next_action=value, checkout_url="https://pay.example/c/1"))
        assert [link["href"] for link in check_is_harmless(html).all("a")] == ["https://pay.example/c/1"]
    hostile = shown(rows.unsaved(next_action=None, checkout_url="javascript:alert(1)"))
    assert check_is_harmless(hostile).all("a") == []


def test_a_deposit_reference_is_shown_while_it_takes_deposits() -> None:
    details = action("bank_transfer_details")
    page = check_is_harmless(shown(rows.deposit_reference(details=details)))
    assert "000123456" in copies(page)
    assert "$" not in page.text  # how much is the payer's to say
    assert shown(rows.deposit_reference(details=details, status="disabled")).strip() == ""


def test_the_dict_itself_can_be_shown() -> None:
    assert "R-77" in shown(action("bank_transfer_details"))
    for nothing in (None, "", [], {}, 7, "redirect", {"type": 7}):
        assert shown(nothing).strip() == ""


def test_a_partially_paid_payment_asks_for_the_rest() -> None:
    html = shown(rows.unsaved(status="partially_paid", amount_received=4000, next_action=action("qr")))
    assert "$6.000" in html
    assert "$10.000" not in html


# --- the time


def test_the_deadline_is_shown_and_can_be_counted_down() -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    for fields in (
        {"next_action": action("qr", expires_at=at.isoformat())},
        {"next_action": action("qr"), "expires_at": at},
    ):
        page = check_is_harmless(shown(rows.unsaved(**fields)))
        [time] = page.all("time")
        assert time["datetime"] == at.isoformat()
        assert time["data-payments-left"] == "Time left: {time}"
        assert "Pay until" in page.text
        assert str(at.year) in page.text
        assert "(UTC-0" in page.text
        [timer] = [item for item in page.all("span") if item.get("role") == "timer"]
        assert "hidden" in timer  # until a script counts
        assert "is over" not in page.text


def test_a_passed_deadline_is_shown_as_over() -> None:
    page = page_of("qr", expires_at="2026-01-01T00:00:00Z")
    assert "The time to pay is over" in page.text
    assert not [item for item in page.all("span") if item.get("role") == "timer"]


@pytest.mark.parametrize(
    "value", ["soon", "2026-13-99T00:00:00Z", "2026-03-04T05:06:07", "<b>", 7, None, ["x"], "9" * 9000]
)
def test_an_invalid_deadline_is_not_shown(value: Any) -> None:
    page = page_of("voucher", expires_at=value)
    assert page.all("time") == []
    assert "until" not in page.text


# --- hostile values


@pytest.mark.case(84)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("address", BAD)
def test_only_web_addresses_become_links(kind: str, address: str) -> None:
    payment = rows.unsaved(next_action=full(kind, address), checkout_url=address)
    page = check_is_harmless(shown(payment))
    assert page.all("a") == []


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("value", [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "</code></dl><a href=x>",
    "{{ settings.SECRET_KEY }}{% load x %}", "%(amount)s %s {0}", "<!--", "</title><svg onload=alert(1)>",
    "&#60;b&#62;",
])  # fmt: skip
def test_markup_stays_text(kind: str, value: str) -> None:
    page = check_is_harmless(shown(rows.unsaved(next_action=full(kind, value))))
    assert page.all("a") == page.all("script") == []
    assert all(value == copied for copied in copies(page))
    if kind not in {"none", "redirect"}:
        assert value in copies(page)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\x00", "\x1b", "\ud800", "\ufeff", "\u2066"])
def test_no_invisible_character_hides_in_an_action(kind: str, char: str) -> None:
    html = shown(rows.unsaved(next_action=full(kind, f"00{char}12")))
    html.encode()
    assert char not in html
    assert copies(check_is_harmless(html)) == []


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("value", ["7" * 1_000_000, "🦙" * 100_000, "<" * 100_000])
def test_very_long_values_do_not_make_a_huge_page(kind: str, value: str) -> None:
    html = shown(rows.unsaved(next_action=full(kind, value)))
    assert len(html) < 100_000
    assert copies(check_is_harmless(html)) == []


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("value", [7, 1.5, True, None, [], ["x"], {}, {"x": "y"}, {"__html__": "<b>"}, ""])
def test_values_that_are_not_text_are_not_shown(kind: str, value: Any) -> None:
    for fields in (
        full(kind, value),
        {"type": kind, "bank_transfer": value},
        {"type": kind, **dict.fromkeys(TEXTS, value)},
    ):
        page = check_is_harmless(shown(rows.unsaved(next_action=json.loads(json.dumps(fields)))))
        assert page.all("a") == page.all("svg") == page.all("time") == copies(page) == []
        assert "None" not in page.text


@pytest.mark.parametrize("kind", TYPES)
def test_an_action_shows_no_personal_data(kind: str) -> None:
    html = shown(rows.unsaved(next_action=action(kind), metadata={"note": "secret"}, failure_reason="broke"))
    for words in ("Ana", "ana@example.com", "12345678", "secret", "broke"):
        assert words not in html


# --- what a script compares


def test_the_fingerprint_changes_with_the_action() -> None:
    base: dict[str, Any] = {"id": "pay_f", "next_action": action("qr")}
    first = fingerprint(rows.unsaved(**base))
    assert first == fingerprint(rows.unsaved(**base, status="created"))
    for other in ({"next_action": action("qr", qr_payload="other")}, {"id": "pay_g"}, {"amount": 1},
                  {"status": "partially_paid", "amount_received": 1}, {"next_action": action("voucher")}):  # fmt: skip
        assert fingerprint(rows.unsaved(**{**base, **other})) not in {first, ""}
    assert fingerprint(None) == ""
    assert fingerprint(rows.unsaved(next_action=full("qr", "\ud800")))


def test_an_action_has_the_values_for_its_template() -> None:
    found = shown_action(rows.unsaved(next_action=action("voucher")))
    assert found is not None
    assert (found.type, str(found.voucher_code), str(found.reference), found.link) == (
        "voucher", "1234 5678", "R-77", "",
    )  # fmt: skip
    assert found.template == "payments_integration/next_action/voucher.html"


def test_without_the_extra_a_payer_copies_the_code_and_types_the_bar_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in {"segno", "barcode"}]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("segno", "barcode"):
        monkeypatch.setitem(sys.modules, name, None)
    page = page_of("qr")
    assert page.all("svg") == []
    assert "Copy the code into your bank's app to pay" in page.text
    assert "00020126580014br.gov.bcb.pix" in page.text
    page = page_of("voucher")
    assert page.all("svg") == []
    assert BOLETO in page.text
    assert [message.id for message in check_deployment()].count("payments_integration.W007") == 1


@pytest.mark.parametrize("templates", [[], [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]])
def test_a_site_without_templates_is_told_that_payers_get_an_error(settings: Any, templates: list[Any]) -> None:
    """A site with nothing but an API has no TEMPLATES. Its API still names status_url."""
    settings.TEMPLATES = templates
    assert any("status_url, answer 500" in message.msg for message in check_deployment())


@pytest.mark.parametrize(
    ("own", "says"), [("{% fo %}", "Invalid block tag on line 1: 'fo'"), ("Situação", "'utf-8' codec can't decode")]
)
def test_a_site_whose_own_status_page_has_an_error_is_told_which(
    own: str, says: str, settings: Any, tmp_path: Path
) -> None:
    page = tmp_path / "payments_integration/checkout/status.html"
    page.parent.mkdir(parents=True)
    page.write_text(own, encoding="latin-1")
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path]}]
    (warning,) = (message for message in check_deployment() if message.id == "payments_integration.W007")
    assert re.search(f"answer 500: .*{re.escape(says)}", warning.msg)
    assert "payments_integration/checkout/status.html" in str(warning.hint)
