"""The way between the merchant and the provider, without sockets: what can be lost, late, doubled or garbled on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Protocol
from urllib.parse import urlencode

from django.db import connection
from django.urls import URLResolver
from django.urls.resolvers import RegexPattern

from payments_integration import conf
from payments_integration.client.answers import Reply
from payments_integration.exceptions import NoAnswer
from payments_integration.sandbox import Engine, Fault
from payments_integration.sandbox.application import URL_PATTERNS
from payments_integration.sandbox.deliveries import signature
from payments_integration.sandbox.delivery_queue import Delivery
from payments_integration.sandbox.endpoints import Endpoint
from payments_integration.sandbox.faults import apply_fault
from payments_integration.sandbox.protocol import ApiRequest, ApiResponse
from tests.simulation.clock import Time
from tests.simulation.faults import ENDED

#: Seconds that a request takes when all is well, and the provider's patience with a delivery.
ROUND_TRIP = 0.04
PATIENCE = timedelta(seconds=10)
#: Objects on a page, for any requested limit: few, so that lists have several pages.
PAGE = 7
#: Answers that the provider, or a proxy before it, gives without having done anything.
REFUSALS: dict[str, Fault] = {
    "refuse": Fault("error", code="merchant_not_active"),
    "unprocessable": Fault("error", code="method_not_available"),
    "limit": Fault("rate_limited", retry_after="3"),
    "busy": Fault("in_progress"),
    "error": Fault("error", code="service_unavailable"),
    "page": Fault("html", status=502),
    "redirect": Fault("redirect"),
}
#: A claim lasts so many seconds longer than a request.
CLAIM_MARGIN = 30.0
#: What becomes of the answer to a request that was carried out.
SPOILED: dict[str, Fault] = {
    "error": Fault("error", code="internal_error"),
    "page": Fault("html"),
}


class Surroundings(Protocol):
    """What the network needs of the world."""

    time: Time
    engine: Engine

    def at(self, point: str, *, may_wait: bool = True, method: str = "") -> str: ...

    def check_alive(self) -> None: ...

    def violated(self, invariant: str, message: str) -> None: ...

    def provider_acted(self) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Straggler:
    """A request that reaches the provider after its caller has given up."""

    request: ApiRequest


class Network:
    """Requests to the provider's engine, and those that are still under way."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._resolver = URLResolver(RegexPattern(r"^/"), URL_PATTERNS)
        self.stragglers: list[Straggler] = []
        #: So many seconds is the clock behind whose time the answer to "what time is it" names.
        self.behind = 0.0
        #: The provider strips blanks from the ends of merchant references.
        self.trims = False

    def transport(self, account: conf.Account) -> Transport:
        """Stands for the client's own: made once per account and process."""
        return Transport(self._world, self, account)

    def carry_out(self, request: ApiRequest) -> ApiResponse:
        """The provider does what a request asks for."""
        key = request.headers["authorization"].removeprefix("Bearer ")
        if request.method != "GET" and key not in self._world.engine.default_project.state.keys:
            self._world.violated("nothing is sent to another project", f"{request.method} {request.path}")
        answer = self._world.engine.handle(request)
        self._world.provider_acted()
        return answer

    def arrive(self, index: int) -> None:
        """One of the stragglers reaches the provider."""
        straggler = self.stragglers.pop(index % len(self.stragglers))
        answer = self.carry_out(straggler.request)
        request = straggler.request
        self._world.note(f"a late {request.method} {request.path} reaches the provider: {answer.status}")

    def request(
        self,
        account: conf.Account,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        key: str | None,
    ) -> ApiRequest:
        """The request as the provider's views would see it."""
        match = self._resolver.resolve(f"/v1{path}")
        headers = {"authorization": f"Bearer {account.api_key}", "content-type": "application/json"}
        if key is not None:
            # The spec does not say that another API key of the project knows the same keys.
            is_first = account.api_key == self._world.engine.default_project.api_key
            headers["idempotency-key"] = key if is_first else f"{account.api_key} {key}"
        query = dict(params or {})
        if self.trims and body and b"merchant_reference" in body:
            fields = json.loads(body)
            body = json.dumps({**fields, "merchant_reference": fields["merchant_reference"].strip()}).encode()
        if "limit" in query:
            query["limit"] = str(min(int(query["limit"]), PAGE))
        return ApiRequest(
            method=method,
            path=f"/v1{path}",
            query=query,
            headers=headers,
            body=body or b"",
            operations=match.kwargs["operations"],
            object_id=match.kwargs.get("object_id", ""),
        )


