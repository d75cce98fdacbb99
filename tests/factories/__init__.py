"""What tests are made of: here objects and events as the provider sends them, in ``rows`` those of our tables.

This module needs no settings: the load test uses it before Django is set up.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

#: A moment in the recent past: events are neither too old to be dispatched nor ahead of the clock.
T0 = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
#: Seconds after T0: half an hour ago. A site, unlike a test, dispatches nothing from an hour before its first contact.
RECENT = 5400


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def payment(**fields: Any) -> dict[str, Any]:
    return {
        "id": "pay_1",
        "object": "payment",
        "status": "created",
        "amount": 10000,
        "amount_received": 0,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_card",
        "method_family": "card",
        "created_at": iso(T0),
        **fields,
    }


def payout(**fields: Any) -> dict[str, Any]:
    return {
        "id": "pout_1",
        "object": "payout",
        "status": "created",
        "amount": 5000,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_bank",
        "created_at": iso(T0),
        **fields,
    }


def refund(**fields: Any) -> dict[str, Any]:
    return {
        "id": "ref_1",
        "object": "refund",
        "status": "created",
        "payment_id": "pay_1",
        "amount": 1000,
        "currency": "CLP",
        "created_at": iso(T0),
        **fields,
    }


def deposit_reference(**fields: Any) -> dict[str, Any]:
    return {
        "id": "dep_1",
        "object": "deposit_reference",
        "status": "active",
        "country": "MX",
        "currency": "MXN",
        "method_code": "mx_spei",
        "details": {"type": "bank_transfer_details"},
        "created_at": iso(T0),
        **fields,
    }


def webhook_endpoint(**fields: Any) -> dict[str, Any]:
    return {
        "id": "whk_1",
        "object": "webhook_endpoint",
        "url": "https://shop.example/payments/webhook/",
        "events": ["payment.succeeded"],
        "status": "active",
        **fields,
    }


def balance(**fields: Any) -> dict[str, Any]:
    return {
        "object": "balance",
        "currency": "CLP",
        "available": 100,
        "pending": 0,
        "reserve": 0,
        "hold": 0,
        "debt": 0,
        **fields,
    }


def event(data: dict[str, Any], *, seconds: float = 0, id: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event about ``data``, ``seconds`` after T0; its type follows from the object and status."""
    kind, status = data["object"], data.get("status", "updated")
    return {
        "id": id or f"evt_{data.get('id', data.get('currency'))}_{status}_{seconds:g}",
        "object": "event",
        "type": f"{kind}.{status}",
        "created_at": iso(T0 + timedelta(seconds=seconds)),
        "data": data,
        **fields,
    }


def body(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


#: The life of a payment, as five events.
def life(payment_id: str = "pay_1") -> list[dict[str, Any]]:
    steps: list[tuple[float, dict[str, Any]]] = [
        (0, {"status": "created"}),
        (10, {"status": "requires_action"}),
        (20, {"status": "processing"}),
        (30, {"status": "succeeded", "amount_received": 10000, "fee": 300, "net_amount": 9700}),
        (40, {"status": "chargeback", "amount_received": 10000, "fee": 300, "net_amount": 9700}),
    ]
    return [event(payment(id=payment_id, **fields), seconds=seconds) for seconds, fields in steps]
