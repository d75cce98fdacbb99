"""Take the steps of one API request: key, rate limit, route, idempotency, operation ("Common rules")."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Final, Protocol

from .clock import Clock, iso
from .common_rules import RateLimiter, bearer_token, idempotency_key, json_object
from .faults import Fault, apply_fault
from .operations import BODILESS, OPERATIONS, Call
from .project import ProjectState
from .protocol import MESSAGES, ApiError, ApiRequest, ApiResponse, Json, encode_json, error_response
from .resources import new_id

LOG_SIZE: Final = 100_000
#: The number of the newest requests whose bodies are kept, and the bytes that are kept of each.
BODIES: Final = 200
BODY_BYTES: Final = 64 * 1024


class Host(Protocol):
    """The part of the engine that the gateway uses."""

    def project_with_key(self, api_key: str) -> ProjectState | None:
        """Return the project of an API key, valid or revoked; None for an unknown key."""

    def project_of(self, object_id: str | None) -> ProjectState:
        """Return the default project, for None."""

    def tick(self) -> None:
        """Do everything that is due on the clock."""


@dataclass
class LogEntry:
    """The log's data about a request, in addition to method, path, key and status."""

    request_id: str
    operation: str | None = None
    api_key: str | None = None
    error: str | None = None
    fault: str | None = None
    replayed: bool = False


