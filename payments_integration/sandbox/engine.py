"""Run the provider in memory: projects, API, deliveries, time and faults behind one lock."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from heapq import merge
from operator import itemgetter
from typing import Any, Final, TypeAlias

from .catalog import Terms
from .clock import Clock, Scheduler, iso
from .common_rules import RateLimiter, RateLimits
from .controls import Controls, Project
from .deliveries import Dispatcher, Outlet, Transport
from .faults import Fault, FaultRegistry
from .gateway import Gateway
from .project import ProjectRecord, ProjectState
from .protocol import ApiRequest, ApiResponse, Json
from .resources import UnknownObjectError

DEFAULT_API_KEY = "sk_test_sandbox"
#: The money that a project can spend before its first payment, in minor units. Without it the first refund would be
#: refused: a payment brings its amount less a fee, but a refund needs the amount, and a fee if it runs as a payout.
DEFAULT_FUNDS: Final[Mapping[str, int]] = {
    "CLP": 10_000_000, "COP": 4_000_000_000, "PEN": 4_000_000, "MXN": 20_000_000, "BRL": 5_000_000, "USD": 1_000_000,
}  # fmt: skip


Checkpoint: TypeAlias = Callable[[bool], str]


class Engine(Controls):
    """A fake of the payment provider. Thread-safe. All state is in memory, amounts in minor units, times in UTC.

    Args:
        api_key: The API key of the default project.
        clock: The clock of the default project; None for real time.
        auto_progress: Seconds, on the clock, between the steps of a payout or refund, and until a payment in
            processing succeeds; None for steps only by hand.
        rate_limits: True for the documented limits, False for none, or a RateLimits.
        seed: The seed for the probabilities of faults.
        base_url: The address in checkout links. A server sets it.
        transport: Replaces HTTP for deliveries.
        funds: The money of each project at the start, by currency; None for nothing. The command and ProviderSandbox
            use DEFAULT_FUNDS.
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
        funds: Mapping[str, int] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.auto_progress = auto_progress
        self.base_url = base_url
        #: Saves the content. Called before an answer or a delivery leaves the sandbox. Its argument is True if
        #: something may have changed without a new time stamp. Returns "" or why it cannot save.
        self.checkpoint: Checkpoint = lambda changed: ""
        self.outlet = Outlet()
        self.outlet.transport = transport
        self.outlet.checkpoint = lambda: self.checkpoint(False)
        #: The address and the secret of an endpoint that the default project gets again after a reset.
        self.first_endpoint: tuple[str, str] | None = None
        limits = rate_limits if isinstance(rate_limits, RateLimits) else RateLimits(enforced=rate_limits)
        self.limiter = RateLimiter(limits)
        self.gateway = Gateway(self, self.lock, self.limiter)
        self.scheduler = Scheduler(self._run_due, self.outlet.wake)
        #: Faults of the requests and deliveries of every project, in addition to each project's own faults.
        self.faults = FaultRegistry(seed)
        self._seed = seed
        self._funds = dict(funds or {})
        self._projects: dict[str, Project] = {}
        self.default_project = self.add_project(api_key, clock=clock)

    # projects

    def add_project(self, api_key: str, *, clock: Clock | None = None) -> Project:
        """Add a project, separate from all others: it has its own clock, by default in real time, and its own faults.

        Raises ValueError if the API key is in use.
        """
        with self.lock:
            if self.project_with_key(api_key) is not None:
                raise ValueError("the API key belongs to a project already")
            state = self._new_state(api_key, clock or Clock(), FaultRegistry(self._seed, self.faults), self._funds)
            state.clock.subscribe(self.tick)
            self._projects[api_key] = Project(state, self.lock)
            return self._projects[api_key]

    def reset(self, project: Project | None = None) -> None:
        """Reset one project to its start, or everything. In the latter case, added projects are removed.

        A project keeps the API key that it was created with. Its clock shows real time.
        """
        with self.lock:
            if project is None:
                for other in self.projects.values():
                    if other is not self.default_project:
                        other.state.dispatcher.close()
                        del self._projects[other.api_key]
                self.faults.reset()
                self.gateway.forget(None)
                self.limiter.forget(None)
                project = self.default_project
            old = project.state
            self.gateway.forget(old.keys)
            self.limiter.forget(old.keys)
            old.clock.reset()
            old.faults.reset()
            old.dispatcher.close()
            project.state = self._new_state(old.api_key, old.clock, old.faults, self._funds)
            project.state.dispatcher.ack_timeout = old.dispatcher.ack_timeout
            if project is self.default_project and self.first_endpoint is not None:
                url, secret = self.first_endpoint
                project.add_endpoint(url, secret=secret)

    def _new_state(self, api_key: str, clock: Clock, faults: FaultRegistry, funds: Mapping[str, int]) -> ProjectState:
        return ProjectState(api_key, clock, faults, self.lock, self.outlet, self.page_url, funds)

    @property
    def projects(self) -> dict[str, Project]:
        """All projects by the API key that they were created with."""
        with self.lock:
            return dict(self._projects)

    def restore_projects(self, records: list[ProjectRecord]) -> None:
        """Replace all projects by the projects of an earlier run. The first one is the default project."""
        with self.lock:
            clock = self.clock  # the default project keeps it
            self._projects.clear()
            for record in records:
                project = self.add_project(record.api_key, clock=None if self._projects else clock)
                project.state = self._new_state(record.api_key, project.clock, project.faults, {})
                project.state.restore(record)
            self.default_project = self._projects[records[0].api_key]

    @property
    def clock(self) -> Clock:
        """The default project's clock."""
        return self.default_project.clock

    @property
    def terms(self) -> Terms:
        """The default project's agreement with the provider."""
        return self.default_project.terms

    @property
    def dispatcher(self) -> Dispatcher:
        """The sender of the default project's deliveries."""
        return self.default_project.state.dispatcher

    def project_with_key(self, api_key: str) -> ProjectState | None:
        """Return the project of an API key, valid or revoked; None for an unknown key."""
        for project in self._projects.values():
            if api_key in project.state.keys:
                return project.state
        return None

    def project_of(self, object_id: str | None) -> ProjectState:
        """Return the project that owns an object; the default project for None. Raises UnknownObjectError."""
        if object_id is None:
            return self.default_project.state
        for project in self._projects.values():
            if project.state.owns(object_id):
                return project.state
        raise UnknownObjectError(f"there is no {object_id!r} in the sandbox")

    def page_url(self, payment_id: str) -> str:
        """Return the address of a payment's checkout page."""
        return f"{(self.base_url or 'http://127.0.0.1').rstrip('/')}/checkout/{payment_id}"

    def all_faults(self) -> list[Fault]:
        """Return the common faults and every project's own faults."""
        registries = (self.faults, *(project.faults for project in self.projects.values()))
        return [fault for registry in registries for fault in registry.all()]

    # the API

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Return the response to one API request."""
        return self.gateway.handle(request)

    @property
    def requests(self) -> list[Json]:
        """The log of API requests, newest last: ``{at, method, path, operation, idempotency_key, status, …}``."""
        with self.lock:
            return copy.deepcopy(list(self.gateway.log))

    # time and deliveries

    def tick(self) -> None:
        """Do everything that is due on the clock: expiry, automatic progress, failing endpoints, retention."""
        with self.lock:
            for project in self._projects.values():
                project.state.run_due(self.auto_progress)

    @property
    def transport(self) -> Transport | None:
        """A callable ``(url, headers, body) -> status`` that replaces HTTP for deliveries; None for HTTP."""
        return self.outlet.transport

    @transport.setter
    def transport(self, transport: Transport | None) -> None:
        self.outlet.transport = transport

    def deliver_due(self, project: Project | None = None) -> int:
        """Send every due delivery, or only one project's, in this thread. Returns the number of attempts."""
        self.tick()
        projects = self.projects.values() if project is None else [project]
        sent = 0
        while count := sum(each.state.dispatcher.deliver_due() for each in projects):
            sent += count
        return sent

    @property
    def deliveries(self) -> list[Json]:
        """The log of delivery attempts, newest last: ``{id, event_id, endpoint_id, at, attempt, status, …}``."""
        with self.lock:
            return list(merge(*(each.deliveries for each in self.projects.values()), key=itemgetter("at")))

    @property
    def pending_deliveries(self) -> list[Json]:
        """The queued deliveries, next first: ``{event_id, endpoint_id, attempts, due_at}``."""
        with self.lock:
            waiting = (each.pending_deliveries for each in self.projects.values())
            return list(merge(*waiting, key=itemgetter("due_at")))

    def start_scheduler(self) -> None:
        """Deliver and run timers in background threads."""
        self.scheduler.start()

    def stop_scheduler(self) -> None:
        """Stop and join the background threads, after the deliveries in progress."""
        self.scheduler.stop()
        self.outlet.join()

    def _run_due(self, stopped: Callable[[], bool]) -> None:
        self.tick()
        self.checkpoint(False)
        for project in self.projects.values():
            project.state.dispatcher.start_due(stopped)

    # content

    def books(self) -> dict[str, Any]:
        """Return the whole content as plain JSON: objects, money, events, logs, faults and the audit, per project."""
        with self.lock:
            return {
                "now": iso(self.clock.now()),
                "projects": [_project_books(project) for project in self._projects.values()],
                "deliveries": self.deliveries,
                "pending_deliveries": self.pending_deliveries,
                "requests": self.requests,
                "request_counts": dict(Counter(entry["operation"] or "unknown" for entry in self.gateway.log)),
                "faults": [fault.wire() for fault in self.all_faults()],
                "audit": [error for project in self._projects.values() for error in project.audit()],
            }


def _project_books(project: Project) -> Json:
    state = project.state
    return {
        "api_key": project.api_key,
        "payments": list(project.payments.values()),
        "payouts": list(project.payouts.values()),
        "refunds": list(project.refunds.values()),
        "deposit_references": list(project.deposit_references.values()),
        "balances": list(project.balances.values()),
        "endpoints": [{**endpoint.wire(), **endpoint.health()} for endpoint in state.endpoints.by_id.values()],
        "events": project.events,
        "notifications": project.notifications,
        "ledger": [entry.wire() for entry in state.ledger.entries],
        "audit": project.audit(),
    }
