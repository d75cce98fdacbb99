"""Deliveries as the provider makes them: payments that live through four events each, and repeats of some."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

#: The events of one payment that begins at a moment: one of each status.
Life = Callable[[datetime, random.Random], list[dict[str, Any]]]

STATUSES = ("created", "requires_action", "processing", "succeeded")
#: Payments that live at the same time: events of one payment are seldom on their way together.
WINDOW = 50
#: A repeat comes at least so many deliveries after its original.
DISTANCE = 50

_MARKETS = (
    ("CL", "CLP", "cl_webpay_card", "card", "RUT"),
    ("CO", "COP", "co_pse", "bank_redirect", "CC"),
    ("PE", "PEN", "pe_yape", "wallet", "DNI"),
    ("MX", "MXN", "mx_spei", "bank_transfer", "RFC"),
    ("BR", "BRL", "br_pix", "bank_transfer", "CPF"),
)


def deliveries(count: int, *, repeated: float, seed: str, life: Life | None = None) -> list[tuple[str, bytes]]:
    """``count`` deliveries as (event id, body), of which the share ``repeated`` came before.

    ``life``: events in another provider's format.
    """
    chance = random.Random(seed)
    distinct = round(count * (1 - repeated))
    events = _events(-(-distinct // len(STATUSES)), chance, life or _life)
    first = [(event["id"], json.dumps(event).encode()) for event in events]
    made = first[:distinct]
    for _ in range(count - distinct):
        place = chance.randrange(min(DISTANCE, len(made) - 1), len(made) + 1)
        made.insert(place, made[chance.randrange(max(1, place - DISTANCE))])
    return made


def _events(payments: int, chance: random.Random, life: Life) -> Iterator[dict[str, Any]]:
    start = datetime.now(UTC) - timedelta(minutes=10)
    for first in range(0, payments, WINDOW):
        lives = [
            life(start + timedelta(milliseconds=7 * number), chance)
            for number in range(first, min(first + WINDOW, payments))
        ]
        for step in range(len(STATUSES)):
            yield from (events[step] for events in lives)


def _life(begin: datetime, chance: random.Random) -> list[dict[str, Any]]:
    country, currency, method, family, document = chance.choice(_MARKETS)
    amount = chance.randrange(10, 5000) * 100
    payment = {
        "id": f"pay_{chance.randbytes(11).hex()}",
        "object": "payment",
        "status": "created",
        "amount": amount,
        "amount_received": 0,
        "currency": currency,
        "country": country,
        "method_code": method,
        "method_family": family,
        "flow": "hosted",
        "checkout_url": f"https://checkout.example.test/{chance.randbytes(11).hex()}",
        "refunded_amount": 0,
        "merchant_reference": f"order-{chance.randrange(10**8)}",
        "payer": {
            "name": "María Peña",
            "email": f"payer{chance.randrange(10**6)}@example.test",
            "phone": f"+569{chance.randrange(10**7, 10**8)}",
            "document": {"type": document, "number": str(chance.randrange(10**8, 10**9))},
        },
        "failure_reason": None,
        "metadata": {"cart": chance.randbytes(6).hex(), "channel": "web"},
        "created_at": begin.isoformat(),
        "expires_at": (begin + timedelta(hours=24)).isoformat(),
        "succeeded_at": None,
    }
    at, events = begin, []
    for status in STATUSES:
        data = {**payment, "status": status}
        if status in ("requires_action", "processing"):
            data["next_action"] = {
                "type": "redirect",
                "redirect_url": f"https://pay.example.test/{chance.randbytes(11).hex()}",
                "expires_at": payment["expires_at"],
            }
        elif status == "succeeded":
            fee = max(1, amount * 29 // 1000)
            data |= {"amount_received": amount, "fee": fee, "net_amount": amount - fee, "succeeded_at": at.isoformat()}
        events.append(
            {
                "id": f"evt_{chance.randbytes(11).hex()}",
                "object": "event",
                "type": f"payment.{status}",
                "created_at": at.isoformat(),
                "data": data,
            }
        )
        at += timedelta(milliseconds=chance.randrange(200, 60_000))
    return events
