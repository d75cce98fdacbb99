"""One request's way through the API: key, rate, route, idempotency, operation ("Common rules")."""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import AbstractContextManager
from email.utils import format_datetime
from typing import Any, Final, Protocol

from .clock import Clock
from .distortion import distort, dump, error_answer
from .errors import ApiError
from .faults import Fault, FaultBox
from .idempotency import Answer
from .operations import OPERATIONS, Call, Operation
from .project import Project
from .ratelimit import RateLimiter
from .shapes import MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY, Wire, iso, new_id
from .wire import ApiAnswer, ApiRequest, Trace

LOG_SIZE: Final = 100_000


class Host(Protocol):
    """What the gateway needs of the engine."""

    def project_with_key(self, api_key: str) -> Project | None:
        """The project that this key belongs to, valid or revoked."""

    def tick(self) -> None:
        """Let everything happen that is due."""


class Gateway:
    """Answers API requests. One answer is worked out at a time; pauses are made without the lock."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        lock: AbstractContextManager[object],
        faults: FaultBox,
        limiter: RateLimiter,
    ) -> None:
        self.log: deque[Wire] = deque(maxlen=LOG_SIZE)
        self.closing = threading.Event()  # set while a server stops: ends all pauses
        self._host = host
        self._clock = clock
        self._lock = lock
        self._faults = faults
        self._limiter = limiter

    def handle(self, request: ApiRequest) -> ApiAnswer:
        """The answer to one request. Never raises: what goes wrong inside is an internal_error."""
        trace = Trace(new_id("req"), request.operations.get(request.method), _bearer(request))
        fault = self._faults.for_request(request.method, request.path, trace.operation, trace.api_key)
        trace.fault = None if fault is None else fault.kind
        headers = self._limiter.untouched(write=request.method != "GET")
        if fault is None or fault.work or fault.kind == "slow":
            answer = self._work(request, trace, fault, headers)
        else:
            answer = ApiAnswer(500, b"")
        if fault is not None:
            if fault.kind == "slow" and fault.work:
                self.closing.wait(fault.delay)
            answer = distort(answer, fault, trace.request_id)
        date = {} if fault is not None and fault.kind == "no_date" else {"Date": self._date()}
        answer.headers = {"Content-Type": "application/json", **headers, **date, **answer.headers}
        self._write_log(request, trace, answer)
        return answer

    # the steps

    def _work(self, request: ApiRequest, trace: Trace, fault: Fault | None, headers: dict[str, str]) -> ApiAnswer:
        pause = fault.delay if fault is not None and fault.kind == "slow" and not fault.work else None
        try:
            with self._lock:
                project, api_key = self._authenticate(trace.api_key)
                self._count(project, api_key, request, headers)
            operation = self._route(request)
            if request.method == "POST":
                return self._once(project, operation, request, trace, pause)
            self.closing.wait(pause or 0)
            return self._run(project, operation, request, {})
        except ApiError as error:
            return error_answer(error, trace.request_id)
        except Exception as error:  # a bug in the sandbox is told as the provider would tell it
            return error_answer(ApiError("internal_error", f"{type(error).__name__}: {error}"), trace.request_id)

    def _authenticate(self, api_key: str | None) -> tuple[Project, str]:
        project = None if api_key is None else self._host.project_with_key(api_key)
        if project is None or api_key is None:
            raise ApiError("api_key_invalid", headers={"WWW-Authenticate": "Bearer"})
        if not project.keys[api_key]:
            raise ApiError("api_key_revoked", headers={"WWW-Authenticate": "Bearer"})
        return project, api_key

    def _count(self, project: Project, api_key: str, request: ApiRequest, headers: dict[str, str]) -> None:
        allowed, counted = self._limiter.take(api_key, write=request.method != "GET")
        headers.update(counted)
        if not allowed:
            raise ApiError("rate_limited", headers={"Retry-After": counted["Retry-After"]})
        if not project.terms.active:
            raise ApiError("merchant_not_active")

    def _route(self, request: ApiRequest) -> Operation:
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
        return OPERATIONS[name]

    def _once(
        self, project: Project, operation: Operation, request: ApiRequest, trace: Trace, pause: float | None
    ) -> ApiAnswer:
        """A POST under its idempotency key.

        Stored under the key: successes, and every 4xx that the operation itself decides on. Not stored: what
        is refused before it (key, rate, syntax) and 5xx.
        """
        key = _idempotency_key(request)
        body = _json_object(request, bodiless=operation.bodiless)
        with self._lock:
            known = project.idempotency.claim(key, request.method, request.path, request.body)
        if known is not None:
            trace.replayed = True
            return ApiAnswer(known.status, known.body)
        answer: ApiAnswer | None = None
        try:
            self.closing.wait(pause or 0)
            with self._lock:
                try:
                    answer = self._run(project, operation, request, body)
                except ApiError as error:
                    if error.status >= 500:
                        raise
                    answer = error_answer(error, trace.request_id)
                project.idempotency.settle(key, Answer(answer.status, answer.body))
        finally:
            if answer is None:
                with self._lock:
                    project.idempotency.release(key)
        return answer

    def _run(self, project: Project, operation: Operation, request: ApiRequest, body: Wire) -> ApiAnswer:
        with self._lock:
            self._host.tick()
            status, data = operation.run(project, Call(request.object_id, request.query, body))
            return ApiAnswer(status, dump(data))

    def _date(self) -> str:
        return format_datetime(self._clock.now(), usegmt=True)

    def _write_log(self, request: ApiRequest, trace: Trace, answer: ApiAnswer) -> None:
        sent = trace.fault != "reset"
        with self._lock:
            self.log.append(
                {
                    "at": iso(self._clock.now()),
                    "method": request.method,
                    "path": request.path,
                    "idempotency_key": request.headers.get("idempotency-key"),
                    "status": answer.status if sent else None,
                    **trace.wire(),
                }
            )


def _bearer(request: ApiRequest) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _idempotency_key(request: ApiRequest) -> str:
    key = request.headers.get("idempotency-key", "")
    if not key:
        raise ApiError("parameter_missing", "Every POST carries this header.", param="Idempotency-Key")
    if len(key) > MAX_IDEMPOTENCY_KEY:
        raise ApiError(
            "parameter_invalid",
            f"At most {MAX_IDEMPOTENCY_KEY} characters are allowed.",
            param="Idempotency-Key",
        )
    return key


def _json_object(request: ApiRequest, *, bodiless: bool) -> Wire:
    if len(request.body) > MAX_BODY_BYTES:
        raise ApiError("parameter_invalid", f"The body has more than {MAX_BODY_BYTES} bytes.", status=413)
    if bodiless and not request.body:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError("parameter_invalid", "The body must be sent as application/json.", status=415)
    try:
        data = json.loads(request.body.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
        dump({"data": data})  # text that cannot be encoded again, such as half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ApiError("parameter_invalid", "The body is not valid JSON in UTF-8.") from error
    if not isinstance(data, dict):
        raise ApiError("parameter_invalid", "The body must be a JSON object.")
    if bodiless and data:
        raise ApiError("parameter_invalid", "This request takes no body.", param=next(iter(data)))
    return data


def _without_repeats(pairs: list[tuple[str, Any]]) -> Wire:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
