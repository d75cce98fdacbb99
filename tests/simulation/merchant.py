"""The merchant's own code: calls of services, each an intent of its own, and receivers that record their calls.

An intent carries a mark that the provider keeps (metadata, a reason, a reference), so that afterwards the provider's
own books say what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils.connection import ConnectionDoesNotExist

from example_project.shop.models import Order
from payments_integration import erasure, inbox, services
from payments_integration.exceptions import (
    INTERRUPTIONS,
    ApprovalRequired,
    IdempotencyMismatch,
    OutcomeUnknown,
    PaymentsError,
)
from payments_integration.inbox.loading import Item
from payments_integration.models import Event, Operation, StatusChange
from tests.factories.receivers.models import ReceiverCall
from tests.simulation.database import BrokenConnection, Conflict, conflict
from tests.simulation.limits import LIMITS
from tests.simulation.scheduler import GO

DESTINATION = {
    "type": "bank_account",
    "account_number": "12345678",
    "holder_name": "Ana Soto",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYMENT_METHODS = ("cl_webpay_card", "cl_bank_transfer", "cl_card_direct")
AMOUNTS = (1000, 2500, 4000, 1000)
#: A receiver, or a callback, that outlasts the claim of its worker.
SLOW = 15.0
#: What the receivers do with a payment that has succeeded: pay out within the transaction; the same under a key of the
#: payment, from two receivers; or under that key in a callback, at once.
PAYS = ("", "defer", "keyed", "callback")
#: The name of the second person.
BOSS = "boss"
REFERENCES = (None, "order-1", "order-2", "order-1")


class Endings(Protocol):
    """What the merchant's code needs of the world."""

    intents: dict[str, Intent]
    pays: str
    #: The receivers fail for the first object that they see, until the end.
    is_stubborn: bool
    rejected: set[str]
    #: Events and changes that people have replayed.
    replays: set[str]
    #: The marks of operations, as they were before an erasure.
    marks: dict[str, str | None]

    def at(self, point: str, *, may_wait: bool = True) -> str: ...

    def note(self, text: str) -> None: ...

    def violated(self, invariant: str, message: str) -> None: ...

    def receives(self, event: Event, instance: Any) -> None: ...

    def receives_change(self, change: StatusChange) -> None: ...

    def fails(self, item: Item) -> None: ...

    def called_back(self, what: str) -> None: ...

    def pass_slowly(self, seconds: float) -> None: ...


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


class HookFailed(ReceiverFailed):
    """What another app does after the commit of our rows does not work."""


_OF_THE_MERCHANT = (ReceiverFailed, ObjectDoesNotExist)


