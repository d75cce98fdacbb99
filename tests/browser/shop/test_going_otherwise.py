"""Orders that are canceled, expire, fail, are paid in part or too much, and get their money back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from example_project.shop.models import Order
from payments_integration import services
from tests.browser.shop.conftest import Welcome
from tests.browser.shop.customer import CANCEL, TIMEOUT_MS, Customer, later

pytestmark = pytest.mark.urls("example_project.urls")


def money(digits: str) -> re.Pattern[str]:
    """An amount, and not the end of a larger one."""
    return re.compile(rf"(?<!\d)(?<!\d[.,]){re.escape(digits)}(?!\d)")


def test_the_payer_can_cancel_an_open_payment(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_bank_transfer", flow="s2s")
    customer.sees("new")
    customer.visitor.press(customer.page.get_by_role("button", name=CANCEL))
    customer.sees("canceled")
    assert customer.provider.project.payments[payment["id"]]["status"] == "canceled"
    expect(customer.page.get_by_role("button", name=CANCEL)).to_have_count(0)
    expect(customer.page.locator(".payments-action")).to_have_count(0)


def test_a_paid_order_cannot_be_canceled(welcome: Welcome) -> None:
    """Paid at the bank while the page still showed the button: the provider decides, and the payer sees paid."""
    customer = welcome()
    payment = customer.buy("cl_bank_transfer", flow="s2s")
    customer.sees("new")
    button = customer.page.get_by_role("button", name=CANCEL)
    expect(button).to_be_visible()
    customer.provider.engine.pay(payment["id"])  # and no delivery yet
    customer.visitor.press(button)
    customer.provider.deliver()
    customer.sees("paid")
    assert customer.provider.project.payments[payment["id"]]["status"] == "succeeded"
    expect(button).to_have_count(0)


def test_an_expired_order_that_is_paid_late_becomes_paid(welcome: Welcome) -> None:
    customer = welcome()
    customer.buy("cl_servipag", flow="s2s")
    customer.sees("new")
    customer.mark()
    with later(days=3, minutes=1):
        customer.provider.deliver()
        customer.sees("expired")
        assert customer.page_was_kept()
        expect(customer.page.locator(".payments-action-voucher")).to_have_count(0)
        # Expired is not final: the counter took the money all the same.
        customer.pays()
        customer.look_again()
        customer.sees("paid")
        assert customer.page_was_kept()
    assert Order.objects.get().paid_at is not None


def test_a_failed_payment_is_shown_as_failed(welcome: Welcome) -> None:
    customer = welcome()
    customer.buy("cl_webpay_card")
    customer.press_at_provider("Fail")
    customer.provider.deliver()
    customer.sees("failed")
    assert Order.objects.get().paid_at is None


def test_a_refund_appears_on_the_order(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_webpay_card")
    customer.press_at_provider("Pay")
    customer.provider.engine.fund("CLP", 100_000)
    customer.provider.settle()
    customer.sees("paid")
    customer.mark()
    refunds = customer.page.locator("[data-refund-status]")
    expect(refunds).to_have_count(0)

    services.create_refund(payment["id"], amount=4_990, reason="arrived broken", idempotency_key="part")
    customer.look_again()
    expect(refunds).to_have_count(1, timeout=TIMEOUT_MS)
    expect(refunds).not_to_have_attribute("data-refund-status", "succeeded")
    customer.sees("paid")

    _give_back(customer)
    customer.look_again()
    expect(refunds).to_have_attribute("data-refund-status", "succeeded", timeout=TIMEOUT_MS)
    expect(refunds).to_contain_text(money("4.990"))
    customer.sees("partially_refunded")

    services.create_refund(payment["id"], idempotency_key="rest")
    _give_back(customer)
    customer.look_again()
    customer.sees("refunded")
    expect(refunds).to_have_count(2)
    assert customer.page_was_kept()
    expect(refunds.filter(has_text=money("10.000"))).to_have_count(1)


def _give_back(customer: Customer) -> None:
    for refund in customer.provider.project.refunds.values():
        if refund["status"] != "succeeded":
            customer.provider.engine.succeed_refund(refund["id"])
    customer.provider.settle()


def test_a_partial_payment_and_then_the_rest_make_the_order_paid(welcome: Welcome) -> None:
    customer = welcome()
    payment = customer.buy("cl_bank_transfer", flow="s2s")
    page = customer.page
    customer.sees("new")
    asked = page.locator(".payments-action")
    expect(asked).to_contain_text(money("14.990"))
    customer.mark()
    customer.pays(10_000)
    customer.sees("partially_paid")
    expect(page.get_by_role("status").filter(has_text=money("4.990"))).to_have_count(1)
    expect(asked).to_contain_text(money("4.990"))
    expect(asked).not_to_contain_text(money("14.990"))
    # The redrawn action works like the first one.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=customer.visitor.site)
    page.get_by_role("button", name="Copy Account number").click()
    number = payment["next_action"]["bank_transfer"]["account_number"]
    expect(page.locator(".payments-copied", has_text="Copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == number
    expect(page.get_by_role("timer")).to_be_visible()
    customer.pays(4_990)
    customer.sees("paid")
    expect(asked).to_have_count(0)
    assert customer.page_was_kept()


def test_an_excess_payment_is_explained(welcome: Welcome) -> None:
    customer = welcome()
    customer.buy("cl_bank_transfer", flow="s2s")
    customer.pays(20_000)
    customer.sees("paid")
    expect(customer.page.get_by_role("status").filter(has_text=money("5.010"))).to_contain_text("back")
    assert Order.objects.get().note


@pytest.mark.parametrize("end", ["canceled", "failed", "expired"])
def test_an_order_is_paid_by_another_method_after_a_failure(welcome: Welcome, end: str) -> None:
    customer = welcome()
    first = customer.buy("cl_khipu", flow="s2s")
    if end == "canceled":
        customer.visitor.press(customer.page.get_by_role("button", name=CANCEL))
    elif end == "failed":
        customer.provider.engine.fail(first["id"])
    else:
        customer.provider.engine.expire(first["id"])
    customer.provider.deliver()
    customer.sees(end)
    second = customer.pay_again("cl_mach", flow="s2s")
    customer.sees("new")
    assert second["id"] != first["id"]
    assert second["merchant_reference"] == first["merchant_reference"]
    customer.mark()
    customer.pays()
    customer.sees("paid")
    assert customer.page_was_kept()
    assert Order.objects.count() == 1


def test_late_money_beside_another_attempt_is_not_lost(welcome: Welcome) -> None:
    customer = welcome()
    first = customer.buy("cl_servipag", flow="s2s")
    customer.provider.engine.expire(first["id"])
    customer.provider.deliver()
    customer.sees("expired")
    customer.pay_again("cl_mach", flow="s2s")
    customer.sees("new")
    customer.pays()
    customer.sees("paid")
    assert Order.objects.get().note == ""
    customer.pays(payment=first)
    customer.look_again()
    # The payer sees that the refund is on its way, and staff see that they must send it.
    expect(customer.page.get_by_role("status").filter(has_text=money("14.990"))).to_contain_text(
        "back", timeout=TIMEOUT_MS
    )
    customer.sees("paid")
    assert "14,990" in Order.objects.get().note
