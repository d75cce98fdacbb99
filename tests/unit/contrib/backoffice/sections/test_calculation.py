"""The calculation of a payment's page adds up, and its last row is the refundable rest."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings, strategies as st

from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page
from payments_integration.contrib.backoffice.admin.sections.calculation import (
    calculation,
    charged_back_at,
    compute_amounts,
)
from payments_integration.enums import PaymentStatus, RefundStatus
from payments_integration.models import OperationState, Payment, Refund, refundable_rest, rest_after
from payments_integration.payable.totals import compute_totals
from tests.factories import rows
from tests.unit.admin.conftest import page, url

STATUSES = st.sampled_from([*PaymentStatus.values, "quarked"])
REFUNDS = st.lists(
    st.builds(
        Refund,
        amount=st.integers(1, 1_200),
        status=st.sampled_from([*RefundStatus.values, "quarked"]),
        currency=st.sampled_from(["USD", "USD", "USD", "CLP"]),
        account=st.just("default"),
        payment_id=st.just("pay_1"),
        state_at=st.sampled_from([rows.AT - timedelta(seconds=1), rows.AT + timedelta(seconds=1)]),
    ),
    max_size=4,
)
#: A busy machine fails no test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
AMOUNTS = st.sampled_from([0, 1, 300, 999, 1_000, 1_001, 2_000])


def of(status: str, received: int, refunded: int | None, **fields: Any) -> Payment:
    return Payment(
        id="pay_1", account="default", status=status, amount=1_000, amount_received=received, currency="USD",
        refunded_amount=refunded, state_at=rows.AT, **fields,
    )  # fmt: skip


@UNTIMED
@given(status=STATUSES, received=AMOUNTS, refunded=AMOUNTS | st.none(), refunds=REFUNDS, promised=AMOUNTS)
@example(status="chargeback", received=0, refunded=300, refunds=[], promised=0)
@example(status="expired", received=1_000, refunded=None, refunds=[], promised=0)
def test_the_rows_add_up_to_the_refundable_rest(
    status: str, received: int, refunded: int | None, refunds: list[Refund], promised: int
) -> None:
    payment = of(status, received, refunded)
    amounts = compute_amounts(payment, refunds, promised)
    gone = amounts.refunded + amounts.on_its_way + amounts.charged_back + amounts.kept_back
    assert amounts.received - gone == amounts.left == rest_after(payment, refunds, promised)
    assert min(amounts.received, amounts.refunded, amounts.on_its_way, amounts.charged_back, amounts.kept_back) >= 0
    assert bool(amounts.charged_back) <= (status == "chargeback")
    if status != "chargeback" and not amounts.kept_back:
        assert amounts.received == received or amounts.received == amounts.refunded


@UNTIMED
@given(status=STATUSES, received=AMOUNTS, refunded=AMOUNTS | st.none(), refunds=REFUNDS, promised=AMOUNTS)
def test_an_order_with_this_payment_counts_the_same(
    status: str, received: int, refunded: int | None, refunds: list[Refund], promised: int
) -> None:
    payment = of(status, received, refunded)
    payment.promised = promised  # type: ignore[attr-defined]
    refunds = [refund for refund in refunds if refund.currency == "USD"]
    amounts, totals = compute_amounts(payment, refunds, promised), compute_totals([payment], refunds)["USD"]
    assert totals.refunded == amounts.refunded
    assert totals.charged_back == amounts.charged_back
    if status in ("succeeded", "overpaid", "partially_paid", "chargeback"):
        assert totals.refundable == max(0, amounts.left)


def shown(client: Client, payment: Payment) -> tuple[list[str], dict[str, str]]:
    """The sentences and the rows of the calculation, without spaces that do not break."""
    html = unescape(page(client, url("payment", "change", payment.pk))).replace("\xa0", " ")
    html = html.split("pi-calculation")[1].split("</table>")[0]
    sentences = [re.sub(r"<[^>]+>", "", each) for each in re.findall(r'class="pi-sentence">(.*?)</p>', html)]
    cells = re.findall(r'<th scope="row">(.*?)</th>\s*<td>(.*?)</td>', html, re.DOTALL)
    return sentences, {strip(label): strip(cell) for label, cell in cells}


def strip(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).strip()


def clp(status: str, received: int, **fields: Any) -> Payment:
    return rows.payment(status=status, currency="CLP", amount=15_990, amount_received=received, **fields)


def test_every_row_is_shown_with_its_sign(boss: Client) -> None:
    payment = clp("succeeded", 15_990, refunded_amount=0, fee=300, net_amount=15_690)
    rows.refund(payment=payment, amount=5_000, currency="CLP", status="succeeded")
    rows.refund(payment=payment, amount=700, currency="CLP", status="returned")
    rows.refund(payment=payment, amount=1_000, currency="CLP", status="processing")
    rows.operation(target_id=payment.pk, amount=990, currency="CLP", state=OperationState.DUE)
    sentences, amounts = shown(boss, payment)
    assert sentences == []
    assert amounts == {
        "Received": "CLP 15,990",
        "Refunded": "− CLP 5,000",
        "On its way": "− CLP 1,990",
        "Left": "= CLP 9,000",
    }
    assert refundable_rest(payment) == 9_000
    html = unescape(page(boss, url("payment", "change", payment.pk))).replace("\xa0", " ")
    assert "Fee CLP 300 · Net CLP 15,690" in strip(html)


@pytest.mark.parametrize(("received", "is_shown"), [(0, False), (15_990, True)])
def test_zeros_before_any_money_came_are_no_fee(boss: Client, received: int, is_shown: bool) -> None:
    payment = clp("active", received, fee=0, net_amount=0)
    html = unescape(page(boss, url("payment", "change", payment.pk))).replace("\xa0", " ")
    assert ("Fee CLP 0 · Net CLP 0" in strip(html)) == is_shown


@pytest.mark.parametrize(
    ("fields", "refunds", "sentence"),
    [
        ({"status": "partially_paid", "received": 10_990}, [], "CLP 5,000 of CLP 15,990 is missing."),
        ({"status": "overpaid", "received": 16_990}, [], "CLP 1,000 more than CLP 15,990 was paid."),
        ({"status": "succeeded", "received": 15_990, "refunded_amount": 15_990}, [], "Everything is refunded."),
        ({"status": "succeeded", "received": 15_990}, [(15_990, "succeeded")], "Everything is refunded."),
        (
            {"status": "succeeded", "received": 15_990},
            [(10_000, "succeeded"), (5_990, "processing")],
            "Nothing is left. The rest is on its way to the payer.",
        ),
        (
            {"status": "succeeded", "received": 15_990},
            [(15_990, "succeeded"), (10, "processing")],
            "CLP 10 more than was received is refunded or on its way.",
        ),
        (
            {"status": "chargeback", "received": 15_990},
            [(990, "processing")],
            "Refunds of CLP 990 are still in progress.",
        ),
        ({"status": "failed", "received": 0, "failure_reason": "no funds"}, [], "Failure reason: no funds"),
        (
            {"status": "on_hold", "received": 15_990},
            [],
            "The provider is reviewing it. The money may go back to the payer.",
        ),
    ],
)  # fmt: skip
def test_a_sentence_says_what_the_numbers_mean(
    boss: Client, fields: dict[str, Any], refunds: list[tuple[int, str]], sentence: str
) -> None:
    payment = clp(**fields)
    for amount, status in refunds:
        rows.refund(payment=payment, amount=amount, currency="CLP", status=status)
    assert sentence in shown(boss, payment)[0]


@pytest.mark.parametrize("status", ["succeeded", "created", "chargeback"])
def test_nothing_is_said_of_a_plain_payment(boss: Client, status: str) -> None:
    assert shown(boss, clp(status, 15_990 if status != "created" else 0))[0] == []


def test_a_refund_in_another_currency_is_pointed_out(boss: Client) -> None:
    payment = clp("succeeded", 15_990)
    rows.refund(payment=payment, amount=100, currency="USD", status="succeeded")
    assert "another currency" in shown(boss, payment)[0][0]


def test_a_late_payment_that_cannot_be_refunded_adds_up_too(boss: Client) -> None:
    amounts = shown(boss, clp("expired", 15_990))[1]
    assert (amounts["Not refundable"], amounts["Left"]) == ("− CLP 15,990", "= CLP 0")


@pytest.mark.django_db
def test_a_chargeback_has_the_time_of_its_event_otherwise_when_it_was_seen(boss: Client) -> None:
    payment = clp("chargeback", 15_990, state_at=rows.AT + timedelta(days=9))
    assert charged_back_at(payment) == (rows.AT + timedelta(days=9), False)
    rows.change(payment, status="succeeded", at=rows.AT)
    rows.change(payment, status="chargeback", at=rows.AT + timedelta(days=3))
    assert charged_back_at(payment) == (rows.AT + timedelta(days=3), False)
    assert "Charged back seen on 2025-03-07 05:06:07" in shown(boss, payment)[1]
    rows.change(payment, status="chargeback", at=rows.AT + timedelta(days=4), event_id="evt_pruned")
    assert charged_back_at(payment) == (rows.AT + timedelta(days=4), True)
    rows.event(payment, type="payment.chargeback", created_at=rows.AT + timedelta(days=1))
    rows.event(payment, type="payment.chargeback", created_at=rows.AT + timedelta(days=8), account="second")
    assert charged_back_at(payment) == (rows.AT + timedelta(days=1), True)
    assert "Charged back 2025-03-05 05:06:07" in shown(boss, payment)[1]


@pytest.mark.django_db
def test_the_calculation_takes_a_statement_and_three_of_a_chargeback() -> None:
    payment = clp("succeeded", 15_990)
    shown_to = Page(admin.site, HttpRequest())
    # MariaDB reads what is committed with locks while the test's transaction is open, and a union cannot lock.
    locking = 1 if connection.vendor == "mysql" else 0
    for _ in range(5):
        rows.refund(payment=payment, amount=100, currency="CLP")
        rows.operation(target_id=payment.pk, amount=100, currency="CLP", state=OperationState.DUE)
    with CaptureQueriesContext(connection) as queries:
        calculation(shown_to, payment)
    assert len(queries) == 1 + locking
    # Asked again for the same row, it reads nothing.
    with CaptureQueriesContext(connection) as queries:
        calculation(shown_to, payment)
    assert not queries
    charged_back = Payment.objects.get(pk=payment.pk)
    charged_back.status = "chargeback"
    with CaptureQueriesContext(connection) as queries:
        calculation(shown_to, charged_back)
    assert len(queries) == 3 + locking


def advice(client: Client, payment: Payment) -> str:
    html = unescape(page(client, url("payment", "change", payment.pk))).replace("\xa0", " ")
    return strip(html.partition('pi-advice">')[2].partition("</section>")[0])


def test_an_unpaid_payment_shows_what_is_missing_and_no_zeros(boss: Client) -> None:
    until = timezone.now() + timedelta(hours=3, minutes=1)
    payment = clp("requires_action", 0, payer={"name": "Ana"}, expires_at=until)
    assert shown(boss, payment)[1] == {"To be paid": "CLP 15,990"}
    words = f"Ana still has to pay CLP 15,990 until {display.moment(until)}: 3 hours are left."
    assert advice(boss, payment) == f"What is missing {words}"
    payment = clp("created", 0, expires_at=rows.AT)
    assert advice(boss, payment).endswith(f"The time to pay CLP 15,990 ended at {display.moment(rows.AT)}.")
    assert "The payer still has to pay CLP 5,000." in advice(boss, clp("partially_paid", 10_990))
    assert advice(boss, clp("processing", 0)) == "", "the payer has nothing to do"


def test_a_payment_that_came_to_nothing_shows_what_was_asked_for(boss: Client) -> None:
    for status in ("failed", "expired", "canceled"):
        assert shown(boss, clp(status, 0))[1] == {"Asked for, not paid": "CLP 15,990"}


def test_a_payment_with_a_refund_in_progress_is_not_shown_as_unpaid(boss: Client) -> None:
    payment = clp("created", 0)
    rows.operation(target_id=payment.pk, amount=990, currency="CLP", state=OperationState.DUE)
    assert shown(boss, payment)[1] == {"Received": "CLP 0", "On its way": "− CLP 990", "Left": "= CLP −990"}


def test_a_chargeback_says_what_it_means_and_what_to_do(boss: Client) -> None:
    words = advice(boss, clp("chargeback", 15_990))
    assert "bank took the money back" in words
    assert "Do not refund it in another way" in words
