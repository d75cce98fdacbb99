"""Every main page, light and dark: no accessibility violations, and screenshots for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from payments_integration.models import Balance, ReconciliationRun, WebhookEndpoint
from payments_integration.testing import ProviderSandbox
from tests.browser import sample_data
from tests.browser.accessibility import grave
from tests.browser.conftest import Person, Visit, address
from tests.browser.test_dashboard import DASHBOARD
from tests.browser.test_payout import fill
from tests.browser.test_refund import CONFIRM, REVIEW, fill_destination
from tests.browser.visitor import Visitor

Scene = dict[str, Any]
Way = Callable[[Visitor, Scene], None]


def at(model: str, page: str, of: Callable[[Scene], Any] | None = None) -> Way:
    def go(visitor: Visitor, scene: Scene) -> None:
        visitor.open(address(model, page, of(scene) if of else None))

    return go


def refund_confirmation(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("payment", "refund", scene["bank"]))
    fill_destination(visitor)
    visitor.page.fill("[name=amount]", "12500")
    visitor.page.fill("[name=reason]", "arrived too late")
    visitor.press(REVIEW)
    assert visitor.find(CONFIRM).count() == 1


def refund_refused(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("payment", "refund", scene["bank"]))
    visitor.page.fill("[name=amount]", "99999999")
    visitor.press(REVIEW)


def payout_confirmation(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("payout", "add"))
    fill(visitor, 1_200_000)
    visitor.press(REVIEW)
    assert visitor.find(CONFIRM).count() == 1


def selection(visitor: Visitor, scene: Scene) -> None:
    chosen = "&".join(f"id={scene[name].pk}" for name in ("card", "bank"))
    visitor.open(f"{address('payment', 'refund-selected')}?{chosen}")


def methods(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("payment", "methods"))
    visitor.page.select_option("[name=country]", "CL")
    visitor.press("#content form [type=submit]")


def dashboard(visitor: Visitor, scene: Scene) -> None:
    visitor.open(DASHBOARD)
    visitor.page.wait_for_timeout(300)


def balance(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("balance", "change", Balance.objects.get(currency="CLP")))
    visitor.page.wait_for_timeout(300)


PAGES: dict[str, Way] = {
    "dashboard": dashboard,
    "technical": at("accountstate", "technical"),
    "payments": at("payment", "changelist"),
    "payment": at("payment", "change", lambda scene: scene["card"]),
    "payment-voucher": at("payment", "change", lambda scene: scene["voucher"]),
    "refund": at("payment", "refund", lambda scene: scene["bank"]),
    "refund-refused": refund_refused,
    "refund-confirmation": refund_confirmation,
    "refund-selected": selection,
    "methods": methods,
    "payouts": at("payout", "changelist"),
    "payout-new": at("payout", "add"),
    "payout-confirmation": payout_confirmation,
    "refunds": at("refund", "changelist"),
    "deposit-reference": at("depositreference", "change", lambda scene: scene["deposit"]),
    "balance": balance,
    "operations": at("operation", "changelist"),
    "approval": at("operation", "change", lambda scene: scene["waiting"]),
    "operation": at("operation", "change", lambda scene: scene["undecided"]),
    "events": at("event", "changelist"),
    "event": at("event", "change", lambda scene: scene["parked"]),
    "endpoint": at("webhookendpoint", "change", lambda scene: WebhookEndpoint.objects.first()),
    "endpoint-new": at("webhookendpoint", "add"),
    "runs": at("reconciliationrun", "changelist"),
    "run": at("reconciliationrun", "change", lambda scene: ReconciliationRun.objects.first()),
}
#: The size of a page, and elements whose content is wider than they are.
MEASURE = """() => {
    const shown = [...document.querySelectorAll(":is(#pi-dashboard, #pi-technical) *")].filter(
        element => element.checkVisibility() && !element.classList.contains("visually-hidden")
            && getComputedStyle(element).display !== "inline"
    );
    return {
        width: document.documentElement.scrollWidth,
        height: document.documentElement.scrollHeight,
        clipped: shown.filter(element => element.scrollWidth > element.clientWidth + 1)
            .map(element => `${element.tagName} ${element.className}: ${element.textContent.trim().slice(0, 40)}`),
    };
}"""
MAX_HEIGHT = 2500
#: The screenshots of the documentation: the page, and the element at the top.
SCREENSHOTS = {
    "overview": ("dashboard", ""),
    "overview-money": ("dashboard", "#pi-money"),
    "payments": ("payments", ""),
    "payment-timeline": ("payment", ".pi-section >> nth=0"),
    "refund-confirmation": ("refund-confirmation", ""),
    "payout-new": ("payout-new", ""),
    "approval": ("approval", ""),
    "event": ("event", ""),
    "balance": ("balance", ".pi-chart"),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_has_accessibility_violations(
    visit: Visit, person: Person, provider: ProviderSandbox, dark: bool
) -> None:
    scene = sample_data.month(provider)
    visitor = visit(person("finance"), dark=dark)
    found = []
    for name, go in PAGES.items():
        go(visitor, scene)
        for picture, (page, top) in SCREENSHOTS.items():
            if page == name and not dark:
                visitor.shoot(f"admin-{picture}", at=top)
        with visitor.unheard():
            found += [f"{name}: {violation}" for violation in grave(visitor.page)]
    assert not found, "\n".join(found)


def test_pages_fit_a_narrow_screen(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    scene = sample_data.month(provider)
    visitor = visit(person("finance"))
    visitor.page.set_viewport_size({"width": 390, "height": 800})
    wide = {}
    for name in ("dashboard", "payment", "refund-confirmation", "approval"):
        PAGES[name](visitor, scene)
        width = visitor.page.evaluate("() => document.documentElement.scrollWidth")
        if width > 400:
            wide[name] = width
    assert wide == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_overview_shows_everything_at_every_width(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str, dark: bool
) -> None:
    scene = sample_data.month(provider)
    visitor = visit(person("finance"), language=language, dark=dark)
    # 683 is 1366 at 200 %, 960 is 1920.
    for width in (390, 683, 960, 1366, 1920):
        visitor.page.set_viewport_size({"width": width, "height": 860})
        for name in ("dashboard", "technical"):
            PAGES[name](visitor, scene)
            measured = visitor.page.evaluate(MEASURE)
            assert measured["width"] <= width, (name, width)
            assert measured["clipped"] == [], (name, width)
            if (name, width) == ("dashboard", 1366):
                assert measured["height"] <= MAX_HEIGHT


def test_the_index_links_to_the_dashboard(visit: Visit, person: Person) -> None:
    visitor = visit(person("finance"))
    visitor.open(reverse("admin:index"))
    visitor.press(f"#content a[href='{DASHBOARD}']")
    assert visitor.find("#pi-dashboard").count() == 1
