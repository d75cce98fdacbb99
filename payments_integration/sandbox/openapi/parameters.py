"""Headers, and what stands in paths and queries ("Common rules", "List endpoints")."""

from __future__ import annotations

from typing import Final

from .vocabulary import INT64_MAX, Json, const, moment, not_shown, object_id, ref

_COUNT: Final[Json] = {"type": "integer", "minimum": 0}

HEADERS: Final[dict[str, Json]] = {
    "RateLimit-Limit": {"description": "Requests allowed in the window.", "required": True, "schema": _COUNT},
    "RateLimit-Remaining": {"description": "Requests left.", "required": True, "schema": _COUNT},
    "RateLimit-Reset": {"description": "Seconds until the window resets.", "required": True, "schema": _COUNT},
    "Retry-After": {
        "description": "Seconds to wait.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "Date": not_shown("on every answer, the provider's time.", schema={"type": "string"}),
    "WWW-Authenticate": not_shown("names the scheme.", schema=const("Bearer")),
}
EVERYWHERE: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Date")


def headers(*more: str) -> Json:
    """The headers of every answer, and these."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*EVERYWHERE, *more)}


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _path(name: str, prefix: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": object_id(prefix)}


PARAMETERS: Final[dict[str, Json]] = {
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Kept 24 hours. The same key with the same request gives the first answer again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "example": "order-1042-attempt-1",
    },
    "PaymentId": _path("payment_id", "pay"),
    "PayoutId": _path("payout_id", "pout"),
    "RefundId": _path("refund_id", "ref"),
    "DepositReferenceId": _path("deposit_reference_id", "dep"),
    "EndpointId": _path("endpoint_id", "whk"),
    "EventId": {
        **_path("event_id", "evt"),
        "description": "The name of this parameter is not shown by the provider.",
        "x-not-shown": True,
    },
    "Limit": _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 25}, "Objects per page."),
    "StartingAfter": _query(
        "starting_after", {"type": "string", "minLength": 1}, "The id of the last object of the previous page."
    ),
    "PaymentStatus": _query("status", ref("PaymentStatus"), "Only payments with this status."),
    "PayoutStatus": _query("status", ref("PayoutStatus"), "Only payouts with this status."),
    "MerchantReference": _query("merchant_reference", {"type": "string"}, "Only those with this reference."),
    "CreatedFrom": _query("created_from", moment(), "Only those created then or later."),
    "CreatedTo": _query("created_to", moment(), "Only those created then or earlier."),
    "OfPayment": _query("payment_id", {"type": "string"}, "Only refunds of this payment; its id begins with `pay_`."),
    "EventType": _query("type", ref("EventType"), "Only events of this type."),
    "Country": _query("country", ref("Country"), "Only methods of this country."),
    "Currency": _query("currency", ref("Currency"), "Only methods in this currency."),
    "Amount": {
        "name": "amount",
        "in": "query",
        **not_shown(
            "an integer in minor units; methods whose maximum is lower are left out.",
            schema={"type": "integer", "format": "int64", "minimum": 1, "maximum": INT64_MAX},
        ),
    },
}


def use(*names: str) -> list[Json]:
    """References to these parameters."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]
