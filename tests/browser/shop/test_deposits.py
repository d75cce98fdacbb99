"""A customer's own account: transfers to it arrive whenever they like."""

from __future__ import annotations

import re

import pytest
from django.core.mail import EmailMessage
from playwright.sync_api import expect

from payments_integration.models import Payment
from tests.browser.shop.conftest import Welcome
from tests.browser.shop.customer import EMAIL, NAME, TIMEOUT_MS, Customer

pytestmark = pytest.mark.urls("example_project.urls")

DETAILS = ".payments-action-bank_transfer_details"


def ask_for_account(customer: Customer, market: str = "MX-MXN", email: str = EMAIL) -> None:
    page = customer.page
    customer.visitor.open("/deposits/")
    page.select_option("[name=market]", market)
    page.fill("[name=name]", NAME)
    page.fill("[name=email]", email)
    customer.visitor.press(page.get_by_role("main").get_by_role("button"))


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_transfer_appears_on_the_deposit_page(welcome: Welcome, scripts: bool) -> None:
    customer = welcome(java_script_enabled=scripts)
    ask_for_account(customer)
    page, provider = customer.page, customer.provider
    [reference] = provider.project.deposit_references.values()
    details = page.locator(DETAILS)
    for value in (*reference["details"]["bank_transfer"].values(), reference["details"]["reference"]):
        expect(details.get_by_text(value, exact=True).first).to_be_visible()
    assert (reference["country"], reference["currency"]) == ("MX", "MXN")

    if scripts:
        customer.mark()
    provider.engine.transfer(reference["id"], 123_456)
    provider.deliver()
    if scripts:
        customer.look_again()
    else:
        customer.visitor.open(page.url)
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"1[.,]?234[.,]56"), timeout=TIMEOUT_MS)
    expect(details).to_be_visible()  # it stays, for the next transfer
    if scripts:
        assert customer.page_was_kept()
    assert Payment.objects.get().merchant_reference == reference["merchant_reference"]


def test_the_same_customer_keeps_the_account(welcome: Welcome) -> None:
    customer = welcome()
    for email, market, accounts in ((EMAIL, "MX-MXN", 1), (EMAIL.upper(), "MX-MXN", 1), (EMAIL, "CL-CLP", 2)):
        ask_for_account(customer, market, email)
        expect(customer.page.locator(DETAILS)).to_be_visible()
        assert len(customer.provider.project.deposit_references) == accounts


def test_another_browser_does_not_see_the_account(welcome: Welcome, mailoutbox: list[EmailMessage]) -> None:
    """Anybody can type an e-mail address; who can read its mail gets there."""
    customer = welcome()
    ask_for_account(customer)
    expect(customer.page.locator(DETAILS)).to_be_visible()
    stranger = welcome()
    ask_for_account(stranger)
    expect(stranger.page.get_by_role("main")).to_contain_text(EMAIL)
    expect(stranger.page.locator(DETAILS)).to_have_count(0)
    [mail] = mailoutbox
    assert mail.to == [EMAIL]
    link = re.search(r"https?://\S+", str(mail.body))
    assert link is not None
    assert link[0] == customer.page.url
    stranger.visitor.open(link[0])
    expect(stranger.page.locator(DETAILS)).to_be_visible()
    assert len(customer.provider.project.deposit_references) == 1
