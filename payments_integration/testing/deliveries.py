"""Deliveries as the provider sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from payments_integration.signatures import HEADER, sign


def signed_delivery(event: Mapping[str, Any] | bytes, secret: str, *, now: float | None = None) -> dict[str, Any]:
    """Arguments for Django's test client: ``client.post(url, **signed_delivery(event, secret))``.

    ``event``: an event in the provider's shape (spec, "Event"), or the exact bytes of a body. ``now``: Unix seconds
    of the signature.
    """
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return {
        "data": body,
        "content_type": "application/json",
        "headers": {HEADER: sign(body, secret, now=now)},
    }
