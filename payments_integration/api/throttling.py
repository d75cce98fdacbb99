"""Rate limits per user, separate for reads and writes, at the rates of API_THROTTLE_RATES.

Counted in Django's default cache: several processes must share it.
"""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

from payments_integration import conf


class _Throttle(UserRateThrottle):
    scope: str
    cache_format = "payments_integration_api_%(scope)s_%(ident)s"

    def get_rate(self) -> str | None:
        """From the app's option, not from the project's ``DEFAULT_THROTTLE_RATES``."""
        return conf.current().API_THROTTLE_RATES[self.scope]

    def allow_request(self, request: Request, view: Any) -> bool:
        if (request.method in SAFE_METHODS) is not (self.scope == "read"):
            return True
        return bool(super().allow_request(request, view))


class ReadThrottle(_Throttle):
    scope = "read"


class WriteThrottle(_Throttle):
    scope = "write"
