"""Somebody who buys in the shop, and pays in the ways of six countries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from django.conf import settings
from playwright.sync_api import Locator, Page, expect

from payments_integration.testing import ProviderSandbox
from tests.browser.visitor import Visitor

#: News reach an open page by itself, at the latest after so long.
TIMEOUT_MS = 30_000
DEFAULT_MARKET = "CL-CLP"
CANCEL = "Cancel this payment"
PAY_AGAIN = "Pay this order again"
NAME, EMAIL = "Ana Soto", "ana@example.com"

_STATUS = "data-order-status"
_MARK = "window.shopPageWasKept"


class Customer:
    """A window of the shop, and the provider as the customer knows it: its page, a bank, a counter."""

    def __init__(self, visitor: Visitor, provider: ProviderSandbox) -> None:
        self.visitor = visitor
        self.provider = provider

    @property
    def page(self) -> Page:
        return self.visitor.page

    # buying

    def choose(
        self, method_code: str, *, market: str = DEFAULT_MARKET, flow: str = "hosted", quantity: int = 1
    ) -> None:
        """Everything of the buy form but its button. ``flow``: the shop's setting."""
        page = self.page
        self.visitor.open("/buy/coffee/")
        if market != DEFAULT_MARKET:
            self.go_to_market(market)
        page.fill("[name=name]", NAME)
        page.fill("[name=email]", EMAIL)
        page.select_option("[name=quantity]", str(quantity))
        self.choose_on_this_page(method_code, flow=flow)

    def choose_on_this_page(self, method_code: str, *, flow: str = "hosted") -> None:
        """How to pay."""
        self.page.check(f"[name=method_code][value={method_code}]")
        # Until the test ends: the fixture ``provider`` restores it.
        settings.SHOP_FLOW = flow

    def go_to_market(self, market: str) -> None:
        """Another country: its prices and its ways to pay come by themselves."""
        with self.page.expect_navigation():
            self.page.select_option("[name=market]", market)
        expect(self.page.locator("[name=market]")).to_have_value(market)

    @property
    def pay_button(self) -> Locator:
        # "Pay", or "Pagar" in Spanish and Portuguese.
        return self.page.get_by_role("button", name=re.compile(r"^(Pay|Pagar)\b"))

    def send_form(self) -> None:
        """What the button sends, while the page stays: the answer is there when this returns."""
        self.pay_button.evaluate(
            "async button => { await fetch(button.form.action,"
            " {method: 'POST', body: new URLSearchParams(new FormData(button.form)), redirect: 'manual'}) }"
        )

    def buy(self, method_code: str, **choices: Any) -> dict[str, Any]:
        """Choose and press the button; returns the payment as the provider has it."""
        self.choose(method_code, **choices)
        self.visitor.press(self.pay_button)
        return self.payment

    @property
    def payment(self) -> dict[str, Any]:
        """The newest payment at the provider."""
        return list(self.provider.project.payments.values())[-1]

    @property
    def payments(self) -> list[dict[str, Any]]:
        return list(self.provider.project.payments.values())

    def pay_again(self, method_code: str, *, flow: str = "hosted") -> dict[str, Any]:
        """The same order in another way, from its page; returns the new payment."""
        self.visitor.press(self.page.get_by_role("link", name=PAY_AGAIN))
        self.choose_on_this_page(method_code, flow=flow)
        self.visitor.press(self.pay_button)
        return self.payment

    # paying

    def press_at_provider(self, name: str) -> None:
        """A button of the provider's page; it leads back to the shop."""
        assert self.page.url.startswith(self.provider.url), self.page.url
        self.visitor.press(self.page.get_by_role("button", name=re.compile(rf"^{name}\b")))
        assert self.page.url.startswith(self.visitor.site), self.page.url

    def pays(self, amount: int | None = None, payment: dict[str, Any] | None = None) -> None:
        """Money on its way by a bank, a counter or a phone, and the provider tells the shop. Minor units."""
        self.provider.engine.pay((payment or self.payment)["id"], amount)
        self.provider.deliver()

    # looking

    def look_again(self) -> None:
        """The window comes to the front again: an open page asks at once, however long it had not."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def sees(self, status: str, page: Page | None = None) -> None:
        """The order's state on its page, now or as soon as the page has heard of it."""
        shown = (page or self.page).locator(f"[{_STATUS}]")
        expect(shown).to_have_attribute(_STATUS, status, timeout=TIMEOUT_MS)

    def shown_status(self) -> str | None:
        """The order's state as the page says it now."""
        return self.page.locator(f"[{_STATUS}]").get_attribute(_STATUS)

    def mark(self) -> None:
        """From here on the page is to stay as it is loaded."""
        self.page.evaluate(f"{_MARK} = true")

    def page_was_kept(self) -> bool:
        return bool(self.page.evaluate(f"{_MARK} === true"))


@contextmanager
def later(**delta: float) -> Iterator[None]:
    """For everybody but the browser: the shop, the provider, and what stands between them."""
    with time_machine.travel(datetime.now(UTC) + timedelta(**delta), tick=True):
        yield
