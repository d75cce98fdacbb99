"""The control interface under ``/_sandbox/``: the engine's methods as JSON over HTTP, for other processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from .clock import iso, parse_iso
from .common_rules import bearer_token
from .controls import Controls, Project
from .engine import Engine
from .faults import Fault
from .operations import OPERATIONS, Call
from .protocol import EVENT_TYPES, ApiError, Json, encode_json
from .resources import DEFAULT_LIMIT, MAX_LIMIT, SandboxError, UnknownObjectError, new_id
from .views import engine_of, is_cross_site, json_body, query_params

ObjectAction = Callable[[Engine, str, Json], Any]
ProjectAction = Callable[[Engine, Controls, Json], Any]
Listing = Callable[[Engine, Project, Call], Json]


def _reason(data: Json) -> dict[str, str]:
    return {"reason": str(data["reason"])} if "reason" in data else {}


OBJECT_ACTIONS: Final[dict[tuple[str, str], ObjectAction]] = {
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
#: The fields of the bodies; the other actions have none. A misspelt amount must not pay all of it.
OBJECT_FIELDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("payments", "pay"): ("amount",),
    ("payments", "fail"): ("reason",),
    ("payouts", "fail"): ("reason",),
    ("payouts", "return"): ("reason",),
    ("deposit-references", "transfer"): ("amount",),
    ("events", "redeliver"): ("endpoint_id",),
}


def _clock(engine: Engine, project: Controls, data: Json) -> Json:
    """Any of advance (seconds), offset (seconds), freeze (true or a date-time) and unfreeze (true)."""
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


def _tick(engine: Engine, project: Controls, data: Json) -> Json:
    engine.tick()
    return {"now": iso(engine.clock.now())}


def _clear_faults(engine: Engine, project: Controls, data: Json) -> Json:
    engine.faults.clear()
    return {"faults": []}


def _revoke_key(engine: Engine, project: Controls, data: Json) -> Json:
    project.revoke_key(data.get("api_key"))
    return {"revoked": True}


def _add_key(engine: Engine, project: Controls, data: Json) -> Json:
    project.add_key(str(data["api_key"]))
    return {"added": True}


def _whitelist(engine: Engine, project: Controls, data: Json) -> Json:
    project.whitelist(str(data["account_number"]))
    return {"added": True}


def _trigger(engine: Engine, project: Controls, data: Json) -> Json:
    """``{"event": "payment.succeeded", "set": {"amount": 11980}}``, or with ``"object": "pay_…"`` instead of set."""
    data = {name: value for name, value in data.items() if value is not None}
    for name, value in data.items():
        kind = {"event": str, "set": dict, "object": str}.get(name)
        if kind is None:
            raise ApiError("parameter_invalid", "Use event, set and object.", param=name)
        if not isinstance(value, kind):
            raise ApiError("parameter_invalid", f"This must be {_KINDS[kind]}.", param=name)
    if "event" not in data:
        raise ApiError("parameter_missing", f"Name one of {', '.join(EVENT_TYPES)}.", param="event")
    return project.trigger(data["event"], data.get("set"), data.get("object"))


_KINDS: Final[dict[type, str]] = {str: "a string", dict: "an object"}

PROJECT_ACTIONS: Final[dict[tuple[str, str], ProjectAction]] = {
    ("POST", "fund"): lambda engine, project, data: project.fund(data["currency"], data["amount"]),
    ("POST", "reserve"): lambda engine, project, data: project.set_reserve(data["currency"], data["amount"]),
    ("POST", "clock"): _clock,
    ("GET", "clock"): _clock,
    ("POST", "trigger"): _trigger,
    ("POST", "tick"): _tick,
    ("POST", "deliver"): lambda engine, project, data: {"attempts": engine.deliver_due()},
    ("GET", "faults"): lambda engine, project, data: {"faults": [fault.wire() for fault in engine.faults.all()]},
    ("POST", "faults"): lambda engine, project, data: engine.faults.add(Fault.from_wire(data)).wire(),
    ("DELETE", "faults"): _clear_faults,
    ("POST", "endpoints"): lambda engine, project, data: project.add_endpoint(
        data["url"], data.get("events"), data.get("secret")
    ),
    ("POST", "projects"): lambda engine, project, data: {"api_key": engine.add_project(str(data["api_key"])).api_key},
    ("POST", "terms"): lambda engine, project, data: project.set_terms(**data),
    ("POST", "keys"): _add_key,
    ("POST", "revoke"): _revoke_key,
    ("POST", "whitelist"): _whitelist,
}


def _of_project(operation: str) -> Listing:
    """A list of the provider's interface, with its filters."""
    return lambda engine, project, call: OPERATIONS[operation](project.state, call)[1]


def _deposit_references(engine: Engine, project: Project, call: Call) -> Json:
    call.only("limit", "starting_after", "merchant_reference")
    reference = call.equal("merchant_reference", call.query.get("merchant_reference"))
    return call.page(project.state.deposit_references.items, reference)[1]


def _endpoints(engine: Engine, project: Project, call: Call) -> Json:
    call.only("limit", "starting_after")
    endpoints = project.state.endpoints.by_id.values()
    return _page([{**endpoint.wire(), **endpoint.health()} for endpoint in endpoints], call, "id")


