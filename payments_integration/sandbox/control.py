"""The control interface under ``/_sandbox/``: the engine's methods for other processes, as JSON over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from .controls import Controls
from .distortion import dump
from .engine import Engine
from .errors import SandboxError, UnknownObjectError
from .faults import Fault
from .shapes import Wire, iso, new_id, parse_iso
from .web import engine_of, from_elsewhere, json_object, query

Move = Callable[[Engine, str, Wire], Any]


def _reason(data: Wire) -> dict[str, str]:
    return {"reason": str(data["reason"])} if "reason" in data else {}


MOVES: Final[dict[tuple[str, str], Move]] = {
    ("payments", "open"): lambda engine, object_id, data: engine.open_checkout(object_id),
    ("payments", "pay"): lambda engine, object_id, data: engine.pay(object_id, data.get("amount")),
    ("payments", "process"): lambda engine, object_id, data: engine.process(object_id),
    ("payments", "fail"): lambda engine, object_id, data: engine.fail(object_id, **_reason(data)),
    ("payments", "expire"): lambda engine, object_id, data: engine.expire(object_id),
    ("payments", "hold"): lambda engine, object_id, data: engine.hold(object_id),
    ("payments", "chargeback"): lambda engine, object_id, data: engine.chargeback(object_id),
    ("payouts", "process"): lambda engine, object_id, data: engine.process_payout(object_id),
    ("payouts", "succeed"): lambda engine, object_id, data: engine.succeed_payout(object_id),
    ("payouts", "fail"): lambda engine, object_id, data: engine.fail_payout(object_id, **_reason(data)),
    ("payouts", "return"): lambda engine, object_id, data: engine.return_payout(object_id, **_reason(data)),
    ("payouts", "hold"): lambda engine, object_id, data: engine.hold_payout(object_id),
    ("payouts", "delay"): lambda engine, object_id, data: engine.delay_payout(object_id),
    ("refunds", "process"): lambda engine, object_id, data: engine.process_refund(object_id),
    ("refunds", "succeed"): lambda engine, object_id, data: engine.succeed_refund(object_id),
    ("refunds", "fail"): lambda engine, object_id, data: engine.fail_refund(object_id),
    ("refunds", "return"): lambda engine, object_id, data: engine.return_refund(object_id),
    ("refunds", "cancel"): lambda engine, object_id, data: engine.cancel_refund(object_id),
    ("deposit-references", "transfer"): lambda engine, object_id, data: engine.transfer(
        object_id, data.get("amount", 0)
    ),
    ("deposit-references", "disable"): lambda engine, object_id, data: engine.disable_deposit_reference(object_id),
    ("endpoints", "enable"): lambda engine, object_id, data: engine.enable_endpoint(object_id),
    ("events", "redeliver"): lambda engine, object_id, data: {
        "queued": engine.redeliver(object_id, data.get("endpoint_id"))
    },
}


def books(request: HttpRequest) -> HttpResponse:
    """GET /_sandbox/books: everything there is, with the audit."""
    if request.method != "GET":
        return _problem(405, "only GET here")
    engine = engine_of(request)
    engine.tick()
    return _json(engine.books())


def move(request: HttpRequest, collection: str, object_id: str, action: str) -> HttpResponse:
    """POST /_sandbox/<collection>/<id>/<action>: something happens to one object; answers with it."""
    known = MOVES.get((collection, action))
    if known is None:
        return _problem(404, f"there is no {action!r} for {collection}")
    if request.method != "POST":
        return _problem(405, "only POST here")
    return _guarded(request, lambda engine, data: known(engine, object_id, data))


def act(request: HttpRequest, action: str) -> HttpResponse:
    """What is about no single object: fund, reserve, clock, tick, deliver, faults, terms, keys, …"""
    known = ACTIONS.get((request.method or "", action))
    if known is None:
        return _problem(404, f"there is no {request.method} /_sandbox/{action}")
    return _guarded(request, lambda engine, data: known(engine, _project(engine, request), data))


def _project(engine: Engine, request: HttpRequest) -> Controls:
    """The project named by ``?project=<api key>``, else the default one."""
    key = query(request).get("project")
    if key is None:
        return engine.default_project
    if key not in engine.projects:
        raise UnknownObjectError(f"there is no project {key!r}")
    return engine.projects[key]


def _guarded(request: HttpRequest, run: Callable[[Engine, Wire], Any]) -> HttpResponse:
    if from_elsewhere(request):
        return _problem(403, "another site's page sent this")
    try:
        return _json(run(engine_of(request), json_object(request)))
    except UnknownObjectError as error:
        return _problem(404, str(error))
    except SandboxError as error:
        return _problem(422, str(error))
    except (ValueError, TypeError, KeyError) as error:
        return _problem(400, f"{type(error).__name__}: {error}")


def _json(data: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(dump(data), status=status, content_type="application/json")


def _problem(status: int, message: str) -> HttpResponse:
    code = "resource_not_found" if status == 404 else "parameter_invalid"
    error = {"type": "invalid_request_error", "code": code, "message": message, "request_id": new_id("req")}
    return _json({"error": error}, status)


# the actions

Action = Callable[[Engine, Controls, Wire], Any]


def _clock(engine: Engine, project: Controls, data: Wire) -> Wire:
    """Any of advance (seconds), offset (seconds), freeze (true or a date-time), unfreeze (true), in this order."""
    if unknown := set(data) - {"advance", "offset", "freeze", "unfreeze"}:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    if "offset" in data:
        engine.clock.set_offset(float(data["offset"]))
    if freeze := data.get("freeze"):
        engine.clock.freeze(parse_iso(freeze) if isinstance(freeze, str) else None)
    if data.get("unfreeze"):
        engine.clock.unfreeze()
    if "advance" in data:
        engine.clock.advance(float(data["advance"]))
    return {"now": iso(engine.clock.now()), "frozen": engine.clock.is_frozen}


def _tick(engine: Engine, project: Controls, data: Wire) -> Wire:
    engine.tick()
    return {"now": iso(engine.clock.now())}


def _add_fault(engine: Engine, project: Controls, data: Wire) -> Wire:
    return engine.faults.add(Fault.from_wire(data)).wire()


def _clear_faults(engine: Engine, project: Controls, data: Wire) -> Wire:
    engine.faults.clear()
    return {"faults": []}


def _terms(engine: Engine, project: Controls, data: Wire) -> Wire:
    """What the provider allows: active, countries, forbidden_methods, …, as in ``desk.Terms``."""
    return project.set_terms(**data)


def _revoke(engine: Engine, project: Controls, data: Wire) -> Wire:
    project.revoke_key(data.get("api_key"))
    return {"revoked": True}


def _add_key(engine: Engine, project: Controls, data: Wire) -> Wire:
    project.add_key(str(data["api_key"]))
    return {"added": True}


def _whitelist(engine: Engine, project: Controls, data: Wire) -> Wire:
    project.whitelist(str(data["account_number"]))
    return {"added": True}


ACTIONS: Final[dict[tuple[str, str], Action]] = {
    ("POST", "fund"): lambda engine, project, data: project.fund(data["currency"], data["amount"]),
    ("POST", "reserve"): lambda engine, project, data: project.set_reserve(data["currency"], data["amount"]),
    ("POST", "clock"): _clock,
    ("GET", "clock"): _clock,
    ("POST", "tick"): _tick,
    ("POST", "deliver"): lambda engine, project, data: {"attempts": engine.deliver_due()},
    ("GET", "faults"): lambda engine, project, data: {"faults": [fault.wire() for fault in engine.faults.all()]},
    ("POST", "faults"): _add_fault,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "endpoints"): lambda engine, project, data: project.add_endpoint(
        data["url"], data.get("events"), data.get("secret")
    ),
    ("POST", "projects"): lambda engine, project, data: {"api_key": engine.add_project(str(data["api_key"])).api_key},
    ("POST", "terms"): _terms,
    ("POST", "keys"): _add_key,
    ("POST", "revoke"): _revoke,
    ("POST", "whitelist"): _whitelist,
}
