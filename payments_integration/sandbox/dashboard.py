"""The page at ``/``: what happened lately, for whoever develops against the sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from .controls import ProjectControls
from .shapes import Wire, iso, show_amount
from .web import engine_of, page

SHOWN = 20


def home(request: HttpRequest) -> HttpResponse:
    """The newest payments, payouts, refunds, events and deliveries of every project."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET"])
    engine = engine_of(request)
    engine.tick()
    return page(
        "home.html",
        {
            "now": iso(engine.clock.now()),
            "url": engine.base_url or "",
            "projects": [_project(project) for project in engine.projects.values()],
            "deliveries": list(reversed(engine.deliveries[-SHOWN:])),
            "waiting": len(engine.pending_deliveries),
            "faults": [fault for fault in engine.faults.all() if not fault.spent],
        },
    )


def _project(project: ProjectControls) -> dict[str, object]:
    return {
        "api_key": project.api_key,
        "payments": _newest(project.payments.values()),
        "payouts": _newest(project.payouts.values()),
        "refunds": _newest(project.refunds.values()),
        "events": list(reversed(project.events[-SHOWN:])),
        "endpoints": list(project.endpoints.values()),
        "balances": [
            {
                "currency": balance["currency"],
                **{
                    name: show_amount(balance[name], balance["currency"])
                    for name in ("available", "pending", "reserve", "hold", "debt")
                },
            }
            for balance in project.balances.values()
            if "updated_at" in balance
        ],
        "audit": project.audit(),
    }


def _newest(items: Iterable[Wire]) -> list[Wire]:
    return [{**item, "shown": show_amount(item["amount"], item["currency"])} for item in list(items)[-SHOWN:][::-1]]
