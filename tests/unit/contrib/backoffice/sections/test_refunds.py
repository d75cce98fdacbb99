"""A refund's page: what became of it, its share of the payment, and who asked for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from payments_integration.models import Payment, Refund
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database


def payment(**fields: Any) -> Payment:
    values = {
        "currency": "CLP", "amount": 15_990, "amount_received": 15_990, "method_family": "bank_transfer",
        "payer": {"name": "Ana Soto"}, "merchant_reference": "ORD-7",
    }  # fmt: skip
    return rows.payment(**{**values, **fields})


def refund(pay: Payment | None, status: str = "succeeded", **fields: Any) -> Refund:
    row = rows.refund(**{"payment": pay, "status": status, "amount": 5_000, "currency": "CLP", **fields})
    rows.change(row, status=status, at=rows.AT)
    return row


def text(html: str) -> str:
    return " ".join(strip_tags(html.replace("<", " <")).replace("\xa0", " ").split())


def part(client: Client, row: Refund, title: str) -> str:
    """The text of a section; empty if the page does not have it."""
    html = page(client, url("refund", "change", row.pk))
    found = html.partition(f"<h2>{title}</h2>")[2].partition("<h2")[0]
    return text(found.partition('<div id="content-main"')[0])


def test_the_page_begins_with_amount_status_payer_order_and_payment(
    boss: Client, staff: Callable[..., Client]
) -> None:
    pay = payment()
    row = refund(pay)

    def headline(client: Client) -> str:
        html = page(client, url("refund", "change", row.pk))
        return text(html.split('class="pi-headline">')[1].split("</p>")[0].replace("</span><span>", "|"))

    shown = headline(boss)
    places = [shown.index(word) for word in ("CLP 5,000", "succeeded", "Ana Soto", "ORD-7", f"refund of {pay.pk}")]
    assert places == sorted(places)
    shown = headline(staff("view_refund", "view_payment"))
    assert "•••" in shown
    assert "Ana Soto" not in shown
    shown = headline(staff("view_refund"))
    assert "ORD-7" not in shown
    assert "•••" not in shown


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("created", "It has been on its way since 2025-03-04 05:06:07."),
        ("processing", "It has been on its way since 2025-03-04 05:06:07."),
        ("succeeded", "It succeeded at 2025-03-04 05:06:07: the money was sent back to the payer."),
        ("failed", "It failed at 2025-03-04 05:06:07: nothing was refunded."),
        ("canceled", "It was canceled at 2025-03-04 05:06:07: nothing was refunded."),
        ("returned", "The bank returned the money at 2025-03-04 05:06:07: nothing was refunded."),
        ("quarked", "Its status has not changed since 2025-03-04 05:06:07."),
    ],
)
def test_it_says_what_became_of_it(boss: Client, status: str, words: str) -> None:
    row = refund(payment(), status)
    shown = part(boss, row, "What became of it")
    assert shown.startswith(words)
    html = page(boss, url("refund", "change", row.pk))
    assert (">Refund again<" in html) is (status in {"failed", "canceled", "returned"})
    assert ("another bank account" in shown) is (status == "returned")


def test_without_a_history_the_time_is_that_of_its_creation(boss: Client) -> None:
    row = rows.refund(status="processing", created_at=rows.AT + timedelta(days=1))
    assert "since 2025-03-05 05:06:07" in part(boss, row, "What became of it")


def test_refund_again_leads_to_the_refund_page_of_the_payment_if_something_is_left(
    boss: Client, staff: Callable[..., Client]
) -> None:
    pay = payment()
    row = refund(pay, "returned")
    link = f'href="{url("payment", "refund", pay.pk)}?again={row.pk}"'
    assert link in page(boss, url("refund", "change", row.pk))
    assert link not in page(staff("view_refund", "view_payment"), url("refund", "change", row.pk))
    assert link in page(staff("view_refund", "refund_payment"), url("refund", "change", row.pk))
    refund(pay, "processing", amount=15_990)
    assert link not in page(boss, url("refund", "change", row.pk))
    assert "Nothing is left to refund of the payment now." in part(boss, row, "What became of it")


def test_a_card_has_no_other_bank_account(boss: Client) -> None:
    row = refund(payment(method_family="card"), "returned")
    assert "another bank account" not in part(boss, row, "What became of it")


def test_it_shows_the_calculation_of_the_payment(boss: Client, staff: Callable[..., Client]) -> None:
    pay = payment()
    row = refund(pay)
    refund(pay, "processing", amount=990)
    shown = part(boss, row, "Payment")
    assert "Received CLP 15,990 Refunded − CLP 5,000 On its way − CLP 990 Left = CLP 10,000" in shown
    assert part(staff("view_refund"), row, "Payment") == ""


def test_a_refund_that_comes_before_its_payment_has_a_page(boss: Client) -> None:
    row = refund(None, "failed", payment_id="pay_absent")
    shown = part(boss, row, "What became of it")
    assert shown.startswith("It failed at")
    assert "Refund again" not in shown
    assert part(boss, row, "Payment") == ""


def test_the_payout_that_executes_it_is_shown_with_its_recipient(boss: Client, staff: Callable[..., Client]) -> None:
    destination = {"type": "bank_account", "bank_code": "012", "account_number": "000777", "holder_name": "Ana Soto"}
    out = rows.payout(destination=destination, status="returned", failure_reason="account_closed")
    row = refund(payment(), "returned", payout=out)
    html = page(boss, url("refund", "change", row.pk))
    assert f'href="{url("payout", "change", out.pk)}"' in html
    assert "returned" in part(boss, row, "Payouts")
    assert "The reason given: the account is closed." in part(boss, row, "What became of it")
    shown = part(boss, row, "Recipient")
    assert all(word in shown for word in ("Ana Soto", "012", "000777"))
    masked = staff("view_refund", "view_payout")
    shown = part(masked, row, "Recipient")
    assert "Account number •••" in shown
    assert "Ana Soto" not in page(masked, url("refund", "change", row.pk))
    unseen = staff("view_refund", "view_personal_data")
    assert part(unseen, row, "Recipient") == ""
    assert "account is closed" not in page(unseen, url("refund", "change", row.pk))


def test_it_says_who_asked_and_who_approved(boss: Client, staff: Callable[..., Client]) -> None:
    row = refund(payment())
    asked = rows.operation(
        result_kind="refund", result_id=row.pk, actor="7:ana", approved_by="8:luz", approved_at=rows.AT
    )
    shown = part(boss, row, "Who asked for it")
    assert "Asked by ana" in shown
    assert "Approved by luz Approved at 2025-03-04 05:06:07" in shown
    assert f'href="{url("operation", "change", asked.pk)}"' in page(boss, url("refund", "change", row.pk))
    assert part(staff("view_refund"), row, "Who asked for it") == ""
    assert part(boss, refund(payment()), "Who asked for it") == "It was not asked for through this site."


def test_other_refunds_of_the_payment_are_listed(boss: Client) -> None:
    pay = payment()
    row, other, unrelated = refund(pay), refund(pay), refund(payment())
    shown = part(boss, row, "Other refunds of this payment")
    assert other.pk in shown
    assert row.pk not in shown
    assert unrelated.pk not in shown


def test_its_page_takes_as_many_statements_for_many_refunds_as_for_one(boss: Client) -> None:
    pay = payment()
    row = refund(pay, "returned")

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url("refund", "change", row.pk))
        return len(queries)

    def add() -> None:
        refund(pay, amount=1)
        rows.payout(refund=row)

    add()
    count()
    one = count()
    for _ in range(4):
        add()
    # The page asks every model of orders, also those of other tests.
    assert count() == one <= 24


def test_a_payment_that_has_not_arrived_is_looked_for_once(boss: Client) -> None:
    row = refund(payment())
    Refund.objects.update(payment_id="pay_to_come")
    with CaptureQueriesContext(connection) as queries:
        page(boss, url("refund", "change", row.pk))
    found = [
        query["sql"] for query in queries if 'FROM "payments_integration_payment"' in query["sql"].replace("`", '"')
    ]
    assert len(found) == 1
