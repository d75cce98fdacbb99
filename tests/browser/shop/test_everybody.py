"""Every page of the shop, light and dark and on a narrow screen, is accessible. Screenshots are taken on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from payments_integration import services
from tests.browser.accessibility import grave
from tests.browser.shop.conftest import Welcome
from tests.browser.shop.customer import CANCEL, PAY_AGAIN, Customer
from tests.browser.shop.test_deposits import DETAILS, ask_for_account
from tests.browser.visitor import HEIGHT, WIDTH, resize

pytestmark = pytest.mark.urls("example_project.urls")

NARROW = 320


def front(customer: Customer) -> None:
    customer.visitor.open("/")


def buy_form(customer: Customer) -> None:
    customer.choose("br_pix", market="BR-BRL", flow="s2s")


def mistaken(customer: Customer) -> None:
    """A form that is sent back with what is wrong in it."""
    customer.choose("cl_webpay_card")
    customer.page.locator("form:has([name=market])").evaluate("form => { form.noValidate = true }")
    customer.page.fill("[name=email]", "ana at example")
    customer.visitor.press(customer.pay_button)
    expect(customer.page.locator("[name=email]")).to_have_value("ana at example")


def refused(customer: Customer) -> None:
    customer.choose("cl_webpay_card")
    customer.provider.engine.set_terms(unavailable_methods=["cl_webpay_card"])
    customer.visitor.expected.add(422)
    customer.visitor.press(customer.pay_button)
    customer.provider.engine.set_terms(unavailable_methods=[])


def orders(customer: Customer) -> None:
    customer.visitor.open("/orders/")


def deposits(customer: Customer) -> None:
    customer.visitor.open("/deposits/")


def deposit(customer: Customer) -> None:
    ask_for_account(customer)
    expect(customer.page.locator(DETAILS)).to_be_visible()
    [reference] = customer.provider.project.deposit_references.values()
    customer.provider.engine.transfer(reference["id"], 150_000)
    customer.provider.deliver()
    customer.visitor.open(customer.page.url)


def waiting(method: str, market: str = "CL-CLP", flow: str = "s2s") -> Callable[[Customer], None]:
    def go(customer: Customer) -> None:
        customer.buy(method, market=market, flow=flow)
        show(customer, "new")

    return go


def show(customer: Customer, status: str) -> None:
    """The page of the newest order, loaded when its news is in."""
    customer.provider.deliver()
    customer.visitor.open(f"/orders/{customer.payment['merchant_reference']}/")
    customer.sees(status)


def paid(customer: Customer) -> None:
    customer.buy("cl_bank_transfer", flow="s2s")
    customer.pays()
    show(customer, "paid")


def paid_in_part(customer: Customer) -> None:
    customer.buy("cl_bank_transfer", flow="s2s")
    customer.pays(5_000)
    show(customer, "partially_paid")


def paid_too_much(customer: Customer) -> None:
    customer.buy("cl_bank_transfer", flow="s2s")
    customer.pays(25_000)
    show(customer, "paid")


def reviewed(customer: Customer) -> None:
    customer.buy("cl_webpay_card", flow="s2s")
    customer.provider.engine.hold(customer.payment["id"])
    show(customer, "review")


def failed(customer: Customer) -> None:
    customer.buy("cl_webpay_card", flow="s2s")
    customer.provider.engine.fail(customer.payment["id"])
    show(customer, "failed")


def expired(customer: Customer) -> None:
    customer.buy("cl_servipag", flow="s2s")
    customer.provider.engine.expire(customer.payment["id"])
    show(customer, "expired")


def canceled(customer: Customer) -> None:
    customer.buy("cl_servipag", flow="s2s")
    customer.visitor.press(customer.page.get_by_role("button", name=CANCEL))
    show(customer, "canceled")


def another_way(customer: Customer) -> None:
    """After the attempt that was given up."""
    customer.visitor.press(customer.page.get_by_role("link", name=PAY_AGAIN))


def refunded_in_part(customer: Customer) -> None:
    _refunded(customer, 4_990)
    show(customer, "partially_refunded")


def refunded(customer: Customer) -> None:
    _refunded(customer, None)
    show(customer, "refunded")


def _refunded(customer: Customer, amount: int | None) -> None:
    customer.buy("cl_webpay_card", flow="s2s")
    customer.provider.engine.fund("CLP", 100_000)
    customer.pays()
    refund = services.create_refund(customer.payment["id"], amount=amount, reason="arrived broken")
    customer.provider.engine.succeed_refund(refund.pk)
    customer.provider.settle()


def charged_back(customer: Customer) -> None:
    customer.buy("cl_webpay_card", flow="s2s")
    customer.pays()
    customer.provider.engine.chargeback(customer.payment["id"])
    show(customer, "chargeback")


PAGES: dict[str, Callable[[Customer], None]] = {
    "front": front,
    "buy": buy_form,
    "mistaken": mistaken,
    "refused": refused,
    "deposits": deposits,
    "deposit": deposit,
    "redirect": waiting("cl_khipu"),
    "hosted": waiting("cl_webpay_card", flow="hosted"),
    "voucher": waiting("cl_servipag"),
    "transfer": waiting("cl_bank_transfer"),
    "phone": waiting("cl_chek"),
    "nothing": waiting("cl_card_direct"),
    "qr": waiting("br_pix", "BR-BRL"),
    "part": paid_in_part,
    "much": paid_too_much,
    "paid": paid,
    "review": reviewed,
    "failed": failed,
    "expired": expired,
    "canceled": canceled,
    "another-way": another_way,
    "refunded-part": refunded_in_part,
    "refunded": refunded,
    "chargeback": charged_back,
    "orders": orders,
}
#: The screenshots of the documentation, and their pages.
SCREENSHOTS = {
    "front": "shop-front",
    "buy": "shop-buy",
    "qr": "shop-order-waiting",
    "paid": "shop-order-paid",
    "refunded-part": "shop-order-refunded",
    "deposit": "shop-deposit",
}
NARROW_SCREENSHOTS = {"voucher": "shop-order-narrow"}


def test_every_page_passes_the_accessibility_checks(welcome: Welcome) -> None:
    customer = welcome()
    page = customer.page
    found = []
    for name, go in PAGES.items():
        page.emulate_media(color_scheme="light")
        resize(page, WIDTH, HEIGHT)
        go(customer)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_role("main")).to_have_count(1)
        if name in SCREENSHOTS:
            customer.visitor.shoot(SCREENSHOTS[name], at="body")
        found += judged(customer, name)
        page.emulate_media(color_scheme="dark")
        found += judged(customer, f"{name}, dark")
        page.emulate_media(color_scheme="light")
        resize(page, NARROW, HEIGHT)
        found += judged(customer, f"{name}, narrow")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > NARROW:
            found.append(f"{name} needs {width} pixels")
        if name in NARROW_SCREENSHOTS:
            customer.visitor.shoot(NARROW_SCREENSHOTS[name])
    assert not found, "\n".join(found)


def judged(customer: Customer, name: str) -> list[str]:
    with customer.visitor.unheard():
        return [f"{name}: {violation}" for violation in grave(customer.page)]