class Gateway:
    """Answers API requests. It computes one response at a time, but waits out pauses without the lock."""

    def __init__(self, host: Host, lock: AbstractContextManager[object], limiter: RateLimiter) -> None:
        self.log: deque[Json] = deque(maxlen=LOG_SIZE)
        #: The bodies of the newest requests and of their answers, by request_id.
        self.bodies: dict[str, tuple[bytes, bytes]] = {}
        #: Called with each entry of the log.
        self.watcher: Callable[[Json], object] = lambda entry: None
        self.closing = threading.Event()  # set while a server stops: ends all pauses
        self._host = host
        self._lock = lock
        self._limiter = limiter

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Return the response to one request. Never raises: an unexpected exception becomes an internal_error."""
        entry = LogEntry(new_id("req"), request.operations.get(request.method))
        token = bearer_token(request.headers.get("authorization", ""))
        with self._lock:
            project = None if token is None else self._host.project_with_key(token)
            if project is not None:
                entry.api_key = token  # keep no other text, because it could be a live key
            owner = project or self._host.project_of(None)
        fault = owner.faults.take_for_request(request.method, request.path, entry.operation, token)
        entry.fault = None if fault is None else fault.kind
        headers = self._limiter.full_headers(write=request.method != "GET")
        if fault is None or fault.work or fault.kind == "slow":
            response = self._execute(request, entry, fault, headers)
        else:
            response = ApiResponse(500, b"")
        if fault is not None:
            if fault.kind == "slow" and fault.work:
                self.closing.wait(fault.delay)
            response = apply_fault(response, fault, entry.request_id)
        date = {"Date": format_datetime(owner.clock.now(), usegmt=True)}
        if fault is not None and fault.kind == "no_date":
            date = {}
        response.headers = {"Content-Type": "application/json", **headers, **date, **response.headers}
        entry.error = _error_code(response)
        self._write_log(request, entry, response, owner.clock)
        return response

    def requests_of(self, project: ProjectState) -> list[Json]:
        """Return the log of one project. The default project's includes the requests without a valid API key."""
        keys: set[str | None] = set(project.keys)
        if project is self._host.project_of(None):
            keys.add(None)
        with self._lock:
            return [entry for entry in self.log if entry["api_key"] in keys]

    def forget(self, api_keys: Collection[str] | None) -> None:
        """Delete the log of these keys; None means the whole log."""
        with self._lock:
            kept = [] if api_keys is None else [entry for entry in self.log if entry["api_key"] not in api_keys]
            self.log.clear()
            self.log.extend(kept)
            ids = {entry["request_id"] for entry in kept}
            self.bodies = {request_id: pair for request_id, pair in self.bodies.items() if request_id in ids}

    def _execute(
        self, request: ApiRequest, entry: LogEntry, fault: Fault | None, headers: dict[str, str]
    ) -> ApiResponse:
        pause = fault.delay if fault is not None and fault.kind == "slow" and not fault.work else None
        try:
            with self._lock:
                project, api_key = self._authenticate(entry.api_key)
                self._check_limits(project, api_key, request, headers)
            operation = self._route(request)
            if request.method == "POST":
                return self._run_once(project, operation, request, entry, pause)
            self.closing.wait(pause or 0)
            return self._run(project, operation, request, {})
        except ApiError as error:
            return error_response(error, entry.request_id)
        except Exception as error:  # a bug in the sandbox looks like a failure of the provider
            return error_response(ApiError("internal_error", f"{type(error).__name__}: {error}"), entry.request_id)

    def _authenticate(self, api_key: str | None) -> tuple[ProjectState, str]:
        project = None if api_key is None else self._host.project_with_key(api_key)
        if project is None or api_key is None:
            message = (
                f"{MESSAGES['api_key_invalid']} Start the sandbox with --api-key, or add the key of a further account "
                "with POST /_sandbox/projects."
            )
            raise ApiError("api_key_invalid", message, headers={"WWW-Authenticate": "Bearer"})
        if not project.keys[api_key]:
            raise ApiError("api_key_revoked", headers={"WWW-Authenticate": "Bearer"})
        return project, api_key

    def _check_limits(self, project: ProjectState, api_key: str, request: ApiRequest, headers: dict[str, str]) -> None:
        allowed, limit_headers = self._limiter.take(api_key, write=request.method != "GET")
        headers.update(limit_headers)
        if not allowed:
            raise ApiError("rate_limited", headers={"Retry-After": limit_headers["Retry-After"]})
        if not project.terms.active:
            raise ApiError("merchant_not_active")

    def _route(self, request: ApiRequest) -> str:
        if not request.operations:
            raise ApiError("resource_not_found", f"There is nothing at {request.path}.")
        name = request.operations.get(request.method)
        if name is None:
            raise ApiError(
                "method_not_allowed",
                f"{request.method} is not allowed at {request.path}.",
                status=405,
                kind="invalid_request_error",
                headers={"Allow": ", ".join(sorted(request.operations))},
            )
        return name

    def _run_once(
        self, project: ProjectState, operation: str, request: ApiRequest, entry: LogEntry, pause: float | None
    ) -> ApiResponse:
        """Run a POST under its idempotency key.

        Successes and the operation's own 4xx errors are stored under the key. A 5xx, and an error raised before the
        operation (API key, rate limit, syntax), are not stored.
        """
        key = idempotency_key(request)
        body = json_object(request, bodiless=operation in BODILESS)
        with self._lock:
            stored = project.idempotency.begin(key, request.method, request.path, request.body)
        if stored is not None:
            entry.replayed = True
            return ApiResponse(*stored)
        response: ApiResponse | None = None
        try:
            self.closing.wait(pause or 0)
            with self._lock:
                try:
                    response = self._run(project, operation, request, body)
                except ApiError as error:
                    if error.status >= 500:
                        raise
                    response = error_response(error, entry.request_id)
                project.idempotency.store(key, (response.status, response.body))
        finally:
            if response is None:
                with self._lock:
                    project.idempotency.release(key)
        return response

    def _run(self, project: ProjectState, operation: str, request: ApiRequest, body: Json) -> ApiResponse:
        with self._lock:
            self._host.tick()
            status, data = OPERATIONS[operation](project, Call(request.object_id, request.query, body))
            return ApiResponse(status, encode_json(data))

    def _write_log(self, request: ApiRequest, entry: LogEntry, response: ApiResponse, clock: Clock) -> None:
        with self._lock:
            line = {
                "at": iso(clock.now()),
                "method": request.method,
                "path": request.path,
                "idempotency_key": request.headers.get("idempotency-key"),
                "status": None if entry.fault == "reset" else response.status,
                **vars(entry),
            }
            self.log.append(line)
            sent = b"" if entry.fault == "reset" else response.body
            self.bodies[entry.request_id] = request.body[:BODY_BYTES], sent[:BODY_BYTES]
            while len(self.bodies) > BODIES:
                del self.bodies[next(iter(self.bodies))]
        self.watcher(line)


def _error_code(response: ApiResponse) -> str | None:
    """Return the code of the sent error if it is in the provider's envelope, otherwise None."""
    if response.status < 400 or not response.body.startswith(b'{"error":'):
        return None
    code = json.loads(response.body)["error"]["code"]
    return str(code)
