"""Give merchants' own tests a running sandbox of the provider, and signed deliveries.

    def test_order_is_paid(client, db, payments_sandbox):
        payment = create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        payments_sandbox.engine.pay(payment.id)
        payments_sandbox.settle()
        payment.refresh_from_db()
        assert payment.status == "succeeded"

The fixture belongs to a pytest plugin, which pytest loads by itself. In a ``TestCase``, use
``with ProviderSandbox() as sandbox``. A test without either cannot reach a provider, because the client stays on this
machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from payments_integration.signatures import HEADER, sign

if TYPE_CHECKING:
    from payments_integration.testing.provider import ProviderSandbox

__all__ = ["ProviderSandbox", "signed_delivery"]


def signed_delivery(event: Mapping[str, Any] | bytes, secret: str, *, now: float | None = None) -> dict[str, Any]:
    """Make arguments for Django's test client: ``client.post(url, **signed_delivery(event, secret))``.

    Args:
        event: An event as a dict (spec, "Event"), or the exact bytes of a body.
        secret: The secret of the endpoint.
        now: The time of the signature in Unix seconds; by default the current time.

    Returns:
        ``data``, ``content_type`` and ``headers``.

    Raises:
        TypeError: The event is a text. It would be encoded a second time, and the delivery quarantined.
    """
    given: Any = event
    if isinstance(given, str):
        raise TypeError("pass the event as a dict, or a body as bytes: json.dumps(event).encode().")
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return {"data": body, "content_type": "application/json", "headers": {HEADER: sign(body, secret, now=now)}}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Load it on first use, because pytest imports this package for its plugin before Django is configured.
        if name != "ProviderSandbox":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module("payments_integration.testing.provider").ProviderSandbox
