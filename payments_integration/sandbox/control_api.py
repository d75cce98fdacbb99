"""Serve the control interface under ``/_sandbox/``: the engine's methods as JSON over HTTP, for other processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from .clock import iso, parse_iso
from .common_rules import bearer_token
from .control_fields import OBJECT_FIELDS, PROJECT_FIELDS, check
from .controls import Project
from .engine import Engine
from .faults import Fault
from .operations import OPERATIONS, Call
from .protocol import ApiError, Json, encode_json
from .resources import DEFAULT_LIMIT, MAX_LIMIT, SandboxError, UnknownObjectError, new_id
from .views import engine_of, is_cross_site, json_body, query_params

ObjectAction = Callable[[Engine, str, Json], Any]
ProjectAction = Callable[[Engine, Project, Json], Any]
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
    ("deposit-references", "transfer"): lambda engine, object_id, data: engine.transfer(object_id, data["amount"]),
    ("deposit-references", "disable"): lambda engine, object_id, data: engine.disable_deposit_reference(object_id),
    ("endpoints", "enable"): lambda engine, object_id, data: engine.enable_endpoint(object_id),
    ("events", "redeliver"): lambda engine, object_id, data: {
        "queued": engine.redeliver(object_id, data.get("endpoint_id"))
    },
}


def _clock(engine: Engine, project: Project, data: Json) -> Json:
    """Apply offset (seconds), freeze (true or a date-time), unfreeze (true) and advance (seconds), in this order."""
    clock = project.clock
    try:
        if "offset" in data:
            clock.set_offset(data["offset"])
        if freeze := data.get("freeze"):
            clock.freeze(parse_iso(freeze) if isinstance(freeze, str) else None)
        if data.get("unfreeze"):
            clock.unfreeze()
        if "advance" in data:
            clock.advance(data["advance"])
    except OverflowError as error:
        raise ApiError("parameter_invalid", "The clock shows the years 1 to 9999.", param=next(iter(data))) from error
    return {"now": iso(clock.now()), "frozen": clock.is_frozen}


def _tick(engine: Engine, project: Project, data: Json) -> Json:
    engine.tick()
    return {"now": iso(project.clock.now())}


def _add_fault(engine: Engine, project: Project, data: Json) -> Json:
    try:
        return project.faults.add(Fault(**data)).wire()
    except ValueError as error:
        raise ApiError("parameter_invalid", str(error), param=str(error).split()[0]) from error


def _clear_faults(engine: Engine, project: Project, data: Json) -> Json:
    project.faults.clear()
    return {"faults": []}


def _reserve(engine: Engine, project: Project, data: Json) -> Json:
    with engine.lock:
        balance = project.balances[data["currency"]]
        if data["amount"] > (most := balance["available"] + balance["reserve"]):
            message = f"This must be at most {most}, the available balance and the present reserve."
            raise ApiError("parameter_invalid", message, param="amount")
        return project.set_reserve(data["currency"], data["amount"])


def _revoke_key(engine: Engine, project: Project, data: Json) -> Json:
    if data.get("api_key") not in (None, *project.state.keys):
        raise ApiError("parameter_invalid", "This must be an API key of the project.", param="api_key")
    project.revoke_key(data.get("api_key"))
    return {"revoked": True}


def _add_key(engine: Engine, project: Project, data: Json) -> Json:
    with engine.lock:
        if engine.project_with_key(data["api_key"]) not in (None, project.state):
            raise ApiError("parameter_invalid", "This must be a key of no other project.", param="api_key")
        project.add_key(data["api_key"])
    return {"added": True}


def _add_project(engine: Engine, project: Project, data: Json) -> Json:
    try:
        return {"api_key": engine.add_project(data["api_key"]).api_key}
    except ValueError as error:
        raise ApiError("parameter_invalid", "This must be a key of no other project.", param="api_key") from error


def _reset(engine: Engine, project: Project, data: Json) -> Json:
    """Reset everything."""
    engine.reset()
    return {"api_key": engine.default_project.api_key}


def _whitelist(engine: Engine, project: Project, data: Json) -> Json:
    project.whitelist(data["account_number"])
    return {"added": True}


PROJECT_ACTIONS: Final[dict[tuple[str, str], ProjectAction]] = {
    ("POST", "fund"): lambda engine, project, data: project.fund(data["currency"], data["amount"]),
    ("POST", "reserve"): _reserve,
    ("POST", "clock"): _clock,
    ("GET", "clock"): _clock,
    ("POST", "trigger"): lambda engine, project, data: project.trigger(
        data["event"], data.get("set"), data.get("object")
    ),
    ("POST", "tick"): _tick,
    ("POST", "deliver"): lambda engine, project, data: {"attempts": engine.deliver_due(project)},
    ("GET", "faults"): lambda engine, project, data: {"faults": [fault.wire() for fault in project.faults.all()]},
    ("POST", "faults"): _add_fault,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "endpoints"): lambda engine, project, data: project.add_endpoint(
        data["url"], data.get("events"), data.get("secret")
    ),
    ("POST", "projects"): _add_project,
    ("DELETE", "projects"): _reset,
    ("POST", "terms"): lambda engine, project, data: project.set_terms(**data),
    ("POST", "keys"): _add_key,
    ("POST", "revoke"): _revoke_key,
    ("POST", "whitelist"): _whitelist,
}


def _of_project(operation: str) -> Listing:
    """Return a function that lists objects like an operation of the provider's interface, with its filters."""
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
    """Return the log without API keys, because logs end up on screens and in bug reports."""
    page = _page(
        engine.gateway.requests_of(project.state), call, "request_id", "method", "path", "operation", "status", "error"
    )
    page["data"] = [{name: value for name, value in entry.items() if name != "api_key"} for entry in page["data"]]
    return page


