"""One order, several attempts to pay for it, and money that arrives late."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import time_machine
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import Client, RequestFactory
from django.views.defaults import permission_denied

from example_project.shop import checkout, orders
from example_project.shop.models import Order
from payments_integration import services
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation, Payment, deletion_allowed
from payments_integration.payable import OrderStatus
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.integration.shop.shopping import (
    DESTINATION,
    PAGE,
    bought,
    expired,
    filled_in,
    form,
    pay_again,
    seen,
    status,
)

pytestmark = [pytest.mark.urls("example_project.urls"), pytest.mark.django_db(transaction=True)]


def resumed(shop: ProviderSandbox) -> None:
    """What a receiver asked for is sent by the next pass."""
    Operation.objects.update(next_attempt_at=None)
    services.resume_operations()
    shop.settle()


def second(order: Order) -> Payment:
    return Payment.objects.get(
        pk=Operation.objects.get(idempotency_key=f"order-default-{order.reference}-2").result_id
    )


@pytest.mark.parametrize("how", ["fail", "expire", "cancel"])
def test_the_same_order_is_paid_by_another_method(shop: ProviderSandbox, browser: Client, how: str) -> None:
    order = bought(browser)
    first = Payment.objects.get()
    if how == "cancel":
        browser.post(f"{order.get_absolute_url()}cancel/")
    else:
        getattr(shop.engine, how)(first.pk)
    shop.settle()
    assert status(order) == {"fail": "failed", "expire": "expired", "cancel": "canceled"}[how]
    assert "Pay this order again" in seen(browser, order)

    leads_to = pay_again(browser, order)
    payment = second(order)
    assert leads_to == payment.checkout_url
    assert (payment.merchant_reference, payment.method_code) == (order.reference, "cl_khipu")
    assert status(order) == OrderStatus.NEW
    assert "Pay this order again" not in seen(browser, order)

    shop.engine.pay(payment.pk)
    shop.settle()
    assert status(order) == OrderStatus.PAID
    assert order.note == ""
    html = seen(browser, order)
    assert first.pk in html
    assert payment.pk in html


@pytest.mark.case(128)
@pytest.mark.promise(5)
def test_a_second_attempt_sent_twice_is_one(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    page, data = (
        f"{order.get_absolute_url()}pay/",
        {"attempt": form(order, 2), "method_code": "cl_khipu"},
    )
    leads_to = {browser.post(page, data)["Location"] for _ in range(2)}
    assert leads_to == {second(order).checkout_url}
    assert len(shop.engine.payments) == 2


@pytest.mark.promise(5)
def test_two_second_attempts_at_once_are_one(shop: ProviderSandbox, browser: Client) -> None:
    """Two tabs, two methods, one moment."""
    order, _first = expired(shop, browser)

    def begin(method_code: str) -> bool:
        try:
            checkout.pay(checkout.begin(order, form(order, 2), method_code=method_code))
        except checkout.NotNow:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(2) as tabs:
        made = list(tabs.map(begin, ["cl_khipu", "cl_mach"]))
    assert sorted(made) == [False, True]
    assert len(shop.engine.payments) == 2


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_no_attempt_while_one_is_open(shop: ProviderSandbox, browser: Client, attempt: int) -> None:
    order = bought(browser)
    data = {"attempt": form(order, attempt), "method_code": "cl_khipu"}
    answer = browser.post(f"{order.get_absolute_url()}pay/", data)
    assert answer["Location"] == order.get_absolute_url()
    assert "nothing to pay again" in seen(browser, order)
    assert len(shop.engine.payments) == 1


def test_no_attempt_for_an_old_form(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    pay_again(browser, order)
    shop.engine.fail(second(order).pk)
    shop.settle()
    page = f"{order.get_absolute_url()}pay/"
    browser.post(page, {"attempt": form(order, 2), "method_code": "cl_mach"})
    assert len(shop.engine.payments) == 2
    pay_again(browser, order)
    assert len(shop.engine.payments) == 3


@pytest.mark.case(128)
def test_a_form_sent_twice_is_one_attempt_although_it_is_declined(shop: ProviderSandbox, browser: Client) -> None:
    first = filled_in(browser)
    browser.post(PAGE, first)
    order = Order.objects.get()
    page = f"{order.get_absolute_url()}pay/"
    again = {"attempt": form(order, 2), "method_code": "cl_khipu"}
    for number, (address, data) in enumerate([(PAGE, first), (page, again)], start=1):
        browser.post(address, data)
        shop.engine.fail(Payment.objects.exclude(status="failed").get().pk)
        shop.settle()
        assert browser.post(address, data)["Location"] == order.get_absolute_url()
        assert len(shop.engine.payments) == number
    assert status(order) == OrderStatus.FAILED
    assert "Pay this order again" in seen(browser, order)


@pytest.mark.parametrize("attempt", ["", "2", "order-default-x-2", "x:y"])
def test_an_attempt_that_no_form_had_is_refused(shop: ProviderSandbox, browser: Client, attempt: str) -> None:
    order, _first = expired(shop, browser)
    data = {"attempt": attempt, "method_code": "cl_khipu"}
    answer = browser.post(f"{order.get_absolute_url()}pay/", data)
    assert answer.status_code == (422 if attempt else 200)
    assert len(shop.engine.payments) == 1


@pytest.mark.case(125)
def test_another_method_after_a_rate_limit_is_the_same_attempt(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    shop.engine.faults.add(Fault("rate_limited", operation="create_payment", retry_after="11", times=1))
    page, key = f"{order.get_absolute_url()}pay/", form(order, 2)
    answer = browser.post(page, {"attempt": key, "method_code": "cl_khipu"}, follow=True)
    assert "Nothing was charged" in answer.content.decode()
    assert len(shop.engine.payments) == 1
    browser.post(page, {"attempt": key, "method_code": "cl_mach"})
    assert second(order).method_code == "cl_mach"
    assert len(shop.engine.payments) == 2


def test_no_attempt_while_the_last_ones_outcome_is_unknown(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    shop.engine.faults.add(Fault("reset", operation="create_payment", work=True))
    assert pay_again(browser, order) == order.get_absolute_url()
    html = seen(browser, order)
    assert "Please do not order again" in html
    assert "Pay this order again" not in html
    browser.post(f"{order.get_absolute_url()}pay/", {"attempt": form(order, 3), "method_code": "cl_mach"})
    resumed(shop)
    assert len(shop.engine.payments) == 2
    assert "Continue to pay" in seen(browser, order)


def test_a_refused_attempt_leaves_the_next_one_free(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    page = f"{order.get_absolute_url()}pay/"
    browser.get(page)
    shop.engine.terms.unavailable_methods.add("cl_khipu")
    answer = browser.post(page, {"attempt": form(order, 2), "method_code": "cl_khipu"})
    assert answer.status_code == 422
    assert "not available just now" in answer.content.decode()
    assert f'name="attempt" value="{form(order, 3)}"' in answer.content.decode()
    assert (status(order), order.note) == (OrderStatus.REFUSED, "method_not_available")
    pay_again(browser, order, method_code="cl_mach")
    assert status(order) == OrderStatus.NEW


def test_an_attempt_refused_later_shows_on_the_page(shop: ProviderSandbox, browser: Client) -> None:
    """The answer was lost, and the worker's second attempt was refused: no event reports that."""
    shop.engine.faults.add(Fault("error", operation="create_payment", status=503, code="service_unavailable"))
    order = bought(browser)
    assert "Please do not order again" in seen(browser, order)
    Operation.objects.update(state="closed")
    html = seen(browser, order)
    assert 'data-order-status="refused"' in html
    assert "Pay this order again" in html


