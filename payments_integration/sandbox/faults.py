"""Make faults on demand: which request or delivery goes wrong, how, and how often."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Final

from .protocol import (
    CATALOGUE,
    EVENT_TYPES,
    OPERATION_IDS,
    REQUEST_METHODS,
    ApiError,
    ApiResponse,
    ConnectionFault,
    Json,
    encode_json,
    error_response,
)
from .resources import new_id

# Faults of API requests. In the first group, ``work=True`` executes the request.
REQUEST_KINDS: Final = (
    "reset",  # the connection is reset without a response
    "error",  # an error envelope with ``code`` (internal_error) and ``status``
    "html",  # 200 with an HTML page
    "redirect",  # 302
    "rate_limited",  # 429; ``retry_after`` is the value of the header, None leaves it out
    "in_progress",  # 409 idempotency_in_progress
    "slow",  # ``delay`` seconds before the request is executed; with work=True, before the response is sent
    # the request is always executed
    "truncate",  # half of the body is sent, then the connection is closed
    "drip",  # the body is sent in ``count`` pieces, ``delay`` seconds before each
    "wrong_id",  # the response has another id
    "wrong_kind",  # the response is an object of another type
    "no_date",  # no Date header
    "empty_page",  # a list has ``has_more`` and no data
)
# Faults of deliveries.
DELIVERY_KINDS: Final = (
    "duplicate",  # sent twice
    "reorder",  # sent after ``count`` later deliveries to the same endpoint, or after ``delay`` seconds
    "drop",  # logged as acknowledged but never sent; the event stays in GET /events
    "delay",  # first sent ``delay`` seconds later on the sandbox's clock
    "bad_signature",  # signed with a wrong secret
)
#: Only requests have the first, and only deliveries have the second. Both have ``api_key``.
REQUEST_FILTERS: Final = ("method", "path", "operation")
DELIVERY_FILTERS: Final = ("event_type", "endpoint_id")
ALWAYS_EXECUTED: Final = ("truncate", "drip", "wrong_id", "wrong_kind", "no_date", "empty_page")
DEFAULT_DELAYS: Final = {"reorder": 60.0, "delay": 60.0, "slow": 1.0, "drip": 0.05}
DEFAULT_COUNTS: Final = {"drip": 10}

HTML: Final = b"<!doctype html><html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>"
# For wrong_kind: the type and id prefix to send in place of these. All other types become a payment.
OTHER_KINDS: Final = {"payment": ("payout", "pout"), "event": ("payment", "pay")}


@dataclass
class Fault:
    """One fault. It applies to the first ``times`` requests or deliveries that match all its filters.

    With ``times=None`` it applies until it is cleared. ``path`` is a prefix, with or without ``/v1``. ``operation`` is
    a name such as ``create_payout``. ``retry_after`` is sent unchanged: "-1", "999999", "soon". ``delay`` is in
    seconds. Raises ValueError for a value that is not known, and for a fault that could never apply.
    """

    kind: str
    times: int | None = 1
    probability: float = 1.0
    method: str | None = None
    path: str | None = None
    operation: str | None = None
    event_type: str | None = None
    endpoint_id: str | None = None
    api_key: str | None = None
    work: bool = False
    status: int | None = None
    code: str | None = None
    retry_after: str | None = None
    delay: float | None = None
    count: int | None = None
    used: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {
            "kind": (*REQUEST_KINDS, *DELIVERY_KINDS),
            "method": REQUEST_METHODS,
            "operation": OPERATION_IDS,
            "event_type": EVENT_TYPES,
            "code": CATALOGUE,
        }
        for name, names in known.items():
            value = getattr(self, name)
            if value not in names and (name == "kind" or value is not None):
                raise ValueError(f"unknown {name} {value!r}: one of {', '.join(names)}")
        is_of_request = self.kind in REQUEST_KINDS
        for name in DELIVERY_FILTERS if is_of_request else REQUEST_FILTERS:
            if getattr(self, name) is not None:
                what, filters = ("requests", REQUEST_FILTERS) if is_of_request else ("deliveries", DELIVERY_FILTERS)
                raise ValueError(
                    f"{name} does not fit {self.kind!r}, a fault of {what}: use {', '.join((*filters, 'api_key'))}"
                )
        if self.path is not None and not self.path.startswith("/"):
            raise ValueError(f"path {self.path!r} must begin with a slash, as in /payments")
        if self.times is not None and self.times < 1:
            raise ValueError("times is at least 1, or None for no end")
        if not 0 <= self.probability <= 1:
            raise ValueError("a probability is between 0 and 1")
        if self.kind in ALWAYS_EXECUTED:
            self.work = True
        if self.delay is None:
            self.delay = DEFAULT_DELAYS.get(self.kind, 0.0)
        if self.count is None:
            self.count = DEFAULT_COUNTS.get(self.kind, 1)

    def wire(self) -> Json:
        """Return the fault as a dict. ``used`` says how often it has applied."""
        return asdict(self)

    @property
    def spent(self) -> bool:
        """True if it has applied ``times`` times."""
        return self.times is not None and self.used >= self.times


class FaultRegistry:
    """The active faults, in the order they were added. Only the first match applies to a request or delivery.

    ``common`` holds the faults of all projects. They apply if none of this project's own faults does.
    """

    def __init__(self, seed: int = 0, common: FaultRegistry | None = None) -> None:
        self._common = common
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._seed = seed
        self._random = random.Random(seed)

    def add(self, fault: Fault) -> Fault:
        """Activate a fault. Its ``used`` counts how often it has applied."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def reset(self) -> None:
        """Remove all faults, and start the random numbers again from the seed."""
        with self._lock:
            self._faults.clear()
            self._random = random.Random(self._seed)

    def all(self) -> list[Fault]:
        """Return all faults since the last clear, spent or not."""
        with self._lock:
            return list(self._faults)

    def restore(self, faults: list[Fault]) -> None:
        """Replace all faults."""
        with self._lock:
            self._faults = list(faults)

    def take_for_request(self, method: str, path: str, operation: str | None, api_key: str | None) -> Fault | None:
        """Return the fault that applies to this API request, and count it as used; None if there is none."""
        short = path.removeprefix("/v1")

        def matches(fault: Fault) -> bool:
            return (
                fault.kind in REQUEST_KINDS
                and fault.method in (None, method)
                and (fault.path is None or path.startswith(fault.path) or short.startswith(fault.path))
                and fault.operation in (None, operation)
                and fault.api_key in (None, api_key)
            )

        return self._take(matches)

    def take_for_delivery(self, event_type: str, endpoint_id: str, api_key: str) -> Fault | None:
        """Return the fault that applies to the first attempt of this delivery, and count it as used; or None."""

        def matches(fault: Fault) -> bool:
            return (
                fault.kind in DELIVERY_KINDS
                and fault.event_type in (None, event_type)
                and fault.endpoint_id in (None, endpoint_id)
                and fault.api_key in (None, api_key)
            )

        return self._take(matches)

    def _take(self, matches: Callable[[Fault], bool]) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.spent or not matches(fault):
                    continue
                if fault.probability < 1 and self._random.random() >= fault.probability:
                    continue
                fault.used += 1
                return fault
        return None if self._common is None else self._common._take(matches)


