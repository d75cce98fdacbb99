"""The whole provider in memory: projects, the API, deliveries, time and faults behind one lock."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

from .clock import Clock
from .controls import Controls, ProjectControls
from .deliveries import Dispatcher
from .errors import UnknownObjectError
from .faults import FaultBox
from .gateway import Gateway
from .project import Project
from .pump import Pump
from .ratelimit import RateLimiter, RateLimits
from .shapes import Wire, iso
from .timers import run_due
from .transport import Transport
from .wire import ApiAnswer, ApiRequest

DEFAULT_API_KEY = "sk_test_sandbox"


class Engine(Controls):
    """A fake of the payment provider. Thread-safe; holds everything in memory, in minor units and UTC.

    ``auto_progress``: seconds, on the clock, after which a payout, a refund or a payment in processing takes
    its next step by itself (None: by hand). ``rate_limits``: True for the documented ones, False for none, or
    a RateLimits. ``seed`` is for the faults' probabilities. ``base_url`` is the address in checkout links; a
    server fills it in. ``transport`` replaces real HTTP for deliveries.
    """

    def __init__(
        self,
        api_key: str = DEFAULT_API_KEY,
        *,
        clock: Clock | None = None,
        auto_progress: float | None = None,
        rate_limits: bool | RateLimits = True,
        seed: int = 0,
        base_url: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.clock = clock or Clock()
        self.auto_progress = auto_progress
        self.base_url = base_url
        self.faults = FaultBox(seed)
        self.dispatcher = Dispatcher(self.clock, self.lock, self.faults)
        self.dispatcher.transport = transport
        limits = rate_limits if isinstance(rate_limits, RateLimits) else RateLimits(enforced=rate_limits)
        self.limiter = RateLimiter(limits)
        self.gateway = Gateway(self, self.clock, self.lock, self.faults, self.limiter)
        self.pump = Pump(self._pump_once, self.dispatcher.wake)
        self._projects: dict[str, ProjectControls] = {}
        self.default_project = self.add_project(api_key)
        self.terms = self.default_project.terms
        self.clock.subscribe(self.tick)

    # projects

    def add_project(self, api_key: str) -> ProjectControls:
        """A further project, apart from all others. Raises ValueError for a key that is taken."""
        with self.lock:
            if self.project_with_key(api_key) is not None:
                raise ValueError("the API key belongs to a project already")
            project = Project(api_key, self.clock, self.dispatcher, self.page_url)
            self._projects[api_key] = ProjectControls(project, self.lock)
            return self._projects[api_key]

    @property
    def projects(self) -> dict[str, ProjectControls]:
        """All projects by the key they were made with."""
        with self.lock:
            return dict(self._projects)

    def project_with_key(self, api_key: str) -> Project | None:
        """The project that a key belongs to, valid or revoked."""
        for project in self._projects.values():
            if api_key in project.inner.keys:
                return project.inner
        return None

    def project_of(self, object_id: str | None) -> Project:
        """The project that owns an object; the default project for None. Raises UnknownObjectError."""
        if object_id is None:
            return self.default_project.inner
        for project in self._projects.values():
            if project.inner.owns(object_id):
                return project.inner
        raise UnknownObjectError(f"there is no {object_id!r} in the sandbox")

    def page_url(self, payment_id: str) -> str:
        """The address of a payment's checkout page."""
        return f"{(self.base_url or 'http://127.0.0.1').rstrip('/')}/checkout/{payment_id}"

    # the API

    def handle(self, request: ApiRequest) -> ApiAnswer:
        """The answer to one API request."""
        return self.gateway.handle(request)

    @property
    def requests(self) -> list[Wire]:
        """The log of API requests, newest last: ``{at, method, path, operation, idempotency_key, status, …}``."""
        with self.lock:
            return copy.deepcopy(list(self.gateway.log))

    # time and deliveries

    def tick(self) -> None:
        """Let everything happen that is due: expiry, automatic progress, failing endpoints, forgetting."""
        with self.lock:
            for project in self._projects.values():
                run_due(project.inner, self.auto_progress)

    @property
    def transport(self) -> Transport | None:
        """A callable ``(url, headers, body) -> status`` used for deliveries instead of HTTP; None: HTTP."""
        return self.dispatcher.transport

    @transport.setter
    def transport(self, transport: Transport | None) -> None:
        self.dispatcher.transport = transport

    def deliver_due(self) -> int:
        """Send every delivery that is due, in this thread; returns the number of attempts."""
        self.tick()
        return self.dispatcher.deliver_due()

    @property
    def deliveries(self) -> list[Wire]:
        """The log of delivery attempts, newest last: ``{event_id, event_type, endpoint_id, at, attempt,
        status, …}``.
        """
        with self.lock:
            return copy.deepcopy(self.dispatcher.log)

    @property
    def pending_deliveries(self) -> list[Wire]:
        """What is still to be sent: ``{event_id, endpoint_id, attempts, due_at}``, next first."""
        return self.dispatcher.pending()

    def start_pump(self) -> None:
        """Deliver and let timers run in a thread of its own."""
        self.pump.start()

    def stop_pump(self) -> None:
        """Stop and join that thread."""
        self.pump.stop()

    def _pump_once(self, stopped: Callable[[], bool]) -> None:
        self.tick()
        self.dispatcher.deliver_due(stopped)

    # everything at once

    def books(self) -> dict[str, Any]:
        """Everything there is, as plain JSON: objects, money, events, logs, faults and the audit, per project."""
        with self.lock:
            return {
                "now": iso(self.clock.now()),
                "projects": [_project_books(project) for project in self._projects.values()],
                "deliveries": self.deliveries,
                "pending_deliveries": self.pending_deliveries,
                "requests": self.requests,
                "request_counts": self._request_counts(),
                "faults": [fault.wire() for fault in self.faults.all()],
                "audit": [violation for project in self._projects.values() for violation in project.audit()],
            }

    def _request_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry in self.gateway.log:
            name = entry["operation"] or "unknown"
            counts[name] = counts.get(name, 0) + 1
        return counts


def _project_books(project: ProjectControls) -> Wire:
    inner = project.inner
    return {
        "api_key": project.api_key,
        "payments": list(project.payments.values()),
        "payouts": list(project.payouts.values()),
        "refunds": list(project.refunds.values()),
        "deposit_references": list(project.deposit_references.values()),
        "balances": list(project.balances.values()),
        "endpoints": [{**endpoint.wire(), **endpoint.health()} for endpoint in inner.webhooks.by_id.values()],
        "events": project.events,
        "notifications": project.notifications,
        "ledger": [entry.wire() for entry in inner.ledger.entries],
        "audit": project.audit(),
    }
