"""The fixed vocabulary of the provider's interface: enums, limits and event types.

Copied by hand from the service's document, on purpose not shared with the app: a slip in one of the two shows
up as a disagreement between them.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

Wire: TypeAlias = dict[str, Any]  # an object in the shape it has on the wire

COUNTRIES: Final = ("CL", "CO", "EC", "PE", "MX", "BR")
CURRENCIES: Final = ("CLP", "COP", "PEN", "MXN", "BRL", "USD")
EXPONENTS: Final = {"CLP": 0, "COP": 2, "PEN": 2, "MXN": 2, "BRL": 2, "USD": 2}
DOCUMENT_TYPES: Final = (
    "RUT", "CC", "NIT", "CE", "PASS", "PPT", "RUC", "DL", "DNI", "CPP", "CPF", "CNPJ", "RFC", "CURP",
)  # fmt: skip
ACCOUNT_TYPES: Final = ("checking", "savings", "vista", "other")
FAMILIES: Final = ("card", "bank_redirect", "bank_transfer", "wallet", "cash", "deposit_reference")
NEXT_ACTIONS: Final = ("redirect", "qr", "voucher", "bank_transfer_details", "phone_otp", "none")

PAYMENT_STATUSES: Final = (
    "created", "requires_action", "processing", "succeeded", "failed", "expired", "canceled", "on_hold",
    "partially_paid", "overpaid", "chargeback",
)  # fmt: skip
PAYOUT_STATUSES: Final = ("created", "processing", "succeeded", "failed", "canceled", "on_hold", "returned")
REFUND_STATUSES: Final = ("created", "processing", "succeeded", "failed", "canceled", "returned")

EVENT_TYPES: Final = (
    *(f"payment.{status}" for status in PAYMENT_STATUSES),
    "payout.created", "payout.processing", "payout.succeeded", "payout.failed", "payout.canceled",
    "payout.on_hold", "payout.delayed", "payout.returned",
    "refund.created", "refund.processing", "refund.succeeded", "refund.failed", "refund.returned",
    "balance.updated",
)  # fmt: skip

INT64_MAX: Final = 2**63 - 1
MAX_BODY_BYTES: Final = 256 * 1024
MAX_IDEMPOTENCY_KEY: Final = 255
MAX_METADATA_KEYS: Final = 20
MAX_METADATA_VALUE: Final = 500
MAX_ACTIVE_ENDPOINTS: Final = 10

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def new_id(prefix: str) -> str:
    """A fresh identifier such as ``pay_5f0c…``. Random, never seeded: two sandboxes may feed one database."""
    return f"{prefix}_{secrets.token_hex(12)}"


def iso(at: datetime) -> str:
    """ISO 8601 in UTC, always with six decimals: ``2026-01-31T12:00:00.000001Z``."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> datetime:
    """The moment that :func:`iso` wrote. Raises ValueError for anything without a time zone."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a date-time needs a time zone")
    return at.astimezone(UTC)


def show_amount(amount: int, currency: str) -> str:
    """Minor units for people: 1234 USD is ``USD 12.34``, 1234 CLP is ``CLP 1,234``."""
    exponent = EXPONENTS.get(currency, 2)
    if exponent == 0:
        return f"{currency} {amount:,}"
    whole, rest = divmod(amount, 10**exponent)
    return f"{currency} {whole:,}.{rest:0{exponent}d}"