def _deliveries(engine: Engine, project: Project, call: Call) -> Json:
    return _page(project.state.dispatcher.log, call, "id", "event_id", "event_type", "endpoint_id", "status")


def _page(items: Sequence[Json], call: Call, id_field: str, *filters: str) -> Json:
    """Return a page in the form of the provider's lists, newest first. A filter compares the text of a field."""
    call.only("limit", "starting_after", *filters)
    limit, after = call.integer("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT, call.query.get("starting_after")
    wanted = {name: call.query[name] for name in filters if name in call.query}
    newest = reversed(items)  # an iterator, so that the search for the cursor leaves the older items
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
    """Answer ``GET /_sandbox/books`` with the whole content of the sandbox and the audit."""
    if request.method != "GET":
        return _not_allowed(["GET"])
    engine = engine_of(request)
    engine.tick()
    return _json(engine.books())


def object_action(request: HttpRequest, collection: str, object_id: str, action: str) -> HttpResponse:
    """Change one object and answer with it: ``POST /_sandbox/<collection>/<id>/<action>``."""
    run = OBJECT_ACTIONS.get((collection, action))
    if run is None:
        known = dict.fromkeys(name for name, _ in OBJECT_ACTIONS)
        if collection not in known:
            return _error(404, f"there is no {collection!r}; use {_listed(known)}")
        actions = [name for found, name in OBJECT_ACTIONS if found == collection]
        return _error(404, f"there is no {action!r} for {collection}; use {_listed(actions)}")
    if request.method != "POST":
        return _not_allowed(["POST"])
    fields = OBJECT_FIELDS.get((collection, action), {})
    return _respond(request, lambda engine, data: run(engine, object_id, check(data, fields)))


def project_action(request: HttpRequest, action: str) -> HttpResponse:
    """Act on a project or the engine, such as fund, clock or faults, or answer a list: ``/_sandbox/<action>``."""
    method = request.method or ""
    if method == "GET" and action in LISTS:
        return _list(request, LISTS[action])
    run = PROJECT_ACTIONS.get((method, action))
    if run is None:
        methods = [name for name, found in PROJECT_ACTIONS if found == action]
        methods += ["GET"] if action in LISTS else []
        if methods:
            return _not_allowed(methods)
        known = dict.fromkeys(["books", *LISTS, *(name for _, name in PROJECT_ACTIONS)])
        return _error(404, f"there is no /_sandbox/{action}; use {_listed(known)}")
    fields = PROJECT_FIELDS.get(action, {}) if method == "POST" else {}

    def act(engine: Engine, data: Json) -> Any:
        # The request may carry the key of the project that it is about to make.
        project = engine.default_project if action == "projects" else _project(engine, request)
        return run(engine, project, check(data, fields))

    return _respond(request, act)


def one_project(request: HttpRequest, api_key: str) -> HttpResponse:
    """Reset only the project of this key: ``DELETE /_sandbox/projects/<api_key>``."""
    if request.method != "DELETE":
        return _not_allowed(["DELETE"])

    def reset(engine: Engine, data: Json) -> Json:
        check(data, {})
        project = _project_with(engine, api_key)
        engine.reset(project)
        return {"api_key": project.api_key}

    return _respond(request, reset)


def _list(request: HttpRequest, run: Listing) -> HttpResponse:
    query = {name: value for name, value in query_params(request).items() if name != "project"}

    def listing(engine: Engine, data: Json) -> Json:
        engine.tick()
        with engine.lock:
            return copy.deepcopy(run(engine, _project(engine, request), Call(query=query)))

    return _respond(request, listing)


def _project(engine: Engine, request: HttpRequest) -> Project:
    """Return the project of the API key in ``?project=`` or the Authorization header, or the default project."""
    key = query_params(request).get("project", bearer_token(request.headers.get("Authorization", "")))
    return engine.default_project if key is None else _project_with(engine, key)


def _project_with(engine: Engine, api_key: str) -> Project:
    for project in engine.projects.values():
        if api_key in project.state.keys:
            return project
    message = "No project of this sandbox has this API key. Make one with POST /_sandbox/projects."
    raise ApiError("resource_not_found", message, param="project")


def _respond(request: HttpRequest, run: Callable[[Engine, Json], Any]) -> HttpResponse:
    if is_cross_site(request):
        return _error(403, "a page of another site sent this request")
    try:
        data = json_body(request)
    except (ValueError, RecursionError) as error:
        return _error(400, f'the body must be a JSON object, such as {{"amount": 500}}: {error}')
    try:
        return _json(run(engine_of(request), data))
    except ApiError as error:
        return _json(error.envelope(new_id("req")), error.status)
    except UnknownObjectError as error:
        return _error(404, str(error))
    except SandboxError as error:
        return _error(422, str(error))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _not_allowed(methods: Sequence[str]) -> HttpResponse:
    response = _error(405, f"only {_listed(methods)} is allowed here")
    response.headers["Allow"] = _listed(methods)
    return response


def _json(data: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(encode_json(data), status=status, content_type="application/json")


def _error(status: int, message: str) -> HttpResponse:
    code = {404: "resource_not_found", 422: "invalid_state"}.get(status, "parameter_invalid")
    return _json(ApiError(code, message, status=status).envelope(new_id("req")), status)
