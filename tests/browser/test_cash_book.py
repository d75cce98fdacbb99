"""The cash book: its first words, its width on a phone, and the clicks that lead to its answers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from payments_integration.contrib.finance.models import Movement
from payments_integration.dates import today
from payments_integration.testing import ProviderSandbox
from tests.browser import sample_data
from tests.browser.conftest import Person, Visit
from tests.browser.test_dashboard import DASHBOARD
from tests.browser.visitor import HEIGHT, Visitor, resize

WORDS = {
    "en": ("Cash book", "Today Yesterday Past 7 days Past 30 days This month Last month", "Opening balance"),
    "es": ("Libro de caja", "Hoy Ayer Últimos 7 días Últimos 30 días Este mes Mes pasado", "Saldo inicial"),
    "pt-BR": ("Livro caixa", "Hoje Ontem Últimos 7 dias Últimos 30 dias Este mês Mês passado", "Saldo inicial"),
}
#: In pixels, without margins of a centimetre.
A4_WIDTH = 718


def width(visitor: Visitor) -> int:
    return int(visitor.page.evaluate("document.documentElement.scrollWidth"))


@pytest.mark.parametrize("language", list(WORDS))
@pytest.mark.parametrize("filled", [True, False], ids=["month", "empty"])
def test_it_begins_with_its_period_and_fits_every_screen(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str, filled: bool
) -> None:
    if filled:
        sample_data.month(provider)
    visitor = visit(person("finance"), language=language, width=1366)
    visitor.open(reverse("admin:payments_finance_movement_cash-book") + "?days=past-30")
    title, periods, opening = WORDS[language]
    assert visitor.find("#content > h1").inner_text() == title
    assert " ".join(visitor.find("#pi-cash-book nav").inner_text().split()) == periods
    assert visitor.find(".pi-wide").count() == (5 if filled else 0)
    assert (opening in (visitor.find("#pi-cash-book").text_content() or "")) is filled
    name = f"cash-book-{language}-{'month' if filled else 'empty'}"
    for size in (390, 1366, 1920):
        resize(visitor.page, size, HEIGHT)
        assert width(visitor) <= size
        # A phone shows a day by what is known of it.
        assert (visitor.page.locator(".pi-steps .pi-unknown:visible").count() == 0) is (not filled or size == 390)
        visitor.shoot(f"{name}-{size}")
    # Between the margins of a printed A4 page it is a table.
    resize(visitor.page, A4_WIDTH, HEIGHT)
    visitor.page.emulate_media(media="print")
    assert width(visitor) <= A4_WIDTH
    assert visitor.page.locator(".pi-wide thead:visible").count() == (5 if filled else 0)


def test_yesterday_is_explained_with_two_clicks_from_the_overview(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    sample_data.month(provider)
    yesterday = today() - timedelta(days=1)
    paid = Movement.objects.filter(booked_on=yesterday, currency="CLP", kind="payment")
    visitor = visit(person("finance"))
    visitor.open(DASHBOARD)
    visitor.press(visitor.find(".pi-last-month a:text-is('Yesterday')"))
    shown = visitor.find("[aria-labelledby=pi-cash-all] tr:has-text('CLP')")
    assert shown.locator("td").first.inner_text()
    visitor.press(shown.locator("td[data-label=Received] a"))
    assert visitor.find("#result_list tbody tr").count() == paid.count() > 0
    amounts = visitor.find("#result_list .field-amount_shown")
    assert amounts.first.evaluate("cell => getComputedStyle(cell).textAlign") == "end"


def test_the_book_of_last_month_is_in_a_spreadsheet_with_two_clicks(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    sample_data.month(provider)
    visitor = visit(person("finance"))
    visitor.open(DASHBOARD)
    visitor.press(visitor.find(".pi-last-month a:text-is('Last month')"))
    with visitor.page.expect_download() as download:
        visitor.find("#pi-cash-book .pi-choice button").click()
    last = today().replace(day=1) - timedelta(days=1)
    name = f"cash-book-{last.replace(day=1)}-to-{last}.csv"
    assert download.value.suggested_filename == name
    with open(download.value.path(), encoding="utf-8-sig") as file:
        assert file.readline().startswith("from,to,account,currency,opening_balance,received")