def test_an_order_that_was_placed_and_never_sent_can_be_paid(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    with deletion_allowed():
        Payment.objects.all().delete()
        Operation.objects.all().delete()
    Order.objects.update(reference="ORD-NEVER-SENT", key="order-default-ORD-NEVER-SENT-1")
    order.refresh_from_db()
    session = browser.session
    session["orders"] = [order.reference]
    session.save()
    assert "This order is not paid yet" in seen(browser, order)
    answer = browser.post(f"{order.get_absolute_url()}pay/")
    assert answer["Location"] == Payment.objects.get().checkout_url
    assert Operation.objects.get().idempotency_key == order.key


class TestLateMoney:
    def test_late_money_is_read_before_another_attempt(self, shop: ProviderSandbox, browser: Client) -> None:
        """Paid late, and the news not here: the payer is not asked for the money once more."""
        order, first = expired(shop, browser)
        shop.engine.faults.add(Fault("drop", times=None))
        shop.engine.pay(first.pk)
        Payment.objects.update(synced_at=first.created_at.replace(year=2020))
        browser.post(f"{order.get_absolute_url()}pay/", {"attempt": form(order, 2), "method_code": "cl_khipu"})
        assert len(shop.engine.payments) == 1
        assert status(order) == OrderStatus.PAID

    def test_late_money_of_every_attempt_is_read(self, shop: ProviderSandbox, browser: Client) -> None:
        order, first = expired(shop, browser)
        pay_again(browser, order)
        shop.engine.fail(second(order).pk)
        shop.settle()
        shop.engine.faults.add(Fault("drop", times=None))
        shop.engine.pay(first.pk)
        Payment.objects.update(synced_at=first.created_at.replace(year=2020))
        browser.post(f"{order.get_absolute_url()}pay/", {"attempt": form(order, 3), "method_code": "cl_mach"})
        assert len(shop.engine.payments) == 2
        assert status(order) == OrderStatus.PAID

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("is_dispatched", [True, False])
    def test_an_attempt_is_not_sent_after_late_money_arrived(
        self, shop: ProviderSandbox, browser: Client, *, is_dispatched: bool
    ) -> None:
        """It was begun, and the process died; then the first one was paid late. A tab still has its form."""
        order, first = expired(shop, browser)
        checkout.begin(order, form(order, 2), method_code="cl_khipu")
        if not is_dispatched:
            shop.engine.faults.add(Fault("drop", times=None))
            Payment.objects.update(synced_at=first.created_at.replace(year=2020))
        shop.engine.pay(first.pk)
        shop.settle()
        data = {"attempt": form(order, 2), "method_code": "cl_khipu"}
        for _ in range(2):
            answer = browser.post(f"{order.get_absolute_url()}pay/", data)
            assert answer["Location"] == order.get_absolute_url()
        assert len(shop.engine.payments) == 1
        assert status(order) == OrderStatus.PAID

    def test_a_concurrent_change_of_another_attempt_keeps_the_order_paid(
        self, shop: ProviderSandbox, browser: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is paid after its order's attempts were read: the order is paid all the same."""
        order, first = expired(shop, browser)
        pay_again(browser, order)
        # The shop has received no event yet.
        monkeypatch.setattr("example_project.shop.payment_handlers.follow", lambda obj: None)
        shop.engine.pay(first.pk)
        shop.settle()

        def deciding(order: Order, *args: Any, **kwargs: Any) -> tuple[OrderStatus, str]:
            Payment.objects.filter(pk=second(order).pk).update(status="processing")
            return decide_status(order, *args, **kwargs)

        decide_status = orders.decide_status
        monkeypatch.setattr(orders, "decide_status", deciding)
        orders.settle(order)
        assert status(order) == OrderStatus.PAID

    def test_late_money_makes_the_order_paid_and_cancels_the_open_attempt(
        self, shop: ProviderSandbox, browser: Client
    ) -> None:
        order, first = expired(shop, browser)
        pay_again(browser, order)
        shop.engine.pay(first.pk)
        shop.settle()
        assert status(order) == OrderStatus.PAID
        assert "Continue to pay" not in seen(browser, order)
        resumed(shop)
        assert shop.engine.payments[second(order).pk]["status"] == "canceled"
        assert (status(order), order.note) == (OrderStatus.PAID, "")

    def test_a_second_payment_is_a_surplus_until_it_is_refunded(self, shop: ProviderSandbox, browser: Client) -> None:
        order, first = expired(shop, browser)
        pay_again(browser, order)
        for payment in (second(order), first):
            shop.engine.pay(payment.pk)
        shop.settle()
        assert (status(order), order.note) == (OrderStatus.PAID, "paid 2 times: refund CLP\xa011,980")
        html = seen(browser, order)
        assert "We will give <strong>$11.980</strong> back" in html

        shop.engine.fund("CLP", 100_000)
        refund = services.create_refund(first)
        assert "Your money is on its way back to you" in seen(browser, order)
        assert 'data-refund-status="created"' in seen(browser, order)
        shop.engine.succeed_refund(refund.pk)
        shop.settle()
        assert (status(order), order.note) == (OrderStatus.PAID, "")
        html = seen(browser, order)
        assert 'data-refund-status="succeeded"' in html
        assert "data-surplus" not in html

    def test_money_of_a_failed_attempt_is_noted(self, shop: ProviderSandbox, browser: Client) -> None:
        order, first = expired(shop, browser)
        pay_again(browser, order)
        shop.engine.pay(second(order).pk)
        shop.settle()
        Payment.objects.filter(pk=first.pk).update(amount_received=5_000)
        seen(browser, order)
        assert (status(order), order.note) == (OrderStatus.PAID, "more money is held with another attempt")


class TestMoneyGoesBack:
    def paid(self, shop: ProviderSandbox, browser: Client) -> tuple[Order, Payment]:
        order = bought(browser)
        payment = Payment.objects.get()
        shop.engine.pay(payment.pk)
        shop.settle()
        shop.engine.fund("CLP", 100_000)
        return order, payment

    def test_a_refund_on_its_way_stops_the_delivery(self, shop: ProviderSandbox, browser: Client) -> None:
        order, payment = self.paid(shop, browser)
        refund = services.create_refund(payment)
        shop.settle()
        assert (status(order), order.note) == (OrderStatus.PAID, "all of it is being refunded: do not deliver")
        shop.engine.fail_refund(refund.pk)
        shop.settle()
        assert (status(order), order.note) == (OrderStatus.PAID, "")

    def test_a_partial_refund_is_shown_only_when_it_succeeded(self, shop: ProviderSandbox, browser: Client) -> None:
        order = bought(browser, method_code="cl_bank_transfer", flow="s2s")
        payment = Payment.objects.get()
        shop.engine.pay(payment.pk, 5_000)
        shop.engine.fund("CLP", 100_000)
        shop.settle()
        refund = services.create_refund(payment, destination=DESTINATION)
        shop.settle()
        html = seen(browser, order)
        assert "of your money back" not in html
        assert 'data-refund-status="created"' in html
        assert "by bank transfer to this account" not in html, "the payer is not asked for the rest meanwhile"
        assert (status(order), order.note) == (OrderStatus.REVIEW, "what came is being refunded")
        shop.engine.fail_refund(refund.pk)
        shop.settle()
        assert status(order) == OrderStatus.PARTIALLY_PAID

    def test_a_refund_that_came_back_does_not_count(
        self, clock: time_machine.Traveller, shop: ProviderSandbox, browser: Client
    ) -> None:
        order, payment = self.paid(shop, browser)
        refund = services.create_refund(payment)
        shop.engine.succeed_refund(refund.pk)
        shop.settle()
        assert status(order) == OrderStatus.REFUNDED
        clock.shift(3600)
        shop.engine.return_refund(refund.pk)
        shop.settle()
        assert status(order) == OrderStatus.PAID
        assert "came back to us" in seen(browser, order)

    def test_a_chargeback_is_shown_on_the_order(self, shop: ProviderSandbox, browser: Client) -> None:
        order, payment = self.paid(shop, browser)
        shop.engine.chargeback(payment.pk)
        shop.settle()
        assert status(order) == OrderStatus.CHARGEBACK
        html = seen(browser, order)
        assert "Your bank took the money for this order back" in html
        assert "Pay this order again" not in html

    def test_a_chargeback_of_one_of_two_leaves_the_order_paid(self, shop: ProviderSandbox, browser: Client) -> None:
        order, first = expired(shop, browser)
        pay_again(browser, order)
        for payment in (first, second(order)):
            shop.engine.pay(payment.pk)
        shop.engine.chargeback(first.pk)
        shop.settle()
        assert (status(order), order.note) == (OrderStatus.PAID, "")


def test_an_order_on_hold_does_not_ask_for_money(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.hold(Payment.objects.get().pk)
    shop.settle()
    assert status(order) == OrderStatus.REVIEW
    html = seen(browser, order)
    assert "being reviewed" in html
    assert "Continue to pay" not in html


def test_an_order_under_review_offers_no_other_attempt(shop: ProviderSandbox, browser: Client) -> None:
    """Money came with an attempt that was given up, and the next one is open."""
    order, first = expired(shop, browser)
    pay_again(browser, order)
    assert "Continue to pay" in seen(browser, order)
    Payment.objects.filter(pk=first.pk).update(amount_received=11_980)
    html = seen(browser, order)
    assert "Please do not pay again" in html
    assert "Continue to pay" not in html


def test_a_partial_payment_shows_the_missing_amount(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser, method_code="cl_bank_transfer", flow="s2s")
    payment = Payment.objects.get()
    for amount, missing in ((5_000, "$6.980"), (1_000, "$5.980")):
        shop.engine.pay(payment.pk, amount)
        shop.settle()
        html = seen(browser, order)
        assert 'data-order-status="partially_paid"' in html
        assert f"<strong>{missing}</strong> are missing" in html
        assert "by bank transfer to this account" in html


class TestCancel:
    def test_the_payer_can_cancel_an_open_payment(self, shop: ProviderSandbox, browser: Client) -> None:
        order = bought(browser)
        assert "Cancel this payment" in seen(browser, order)
        for _ in range(2):
            assert browser.post(f"{order.get_absolute_url()}cancel/")["Location"] == order.get_absolute_url()
        assert shop.engine.payments[Payment.objects.get().pk]["status"] == "canceled"
        html = seen(browser, order)
        assert 'data-order-status="canceled"' in html
        assert "Cancel this payment" not in html
        assert "cannot be canceled" not in html

    @pytest.mark.parametrize("move", ["pay", "process", "hold"])
    def test_a_payment_on_its_way_is_not_canceled(self, shop: ProviderSandbox, browser: Client, move: str) -> None:
        order = bought(browser)
        getattr(shop.engine, move)(Payment.objects.get().pk)
        # The news is not here yet: the button is.
        browser.post(f"{order.get_absolute_url()}cancel/")
        shop.settle()
        assert shop.engine.payments[Payment.objects.get().pk]["status"] != "canceled"
        html = seen(browser, order)
        assert "cannot be canceled any more" in html
        assert "Cancel this payment" not in html


@pytest.mark.usefixtures("example_templates")
class TestWhoMay:
    def test_a_stranger_sees_an_order_but_cannot_change_it(
        self, shop: ProviderSandbox, browser: Client, stranger: Client
    ) -> None:
        order, _first = expired(shop, browser)
        page = order.get_absolute_url()
        html = seen(stranger, order)
        assert 'data-order-status="expired"' in html
        assert "Pay this order again" not in html
        assert not re.search("ana@example.com|Ana Díaz", html)
        data = {"attempt": form(order, 2), "method_code": "cl_khipu"}
        assert stranger.get(f"{page}pay/").status_code == stranger.post(f"{page}pay/", data).status_code == 403
        assert len(shop.engine.payments) == 1
        assert order.reference not in stranger.get("/orders/").content.decode()

    def test_a_stranger_cancels_nothing(self, shop: ProviderSandbox, browser: Client, stranger: Client) -> None:
        order = bought(browser)
        assert "Cancel this payment" not in seen(stranger, order)
        refused = stranger.post(f"{order.get_absolute_url()}cancel/")
        assert refused.status_code == 403
        assert "only in the browser that it was made in" in refused.content.decode()
        assert stranger.get(f"{order.get_absolute_url()}cancel/").status_code == 405
        shop.settle()
        assert status(order) == OrderStatus.NEW

    def test_who_is_refused_elsewhere_reads_nothing_about_orders(self, rf: RequestFactory) -> None:
        refused = permission_denied(rf.get("/admin/"), PermissionDenied())
        assert "Ask somebody who has the permission." in refused.content.decode()

    def test_forms_need_a_csrf_token(self, shop: ProviderSandbox, browser: Client) -> None:
        order = bought(browser)
        strict = Client(enforce_csrf_checks=True, headers={"host": "localhost"})
        strict.cookies = browser.cookies
        for page in (f"{order.get_absolute_url()}cancel/", f"{order.get_absolute_url()}pay/", PAGE, "/deposits/"):
            assert strict.post(page, filled_in(browser)).status_code == 403
        assert status(order) == OrderStatus.NEW


def test_money_in_another_currency_puts_the_order_under_review(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    Order.objects.update(currency="BRL", amount=1)
    shop.engine.pay(Payment.objects.get().pk)
    shop.settle()
    assert (status(order), order.note) == (OrderStatus.REVIEW, "money came in CLP, not in BRL")


def test_an_unknown_outcome_is_not_a_refusal(shop: ProviderSandbox, browser: Client) -> None:
    order, _first = expired(shop, browser)
    shop.engine.faults.add(Fault("reset", operation="create_payment", work=True))
    order = checkout.begin(order, form(order, 2), method_code="cl_khipu")
    with pytest.raises(OutcomeUnknown):
        checkout.pay(order)
    order.refresh_from_db()
    assert (order.status, order.refusal) == (OrderStatus.NEW, "")
