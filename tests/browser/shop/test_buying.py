"""A payer buys in each of the six countries: on the provider's page, and right in the shop."""

from __future__ import annotations

import re
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.utils.translation import gettext, override
from playwright.sync_api import expect

from example_project.shop.models import Order
from payments_integration.models import Payment
from tests.browser.shop.conftest import Welcome
from tests.browser.shop.customer import CANCEL, PAY_AGAIN, Customer, later

pytestmark = pytest.mark.urls("example_project.urls")

HOSTED = {
    "CL-CLP": "cl_webpay_card",
    "CO-COP": "co_pse",
    "EC-USD": "ec_card",
    "PE-PEN": "pe_bcp",
    "MX-MXN": "mx_card",
    "BR-BRL": "br_open_finance",
}
#: Each type of next action at least once.
S2S = [
    ("CL-CLP", "cl_servipag", "voucher"),
    ("CL-CLP", "cl_khipu", "redirect"),
    ("CO-COP", "co_bre_b", "qr"),
    ("EC-USD", "ec_payphone", "phone_otp"),
    ("PE-PEN", "pe_bank_transfer", "bank_transfer_details"),
    ("MX-MXN", "mx_spei", "bank_transfer_details"),
    ("BR-BRL", "br_pix", "qr"),
]


def only_order() -> Order:
    return Order.objects.get()


@pytest.mark.parametrize(("market", "method"), HOSTED.items(), ids=[market[:2] for market in HOSTED])
def test_an_order_is_paid_on_the_providers_page(welcome: Welcome, market: str, method: str) -> None:
    customer = welcome()
    payment = customer.buy(method, market=market, quantity=2)
    assert customer.page.url == payment["checkout_url"]
    order = only_order()
    assert (payment["amount"], payment["currency"]) == (order.amount, order.currency)
    assert (f"{payment['country']}-{payment['currency']}", payment["method_code"]) == (market, method)
    assert payment["merchant_reference"] == order.reference
    with later(seconds=10):
        # No delivery has come, so the payment is read when the payer comes back.
        customer.press_at_provider("Pay")
        assert Payment.objects.get().status == "succeeded"
        customer.sees("paid")
        expect(customer.page.get_by_text(order.reference).first).to_be_visible()
        # The deliveries, which come later, change nothing any more.
        customer.provider.deliver()
        customer.visitor.open(order.get_absolute_url())
        customer.sees("paid")
    assert Payment.objects.get().status == "succeeded"
    assert len(customer.payments) == 1


@pytest.mark.parametrize(("market", "method", "action"), S2S, ids=[f"{m[:2]}-{a}" for m, _, a in S2S])
def test_an_order_is_paid_by_the_instructions_on_the_shops_page(
    welcome: Welcome, market: str, method: str, action: str
) -> None:
    customer = welcome()
    payment = customer.buy(method, market=market, flow="s2s")
    page = customer.page
    assert page.url.startswith(customer.visitor.site)
    customer.sees("new")
    shown = page.locator(f".payments-action-{action}")
    expect(shown).to_be_visible()
    _see_instructions(customer, payment["next_action"])
    customer.mark()
    customer.pays()
    customer.sees("paid")
    expect(shown).to_have_count(0)  # or it would be paid twice
    assert customer.page_was_kept()
    customer.visitor.open(only_order().get_absolute_url())
    customer.sees("paid")


def _see_instructions(customer: Customer, action: dict[str, object]) -> None:
    """What the provider asks for stands on the page, to read and to scan."""
    section = customer.page.locator(f".payments-action-{action['type']}")
    transfer = action.get("bank_transfer")
    values = dict(transfer) if isinstance(transfer, dict) else {}
    values |= {
        name: action[name] for name in ("qr_payload", "voucher_code", "voucher_barcode", "reference") if name in action
    }
    for value in values.values():
        expect(section.get_by_text(str(value), exact=True).first).to_be_visible()
    if action["type"] in ("qr", "voucher"):
        box = section.locator("svg").bounding_box()
        assert box is not None
        assert box["width"] > 100
    if action["type"] == "redirect":
        expect(section.get_by_role("link")).to_have_attribute("href", str(action["redirect_url"]))


