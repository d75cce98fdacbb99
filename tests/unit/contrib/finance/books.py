"""What the tests of bookkeeping ask of the database, and how they bring objects into the mirror."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import time_machine

from payments_integration import inbox, projection, schemas
from payments_integration.contrib.finance.models import Movement, MovementKind
from tests.factories import T0, body

STRUCTS: dict[str, Any] = {"payment": schemas.Payment, "payout": schemas.Payout, "refund": schemas.Refund}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def apply(*events: dict[str, Any]) -> None:
    """Bring events in, in one batch."""
    for event in events:
        inbox.receive("default", body(event))
    inbox.process()


def read(data: dict[str, Any], *, seconds: float, now: datetime | None = None) -> Any:
    """Write the answer to a GET."""
    resource = schemas.parse_resource(data, STRUCTS[data["object"]])
    before = projection.snapshot(data["object"], "default", data["id"])
    with time_machine.travel(now or at(seconds), tick=False):
        return projection.write_answer("default", resource, answered_at=at(seconds), duration=0.1, before=before)


def sums(object_id: str) -> dict[str, int]:
    """The sum of an object's movements by kind, without those that add up to nothing."""
    return added(Movement.objects.filter(object_id=object_id))


def added(movements: Iterable[Movement]) -> dict[str, int]:
    found: dict[str, int] = {}
    for movement in movements:
        found[movement.kind] = found.get(movement.kind, 0) + movement.amount
    return {kind: amount for kind, amount in found.items() if amount}


def movement(**fields: Any) -> Movement:
    """A movement of its own, on 2026-01-10 if nothing else is said."""
    occurred_on = fields.get("occurred_on") or fields.get("booked_on")
    values: dict[str, Any] = {
        "account": "default", "object_kind": "payment", "object_id": "pay_1", "kind": MovementKind.PAYMENT,
        "currency": "CLP", "amount": 1000, "occurred_on": occurred_on, "booked_on": occurred_on, **fields,
    }  # fmt: skip
    moment = datetime.fromisoformat(f"{values['occurred_on']}T12:00:00+00:00")
    return Movement.objects.create(**{"occurred_at": moment, "recorded_at": moment, **values})