class Merchant:
    """Calls and receivers in one world."""

    def __init__(self, world: Endings) -> None:
        self._world = world
        #: The object for which the receivers always fail.
        self._stubborn_for = ""
        self._has_rolled_back = False
        #: Generators that stopped within a block.
        self._unfinished: list[Generator[None]] = []

    def call(self, intent: Intent) -> None:
        """One call of the intent's service function, outside a transaction."""
        self._run(intent, lambda: getattr(services, intent.function)(**intent.arguments))

    def pay(self, order: Order, method: str, form: str) -> None:
        """The view behind the button of an order's page."""
        try:
            key = order.attempt_key(form)
        except ValidationError as error:
            self._world.note(f"{order.reference}: {error}")
            return
        arguments = payment_intent(key, method, order.amount, order.reference).arguments
        intent = self._world.intents.setdefault(key, Intent(key, "create_payment", arguments))
        self._run(intent, lambda: services.create_payment(**arguments, idempotency_key=key))

    def approve(self, operation: Operation, rejects: bool) -> None:
        """A second person approves what another one asked for, or rejects it."""
        boss = User.objects.get(username=BOSS)
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

    def press(self, button: str, operation: Operation, *rest: Any) -> None:
        """A person presses a button on an operation's page."""
        try:
            getattr(services, button)(operation, *rest)
        except Exception as error:
            self._world.note(f"{operation}, {button} was refused: {type(error).__name__}: {error}")
            if not is_expected(error):
                raise

    def replay(self, item: Item) -> None:
        """A person has an event or a change dispatched again."""
        self._world.replays.add(str(item.pk))
        inbox.replay(item)

    def erase(self, object_id: str) -> None:
        """A person has a payer's data erased, as ``payments_erase`` does."""
        erasure.erase(erasure.select(erasure.Selection.of(ids=(object_id,))), actor="Ana")

    def call_otherwise(self, intent: Intent, *, deferred: bool = False) -> None:
        """The key of an intent comes with another amount: it must not stand for both calls."""
        function, amount = getattr(services, intent.function), intent.arguments["amount"] + 1
        call: Callable[..., Any] = partial(services.defer, function) if deferred else function
        try:
            row = call(**{**intent.arguments, "amount": amount})
        except IdempotencyMismatch:
            return
        except Exception as error:
            intent.outcomes.append("unknown")
            if not is_expected(error):
                raise
        else:
            intent.outcomes.append("unknown")
            if row.amount != amount:
                self._world.violated("a key stands for one call", f"{intent} with {amount} returned {row.amount}")

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
        except INTERRUPTIONS:
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
            outcome = "unknown" if commits and isinstance(error, BrokenConnection | HookFailed) else "refused"
            intent.errors.append(error)
            self._world.note(f"{intent} raised {type(error).__name__}: {error}")
            # The caller's transaction is the caller's to repeat; the app repeats its own.
            if not is_expected(error) and not (commits and isinstance(error, Conflict)):
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
        if self._world.pays and event.type == "payment.succeeded":
            self._pay_on(event, event)
        self._may_fail(event)

    def on_status(self, sender: type[Any], instance: Any, previous_status: str, status: str, **kwargs: Any) -> None:
        change = kwargs["status_change"]
        self._record(f"status:{change.pk}:{previous_status}>{status}", instance.pk)
        if kwargs["event"] is None:
            self._world.receives_change(change)
        if self._world.pays in ("defer", "keyed") and change.object_kind == "payment" and status == "succeeded":
            self._pay_on(change, kwargs["event"] or change)
        self._may_fail(kwargs["event"] or change)

    def _record(self, what: str, object_id: str) -> None:
        """The receiver's work, and what follows its commit: a callback that may fail, and one that must still come."""
        self._finish()
        ReceiverCall.objects.create(what=what, object_id=object_id)
        transaction.on_commit(self._callback)
        transaction.on_commit(self._callback, robust=True)
        transaction.on_commit(lambda: self._world.called_back(what))

    def _callback(self) -> None:
        self._do_wrong(self._world.at("callback", may_wait=False))

    def on_attention(self) -> None:
        """What a receiver of attention does."""
        self._finish()
        self._do_wrong(self._world.at("attention", may_wait=False))

    def _do_wrong(self, kind: str) -> None:
        match kind:
            case "conflict":
                raise conflict()
            case "slow":
                self._world.pass_slowly(SLOW)
            case "swallow":
                with suppress(IntegrityError):
                    # Within a transaction, Django marks it for rollback.
                    ReceiverCall(pk=ReceiverCall.objects.values_list("pk")[:1]).save(force_insert=True)
            case "close":
                connection.close()
            case "rollback":
                transaction.set_rollback(True)
            case "ended" | "begun":
                with connection.cursor() as cursor:
                    cursor.execute("ROLLBACK")
                    if kind == "ended":
                        # Otherwise SQLite would commit what the next receiver writes.
                        raise RAISED["fail"]
                    cursor.execute("BEGIN")
            case "call":
                services.create_payout(**payout_intent("in a transaction", 700, None).arguments)
            case "open":
                transaction.atomic().__enter__()
            case "unfinished":
                generator = _in_block()
                next(generator)  # it may stand still at its BEGIN
                self._unfinished.append(generator)
            case "autocommit":
                transaction.set_autocommit(False)
            case _ if kind != GO:
                raise RAISED[kind]

    def _finish(self) -> None:
        """The generators end, in the thread and the transaction of another call."""
        while self._unfinished:
            # Its database is none any more: Python would print that, as of any error in a generator that it collects.
            with suppress(ConnectionDoesNotExist):
                self._unfinished.pop().close()

    def _may_fail(self, item: Item) -> None:
        kind = self._world.at("receiver", may_wait=False)
        if self._world.is_stubborn:
            self._stubborn_for = self._stubborn_for or item.object_id
            if item.object_id == self._stubborn_for:
                kind = "fail"
        if kind not in (GO, "slow"):
            self._world.fails(item)
        self._do_wrong(kind)

    def on_saved(self, sender: type[Any], **kwargs: Any) -> None:
        """The receiver of another app, of every row that is saved or deleted."""
        if sender._meta.app_label != Event._meta.app_label:
            return
        if (kind := self._world.at("saved", may_wait=False)) == "hook":
            transaction.on_commit(_fail_after_commit)
        elif kind != GO:
            raise RAISED[kind]

    def _pay_on(self, item: Item, in_hand: Item) -> None:
        """Pay the received amount out: recorded with the dispatch, once per item or, with a key, once per payment.

        ``in_hand``: the item that is charged with a failure. A change of status is dispatched with its event.
        """
        if self._world.pays == "defer":
            mark, key = str(item.pk), {}
            if isinstance(item, StatusChange):
                same = StatusChange.objects.filter(object_id=item.object_id, status=item.status, pk__lte=item.pk)
                mark = f"{item.object_id} {item.status} {same.count()}"
        else:
            mark = f"of-{item.object_id}"
            key = {"idempotency_key": mark}
        intent = self._world.intents.setdefault(mark, payout_intent(mark, 700, None))
        intent.arguments |= key
        if self._world.pays == "callback":
            transaction.on_commit(lambda: self.call(intent))
        else:
            intent.outcomes.append("dispatched")
            try:
                self._defer_in_savepoint(intent)
            except (*_OF_THE_MERCHANT, *LIMITS):
                # Another app's receiver raised, or a time limit of the worker did. The watch would blame the first
                # item of the page, and in a group it may be another one.
                self._world.fails(in_hand)
                raise

    def _defer_in_savepoint(self, intent: Intent) -> None:
        """Roll back what comes with the call, every second time, and call again without it."""
        self._has_rolled_back = not self._has_rolled_back
        try:
            with transaction.atomic():
                services.defer(services.create_payout, **intent.arguments)
                if self._has_rolled_back:
                    raise _RolledBack
        except _RolledBack:
            services.defer(services.create_payout, **intent.arguments)


RAISED: dict[str, BaseException | type[BaseException]] = {
    "fail": ReceiverFailed("the broker is away"),
    "missing": ObjectDoesNotExist("no such order"),
    "memory": MemoryError,
    "cancel": asyncio.CancelledError,
    "exit": SystemExit,
    "keyboard": KeyboardInterrupt,
    "generator": GeneratorExit,
}


def _in_block() -> Generator[None]:
    with transaction.atomic():
        yield


def _fail_after_commit() -> None:
    raise HookFailed("the index is away")


def is_expected(error: Exception) -> bool:
    """Whether the documentation of services names such errors."""
    return isinstance(error, (PaymentsError, ValidationError, BrokenConnection, *_OF_THE_MERCHANT))


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
