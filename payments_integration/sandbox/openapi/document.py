"""The whole description."""

from __future__ import annotations

import copy
from typing import Final

from . import bodies, failures, parameters, paths, schemas, vocabulary, webhooks
from .vocabulary import Json

_DESCRIPTION: Final = """\
Collects money from payers, pays out, refunds, and tells of every change by webhook, in Latin American markets. The
interface is a draft and may change before its first release.

This description is written from the provider's document by the authors of payments_integration; it is not the
provider's own. What that document does not show is marked `x-not-shown: true` and described as the sandbox has it: do
not depend on it.

- Amounts are integers (int64) in minor units: CLP 1,234 is `1234`, USD 12.34 is `1234`. Timestamps are ISO 8601.
- Every POST carries `Idempotency-Key`. Keys are kept for 24 hours. Another body under the same key, or the same key
  while the first request still runs, is a 409.
- `/payments`, `/payouts`, `/refunds` and `/events` are paged by cursor, newest first. The other lists come whole.
- Every failure has the envelope `Error`. An HTTP method that a path does not have is a `method_not_allowed` too: 405
  of the type invalid_request_error, with `Allow` (not shown by the provider).
- Every answer carries `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`. Planned per API key: 100 reads
  and 20 writes per second, with bursts of twice as many. Beyond that: 429 with `Retry-After`.
- Planned: a request's body has at most 256 KB.
- New event types may be added without a new version. Error codes do not change within a major version.
"""

_TAGS: Final = [
    {"name": "Payment methods", "description": "By country and currency."},
    {"name": "Payments", "description": "Money in."},
    {"name": "Payouts", "description": "Money out, to bank accounts or wallets."},
    {"name": "Refunds", "description": "Money back."},
    {"name": "Deposit references", "description": "Permanent; each transfer to one makes a payment."},
    {"name": "Balances", "description": "One per currency."},
    {"name": "Webhook endpoints", "description": "Where events are sent."},
    {"name": "Events", "description": "What happened, for 30 days."},
]

_DOCUMENT: Final[Json] = {
    "openapi": "3.1.0",
    "info": {"title": "Merchant Payments Service", "version": "1-draft", "description": _DESCRIPTION},
    "tags": _TAGS,
    "security": [{"ApiKey": []}],
    "paths": paths.PATHS,
    "webhooks": webhooks.WEBHOOKS,
    "components": {
        "securitySchemes": {
            "ApiKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "A secret key of one project, for servers only. Test keys begin with `sk_test_`; the "
                "prefix of live keys is not shown.",
            }
        },
        "headers": parameters.HEADERS,
        "parameters": {**parameters.PARAMETERS, **webhooks.PARAMETERS},
        "responses": failures.RESPONSES,
        "schemas": {
            **vocabulary.ENUMS,
            **schemas.SHAPES,
            **schemas.RESOURCES,
            **schemas.LISTS,
            **bodies.BODIES,
            **failures.SCHEMAS,
            **webhooks.SCHEMAS,
        },
    },
}

_ANYWHERE: Final[Json] = {
    "url": "{base_url}/v1",
    "variables": {"base_url": {"default": "http://127.0.0.1:8400", "description": "Where the service is."}},
}


def document(base_url: str | None = None) -> Json:
    """A copy of the description, for the service at this address (without ``/v1``); None: anywhere, empty: here."""
    server = _ANYWHERE if base_url is None else {"url": f"{base_url.rstrip('/')}/v1"}
    return copy.deepcopy({**_DOCUMENT, "servers": [server]})
