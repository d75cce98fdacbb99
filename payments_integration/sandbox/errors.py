"""The error envelope and every error code of the provider ("Errors"), and the HTTP status each one travels
with.
"""

from __future__ import annotations

from typing import Final

from .shapes import Wire

# code -> (HTTP status, error type). Only five of these pairs are in the provider's document; docs/sandbox.md
# says which.
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
    """An answer of the API that is not a success: code of the catalogue, text for people, the parameter at
    fault.

    ``status`` and ``kind`` (the envelope's ``type``) default to the catalogue's.
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

    def envelope(self, request_id: str) -> Wire:
        """``{"error": {type, code, message, param?, request_id}}``; ``param`` is left out when no parameter
        is at fault.
        """
        error: Wire = {
            "type": self.kind,
            "code": self.code,
            "message": self.message,
            "request_id": request_id,
        }
        if self.param is not None:
            error["param"] = self.param
        return {"error": error}


class SandboxError(ValueError):
    """Someone at the controls asked for something that cannot happen, such as paying a canceled payment."""


class UnknownObjectError(SandboxError, LookupError):
    """There is no object with that id in the sandbox."""