class Transport:
    """One account's exchanges, with boundaries before the request leaves and before its answer is read."""

    def __init__(self, world: Surroundings, network: Network, account: conf.Account) -> None:
        self._world = world
        self._network = network
        self._account = account

    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
        limits: conf.Settings,
        seconds: float,
        check: Callable[[float], None] | None,
    ) -> Reply:
        world, network = self._world, self._network
        world.check_alive()
        if connection.in_atomic_block:
            world.violated("no request in a transaction", f"{method} {path}")
        begun = world.time.now
        request = network.request(self._account, method, path, params, body, idempotency_key)
        query = f"?{urlencode(params)}" if params else ""
        # Looking up the host and connecting; then the last look at the claim.
        world.at("connect", method=method)
        elapsed = (world.time.now - begun).total_seconds()
        if check is not None:
            check(seconds)
        if idempotency_key is not None and elapsed > seconds + CLAIM_MARGIN:
            world.violated("no request leaves after its claim", f"{method} {path} after {elapsed:.0f} s")
        kind, was_repeated = world.at("send", method=method), False
        if kind in ENDED:
            # A connection of the pool was reset: the client sends the request again at once, on a new one.
            if kind == "ended after it was executed":
                network.carry_out(request)
            world.note(f"{method} {path}{query}: {kind}")
            kind, was_repeated = world.at("send", method=method), True
        if kind in REFUSALS:
            # Such a proxy knows the time, too.
            answer = apply_fault(ApiResponse(500, b"", {}), REFUSALS[kind], "req_refused")
        elif kind in ("drop", "late"):
            if kind == "late":
                network.stragglers.append(Straggler(request))
            world.time.advance(seconds)
            world.note(f"{method} {path}{query}: no answer ({kind})")
            raise _no_answer(method, path, was_repeated)
        else:
            world.time.advance(ROUND_TRIP / 2)
            answer = network.carry_out(request)
            if kind == "twice":
                answer = network.carry_out(request)
            kind = world.at("answer", method=method)
            if kind == "slow":
                world.time.advance(seconds * 0.8)
            elif kind == "lost":
                world.time.advance(seconds)
            elif kind in SPOILED:
                answer = apply_fault(answer, SPOILED[kind], "req_spoiled")
            world.time.advance(ROUND_TRIP / 2)
        duration = (world.time.now - begun).total_seconds()
        world.note(f"{method} {path}{query}: {answer.status} {kind}")
        if kind == "lost" or duration > seconds:
            raise _no_answer(method, path, was_repeated)
        problem = "the answer is truncated" if kind == "truncate" else ""
        headers = dict(answer.headers)
        if kind == "undated":
            headers.pop("Date", None)
        elif network.behind and path == "/balances" and "Date" in headers:
            behind = parsedate_to_datetime(headers["Date"]) - timedelta(seconds=network.behind)
            headers["Date"] = format_datetime(behind, usegmt=True)
        body = b"" if problem else answer.body
        return Reply(method, path, answer.status, headers, body, problem, duration, was_repeated)


def _no_answer(method: str, path: str, was_repeated: bool) -> NoAnswer:
    error = NoAnswer(f"{method} {path}: no whole answer in time")
    error.was_repeated = was_repeated
    return error


@dataclass(eq=False)
class Attempt:
    """One attempt of the provider to deliver an event, until it is acknowledged or given up."""

    delivery: Delivery
    endpoint: Endpoint
    body: bytes
    signature: str
    begun: datetime
    is_settled: bool = False


class Post:
    """The provider's deliveries, one attempt at a time, so that they can cross each other."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.under_way: list[Attempt] = []

    @property
    def due(self) -> list[Delivery]:
        """What could be sent now, next first."""
        dispatcher, now = self._world.engine.dispatcher, self._world.time.now
        return [item for item in dispatcher.queue if item.due_at <= now]

    @property
    def next_due(self) -> datetime | None:
        return next((item.due_at for item in self._world.engine.dispatcher.queue), None)

    def begin(self, delivery: Delivery) -> Attempt | None:
        """Take a delivery from the queue and sign it; None where its endpoint takes none any more."""
        state, now = self._world.engine.default_project.state, self._world.time.now
        state.dispatcher.queue.remove(delivery)
        endpoint = state.endpoints.by_id.get(delivery.endpoint_id)
        if endpoint is None or endpoint.status != "active":
            return None
        delivery.first_at = delivery.first_at or now
        delivery.attempts += 1
        signed = signature(delivery.body, endpoint.secrets_at(now), int(now.timestamp()))
        attempt = Attempt(delivery, endpoint, delivery.body, signed, now)
        self.under_way.append(attempt)
        return attempt

    def settle(self, attempt: Attempt, *, acknowledged: bool) -> None:
        """The provider takes note, once: it sends again later what was not acknowledged."""
        if not attempt.is_settled:
            attempt.is_settled = True
            self.under_way.remove(attempt)
            dispatcher = self._world.engine.dispatcher
            dispatcher.settle(attempt.delivery, attempt.endpoint, acknowledged=acknowledged)

    def lose_patience(self) -> None:
        """Give up attempts that have been under way for ten seconds."""
        for attempt in list(self.under_way):
            if self._world.time.now - attempt.begun >= PATIENCE:
                self.settle(attempt, acknowledged=False)
