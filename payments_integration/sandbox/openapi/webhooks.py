"""What the provider sends: one webhook per event type ("Events", "Webhook signature")."""

from __future__ import annotations

from typing import Final

from . import examples
from .vocabulary import EVENT_TYPES, Json, const, ref

_KINDS: Final = {"payment": "Payment", "payout": "Payout", "refund": "Refund", "balance": "Balance"}

PARAMETERS: Final[dict[str, Json]] = {
    "ServiceSignature": {
        "name": "Service-Signature",
        "in": "header",
        "required": True,
        "description": "`t` is a Unix time; each `v1` is the hex HMAC-SHA256 of `<t>.<raw body>` with a secret of "
        "the endpoint. During a rotation there are two; accept if any matches. Reject if `t` is more than 5 minutes "
        "off.",
        "schema": {"type": "string", "pattern": "^t=[0-9]+(,v1=[0-9a-f]{64}){1,2}$"},
    },
}


def schema_name(event_type: str) -> str:
    """``payment.requires_action`` is the schema PaymentRequiresActionEvent."""
    return "".join(part.capitalize() for part in event_type.replace(".", "_").split("_")) + "Event"


# A payout.delayed is no status: what the object's status is, only the object says.
SCHEMAS: Final[dict[str, Json]] = {
    schema_name(event_type): {
        "allOf": [
            ref("Event"),
            {"properties": {"type": const(event_type), "data": ref(_KINDS[event_type.partition(".")[0]])}},
        ],
    }
    for event_type in EVENT_TYPES
}


def _webhook(event_type: str) -> Json:
    name = schema_name(event_type)
    return {
        "post": {
            "operationId": f"receive_{event_type.replace('.', '_')}",
            "tags": ["Events"],
            "summary": event_type,
            "description": "At least once: drop duplicates by the event's id. That a delivery is a POST of "
            "application/json is not shown by the provider; the sandbox does it so.",
            "x-not-shown": True,
            "security": [],
            "parameters": [{"$ref": "#/components/parameters/ServiceSignature"}],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": ref(name),
                        "examples": {"event": {"value": examples.event(event_type)}},
                    }
                },
            },
            "responses": {
                "2XX": {"description": "Acknowledged, if it comes within 10 seconds."},
                "default": {
                    "description": "Not acknowledged. Planned: sent again after 1 minute, 5 minutes, 30 minutes, 2 "
                    "hours, 6 hours, 12 hours, then every 24 hours for up to 3 days."
                },
            },
        }
    }


WEBHOOKS: Final[dict[str, Json]] = {event_type: _webhook(event_type) for event_type in EVENT_TYPES}
