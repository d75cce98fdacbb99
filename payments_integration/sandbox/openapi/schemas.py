"""The resources and the objects that they share ("Resources and their fields")."""

from __future__ import annotations

from typing import Final

from .types import Json, const, moment, money, not_shown, nullable, object_id, record, ref

SHARED: Final[dict[str, Json]] = {
    "Document": record(
        {"type": ref("DocumentType"), "number": {"type": "string"}},
        ["type", "number"],
        description="An identity document.",
    ),
    "Payer": record(
        {
            "name": {"type": "string"},
            "email": {"type": "string", "format": "email"},
            "phone": {"type": "string", "pattern": r"^\+[1-9][0-9]{1,14}$", "description": "E.164."},
            "document": ref("Document"),
            "ip": {"type": "string", "description": "Used for risk checks."},
            "device_id": {
                "type": "string",
                "description": "An opaque id of the merchant's for the device. Used for risk checks.",
            },
        },
        [],
        description="The payer.",
    ),
    "Metadata": {
        "type": "object",
        "description": "Returned unchanged.",
        "maxProperties": 20,
        "additionalProperties": {"type": "string", "maxLength": 500},
    },
    "NextAction": record(
        {
            "type": ref("NextActionType"),
            "redirect_url": {"type": "string", "format": "uri"},
            "qr_payload": {"type": "string"},
            "voucher_code": {"type": "string"},
            "voucher_barcode": {"type": "string"},
            "bank_transfer": record(
                {
                    "bank_name": {"type": "string"},
                    "account_number": {"type": "string"},
                    "account_holder": {"type": "string"},
                },
                [],
            ),
            "reference": not_shown("the reference that the payer must include is here, beside `type`.", type="string"),
            "expires_at": not_shown("it is here, beside `type`.", type="string", format="date-time"),
        },
        ["type"],
        description="What the payer must do next.",
    ),
    "BankAccountDestination": record(
        {
            "type": const("bank_account"),
            "bank_code": {"type": "string"},
            "account_number": {"type": "string"},
            "account_type": ref("AccountType"),
            "holder_name": {"type": "string"},
            "holder_document": ref("Document"),
        },
        ["type", "account_number", "holder_name", "holder_document"],
    ),
    "Destination": not_shown(
        "only bank accounts. A destination must be whitelisted; a new address becomes active after 24 hours.",
        oneOf=[ref("BankAccountDestination")],
        discriminator={
            "propertyName": "type",
            "mapping": {"bank_account": "#/components/schemas/BankAccountDestination"},
        },
    ),
}

PAYMENT_REQUIRED: Final = [
    "id", "object", "status", "amount", "amount_received", "currency", "country", "method_code", "method_family",
    "created_at",
]  # fmt: skip
PAYOUT_REQUIRED: Final = ["id", "object", "status", "amount", "currency", "country", "method_code", "created_at"]
REFUND_REQUIRED: Final = ["id", "object", "status", "payment_id", "amount", "currency", "created_at"]
DEPOSIT_REQUIRED: Final = [
    "id", "object", "status", "country", "currency", "method_code", "details", "created_at",
]  # fmt: skip
BALANCE_REQUIRED: Final = ["object", "currency", "available", "pending", "reserve", "hold", "debt"]

_METHOD_CODE: Final[Json] = {"type": "string", "description": "A code from the payment method listing."}
_REFERENCE: Final[Json] = {"type": "string", "description": "The merchant's own order id."}

_ENDPOINT: Final[dict[str, Json]] = {
    "id": object_id("whk"),
    "object": not_shown("present, as on every resource.", **const("webhook_endpoint")),
    "url": {"type": "string", "format": "uri", "description": "HTTPS."},
    "events": {"type": "array", "items": {"type": "string"}, "description": "Event types."},
    "status": ref("WebhookEndpointStatus"),
    "created_at": moment(),
}
_ENDPOINT_REQUIRED: Final = ["id", "url", "events", "status"]

