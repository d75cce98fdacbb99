"""List the provider's payment methods for pages and the API. They are read once a minute if Django's cache works."""

from __future__ import annotations

import hashlib
from typing import Any

from django.core.cache import cache

from payments_integration import services
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import PaymentMethod

logger = get_logger(__name__)

#: Seconds. The listing rarely changes, and every payer's page asks for it.
CACHED_FOR = 60


def listed_methods(**query: Any) -> list[PaymentMethod]:
    """Return ``services.list_payment_methods`` with the same arguments and errors, at most a minute old."""
    key = _key("listed", sorted(query.items()))
    found: list[PaymentMethod] | None = _cached(key)
    if found is None:
        found = services.list_payment_methods(**query)
        _keep({key: found}, CACHED_FOR)
        # The names are for pages about payments: the mirror has only the code of a payment's method.
        _keep({_key("name", each.code): each.extra.get("name") for each in found}, None)
    return found


def listed_name(code: str) -> str:
    """Return the name under which the provider last listed a method, or "" if it is not known."""
    name = _cached(_key("name", code))
    return name if isinstance(name, str) else ""


def _cached(key: str) -> Any:
    try:
        return cache.get(key)
    except Exception:  # each cache raises its driver's errors
        logger.exception("The cache does not work, so the payment methods are read each time")
        return None


def _keep(values: dict[str, Any], seconds: int | None) -> None:
    try:
        cache.set_many(values, timeout=seconds)
    except Exception:  # as above
        logger.exception("The cache does not work, so the payment methods are read each time")


def _key(*parts: object) -> str:
    # Hash the parts: the provider chooses the codes, and some caches refuse a space in a key.
    return f"payments-methods-{hashlib.sha256(repr(parts).encode()).hexdigest()}"
