"""The merchant's own code: calls of services, each an intent of its own, and receivers that record their calls.

An intent carries a mark that the provider keeps (metadata, a reason, a reference), so that afterwards the provider's
own books say what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from payments_integration import services
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown, PaymentsError
from payments_integration.inbox.loading import Item
from payments_integration.models import Event, Operation, StatusChange
from tests.factories.receivers.models import ReceiverCall
from tests.simulation.database import BrokenConnection, conflict
from tests.simulation.scheduler import GO, Killed

DESTINATION = {
    "type": "bank_account",
    "account_number": "12345678",
    "holder_name": "Ana Soto",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYMENT_METHODS = ("cl_webpay_card", "cl_bank_transfer", "cl_card_direct")
AMOUNTS = (1000, 2500, 4000, 1000)
REFERENCES = (None, "order-1", "order-2", "order-1")


class Endings(Protocol):
    """What the merchant's code needs of the world."""

    intents: dict[str, Intent]
    receiver_defers: bool
    rejected: set[str]

    def at(self, point: str, *, may_wait: bool = True) -> str: ...

    def note(self, text: str) -> None: ...

    def violated(self, invariant: str, message: str) -> None: ...

    def receives(self, event: Event, instance: Any) -> None: ...

    def receives_change(self, change: StatusChange) -> None: ...

    def fails(self, item: Item) -> None: ...

    def called_back(self, what: str) -> None: ...


@dataclass
class Intent:
    """Something that the merchant wants to be done once, however often its code asks for it."""

    mark: str
    function: str
    arguments: dict[str, Any]
    #: What calls led to: "returned", "unknown", "refused", "rolled back", "recorded", "died".
    outcomes: list[str] = field(default_factory=list)
    #: Ids of the objects that calls returned.
    returned: list[str] = field(default_factory=list)
    #: The errors of the calls that were refused.
    errors: list[Exception] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.function} [{self.mark}]"


class _RolledBack(Exception):
    """The merchant's code changed its mind."""


class ReceiverFailed(Exception):
    """A receiver of the merchant's does not work."""


