"""What a careful merchant's site sends with every page."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

#: No inline script, style or handler runs, and nothing is fetched from elsewhere.
POLICY = "default-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'{}; frame-ancestors 'none'"


def strict_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        # A browser asks this also of where the answer to a form sends it on: for the hosted flow, to the provider.
        elsewhere = getattr(settings, "FORMS_LEAD_TO", "")
        response["Content-Security-Policy"] = POLICY.format(f" {elsewhere}" if elsewhere else "")
        return response

    return respond
