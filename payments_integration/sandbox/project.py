"""Hold the state of one project of the provider: its API keys, objects, money, endpoints and events."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from . import audit as auditing
from .catalog import Terms
from .clock import Clock, ClockRecord, parse_iso
from .common_rules import IdempotencyKeys, KeyUse
from .deliveries import Dispatcher, DispatcherRecord, Outlet
from .deposits import DepositReferences
from .endpoints import Endpoint, Endpoints
from .faults import Fault, FaultRegistry
from .ledger import Entry, Ledger
from .payments import PaymentInternals, Payments
from .payouts import Payouts
from .protocol import CURRENCIES, Json
from .refunds import Refunds
from .resources import Collection, EventStore, ProjectContext, Resources, SandboxError

MAX_FUNDING = 1_000_000_000_000_000


@dataclass(frozen=True)
class ProjectRecord:
    """The saved state of a project. Objects and events are as the API shows them, oldest first."""

    api_key: str
    clock: ClockRecord
    faults: list[Fault]
    dispatcher: DispatcherRecord
    keys: dict[str, bool]
    terms: Terms
    first_funds: dict[str, int]
    idempotency: dict[str, KeyUse]
    endpoints: dict[str, Endpoint]
    notifications: list[Json]
    events: list[Json]
    entries: list[Entry]
    balances: dict[str, Json]
    payments: list[Json]
    internals: dict[str, PaymentInternals]
    payouts: list[Json]
    refunds: list[Json]
    in_progress_since: dict[str, dict[str, str]]
    deposit_references: list[Json]
    payers: dict[str, Json | None]


class ProjectState:
    """All that one project holds. Use :class:`~payments_integration.sandbox.controls.Project` to change it by hand.

    ``keys`` maps each API key to True if it is valid, and to False if it is revoked. The engine's lock protects it.
    """

    def __init__(
        self,
        api_key: str,
        clock: Clock,
        faults: FaultRegistry,
        lock: threading.RLock,
        outlet: Outlet,
        page_url: Callable[[str], str],
        funds: Mapping[str, int],
    ) -> None:
        self.api_key = api_key
        self.keys: dict[str, bool] = {api_key: True}
        self.terms = Terms()
        self.clock = clock
        self.faults = faults
        self.idempotency = IdempotencyKeys(clock)
        self.endpoints = Endpoints(clock)
        self.dispatcher = Dispatcher(api_key, clock, lock, faults, self.endpoints, outlet)
        self.events = EventStore(clock, self._send)
        self.ledger = Ledger(clock, self.events.emit)
        self.context = ProjectContext(clock, self.events, self.ledger, self.terms, page_url)
        self.payments = Payments(self.context)
        self.payouts = Payouts(self.context)
        self.refunds = Refunds(self.context, self.payments, self.payouts)
        self.deposit_references = DepositReferences(self.context, self.payments)
        self._first_funds = dict(funds)
        for currency, amount in funds.items():
            check_money(currency, amount)
            self.ledger.start_with(currency, amount, auditing.FUNDING, "fund")

    def record(self) -> ProjectRecord:
        """Return the state for :meth:`restore`. Leaves out requests that still run: they have changed nothing yet."""
        return ProjectRecord(
            api_key=self.api_key,
            clock=self.clock.record(),
            faults=self.faults.all(),
            dispatcher=self.dispatcher.record(),
            keys=self.keys,
            terms=self.terms,
            first_funds=self._first_funds,
            idempotency={key: use for key, use in self.idempotency.uses.items() if use.response is not None},
            endpoints=self.endpoints.by_id,
            notifications=self.endpoints.notifications,
            events=list(self.events.items),
            entries=self.ledger.entries,
            balances=self.ledger.balances,
            payments=list(self.payments.items),
            internals=self.payments.internals,
            payouts=list(self.payouts.items),
            refunds=list(self.refunds.items),
            in_progress_since={name: objects.in_progress_since for name, objects in self._resources().items()},
            deposit_references=list(self.deposit_references.items),
            payers=self.deposit_references.payers,
        )

    def restore(self, record: ProjectRecord) -> None:
        """Load the content of an earlier run. This project must be new and without funds."""
        self.clock.restore(record.clock)
        self.faults.restore(record.faults)
        self.dispatcher.restore(record.dispatcher)
        self.keys = record.keys
        for field in fields(Terms):
            setattr(self.terms, field.name, getattr(record.terms, field.name))
        self._first_funds = record.first_funds
        self.idempotency.uses.update(record.idempotency)
        self.endpoints.by_id.update(record.endpoints)
        self.endpoints.notifications.extend(record.notifications)
        self.events.restore(record.events)
        self.ledger.entries.extend(record.entries)
        self.ledger.balances.update(record.balances)
        self.payments.restore(record.payments, record.internals)
        for items, saved in (
            (self.payouts.items, record.payouts),
            (self.refunds.items, record.refunds),
            (self.deposit_references.items, record.deposit_references),
        ):
            for item in saved:
                items.add(item)
        for name, objects in self._resources().items():
            objects.in_progress_since.update(record.in_progress_since[name])
        self.deposit_references.payers.update(record.payers)

    def _resources(self) -> dict[str, Resources]:
        return {"payments": self.payments, "payouts": self.payouts, "refunds": self.refunds}

    def owns(self, object_id: str) -> bool:
        """Return True if the project has an object, endpoint or event with this id."""
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

        The first call replaces the money that the project started with, so a test has exactly the money that it added.
        """
        check_money(currency, amount)
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
            self.dispatcher.enqueue(endpoint, event, body)
        return len(endpoints)

    def audit(self) -> list[str]:
        """Return the accounting errors of the project; empty if its money adds up."""
        return auditing.audit(self.ledger, self.payments, self.payouts, self.refunds, self.events)

    def run_due(self, auto_progress: float | None) -> None:
        """Do what is due on the clock: steps of magic values, expiry, automatic progress, retention."""
        self.payments.take_due_steps()
        self.payments.expire_due()
        if auto_progress is not None:
            for step, object_id in list(self._due_steps(timedelta(seconds=auto_progress), self.clock.now())):
                step(object_id)
        self.endpoints.mark_failing()
        self.events.prune()
        self.idempotency.prune()

    def _due_steps(self, wait: timedelta, now: datetime) -> Iterator[tuple[Callable[[str], Json], str]]:
        """Yield the next step of each object whose status has not changed for ``wait``.

        After a long jump of the clock two steps are due: a created payout then succeeds at once, by way of processing.
        """
        for payment_id, since in self.payments.in_progress_since.items():
            if now - parse_iso(since) >= wait and not self.payments.internals[payment_id].steps:
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
            self.dispatcher.enqueue(endpoint, event, body)

    def _subscribers(self, event_type: str) -> list[Endpoint]:
        return self.endpoints.subscribers(event_type)


def check_money(currency: str, amount: object, *, least: int = 1) -> None:
    """Raise SandboxError for another currency than the sandbox's, or no integer from ``least`` to MAX_FUNDING."""
    if currency not in CURRENCIES:
        raise SandboxError(f"{currency!r} is not one of {', '.join(CURRENCIES)}")
    if type(amount) is not int or not least <= amount <= MAX_FUNDING:
        raise SandboxError(f"an amount is an integer from {least} to {MAX_FUNDING}, in minor units")