class Merchant:
    """Calls and receivers in one world."""

    def __init__(self, world: Endings) -> None:
        self._world = world

    def call(self, intent: Intent) -> None:
        """One call of the intent's service function, outside a transaction."""
        self._run(intent, lambda: getattr(services, intent.function)(**intent.arguments))

    def approve(self, operation: Operation, rejects: bool) -> None:
        """A second person approves what another one asked for, or rejects it."""
        boss = User.objects.get_or_create(username="boss", is_superuser=True, is_staff=True)[0]
        try:
            if rejects:
                services.reject(operation, boss, "no")
                self._world.rejected.add(operation.pk)
            else:
                services.approve(operation, boss)
        except Exception as error:
            self._world.note(f"{operation} is not decided: {type(error).__name__}: {error}")
            if not is_expected(error):
                raise

    def retry(self, operation: Operation) -> None:
        """A person has an operation sent again."""
        try:
            services.retry(operation, "Ana")
        except Exception as error:
            self._world.note(f"{operation} is not sent again: {type(error).__name__}: {error}")
            if not is_expected(error):
                raise

    def defer(self, intent: Intent, *, rolls_back: bool) -> None:
        """The same inside a transaction of the merchant's."""

        def run() -> Any:
            with transaction.atomic():
                services.defer(getattr(services, intent.function), **intent.arguments)
                if rolls_back:
                    raise _RolledBack

        self._run(intent, run, commits=True)

    def _run(self, intent: Intent, run: Callable[[], Any], *, commits: bool = False) -> None:
        try:
            row = run()
        except (Killed, SystemExit):
            intent.outcomes.append("died")
            raise
        except OutcomeUnknown:
            outcome = "unknown"
        except ApprovalRequired:
            outcome = "waits"
        except _RolledBack:
            outcome = "rolled back"
        except Exception as error:
            # Where the commit is the caller's own, only the caller can know that it may have happened.
            outcome = "unknown" if commits and isinstance(error, BrokenConnection) else "refused"
            intent.errors.append(error)
            self._world.note(f"{intent} raised {type(error).__name__}: {error}")
            if not is_expected(error):
                raise
        else:
            outcome = "recorded" if row is None else "returned"
            if row is not None:
                intent.returned.append(row.pk)
        intent.outcomes.append(outcome)
        self._world.note(f"{intent}: {outcome}")

    # The merchant's receivers: their table shares the transaction of the dispatch.

    def on_event(self, sender: type[Any], event: Event, instance: Any, is_stale: bool, **kwargs: Any) -> None:
        age = "stale" if is_stale else "fresh"
        self._record(f"event:{event.id}:{age}", event.object_id)
        self._world.receives(event, instance)
        stored = None if instance is None else type(instance)._default_manager.get(pk=instance.pk)
        if stored is not None and stored.version != instance.version:
            self._world.violated("a receiver gets the row as it is now", f"{event}: {instance.version}")
        if self._world.receiver_defers and event.type == "payment.succeeded":
            self._pay_on(event)
        self._may_fail(event)

    def on_status(self, sender: type[Any], instance: Any, previous_status: str, status: str, **kwargs: Any) -> None:
        change = kwargs["status_change"]
        self._record(f"status:{change.pk}:{previous_status}>{status}", instance.pk)
        if kwargs["event"] is None:
            self._world.receives_change(change)
        self._may_fail(kwargs["event"] or change)

    def _record(self, what: str, object_id: str) -> None:
        """The receiver's work, and what follows its commit: a callback that may fail, and one that must still come."""
        ReceiverCall.objects.create(what=what, object_id=object_id)
        transaction.on_commit(self._callback)
        transaction.on_commit(lambda: self._world.called_back(what))

    def _callback(self) -> None:
        match self._world.at("callback", may_wait=False):
            case "conflict":
                raise conflict()
            case "fail":
                raise ConnectionError("the broker is away")
            case "cancel":
                raise asyncio.CancelledError
            case "exit":
                raise SystemExit

    def _may_fail(self, item: Item) -> None:
        kind = self._world.at("receiver", may_wait=False)
        if kind == GO:
            return
        self._world.fails(item)
        match kind:
            case "fail":
                raise ReceiverFailed(item)
            case "cancel":
                raise asyncio.CancelledError
            case "exit":
                raise SystemExit
            case "close":
                connection.close()
            case "rollback":
                transaction.set_rollback(True)

    def _pay_on(self, event: Event) -> None:
        """Pay out the received amount: recorded with the dispatch, once per event."""
        intent = self._world.intents.setdefault(event.id, payout_intent(event.id, 700, None))
        intent.outcomes.append("dispatched")
        services.defer(services.create_payout, **intent.arguments)


def is_expected(error: Exception) -> bool:
    """Whether the documentation of services names such errors."""
    return isinstance(error, PaymentsError | ValidationError | BrokenConnection)


def payment_intent(mark: str, method: str, amount: int, reference: str | None) -> Intent:
    arguments: dict[str, Any] = {
        "amount": amount,
        "currency": "CLP",
        "country": "CL",
        "method_code": method,
        "metadata": {"intent": mark},
    }
    if method == "cl_card_direct":
        arguments["flow"] = "s2s"
    return Intent(mark, "create_payment", arguments | _reference(reference))


def payout_intent(mark: str, amount: int, reference: str | None) -> Intent:
    arguments = {
        "amount": amount,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_bank_transfer",
        "destination": DESTINATION,
        "metadata": {"intent": mark},
        # Who approves it is another person.
        "actor": "clerk",
    }
    return Intent(mark, "create_payout", arguments | _reference(reference))


def refund_intent(mark: str, payment_id: str, amount: int | None, *, by_card: bool) -> Intent:
    arguments: dict[str, Any] = {"payment": payment_id, "reason": mark}
    if amount is not None:
        arguments["amount"] = amount
    if not by_card:
        arguments["destination"] = DESTINATION
    return Intent(mark, "create_refund", arguments)


def deposit_intent(mark: str) -> Intent:
    arguments = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit", "merchant_reference": mark}
    return Intent(mark, "create_deposit_reference", arguments)


def mark_of(item: dict[str, Any]) -> str | None:
    """The mark in one of the provider's objects, or in an operation's arguments; None where the intent left none."""
    mark: str | None
    if "metadata" in item and "intent" in item["metadata"]:
        mark = item["metadata"]["intent"]
    elif item.get("object") == "payment":
        mark = None  # the provider made it of a transfer
    elif item.get("method_code") == "cl_deposit":
        mark = item.get("merchant_reference")
    else:
        mark = item.get("reason")
    return mark


def _reference(reference: str | None) -> dict[str, str]:
    return {} if reference is None else {"merchant_reference": reference}