def apply_fault(response: ApiResponse, fault: Fault, request_id: str) -> ApiResponse:
    """Return the response to send in place of this one."""
    if fault.kind in ("reset", "truncate", "drip"):
        return ApiResponse(
            response.status,
            response.body,
            response.headers,
            ConnectionFault(fault.kind, fault.delay or 0.0, fault.count or 1),
        )
    if fault.kind == "html":
        return ApiResponse(fault.status or 200, HTML, {"Content-Type": "text/html; charset=utf-8"})
    if fault.kind == "redirect":
        return ApiResponse(fault.status or 302, b"", {"Location": "/maintenance", "Content-Type": "text/html"})
    if fault.kind in ("wrong_id", "wrong_kind", "empty_page"):
        return ApiResponse(response.status, _falsify(response.body, fault.kind), response.headers)
    code = {"rate_limited": "rate_limited", "in_progress": "idempotency_in_progress"}.get(fault.kind)
    if code is not None or fault.kind == "error":
        headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
        error = ApiError(code or fault.code or "internal_error", status=fault.status, headers=headers)
        return error_response(error, request_id)
    return response


def _falsify(body: bytes, kind: str) -> bytes:
    data: Json = json.loads(body)
    if kind == "empty_page":
        return encode_json({**data, "data": [], "has_more": True}) if "data" in data else body
    listed = data.get("data")
    target = listed[0] if isinstance(listed, list) and listed else data
    if "id" not in target:
        return body
    prefix = str(target["id"]).partition("_")[0]
    if kind == "wrong_kind":
        target["object"], prefix = OTHER_KINDS.get(target.get("object", ""), ("payment", "pay"))
    target["id"] = new_id(prefix)
    return encode_json(data)
