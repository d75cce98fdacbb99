"""A strict Content-Security-Policy on every page, and a count of running requests."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from django.conf import settings
from django.http import HttpRequest, HttpResponse

#: No inline script, style or handler runs, and nothing is loaded from other hosts.
POLICY = "default-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'{}; frame-ancestors 'none'"


_changed = Condition()
_under_way = 0


def idle(seconds: float) -> bool:
    """Wait until no request is running. Returns False after ``seconds``."""
    with _changed:
        return _changed.wait_for(lambda: not _under_way, seconds)


def counting(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Count running requests: they still run after the browser has left the page."""

    def respond(request: HttpRequest) -> HttpResponse:
        _count(1)
        try:
            return get_response(request)
        finally:
            _count(-1)

    return respond


def _count(step: int) -> None:
    global _under_way
    with _changed:
        _under_way += step
        _changed.notify_all()


def strict_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        # The policy also applies to redirects after a form, which lead to the provider in the hosted flow.
        elsewhere = getattr(settings, "FORMS_LEAD_TO", "")
        response["Content-Security-Policy"] = POLICY.format(f" {elsewhere}" if elsewhere else "")
        return response

    return respond
