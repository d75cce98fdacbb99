"""The columns of the lists of money: who paid, who was paid, and why something failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def cell(client: Client, model: str, column: str) -> str:
    """The first cell of a column."""
    return page(client, url(model, "changelist")).split(f'class="field-{column}')[1].split(">", 1)[1].split("</td>")[0]


@pytest.mark.parametrize(
    ("payer", "shown"),
    [
        ({"name": "Ana Soto", "email": "ana@x.example"}, "Ana Soto"),
        ({"name": " ", "email": "ana@x.example"}, "ana@x.example"),
        ({"name": None, "email": 7}, "–"),
        ({"name": ["Ana"], "email": {"x": 1}}, "–"),
        (["Ana"], "–"),
        ("Ana", "–"),
        (None, "–"),
        ({"name": "<b>x</b>"}, "&lt;b&gt;x&lt;/b&gt;"),
        ({"name": "x" * 5000}, "x" * 79 + "…"),
    ],
)
def test_a_payment_shows_its_payer(boss: Client, payer: Any, shown: str) -> None:
    rows.refund(payment=rows.payment(payer=payer))
    assert cell(boss, "payment", "payer_name") == shown
    assert cell(boss, "refund", "payer_name") == shown


def test_a_payout_shows_its_recipient(boss: Client) -> None:
    rows.payout(destination={"holder_name": "Benita Soto", "account_number": "000123"})
    assert cell(boss, "payout", "recipient_name") == "Benita Soto"


def test_the_reason_of_a_failure_is_below_the_status(boss: Client) -> None:
    rows.payment(status="failed", failure_reason="insufficient <funds>")
    rows.payout(status="returned", failure_reason="account_closed")
    assert 'pi-less">insufficient &lt;funds&gt;<' in cell(boss, "payment", "state_shown")
    assert 'pi-less">the account is closed<' in cell(boss, "payout", "state_shown")


def test_a_refund_shows_its_reason_and_its_payment_with_the_order(boss: Client) -> None:
    rows.refund(payment=rows.payment(merchant_reference="order-7"), reason="came broken")
    assert cell(boss, "refund", "reason_start") == "came broken"
    assert "order-7" in cell(boss, "refund", "payment_shown")


def test_a_refund_without_its_payment_is_listed(boss: Client) -> None:
    rows.refund(payment_id="pay_later")
    assert cell(boss, "refund", "payer_name") == "–"
    assert "pay_later" in cell(boss, "refund", "payment_shown")


def test_a_refund_shows_its_payment_to_users_who_may_see_payments(staff: Callable[..., Client]) -> None:
    refund = rows.refund(payment=rows.payment(payer={"name": "Ana Soto"}, merchant_reference="order-7"))
    for codenames, sees in ((("view_refund",), False), (("view_refund", "view_payment"), True)):
        client = staff("view_personal_data", *codenames)
        assert (cell(client, "refund", "payer_name") == "Ana Soto") is sees
        found = f"{url('payment', 'search')}?q={refund.pk}"
        for where in (url("refund", "changelist"), url("refund", "change", refund.pk), found):
            html = page(client, where)
            assert ("Ana Soto" in html) is sees, where
            assert sees or refund.payment_id in html, where
            assert where == found or ("order-7" in html) is sees, where


def test_persons_and_reasons_are_masked(staff: Callable[..., Client]) -> None:
    rows.refund(payment=rows.payment(payer={"name": "Ana Soto"}), reason="Ana's parcel")
    rows.payout(destination={"holder_name": "Ana Soto"})
    client = staff("view_payment", "view_payout", "view_refund")
    for model, column in (("payment", "payer_name"), ("payout", "recipient_name"), ("refund", "payer_name"),
                          ("refund", "reason_start")):  # fmt: skip
        assert cell(client, model, column) == "•••", (model, column)
        assert "Ana" not in page(client, url(model, "changelist"))


def test_erased_persons_are_called_erased(boss: Client) -> None:
    rows.payment(payer=None, erased_at=timezone.now())
    rows.payout(destination=None, erased_at=timezone.now())
    assert cell(boss, "payment", "payer_name") == "erased"
    assert cell(boss, "payout", "recipient_name") == "erased"


@pytest.mark.parametrize("model", ["payment", "payout", "refund", "depositreference"])
def test_a_row_more_is_no_query_more(boss: Client, model: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url(model, "changelist"))
        return len(queries)

    rows.MAKERS[model]()
    count()
    one = count()
    for _ in range(5):
        rows.MAKERS[model]()
    assert count() == one
    assert one <= 12
    assert Payment.objects.count() <= 6
