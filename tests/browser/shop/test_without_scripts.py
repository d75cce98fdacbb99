"""The shop without JavaScript: the same with pages that reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from example_project.shop.models import Order
from tests.browser.shop.conftest import Welcome
from tests.browser.shop.customer import CANCEL

pytestmark = pytest.mark.urls("example_project.urls")


def test_an_order_is_paid_on_the_providers_page_without_scripts(welcome: Welcome) -> None:
    customer = welcome(java_script_enabled=False)
    page, visitor = customer.page, customer.visitor
    visitor.open("/")
    visitor.press(page.get_by_role("link", name="Buy Coffee beans"))
    page.select_option("[name=market]", "BR-BRL")
    visitor.press("button[name=show]")
    page.fill("[name=name]", "Ana Soto")
    page.fill("[name=email]", "ana@example.com")
    page.check("[name=method_code][value=br_card]")
    visitor.press(customer.pay_button)
    assert page.url == customer.payment["checkout_url"]
    customer.press_at_provider("Pay")
    customer.sees("new")
    customer.provider.deliver()
    customer.sees("paid")  # without a click
    assert Order.objects.get().currency == "BRL"


def test_the_page_of_an_order_reloads_itself_without_scripts(welcome: Welcome) -> None:
    customer = welcome(java_script_enabled=False)
    customer.visitor.open("/buy/coffee/")
    page = customer.page
    page.fill("[name=name]", "Ana Soto")
    page.fill("[name=email]", "ana@example.com")
    customer.choose_on_this_page("cl_mach", flow="s2s")
    customer.visitor.press(customer.pay_button)
    customer.sees("new")
    expect(page.locator(".payments-action-qr svg")).to_be_visible()
    expect(page.locator(".payments-copy").first).to_be_hidden()  # needs a script
    customer.pays()
    customer.sees("paid")  # without a click


def test_the_payer_can_cancel_an_open_payment(welcome: Welcome) -> None:
    customer = welcome(java_script_enabled=False)
    customer.visitor.open("/buy/coffee/")
    page = customer.page
    page.fill("[name=name]", "Ana Soto")
    page.fill("[name=email]", "ana@example.com")
    customer.choose_on_this_page("cl_bank_transfer", flow="s2s")
    customer.visitor.press(customer.pay_button)
    customer.visitor.press(page.get_by_role("button", name=CANCEL))
    customer.sees("canceled")


def test_another_quantity_is_paid_only_when_the_button_says_its_price(welcome: Welcome) -> None:
    customer = welcome(java_script_enabled=False)
    customer.visitor.open("/buy/coffee/")
    page = customer.page
    page.fill("[name=name]", "Ana Soto")
    page.fill("[name=email]", "ana@example.com")
    page.select_option("[name=quantity]", "2")
    expect(customer.pay_button).to_have_text("Pay $14.990")
    customer.visitor.expected.add(422)
    customer.visitor.press(customer.pay_button)
    assert not Order.objects.exists()
    expect(page.get_by_role("alert")).to_contain_text("The price has changed")
    expect(customer.pay_button).to_have_text("Pay $29.980")
    customer.choose_on_this_page("cl_webpay_card")
    customer.visitor.press(customer.pay_button)
    assert customer.payment["amount"] == 29_980
