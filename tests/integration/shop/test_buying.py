"""The example's shop against the sandbox: what a payer does, and what the shop makes of it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db.models import F
from django.test import Client
from django.utils import translation

from example_project.shop.models import Notice, Order, Price
from payments_integration import services
from payments_integration.checkout import attempts, method_name, methods, order_pages
from payments_integration.models import Operation, Payment
from payments_integration.payable import OrderStatus
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.integration.shop.shopping import PAGE, bought, filled_in, seen, way_back

pytestmark = [
    pytest.mark.urls("example_project.urls"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.any_database,
]


def test_products_and_prices_are_shown(shop: ProviderSandbox, browser: Client) -> None:
    html = browser.get("/").content.decode()
    assert "Mug" in html
    assert "5,990" in html
    assert "34.90" in html


def test_the_form_offers_the_methods_of_the_market(shop: ProviderSandbox, browser: Client) -> None:
    html = browser.get("/buy/mug/?market=BR-BRL").content.decode()
    assert 'value="br_pix"' in html
    # A change of the country shows its prices by itself, or by a button where there are no scripts.
    assert re.search(r'<select name="market"[^>]* data-sends-form', html)
    assert re.search(r'<noscript>.*<button[^>]* name="show" formnovalidate>', html)
    assert "cl_webpay_card" not in html
    # Not for payments: deposits have references of their own.
    assert "br_deposit" not in html


def test_hosted_checkout_ends_in_a_paid_order(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser)
    answer = browser.post(PAGE, data)
    order = Order.objects.get()
    payment = Payment.objects.get()
    assert answer["Location"] == payment.checkout_url
    assert (payment.amount, payment.currency, payment.merchant_reference) == (11_980, "CLP", order.reference)
    assert payment.payer == {"name": "Ana Díaz", "email": "ana@example.com"}

    shop.engine.pay(payment.pk)
    shop.settle()

    order.refresh_from_db()
    assert order.status == OrderStatus.PAID
    assert order.paid_at is not None
    assert "Your payment has arrived" in browser.get(order.get_absolute_url()).content.decode()
    assert order.reference in browser.get("/orders/").content.decode()


@pytest.mark.parametrize(
    ("page", "method", "shown"),
    [
        (PAGE, "cl_bank_transfer", "by bank transfer to this account"),
        (PAGE, "cl_servipag", "with this voucher"),
        (PAGE, "cl_chek", "on your phone"),
        (PAGE, "cl_khipu", "Continue to pay"),
        (PAGE, "cl_card_direct", "on its way"),
        ("/buy/mug/?market=BR-BRL", "br_pix", "Scan the code"),
    ],
)
def test_s2s_shows_what_to_do(shop: ProviderSandbox, browser: Client, page: str, method: str, shown: str) -> None:
    order = bought(browser, page, method_code=method, flow="s2s")
    html = browser.get(order.get_absolute_url()).content.decode()
    assert shown in html
    assert 'http-equiv="refresh"' in html
    payment = order.payment
    assert payment is not None
    reference = (payment.next_action or {}).get("reference")
    assert reference is None or reference in html

    shop.engine.pay(payment.pk)
    shop.settle()
    order.refresh_from_db()
    assert order.status == OrderStatus.PAID
    assert 'http-equiv="refresh"' not in browser.get(order.get_absolute_url()).content.decode()


@pytest.mark.promise(5)
def test_a_form_sent_twice_is_one_payment(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser)
    first, second = browser.post(PAGE, data), browser.post(PAGE, data)
    assert first["Location"] == second["Location"]
    assert Order.objects.count() == Operation.objects.count() == len(shop.engine.payments) == 1


@pytest.mark.promise(5)
def test_a_form_sent_again_under_another_host_is_one_payment(shop: ProviderSandbox, browser: Client) -> None:
    """The address of return is another one, and the provider keeps the first."""
    data = filled_in(browser)
    first, second = browser.post(PAGE, data), browser.post(PAGE, data, headers={"host": "127.0.0.1"})
    assert first["Location"] == second["Location"]
    assert "//localhost" in Operation.objects.get().arguments["return_url"]
    assert len(shop.engine.payments) == 1


@pytest.mark.promise(5)
def test_a_repeated_attempt_with_other_arguments_shows_its_order(shop: ProviderSandbox, browser: Client) -> None:
    """A payer who reads that nothing was charged would pay twice."""
    data = filled_in(browser)
    browser.post(PAGE, data)
    order = Order.objects.get()
    Order.objects.update(name="Another")
    answer = browser.post(PAGE, data)
    assert (answer.status_code, answer.get("Location")) == (302, order.get_absolute_url())
    assert "Continue to pay" in seen(browser, order)
    assert len(shop.engine.payments) == 1


def test_two_forms_are_two_payments(shop: ProviderSandbox, browser: Client) -> None:
    assert bought(browser).reference != bought(browser).reference
    assert len(shop.engine.payments) == 2


def test_returning_does_not_prove_a_payment(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    answer = browser.get(way_back(order), {"status": "succeeded", "payment_id": "pay_else"})
    assert (answer.status_code, answer["Location"]) == (302, order.get_absolute_url())
    html = seen(browser, order)
    assert "We are looking whether your payment has arrived" in html
    assert "Your payment has arrived" not in html
    order.refresh_from_db()
    assert order.status == OrderStatus.NEW


def test_a_return_url_cannot_be_forged(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    assert browser.get(f"/returned/{order.reference}/").status_code == 404
    assert browser.get(way_back(order)[:-2] + "/").status_code == 404
    # Nor does a query string make the order's own page believe anything.
    assert "Continue to pay" in browser.get(order.get_absolute_url(), {"payment_id": "pay_any"}).content.decode()


def reads(shop: ProviderSandbox) -> int:
    return sum(request["operation"] == "get_payment" for request in shop.engine.requests)


def heard_of_long_ago() -> None:
    """The mirror's last news of every payment is a minute old."""
    Payment.objects.update(synced_at=F("synced_at") - timedelta(minutes=1))


