"""The error envelope, its codes, and the answers that carry them ("Errors")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .parameters import headers
from .vocabulary import Json, const, record, ref

INVALID: Final = "invalid_request_error"
ERROR_TYPES: Final = [
    INVALID, "authentication_error", "permission_error", "not_found_error", "invalid_state_error",
    "idempotency_error", "rate_limit_error", "api_error",
]  # fmt: skip


@dataclass(frozen=True)
class Code:
    """An error code. ``shown``: the provider's document binds it to this HTTP status."""

    status: int
    kind: str
    meaning: str
    shown: bool = False


CODES: Final[dict[str, Code]] = {
    "parameter_invalid": Code(400, INVALID, "A field, parameter or the body itself is wrong."),
    "parameter_missing": Code(400, INVALID, "A required field, parameter or header is absent."),
    "amount_out_of_range": Code(422, INVALID, "The amount is outside of the method's bounds, or of what is left."),
    "api_key_invalid": Code(401, "authentication_error", "The API key is missing or wrong."),
    "api_key_revoked": Code(401, "authentication_error", "The API key was revoked."),
    "merchant_not_active": Code(403, "permission_error", "The merchant's business verification is not approved."),
    "method_not_allowed": Code(403, "permission_error", "The agreement does not cover the payment method."),
    "country_not_allowed": Code(403, "permission_error", "The agreement does not cover the country."),
    "resource_not_found": Code(404, "not_found_error", "There is no such path, object or cursor."),
    "idempotency_conflict": Code(
        409, "idempotency_error", "The Idempotency-Key was used with a different body.", shown=True
    ),
    "idempotency_in_progress": Code(
        409, "idempotency_error", "The first request with this Idempotency-Key is still running.", shown=True
    ),
    "invalid_state": Code(422, "invalid_state_error", "The object's status does not allow it.", shown=True),
    "insufficient_balance": Code(
        422, "invalid_state_error", "Less is available than amount plus fee, or there is a debt.", shown=True
    ),
    "method_not_available": Code(422, INVALID, "The method is not available there, in that currency or so used."),
    "blocked_payer": Code(403, "permission_error", "The payer is blocked."),
    "limit_exceeded": Code(422, INVALID, "There are as many active webhook endpoints as can be."),
    "rate_limited": Code(429, "rate_limit_error", "Too many requests; wait for Retry-After seconds.", shown=True),
    "internal_error": Code(500, "api_error", "Something went wrong at the provider."),
    "provider_unavailable": Code(502, "api_error", "The payment method's provider does not answer."),
    "service_unavailable": Code(503, "api_error", "The service is not available for the moment."),
}

SCHEMAS: Final[dict[str, Json]] = {
    "ErrorType": {"type": "string", "enum": ERROR_TYPES},
    "ErrorCode": {
        "type": "string",
        "enum": list(CODES),
        "description": "Stable within a major version.\n\n"
        + "\n".join(f"- `{name}`: {code.meaning}" for name, code in CODES.items()),
    },
    "Error": record(
        {
            "error": record(
                {
                    "type": ref("ErrorType"),
                    "code": ref("ErrorCode"),
                    "message": {"type": "string"},
                    "param": {"type": "string", "description": "The offending parameter."},
                    "request_id": {"type": "string"},
                },
                ["type", "code", "message", "request_id"],
            )
        },
        ["error"],
        description="The envelope of every failure.",
    ),
}

# name of the answer -> its codes, and its status where that is not the codes' own
FAILURES: Final[dict[str, tuple[tuple[str, ...], int | None]]] = {
    "BadRequest": (("parameter_invalid", "parameter_missing"), None),
    "Unauthorized": (("api_key_invalid", "api_key_revoked"), None),
    "NotActive": (("merchant_not_active",), None),
    "NotAllowed": (("merchant_not_active", "method_not_allowed", "country_not_allowed", "blocked_payer"), None),
    "NotFound": (("resource_not_found",), None),
    "Conflict": (("idempotency_conflict", "idempotency_in_progress"), None),
    "BodyTooLarge": (("parameter_invalid",), 413),
    "NotJson": (("parameter_invalid",), 415),
    "PaymentRefused": (("amount_out_of_range", "method_not_available"), None),
    "PayoutRefused": (("insufficient_balance", "amount_out_of_range", "method_not_available"), None),
    "RefundRefused": (
        ("insufficient_balance", "invalid_state", "amount_out_of_range", "method_not_available"),
        None,
    ),
    "DepositReferenceRefused": (("method_not_available",), None),
    "CancelRefused": (("invalid_state",), None),
    "TooManyEndpoints": (("limit_exceeded",), None),
    "TooManyRequests": (("rate_limited",), None),
    "InternalError": (("internal_error",), None),
    "ProviderUnavailable": (("provider_unavailable",), None),
    "ServiceUnavailable": (("service_unavailable",), None),
}
EXTRA_HEADERS: Final = {"Unauthorized": ("WWW-Authenticate",), "TooManyRequests": ("Retry-After",)}


def status_of(name: str) -> int:
    """The HTTP status of an answer named in FAILURES."""
    codes, status = FAILURES[name]
    return status or CODES[codes[0]].status


def _failure(name: str) -> Json:
    codes, status = FAILURES[name]
    kinds = sorted({CODES[code].kind for code in codes})
    open_ones = [code for code in codes if status is not None or not CODES[code].shown]
    text = " ".join(CODES[code].meaning for code in codes)
    if open_ones:
        text += f" The HTTP status of {', '.join(open_ones)} is not shown by the provider."
    return {
        "description": text,
        **({"x-not-shown": True} if open_ones else {}),
        "headers": headers(*EXTRA_HEADERS.get(name, ())),
        "content": {
            "application/json": {
                "schema": {
                    "allOf": [
                        ref("Error"),
                        {
                            "properties": {
                                "error": {
                                    "properties": {
                                        "type": const(kinds[0]) if len(kinds) == 1 else {"enum": kinds},
                                        "code": {"enum": list(codes)},
                                    }
                                }
                            }
                        },
                    ]
                },
                "examples": {code: {"value": _example(code)} for code in codes},
            }
        },
    }


def _example(code: str) -> Json:
    param = {
        "parameter_invalid": "payer.email",
        "parameter_missing": "amount",
        "amount_out_of_range": "amount",
        "insufficient_balance": "amount",
        "method_not_available": "method_code",
    }.get(code)
    return {
        "error": {
            "type": CODES[code].kind,
            "code": code,
            "message": CODES[code].meaning,
            **({} if param is None else {"param": param}),
            "request_id": "req_0a1b2c3d4e5f60718293a4b5",
        }
    }


RESPONSES: Final[dict[str, Json]] = {name: _failure(name) for name in FAILURES}
