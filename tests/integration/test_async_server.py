"""Services in async views, served by uvicorn: payers buy at once, and one leaves while the provider is slow."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import requests
import uvicorn
from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application
from django.core.exceptions import ValidationError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory
from django.urls import path
from django.views.debug import ExceptionReporter
from django.views.decorators.debug import sensitive_variables

from payments_integration import services
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.servers import wait_until
from tests.unit.payable.payables import Order

ORDER = {"amount": 5_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}

pytestmark = pytest.mark.django_db(transaction=True)


async def buy(request: HttpRequest, key: str) -> JsonResponse:
    payment = await services.acreate_payment(**ORDER, merchant_reference=key, idempotency_key=key)
    again = await Payment.objects.aget(pk=payment.pk)
    return JsonResponse({"id": again.pk, "thread": threading.get_ident()})


def exists(**fields: Any) -> bool:
    """In a thread of its own: that of the request waits for the service."""
    try:
        return Operation.objects.filter(**fields).exists()
    finally:
        connection.close()


async def impatient(request: HttpRequest, key: str) -> JsonResponse:
    """Gives the call up when its request is under way."""
    call = asyncio.ensure_future(services.acreate_payment(**ORDER, idempotency_key=key))
    while not await asyncio.to_thread(exists, idempotency_key=key):
        await asyncio.sleep(0.02)
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    return JsonResponse({"is_done": await asyncio.to_thread(exists, state=OperationState.DONE)})


async def quick(request: HttpRequest) -> JsonResponse:
    return JsonResponse({})


urlpatterns = [path("quick/", quick), path("buy/<str:key>/", buy), path("impatient/<str:key>/", impatient)]


@pytest.fixture
def address(payments_sandbox: ProviderSandbox, settings: Any) -> Iterator[str]:
    """Of a uvicorn that serves this module's views."""
    settings.ROOT_URLCONF = __name__
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    # Django's would wait for the service, in the thread of the request, before the view's answer leaves.
    settings.MIDDLEWARE = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(get_asgi_application(), lifespan="off", log_config=None, timeout_graceful_shutdown=20)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        # The socket accepts before the server does.
        assert requests.get(f"{url}/quick/", timeout=60).status_code == 200
        yield url
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def settled(key: str) -> Operation:
    """The operation with this key when it is done; fails if it is not within a minute."""
    done = Operation.objects.filter(idempotency_key=key, state=OperationState.DONE)
    wait_until(done.exists, 60, f"the operation with the key {key} to be done")
    return done.get()


def test_twenty_payers_buy_at_once(address: str) -> None:
    def buy(number: int) -> str:
        answer = requests.get(f"{address}/buy/order-{number}/", timeout=60)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(buy, range(20)))
    assert set(Payment.objects.values_list("pk", flat=True)) == set(ids)
    assert len(set(ids)) == 20


@pytest.fixture
def answer_now(payments_sandbox: ProviderSandbox) -> Iterator[Callable[[], None]]:
    """The provider takes a minute for a payment, or until this is called."""
    gateway = payments_sandbox.engine.gateway
    payments_sandbox.engine.faults.add(Fault("slow", operation="create_payment", delay=60, times=1))
    yield gateway.closing.set
    gateway.closing.clear()


@pytest.mark.promise(5)
def test_a_payer_who_leaves_ends_nothing(
    address: str, payments_sandbox: ProviderSandbox, answer_now: Callable[[], None]
) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as payer:
        payer.sendall(f"GET /buy/order-1/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        begun = Operation.objects.filter(idempotency_key="order-1")
        wait_until(begun.exists, 60, "the call to begin")
    # The event loop answers others meanwhile.
    assert requests.get(f"{address}/quick/", timeout=60).status_code == 200
    assert not begun.filter(state=OperationState.DONE).exists()
    answer_now()
    operation = settled("order-1")
    again = requests.get(f"{address}/buy/order-1/", timeout=60).json()
    assert again["id"] == operation.result_id
    assert Payment.objects.count() == len(payments_sandbox.engine.payments) == 1


@pytest.mark.promise(5)
def test_a_cancelled_await_ends_at_once_and_the_call_goes_on(address: str, answer_now: Callable[[], None]) -> None:
    # The provider has not answered yet.
    answer = requests.get(f"{address}/impatient/order-1/", timeout=50)
    assert answer.json() == {"is_done": False}
    answer_now()
    operation = settled("order-1")
    payment = services.create_payment(**ORDER, idempotency_key="order-1")
    assert payment.pk == operation.result_id
    assert Payment.objects.count() == 1


class Refused(Exception):
    """As a fault of the service itself."""


def test_error_reports_do_not_show_the_payer(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.DEBUG = False
    name = f"ana{secrets.token_hex(8)}"

    @sensitive_variables()
    def fails(*args: Any, **kwargs: Any) -> None:
        raise Refused

    @sensitive_variables()
    async def buy(payer: dict[str, str]) -> str:
        try:
            await services.acreate_payment(**ORDER, payer=payer)
        except Refused:
            return ExceptionReporter(RequestFactory().get("/"), *sys.exc_info()).get_traceback_html()
        raise AssertionError("the service did not fail")

    monkeypatch.setattr("payments_integration.outbox.unknown_if_committed", fails)
    report = async_to_sync(buy)({"email": f"{name}@example.com"})
    assert "asgiref" in report
    assert name not in report


def test_errors_and_results_are_those_of_the_service(payments_sandbox: ProviderSandbox) -> None:
    async def flow() -> None:
        with pytest.raises(ValidationError):
            await services.acreate_payment(**{**ORDER, "amount": 0})
        payment = await services.acreate_payment(**ORDER)
        assert (await services.arefresh(payment)).pk == payment.pk
        assert (await services.acancel_payment(payment)).status == "canceled"
        assert await services.alist_payment_methods(country="CL")
        assert (await services.apayout_cover("CLP")).currency == "CLP"

    async_to_sync(flow)()


def test_a_payable_gives_its_key_to_async_views() -> None:
    order = Order.objects.create(number="A-1")

    async def key() -> str:
        return await order.aattempt_key()

    assert async_to_sync(key)() == order.attempt_key()
    assert connection.in_atomic_block is False