RESOURCES: Final[dict[str, Json]] = {
    "Payment": record(
        {
            "id": object_id("pay"),
            "object": const("payment"),
            "status": ref("PaymentStatus"),
            "amount": money("The requested amount."),
            "amount_received": money("The amount received so far."),
            "fee": money("The fee on the received amount, in the same currency."),
            "net_amount": money("The received amount less the fee."),
            "currency": ref("Currency"),
            "country": ref("Country"),
            "method_code": _METHOD_CODE,
            "method_family": ref("MethodFamily"),
            "flow": {"type": "string", "enum": ["hosted", "s2s", "deposit_reference"]},
            "checkout_url": nullable(
                "string", format="uri", description="The hosted checkout page, set for the hosted flow."
            ),
            "refunded_amount": money("The amount refunded so far."),
            "merchant_reference": _REFERENCE,
            "payer": ref("Payer"),
            "next_action": ref("NextAction"),
            "failure_reason": nullable("string"),
            "metadata": ref("Metadata"),
            "created_at": moment(),
            "expires_at": nullable("string", format="date-time"),
            "succeeded_at": nullable("string", format="date-time"),
        },
        PAYMENT_REQUIRED,
    ),
    "Payout": record(
        {
            "id": object_id("pout"),
            "object": const("payout"),
            "status": ref("PayoutStatus"),
            "amount": money("The amount that is sent."),
            "fee": money("Reserved on top of the amount."),
            "currency": ref("Currency"),
            "country": ref("Country"),
            "method_code": _METHOD_CODE,
            "destination": ref("Destination"),
            "merchant_reference": _REFERENCE,
            "failure_reason": nullable("string"),
            "refund_id": nullable("string", description="Set when the payout executes a refund."),
            "metadata": ref("Metadata"),
            "created_at": moment(),
            "succeeded_at": nullable("string", format="date-time"),
        },
        PAYOUT_REQUIRED,
    ),
    "Refund": record(
        {
            "id": object_id("ref"),
            "object": const("refund"),
            "status": ref("RefundStatus"),
            "payment_id": object_id("pay"),
            "payout_id": nullable("string", description="Set when the refund is executed as a payout."),
            "amount": money("The amount that is refunded."),
            "currency": ref("Currency"),
            "reason": nullable("string"),
            "created_at": moment(),
        },
        REFUND_REQUIRED,
    ),
    "DepositReference": record(
        {
            "id": object_id("dep"),
            "object": const("deposit_reference"),
            "status": ref("DepositReferenceStatus"),
            "country": ref("Country"),
            "currency": ref("Currency"),
            "method_code": _METHOD_CODE,
            "merchant_reference": {"type": "string", "description": "Such as the merchant's id of the payer."},
            "details": ref("NextAction"),
            "created_at": moment(),
        },
        DEPOSIT_REQUIRED,
        description="Permanent. Incoming transfers to it create payments.",
    ),
    "Balance": record(
        {
            "object": const("balance"),
            "currency": ref("Currency"),
            "available": money("Can be paid out; never negative.", minimum=0),
            "pending": money("Waits for settlement."),
            "reserve": money("Held against chargebacks."),
            "hold": money("Reserved for payouts and refunds in progress."),
            "debt": money("Owed after chargebacks; payouts and refunds are blocked while it is above zero."),
            "updated_at": moment(),
        },
        BALANCE_REQUIRED,
        description="One per currency.",
    ),
    "WebhookEndpoint": record(
        _ENDPOINT, _ENDPOINT_REQUIRED, description="Without its secret.", **{"not": {"required": ["secret"]}}
    ),
    "WebhookEndpointWithSecret": record(
        {**_ENDPOINT, "secret": {"type": "string", "description": "The signing secret, shown only once."}},
        [*_ENDPOINT_REQUIRED, "secret"],
        description="The response to a creation and to a rotation.",
    ),
    "DeletedWebhookEndpoint": not_shown(
        "the endpoint's id and `deleted`.",
        type="object",
        required=["id", "deleted"],
        properties={
            "id": object_id("whk"),
            "object": const("webhook_endpoint"),
            "deleted": {"type": "boolean", "const": True},
        },
    ),
    "PaymentMethod": not_shown(
        "all of these fields but `code`, which is the value used as `method_code`.",
        type="object",
        required=["code"],
        properties={
            "object": const("payment_method"),
            "code": {"type": "string"},
            "name": {"type": "string"},
            "family": ref("MethodFamily"),
            "country": ref("Country"),
            "currency": ref("Currency"),
            "next_action": ref("NextActionType"),
            "uses": {"type": "array", "items": {"type": "string", "enum": ["payment", "payout", "deposit_reference"]}},
            "min_amount": money("The smallest amount."),
            "max_amount": money("The largest amount."),
            "available": {"type": "boolean"},
        },
    ),
    "Event": record(
        {
            "id": {**object_id("evt"), "description": "Unique per event; used to drop duplicates."},
            "object": const("event"),
            "type": {
                "type": "string",
                "description": "See EventType. New types can be added without a new version; ignore those you do not "
                "handle.",
                "examples": ["payment.succeeded"],
            },
            "created_at": moment("Events may arrive out of order; this orders them."),
            "data": {
                "description": "The full object as it was at the time of the event.",
                "oneOf": [ref("Payment"), ref("Payout"), ref("Refund"), ref("Balance")],
                "discriminator": {
                    "propertyName": "object",
                    "mapping": {
                        name.lower(): f"#/components/schemas/{name}"
                        for name in ("Payment", "Payout", "Refund", "Balance")
                    },
                },
            },
        },
        ["id", "object", "type", "created_at", "data"],
    ),
}


def page_of(name: str) -> Json:
    """One page of a list with cursor pagination."""
    return record(
        {
            "object": const("list"),
            "has_more": {
                "type": "boolean",
                "description": "While true, request the next page with `starting_after` set to the last id.",
            },
            "data": {"type": "array", "items": ref(name), "description": "Newest to oldest."},
        },
        ["object", "has_more", "data"],
    )


def all_of(name: str) -> Json:
    """A list without pages."""
    return record({"data": {"type": "array", "items": ref(name)}}, ["data"])


LISTS: Final[dict[str, Json]] = {
    **{f"{name}Page": page_of(name) for name in ("Payment", "Payout", "Refund", "Event")},
    **{f"{name}List": all_of(name) for name in ("PaymentMethod", "Balance", "WebhookEndpoint")},
}
