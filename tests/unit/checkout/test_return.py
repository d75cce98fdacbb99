"""Where the payer comes back to: the mirror and one GET are believed, never the address."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import pytest
import time_machine
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.http import HttpRequest
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone

from payments_integration import services, wakeup
from payments_integration.checkout import CheckoutReturnView, CheckoutStatusView, return_url, status_url
from payments_integration.checkout.views import CheckoutStatusDataView
from payments_integration.client.requestor import budget
from payments_integration.db import transactions
from payments_integration.models import Operation, Payment
from payments_integration.outbox import sending, submission
from payments_integration.payer import links
from payments_integration.payer.reading import refreshed
from payments_integration.testing import ProviderSandbox
from tests import fake_provider as fakes
from tests.conftest import Receiver
from tests.factories import checkout as rows
from tests.fake_provider import Fake

pytestmark = [pytest.mark.django_db, pytest.mark.any_database, pytest.mark.urls("tests.unit.checkout.urls")]

OTHERS = "?status=succeeded&payment_id=pay_else&merchant_reference=order-2&amount=1&token=x"


def back(request: HttpRequest, reference: str = "order-1", **options: Any) -> str:
    return urlsplit(return_url(request, reference, **options)).path


def at_provider(provider: Fake, payment: Payment, **fields: Any) -> None:
    names = ("id", "status", "amount", "amount_received", "currency", "country", "method_code", "method_family",
             "merchant_reference", "created_at")  # fmt: skip
    provider.add(fakes.payment(**{**{name: getattr(payment, name) for name in names}, **fields}))


def come_back(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 302
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "same-origin"
    return client.get(response["Location"]).content.decode()


@pytest.fixture
def request_(request_of: Callable[..., HttpRequest]) -> HttpRequest:
    return request_of()


def test_the_return_page_reads_the_payment_and_redirects_to_its_status(
    client: Client, provider: Fake, request_: HttpRequest, woken: list[str], receiver: Receiver
) -> None:
    payment = rows.payment()
    at_provider(provider, payment)
    assert "Waiting for your payment" in come_back(client, back(request_))
    assert (len(provider.reads), woken) == (1, [])
    provider.reads.clear()
    cache.clear()
    Payment.objects.update(synced_at=timezone.now() - timedelta(seconds=6))
    at_provider(provider, payment, status="succeeded", amount_received=10_000)
    assert "Thank you!" in come_back(client, back(request_))
    assert provider.reads == [f"get {payment.pk}"]
    payment.refresh_from_db()
    assert payment.status == "succeeded"
    # Merchant code hears of it.
    assert woken == ["default"]


def test_the_return_page_ignores_the_query_string(client: Client, provider: Fake, request_: HttpRequest) -> None:
    mine = rows.payment()
    rows.payment(id="pay_else", merchant_reference="order-2", status="succeeded", amount_received=10_000)
    at_provider(provider, mine)
    html = come_back(client, back(request_) + OTHERS)
    assert "Waiting for your payment" in html
    assert "pay_else" not in html
    assert provider.reads == [f"get {mine.pk}"]
    # And nothing of it goes on.
    response = client.get(back(request_) + OTHERS)
    assert "?" not in response["Location"]


def test_reloads_do_not_flood_the_provider(client: Client, provider: Fake, request_: HttpRequest) -> None:
    payment = rows.payment()
    at_provider(provider, payment)
    start = timezone.now()
    with time_machine.travel(start, tick=False) as clock:
        for _ in range(20):
            client.get(back(request_))
        assert len(provider.reads) == 1
        clock.shift(6)
        client.get(back(request_))
        assert len(provider.reads) == 2


@pytest.mark.parametrize(
    "error", [fakes.timeout(), fakes.not_found(), fakes.refusal(fakes.ProviderError, 500, "internal_error")]
)
def test_a_failing_provider_is_read_no_more_often_and_the_mirror_is_shown(
    client: Client, provider: Fake, request_: HttpRequest, error: Exception
) -> None:
    rows.payment(amount=4321)
    provider.read_script = [error] * 20
    with time_machine.travel(timezone.now(), tick=False):
        for _ in range(20):
            assert "$4.321" in come_back(client, back(request_))
    assert len(provider.reads) == 1


def test_a_payer_does_not_wait_long_for_the_provider(
    client: Client, provider: Fake, request_: HttpRequest, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    """Neither for an answer, nor for the rate limit, nor for other work that is due."""
    payment = rows.payment()
    at_provider(provider, payment, status="processing")
    waits: list[tuple[float, Any]] = []
    get = provider.payments.get

    def measured(object_id: str, *, max_wait: Any = None, background: bool = False) -> Any:
        waits.append((budget(100.0), max_wait))
        return get(object_id)

    monkeypatch.setattr(provider.payments, "get", measured)
    deadlines: list[float | None] = []
    previous = wakeup.set_hook(lambda account, deadline: deadlines.append(deadline))
    monkeypatch.setattr("payments_integration.payer.reading.time.monotonic", lambda: 1000.0)
    try:
        client.get(back(request_))
    finally:
        wakeup.set_hook(previous)
    assert waits == [(2.0, 0.0)]
    assert deadlines == [1002.0]


def test_without_the_provider_the_return_page_shows_the_mirror(client: Client, request_: HttpRequest) -> None:
    """The real client, and a port on which nothing listens."""
    rows.payment()
    assert "Waiting for your payment" in come_back(client, back(request_))


@pytest.mark.parametrize("status", ["succeeded", "overpaid", "chargeback"])
def test_a_final_payment_is_not_read_again(client: Client, provider: Fake, request_: HttpRequest, status: str) -> None:
    rows.payment(status=status, amount_received=12_000)
    come_back(client, back(request_))
    assert provider.reads == []


@pytest.mark.parametrize("status", ["created", "processing", "on_hold", "partially_paid", "failed", "expired", "new"])
def test_a_payment_that_may_change_is_read(client: Client, provider: Fake, request_: HttpRequest, status: str) -> None:
    """Expired is not final: who comes back late may have paid."""
    payment = rows.payment(status=status)
    at_provider(provider, payment, status="succeeded", amount_received=10_000)
    assert "Thank you!" in come_back(client, back(request_))


def test_a_payment_that_was_just_confirmed_is_not_read(client: Client, provider: Fake, request_: HttpRequest) -> None:
    with time_machine.travel(timezone.now(), tick=False):
        rows.payment(synced_at=timezone.now())
        rows.payment(merchant_reference="gone", gone_at=timezone.now(), synced_at=timezone.now())
        rows.payment(merchant_reference="left", account="no-longer-configured")
        come_back(client, back(request_))
        come_back(client, back(request_, "gone"))
        left = links.Subject("no-longer-configured", merchant_reference="left")
        assert client.get(f"/payments/checkout/return/{links.return_token(left)}/").status_code == 302
    assert provider.reads == []


@pytest.mark.parametrize(("last", "hours", "is_read"), [(59, 1, False), (61, 1, True), (61, 25, False)])
def test_a_payment_that_is_gone_is_read_once_a_minute_for_a_day(
    client: Client, provider: Fake, request_: HttpRequest, last: int, hours: int, is_read: bool
) -> None:
    """A replica that was behind may have answered 404. Until it is found, its payer cannot pay."""
    with time_machine.travel(timezone.now(), tick=False):
        now = timezone.now()
        payment = rows.payment(synced_at=now - timedelta(seconds=last), gone_at=now - timedelta(hours=hours))
        at_provider(provider, payment)
        come_back(client, back(request_))
    assert bool(provider.reads) is is_read
    payment.refresh_from_db()
    assert (payment.gone_at is None) is is_read


def test_a_payment_that_was_confirmed_in_the_future_is_read(
    client: Client, provider: Fake, request_: HttpRequest
) -> None:
    """Our clock was ahead then."""
    payment = rows.payment(synced_at=timezone.now() + timedelta(days=40))
    at_provider(provider, payment, status="succeeded", amount_received=10_000)
    assert "Thank you!" in come_back(client, back(request_))


def test_the_return_page_works_before_the_payment_is_mirrored(
    client: Client, provider: Fake, request_: HttpRequest
) -> None:
    assert "We are looking for your payment" in come_back(client, back(request_))
    assert provider.reads == []


def test_without_a_cache_nothing_is_read(
    client: Client, provider: Fake, request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> bool:
        raise ConnectionError("the cache is down")

    rows.payment()
    monkeypatch.setattr(cache, "add", broken)
    assert "Waiting for your payment" in come_back(client, back(request_))
    assert provider.reads == []


class Unreadable(BytesIO):
    def read(self, *args: Any) -> bytes:
        raise AssertionError("the body was read")

    readline = read


@pytest.mark.case(143)
@pytest.mark.parametrize("page", ["return", "own return", "status"])
def test_a_payer_may_come_back_by_post_from_another_site(
    page: str, provider: Fake, request_: HttpRequest, woken: list[str]
) -> None:
    """Some banks send a form. The browser sends no cookie of the site with it, and no CSRF token."""
    payment = rows.payment()
    at_provider(provider, payment, status="succeeded", amount_received=payment.amount)
    address = {
        "return": back(request_),
        "own return": back(request_, url_name="own-return"),
        "status": urlsplit(status_url(request_, payment)).path,
    }[page]
    client = Client(enforce_csrf_checks=True)
    origin: dict[str, Any] = {"headers": {"origin": "https://bank.example"}}
    answer = client.post(address, {"status": "failed", "payment_id": "pay_else"}, **origin)
    assert (answer.status_code, answer["Location"]) == (303, address)
    assert "no-store" in answer["Cache-Control"]
    assert "Set-Cookie" not in answer
    assert provider.reads == []
    unread = {"CONTENT_LENGTH": "9", "CONTENT_TYPE": "application/x-www-form-urlencoded", "wsgi.input": Unreadable()}
    assert client.generic("POST", address + "?x=1", **unread)["Location"] == address
    if page == "return":
        assert "Thank you!" in client.post(address, follow=True, **origin).content.decode()


@pytest.mark.case(143)
def test_a_post_of_the_projects_own_keeps_its_protection() -> None:
    class Own(CheckoutStatusView):
        def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any: ...

    views: list[Any] = [Own.as_view(), CheckoutStatusView.as_view(), CheckoutStatusDataView.as_view()]
    assert [view.csrf_exempt for view in views] == [False, True, False]


def test_an_invalid_return_token_is_404(
    client: Client, provider: Fake, request_of: Callable[..., HttpRequest]
) -> None:
    payment = rows.payment()
    path = back(request_of())
    status = urlsplit(status_url(request_of(), payment)).path
    for wrong in (path[:-3] + "/", path.replace("/return/", "/return/x"), status.replace("/status/", "/return/")):
        assert client.get(wrong).status_code == 404, wrong
        assert client.post(wrong).status_code == 404, wrong
    for method in ("put", "patch", "delete"):
        assert getattr(client, method)(path).status_code == 405
    assert provider.reads == []
    assert not Operation.objects.exists()


def test_a_return_token_expires_with_its_payment(client: Client, provider: Fake, request_: HttpRequest) -> None:
    payment = rows.payment()
    at_provider(provider, payment)
    with time_machine.travel(payment.created_at + timedelta(days=29)):
        assert client.get(back(request_)).status_code == 302
    with time_machine.travel(payment.created_at + timedelta(days=31)):
        assert client.get(back(request_)).status_code == 404
    assert len(provider.reads) == 1


def test_a_subclass_chooses_the_next_url(client: Client, provider: Fake, request_: HttpRequest) -> None:
    payment = rows.payment()
    at_provider(provider, payment, status="succeeded", amount_received=10_000)
    for reference, expected in (("order-1", "succeeded"), ("order-5", "none")):
        response = client.get(back(request_, reference, url_name="own-return") + OTHERS)
        assert response["Location"] == f"/orders/{reference}/{expected}/"


# --- the address


def test_a_return_url_is_absolute_with_the_requests_scheme(request_of: Callable[..., HttpRequest]) -> None:
    assert return_url(request_of(), "order-1").startswith("http://testserver/payments/checkout/return/")
    assert return_url(request_of(secure=True), "order-1").startswith("https://testserver/")
    proxied = RequestFactory().get("/", headers={"X-Forwarded-Proto": "https", "Host": "shop.example"})
    with override_settings(SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https")):
        assert return_url(proxied, "order-1").startswith("https://shop.example/payments/")


def test_a_return_url_needs_a_reference_and_a_known_account(request_: HttpRequest) -> None:
    with pytest.raises(ValueError, match="merchant_reference"):
        return_url(request_, "")
    with pytest.raises(ImproperlyConfigured, match="unknown"):
        return_url(request_, "order-1", "unknown")
    assert return_url(request_, "order-1", "second") != return_url(request_, "order-1")


def test_equal_return_urls_make_a_repeated_create_payment_the_same_call(
    provider: Fake, monkeypatch: pytest.MonkeyPatch, request_of: Callable[..., HttpRequest]
) -> None:
    """The address is one of the arguments that are compared: it must not change with the time."""
    for module in (submission, sending):
        monkeypatch.setattr(module, "get_client", lambda account="default": provider)

    def pay() -> Payment:
        return services.create_payment(
            **fakes.PAYMENT,
            merchant_reference="order-1",
            return_url=return_url(request_of(secure=True), "order-1"),
            idempotency_key="order-1",
        )

    first = pay()
    with time_machine.travel(timezone.now() + timedelta(minutes=5)):
        assert pay() == first
    assert len(provider.calls) == 1


# --- transactions


def test_the_return_page_reads_also_with_atomic_requests() -> None:
    """ATOMIC_REQUESTS would have the GET refused."""
    view: Any = CheckoutReturnView.as_view()
    assert connection.alias in view._non_atomic_requests


def test_a_payment_is_not_read_within_a_transaction(provider: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = rows.payment()
    monkeypatch.setattr(transactions, "in_transaction", lambda: True)
    with transaction.atomic():
        assert refreshed(payment) is payment
    assert provider.reads == []


# --- with a provider


def test_a_payer_pays_and_comes_back_before_any_delivery(
    client: Client, payments_sandbox: ProviderSandbox, woken: list[str], request_of: Callable[..., HttpRequest]
) -> None:
    payment = services.create_payment(
        amount=11_980, currency="CLP", country="CL", method_code="cl_webpay_card", merchant_reference="order-1",
        return_url=return_url(request_of(secure=True), "order-1"),
    )  # fmt: skip
    theirs = payments_sandbox.engine.project_of(payment.pk).payments.internals[payment.pk].return_url
    page = client.get(status_url(request_of(), payment)).content.decode()
    assert f'href="{payment.checkout_url}"' in page
    payments_sandbox.engine.pay(payment.pk)
    Payment.objects.update(synced_at=timezone.now() - timedelta(seconds=6))
    assert "Thank you!" in come_back(client, f"{urlsplit(theirs).path}?payment_id={payment.pk}")