def test_an_order_without_an_action_becomes_paid(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_card_direct", flow="s2s")
    assert (payment["status"], payment["next_action"]) == ("processing", None) or payment["next_action"][
        "type"
    ] == "none"
    customer.sees("new")
    expect(customer.page.locator(".payments-copy, .payments-button")).to_have_count(0)
    customer.mark()
    customer.pays()
    customer.sees("paid")
    assert customer.page_was_kept()


def test_the_page_of_the_order_follows_what_happens_in_another_window(welcome: Welcome) -> None:
    customer = welcome()
    customer.buy("cl_webpay_card")
    other = customer.visitor.another_page()
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(f"{only_order().get_absolute_url()}?key=7")
    customer.sees("new", other)
    other.evaluate("window.kept = true")
    live = other.locator("[role=status], [role=log], [aria-live=polite], [aria-live=assertive]")
    state = other.locator("[data-order-status]")
    expect(live.locator(state).or_(live.and_(state))).to_have_count(1)  # said aloud as it changes
    customer.press_at_provider("Pay")
    customer.provider.deliver()
    customer.sees("paid", other)
    assert other.evaluate("window.kept") is True
    # A page's address may say more after the path, such as who may see it.
    assert len([url for url in asked if url.endswith("/?key=7")]) > 1, asked


def test_returning_does_not_prove_a_payment(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_webpay_card")
    page, visitor = customer.page, customer.visitor
    visitor.press(page.get_by_role("link", name="Back to the shop"))
    assert page.url.startswith(visitor.site)
    customer.sees("new")
    customer.provider.deliver()
    # The query string is ignored.
    way_back = customer.provider.engine.project_of(payment["id"]).payments.internals[payment["id"]].return_url
    assert way_back is not None
    path = urlsplit(way_back).path
    claim = f"payment_id={payment['id']}&status=succeeded&paid=1"
    for address in (path, only_order().get_absolute_url()):
        visitor.open(f"{address}?{claim}")
        assert customer.shown_status() == "new"  # at once: the page corrects itself before long
    assert Order.objects.get().paid_at is None
    customer.pays()
    customer.sees("paid")


def test_a_form_sent_twice_is_one_payment(welcome: Welcome) -> None:
    """As by a double click, an impatient payer, or a network that repeats."""
    customer = welcome()
    customer.choose("cl_bank_transfer", flow="s2s")
    customer.send_form()
    customer.visitor.press_twice(customer.pay_button, leads_to=re.compile("/orders/"))
    customer.sees("new")
    assert len(customer.payments) == Order.objects.count() == 1

    customer.visitor.press(customer.page.get_by_role("button", name=CANCEL))
    customer.sees("canceled")
    customer.visitor.press(customer.page.get_by_role("link", name=PAY_AGAIN))
    customer.choose_on_this_page("cl_mach", flow="s2s")
    customer.send_form()
    customer.visitor.press(customer.pay_button)
    customer.sees("new")
    assert len(customer.payments) == 2
    assert Order.objects.count() == 1


def test_the_button_says_what_is_paid(welcome: Welcome) -> None:
    customer = welcome()
    customer.choose("cl_webpay_card", quantity=1)
    expect(customer.pay_button).to_have_text("Pay $14.990")
    customer.choose("cl_webpay_card", quantity=3)
    expect(customer.pay_button).to_have_text("Pay $44.970")
    customer.visitor.press(customer.pay_button)
    assert customer.payment["amount"] == 44_970


@pytest.mark.parametrize("zone", ["America/Santiago", "Asia/Tokyo"])
def test_times_are_in_the_payers_own_zone(welcome: Welcome, zone: str) -> None:
    customer = welcome(timezone_id=zone)
    customer.buy("cl_bank_transfer", flow="s2s")
    shown = customer.page.locator(".payments-timeline [data-payments-local]").first
    local = Payment.objects.get().created_at.astimezone(ZoneInfo(zone))
    expect(shown).to_contain_text(re.compile(rf"\b{local.hour % 12 or 12}:{local.minute:02}\b"))
    expect(shown).to_contain_text(re.compile(rf"\b{local.day}\b"))
    # The deadline, and a piece that is drawn later, are in the same zone.
    expect(customer.page.locator("[data-payments-local]", has_text="UTC")).to_have_count(0)
    customer.pays()
    customer.sees("paid")
    expect(customer.page.locator("[data-payments-local]", has_text="UTC")).to_have_count(0)


def test_the_order_page_has_a_receipt_and_what_happened(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_bank_transfer", flow="s2s")
    page = customer.page
    receipt = page.get_by_role("region", name="Payment receipt")
    steps = page.get_by_role("region", name="What happened").get_by_role("listitem")
    expect(receipt).to_have_count(0)
    expect(steps).to_have_count(1)
    expect(steps).to_contain_text("Bank transfer $14.990")
    customer.pays()
    customer.sees("paid")
    expect(steps.first).to_contain_text("Paid $14.990")
    expect(receipt).to_contain_text(payment["id"])
    customer.visitor.press(receipt.get_by_role("link"))
    expect(page.get_by_role("heading", name="Payment receipt")).to_be_visible()


def test_an_order_can_be_placed_with_the_keyboard_alone(welcome: Welcome) -> None:
    customer = welcome()
    customer.visitor.open("/buy/coffee/")
    page = customer.page
    page.locator("[name=name]").focus()
    page.keyboard.type("Ana Soto")
    page.keyboard.press("Tab")
    page.keyboard.type("ana@example.com")
    page.locator("[name=method_code]:checked").focus()
    page.keyboard.press("ArrowDown")
    chosen = page.locator("[name=method_code]:checked").get_attribute("value")
    customer.pay_button.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert customer.payment["method_code"] == chosen != "cl_webpay_card"
    assert customer.payment["payer"] == {"name": "Ana Soto", "email": "ana@example.com"}


@pytest.mark.parametrize(("language", "amount"), [("es", "84,90"), ("pt-BR", "R$\N{NO-BREAK SPACE}84,90")])
def test_the_instructions_are_in_the_payers_language(welcome: Welcome, language: str, amount: str) -> None:
    customer = welcome(language=language)
    customer.buy("br_pix", market="BR-BRL", flow="s2s")
    with override(language.lower()):
        words = gettext("Code to copy")
    expect(customer.page.get_by_role("term").filter(has_text=words)).to_be_visible()
    expect(customer.page.locator(".payments-action")).to_contain_text(amount)
