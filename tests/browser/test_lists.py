"""Lists: refunding several payments, export and search."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from django.urls import reverse
from openpyxl import load_workbook
from playwright.sync_api import expect

from payments_integration.contrib.finance.movements import backfill
from payments_integration.models import OperationState
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data, sample_data
from tests.browser.conftest import Person, Visit, address
from tests.browser.test_refund import CONFIRM, MAY, digits
from tests.browser.visitor import resize
from tests.factories import rows

#: The texts of the shown elements that a cell cuts off.
CUT_OFF = """found => found.filter(each => each.checkVisibility()).filter(each => {
    for (let box = each; box.tagName !== "TR"; box = box.parentElement)
        if (getComputedStyle(box).overflowX !== "visible" && box.scrollWidth > box.clientWidth + 1) return true;
}).map(each => each.textContent)"""
#: The texts of the shown amounts whose number goes on in the next line.
BROKEN = """found => found.filter(each => each.checkVisibility()).filter(each => {
    const text = each.firstChild, number = document.createRange();
    number.setStart(text, text.data.indexOf(" ") + 1);
    number.setEnd(text, text.length);
    return number.getClientRects().length > 1;
}).map(each => each.textContent)"""
EXPORT = f"form[action='{address('payment', 'export')}'] button"


def test_several_card_payments_are_refunded(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    cards = [provider_data.paid(provider, amount=amount) for amount in (3_000, 4_000)]
    bank = provider_data.paid(provider, provider_data.TRANSFER)
    visitor = visit(person("ana", *MAY), language=language)
    visitor.open(address("payment", "changelist"))
    visitor.page.check("#action-toggle")
    visitor.page.select_option("select[name=action]", "refund_selected")
    visitor.press("button[name=index]")
    shown = visitor.find("#content").inner_text()
    assert "7000" in digits(shown)
    assert bank.pk in shown  # not included, with the reason
    visitor.press(CONFIRM)
    made = {refund["payment_id"]: refund["amount"] for refund in provider.project.refunds.values()}
    assert made == {cards[0].pk: 3_000, cards[1].pk: 4_000}
    assert visitor.find("#content .pi-status-good").count() >= 2
    # Sent again, each refund keeps its outcome.
    with visitor.page.expect_navigation():
        visitor.page.evaluate("() => window.location.reload()")
    assert len(provider.project.refunds) == 2


def test_a_long_reference_leaves_the_amounts_in_sight(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    paid = rows.payment(merchant_reference="9" * 255, payer={"name": "Ana " * 60}, refunded_amount=0)
    visitor = visit(person("ana"))
    bulk = reverse("admin:payments_integration_payment_refund-selected")
    search = reverse("admin:payments_integration_payment_search")
    for opened in (f"{bulk}?id={paid.pk}", f"{search}?q={'9' * 255}"):
        visitor.open(opened)
        assert visitor.find(".pi-scroll td").count() > 3
        assert visitor.find(".pi-scroll").evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")


@pytest.mark.parametrize("status", ["succeeded", "created"])
def test_a_filtered_list_is_downloaded(visit: Visit, person: Person, provider: ProviderSandbox, status: str) -> None:
    paid = provider_data.paid(provider, merchant_reference="=1+1")
    visitor = visit(person("ana", "view_payment"))
    visitor.open(f"{address('payment', 'changelist')}?status={status}")
    with visitor.page.expect_download() as caught:
        visitor.find(EXPORT).click()
    rows = list(csv.DictReader(io.StringIO(Path(caught.value.path()).read_text("utf-8-sig"))))
    assert caught.value.suggested_filename.endswith(".csv")
    assert [row["id"] for row in rows] == ([paid.pk] if status == "succeeded" else [])
    if rows:
        assert rows[0]["merchant_reference"] == "'=1+1"  # no formula
        assert rows[0]["amount"] == "10000"


def test_the_format_of_a_download_is_chosen(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    paid = provider_data.paid(provider)
    visitor = visit(person("ana", "view_payment"), language=language)
    visitor.open(address("payment", "changelist"))
    choice = visitor.find("form.pi-choice select")
    with visitor.page.expect_download() as caught:
        visitor.find(EXPORT).click()
    first = Path(caught.value.path()).read_text("utf-8-sig").partition("\r\n")[0]
    assert first.startswith({"en": "id,status,amount", "es": "id;status;amount"}[language])
    choice.select_option("xlsx")
    with visitor.page.expect_download() as caught:
        visitor.find(EXPORT).click()
    assert caught.value.suggested_filename.endswith(".xlsx")
    sheet = load_workbook(io.BytesIO(Path(caught.value.path()).read_bytes())).worksheets[0]
    assert [sheet["A2"].value, sheet["C2"].value, sheet["C2"].number_format] == [paid.pk, 10_000, "#,##0"]


@pytest.mark.parametrize("width", [768, 1024, 1280])
def test_the_search_box_of_a_list_has_room(
    visit: Visit, person: Person, provider: ProviderSandbox, width: int
) -> None:
    visitor = visit(person("ana", "view_payment"), width=width)
    visitor.open(address("payment", "changelist"))
    box = visitor.find("#searchbar").bounding_box()
    assert box is not None
    assert box["width"] > 70


@pytest.mark.parametrize("width", [768, 1024])
def test_the_actions_of_a_list_stay_beside_the_filter(
    visit: Visit, person: Person, provider: ProviderSandbox, width: int
) -> None:
    provider_data.paid(provider)
    visitor = visit(person("ana", *MAY), width=width)
    visitor.open(address("payment", "changelist"))
    actions, filters = (visitor.find(each).bounding_box() for each in (".actions select", "#changelist-filter"))
    assert actions is not None
    assert filters is not None
    assert actions["width"] > 100
    assert actions["x"] + actions["width"] <= filters["x"]


def test_a_payment_is_found_by_its_reference_and_its_day(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    wanted, other = provider_data.paid(provider, merchant_reference="order-1"), provider_data.paid(provider)
    visitor = visit(person("ana", "view_payment"))
    visitor.open(address("payment", "changelist"))
    visitor.page.fill("#searchbar", "order-1")
    visitor.press("#changelist-search [type=submit]")
    shown = visitor.find("#result_list").inner_text()
    assert wanted.pk in shown
    assert other.pk not in shown
    visitor.open(address("payment", "changelist"))
    days = visitor.find("#changelist-filter :is([name=from], [name=to])")
    assert days.count() == 2
    days.first.fill("2001-01-01")
    days.last.fill("2001-01-02")
    with visitor.page.expect_navigation():
        days.last.press("Enter")
    assert visitor.find("#result_list tbody tr").count() == 0


def test_filters_are_saved_opened_and_deleted(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    paid = provider_data.paid(provider)
    visitor = visit(person("ana", "view_payment"), language=language)
    visitor.open(f"{address('payment', 'changelist')}?status=succeeded&days=today")
    visitor.find("details.pi-tool > summary").click()
    visitor.page.fill("#pi-saved-name", "Today's money")
    visitor.press("details.pi-tool button")
    assert visitor.messages("success")
    visitor.open(f"{address('payment', 'changelist')}?status=failed")
    assert paid.pk not in visitor.find("#content").inner_text()
    visitor.press(visitor.find(".pi-saved a").filter(has_text="Today's money"))
    assert paid.pk in visitor.find("#result_list").inner_text()
    assert "10000" in digits(visitor.find(".pi-totals").inner_text())
    visitor.press(".pi-saved button")
    assert visitor.find(".pi-saved").count() == 0
    assert paid.pk in visitor.find("#result_list").inner_text()


#: The widths of the page, of a list's table and of the region that it may scroll in.
WIDTHS = """() => [
    document.documentElement.scrollWidth,
    document.querySelector("#result_list").scrollWidth,
    document.querySelector(".results").clientWidth,
]"""


ROWS = "rows => rows.map(row => row.getBoundingClientRect().height)"


@pytest.mark.parametrize("language", ["en", "es", "pt-br"])
def test_lists_fit_their_page(visit: Visit, person: Person, provider: ProviderSandbox, language: str) -> None:
    sample_data.month(provider)
    visitor = visit(person("finance"), language=language)
    for width in (390, 1366, 1920):
        resize(visitor.page, width, 860)
        for model in ("payment", "payout", "refund", "depositreference", "balance", "operation", "event"):
            visitor.open(address(model, "changelist"))
            page, table, region = visitor.page.evaluate(WIDTHS)
            assert page <= width, (model, width)
            assert table <= region, (model, width, table, region)
            # One line per row, of about 40 px; on a phone two lines.
            heights = visitor.find("#result_list tbody tr").evaluate_all(ROWS)
            assert max(heights) <= (90 if width == 390 else 46), (model, width, heights)


def test_amounts_are_aligned_with_their_headings(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.paid(provider)
    visitor = visit(person("ana", "view_payment"))
    visitor.open(address("payment", "changelist"))
    for place in ("thead th.column-amount_shown", "tbody th.field-amount_shown"):
        assert visitor.find(f"#result_list {place}").evaluate("cell => getComputedStyle(cell).textAlign") == "end", (
            place
        )
    figures = visitor.find("#result_list th.field-amount_shown")
    assert figures.evaluate("cell => getComputedStyle(cell).fontVariantNumeric") == "tabular-nums"


def test_the_list_of_payments_begins_with_the_money(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    paid = provider_data.paid(provider, merchant_reference="order-1")
    visitor = visit(person("finance"), permissions=["clipboard-read", "clipboard-write"])
    visitor.open(address("payment", "changelist"))
    assert visitor.find("h1").last.inner_text() == "Payments"
    assert [text.split()[0] for text in visitor.find(".pi-tabs a").all_inner_texts()] == [
        "All", "Paid", "Waiting", "Failed", "Refunded", "Disputed",
    ]  # fmt: skip
    cells = visitor.find("#result_list tbody tr").first.locator("th, td:not(.action-checkbox)").all_inner_texts()
    assert digits(cells[0]) == "10000"
    assert [cells[1], cells[3], cells[-1]] == ["succeeded", "order-1", paid.pk]
    visitor.find("button.pi-id").click()
    expect(visitor.find("[role=status]")).to_have_text(f"Copied: {paid.pk}")
    assert visitor.page.evaluate("() => navigator.clipboard.readText()") == paid.pk
    # A click anywhere in the first cell opens the page.
    cell = visitor.find("#result_list tbody th").first
    with visitor.page.expect_navigation():
        cell.click(position={"x": 3, "y": 3})
    assert paid.pk.removeprefix("pay_") in visitor.page.url


def test_tabs_and_chips_filter_and_are_removed(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.paid(provider)
    visitor = visit(person("finance"))
    visitor.open(f"{address('payment', 'changelist')}?days=today&country=CL")
    visitor.press(visitor.find(".pi-tabs a").filter(has_text="Failed"))
    assert visitor.find("#result_list").count() == 0
    assert visitor.find(".pi-chips li").count() == 3
    visitor.press(visitor.find(".pi-remove-all a"))
    assert visitor.find(".pi-chips").count() == 0
    visitor.press(visitor.find(".pi-tabs a").filter(has_text="Paid"))
    assert visitor.find("#result_list tbody tr").count() == 1


def test_a_key_leads_to_the_search_from_any_page(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.paid(provider, merchant_reference="order-1")
    visitor = visit(person("finance"))
    visitor.open(address("balance", "changelist"))
    visitor.page.keyboard.press("/")
    visitor.page.keyboard.type("order-1/")
    assert visitor.find("#pi-search").input_value() == "order-1/"
    visitor.page.keyboard.press("Backspace")
    with visitor.page.expect_navigation():
        visitor.page.keyboard.press("Enter")
    assert {"Payer", "Method"} <= {text.capitalize() for text in visitor.find("#content th").all_inner_texts()}
    assert digits(visitor.find("#content td a").first.inner_text()) == "10000"


@pytest.mark.parametrize("language", ["en", "es", "pt-BR"])
def test_no_status_and_no_heading_is_cut_off_on_a_laptop(visit: Visit, person: Person, language: str) -> None:
    for status in ("succeeded", "requires_action", "partially_paid", "chargeback"):
        rows.payment(status=status)
    visitor = visit(person("ana", "view_payment"), language=language, width=1366)
    visitor.open(address("payment", "changelist"))
    cut_off = """all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim())"""
    # Beside the open sidebar, statuses end with an ellipsis. Headings never do.
    assert visitor.find("#result_list thead .text :is(a, span)").evaluate_all(cut_off) == []
    visitor.find("#toggle-nav-sidebar").click()
    assert visitor.find("#result_list .pi-status").count() == 4
    assert visitor.find("#result_list :is(.pi-status, thead .text a, thead .text span)").evaluate_all(cut_off) == []


def test_headings_stay_words_on_a_small_laptop(visit: Visit, person: Person) -> None:
    rows.payment()
    visitor = visit(person("ana", "view_payment"), width=1100)
    visitor.open(address("payment", "changelist"))
    # At most three lines; the rest of the table scrolls.
    assert max(visitor.find("#result_list thead th").evaluate_all(ROWS)) < 70


@pytest.mark.parametrize("language", ["en", "es", "pt-BR"])
def test_no_word_of_a_heading_is_broken_beside_the_sidebar(visit: Visit, person: Person, language: str) -> None:
    rows.operation(state=OperationState.DONE)
    rows.payout()
    visitor = visit(person("finance"), language=language, width=1366)
    # The scroll width of a heading is its longest word's, if words stay whole.
    broken = """all => all.filter(one => {
        Object.assign(one.style, {overflowWrap: "normal", hyphens: "manual"});
        return one.scrollWidth > one.clientWidth;
    }).map(one => one.textContent.trim())"""
    for model in ("operation", "payout"):
        visitor.open(address(model, "changelist"))
        headings = visitor.find("#result_list thead .text :is(a, span)")
        assert headings.count() > 5
        assert headings.evaluate_all(broken) == []


@pytest.mark.parametrize("width", [320, 360, 768, 1024, 1280])
def test_no_list_cuts_an_amount_off(visit: Visit, person: Person, provider: ProviderSandbox, width: int) -> None:
    """``BRL 9.999.999…`` is another amount than it was."""
    for currency, amount in (("CLP", 98_765_432), ("BRL", 987_654_321), ("BRL", 999_999_999_999_999)):
        paid = rows.payment(status="succeeded", amount=amount, amount_received=amount, currency=currency)
        rows.refund(payment=paid, amount=amount, currency=currency)
        rows.payout(amount=amount, currency=currency)
        # With every column filled, an amount has the least room.
        rows.operation(
            amount=amount, currency=currency, target_id=paid.pk, actor="carolina", merchant_reference="ORD-1234567",
            arguments={"payer": {"name": "Ana María Soto"}},
        )  # fmt: skip
    rows.balance(currency="BRL", available=999_999_999_999_999, pending=999_999_999_999_999)
    backfill()
    # Without SCREENSHOTS, the admin's sidebar is open, as it is for a new user.
    visitor = visit(person("ana"), width=width, language="es")
    cut_off: dict[str, list[str]] = {}
    broken: list[str] = []
    for model in ("payment", "refund", "payout", "operation", "balance", "movement"):
        visitor.open(
            reverse("admin:payments_finance_movement_changelist")
            if model == "movement"
            else address(model, "changelist")
        )
        assert visitor.find("#result_list .pi-money").count()
        cut_off[model] = visitor.find("#result_list .pi-money").evaluate_all(CUT_OFF)
        broken += visitor.find("#result_list .pi-money").evaluate_all(BROKEN)
    assert not any(cut_off.values()), cut_off
    # Only a number that alone is wider than its column goes on in the next line.
    assert [each for each in broken if "9.999.999.999" not in each] == []
