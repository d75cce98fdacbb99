"""Stripe as dj-stripe sees it: events of payment intents, and an API that has every payment intent and one account.

    python -m benchmarks.stripe_stub PORT

serves the API. Of an object there is as much as makes an event about as long as the app's are: a whole one is longer.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import datetime
from typing import Any

from benchmarks.deliveries import STATUSES
from benchmarks.event_stub import serve

HEADER = "Stripe-Signature"
ACCOUNT = {
    "id": "acct_bench0000000000",
    "object": "account",
    "business_profile": {"name": "Bench", "url": None},
    "charges_enabled": True,
    "country": "MX",
    "created": 1790000000,
    "default_currency": "mxn",
    "details_submitted": True,
    "email": "merchant@example.test",
    "metadata": {},
    "payouts_enabled": True,
    "settings": {"branding": {"icon": None, "logo": None}, "dashboard": {"display_name": "Bench", "timezone": "UTC"}},
    "type": "standard",
}


def intent(intent_id: str, status: str) -> dict[str, Any]:
    return {
        "id": intent_id,
        "object": "payment_intent",
        "amount": 150000,
        "amount_received": 150000 if status == "succeeded" else 0,
        "capture_method": "automatic_async",
        "client_secret": f"{intent_id}_secret_0123456789abcdefghijklmno",
        "confirmation_method": "automatic",
        "created": 1790000000,
        "currency": "mxn",
        "customer": None,
        "description": "order-12345678",
        "latest_charge": None,
        "livemode": False,
        "metadata": {"cart": "a1b2c3d4e5f6", "channel": "web"},
        "next_action": None,
        "on_behalf_of": None,
        "payment_method": None,
        "payment_method_types": ["card", "oxxo"],
        "receipt_email": "payer123456@example.test",
        "status": "requires_payment_method" if status == "created" else status,
    }


def life(begin: datetime, chance: random.Random) -> list[dict[str, Any]]:
    """The events of one payment intent."""
    intent_id = f"pi_{chance.randbytes(12).hex()}"
    return [
        {
            "id": f"evt_{chance.randbytes(12).hex()}",
            "object": "event",
            "api_version": "2026-05-27.dahlia",
            "created": int(begin.timestamp()),
            "data": {"object": intent(intent_id, status)},
            "livemode": False,
            "pending_webhooks": 1,
            "request": {"id": f"req_{chance.randbytes(7).hex()}", "idempotency_key": f"order-{intent_id}"},
            "type": f"payment_intent.{status}",
        }
        for status in STATUSES
    ]


class Stripe:
    """Every payment intent has succeeded meanwhile. Any other request is a mistake, and ends its connection."""

    def __init__(self) -> None:
        self._account = json.dumps(ACCOUNT).encode()
        self._intent = json.dumps(intent("THIS", STATUSES[-1])).encode().split(b"THIS")

    def answer(self, target: str) -> bytes:
        match target.partition("?")[0].split("/")[2:]:
            case ["account"] | ["accounts", _]:
                return self._account
            case ["payment_intents", intent_id]:
                return intent_id.encode().join(self._intent)
        raise LookupError(target)


if __name__ == "__main__":
    asyncio.run(serve(Stripe(), int(sys.argv[1])))
