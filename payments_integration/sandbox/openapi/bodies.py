"""What requests carry: the bodies of the POSTs."""

from __future__ import annotations

from typing import Final

from .vocabulary import INT64_MAX, Json, money, not_shown, object_id, record, ref

_FIELDS_NOT_SHOWN: Final = "The sandbox refuses fields that are not listed here; the provider's manner is not shown."

_AMOUNT: Final[Json] = {
    **money("Bounds per method and currency are not shown by the provider.", minimum=1, maximum=INT64_MAX),
    "x-not-shown": True,
}
_METHOD_CODE: Final[Json] = {"type": "string", "minLength": 1, "description": "A code from GET /payment-methods."}
_REFERENCE: Final[Json] = {"type": "string", "minLength": 1, "description": "The merchant's own order id."}


def body(properties: dict[str, Json], required: list[str], description: str, *, shown: bool = False) -> Json:
    """A request's body. ``shown``: the provider's document says which fields are required."""
    manner = "" if shown else "Which fields are required is not shown by the provider. "
    return record(
        properties,
        required,
        description=f"{description} {manner}{_FIELDS_NOT_SHOWN}",
        additionalProperties=False,
        **{"x-not-shown": True},
    )


BODIES: Final[dict[str, Json]] = {
    "CreatePayment": body(
        {
            "amount": _AMOUNT,
            "currency": ref("Currency"),
            "country": ref("Country"),
            "method_code": _METHOD_CODE,
            "merchant_reference": _REFERENCE,
            "payer": ref("Payer"),
            "return_url": {
                "type": "string",
                "format": "uri",
                "pattern": "^https?://",
                "description": "Where the payer returns to. Not in the answer.",
            },
            "flow": {
                "type": "string",
                "enum": ["hosted", "s2s"],
                "default": "hosted",
                "description": "hosted yields `checkout_url`, the page to send the payer to; s2s lets the merchant "
                "render `next_action`.",
            },
            "metadata": ref("Metadata"),
        },
        ["amount", "currency", "country", "method_code"],
        "Collects money from a payer.",
    ),
    "CreatePayout": body(
        {
            "amount": _AMOUNT,
            "currency": ref("Currency"),
            "country": ref("Country"),
            "method_code": _METHOD_CODE,
            "merchant_reference": _REFERENCE,
            "destination": ref("Destination"),
            "metadata": ref("Metadata"),
        },
        ["amount", "currency", "country", "method_code", "destination"],
        "Sends money out.",
    ),
    "CreateRefund": body(
        {
            "payment_id": object_id("pay"),
            "amount": {
                **_AMOUNT,
                "description": "Minor units. Omit it for a full refund. Bounds are not shown by the provider.",
            },
            "destination": {
                **ref("Destination"),
                "description": "Required unless the payment was made by card: the refund runs as a payout.",
            },
            "reason": {"type": "string", "minLength": 1},
        },
        ["payment_id"],
        "Gives money of a succeeded payment back.",
    ),
    "CreateDepositReference": body(
        {
            "country": ref("Country"),
            "currency": ref("Currency"),
            "method_code": _METHOD_CODE,
            "payer": ref("Payer"),
            "merchant_reference": _REFERENCE,
        },
        ["country", "currency", "method_code"],
        "Issues a permanent reference for a payer.",
        shown=True,
    ),
    "CreateWebhookEndpoint": body(
        {
            "url": {"type": "string", "format": "uri", "pattern": "^https://", "description": "HTTPS only."},
            "events": not_shown(
                "all types when it is absent.",
                type="array",
                items=ref("EventType"),
                minItems=1,
            ),
        },
        ["url"],
        "Registers an address for events.",
    ),
}
