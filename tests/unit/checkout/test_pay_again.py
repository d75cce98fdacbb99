"""The way on from the status page after an attempt that failed, expired or was canceled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from payments_integration import checkout
from payments_integration.enums import VAIN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.models import Payment
from payments_integration.payer import links
from payments_integration.payer.links import STATUS, Subject
from tests.factories import checkout as rows
from tests.fake_provider import Fake
from tests.unit.checkout.conftest import Page

pytestmark = [pytest.mark.case(128), pytest.mark.django_db, pytest.mark.any_database]

AGAIN = "/orders/A-1/pay/?from=ñ"
WORDS = {"en": "Pay again", "es": "Volver a pagar", "pt-br": "Pagar de novo"}


@pytest.fixture(autouse=True)
def _provider(provider: Fake) -> None:
    """It must not be asked."""


def shown(client: Client, address: str) -> tuple[bool, str]:
    """Whether the page shows a way on, and the page."""
    response = client.get(address.removeprefix("http://testserver"))
    assert response.status_code == 200
    html = response.content.decode()
    found = [item for item in Page(html).all("p") if "data-payments-again" in item]
    return bool(found) and "hidden" not in found[0], html


@pytest.mark.parametrize("language", WORDS)
@pytest.mark.parametrize("status", PaymentStatus.values)
def test_only_an_attempt_in_vain_has_a_way_on(
    client: Client, request_of: Callable[..., Any], status: str, language: str
) -> None:
    payment = rows.payment(status=status)
    with translation.override(language):
        is_shown, html = shown(client, checkout.status_url(request_of(), payment, pay_again_url=AGAIN))
    assert is_shown is (status in VAIN_PAYMENT_STATUSES)
    assert WORDS[language] in html
    [link] = [item for item in Page(html).all("a") if item["href"] == AGAIN]
    assert link["class"] == "payments-button"
    # The script shows it as soon as the attempt ends.
    assert f'data-payments-again="{" ".join(sorted(VAIN_PAYMENT_STATUSES))}"' in html


def test_without_an_address_there_is_none(client: Client, request_of: Callable[..., Any]) -> None:
    payment = rows.payment(status="failed")
    assert "Pay again" not in shown(client, checkout.status_url(request_of(), payment))[1]


def test_a_payer_who_returns_finds_the_way_on(client: Client, request_of: Callable[..., Any]) -> None:
    rows.payment(status="failed", merchant_reference="order-1")
    address = checkout.return_url(request_of(), "order-1", pay_again_url=AGAIN)
    assert address == checkout.return_url(request_of(), "order-1", pay_again_url=AGAIN)
    Payment.objects.update(gone_at=Payment.objects.get().created_at)  # not read again
    response = client.get(address.removeprefix("http://testserver"))
    assert shown(client, response["Location"])[0]


def test_before_the_mirror_has_the_payment_there_is_no_way_on(client: Client, request_of: Callable[..., Any]) -> None:
    assert not shown(client, checkout.status_url(request_of(), "order-1", pay_again_url=AGAIN))[0]


@pytest.mark.parametrize("address", ["https://shop.example/orders/1", "http://localhost/1", "/", "/a/b?c#d"])
def test_an_address_is_a_path_or_of_the_web(request_of: Callable[..., Any], address: str) -> None:
    token = checkout.status_url(request_of(), "order-1", pay_again_url=address).split("/")[-2]
    assert links.read_status_token(token, max_age=60).pay_again_url == address


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "//evil.example", "/\\evil.example", "orders/1", " /", "x:"]
)
def test_any_other_address_is_refused(request_of: Callable[..., Any], address: str) -> None:
    for make in (checkout.status_url, checkout.return_url):
        with pytest.raises(ValueError, match="pay_again_url"):
            make(request_of(), "order-1", pay_again_url=address)


def test_an_address_without_it_is_that_of_earlier_versions() -> None:
    subject = Subject("default", merchant_reference="order-1")
    assert links._content(subject) == ["default", "", "order-1"]


def test_a_page_of_your_own_decides_where_it_leads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout.CheckoutStatusView, "get_pay_again_url", lambda self, payment: f"/pay/{payment.pk}/")
    payment = rows.payment(status="expired")
    token = links.status_token(Subject("default", payment_id=payment.pk))
    is_shown, html = shown(client, reverse(STATUS, kwargs={"token": token}))
    assert is_shown
    assert f'href="/pay/{payment.pk}/"' in html
