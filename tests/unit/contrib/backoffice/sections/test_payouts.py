"""A payout's page leads with the money and the recipient, says what went wrong, and shows no JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.factories import rows
from tests.unit.admin.conftest import page, url

ANA = {
    "type": "bank_account", "bank_code": "001", "account_number": "000123", "account_type": "checking",
    "holder_name": "Ana <Pérez>", "holder_document": {"type": "RUT", "number": "12345678-5"}, "swift": "BCHI",
}  # fmt: skip


def part(html: str, title: str) -> str:
    """A section of the page."""
    return html.partition(f"<h2>{title}</h2>")[2].partition("</div>")[0]


def test_the_headline_is_amount_status_recipient_and_order(boss: Client, staff: Callable[..., Client]) -> None:
    row = rows.payout(destination=ANA, amount=1500, status="succeeded", merchant_reference="invoice-7")
    address = url("payout", "change", row.pk)
    html = page(boss, address)
    headline = html.partition('class="pi-headline"')[2].partition("</p>")[0]
    places = [headline.index(text) for text in ("CLP\xa01,500", "succeeded", "Ana &lt;Pérez&gt;", "invoice-7")]
    assert places == sorted(places)
    masked = page(staff("view_payout"), address)
    for text in ("Ana &lt;", "12345678-5", "000123", "BCHI"):
        assert text not in masked, text
    assert "•••" in masked.partition('class="pi-headline"')[2].partition("</p>")[0]


def test_the_recipient_is_shown_as_fields_unknown_ones_by_their_key(boss: Client) -> None:
    row = rows.payout(destination=ANA, metadata={"invoice": "7"}, extra={"channel": {"id": "x1"}})
    html = page(boss, url("payout", "change", row.pk))
    recipient = part(html, "Recipient")
    for text in ("Account holder", "RUT 12345678-5", "000123", "checking", "swift", "BCHI"):
        assert text in recipient, text
    assert "invoice" in part(html, "Metadata")
    assert "channel" in html
    assert "{&quot;" not in html
    assert "pi-pre" not in html
    titles = ("<h2>Money", "What happened", "<h2>Recipient", "<h2>Payout")
    places = [html.index(title) for title in titles]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"status": "created", "fee": 100}, {"Fee": "100", "Reserved from the balance": "1,600"}),
        ({"status": "processing", "fee": None}, {"Fee": "not known", "Reserved from the balance": "and the fee"}),
        ({"status": "succeeded", "fee": 100}, {"Fee": "100", "Total debited": "1,600"}),
        ({"status": "returned", "fee": 100}, {"Fee": "100", "Total debited": "1,600", "Came back": "1,500"}),
        ({"status": "failed", "fee": 100}, {"Came back": "1,500", "Total debited": "0"}),
        ({"status": "canceled", "fee": None}, {"Came back": "1,500", "Total debited": "0"}),
        ({"status": "quarked", "fee": 100}, {"Fee": "100"}),
    ],
)
def test_the_calculation(boss: Client, fields: dict[str, Any], shown: dict[str, str]) -> None:
    row = rows.payout(amount=1500, **fields)
    response = boss.get(url("payout", "change", row.pk))
    found = {str(row.label): row.amount for row in response.context["pi_aside"][0].rows}
    assert "1,500" in found.pop("Amount")
    assert found.keys() == shown.keys()
    for label, value in shown.items():
        assert value in found[label], label
        assert ">CLP\xa00<" in found[label] if value == "0" else True


@pytest.mark.parametrize(
    ("status", "signs"),
    [
        ("failed", [("Amount", ""), ("Came back", "−"), ("Total debited", "=")]),
        ("returned", [("Amount", ""), ("Fee", "+"), ("Total debited", "="), ("Came back", "")]),
    ],
)
def test_the_signs_of_the_calculation_add_up(boss: Client, status: str, signs: list[tuple[str, str]]) -> None:
    row = rows.payout(amount=1500, fee=100, status=status)
    calculation = boss.get(url("payout", "change", row.pk)).context["pi_aside"][0]
    assert [(str(each.label), each.sign) for each in calculation.rows] == signs


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("failed", "Check the recipient&#x27;s bank account"),
        ("returned", "Check the recipient&#x27;s bank account"),
        ("on_hold", "The provider holds it."),
    ],
)
def test_what_went_wrong_comes_with_what_to_do(boss: Client, status: str, words: str) -> None:
    row = rows.payout(status=status, failure_reason="<account_closed>")
    shown = part(page(boss, url("payout", "change", row.pk)), "What it means")
    assert "&lt;account_closed&gt;" in shown
    assert words in shown


def test_nothing_is_to_be_done_about_a_payout_that_arrived(boss: Client) -> None:
    row = rows.payout(status="succeeded")
    assert "pi-advice" not in page(boss, url("payout", "change", row.pk))


def test_a_failed_refund_leads_to_its_payment(boss: Client) -> None:
    row = rows.payout(status="failed", refund_id="ref_1")
    shown = part(page(boss, url("payout", "change", row.pk)), "What it means")
    assert "executes a refund" in shown


def test_ids_and_the_mirror_come_last_and_folded(boss: Client) -> None:
    row = rows.payout()
    html = page(boss, url("payout", "change", row.pk))
    assert html.index('id="pi-timeline"') < html.index("field-id")
    assert "<details" in html[html.index('id="pi-timeline"') : html.index("field-id")]


def test_the_page_takes_few_queries(boss: Client) -> None:
    row = rows.payout(status="failed", merchant_reference="invoice-7", destination=ANA)
    address = url("payout", "change", row.pk)
    page(boss, address)
    with CaptureQueriesContext(connection) as queries:
        page(boss, address)
    # One of them for each model of the tests' merchants that is a Payable.
    assert len(queries) <= 20
