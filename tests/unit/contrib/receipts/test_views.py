"""The receipt: for who has the address of the status page, of what was paid, and with nothing about the payer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone, translation

from payments_integration.models import Payment
from payments_integration.payer import links
from payments_integration.payer.links import Subject
from tests.factories import checkout as rows
from tests.factories.rows import change, refund
from tests.unit.checkout.conftest import Page, check_is_harmless

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

PAID = {"status": "succeeded", "amount_received": 10_000, "succeeded_at": datetime(2026, 3, 1, 12, 30, tzinfo=UTC)}
STATUS, DATA = "payments_integration:checkout-status", "payments_integration:checkout-status-data"
RECEIPT = "payments_receipts:receipt"


def url(payment: Payment, name: str = RECEIPT, **kwargs: Any) -> str:
    subject = Subject(payment.account, payment_id=payment.pk, **kwargs)
    return reverse(name, kwargs={"token": links.status_token(subject)})


def receipt(client: Client, payment: Payment) -> Page:
    response = client.get(url(payment))
    assert response.status_code == 200
    return check_is_harmless(response.content.decode().replace('href="/payments/', 'href="https://payments/'))


@override_settings(PAYMENTS_RECEIPT_ISSUER="Tienda <SpA>\nRUT 76.123.456-7")
def test_a_receipt_says_who_got_what_when_and_for_what(client: Client) -> None:
    payment = rows.payment(**PAID)
    page = receipt(client, payment)
    for words in (
        "Tienda <SpA>", "RUT 76.123.456-7", "Payment receipt", "$10.000", "March 1, 2026, 9:30 a.m. (UTC-03:00)",
        "order-1", payment.pk, "It is not a tax document.",
    ):  # fmt: skip
        assert words in page.text
    assert "Refunded" not in page.text
    [time] = page.all("time")
    assert time["datetime"] == "2026-03-01T12:30:00+00:00"


def test_the_amount_is_what_was_received_and_the_refund_is_shown(client: Client) -> None:
    payment = rows.payment(**{**PAID, "status": "overpaid", "amount_received": 12_000}, refunded_amount=2_000)
    page = receipt(client, payment)
    assert "$12.000" in page.text
    assert "Refunded since$2.000" in page.text
    assert "$10.000" not in page.text


def test_a_refund_is_shown_although_the_provider_leaves_the_refunded_amount_out(client: Client) -> None:
    payment = rows.payment(**PAID, refunded_amount=None)
    refund(payment=payment, status="succeeded", amount=2_000)
    assert "Refunded since$2.000" in receipt(client, payment).text


@pytest.mark.parametrize("has_history", [True, False])
def test_without_a_time_of_success_the_change_of_status_dates_it(client: Client, has_history: bool) -> None:
    payment = rows.payment(**{**PAID, "succeeded_at": None})
    paid_at = payment.state_at
    if has_history:
        paid_at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
        change(payment, status="processing", at=paid_at - timedelta(hours=1))
        change(payment, status="succeeded", at=paid_at)
    [time] = receipt(client, payment).all("time")
    assert datetime.fromisoformat(time["datetime"]) == paid_at


@pytest.mark.parametrize("status", ["created", "requires_action", "partially_paid", "on_hold", "chargeback", "failed"])
def test_what_is_not_paid_has_no_receipt(client: Client, status: str) -> None:
    payment = rows.payment(status=status, amount_received=5_000)
    assert client.get(url(payment)).status_code == 404
    assert client.get(url(payment, DATA)).json()["receipt"] is False
    page = Page(client.get(url(payment, STATUS)).content.decode())
    [link] = [item for item in page.all("p") if "data-payments-receipt" in item]
    assert "hidden" in link, "the page's script shows it when the payment is paid"


def test_the_status_page_links_to_it(client: Client) -> None:
    payment = rows.payment(**PAID)
    with time_machine.travel(timezone.now(), tick=False):
        page = Page(client.get(url(payment, STATUS)).content.decode())
        assert client.get(url(payment, DATA)).json()["receipt"] is True
        assert {"href": url(payment)} in page.all("a")
        assert {"href": url(payment, STATUS)} in Page(client.get(url(payment)).content.decode()).all("a")
    [link] = [item for item in page.all("p") if "data-payments-receipt" in item]
    assert "hidden" not in link


@pytest.mark.urls("tests.unit.checkout.urls")
def test_without_its_urls_the_status_page_has_no_link(client: Client) -> None:
    page = Page(client.get(url(rows.payment(**PAID), STATUS)).content.decode())
    assert not [item for item in page.all("p") if "data-payments-receipt" in item]


def test_the_address_is_the_only_access_and_expires(client: Client) -> None:
    payment = rows.payment(**PAID)
    assert client.get(reverse(RECEIPT, kwargs={"token": "guessed"})).status_code == 404
    other = links.status_token(Subject("second", payment_id=payment.pk))
    assert client.get(reverse(RECEIPT, kwargs={"token": other})).status_code == 404
    address = url(payment)
    with time_machine.travel(timezone.now() + timedelta(days=31)):
        assert client.get(address).status_code == 404


def test_it_is_not_stored_not_indexed_and_shows_no_personal_data(client: Client) -> None:
    payment = rows.payment(**PAID, metadata={"note": "secret"}, failure_reason="Ana has no money")
    response = client.get(url(payment))
    assert "no-store" in response.headers["Cache-Control"]
    assert response.headers["X-Robots-Tag"] == "noindex, nofollow"
    html = response.content.decode()
    for words in ("Ana", "ana@example.com", "12345678", "secret"):
        assert words not in html


@pytest.mark.parametrize(
    ("language", "title", "note"),
    [
        ("es", "Comprobante de pago", "No es un documento tributario."),
        ("pt-br", "Comprovante de pagamento", "Não é um documento fiscal."),
    ],
)
def test_it_is_translated_and_the_amount_is_the_countrys(client: Client, language: str, title: str, note: str) -> None:
    payment = rows.payment(**PAID)
    with translation.override(language):
        page = receipt(client, payment)
    assert title in page.text
    assert note in page.text
    assert "$10.000" in page.text
