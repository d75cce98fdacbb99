"""Limit the rates of reads and writes per user, to API_THROTTLE_RATES.

Requests are counted in Django's default cache, which all processes must share.
"""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

from payments_integration import caching, conf


class _Throttle(UserRateThrottle):
    scope: str
    cache_format = "payments_integration_api_%(scope)s_%(ident)s"

    def get_rate(self) -> str | None:
        """Return the rate in the app's option, not in the project's ``DEFAULT_THROTTLE_RATES``."""
        return conf.current().API_THROTTLE_RATES[self.scope]

    def allow_request(self, request: Request, view: Any) -> bool:
        if (request.method in SAFE_METHODS) is not (self.scope == "read"):
            return True
        # Without a working cache, requests are neither counted nor refused.
        with caching.contained():
            return bool(super().allow_request(request, view))
        return True

    def get_cache_key(self, request: Request, view: Any) -> str:
        return caching.key(super().get_cache_key(request, view))


class ReadThrottle(_Throttle):
    scope = "read"


class WriteThrottle(_Throttle):
    scope = "write"
