"""What a payment tells its payer's page: the same as the status page, and as the provider has it now if asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.urls import include, path
from django.utils import translation

from payments_integration.models import Payment
from payments_integration.payer import reading
from payments_integration.testing import ProviderSandbox
from tests.unit.api.conftest import Caller, error, make_payment

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENT = {"amount": 12_990, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


@pytest.fixture
def provider(opened: None, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    # The creation has just confirmed the row.
    monkeypatch.setattr(reading.refreshed, "__kwdefaults__", {"every": 0.001, "max_wait": 10.0})
    with ProviderSandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("fields", "is_final", "display"),
    [
        ({"status": "created"}, False, ("Waiting for your payment", "open")),
        ({"status": "succeeded", "amount_received": 1000}, True, ("Paid", "good")),
        ({"status": "expired"}, True, ("The time to pay is over", "quiet")),
        ({"status": "failed"}, True, ("The payment failed", "bad")),
        ({"status": "invented"}, False, ("Your payment is being checked", "open")),
    ],
)
def test_a_payment_says_what_its_status_page_says(
    boss: Caller, fields: dict[str, Any], is_final: bool, display: tuple[str, str]
) -> None:
    make_payment(**fields)
    shown = boss.get("payments/pay_1/").json()
    assert shown["is_final"] is is_final
    assert (shown["display"]["headline"], shown["display"]["tone"]) == display
    page = boss.client.get(shown["status_url"] + "data/").json()
    assert {name: page[name] for name in ("headline", "message", "tone")} == shown["display"]
    assert page["final"] is is_final
    listed = boss.get("payments/").json()["data"][0]
    assert (listed["is_final"], listed["display"]) == (is_final, shown["display"])
    assert "status_url" not in listed


def test_the_words_are_in_the_language_of_the_request(boss: Caller, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    make_payment(status="succeeded", amount_received=1000)
    with translation.override("en"):  # the middleware's choice outlives its request
        shown = boss.get("payments/pay_1/", **{"Accept-Language": "es"}).json()["display"]
    assert shown["headline"] == "Pagado"


def test_a_payer_learns_that_it_is_paid_when_no_delivery_comes(provider: ProviderSandbox, customer: Caller) -> None:
    made = customer.post("payments/", PAYMENT).json()["id"]
    provider.engine.pay(made)  # and nothing is delivered
    assert customer.get(f"payments/{made}/").json()["status"] != "succeeded"
    shown = customer.get(f"payments/{made}/?fresh=1").json()
    assert (shown["status"], shown["is_final"], shown["display"]["tone"]) == ("succeeded", True, "good")
    assert "payer" in shown, "it is still the customer's own"
    assert customer.get(f"payments/{made}/").json()["status"] == "succeeded"


def reads(provider: ProviderSandbox) -> int:
    return sum(1 for each in provider.engine.requests if each["operation"] == "get_payment")


def test_fresh_reads_no_more_often_than_the_return_page(provider: ProviderSandbox, customer: Caller) -> None:
    made = customer.post("payments/", PAYMENT).json()["id"]
    reading.refreshed.__kwdefaults__["every"] = 60.0  # type: ignore[index]
    Payment.objects.update(synced_at="2020-01-01T00:00:00Z")
    before = reads(provider)
    for _ in range(3):
        assert customer.get(f"payments/{made}/?fresh=1").status_code == 200
        Payment.objects.update(synced_at="2020-01-01T00:00:00Z")
    assert reads(provider) == before + 1


def test_fresh_is_the_mirror_if_the_provider_does_not_answer(customer: Caller, opened: None) -> None:
    assert customer.user is not None
    make_payment(by=customer.user)
    assert customer.get("payments/pay_1/?fresh=1").json()["status"] == "created"


def test_nobody_has_another_customers_payment_read(
    provider: ProviderSandbox, customer: Caller, stranger: Caller
) -> None:
    made = customer.post("payments/", PAYMENT).json()["id"]
    before = reads(provider)
    assert stranger.get(f"payments/{made}/?fresh=1").status_code == 404
    assert reads(provider) == before


@pytest.mark.parametrize("query", ["fresh=0", "fresh=true", "fresh=", "fresh=1&fresh=1", "freshly=1"])
def test_fresh_is_1_or_left_out(boss: Caller, query: str) -> None:
    make_payment()
    response = boss.get(f"payments/pay_1/?{query}")
    assert (response.status_code, error(response)["param"]) == (400, query.partition("=")[0])


urlpatterns = [
    path("shop/", include(([path("payments/", include("payments_integration.urls"))], "shop"), namespace="shop")),
]


@pytest.mark.urls(__name__)
def test_without_a_page_of_a_known_name_there_is_no_address(boss: Caller) -> None:
    make_payment()
    assert boss.client.get("/shop/payments/api/payments/pay_1/").json()["status_url"] is None


def test_a_member_of_staff_without_personal_data_gets_no_address(staff: Callable[..., Caller]) -> None:
    make_payment()
    cache.clear()
    assert "status_url" not in staff("view_payment").get("payments/pay_1/").json()
    assert "status_url" in staff("view_payment", "view_personal_data").get("payments/pay_1/").json()
