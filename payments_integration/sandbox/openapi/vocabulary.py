"""The words of the description: enums of the interface, scalar types, and marks for what is not shown."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]  # a part of the description

COUNTRIES: Final = ["CL", "CO", "EC", "PE", "MX", "BR"]
CURRENCIES: Final = ["CLP", "COP", "PEN", "MXN", "BRL", "USD"]
DOCUMENT_TYPES: Final = [
    "RUT", "CC", "NIT", "CE", "PASS", "PPT", "RUC", "DL", "DNI", "CPP", "CPF", "CNPJ", "RFC", "CURP",
]  # fmt: skip
ACCOUNT_TYPES: Final = ["checking", "savings", "vista", "other"]
METHOD_FAMILIES: Final = ["card", "bank_redirect", "bank_transfer", "wallet", "cash", "deposit_reference"]
NEXT_ACTION_TYPES: Final = ["redirect", "qr", "voucher", "bank_transfer_details", "phone_otp", "none"]

PAYMENT_STATUSES: Final = [
    "created", "requires_action", "processing", "succeeded", "failed", "expired", "canceled", "on_hold",
    "partially_paid", "overpaid", "chargeback",
]  # fmt: skip
PAYOUT_STATUSES: Final = ["created", "processing", "succeeded", "failed", "canceled", "on_hold", "returned"]
REFUND_STATUSES: Final = ["created", "processing", "succeeded", "failed", "canceled", "returned"]
ACTIVITY: Final = ["active", "disabled"]

EVENT_TYPES: Final = [
    "payment.created", "payment.requires_action", "payment.processing", "payment.succeeded", "payment.failed",
    "payment.expired", "payment.canceled", "payment.on_hold", "payment.partially_paid", "payment.overpaid",
    "payment.chargeback",
    "payout.created", "payout.processing", "payout.succeeded", "payout.failed", "payout.canceled",
    "payout.on_hold", "payout.delayed", "payout.returned",
    "refund.created", "refund.processing", "refund.succeeded", "refund.failed", "refund.returned",
    "balance.updated",
]  # fmt: skip

INT64_MAX: Final = 2**63 - 1

ENUMS: Final[dict[str, Json]] = {
    "Country": {"type": "string", "enum": COUNTRIES, "description": "ISO 3166-1 alpha-2."},
    "Currency": {"type": "string", "enum": CURRENCIES, "description": "ISO 4217. Crypto assets are not accepted."},
    "DocumentType": {"type": "string", "enum": DOCUMENT_TYPES},
    "AccountType": {"type": "string", "enum": ACCOUNT_TYPES},
    "MethodFamily": {"type": "string", "enum": METHOD_FAMILIES},
    "NextActionType": {"type": "string", "enum": NEXT_ACTION_TYPES},
    "PaymentStatus": {
        "type": "string",
        "enum": PAYMENT_STATUSES,
        "description": "partially_paid and overpaid apply to transfers, chargeback to cards. expired is not final: a "
        "late payment makes it succeeded.",
    },
    "PayoutStatus": {"type": "string", "enum": PAYOUT_STATUSES},
    "RefundStatus": {"type": "string", "enum": REFUND_STATUSES},
    "DepositReferenceStatus": {"type": "string", "enum": ACTIVITY},
    "WebhookEndpointStatus": {"type": "string", "enum": ACTIVITY},
    "EventType": {"type": "string", "enum": EVENT_TYPES, "description": "The types known today."},
}


def ref(name: str) -> Json:
    """A reference to a schema of the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(kind: str, **more: object) -> Json:
    """A scalar or null."""
    return {"type": [kind, "null"], **more}


def const(value: str) -> Json:
    """A string that is always this one."""
    return {"type": "string", "const": value}


def object_id(prefix: str) -> Json:
    """An identifier: only its prefix is promised."""
    return {"type": "string", "pattern": f"^{prefix}_", "examples": [f"{prefix}_5f0c1a2b3c4d5e6f7a8b9c0d"]}


def money(description: str, **more: object) -> Json:
    """An int64 in minor units."""
    return {"type": "integer", "format": "int64", "description": f"{description} Minor units.", **more}


def moment(description: str = "") -> Json:
    """An ISO 8601 date-time."""
    return {"type": "string", "format": "date-time", **({"description": description} if description else {})}


def record(properties: dict[str, Json], required: list[str], **more: object) -> Json:
    """An object that may get further fields."""
    return {"type": "object", "required": required, "properties": properties, **more}


def not_shown(choice: str, **more: object) -> Json:
    """What the provider's document leaves open, and how the sandbox has it."""
    return {"description": f"Not shown by the provider. The sandbox: {choice}", "x-not-shown": True, **more}
