"""The parameters, bodies and error responses that operations refer to ("Common rules", "List endpoints", "Errors")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .types import INT64_MAX, Json, const, headers, moment, money, not_shown, object_id, record, ref

_UNKNOWN_FIELDS: Final = "The sandbox refuses unknown fields; the provider's behavior is not shown."

_AMOUNT: Final[Json] = {
    **money("The limits per method and currency are not shown by the provider.", minimum=1, maximum=INT64_MAX),
    "x-not-shown": True,
}
_METHOD_CODE: Final[Json] = {"type": "string", "minLength": 1, "description": "A code from GET /payment-methods."}
_REFERENCE: Final[Json] = {"type": "string", "minLength": 1, "description": "The merchant's own order id."}


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _path(name: str, prefix: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": object_id(prefix)}


PARAMETERS: Final[dict[str, Json]] = {
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Kept for 24 hours. The same key with the same request returns the first response again.",
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
    "MerchantReference": _query("merchant_reference", {"type": "string"}, "Only objects with this reference."),
    "CreatedFrom": _query("created_from", moment(), "Only objects created at this time or later."),
    "CreatedTo": _query("created_to", moment(), "Only objects created at this time or earlier."),
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


def _body(properties: dict[str, Json], required: list[str], description: str, *, shown: bool = False) -> Json:
    """The schema of a request's body. ``shown``: the provider's document says which fields are required."""
    note = "" if shown else "Which fields are required is not shown by the provider. "
    return record(
        properties,
        required,
        description=f"{description} {note}{_UNKNOWN_FIELDS}",
        additionalProperties=False,
        **{"x-not-shown": True},
    )


BODIES: Final[dict[str, Json]] = {
    "CreatePayment": _body(
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
                "description": "The URL that the payer returns to. Not in the response.",
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
    "CreatePayout": _body(
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
    "CreateRefund": _body(
        {
            "payment_id": object_id("pay"),
            "amount": {
                **_AMOUNT,
                "description": "Minor units. Omit it for a full refund. The limits are not shown by the provider.",
            },
            "destination": {
                **ref("Destination"),
                "description": "Required unless the payment was made by card: the refund runs as a payout.",
            },
            "reason": {"type": "string", "minLength": 1},
        },
        ["payment_id"],
        "Returns money of a succeeded payment.",
    ),
    "CreateDepositReference": _body(
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
    "CreateWebhookEndpoint": _body(
        {
            "url": {"type": "string", "format": "uri", "pattern": "^https://", "description": "HTTPS only."},
            "events": not_shown("all types when it is absent.", type="array", items=ref("EventType"), minItems=1),
        },
        ["url"],
        "Registers an address for events.",
    ),
}

INVALID: Final = "invalid_request_error"
ERROR_TYPES: Final = [
    INVALID, "authentication_error", "permission_error", "not_found_error", "invalid_state_error",
    "idempotency_error", "rate_limit_error", "api_error",
]  # fmt: skip


@dataclass(frozen=True)
class Code:
    """An error code. ``shown``: the provider's document shows its HTTP status."""

    status: int
    kind: str
    meaning: str
    shown: bool = False


CODES: Final[dict[str, Code]] = {
    "parameter_invalid": Code(400, INVALID, "A field, parameter or the body itself is wrong."),
    "parameter_missing": Code(400, INVALID, "A required field, parameter or header is absent."),
    "amount_out_of_range": Code(422, INVALID, "The amount is outside the method's limits or above the rest."),
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
    "method_not_available": Code(422, INVALID, "The method is not available for this use, country or currency."),
    "blocked_payer": Code(403, "permission_error", "The payer is blocked."),
    "limit_exceeded": Code(422, INVALID, "The maximum number of webhook endpoints is active."),
    "rate_limited": Code(429, "rate_limit_error", "Too many requests; wait for Retry-After seconds.", shown=True),
    "internal_error": Code(500, "api_error", "The provider had an internal error."),
    "provider_unavailable": Code(502, "api_error", "The provider of the payment method does not respond."),
    "service_unavailable": Code(503, "api_error", "The service is temporarily unavailable."),
}

ERROR_SCHEMAS: Final[dict[str, Json]] = {
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
        description="The envelope of every error.",
    ),
}

# name of the response -> its codes
FAILURES: Final[dict[str, tuple[str, ...]]] = {
    "BadRequest": ("parameter_invalid", "parameter_missing"),
    "Unauthorized": ("api_key_invalid", "api_key_revoked"),
    "NotActive": ("merchant_not_active",),
    "NotAllowed": ("merchant_not_active", "method_not_allowed", "country_not_allowed", "blocked_payer"),
    "NotFound": ("resource_not_found",),
    "Conflict": ("idempotency_conflict", "idempotency_in_progress"),
    "BodyTooLarge": ("parameter_invalid",),
    "NotJson": ("parameter_invalid",),
    "PaymentRefused": ("amount_out_of_range", "method_not_available"),
    "PayoutRefused": ("insufficient_balance", "amount_out_of_range", "method_not_available"),
    "RefundRefused": ("insufficient_balance", "invalid_state", "amount_out_of_range", "method_not_available"),
    "DepositReferenceRefused": ("method_not_available",),
    "CancelRefused": ("invalid_state",),
    "TooManyEndpoints": ("limit_exceeded",),
    "TooManyRequests": ("rate_limited",),
    "InternalError": ("internal_error",),
    "ProviderUnavailable": ("provider_unavailable",),
    "ServiceUnavailable": ("service_unavailable",),
}
BODY_STATUSES: Final = {"BodyTooLarge": 413, "NotJson": 415}  # not those of the codes
EXTRA_HEADERS: Final = {"Unauthorized": ("WWW-Authenticate",), "TooManyRequests": ("Retry-After",)}


def status_of(name: str) -> int:
    """The HTTP status of a response in FAILURES."""
    return BODY_STATUSES.get(name) or CODES[FAILURES[name][0]].status


def _failure(name: str) -> Json:
    codes = FAILURES[name]
    kinds = sorted({CODES[code].kind for code in codes})
    unclear = [code for code in codes if name in BODY_STATUSES or not CODES[code].shown]
    text = " ".join(CODES[code].meaning for code in codes)
    if unclear:
        text += f" The HTTP status of {', '.join(unclear)} is not shown by the provider."
    return {
        "description": text,
        **({"x-not-shown": True} if unclear else {}),
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
