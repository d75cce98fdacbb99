"""Every main page, light and dark: no accessibility violations, nothing clipped, and screenshots for the docs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from payments_integration.checkout import status_url
from payments_integration.contrib.finance.movements import backfill
from payments_integration.enums import Currency
from payments_integration.models import Balance, ReconciliationRun, Refund, WebhookEndpoint
from payments_integration.testing import ProviderSandbox
from tests.browser import sample_data
from tests.browser.accessibility import grave
from tests.browser.conftest import Person, Visit, address
from tests.browser.test_dashboard import DASHBOARD
from tests.browser.test_payout import fill
from tests.browser.test_refund import CONFIRM, REVIEW, fill_destination
from tests.browser.visitor import HEIGHT, Visitor, resize
from tests.factories import rows

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
    visitor.press("#content .pi-main[type=submit]")


def dashboard(visitor: Visitor, scene: Scene) -> None:
    visitor.open(DASHBOARD)
    visitor.page.wait_for_timeout(300)


def balance(visitor: Visitor, scene: Scene) -> None:
    visitor.open(address("balance", "change", Balance.objects.get(currency="CLP")))
    visitor.page.wait_for_timeout(300)


def search(visitor: Visitor, scene: Scene) -> None:
    visitor.open(f"{address('payment', 'search')}?q=ORD-2197")


def search_nothing(visitor: Visitor, scene: Scene) -> None:
    visitor.open(f"{address('payment', 'search')}?q=nothing")


def cash_book(visitor: Visitor, scene: Scene) -> None:
    visitor.open(f"{reverse('admin:payments_finance_movement_cash-book')}?days=past-30")


def movements(visitor: Visitor, scene: Scene) -> None:
    visitor.open(reverse("admin:payments_finance_movement_changelist"))


def receipt(visitor: Visitor, scene: Scene) -> None:
    token = status_url(RequestFactory().get("/"), scene["bank"]).rstrip("/").rpartition("/")[2]
    visitor.open(reverse("payments_receipts:receipt", args=[token]))


PAGES: dict[str, Way] = {
    "dashboard": dashboard,
    "todo": lambda visitor, scene: visitor.open(reverse("admin:payments_backoffice_todo_changelist")) and None,
    "technical": at("reconciliationrun", "technical"),
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
    "deposit-references": at("depositreference", "changelist"),
    "balances": at("balance", "changelist"),
    "refund-made": at("refund", "change", lambda scene: Refund.objects.get(payment_id=scene["card"].pk)),
    "deposit-reference": at("depositreference", "change", lambda scene: scene["deposit"]),
    "balance": balance,
    "operations": at("operation", "changelist"),
    "approval": at("operation", "change", lambda scene: scene["waiting"]),
    "operation": at("operation", "change", lambda scene: scene["undecided"]),
    "events": at("event", "changelist"),
    "event": at("event", "change", lambda scene: scene["parked"]),
    "endpoint": at("webhookendpoint", "change", lambda scene: WebhookEndpoint.objects.first()),
    "endpoint-new": at("webhookendpoint", "add"),
    "status-changes": at("statuschange", "changelist"),
    "search": search,
    "search-nothing": search_nothing,
    "history": at("payment", "history", lambda scene: scene["card"]),
    "cash-book": cash_book,
    "movements": movements,
    "receipt": receipt,
    "runs": at("reconciliationrun", "changelist"),
    "run": at("reconciliationrun", "change", lambda scene: ReconciliationRun.objects.first()),
}
#: The size of a page, and elements whose content is wider than they are. Long texts and wide tables scroll in a box.
MEASURE = """async () => {
    // Charts follow the width of the page one frame later.
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
    const scrolls = ".visually-hidden, .pi-pre, .pi-scroll, #nav-sidebar, svg, select, textarea, input, .results";
    const shown = [...document.querySelectorAll("body *")].filter(
        element => element.checkVisibility() && !element.closest(scrolls)
            && getComputedStyle(element).display !== "inline"
    );
    const clipped = shown.filter(element => element.scrollWidth > element.clientWidth + 1);
    return {
        width: document.documentElement.scrollWidth,
        height: document.documentElement.scrollHeight,
        clipped: clipped.filter(element => !clipped.some(other => other !== element && element.contains(other)))
            .map(element => `${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 40)}`),
    };
}"""
#: A small phone, which is also 1280 at 400 %; 1366 at 200 %, 1366 and 1920.
WIDTHS = (320, 683, 1366, 1920)
#: Of the overview, at 1366.
MAX_HEIGHT = 2500
#: The screenshots of the documentation: the page, and the element at the top.
SCREENSHOTS = {
    "overview": ("dashboard", ""),
    "overview-money": ("dashboard", "#pi-money"),
    "payments": ("payments", ""),
    "payment": ("payment", ""),
    "payment-timeline": ("payment", ".pi-story"),
    "refund-confirmation": ("refund-confirmation", ""),
    "payout-new": ("payout-new", ""),
    "approval": ("approval", ""),
    "event": ("event", ""),
    "balance": ("balance", ""),
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


@pytest.mark.parametrize(
    ("language", "dark"), [("en", False), ("es", True), ("pt-BR", False)], ids=["en", "es-dark", "pt-BR"]
)
def test_every_page_shows_everything_at_every_width(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str, dark: bool
) -> None:
    scene = sample_data.month(provider)
    visitor = visit(person("finance"), language=language, dark=dark)
    faults = []
    for name, go in PAGES.items():
        go(visitor, scene)
        for width in WIDTHS:
            resize(visitor.page, width, HEIGHT)
            measured = visitor.page.evaluate(MEASURE)
            if measured["width"] > width:
                faults.append(f"{name} is {measured['width']} px wide at {width} px")
            faults += [f"{name} at {width} px clips {element}" for element in measured["clipped"]]
            if (name, width) == ("dashboard", 1366) and measured["height"] > MAX_HEIGHT:
                faults.append(f"the overview is {measured['height']} px high")
    assert not faults, "\n".join(faults)


def test_the_overview_of_every_currency_is_short(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    sample_data.month(provider)
    now = timezone.now()
    for country, currency in (("CO", "COP"), ("PE", "PEN"), ("MX", "MXN")):
        fields = {"currency": currency, "country": country, "method_code": f"{country.lower()}_card"}
        for at in (now, now - timedelta(days=1), now - timedelta(days=8)):
            paid = rows.payment(
                **fields, created_at=at, succeeded_at=at, state_at=at, amount=10**11, amount_received=10**11
            )
        rows.refund(payment=paid, status="succeeded", amount=10**10, currency=currency, created_at=now, state_at=now)
    backfill()
    visitor = visit(person("finance"), width=1366)
    visitor.open(DASHBOARD)
    assert visitor.find("[aria-labelledby=pi-yesterday] tbody tr").count() == len(Currency)
    visitor.page.wait_for_timeout(300)
    measured = visitor.page.evaluate(MEASURE)
    assert measured["height"] <= MAX_HEIGHT
    assert measured["clipped"] == []
    # One chart at a time, in the page that is open.
    assert visitor.find("#pi-flow-CLP").is_visible()
    visitor.press("[aria-labelledby=pi-money] nav a:text-is('PEN')")
    assert visitor.find("#pi-flow-PEN").is_visible()
    assert visitor.find("#pi-flow-CLP").count() == 0
    resize(visitor.page, 390, HEIGHT)
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_index_links_to_the_dashboard(visit: Visit, person: Person) -> None:
    visitor = visit(person("finance"))
    visitor.open(reverse("admin:index"))
    visitor.press(visitor.find("#content a:text-is('Overview')"))
    assert visitor.find("#pi-dashboard").count() == 1
    assert visitor.find("#content h1").inner_text() == "Overview"
