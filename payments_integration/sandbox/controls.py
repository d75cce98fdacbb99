"""Control a sandbox by hand: the actions of payers, banks and the provider.

A project (:class:`Project`) and the engine have the same methods. The engine finds the project of an object, and uses
its default project if there is no object.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable

from .catalog import Terms
from .clock import Clock
from .endpoints import Endpoint
from .faults import FaultRegistry
from .project import ProjectState, check_money
from .protocol import Json
from .resources import SandboxError, UnknownObjectError
from .trigger import trigger

SETTABLE_TERMS = (
    "active", "countries", "forbidden_methods", "unavailable_methods", "broken_methods", "blocked_payers",
    "require_whitelist",
)  # fmt: skip


def _by_id(items: Iterable[Json]) -> dict[str, Json]:
    return {item["id"]: copy.deepcopy(item) for item in items}


class Controls:
    """Actions by hand. Each returns the changed object as the API shows it. Amounts are in minor units.

    They raise SandboxError (a ValueError) if the object's status does not allow the action, and UnknownObjectError if
    there is no such object.
    """

    lock: threading.RLock

    def project_of(self, object_id: str | None) -> ProjectState:
        """Return the project that owns an object; for None, the project that calls without an object id use."""
        raise NotImplementedError

    def _apply(self, action: Callable[[ProjectState], Json], object_id: str | None) -> Json:
        given: object = object_id
        if not isinstance(given, str | None):
            raise TypeError(f"{given!r} is not an id: pass its id")
        with self.lock:
            return copy.deepcopy(action(self.project_of(object_id)))

    # payments

    def open_checkout(self, payment_id: str) -> Json:
        """Open the checkout page as the payer: created becomes requires_action."""
        return self._apply(lambda project: project.payments.open_page(payment_id), payment_id)

    def pay(self, payment_id: str, amount: int | None = None) -> Json:
        """Pay the missing amount as the payer, or any amount by transfer, even if it is expired or on_hold."""
        return self._apply(lambda project: project.payments.pay(payment_id, amount), payment_id)

    def process(self, payment_id: str) -> Json:
        """Confirm as the payer while the result is unknown: the payment becomes processing."""
        return self._apply(lambda project: project.payments.process(payment_id), payment_id)

    def fail(self, payment_id: str, reason: str = "declined") -> Json:
        """Fail the payment with this ``failure_reason``."""
        return self._apply(lambda project: project.payments.fail(payment_id, reason), payment_id)

    def expire(self, payment_id: str) -> Json:
        """Let the payer's time run out: the payment becomes expired."""
        return self._apply(lambda project: project.payments.expire(payment_id), payment_id)

    def hold(self, payment_id: str) -> Json:
        """Receive the money and put it under review: on_hold, in the pending balance."""
        return self._apply(lambda project: project.payments.hold(payment_id), payment_id)

    def chargeback(self, payment_id: str) -> Json:
        """Take the money back as the cardholder."""
        return self._apply(lambda project: project.payments.chargeback(payment_id), payment_id)

    # payouts

    def process_payout(self, payout_id: str) -> Json:
        """Process the payout: created or on_hold becomes processing."""
        return self._apply(lambda project: project.payouts.process(payout_id), payout_id)

    def succeed_payout(self, payout_id: str) -> Json:
        """Let the money arrive, by way of processing."""
        return self._apply(lambda project: project.payouts.succeed(payout_id), payout_id)

    def fail_payout(self, payout_id: str, reason: str = "rejected_by_bank") -> Json:
        """Refuse the payout as the bank."""
        return self._apply(lambda project: project.payouts.fail(payout_id, reason), payout_id)

    def return_payout(self, payout_id: str, reason: str = "returned_by_bank") -> Json:
        """Send the amount back as the bank, after success."""
        return self._apply(lambda project: project.payouts.return_(payout_id, reason), payout_id)

    def hold_payout(self, payout_id: str) -> Json:
        """Hold the payout: created or processing becomes on_hold."""
        return self._apply(lambda project: project.payouts.hold(payout_id), payout_id)

    def delay_payout(self, payout_id: str) -> Json:
        """Emit payout.delayed without a change of status."""
        return self._apply(lambda project: project.payouts.delay(payout_id), payout_id)

    # refunds

    def process_refund(self, refund_id: str) -> Json:
        """Process the refund: created becomes processing."""
        return self._apply(lambda project: project.refunds.process(refund_id), refund_id)

    def succeed_refund(self, refund_id: str) -> Json:
        """Let the payer receive the money, by way of processing."""
        return self._apply(lambda project: project.refunds.succeed(refund_id), refund_id)

    def fail_refund(self, refund_id: str) -> Json:
        """Fail the refund."""
        return self._apply(lambda project: project.refunds.fail(refund_id), refund_id)

    def return_refund(self, refund_id: str) -> Json:
        """Let the refunded money come back, after success."""
        return self._apply(lambda project: project.refunds.return_(refund_id), refund_id)

    def cancel_refund(self, refund_id: str) -> Json:
        """Cancel the refund as the provider, without an event."""
        return self._apply(lambda project: project.refunds.cancel(refund_id), refund_id)

    # deposit references

    def transfer(self, deposit_reference_id: str, amount: int) -> Json:
        """Transfer money to a deposit reference. Returns the payment."""
        return self._apply(
            lambda project: project.deposit_references.transfer(deposit_reference_id, amount), deposit_reference_id
        )

    def disable_deposit_reference(self, deposit_reference_id: str) -> Json:
        """Disable the reference, so that it accepts no more transfers."""
        return self._apply(
            lambda project: project.deposit_references.disable(deposit_reference_id), deposit_reference_id
        )

    # events

    def trigger(self, event: str, values: Json | None = None, object_id: str | None = None) -> Json:
        """Make an object with these values and lead it to this event, or lead an existing object to it.

        Returns ``{event, object, events, endpoints}``. Raises ApiError as the request that makes the object would.
        """
        with self.lock:
            return trigger(self.project_of(object_id), event, values, object_id)

    # money

    def fund(self, currency: str, amount: int) -> Json:
        """Add this much to the available balance. Returns the balance.

        The first call replaces the money that the project started with.
        """
        return self._apply(lambda project: project.fund(currency, amount), None)

    def set_reserve(self, currency: str, amount: int) -> Json:
        """Set the reserve against chargebacks to this amount, out of available money. Returns the balance."""
        check_money(currency, amount, least=0)

        def set_reserve(project: ProjectState) -> Json:
            project.ledger.set_reserve(currency, amount, "reserve")
            return project.ledger.balances[currency]

        return self._apply(set_reserve, None)

    # endpoints and events

    def add_endpoint(self, url: str, events: list[str] | None = None, secret: str | None = None) -> Json:
        """Register an endpoint without a request, with any URL. Returns it with its secret.

        Raises ValueError for events that the API would refuse.
        """
        return self._apply(lambda project: project.endpoints.add(url, events, secret).wire(with_secret=True), None)

    def enable_endpoint(self, endpoint_id: str) -> Json:
        """Make a disabled endpoint active again."""
        return self._apply(lambda project: project.endpoints.enable(endpoint_id).wire(), endpoint_id)

    def endpoint(self, endpoint_id: str) -> Endpoint:
        """Return the endpoint with its secrets and health, which the API does not show."""
        with self.lock:
            return self.project_of(endpoint_id).endpoints.find(endpoint_id)

    def redeliver(self, event_id: str, endpoint_id: str | None = None) -> int:
        """Send an event again, to one endpoint or to every subscriber. Returns the number of endpoints."""
        with self.lock:
            return self.project_of(event_id).redeliver(event_id, endpoint_id)

    # API keys and terms

    def revoke_key(self, api_key: str | None = None) -> None:
        """Answer requests with this key (by default the project's first) with api_key_revoked."""
        with self.lock:
            project = self.project_of(None)
            project.keys[api_key or project.api_key] = False

    def add_key(self, api_key: str) -> None:
        """Add a further API key to the same project."""
        with self.lock:
            self.project_of(None).keys[api_key] = True

    def set_terms(self, **changes: object) -> Json:
        """Change fields of :class:`~.catalog.Terms`, with lists for sets. Returns all of them."""
        with self.lock:
            terms = self.project_of(None).terms
            for name, value in changes.items():
                if name not in SETTABLE_TERMS:
                    raise SandboxError(f"{name!r} is not one of {', '.join(SETTABLE_TERMS)}")
                kind = bool if name in ("active", "require_whitelist") else list
                if not isinstance(value, kind):
                    raise SandboxError(f"{name} must be a {kind.__name__}")
                setattr(terms, name, set(value) if isinstance(value, list) else value)
            current = {name: getattr(terms, name) for name in SETTABLE_TERMS}
        return {name: sorted(value) if isinstance(value, set) else value for name, value in current.items()}

    def whitelist(self, account_number: str) -> None:
        """Add a payout destination to the whitelist, active after 24 hours. See ``terms.require_whitelist``."""
        with self.lock:
            project = self.project_of(None)
            project.terms.add_to_whitelist(account_number, project.clock.now())

    # reading

    @property
    def payments(self) -> dict[str, Json]:
        """Copies of all payments by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).payments.items)

    @property
    def payouts(self) -> dict[str, Json]:
        """Copies of all payouts by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).payouts.items)

    @property
    def refunds(self) -> dict[str, Json]:
        """Copies of all refunds by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).refunds.items)

    @property
    def deposit_references(self) -> dict[str, Json]:
        """Copies of all deposit references by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).deposit_references.items)

    @property
    def balances(self) -> dict[str, Json]:
        """Copies of the balances by currency."""
        with self.lock:
            return copy.deepcopy(self.project_of(None).ledger.balances)

    @property
    def endpoints(self) -> dict[str, Json]:
        """The webhook endpoints by id, without their secrets, newest last."""
        with self.lock:
            return _by_id(endpoint.wire() for endpoint in self.project_of(None).endpoints.by_id.values())

    @property
    def events(self) -> list[Json]:
        """Copies of the stored events, newest last."""
        with self.lock:
            return copy.deepcopy(list(self.project_of(None).events.items))

    @property
    def notifications(self) -> list[Json]:
        """The messages to the owner of the endpoints: ``{at, endpoint_id, url, what}``."""
        with self.lock:
            return copy.deepcopy(self.project_of(None).endpoints.notifications)

    def audit(self) -> list[str]:
        """Return the accounting errors; empty if the money adds up."""
        with self.lock:
            return self.project_of(None).audit()


