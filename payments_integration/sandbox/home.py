"""Show the home page in a browser: what the sandbox holds, received and sent, with forms for the controls."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from .clock import Clock, iso
from .controls import Project
from .engine import Engine
from .faults import Fault
from .ledger import BUCKETS
from .magic import TABLE
from .protocol import EVENT_TYPES, ApiError, Json
from .resources import Collection, SandboxError
from .trigger import parse_assignments
from .views import TEMPLATES, engine_of, form_fields, format_amount, is_cross_site, query_params, render

LIVE_SCRIPT: Final = TEMPLATES / "payments_sandbox" / "live.js"
ROWS: Final = 20
MAX_TIMES: Final = 1_000
MAX_SECONDS: Final = 3_600
#: The choices of the two forms for faults: the page's text and the fault. The control interface has all faults.
REQUEST_FAULTS: Final[dict[str, tuple[str, Json]]] = {
    "internal": ("fails: 500 internal_error", {"kind": "error", "code": "internal_error"}),
    "unavailable": ("fails: 503 service_unavailable", {"kind": "error", "code": "service_unavailable"}),
    "limited": ("is refused: 429 rate_limited", {"kind": "rate_limited", "retry_after": "5"}),
    "slow": ("is answered late", {"kind": "slow"}),
    "reset": ("is not executed, and gets no answer", {"kind": "reset"}),
    "lost": ("is executed, and gets no answer", {"kind": "reset", "work": True}),
    "html": ("gets an HTML page", {"kind": "html"}),
}
DELIVERY_FAULTS: Final[dict[str, tuple[str, Json]]] = {
    "delay": ("is delayed", {"kind": "delay"}),
    "drop": ("is lost", {"kind": "drop"}),
    "duplicate": ("is sent twice", {"kind": "duplicate"}),
    "reorder": ("is sent after the next one", {"kind": "reorder"}),
    "bad_signature": ("has a wrong signature", {"kind": "bad_signature"}),
}
MAX_ADVANCE: Final = 31_536_000
#: Allow only the script live.js, and no frame, so that no page of another site can show this one and catch clicks.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


def home(request: HttpRequest) -> HttpResponse:
    """Show the page at ``/`` for a GET. For a POST, do what a form says and redirect to the page."""
    if request.method in ("GET", "HEAD"):
        return _page(request)
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "POST"])
    if is_cross_site(request):
        return render("message.html", {"title": "Refused", "text": "Another site sent this form."}, 403)
    fields = form_fields(request)
    try:
        target = _act(engine_of(request), fields)
    except ApiError as error:
        field = f"{error.param}: " if error.param else ""
        return _page(request, fields, f"{field}{error.message}")
    except SandboxError as error:
        return _page(request, fields, str(error))
    return HttpResponse(status=303, headers={"Location": target})


def live_script(request: HttpRequest) -> HttpResponse:
    """Return the script ``/live.js``, which refreshes the page by itself."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET"])
    response = HttpResponse(LIVE_SCRIPT.read_bytes(), content_type="text/javascript; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _act(engine: Engine, fields: Mapping[str, str]) -> str:
    """Do what the form says, and return the address to go to. Raises ApiError and SandboxError."""
    action = fields.get("action")
    if action == "trigger":
        lines = [line for line in fields.get("set", "").splitlines() if line.strip()]
        values = parse_assignments(lines)
        found = _chosen_project(engine, fields).trigger(
            fields.get("event", ""), values, fields.get("object", "").strip() or None
        )
        sent = [event["id"] for event in found["events"] if event["type"] == found["event"]]
        return f"/?{urlencode({'event': sent[-1]})}#done"
    if action == "resend":
        engine.redeliver(fields.get("event", ""), fields.get("endpoint") or None)
        return f"/?{urlencode({'event': fields['event']})}#done"
    if action in ("request", "delivery"):
        choices = REQUEST_FAULTS if action == "request" else DELIVERY_FAULTS
        if fields.get("fault") not in choices:
            raise SandboxError("choose one of the faults")
        fault = Fault(**choices[fields["fault"]][1], times=_number(fields, "times", MAX_TIMES))
        if fault.kind in ("slow", "delay"):
            fault.delay = _number(fields, "seconds", MAX_SECONDS)
        _chosen_project(engine, fields).faults.add(fault)
        return "/#faults"
    if action == "clear":
        for registry in (engine.faults, *(project.faults for project in engine.projects.values())):
            registry.clear()
        return "/#faults"
    if action == "advance":
        _chosen_project(engine, fields).clock.advance(_number(fields, "advance", MAX_ADVANCE))
        return "/"
    if action == "real":
        _chosen_project(engine, fields).clock.set_offset(0)
        return "/"
    raise SandboxError("choose one of the buttons")


def _number(fields: Mapping[str, str], name: str, most: int) -> int:
    text = fields.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise SandboxError(f"{name}: write a number from 1 to {most}")
    return int(text)


def _chosen_project(engine: Engine, fields: Mapping[str, str]) -> Project:
    projects = list(engine.projects.values())
    number = fields.get("project", "0")
    if not number.isascii() or not number.isdigit() or len(number) > 4 or int(number) >= len(projects):
        raise SandboxError("choose one of the projects")
    return projects[int(number)]


def _page(request: HttpRequest, typed: Mapping[str, str] | None = None, problem: str = "") -> HttpResponse:
    """Return the page, with the typed values and why they were refused."""
    engine = engine_of(request)
    engine.tick()
    with engine.lock:
        context: dict[str, object] = {
            "now": iso(engine.clock.now()),
            "url": engine.base_url or "",
            "projects": [_project(project) for project in engine.projects.values()],
            "requests": [{**entry, **_bodies(engine, entry)} for entry in islice(reversed(engine.gateway.log), ROWS)],
            "deliveries": engine.deliveries[-ROWS:][::-1],
            "waiting": len(engine.pending_deliveries),
            "faults": list(_active_faults(engine)),
            "done": _done(engine, query_params(request).get("event")),
        }
    kinds = dict.fromkeys(event.partition(".")[0] for event in EVENT_TYPES)
    context |= {
        "event_types": [(kind, [name for name in EVENT_TYPES if name.startswith(f"{kind}.")]) for kind in kinds],
        "request_faults": [(name, label) for name, (label, _) in REQUEST_FAULTS.items()],
        "delivery_faults": [(name, label) for name, (label, _) in DELIVERY_FAULTS.items()],
        "magic": TABLE,
        "typed": {"event": "payment.succeeded", **(typed or {})},
        "problem": problem,
    }
    response = render("home.html", context, 422 if problem else 200)
    response.headers["Content-Security-Policy"] = POLICY
    return response


def _active_faults(engine: Engine) -> Iterator[tuple[Fault, str]]:
    """Return each fault that can still apply, with its project's API key if there are several projects."""
    registries = [(engine.faults, "")]
    registries += [
        (project.faults, project.api_key if len(engine.projects) > 1 else "") for project in engine.projects.values()
    ]
    return ((fault, owner) for registry, owner in registries for fault in registry.all() if not fault.spent)


def _bodies(engine: Engine, entry: Json) -> dict[str, str]:
    body, answer = engine.gateway.bodies.get(entry["request_id"], (b"", b""))
    return {"body": readable(body), "answer": readable(answer)}


def readable(body: bytes) -> str:
    """Return a body for people: JSON in lines, without webhook secrets, which are shown only once."""
    try:
        return json.dumps(_without_secrets(json.loads(body)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _without_secrets(data: Any) -> Any:
    if isinstance(data, list):
        return [_without_secrets(item) for item in data]
    if isinstance(data, dict):
        return {name: "(hidden)" if name == "secret" else _without_secrets(item) for name, item in data.items()}
    return data


def _pace(clock: Clock) -> str:
    """Return how the clock compares with real time, in words."""
    if clock.is_frozen:
        return "frozen"
    seconds = round(clock.ahead)
    if seconds == 0:
        return "in real time"
    return f"{abs(seconds):,} seconds {'ahead of' if seconds > 0 else 'behind'} real time"


def _done(engine: Engine, event_id: str | None) -> Json | None:
    """Return the event that the last form sent, and how many endpoints get it; None for an unknown id."""
    for project in engine.projects.values():
        event = project.state.events.items.get(event_id or "")
        if event is not None:
            return {**event, "endpoints": len(project.state.endpoints.subscribers(event["type"]))}
    return None


def _project(project: Project) -> dict[str, object]:
    state = project.state
    events = _newest(state.events.items)
    for event in events:
        event["body"] = readable(state.events.body(event["id"]) or b"")
    return {
        "api_key": project.api_key,
        "now": iso(project.clock.now()),
        "pace": _pace(project.clock),
        "payments": _newest(state.payments.items),
        "payouts": _newest(state.payouts.items),
        "refunds": _newest(state.refunds.items),
        "references": _newest(state.deposit_references.items),
        "events": events,
        "endpoints": list(project.endpoints.values()),
        "balances": [
            {name: format_amount(balance[name], balance["currency"]) for name in BUCKETS}
            for balance in project.balances.values()
            if "updated_at" in balance or balance["available"]
        ],
        "audit": project.audit(),
    }


def _newest(items: Collection) -> list[Json]:
    newest: list[Json] = copy.deepcopy(items.page(ROWS, None, lambda item: True)["data"])
    for item in newest:
        if "amount" in item:
            item["shown"] = format_amount(item["amount"], item["currency"])
    return newest