def _requests(engine: Engine, project: Project, call: Call) -> Json:
    """Without API keys: a log ends up on screens and in bug reports."""
    page = _page(engine.gateway.log, call, "request_id", "method", "path", "operation", "status", "error")
    page["data"] = [{name: value for name, value in entry.items() if name != "api_key"} for entry in page["data"]]
    return page


def _deliveries(engine: Engine, project: Project, call: Call) -> Json:
    return _page(engine.dispatcher.log, call, "id", "event_id", "event_type", "endpoint_id", "status")


def _page(items: Sequence[Json], call: Call, id_field: str, *filters: str) -> Json:
    """A page as the provider's lists have it, newest first; a filter is the text of a field."""
    call.only("limit", "starting_after", *filters)
    limit, after = call.integer("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT, call.query.get("starting_after")
    wanted = {name: call.query[name] for name in filters if name in call.query}
    newest = reversed(items)  # an iterator: the search for the cursor leaves the older ones
    if after is not None and all(item[id_field] != after for item in newest):
        raise ApiError("resource_not_found", "There is no such object to start after.", param="starting_after")
    found: list[Json] = []
    for item in newest:
        if all(str(item[name]) == value for name, value in wanted.items()):
            found.append(item)
        if len(found) > limit:
            break
    return {"object": "list", "has_more": len(found) > limit, "data": found[:limit]}


LISTS: Final[dict[str, Listing]] = {
    "payments": _of_project("list_payments"),
    "payouts": _of_project("list_payouts"),
    "refunds": _of_project("list_refunds"),
    "deposit-references": _deposit_references,
    "endpoints": _endpoints,
    "events": _of_project("list_events"),
    "requests": _requests,
    "deliveries": _deliveries,
}


def books(request: HttpRequest) -> HttpResponse:
    """``GET /_sandbox/books``: the whole content of the sandbox, with the audit."""
    if request.method != "GET":
        return _error(405, "only GET is allowed here")
    engine = engine_of(request)
    engine.tick()
    return _json(engine.books())


def object_action(request: HttpRequest, collection: str, object_id: str, action: str) -> HttpResponse:
    """``POST /_sandbox/<collection>/<id>/<action>``: change one object; answers with the object."""
    run = OBJECT_ACTIONS.get((collection, action))
    if run is None:
        return _error(404, f"there is no {action!r} for {collection}")
    if request.method != "POST":
        return _error(405, "only POST is allowed here")

    def act(engine: Engine, data: Json) -> Any:
        for name in data:
            if name not in OBJECT_FIELDS.get((collection, action), ()):
                raise ApiError("parameter_invalid", "This parameter is not known.", param=name)
        return run(engine, object_id, data)

    return _respond(request, act)


def project_action(request: HttpRequest, action: str) -> HttpResponse:
    """``/_sandbox/<action>``: act on a project or the engine, such as fund, clock or faults; or a list."""
    if request.method == "GET" and action in LISTS:
        return _list(request, LISTS[action])
    run = PROJECT_ACTIONS.get((request.method or "", action))
    if run is None:
        return _error(404, f"there is no {request.method} /_sandbox/{action}")
    return _respond(request, lambda engine, data: run(engine, _project(engine, request), data))


def _list(request: HttpRequest, run: Listing) -> HttpResponse:
    query = {name: value for name, value in query_params(request).items() if name != "project"}

    def listing(engine: Engine, data: Json) -> Json:
        engine.tick()
        with engine.lock:
            return copy.deepcopy(run(engine, _project(engine, request), Call(query=query)))

    return _respond(request, listing)


def _project(engine: Engine, request: HttpRequest) -> Project:
    """The project of the API key in ``?project=`` or in the Authorization header; else the default project."""
    key = query_params(request).get("project", bearer_token(request.headers.get("Authorization", "")))
    if key is None:
        return engine.default_project
    for project in engine.projects.values():
        if key in project.state.keys:
            return project
    raise UnknownObjectError("no project of this sandbox has this API key")


def _respond(request: HttpRequest, run: Callable[[Engine, Json], Any]) -> HttpResponse:
    if is_cross_site(request):
        return _error(403, "a page of another site sent this request")
    try:
        return _json(run(engine_of(request), json_body(request)))
    except ApiError as error:
        return _json(error.envelope(new_id("req")), error.status)
    except UnknownObjectError as error:
        return _error(404, str(error))
    except SandboxError as error:
        return _error(422, str(error))
    except KeyError as error:
        missing = ApiError("parameter_missing", "This parameter is required.", param=str(error.args[0]))
        return _json(missing.envelope(new_id("req")), missing.status)
    except (ValueError, TypeError) as error:
        return _error(400, f"{type(error).__name__}: {error}")


def _json(data: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(encode_json(data), status=status, content_type="application/json")


def _error(status: int, message: str) -> HttpResponse:
    code = "resource_not_found" if status == 404 else "parameter_invalid"
    error = {"type": "invalid_request_error", "code": code, "message": message, "request_id": new_id("req")}
    return _json({"error": error}, status)
