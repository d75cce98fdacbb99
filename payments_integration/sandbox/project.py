"""The state of one project of the provider: its API keys, objects, money, endpoints and events."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from . import audit as auditing
from .catalog import Terms
from .clock import Clock, parse_iso
from .common_rules import IdempotencyKeys
from .deliveries import Dispatcher
from .endpoints import Endpoint, Endpoints
from .ledger import Ledger
from .payments import DepositReferences, Payments
from .payouts import Payouts
from .protocol import CURRENCIES, Json
from .refunds import Refunds
from .resources import Collection, EventStore, ProjectContext, SandboxError

MAX_FUNDING = 1_000_000_000_000_000


class ProjectState:
    """All that one project holds. Use :class:`~payments_integration.sandbox.controls.Project` to change it by hand.

    ``keys`` maps each API key to whether it is valid (False: revoked). The engine's lock protects it.
    """

    def __init__(
        self,
        api_key: str,
        clock: Clock,
        dispatcher: Dispatcher,
        page_url: Callable[[str], str],
        funds: Mapping[str, int],
    ) -> None:
        self.api_key = api_key
        self.keys: dict[str, bool] = {api_key: True}
        self.terms = Terms()
        self.clock = clock
        self.idempotency = IdempotencyKeys(clock)
        self.endpoints = Endpoints(clock)
        self.events = EventStore(clock, self._send)
        self.ledger = Ledger(clock, self.events.emit)
        self.context = ProjectContext(clock, self.events, self.ledger, self.terms, page_url)
        self.payments = Payments(self.context)
        self.payouts = Payouts(self.context)
        self.refunds = Refunds(self.context, self.payments, self.payouts)
        self.deposit_references = DepositReferences(self.context, self.payments)
        self._dispatcher = dispatcher
        self._first_funds = dict(funds)
        for currency, amount in funds.items():
            _check_funding(currency, amount)
            self.ledger.start_with(currency, amount, auditing.FUNDING, "fund")

    def owns(self, object_id: str) -> bool:
        """Whether the project has an object, endpoint or event with this id."""
        collections: tuple[Collection, ...] = (
            self.payments.items,
            self.payouts.items,
            self.refunds.items,
            self.deposit_references.items,
            self.events.items,
        )
        return object_id in self.endpoints.by_id or any(object_id in items for items in collections)

    def fund(self, currency: str, amount: int) -> Json:
        """Add money to the available balance, without a payment. Returns the balance.

        The first call replaces the money that the project started with: the balance is then exactly what a test added.
        """
        _check_funding(currency, amount)
        if left := min(self._first_funds.pop(currency, 0), self.ledger.available(currency)):
            self.ledger.start_with(currency, -left, auditing.FUNDING, "fund")
        self.ledger.credit(currency, amount, auditing.FUNDING, "fund")
        return copy.deepcopy(self.ledger.balances[currency])

    def redeliver(self, event_id: str, endpoint_id: str | None = None) -> int:
        """Send an event again, to one endpoint or to every subscriber. Returns the number of endpoints."""
        event = self.events.items.find(event_id)
        body = self.events.body(event_id) or b""
        if endpoint_id is not None:
            endpoints = [self.endpoints.find(endpoint_id)]
            if endpoints[0].status != "active":
                raise SandboxError("the endpoint is disabled")
        else:
            endpoints = self._subscribers(event["type"])
        for endpoint in endpoints:
            self._dispatcher.enqueue(self.api_key, self.endpoints, endpoint, event, body)
        return len(endpoints)

    def audit(self) -> list[str]:
        """The accounting errors of the project; empty when its money adds up."""
        return auditing.audit(self.ledger, self.payments, self.payouts, self.refunds, self.events)

    def run_due(self, auto_progress: float | None) -> None:
        """Do what is due on the clock: payments expire, objects progress, old events and keys are deleted."""
        self.payments.expire_due()
        if auto_progress is not None:
            for step, object_id in list(self._due_steps(timedelta(seconds=auto_progress), self.clock.now())):
                step(object_id)
        self.endpoints.mark_failing()
        self.events.prune()
        self.idempotency.prune()

    def _due_steps(self, wait: timedelta, now: datetime) -> Iterator[tuple[Callable[[str], Json], str]]:
        """The next step of each object whose status has not changed for ``wait``.

        After a long jump of the clock two steps are due: a created payout then succeeds at once, by way of processing.
        """
        for payment_id, since in self.payments.in_progress_since.items():
            if now - parse_iso(since) >= wait:
                yield self.payments.pay, payment_id
        for objects in (self.payouts, self.refunds):
            for object_id, since in objects.in_progress_since.items():
                item, elapsed = objects.items.find(object_id), now - parse_iso(since)
                if item.get("payout_id") is not None or elapsed < wait:
                    continue  # a refund with a payout follows its payout
                done = item["status"] == "processing" or elapsed >= 2 * wait
                yield objects.succeed if done else objects.process, object_id

    def _send(self, event: Json, body: bytes) -> None:
        for endpoint in self._subscribers(event["type"]):
            self._dispatcher.enqueue(self.api_key, self.endpoints, endpoint, event, body)

    def _subscribers(self, event_type: str) -> list[Endpoint]:
        return self.endpoints.subscribers(event_type)


def _check_funding(currency: str, amount: object) -> None:
    if currency not in CURRENCIES:
        raise SandboxError(f"{currency!r} is not one of {', '.join(CURRENCIES)}")
    if type(amount) is not int or not 0 < amount <= MAX_FUNDING:
        raise SandboxError(f"an amount is an integer from 1 to {MAX_FUNDING}, in minor units")
