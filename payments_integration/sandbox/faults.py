"""Faults on demand: what goes wrong, how often, and with which request or delivery."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Final

from .errors import CATALOGUE
from .shapes import EVENT_TYPES, Wire

# Faults of API requests. For the first group ``work`` says whether the request is carried out all the same.
REQUEST_KINDS: Final = (
    "reset",  # the connection is reset, no answer
    "error",  # an envelope: ``code`` (internal_error), ``status``
    "html",  # 200 with an HTML page
    "redirect",  # 302
    "rate_limited",  # 429; ``retry_after`` is the header as it is sent, None leaves it out
    "in_progress",  # 409 idempotency_in_progress
    "slow",  # ``delay`` seconds, while the key counts as running; with work=True only the answer is late
    # the request is always carried out
    "truncate",  # half of the body, then the connection is closed
    "drip",  # the body in ``count`` pieces with ``delay`` seconds before each
    "wrong_id",  # the answer has another id
    "wrong_kind",  # the answer is an object of another kind
    "no_date",  # no Date header
    "empty_page",  # a list says has_more and has nothing in it
)
# Faults of deliveries.
DELIVERY_KINDS: Final = (
    "duplicate",  # sent twice
    "reorder",  # held back until ``count`` later ones went to the same endpoint, or ``delay`` seconds passed
    "drop",  # counted as delivered, never sent; stays in GET /events
    "delay",  # first sent ``delay`` seconds later, on the sandbox's clock
    "bad_signature",  # signed with a wrong secret
)
ALWAYS_AT_WORK: Final = ("truncate", "drip", "wrong_id", "wrong_kind", "no_date", "empty_page")
DEFAULT_DELAYS: Final = {"reorder": 60.0, "delay": 60.0, "slow": 1.0, "drip": 0.05}
DEFAULT_COUNTS: Final = {"drip": 10}


@dataclass
class Fault:
    """One fault. It hits the first ``times`` requests or deliveries that match all of its filters, then is
    used up.

    ``times=None`` goes on until cleared. ``path`` is a prefix, with or without ``/v1``; ``operation`` is a
    name of ``operations.OPERATIONS`` such as ``create_payout``. ``retry_after`` is sent as it stands: "-1",
    "999999", "soon".
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
        if self.kind not in (*REQUEST_KINDS, *DELIVERY_KINDS):
            raise ValueError(f"unknown fault {self.kind!r}: one of {', '.join((*REQUEST_KINDS, *DELIVERY_KINDS))}")
        if self.code is not None and self.code not in CATALOGUE:
            raise ValueError(f"unknown error code {self.code!r}")
        if self.event_type is not None and self.event_type not in EVENT_TYPES:
            raise ValueError(f"unknown event type {self.event_type!r}")
        if not 0 <= self.probability <= 1:
            raise ValueError("a probability is between 0 and 1")
        if self.kind in ALWAYS_AT_WORK:
            self.work = True
        if self.delay is None:
            self.delay = DEFAULT_DELAYS.get(self.kind, 0.0)
        if self.count is None:
            self.count = DEFAULT_COUNTS.get(self.kind, 1)

    @classmethod
    def from_wire(cls, data: Wire) -> Fault:
        """A fault out of JSON, with the fields of this class. Raises ValueError."""
        known = {item.name for item in fields(cls) if item.init}
        if unknown := set(data) - known:
            raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
        if not isinstance(data.get("kind"), str):
            raise ValueError("a fault needs its kind")
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(str(error)) from error

    def wire(self) -> Wire:
        """The fault and how often it was used."""
        return asdict(self)

    @property
    def spent(self) -> bool:
        """Whether it has struck as often as it was to."""
        return self.times is not None and self.used >= self.times


class FaultBox:
    """The faults in force, in the order they were added. At most one strikes a request or delivery: the first
    to match.
    """

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._random = random.Random(seed)

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force; its ``used`` counts how often it struck."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Take all faults out of force."""
        with self._lock:
            self._faults.clear()

    def all(self) -> list[Fault]:
        """All faults since the last clear, used up or not."""
        with self._lock:
            return list(self._faults)

    def for_request(self, method: str, path: str, operation: str | None, api_key: str | None) -> Fault | None:
        """The fault that strikes this API request, counted as used."""
        short = path.removeprefix("/v1")

        def matches(fault: Fault) -> bool:
            return (
                fault.kind in REQUEST_KINDS
                and fault.method in (None, method)
                and (fault.path is None or path.startswith(fault.path) or short.startswith(fault.path))
                and fault.operation in (None, operation)
                and fault.api_key in (None, api_key)
            )

        return self._strike(matches)

    def for_delivery(self, event_type: str, endpoint_id: str, api_key: str) -> Fault | None:
        """The fault that strikes the first attempt of this delivery, counted as used."""

        def matches(fault: Fault) -> bool:
            return (
                fault.kind in DELIVERY_KINDS
                and fault.event_type in (None, event_type)
                and fault.endpoint_id in (None, endpoint_id)
                and fault.api_key in (None, api_key)
            )

        return self._strike(matches)

    def _strike(self, matches: Callable[[Fault], bool]) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.spent or not matches(fault):
                    continue
                if fault.probability < 1 and self._random.random() >= fault.probability:
                    continue
                fault.used += 1
                return fault
        return None
