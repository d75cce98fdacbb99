"""The checkout page in a browser: it follows the payment's status, and is accessible."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone
from playwright.sync_api import Page, Request, expect

from payments_integration.checkout import status_url
from payments_integration.models import Payment
from tests.browser.accessibility import grave
from tests.browser.conftest import Visit
from tests.browser.visitor import Visitor, resize
from tests.factories import checkout as rows
from tests.unit.checkout.test_actions import ACTIONS, action

pytestmark = pytest.mark.urls("tests.unit.checkout.urls")


def address(payment: Payment) -> str:
    return status_url(RequestFactory().get("/"), payment).removeprefix("http://testserver")


def look(visit: Visit, payment: Payment, **options: Any) -> tuple[Visitor, Page]:
    visitor = visit(None, **options)
    return visitor, visitor.open(address(payment))


def look_without_time(visit: Visit, payment: Payment) -> Page:
    """Time passes for the page only with ``clock.run_for``, even on a slow machine."""
    visitor = visit(None)
    now = timezone.now()
    # The clock runs until it is paused, and can only be paused ahead.
    visitor.page.clock.install(time=now - timedelta(hours=1))
    visitor.page.clock.pause_at(now)
    return visitor.open(address(payment))


def counted(page: Page) -> list[Request]:
    """The requests of the page from now on."""
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if "/data/" in request.url else None)
    return asked


def pay(payment: Payment) -> None:
    Payment.objects.filter(pk=payment.pk).update(status="succeeded", amount_received=payment.amount)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", [*ACTIONS, "paid"])
def test_every_next_action_is_accessible(visit: Visit, kind: str, dark: bool) -> None:
    at = timezone.now() + timedelta(hours=30)
    fields = {"status": "succeeded", "amount_received": 10_000} if kind == "paid" else {"next_action": action(kind)}
    _, page = look(visit, rows.payment(expires_at=at, **fields), dark=dark)
    assert grave(page) == []
    resize(page, 320, 640)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_the_page_shows_paid_without_a_reload(visit: Visit) -> None:
    payment = rows.payment(next_action=action("voucher"))
    _, page = look(visit, payment)
    page.evaluate("window.kept = true")
    expect(page.locator("svg")).to_have_count(1)
    pay(payment)
    expect(page.locator("[data-payments-headline]")).to_have_text("Paid")
    expect(page.locator("section")).to_have_count(0)
    assert page.evaluate("window.kept") is True
    assert page.locator("[role=status][data-payments-status-box]").get_attribute("class") == (
        "payments-status-box payments-status-box-good"
    )


def test_polling_stops_at_a_final_status(visit: Visit) -> None:
    payment = rows.payment()
    page = look_without_time(visit, payment)
    asked = counted(page)
    pay(payment)
    with page.expect_response("**/data/"):
        page.clock.run_for(2_100)
    expect(page.locator("[data-payments-headline]")).to_have_text("Paid")
    page.clock.run_for(120_000)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(120_000)
    assert len(asked) == 1


def test_a_hidden_page_does_not_poll(visit: Visit) -> None:
    payment = rows.payment()
    page = look_without_time(visit, payment)
    asked = counted(page)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.clock.run_for(600_000)
    assert asked == []
    pay(payment)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    expect(page.locator("[data-payments-headline]")).to_have_text("Paid")
    assert len(asked) == 1


def test_polling_continues_after_a_network_error(visit: Visit) -> None:
    payment = rows.payment()
    visitor, page = look(visit, payment)
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.route("**/data/", lambda route: route.abort("internetdisconnected"))
    with page.expect_event("requestfailed"):
        pass
    pay(payment)
    page.unroute("**/data/")
    expect(page.locator("[data-payments-headline]")).to_have_text("Paid")
    assert failed
    visitor.complaints.clear()  # of the browser, about the network


def test_a_changed_next_action_is_drawn(visit: Visit) -> None:
    payment = rows.payment(status="created", next_action=None)
    _, page = look(visit, payment)
    Payment.objects.filter(pk=payment.pk).update(status="requires_action", next_action=action("qr"))
    expect(page.locator("svg.payments-qr")).to_be_visible()


def test_values_can_be_copied(visit: Visit) -> None:
    visitor, page = look(visit, rows.payment(next_action=action("bank_transfer_details")))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visitor.site)
    button = page.get_by_role("button", name="Copy Account number")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".payments-copied", has_text="Copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == "000123456"


def test_a_piece_that_comes_later_is_brought_to_life_once(visit: Visit) -> None:
    visitor, page = look(visit, rows.payment(next_action=action("qr")))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visitor.site)
    page.evaluate(
        """() => {
            const piece = document.createElement("p");
            piece.innerHTML = '<button data-payments-copy="late" data-payments-copied="Done" hidden>Take</button>'
                + '<span id="said"></span><time datetime="2026-03-04T05:06:00Z" data-payments-local>then</time>';
            document.querySelector("main").append(piece);
            window.heard = 0;
            const add = piece.firstChild.addEventListener;
            piece.firstChild.addEventListener = function (...given) { window.heard += 1; add.apply(this, given); };
            PaymentsCheckout.init(piece);
            PaymentsCheckout.init(piece);
            PaymentsCheckout.init();
        }"""
    )
    page.get_by_role("button", name="Take").click()
    expect(page.locator("#said")).to_have_text("Done")
    assert page.evaluate("navigator.clipboard.readText()") == "late"
    assert page.evaluate("window.heard") == 1
    expect(page.get_by_text("March 4, 2026")).to_have_attribute("title", "then")


def test_the_time_left_is_counted(visit: Visit) -> None:
    visitor = visit(None)
    now = timezone.now()
    visitor.page.clock.install(time=now)
    page = visitor.open(address(rows.payment(next_action=action("qr"), expires_at=now + timedelta(minutes=2))))
    timer = page.get_by_role("timer")
    expect(timer).to_contain_text("Time left: 0")
    page.clock.run_for(70_000)
    spoken = page.locator(".payments-until [role=status]")
    expect(spoken).to_contain_text("Time left: ")
    page.clock.run_for(60_000)
    expect(timer).to_have_text("The time to pay is over")
    expect(spoken).to_have_text("The time to pay is over")


def test_without_scripts_the_page_shows_the_same(visit: Visit) -> None:
    at = timezone.now() + timedelta(hours=1)
    payment = rows.payment(next_action=action("voucher"), expires_at=at)
    visitor, page = look(visit, payment, java_script_enabled=False)
    expect(page.get_by_text("Waiting for your payment")).to_be_visible()
    expect(page.locator("svg")).to_be_visible()
    expect(page.get_by_text(str(at.year))).to_be_visible()
    expect(page.locator("button").first).to_be_hidden()
    expect(page.locator(".payments-left")).to_be_hidden()
    pay(payment)
    visitor.open(address(payment))
    expect(page.get_by_text("Thank you!")).to_be_visible()


def test_a_voucher_can_be_printed(visit: Visit) -> None:
    _, page = look(visit, rows.payment(next_action=action("voucher")), dark=True)
    page.emulate_media(media="print")
    expect(page.locator("svg")).to_be_visible()
    expect(page.locator("button").first).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.urls("tests.urls")
def test_the_link_to_the_receipt_appears_when_the_payment_is_paid(visit: Visit) -> None:
    payment = rows.payment(next_action=action("voucher"))
    _, page = look(visit, payment)
    link = page.get_by_role("link", name="Payment receipt")
    expect(link).to_be_hidden()
    pay(payment)
    link.click()
    expect(page.locator("h1")).to_have_text("Payment receipt")
    assert grave(page) == []
    page.emulate_media(color_scheme="dark")
    assert grave(page) == []
    resize(page, 320, 640)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.get_by_role("link", name="Back to your payment").click()
    expect(page.locator("[data-payments-headline]")).to_have_text("Paid")


@pytest.mark.case(128)
@pytest.mark.parametrize("dark", [False, True])
def test_the_button_to_pay_again_appears_when_the_payment_fails(visit: Visit, dark: bool) -> None:
    payment = rows.payment(next_action=action("voucher"))
    visitor = visit(None)
    page = visitor.open(
        status_url(RequestFactory().get("/"), payment, pay_again_url="/orders/1/").removeprefix("http://testserver")
    )
    if dark:
        page.emulate_media(color_scheme="dark")
    link = page.get_by_role("link", name="Pay again")
    expect(link).to_be_hidden()
    Payment.objects.filter(pk=payment.pk).update(status="failed")
    expect(link).to_be_visible()
    assert link.get_attribute("href") == "/orders/1/"
    assert grave(page) == []
    visitor.shoot(f"pay-again{'-dark' if dark else ''}")
