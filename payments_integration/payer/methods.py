"""List the provider's payment methods for pages and the API. They are read once a minute if Django's cache works."""

from __future__ import annotations

from typing import Any

from payments_integration import caching, services
from payments_integration.schemas import PaymentMethod

#: Seconds. The listing rarely changes, and every payer's page asks for it.
CACHED_FOR = 60


def listed_methods(**query: Any) -> list[PaymentMethod]:
    """Return ``services.list_payment_methods`` with the same arguments and errors, at most a minute old."""
    key = caching.key("methods", sorted(query.items()))
    found: list[PaymentMethod] | None = caching.read([key]).get(key)
    if found is None:
        found = services.list_payment_methods(**query)
        caching.keep({key: found}, CACHED_FOR)
        # The names are for pages about payments: the mirror has only the code of a payment's method.
        caching.keep({_name_key(each.code): each.extra.get("name") for each in found}, None)
    return found


def listed_name(code: str) -> str:
    """Return the name under which the provider last listed a method, or "" if it is not known."""
    key = _name_key(code)
    name = caching.read([key]).get(key)
    return name if isinstance(name, str) else ""


def _name_key(code: str) -> str:
    return caching.key("method name", code)
