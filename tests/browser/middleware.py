"""What a careful merchant's site sends with every page, and what the tests must know of its requests."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from django.conf import settings
from django.http import HttpRequest, HttpResponse

#: No inline script, style or handler runs, and nothing is fetched from elsewhere.
POLICY = "default-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'{}; frame-ancestors 'none'"


_changed = Condition()
_under_way = 0


def idle(seconds: float) -> bool:
    """Wait until no request is being answered; whether that was so in time."""
    with _changed:
        return _changed.wait_for(lambda: not _under_way, seconds)


def counting(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A browser that goes elsewhere waits for no answer, but its request is worked on all the same."""

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
        # A browser asks this also of where the answer to a form sends it on: for the hosted flow, to the provider.
        elsewhere = getattr(settings, "FORMS_LEAD_TO", "")
        response["Content-Security-Policy"] = POLICY.format(f" {elsewhere}" if elsewhere else "")
        return response

    return respond
