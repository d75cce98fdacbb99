"""One project of the provider: its API keys, objects, money, endpoints and events, apart from every other
project's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from . import audit as auditing
from .clock import Clock
from .collection import Collection
from .deliveries import Dispatcher
from .deposits import Deposits
from .desk import Desk, Terms
from .endpoints import Endpoint, Endpoints
from .errors import SandboxError, UnknownObjectError
from .events import EventStore
from .idempotency import IdempotencyKeys
from .ledger import Ledger
from .payments import Payments
from .payouts import Payouts
from .refunds import Refunds
from .shapes import CURRENCIES, Wire

MAX_FUNDING = 1_000_000_000_000_000


class Project:
    """The parts of one project. :class:`~payments_integration.sandbox.controls.Controls` is the way to use it
    by hand.

    ``keys`` maps each API key to whether it is valid (False: revoked). Guarded by the engine's lock.
    """

    def __init__(self, api_key: str, clock: Clock, dispatcher: Dispatcher, page_url: Callable[[str], str]) -> None:
        self.api_key = api_key
        self.keys: dict[str, bool] = {api_key: True}
        self.terms = Terms()
        self.clock = clock
        self.idempotency = IdempotencyKeys(clock)
        self.webhooks = Endpoints(clock)
        self.event_store = EventStore(clock, self._announce)
        self.ledger = Ledger(clock, self.event_store.emit)
        self.desk = Desk(clock, self.event_store, self.ledger, self.terms, page_url)
        self.pay_ins = Payments(self.desk)
        self.pay_outs = Payouts(self.desk)
        self.pay_backs = Refunds(self.desk, self.pay_ins, self.pay_outs)
        self.deposit_accounts = Deposits(self.desk, self.pay_ins)
        self._dispatcher = dispatcher

    def owns(self, object_id: str) -> bool:
        """Whether an object, endpoint or event with this id is here."""
        return object_id in self.webhooks.by_id or any(object_id in items for items in self.collections())

    def collections(self) -> tuple[Collection, ...]:
        """The collections that hold objects with ids of their own."""
        return (
            self.pay_ins.items,
            self.pay_outs.items,
            self.pay_backs.items,
            self.deposit_accounts.items,
            self.event_store.items,
        )

    def find(self, object_id: str) -> Wire:
        """The live object with this id; raises UnknownObjectError."""
        for items in self.collections():
            if object_id in items:
                return items.at_hand(object_id)
        if object_id in self.webhooks.by_id:
            return self.webhooks.by_id[object_id].wire()
        raise UnknownObjectError(f"there is no {object_id!r} in the sandbox")

    def fund(self, currency: str, amount: int) -> Wire:
        """Money out of nowhere becomes available. Returns the balance."""
        if currency not in CURRENCIES:
            raise SandboxError(f"{currency!r} is not one of {', '.join(CURRENCIES)}")
        if type(amount) is not int or not 0 < amount <= MAX_FUNDING:
            raise SandboxError(f"an amount is an integer from 1 to {MAX_FUNDING}, in minor units")
        self.ledger.credit(currency, amount, auditing.FUNDING, "fund")
        return copy.deepcopy(self.ledger.balances[currency])

    def redeliver(self, event_id: str, endpoint_id: str | None = None) -> int:
        """Send an event again to one endpoint, or to all that subscribe to it; returns to how many."""
        event = self.event_store.items.at_hand(event_id)
        body = self.event_store.body(event_id) or b""
        if endpoint_id is not None:
            endpoints = [self.webhooks.at_hand(endpoint_id)]
            if endpoints[0].status != "active":
                raise SandboxError("the endpoint is disabled")
        else:
            endpoints = self._subscribers(event["type"])
        for endpoint in endpoints:
            self._dispatcher.enqueue(self.api_key, self.webhooks, endpoint, event, body)
        return len(endpoints)

    def audit(self) -> list[str]:
        """The violated invariants of the books; empty when they add up."""
        return auditing.audit(self.ledger, self.pay_ins, self.pay_outs, self.pay_backs, self.event_store)

    def prune(self) -> None:
        """Forget what is past its retention."""
        self.event_store.prune()
        self.idempotency.prune()

    def _announce(self, event: Wire, body: bytes) -> None:
        for endpoint in self._subscribers(event["type"]):
            self._dispatcher.enqueue(self.api_key, self.webhooks, endpoint, event, body)

    def _subscribers(self, event_type: str) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self.webhooks.by_id.values()
            if endpoint.status == "active" and event_type in endpoint.events
        ]