class Project(Controls):
    """The controls of one project. It shares nothing with the other projects, not even the clock."""

    def __init__(self, state: ProjectState, lock: threading.RLock) -> None:
        self.state = state  # replaced by a reset
        self.lock = lock

    @property
    def api_key(self) -> str:
        """The API key that the project was created with."""
        return self.state.api_key

    @property
    def clock(self) -> Clock:
        """The project's own time. A reset sets it to real time and keeps the object."""
        return self.state.clock

    @property
    def faults(self) -> FaultRegistry:
        """The project's faults. They affect only its own requests and deliveries."""
        return self.state.faults

    @property
    def terms(self) -> Terms:
        """The project's agreement with the provider, which you can change."""
        return self.state.terms

    @property
    def deliveries(self) -> list[Json]:
        """The log of the project's delivery attempts, newest last."""
        with self.lock:
            return copy.deepcopy(self.state.dispatcher.log)

    @property
    def pending_deliveries(self) -> list[Json]:
        """The project's queued deliveries, next first: ``{event_id, endpoint_id, attempts, due_at}``."""
        return self.state.dispatcher.pending()

    def project_of(self, object_id: str | None) -> ProjectState:
        """Return this project. Raises UnknownObjectError for an object of another project."""
        if object_id is not None and not self.state.owns(object_id):
            raise UnknownObjectError(f"there is no {object_id!r} in this project of the sandbox")
        return self.state
