"""The page of a payment in every state: it fits every screen, and everyone can read it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from payments_integration.models import Payment
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.accessibility import grave
from tests.browser.conftest import Person, Visit, address
from tests.browser.visitor import resize
from tests.factories import rows

PAYER = {
    "name": "Ana Soto", "email": "ana.soto@correo-de-la-tienda.example", "document": provider_data.HOLDER["document"],
    "phone": "+56911112222", "ip": "203.0.113.7", "device_id": "dev_0d9c8e7f6a5b4c3d2e1f0a9b8c7d6e5f",
    "address": {"street": "Av. Providencia 1234, depto. 56", "city": "Santiago"},
}  # fmt: skip
VOUCHER = {
    "type": "voucher", "voucher_code": "7710 4432 9018", "voucher_barcode": "34191790010104351004791020150008291070",
    "expires_at": "2026-03-04T05:06:07Z",
}  # fmt: skip
TRANSFER = {
    "type": "bank_transfer_details", "reference": "REF-2291-77",
    "bank_transfer": {"bank_name": "Banco de Chile", "account_number": "00-123-45678-09", "account_holder": "Shop"},
}  # fmt: skip


def _payment(status: str, received: int = 15_990, **fields: Any) -> Payment:
    values = {
        "status": status, "amount": 15_990, "amount_received": received, "currency": "CLP", "country": "CL",
        "method_code": "cl_webpay_card", "flow": "hosted", "payer": PAYER, "merchant_reference": "ORD-90001",
        "checkout_url": "https://pay.provider.example/c/0d9c8e7f6a5b4c3d2e1f0a9b8c7d6e5f",
        "fee": 300 if received else None, "net_amount": received - 300 if received else None,
        "succeeded_at": rows.AT if received else None, "metadata": {"channel": "web"},
    }  # fmt: skip
    return rows.payment(**{**values, **fields})


def _refund(payment: Payment, amount: int, status: str) -> Payment:
    refund = rows.refund(payment=payment, amount=amount, currency="CLP", status=status, reason="one came broken")
    rows.operation(
        target_id=payment.pk, result_kind="refund", result_id=refund.pk, amount=amount, currency="CLP", actor="support"
    )
    return payment


def _charged_back() -> Payment:
    payment = _payment("chargeback")
    event = rows.event(payment, type="payment.chargeback", created_at=timezone.now() - timedelta(days=2))
    rows.change(payment, event=event, previous_status="succeeded", status="chargeback", at=event.created_at)
    return _refund(payment, 3_000, "processing")


STATES: dict[str, Callable[[], Payment]] = {
    "succeeded": lambda: _payment("succeeded"),
    "refunded-in-part": lambda: _refund(
        _refund(_payment("succeeded", refunded_amount=5_000), 5_000, "succeeded"), 2_000, "returned"
    ),
    "partially-paid": lambda: _payment("partially_paid", 10_990, next_action=TRANSFER, method_code="cl_bank_transfer"),
    "overpaid": lambda: _payment("overpaid", 16_990, method_code="cl_bank_transfer"),
    "charged-back": _charged_back,
    "on-hold": lambda: _payment("on_hold"),
    "voucher": lambda: _payment("requires_action", 0, next_action=VOUCHER, method_code="cl_servipag"),
    "qr": lambda: _payment("requires_action", 0, next_action={"type": "qr", "qr_payload": "0002012636" * 12}),
    "failed": lambda: _payment("failed", 0, failure_reason="The card was declined by the bank: insufficient funds."),
    "expired": lambda: _payment("expired", 0),
    "erased": lambda: _payment("succeeded", payer=None, next_action=None, metadata=None, erased_at=timezone.now()),
}
TOO_WIDE = """() => [...document.querySelectorAll(":is(.pi-headline, .pi-section, .pi-calculation) *")].filter(
    element => element.checkVisibility() && !element.closest(".pi-scroll, .visually-hidden, svg")
        && getComputedStyle(element).display !== "inline" && element.scrollWidth > element.clientWidth + 1
).map(element => `${element.tagName} ${element.className}: ${element.textContent.trim().slice(0, 40)}`)"""


@pytest.mark.parametrize(("of", "dark"), [("en", False), ("es", True), ("pt-br", False)])
def test_a_payment_in_any_state_fits_and_can_be_read(
    visit: Visit, person: Person, provider: ProviderSandbox, of: str, dark: bool
) -> None:
    visitor = visit(person("finance"), language=of, dark=dark)
    found = []
    for name, make in STATES.items():
        payment = make()
        for width in (1920, 1366, 390):
            resize(visitor.page, width, 860)
            if width == 1920:
                visitor.open(address("payment", "change", payment))
            visitor.shoot(f"payment-{name}-{of}-{width}-{'dark' if dark else 'light'}")
            shown = visitor.page.evaluate("() => document.documentElement.scrollWidth")
            found += [f"{name} at {width}: {shown} wide"] if shown > width else []
            found += [f"{name} at {width}: {each}" for each in visitor.page.evaluate(TOO_WIDE)]
        with visitor.unheard():
            found += [f"{name}: {violation}" for violation in grave(visitor.page)]
    assert not found, "\n".join(found)


def test_a_viewer_without_personal_data_sees_the_money_only(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    visitor = visit(person("viewer", "view_payment"))
    visitor.open(address("payment", "change", STATES["voucher"]()))
    visitor.shoot("payment-masked")
    expect(visitor.find(".pi-headline")).to_contain_text("CLP 15,990")
    expect(visitor.find(".pi-headline")).to_contain_text("•••")
    content = visitor.find("#content").inner_text()
    for secret in ("Ana", "7710", "Providencia", "203.0.113.7"):
        assert secret not in content


def test_one_click_selects_the_number_of_a_voucher(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    visitor = visit(person("finance"))
    visitor.open(address("payment", "change", STATES["voucher"]()))
    visitor.find(".pi-copied").first.click()
    assert visitor.page.evaluate("() => getSelection().toString()") == "7710 4432 9018"


def test_the_story_and_the_money_stand_beside_each_other_and_on_a_phone_the_money_comes_first(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    visitor = visit(person("finance"))
    resize(visitor.page, 1366, 860)
    visitor.open(address("payment", "change", STATES["refunded-in-part"]()))
    assert visitor.page.title().startswith("CLP\xa015,990 · Ana Soto · Payment")
    assert " ".join(visitor.find(".pi-headline").inner_text().split()).startswith("CLP 15,990 succeeded Ana Soto")
    expect(visitor.find(".pi-story")).to_contain_text("support refunded CLP 5,000 · one came broken")
    story, money, payer = (visitor.find(f".pi-{name}") for name in ("story", "first", "aside"))

    def box(found: Any) -> dict[str, float]:
        return dict(found.bounding_box())

    assert box(money)["x"] > box(story)["x"] + box(story)["width"]
    assert abs(box(money)["y"] - box(story)["y"]) < 40
    assert box(payer)["x"] == box(money)["x"]
    resize(visitor.page, 390, 860)
    assert visitor.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert box(money)["y"] < box(story)["y"] < box(payer)["y"]
    # The records are one click away.
    expect(visitor.find(".pi-timeline")).not_to_be_visible()
    visitor.find(".pi-fold summary:has(#pi-timeline)").click()
    expect(visitor.find(".pi-timeline")).to_be_visible()


def test_the_first_words_of_an_unpaid_payment_say_what_is_missing(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    visitor = visit(person("finance"), width=390)
    visitor.open(address("payment", "change", STATES["voucher"]()))
    expect(visitor.find(".pi-advice")).to_contain_text("Ana Soto still has to pay CLP 15,990.")
    expect(visitor.find(".pi-main-column h2").nth(1)).to_have_text("What the payer has to do")
    assert "CLP\xa00" not in visitor.find("#content").inner_text()
    assert visitor.page.evaluate("() => document.documentElement.scrollWidth") <= 390
