"""The provider's interface as an OpenAPI 3.1 document, written from the provider's own description.

It imports nothing from the rest of the sandbox; tests compare the two. See ``docs/provider-contract.md``.
"""

from __future__ import annotations

import copy
from typing import Final

from . import components, paths, schemas, types
from .types import Json

__all__ = ["document"]

_DESCRIPTION: Final = """\
Collects money from payers, pays out, refunds, and reports every change by webhook, in Latin American markets. The
interface is a draft and may change before its first release.

This description is written from the provider's document by the authors of payments_integration; it is not the
provider's own. Details that the provider's document does not show are marked `x-not-shown: true`. They are described
as the sandbox implements them: do not depend on them.

- Amounts are integers (int64) in minor units: CLP 1,234 is `1234`, USD 12.34 is `1234`. Timestamps are ISO 8601.
- Every POST carries `Idempotency-Key`. Keys are kept for 24 hours. The same key with another body, or while the
  first request still runs, is a 409.
- `/payments`, `/payouts`, `/refunds` and `/events` are paged by cursor, newest first. The other lists have no pages.
- Every error has the envelope `Error`. For an HTTP method that a path does not support the code is
  `method_not_allowed`: 405 of the type invalid_request_error, with `Allow` (not shown by the provider).
- Every response carries `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`. Planned per API key: 100 reads
  and 20 writes per second, with bursts of twice as many. Above that: 429 with `Retry-After`.
- Planned: a request's body has at most 256 KB.
- New event types may be added without a new version. Error codes do not change within a major version.
"""

_TAGS: Final = [
    {"name": "Payment methods", "description": "By country and currency."},
    {"name": "Payments", "description": "Money in."},
    {"name": "Payouts", "description": "Money out, to bank accounts or wallets."},
    {"name": "Refunds", "description": "Money back."},
    {"name": "Deposit references", "description": "Permanent; each transfer to one creates a payment."},
    {"name": "Balances", "description": "One per currency."},
    {"name": "Webhook endpoints", "description": "The addresses that events are sent to."},
    {"name": "Events", "description": "Changes of the last 30 days."},
]

_DOCUMENT: Final[Json] = {
    "openapi": "3.1.0",
    "info": {"title": "Merchant Payments Service", "version": "1-draft", "description": _DESCRIPTION},
    "tags": _TAGS,
    "security": [{"ApiKey": []}],
    "paths": paths.PATHS,
    "webhooks": paths.WEBHOOKS,
    "components": {
        "securitySchemes": {
            "ApiKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "A secret key of one project, for servers only. Test keys begin with `sk_test_`; the "
                "prefix of live keys is not shown.",
            }
        },
        "headers": types.HEADERS,
        "parameters": {**components.PARAMETERS, **paths.WEBHOOK_PARAMETERS},
        "responses": components.RESPONSES,
        "schemas": {
            **types.ENUMS,
            **schemas.SHARED,
            **schemas.RESOURCES,
            **schemas.LISTS,
            **components.BODIES,
            **components.ERROR_SCHEMAS,
            **paths.EVENT_SCHEMAS,
        },
    },
}

_VARIABLE_SERVER: Final[Json] = {
    "url": "{base_url}/v1",
    "variables": {"base_url": {"default": "http://127.0.0.1:8400", "description": "The address of the service."}},
}


def document(base_url: str | None = None) -> Json:
    """A copy of the OpenAPI document.

    ``base_url``: the address of the service without ``/v1``; empty for relative URLs, None for a variable.
    """
    server = _VARIABLE_SERVER if base_url is None else {"url": f"{base_url.rstrip('/')}/v1"}
    return copy.deepcopy({**_DOCUMENT, "servers": [server]})
