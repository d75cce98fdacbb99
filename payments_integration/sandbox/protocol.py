"""Describe the provider's interface as data: enums, limits, event types, error codes, requests and responses.

It is copied by hand from the provider's document and not shared with the app, so a mistake in one copy shows up as a
disagreement between the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]  # a JSON object, as the API sends it

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

REQUEST_METHODS: Final = ("GET", "POST", "DELETE")
OPERATION_IDS: Final = (
    "list_payment_methods", "list_payments", "create_payment", "get_payment", "cancel_payment", "list_payouts",
    "create_payout", "get_payout", "cancel_payout", "list_refunds", "create_refund", "get_refund",
    "create_deposit_reference", "get_deposit_reference", "list_balances", "list_webhook_endpoints",
    "create_webhook_endpoint", "delete_webhook_endpoint", "rotate_webhook_secret", "list_events", "get_event",
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

# code -> (HTTP status, error type). The provider's document has only five of these pairs: see docs/sandbox.md.
CATALOGUE: Final[dict[str, tuple[int, str]]] = {
    "parameter_invalid": (400, "invalid_request_error"),
    "parameter_missing": (400, "invalid_request_error"),
    "amount_out_of_range": (422, "invalid_request_error"),
    "api_key_invalid": (401, "authentication_error"),
    "api_key_revoked": (401, "authentication_error"),
    "merchant_not_active": (403, "permission_error"),
    "method_not_allowed": (403, "permission_error"),
    "country_not_allowed": (403, "permission_error"),
    "resource_not_found": (404, "not_found_error"),
    "idempotency_conflict": (409, "idempotency_error"),
    "idempotency_in_progress": (409, "idempotency_error"),
    "invalid_state": (422, "invalid_state_error"),
    "insufficient_balance": (422, "invalid_state_error"),
    "method_not_available": (422, "invalid_request_error"),
    "blocked_payer": (403, "permission_error"),
    "limit_exceeded": (422, "invalid_request_error"),
    "rate_limited": (429, "rate_limit_error"),
    "internal_error": (500, "api_error"),
    "provider_unavailable": (502, "api_error"),
    "service_unavailable": (503, "api_error"),
}

MESSAGES: Final[dict[str, str]] = {
    "api_key_invalid": "The API key is missing or wrong.",
    "api_key_revoked": "The API key was revoked.",
    "merchant_not_active": "The merchant's business verification is not approved.",
    "idempotency_conflict": "The Idempotency-Key was used with a different request.",
    "idempotency_in_progress": "The first request with this Idempotency-Key is still running.",
    "rate_limited": "Too many requests.",
    "internal_error": "Something went wrong on our side.",
    "provider_unavailable": "The payment method's provider does not answer.",
    "service_unavailable": "The service is not available for the moment.",
    "resource_not_found": "There is no such resource.",
}


class ApiError(Exception):
    """An error of the API: a code of the catalogue, a message, and the parameter that caused it.

    ``status`` and ``kind`` (the envelope's ``type``) default to the catalogue's values.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        param: str | None = None,
        status: int | None = None,
        kind: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        default_status, default_kind = CATALOGUE[code]
        self.code = code
        self.message = message or MESSAGES.get(code, f"The request failed: {code}.")
        self.param = param
        self.status = status or default_status
        self.kind = kind or default_kind
        self.headers = headers or {}
        super().__init__(f"{self.code}: {self.message}")

    def envelope(self, request_id: str) -> Json:
        """Return ``{"error": {type, code, message, request_id}}``, with ``param`` if a parameter caused the error."""
        error: Json = {"type": self.kind, "code": self.code, "message": self.message, "request_id": request_id}
        if self.param is not None:
            error["param"] = self.param
        return {"error": error}


@dataclass(frozen=True)
class ApiRequest:
    """One HTTP request to the API. Header names are in lower case; ``operations`` maps HTTP methods to operations."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    operations: Mapping[str, str]
    object_id: str = ""


@dataclass(frozen=True)
class ConnectionFault:
    """A fault that the server applies to the connection: ``reset``, ``truncate``, or ``drip`` in slow pieces."""

    kind: str
    delay: float = 0.0
    count: int = 1


@dataclass
class ApiResponse:
    """One HTTP response. If ``connection_fault`` is None, the server sends the response normally."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    connection_fault: ConnectionFault | None = None


def encode_json(data: Json) -> bytes:
    """Return JSON as the API sends it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def error_response(error: ApiError, request_id: str) -> ApiResponse:
    """Return the response that carries an error's envelope."""
    return ApiResponse(error.status, encode_json(error.envelope(request_id)), dict(error.headers))