@pytest.mark.parametrize("flow", ["hosted", "s2s"])
def test_a_returning_payer_is_not_asked_to_pay_again(
    shop: ProviderSandbox, browser: Client, stranger: Client, flow: str
) -> None:
    order = bought(browser, method_code="cl_khipu", flow=flow)
    invitation = "Continue to pay"
    assert invitation in seen(browser, order)
    assert reads(shop) == 0

    heard_of_long_ago()
    browser.get(way_back(order))
    assert reads(shop) == 1
    for _ in range(2):
        html = seen(browser, order)
        assert "We are looking" in html
        assert invitation not in html
        assert f'content="{order_pages.RELOAD_SECONDS};url={order.get_absolute_url()}"' in html
        assert reads(shop) == 1

    # Somebody else, and the same payer a while later, who has not paid after all.
    assert invitation in seen(stranger, order)
    session = browser.session
    session["payments_returned"] = [order.reference, session["payments_returned"][1] - attempts.WAIT_FOR_MONEY]
    session.save()
    assert invitation in seen(browser, order)


def test_returning_finds_the_money_before_the_webhook(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.pay(Payment.objects.get().pk)
    heard_of_long_ago()
    browser.get(way_back(order))
    assert Payment.objects.get().status == "succeeded"
    order.refresh_from_db()
    assert order.status == OrderStatus.PAID


def test_returning_works_while_the_provider_is_down(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.faults.add(Fault("error", operation="get_payment", times=None))
    heard_of_long_ago()
    browser.get(way_back(order))
    assert "We are looking" in seen(browser, order)


def test_a_polling_page_does_not_read_the_provider_each_time(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.faults.add(Fault("error", operation="get_payment", times=None))
    heard_of_long_ago()
    seen(browser, order)
    before = reads(shop)
    assert before > 0
    for _ in range(3):
        seen(browser, order)
    assert reads(shop) == before


@pytest.mark.promise(5)
def test_a_lost_answer_asks_the_payer_to_wait(shop: ProviderSandbox, browser: Client) -> None:
    shop.engine.faults.add(Fault("reset", operation="create_payment", work=True))
    order = bought(browser)
    assert "Please do not order again" in browser.get(order.get_absolute_url()).content.decode()
    Operation.objects.update(next_attempt_at=None)
    services.resume_operations()
    assert len(shop.engine.payments) == 1
    assert "Continue to pay" in browser.get(order.get_absolute_url()).content.decode()


def test_a_refusal_is_explained_and_can_be_tried_again(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser, method_code="cl_khipu")
    # The method was offered a minute ago.
    methods("CL", "CLP", 11_980)
    shop.engine.terms.unavailable_methods.add("cl_khipu")
    answer = browser.post(PAGE, data)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "not available just now" in html
    assert data["submission"] not in html
    assert Order.objects.get().status == OrderStatus.REFUSED
    assert bought(browser).payment is not None


def test_another_country_is_shown_before_it_is_paid_in(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser, market="BR-BRL", quantity="3")
    answer = browser.post(PAGE, data)
    html = answer.content.decode()
    assert answer.status_code == 200
    assert not Order.objects.exists()
    assert not shop.engine.payments
    for shown in ("R$\xa034,90", 'value="br_pix"', 'value="BR-BRL" selected', 'action="?market=BR-BRL"'):
        assert shown in html
    # What was typed is kept; it is another purchase.
    for typed in ('value="Ana Díaz"', 'value="ana@example.com"', '<option value="3" selected>'):
        assert typed in html
    assert "cl_webpay_card" not in html
    assert data["submission"] not in html

    again = bought(browser, "/buy/mug/?market=BR-BRL", method_code="br_pix", quantity="3")
    assert (again.country, again.currency, again.amount) == ("BR", "BRL", 10_470)


def test_a_form_without_a_country_buys_nothing(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser)
    del data["market"]
    assert browser.post(PAGE, data).status_code == 200
    assert not Order.objects.exists()


def test_another_price_is_shown_before_it_is_paid(shop: ProviderSandbox, browser: Client) -> None:
    data = {**filled_in(browser), "price": "11980"}
    assert 'name="price" value="5990"' in browser.get(PAGE).content.decode()
    Price.objects.filter(currency="CLP").update(amount=59_900)
    html = browser.post(PAGE, data).content.decode()
    assert "The price has changed" in html
    assert 'name="price" value="119800"' in html
    assert "<span data-total>$119.800</span>" in html
    assert not Order.objects.exists()
    assert browser.post(PAGE, {**data, "price": "119800"}).status_code == 302
    assert Order.objects.get().amount == 119_800


@pytest.mark.promise(5)
def test_a_form_sent_twice_is_one_order_after_a_price_change(shop: ProviderSandbox, browser: Client) -> None:
    data = {**filled_in(browser), "price": "11980"}
    first = browser.post(PAGE, data)
    Price.objects.filter(currency="CLP").update(amount=59_900)
    assert browser.post(PAGE, data)["Location"] == first["Location"]
    assert Order.objects.get().amount == 11_980


def test_looking_at_prices_buys_nothing(shop: ProviderSandbox, browser: Client) -> None:
    assert browser.post(PAGE, filled_in(browser, show="")).status_code == 200
    assert not Order.objects.exists()


def test_every_quantity_has_its_total(shop: ProviderSandbox, browser: Client) -> None:
    html = browser.get(PAGE).content.decode()
    assert "1 for $5.990" in html
    assert "10 for $59.900" in html


def test_an_order_speaks_to_people(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.open_checkout(Payment.objects.get().pk)
    shop.settle()
    for known in (True, False):
        html = browser.get(order.get_absolute_url()).content.decode()
        assert "Webpay card" in html
        assert ("cl_webpay_card" in html, "requires_action" in html) == (False, False)
        assert "Your payment is waiting for you." in html
        assert "$11.980" in html
        if known:
            # Without an answer of the provider, the app reads it from the method's code.
            cache.clear()
    assert method_name("cl_khipu") == "Khipu"
    methods("CL", "CLP", 1)
    assert method_name("cl_mach") == "MACH"


def test_a_surplus_is_announced_as_a_refund(shop: ProviderSandbox, browser: Client, stranger: Client) -> None:
    order = bought(browser, method_code="cl_bank_transfer")
    shop.engine.pay(Payment.objects.get().pk, 20_000)
    shop.settle()
    html = seen(browser, order)
    assert "You sent more than the price." in html
    assert "<strong>$8.020</strong> back and write to ana@example.com about it." in html
    assert "ana@example.com" not in seen(stranger, order)
    order.refresh_from_db()
    assert order.note == "more was paid than asked: refund the rest"


@pytest.mark.usefixtures("example_templates")
def test_a_wrong_address_looks_like_the_shop(shop: ProviderSandbox, browser: Client) -> None:
    answer = browser.get("/nothing/")
    assert answer.status_code == 404
    assert "The Corner Shop" in answer.content.decode()


def test_methods_are_offered_for_the_amount(shop: ProviderSandbox, browser: Client) -> None:
    Price.objects.update(amount=2_000_000_000)
    data = filled_in(browser, quantity="1", method_code="cl_servipag")
    assert 'value="cl_servipag"' in browser.get(PAGE).content.decode()
    html = browser.post(PAGE, {**data, "quantity": "10"}).content.decode()
    assert "This way of paying does not take this amount" in html
    assert 'value="cl_servipag"' not in html
    assert not Order.objects.exists()
    assert browser.post(PAGE, data).status_code == 302


def test_nothing_on_a_page_is_inline(shop: ProviderSandbox, browser: Client) -> None:
    """What ``script-src 'self'; style-src 'self'`` forbids."""
    waiting = bought(browser, method_code="cl_mach", flow="s2s")
    for page in ("/", PAGE, "/orders/", "/deposits/", waiting.get_absolute_url()):
        html = browser.get(page).content.decode()
        assert re.findall(r"<script(?![^>]* src=)|<style|\son[a-z]+=|\sstyle=|javascript:", html) == []


def test_the_instructions_are_in_the_payers_language(shop: ProviderSandbox, browser: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    order = bought(browser, method_code="cl_bank_transfer", flow="s2s")
    with translation.override("en"):  # what the middleware does ends here
        html = browser.get(order.get_absolute_url(), headers={"accept-language": "pt-br"}).content.decode()
    assert re.search(r'<html lang="pt-br">.*<section class="payments-action', html, re.DOTALL)
    assert "Transferência" in html or "transferência" in html


def test_a_wrong_form_sends_nothing(shop: ProviderSandbox, browser: Client) -> None:
    data = filled_in(browser, email="no-address", quantity="0")
    assert browser.post(PAGE, data).status_code == 200
    assert not Order.objects.exists()
    assert not shop.engine.payments


def test_an_unreachable_provider_is_explained(shop: ProviderSandbox, browser: Client) -> None:
    shop.engine.faults.add(Fault("error", operation="list_payment_methods", times=None))
    assert "cannot reach the payment provider" in browser.get(PAGE).content.decode()


def test_expired_is_not_final(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    payment_id = Payment.objects.get().pk
    shop.engine.expire(payment_id)
    shop.settle()
    order.refresh_from_db()
    assert order.status == OrderStatus.EXPIRED
    shop.engine.pay(payment_id)
    shop.settle()
    order.refresh_from_db()
    assert order.status == OrderStatus.PAID


@pytest.mark.parametrize(
    ("amounts", "status"),
    [((5_000,), OrderStatus.PARTIALLY_PAID), ((5_000, 6_980), OrderStatus.PAID), ((20_000,), OrderStatus.PAID)],
)
def test_partial_and_excess_payments_are_shown(
    shop: ProviderSandbox, browser: Client, amounts: tuple[int, ...], status: str
) -> None:
    order = bought(browser, method_code="cl_bank_transfer")
    for amount in amounts:
        shop.engine.pay(Payment.objects.get().pk, amount)
    shop.settle()
    order.refresh_from_db()
    assert order.status == status


def test_another_amount_than_the_orders_is_not_delivered(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    Order.objects.update(amount=99_999)
    shop.engine.pay(Payment.objects.get().pk)
    shop.settle()
    order.refresh_from_db()
    assert order.status == OrderStatus.REVIEW
    assert order.paid_at is None


def test_refunds_show_on_the_order(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    payment = Payment.objects.get()
    shop.engine.pay(payment.pk)
    shop.settle()
    shop.engine.fund("CLP", 100_000)
    statuses = []
    for amount in (980, None):
        refund = services.create_refund(payment, amount=amount)
        shop.engine.succeed_refund(refund.pk)
        shop.settle()
        order.refresh_from_db()
        statuses.append(order.status)
    assert statuses == [OrderStatus.PARTIALLY_REFUNDED, OrderStatus.REFUNDED]


@pytest.mark.promise(6)
def test_handlers_keep_one_notice_per_event(shop: ProviderSandbox, browser: Client) -> None:
    bought(browser)
    shop.engine.pay(Payment.objects.get().pk)
    shop.settle()
    for event in shop.engine.events:
        shop.engine.redeliver(event["id"])
    shop.settle()
    dispatched = list(Notice.objects.values_list("event_id", flat=True))
    assert sorted(dispatched) == sorted(event["id"] for event in shop.engine.events)


def test_orders_in_the_admin_lead_to_their_payment(shop: ProviderSandbox, browser: Client, admin_user: Any) -> None:
    order = bought(browser)
    browser.force_login(admin_user)
    for page in ("/admin/shop/order/", f"/admin/shop/order/{order.pk}/change/"):
        html = browser.get(page).content.decode()
        assert order.reference in html
        assert Payment.objects.get().pk in html


def test_an_order_leads_to_a_payment_with_any_id(shop: ProviderSandbox, browser: Client, admin_user: Any) -> None:
    """The admin writes the sign # as _23 in its addresses."""
    order = bought(browser)
    Payment.objects.update(id="pay_23")
    browser.force_login(admin_user)
    for page in ("/admin/shop/order/", f"/admin/shop/order/{order.pk}/change/"):
        html = browser.get(page).content.decode()
        [address] = set(re.findall(r'href="(/admin/payments_integration/payment/[^"]+/change/)"', html))
        assert browser.get(address).status_code == 200


def test_an_order_leads_to_its_payment_only_if_the_user_may_open_it(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    packer = User.objects.create_user("packer", is_staff=True)
    packer.user_permissions.add(Permission.objects.get(codename="view_order", content_type__app_label="shop"))
    browser.force_login(packer)
    pages = ("/admin/shop/order/", f"/admin/shop/order/{order.pk}/change/")
    for page in pages:
        html = browser.get(page).content.decode()
        assert Payment.objects.get().pk in html
        assert "/admin/payments_integration/payment/" not in html
    # To Django, who may change a row may see it.
    packer.user_permissions.add(Permission.objects.get(codename="change_payment"))
    for page in pages:
        html = browser.get(page).content.decode()
        [address] = set(re.findall(r'href="(/admin/payments_integration/payment/[^"]+/change/)"', html))
        assert browser.get(address).status_code == 200
