"""Under ASGI: deliveries to the webhook view, and services from async code, as docs/take-a-payment.md says."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.exceptions import SynchronousOnlyOperation

from payments_integration import services
from payments_integration.models import Event, EventState, Payment
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import ProviderSandbox
from tests import factories

RAW = json.dumps(factories.event(factories.payment(), id="evt_asgi")).encode()
ORDER = {"amount": 5_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


async def exchange(*chunks: bytes, header: str, length: int | None) -> int:
    """Send a delivery to the ASGI application as a server would, and return the status."""
    headers = [(b"host", b"testserver"), (HEADER.lower().encode(), header.encode())]
    headers.append((b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length))
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/payments/webhook/", "headers": headers}
    server = ApplicationCommunicator(
        get_asgi_application(), {**scope, "query_string": b"", "asgi": {"version": "3.0"}}
    )
    for number, chunk in enumerate(chunks, 1):
        await server.send_input({"type": "http.request", "body": chunk, "more_body": number < len(chunks)})
    status: int = (await server.receive_output(timeout=30))["status"]
    await server.receive_output(timeout=30)
    await server.wait(timeout=30)
    return status


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("length", [len(RAW), None], ids=["with a length", "in chunks"])
def test_a_delivery_over_asgi_is_stored_and_applied(length: int | None) -> None:
    assert async_to_sync(exchange)(RAW[:100], RAW[100:], header=sign(RAW, "whsec_default"), length=length) == 200
    assert Event.objects.get().state == EventState.DONE
    assert Payment.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("over", "status"), [(1, 413), (0, 200)])
def test_a_body_in_chunks_is_read_up_to_the_limit_only(over: int, status: int, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "MAX_WEBHOOK_BYTES": 16_384}
    body = RAW + b" " * (16_384 + over - len(RAW))
    assert async_to_sync(exchange)(body, header=sign(body, "whsec_default"), length=None) == status
    assert Event.objects.count() == (status == 200)


@pytest.mark.django_db(transaction=True)
def test_the_hint_about_chunks_is_for_wsgi_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "payments_integration"):
        assert async_to_sync(exchange)(RAW, header=sign(RAW, "whsec_old"), length=None) == 400
    assert "none of the account's secrets" in caplog.text
    assert "WSGI" not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_service_runs_in_a_thread(payments_sandbox: ProviderSandbox) -> None:
    async def buy() -> Payment:
        with pytest.raises(SynchronousOnlyOperation):
            services.create_payment(**ORDER)
        assert not payments_sandbox.engine.requests, "it stops before it sends"
        payment: Payment = await sync_to_async(services.create_payment)(**ORDER)
        return payment

    assert async_to_sync(buy)().amount == 5_000
