"""The dashboard and the balances: charts are drawn, and their numbers are in tables."""

from __future__ import annotations

import re
from typing import Any

from django.core.cache import cache
from django.urls import reverse

from payments_integration.models import Balance
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data, sample_data
from tests.browser.conftest import Person, Visit, address
from tests.browser.visitor import Visitor

DASHBOARD = reverse("admin:app_list", args=["payments_integration"])
#: Pixels of a canvas that are not transparent, and how many colours they have.
PIXELS = """canvas => {
    // Read from a copy: Chromium warns of a canvas that is read more than once.
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [canvas.width, canvas.height];
    copy.getContext("2d").drawImage(canvas, 0, 0);
    const data = copy.getContext("2d").getImageData(0, 0, copy.width, copy.height).data;
    const colours = new Set();
    let painted = 0;
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] > 0) {
            painted += 1;
            colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
        }
    }
    return {painted, colours: colours.size};
}"""


def charts(visitor: Visitor) -> list[dict[str, Any]]:
    """Painted pixels and colours of each canvas, read when all are drawn, or after half a minute."""
    canvases = visitor.find("canvas").all()
    for _ in range(300):
        if all(canvas.evaluate(PIXELS)["painted"] for canvas in canvases):
            break
        visitor.page.wait_for_timeout(100)
    for canvas in canvases:
        assert canvas.is_visible()
        assert canvas.get_attribute("role") == "img"
        assert canvas.get_attribute("aria-label")
    return [canvas.evaluate(PIXELS) for canvas in canvases]


def test_the_charts_are_drawn(visit: Visit, person: Person, provider: ProviderSandbox, language: str) -> None:
    sample_data.month(provider)
    visitor = visit(person("boss"), language=language)
    visitor.open(DASHBOARD)
    for folded in visitor.find("details.pi-by-status > summary").all():
        folded.click()
    drawn = charts(visitor)
    assert len(drawn) == 2 + 1
    for chart in drawn:
        assert chart["painted"] > 500
        assert chart["colours"] > 3
    # Each has a folded table.
    assert visitor.find(".pi-chart details table").count() == len(drawn)
    visitor.find(".pi-chart details summary").first.click()
    assert visitor.find(".pi-chart details table").first.is_visible()
    visitor.open(address("balance", "change", Balance.objects.get(currency="CLP")))
    [balance] = charts(visitor)
    assert balance["painted"] > 500


def test_an_axis_has_the_format_and_the_zone_of_the_page(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    sample_data.month(provider)
    visitor = visit(person("boss"), language=language, timezone_id="Asia/Tokyo")
    visitor.open(address("balance", "change", Balance.objects.get(currency="CLP")))
    charts(visitor)
    ticks = visitor.find("canvas").evaluate("canvas => Chart.getChart(canvas).scales.x.ticks.map(tick => tick.label)")
    times = [text.strip()[:16] for text in visitor.find(".pi-chart tbody th").all_text_contents()]
    assert ticks[0] == times[0]
    assert ticks[-1] == times[-1]


def test_without_javascript_the_numbers_are_in_tables(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    sample_data.month(provider)
    visitor = visit(person("boss"), java_script_enabled=False)
    visitor.open(DASHBOARD)
    tables = visitor.find(".pi-chart details table")
    assert tables.count() >= 3
    assert all(table.is_visible() for table in tables.all())
    assert not any(canvas.is_visible() for canvas in visitor.find("canvas").all())


def test_the_first_words_are_to_do_and_today(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    sample_data.month(provider)
    visitor = visit(person("boss"))
    visitor.open(DASHBOARD)
    headings = visitor.find("#content :is(h1, h2)").all_inner_texts()
    names = [re.split(r"\d|,", words)[0].strip() for words in headings]
    assert names == [
        "Overview", "To do", "Technical problems", "Today until", "Yesterday", "CLP in the last", "Balances",
        "Success by method",
    ]  # fmt: skip
    # How yesterday became what it is: one click to its cash book.
    visitor.press("#pi-yesterday a")
    assert visitor.find("#pi-cash-book").count() == 1


def test_a_fresh_installation_leads_to_its_first_reconciliation(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    visitor = visit(person("boss"), width=390)
    visitor.open(DASHBOARD)
    assert visitor.find("#content h2").all_inner_texts() == ["Three steps to the first payment"]
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390
    visitor.press("#pi-setup ~ ol button")
    assert visitor.messages("success")
    provider_data.paid(provider)
    cache.clear()
    visitor.open(DASHBOARD)
    assert visitor.find("#pi-setup").count() == 0


def test_without_javascript_another_currency_is_a_link(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    sample_data.month(provider)
    visitor = visit(person("boss"), java_script_enabled=False)
    visitor.open(DASHBOARD)
    visitor.press("[aria-labelledby=pi-money] nav a:text-is('BRL')")
    assert visitor.find("#pi-money").inner_text() == "BRL in the last 30 days"


def test_each_panel_needs_its_view_permission(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    sample_data.month(provider)
    visitor = visit(person("leo", "view_webhookendpoint"))
    visitor.open(DASHBOARD)
    assert visitor.find("#pi-attention").count() == 1
    visitor.press("#pi-dashboard a[href$='/technical/']")
    assert visitor.find("#pi-endpoints").count() == 1
    assert visitor.find("#pi-runs").count() == 0
    visitor.open(DASHBOARD)
    assert visitor.find("#pi-money").count() == 0
    assert visitor.find("canvas").count() == 0
    visit(person("eva", "refund_payment")).open(DASHBOARD, status=404)
