"""The status page and its data: for who has the address, and nothing personal in it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.http import HttpRequest
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from payments_integration.checkout import status_url
from payments_integration.models import Operation, Payment
from payments_integration.payer import links
from payments_integration.payer.links import Subject
from tests.factories import checkout as rows, rows as stored
from tests.fake_provider import Fake
from tests.unit.checkout.conftest import Page, check_is_harmless

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.unit.checkout.urls")]

STATUS, DATA = "payments_integration:checkout-status", "payments_integration:checkout-status-data"
VOUCHER = {"type": "voucher", "voucher_code": "1234", "voucher_barcode": "5678", "reference": "R-77"}


def url(subject: Subject | Payment, name: str = STATUS) -> str:
    if isinstance(subject, Payment):
        subject = Subject(subject.account, payment_id=subject.pk)
    return reverse(name, kwargs={"token": links.status_token(subject)})


def data(client: Client, subject: Subject | Payment) -> dict[str, Any]:
    response = client.get(url(subject, DATA))
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def test_the_page_shows_the_status_and_the_action(client: Client, provider: Fake) -> None:
    payment = rows.payment(next_action=VOUCHER)
    # An address is signed with the second of its making.
    with time_machine.travel(timezone.now(), tick=False):
        response = client.get(url(payment))
        data_url = url(payment, DATA)
    assert response.status_code == 200
    page = check_is_harmless(response.content.decode())
    for words in ("Waiting for your payment", "$10.000", "order-1", "1234", "R-77"):
        assert words in page.text
    [main] = page.all("main")
    assert main["data-payments-poll"] == data_url
    [region] = [item for item in page.all("div") if item.get("role") == "status"]
    assert "data-payments-status-box" in region
    # Without a script the page reloads.
    [refresh] = [item for item in page.all("meta") if item.get("http-equiv") == "refresh"]
    assert refresh["content"] == "20"
    assert provider.reads == []


def test_the_page_of_a_final_status_does_not_poll(client: Client) -> None:
    payment = rows.payment(status="succeeded", amount_received=10_000, next_action=VOUCHER)
    page = check_is_harmless(client.get(url(payment)).content.decode())
    assert "Paid" in page.text
    assert "1234" not in page.text
    assert "data-payments-poll" not in page.all("main")[0]
    assert not [item for item in page.all("meta") if item.get("http-equiv") == "refresh"]
    assert page.all("section") == []


def test_the_page_shows_no_personal_data(client: Client) -> None:
    payment = rows.payment(next_action=VOUCHER, metadata={"note": "secret"}, failure_reason="Ana has no money")
    for name in (STATUS, DATA):
        html = client.get(url(payment, name)).content.decode()
        for words in ("Ana", "ana@example.com", "12345678", "secret"):
            assert words not in html


def test_the_data_follows_the_mirror(client: Client, provider: Fake) -> None:
    payment = rows.payment(next_action=VOUCHER)
    before = data(client, payment)
    assert before["status"] == "requires_action"
    assert before["final"] is False
    page = client.get(url(payment)).content.decode()
    assert f'data-payments-action="{before["action"]}"' in page
    Payment.objects.filter(pk=payment.pk).update(status="succeeded", amount_received=10_000)
    assert data(client, payment) == {
        "status": "succeeded",
        "headline": "Paid",
        "message": "Thank you! Your payment has arrived.",
        "tone": "good",
        "final": True,
        "action": "",
        "receipt": True,
    }
    assert provider.reads == []


def test_the_page_works_before_the_payment_is_mirrored(client: Client, provider: Fake) -> None:
    subject = Subject("default", merchant_reference="order-1")
    page = check_is_harmless(client.get(url(subject)).content.decode())
    assert "We are looking for your payment" in page.text
    assert "order-1" in page.text
    assert page.all("main")[0]["data-payments-poll"]
    assert data(client, subject) == {
        "status": "",
        "headline": "We are looking for your payment",
        "message": "This takes a moment. Please do not pay again.",
        "tone": "open",
        "final": False,
        "action": "",
        "receipt": False,
    }
    rows.payment()
    assert data(client, subject)["status"] == "requires_action"


def test_the_page_offers_to_pay_again_once_every_attempt_was_refused(client: Client) -> None:
    subject = Subject("default", merchant_reference="order-1", pay_again_url="https://shop.example/cart/")
    attempt = {"operation": "create_payment", "merchant_reference": "order-1"}
    stored.operation(state="rejected", **attempt)
    stored.operation(state="closed", **attempt)
    page = check_is_harmless(client.get(url(subject)).content.decode())
    assert "No payment has arrived." in page.text
    [again] = [item for item in page.all("p") if "data-payments-again" in item]
    assert "hidden" not in again
    shown = data(client, subject)
    assert (shown["status"], shown["tone"], shown["final"]) == ("failed", "bad", True)
    # A job may repeat a call whose key is free.
    Operation.objects.filter(state="closed").update(error={"status_code": 429, "code": "rate_limited"})
    assert data(client, subject)["final"] is False
    operation = stored.operation(state="due", **attempt)
    for state in ("due", "done"):  # a payment may come, or is about to be in the mirror
        Operation.objects.filter(pk=operation.pk).update(state=state)
        assert data(client, subject)["headline"] == "We are looking for your payment"


def test_of_several_attempts_the_page_shows_the_paid_or_the_newest_one(client: Client) -> None:
    at, subject = timezone.now(), Subject("default", merchant_reference="order-1")
    rows.payment(id="pay_old", status="requires_action", created_at=at - timedelta(hours=3))
    rows.payment(id="pay_new", status="failed", created_at=at - timedelta(hours=1))
    rows.payment(id="pay_mid", status="canceled", created_at=at - timedelta(hours=2))
    rows.payment(id="pay_else", status="succeeded", merchant_reference="order-2")
    rows.payment(id="pay_second", status="succeeded", account="second")
    assert data(client, subject)["status"] == "failed"
    Payment.objects.filter(pk="pay_old").update(status="succeeded", amount_received=10_000)
    assert data(client, subject)["status"] == "succeeded"
    Payment.objects.filter(pk="pay_mid").update(status="overpaid", amount_received=12_000)
    assert data(client, subject)["status"] == "overpaid"


@pytest.mark.parametrize("late", ["on_hold", "processing", "partially_paid"])
def test_money_on_its_way_goes_before_a_newer_attempt_that_failed(client: Client, late: str) -> None:
    at, subject = timezone.now(), Subject("default", merchant_reference="order-1")
    rows.payment(id="pay_first", status=late, amount_received=4_000, created_at=at - timedelta(hours=2))
    rows.payment(id="pay_second", status="failed", created_at=at - timedelta(hours=1))
    assert data(client, subject)["status"] == late


def test_an_order_whose_second_payment_went_back_is_paid(client: Client) -> None:
    at, subject = timezone.now(), Subject("default", merchant_reference="order-1")
    paid = {"status": "succeeded", "amount_received": 10_000}
    rows.payment(id="pay_first", **paid, created_at=at - timedelta(hours=2))
    rows.payment(id="pay_second", **paid, refunded_amount=10_000, created_at=at - timedelta(hours=1))
    rows.payment(id="pay_third", status="failed", created_at=at)
    assert data(client, subject)["headline"] == "Paid"
    Payment.objects.filter(pk="pay_first").update(merchant_reference="order-2")
    assert data(client, subject)["headline"] == "Refunded"


@pytest.mark.parametrize(("state", "is_looked_for"), [("unknown", True), ("due", True), ("rejected", False)])
def test_a_newer_attempt_of_unknown_outcome_hides_the_one_that_failed(
    client: Client, state: str, is_looked_for: bool
) -> None:
    """The payer may have a payment that is not mirrored yet: the page offers no other."""
    at, subject = timezone.now(), Subject("default", merchant_reference="order-1")
    rows.payment(id="pay_first", status="failed", created_at=at - timedelta(hours=1))
    asked = {"operation": "create_payment", "merchant_reference": "order-1"}
    stored.operation(**asked, state="unknown", created_at=at - timedelta(hours=2))
    assert data(client, subject)["final"]
    stored.operation(**asked, state=state, created_at=at)
    shown = data(client, subject)
    assert (shown["status"] == "", shown["final"]) == (is_looked_for, not is_looked_for)


def test_references_are_compared_exactly(client: Client) -> None:
    for other in ("ORDER-1", "order-1 ", "order-11", "órder-1", "order_1"):
        rows.payment(merchant_reference=other, status="succeeded", amount_received=10_000)
    assert data(client, Subject("default", merchant_reference="order-1"))["status"] == ""
    rows.payment(merchant_reference="order-1")
    assert data(client, Subject("default", merchant_reference="order-1"))["status"] == "requires_action"
    assert data(client, Subject("default", merchant_reference="ORDER-1"))["status"] == "succeeded"
    assert data(client, Subject("default", merchant_reference="order%1"))["status"] == ""


@pytest.mark.parametrize("fields", [{"flow": "deposit_reference"}, {"method_family": "deposit_reference"}])
def test_a_deposit_with_an_orders_reference_is_not_shown(client: Client, fields: dict[str, str]) -> None:
    """It carries its payer's reference, which may be some order's number."""
    deposit = rows.payment(status="succeeded", amount=77_000, amount_received=77_000, **fields)
    subject = Subject("default", merchant_reference="order-1")
    assert data(client, subject)["status"] == ""
    assert "77" not in Page(client.get(url(subject)).content.decode()).text
    rows.payment()
    assert data(client, subject)["status"] == "requires_action"
    assert data(client, Subject("default", payment_id=deposit.pk))["status"] == "succeeded"


def test_a_payment_of_another_account_is_not_shown(client: Client) -> None:
    payment = rows.payment(account="second")
    assert data(client, Subject("default", payment_id=payment.pk))["status"] == ""
    assert data(client, Subject("second", payment_id=payment.pk))["status"] == "requires_action"
    assert data(client, Subject("default"))["status"] == ""


@pytest.mark.parametrize("name", [STATUS, DATA])
def test_an_invalid_or_old_token_is_404(
    client: Client, name: str, django_assert_num_queries: Callable[..., Any]
) -> None:
    payment = rows.payment()
    token = links.status_token(Subject("default", payment_id=payment.pk))
    back = links.return_token(Subject("default", merchant_reference="order-1"))
    with django_assert_num_queries(0):
        for wrong in (payment.pk, "order-1", token[:-2], token + "x", token.upper(), back, "🦙", "%00"):
            assert client.get(reverse(name, kwargs={"token": wrong})).status_code == 404, wrong
    with time_machine.travel(timezone.now() + timedelta(days=29)):
        assert client.get(reverse(name, kwargs={"token": token})).status_code == 200
    with time_machine.travel(timezone.now() + timedelta(days=31)):
        assert client.get(reverse(name, kwargs={"token": token})).status_code == 404


@pytest.mark.parametrize("name", [STATUS, DATA])
@override_settings(SECURE_REFERRER_POLICY="unsafe-url")
def test_the_page_is_neither_cached_nor_indexed(client: Client, name: str) -> None:
    response = client.get(url(rows.payment(), name))
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "same-origin"
    assert "noindex" in response["X-Robots-Tag"]
    assert "Set-Cookie" not in response
    for method in ("put", "patch", "delete", *(["post"] if name == DATA else [])):
        assert getattr(client, method)(url(rows.payment(), name)).status_code == 405


@pytest.mark.parametrize("name", [STATUS, DATA])
@pytest.mark.parametrize("attempts", [1, 30])
def test_the_page_costs_one_query(
    client: Client, name: str, attempts: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    for _ in range(attempts):
        rows.payment(next_action=VOUCHER)
    address = url(Subject("default", merchant_reference="order-1"), name)
    with django_assert_num_queries(1):
        client.get(address)


def test_the_page_needs_no_login_with_login_required_middleware(client: Client) -> None:
    after = "django.contrib.auth.middleware.AuthenticationMiddleware"
    middleware = list(settings.MIDDLEWARE)
    middleware.insert(middleware.index(after) + 1, "django.contrib.auth.middleware.LoginRequiredMiddleware")
    with override_settings(MIDDLEWARE=middleware):
        assert client.get(url(rows.payment())).status_code == 200


def test_hostile_values_are_text_on_the_status_page(client: Client) -> None:
    payment = rows.payment(
        merchant_reference="<script>alert(1)</script>\u202e",
        currency='"><b>',
        status="<i>",
        checkout_url="javascript:1",
    )
    page = check_is_harmless(client.get(url(payment)).content.decode())
    assert "<script>alert(1)</script>\\u202e" in page.text
    assert len(page.all("script")) == 1
    assert page.all("b") == page.all("i") == []
    assert page.all("a") == [{"href": ""}]  # to look again, without a script


def test_status_urls_are_made_for_a_payment_or_a_reference(
    client: Client, request_of: Callable[..., HttpRequest]
) -> None:
    payment = rows.payment(account="second", merchant_reference="order-9")
    for address in (
        status_url(request_of(), payment),
        status_url(request_of(), "order-9", account="second"),
        status_url(request_of(), "order-9", "second", url_name="own-status"),
    ):
        assert address.startswith("http://testserver/")
        assert "Waiting for your payment" in client.get(address).content.decode()
    assert "no-store" in client.get(address)["Cache-Control"]
    assert "as the shop says it" in client.get(address).content.decode()
    with time_machine.travel(timezone.now() + timedelta(seconds=61)):
        assert client.get(address).status_code == 404
