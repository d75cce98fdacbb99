"""The basic types of the description: enums, scalar types, headers, and the mark for details that are not shown."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]  # a part of the OpenAPI document

INT64_MAX: Final = 2**63 - 1
EVENT_TYPES: Final = [
    "payment.created", "payment.requires_action", "payment.processing", "payment.succeeded", "payment.failed",
    "payment.expired", "payment.canceled", "payment.on_hold", "payment.partially_paid", "payment.overpaid",
    "payment.chargeback",
    "payout.created", "payout.processing", "payout.succeeded", "payout.failed", "payout.canceled",
    "payout.on_hold", "payout.delayed", "payout.returned",
    "refund.created", "refund.processing", "refund.succeeded", "refund.failed", "refund.returned",
    "balance.updated",
]  # fmt: skip


def _enum(*values: str, **more: object) -> Json:
    return {"type": "string", "enum": list(values), **more}


ENUMS: Final[dict[str, Json]] = {
    "Country": _enum("CL", "CO", "EC", "PE", "MX", "BR", description="ISO 3166-1 alpha-2."),
    "Currency": _enum(
        "CLP", "COP", "PEN", "MXN", "BRL", "USD", description="ISO 4217. Crypto assets are not accepted."
    ),
    "DocumentType": _enum(
        "RUT", "CC", "NIT", "CE", "PASS", "PPT", "RUC", "DL", "DNI", "CPP", "CPF", "CNPJ", "RFC", "CURP"
    ),
    "AccountType": _enum("checking", "savings", "vista", "other"),
    "MethodFamily": _enum("card", "bank_redirect", "bank_transfer", "wallet", "cash", "deposit_reference"),
    "NextActionType": _enum("redirect", "qr", "voucher", "bank_transfer_details", "phone_otp", "none"),
    "PaymentStatus": _enum(
        "created", "requires_action", "processing", "succeeded", "failed", "expired", "canceled", "on_hold",
        "partially_paid", "overpaid", "chargeback",
        description="partially_paid and overpaid apply to transfers, chargeback to cards. expired is not final: a "
        "late payment makes it succeeded.",
    ),
    "PayoutStatus": _enum("created", "processing", "succeeded", "failed", "canceled", "on_hold", "returned"),
    "RefundStatus": _enum("created", "processing", "succeeded", "failed", "canceled", "returned"),
    "DepositReferenceStatus": _enum("active", "disabled"),
    "WebhookEndpointStatus": _enum("active", "disabled"),
    "EventType": _enum(*EVENT_TYPES, description="The types known today."),
}  # fmt: skip


def ref(name: str) -> Json:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(kind: str, **more: object) -> Json:
    """A scalar or null."""
    return {"type": [kind, "null"], **more}


def const(value: str) -> Json:
    """A string with a constant value."""
    return {"type": "string", "const": value}


def object_id(prefix: str) -> Json:
    """An identifier; only its prefix is guaranteed."""
    return {"type": "string", "pattern": f"^{prefix}_", "examples": [f"{prefix}_5f0c1a2b3c4d5e6f7a8b9c0d"]}


def money(description: str, **more: object) -> Json:
    """An int64 in minor units."""
    return {"type": "integer", "format": "int64", "description": f"{description} Minor units.", **more}


def moment(description: str = "") -> Json:
    """An ISO 8601 date-time."""
    return {"type": "string", "format": "date-time", **({"description": description} if description else {})}


def record(properties: dict[str, Json], required: list[str], **more: object) -> Json:
    """An object that may have further fields."""
    return {"type": "object", "required": required, "properties": properties, **more}


def not_shown(choice: str, **more: object) -> Json:
    """A detail that the provider's document does not show, and the sandbox's choice."""
    return {"description": f"Not shown by the provider. The sandbox: {choice}", "x-not-shown": True, **more}


_COUNT: Final[Json] = {"type": "integer", "minimum": 0}

HEADERS: Final[dict[str, Json]] = {
    "RateLimit-Limit": {"description": "Requests allowed in the window.", "required": True, "schema": _COUNT},
    "RateLimit-Remaining": {"description": "Requests left.", "required": True, "schema": _COUNT},
    "RateLimit-Reset": {"description": "Seconds until the window resets.", "required": True, "schema": _COUNT},
    "Retry-After": {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer", "minimum": 1}},
    "Date": not_shown("on every response, the provider's time.", schema={"type": "string"}),
    "WWW-Authenticate": not_shown("it names the scheme.", schema=const("Bearer")),
}
ALWAYS: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Date")


def headers(*more: str) -> Json:
    """The headers of every response, and these."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*ALWAYS, *more)}
