"""The controls of a sandbox: what payers, banks and the provider do, by hand.

The same methods stand on a project (:class:`ProjectControls`) and on the engine, which finds the project that
an object belongs to and otherwise means its default project.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from .endpoints import Endpoint
from .errors import SandboxError, UnknownObjectError
from .project import Project
from .shapes import Wire

SETTABLE_TERMS = (
    "active", "countries", "forbidden_methods", "unavailable_methods", "broken_methods", "blocked_payers",
    "require_whitelist",
)  # fmt: skip


def _by_id(items: Iterable[Wire]) -> dict[str, Wire]:
    return {item["id"]: copy.deepcopy(item) for item in items}


class Controls:
    """Moves by hand. Each returns the object as it is afterwards, in wire shape; amounts are in minor units.

    Raises SandboxError (a ValueError) for a move that the object's status does not allow, and
    UnknownObjectError.
    """

    lock: AbstractContextManager[object]

    def project_of(self, object_id: str | None) -> Project:
        """The project that owns an object; with None the project that is meant when nothing else is said."""
        raise NotImplementedError

    def _do(self, move: Callable[[Project], Wire], object_id: str | None) -> Wire:
        with self.lock:
            return copy.deepcopy(move(self.project_of(object_id)))

    # payments

    def open_checkout(self, payment_id: str) -> Wire:
        """The payer opens the checkout page: created becomes requires_action."""
        return self._do(lambda project: project.pay_ins.open_page(payment_id), payment_id)

    def pay(self, payment_id: str, amount: int | None = None) -> Wire:
        """The payer pays what is missing, or for transfers any amount; also late, and out of on_hold."""
        return self._do(lambda project: project.pay_ins.pay(payment_id, amount), payment_id)

    def process(self, payment_id: str) -> Wire:
        """The payer did their part, the outcome is open: processing."""
        return self._do(lambda project: project.pay_ins.process(payment_id), payment_id)

    def fail(self, payment_id: str, reason: str = "declined") -> Wire:
        """The payment fails for this reason."""
        return self._do(lambda project: project.pay_ins.fail(payment_id, reason), payment_id)

    def expire(self, payment_id: str) -> Wire:
        """The payer's time is up."""
        return self._do(lambda project: project.pay_ins.expire(payment_id), payment_id)

    def hold(self, payment_id: str) -> Wire:
        """The money came and is under review: pending."""
        return self._do(lambda project: project.pay_ins.hold(payment_id), payment_id)

    def chargeback(self, payment_id: str) -> Wire:
        """The card's holder takes the money back."""
        return self._do(lambda project: project.pay_ins.chargeback(payment_id), payment_id)

    # payouts

    def process_payout(self, payout_id: str) -> Wire:
        """created or on_hold becomes processing."""
        return self._do(lambda project: project.pay_outs.process(payout_id), payout_id)

    def succeed_payout(self, payout_id: str) -> Wire:
        """The money arrives, by way of processing."""
        return self._do(lambda project: project.pay_outs.succeed(payout_id), payout_id)

    def fail_payout(self, payout_id: str, reason: str = "rejected_by_bank") -> Wire:
        """The bank refuses."""
        return self._do(lambda project: project.pay_outs.fail(payout_id, reason), payout_id)

    def return_payout(self, payout_id: str, reason: str = "returned_by_bank") -> Wire:
        """After success the bank sends the amount back."""
        return self._do(lambda project: project.pay_outs.return_(payout_id, reason), payout_id)

    def hold_payout(self, payout_id: str) -> Wire:
        """created or processing becomes on_hold."""
        return self._do(lambda project: project.pay_outs.hold(payout_id), payout_id)

    def delay_payout(self, payout_id: str) -> Wire:
        """payout.delayed, without a change of status."""
        return self._do(lambda project: project.pay_outs.delay(payout_id), payout_id)

    # refunds

    def process_refund(self, refund_id: str) -> Wire:
        """created becomes processing."""
        return self._do(lambda project: project.pay_backs.process(refund_id), refund_id)

    def succeed_refund(self, refund_id: str) -> Wire:
        """The payer has the money, by way of processing."""
        return self._do(lambda project: project.pay_backs.succeed(refund_id), refund_id)

    def fail_refund(self, refund_id: str) -> Wire:
        """The refund did not work."""
        return self._do(lambda project: project.pay_backs.fail(refund_id), refund_id)

    def return_refund(self, refund_id: str) -> Wire:
        """After success the money came back."""
        return self._do(lambda project: project.pay_backs.return_(refund_id), refund_id)

    def cancel_refund(self, refund_id: str) -> Wire:
        """The provider gives the refund up; no event tells of it."""
        return self._do(lambda project: project.pay_backs.cancel(refund_id), refund_id)

    # deposit references

    def transfer(self, deposit_reference_id: str, amount: int) -> Wire:
        """Money arrives at a deposit reference; returns the payment."""
        return self._do(
            lambda project: project.deposit_accounts.transfer(deposit_reference_id, amount),
            deposit_reference_id,
        )

    def disable_deposit_reference(self, deposit_reference_id: str) -> Wire:
        """The reference takes no more transfers."""
        return self._do(
            lambda project: project.deposit_accounts.set_status(deposit_reference_id, "disabled"),
            deposit_reference_id,
        )

    # money

    def fund(self, currency: str, amount: int) -> Wire:
        """Make this much available; returns the balance."""
        return self._do(lambda project: project.fund(currency, amount), None)

    def set_reserve(self, currency: str, amount: int) -> Wire:
        """Hold this much against chargebacks, out of available money; returns the balance."""

        def move(project: Project) -> Wire:
            project.ledger.set_reserve(currency, amount, "reserve")
            return project.ledger.balances[currency]

        return self._do(move, None)

    # endpoints and events

    def add_endpoint(self, url: str, events: list[str] | None = None, secret: str | None = None) -> Wire:
        """Register an endpoint without a request; returns it with its secret. Any URL is taken."""
        return self._do(lambda project: project.webhooks.add(url, events, secret).wire(with_secret=True), None)

    def enable_endpoint(self, endpoint_id: str) -> Wire:
        """Make a disabled endpoint active again."""
        return self._do(lambda project: project.webhooks.enable(endpoint_id).wire(), endpoint_id)

    def endpoint(self, endpoint_id: str) -> Endpoint:
        """The endpoint with what the API does not show: secrets and health."""
        with self.lock:
            return self.project_of(endpoint_id).webhooks.at_hand(endpoint_id)

    def redeliver(self, event_id: str, endpoint_id: str | None = None) -> int:
        """Queue an event again for one endpoint, or all that subscribe to it; returns for how many."""
        with self.lock:
            return self.project_of(event_id).redeliver(event_id, endpoint_id)

    # the merchant's standing

    def revoke_key(self, api_key: str | None = None) -> None:
        """Requests with this key (the project's own) are answered api_key_revoked."""
        with self.lock:
            project = self.project_of(None)
            project.keys[api_key or project.api_key] = False

    def add_key(self, api_key: str) -> None:
        """A further API key for the same project."""
        with self.lock:
            self.project_of(None).keys[api_key] = True

    def set_terms(self, **changes: object) -> Wire:
        """Change what the provider allows: the fields of :class:`~.desk.Terms`, lists for sets. Returns them all."""
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
        """Add a payout destination: active 24 hours later, where ``terms.require_whitelist`` is set."""
        with self.lock:
            self.project_of(None).desk.whitelist(account_number)

    # looking

    @property
    def payments(self) -> dict[str, Wire]:
        """Copies of all payments by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).pay_ins.items)

    @property
    def payouts(self) -> dict[str, Wire]:
        """Copies of all payouts by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).pay_outs.items)

    @property
    def refunds(self) -> dict[str, Wire]:
        """Copies of all refunds by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).pay_backs.items)

    @property
    def deposit_references(self) -> dict[str, Wire]:
        """Copies of all deposit references by id, newest last."""
        with self.lock:
            return _by_id(self.project_of(None).deposit_accounts.items)

    @property
    def balances(self) -> dict[str, Wire]:
        """Copies of the balances by currency."""
        with self.lock:
            return copy.deepcopy(self.project_of(None).ledger.balances)

    @property
    def endpoints(self) -> dict[str, Wire]:
        """The webhook endpoints by id, without their secrets, newest last."""
        with self.lock:
            return _by_id(endpoint.wire() for endpoint in self.project_of(None).webhooks.by_id.values())

    @property
    def events(self) -> list[Wire]:
        """Copies of the stored events, newest last."""
        with self.lock:
            return copy.deepcopy(list(self.project_of(None).event_store.items))

    @property
    def notifications(self) -> list[Wire]:
        """The messages to the owner of endpoints: ``{at, endpoint_id, url, what}``."""
        with self.lock:
            return copy.deepcopy(self.project_of(None).webhooks.notifications)

    def audit(self) -> list[str]:
        """The violated invariants of the books; empty when they add up."""
        with self.lock:
            return self.project_of(None).audit()


class ProjectControls(Controls):
    """The controls of one project. ``terms`` is what the provider allows it; change it to reach further errors."""

    def __init__(self, project: Project, lock: AbstractContextManager[object]) -> None:
        self.inner = project
        self.lock = lock
        self.terms = project.terms

    @property
    def api_key(self) -> str:
        """The key the project was made with."""
        return self.inner.api_key

    def project_of(self, object_id: str | None) -> Project:
        """This project; raises UnknownObjectError for an id of another one."""
        if object_id is not None and not self.inner.owns(object_id):
            raise UnknownObjectError(f"there is no {object_id!r} in this project of the sandbox")
        return self.inner
