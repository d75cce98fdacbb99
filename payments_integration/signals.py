"""Define the signals that merchants receive, all sent after the mirror was committed; and a hook for ``contrib``."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, iscoroutine, isgenerator, isgeneratorfunction
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.dispatch import Signal

from payments_integration.db.border import activate_site_language, closed_blocks, restored_language
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.validation.attempt_key import HANDLER_PREFIX

_APP_LABEL = "payments_integration"
_WRITE_INSTEAD = (
    "Receivers of payments_integration run one after the other, inside a transaction. Write a plain function that "
    "calls asgiref.sync.async_to_sync, or that starts a task on commit."
)


def refuse_async(receiver: Callable[..., Any]) -> None:
    """Raise TypeError if calling the receiver only makes a coroutine, as with ``async def``, or a generator."""
    function: Any = receiver
    while isinstance(function, partial):
        function = function.func
    called = (receiver, function, type(function).__call__)
    if any(iscoroutinefunction(each) or isasyncgenfunction(each) for each in called):
        raise TypeError(f"{receiver!r} is async. {_WRITE_INSTEAD}")
    if any(isgeneratorfunction(each) for each in called):
        raise TypeError(f"{receiver!r} has a yield: calling it runs nothing. Write it without one.")


def _refuse_unrun(receiver: Callable[..., Any], response: Any) -> None:
    if iscoroutine(response):
        response.close()
        raise TypeError(f"{receiver!r} returned a coroutine. {_WRITE_INSTEAD}")
    if isgenerator(response) or isasyncgen(response):
        raise TypeError(f"{receiver!r} returned a generator, which runs nothing. Write it without a yield.")


class SynchronousSignal(Signal):
    """A signal that loses no receiver, and refuses a receiver that would never run."""

    def connect(
        self, receiver: Callable[..., Any], sender: Any = None, weak: bool = False, dispatch_uid: Any = None
    ) -> None:
        """Connect as Django does, but keep the receiver: a function inside ``AppConfig.ready`` has no other owner.

        Raises TypeError for an ``async def`` receiver, and for a sender that is no model of this app with a table of
        its own: a model's name, a proxy, an abstract model, a model of the project. For ``status_changed``, also for a
        model without a mirrored status, such as Event.
        """
        refuse_async(receiver)
        meta = getattr(sender, "_meta", None)
        has_table = meta is not None and meta.app_label == _APP_LABEL and not (meta.abstract or meta.proxy)
        if sender is not None and not has_table:
            raise TypeError(f"{sender!r} sends nothing: the sender is a model of this app, such as Payment.")
        if self is status_changed and sender is not None and not hasattr(sender, "Status"):
            raise TypeError(f"{sender!r} sends no status_changed: it has no mirrored status, as Payment has.")
        super().connect(receiver, sender, weak, dispatch_uid)

    def send(
        self, sender: Any, *, after_each: Callable[[], None] = lambda: None, **named: Any
    ) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does. Raises TypeError for a coroutine or generator: a decorator may hide how it is made.

        ``after_each`` is called after each receiver, and may raise.
        """
        responses: list[tuple[Callable[..., Any], Any]] = []
        for receiver in self._live_receivers(sender)[0]:
            response = receiver(signal=self, sender=sender, **named)
            _refuse_unrun(receiver, response)
            after_each()
            responses.append((receiver, response))
        return responses

    def send_robust(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does, but end what a receiver leaves open or active before the next one, and log nothing."""
        responses: list[tuple[Callable[..., Any], Any]] = []
        for receiver in self._live_receivers(sender)[0]:
            try:
                with closed_blocks(), restored_language():
                    activate_site_language()
                    response = receiver(signal=self, sender=sender, **named)
                    _refuse_unrun(receiver, response)
                responses.append((receiver, response))
            except INTERRUPTIONS:
                raise
            except BaseException as error:  # also CancelledError, and the time-outs of gevent
                responses.append((receiver, error))
        return responses


#: An event was applied. Sent once per event, in ``created_at`` order per object, inside the transaction that marks the
#: event as dispatched: the receiver's database work commits with that mark or not at all. If a receiver raises, the
#: transaction is rolled back and retried. Arguments: ``sender`` (the model class; Event for kinds that are not
#: mirrored), ``event``, ``instance`` (the mirror row as it is now; None for kinds that are not mirrored),
#: ``previous_status`` (the mirrored status before the event was applied), ``is_stale`` (a newer event of this object
#: was dispatched before).
event_received: SynchronousSignal = SynchronousSignal()

#: A mirrored status changed. Sent once per change, in the same transaction as its event. Arguments: ``sender``,
#: ``instance`` (the mirror row as it is now), ``previous_status`` (empty: the object is new), ``status`` (the new
#: status), ``event`` (None if an answer of the provider brought the change), ``status_change``, ``is_stale`` (a newer
#: event of this object was dispatched before, for example because this one was parked and replayed).
status_changed: SynchronousSignal = SynchronousSignal()


class Reason(StrEnum):
    """A stable code. ``attention`` sends it when it happens; ``payments_health`` shows it while it lasts."""

    # sent as ``attention``
    DATABASE = "database"
    DEFERRED_REFUSED = "deferred_refused"
    DEFERRED_REJECTED = "deferred_rejected"
    ENDPOINT = "endpoint"
    EVENT_NOT_APPLIED = "event_not_applied"
    EVENT_QUARANTINED = "event_quarantined"
    EVENTS_HELD = "events_held"
    GAP_TOO_LONG = "gap_too_long"
    KEY_REPLACED = "key_replaced"
    LEDGER_INCOMPLETE = "ledger_incomplete"
    OPERATION_AWAITS_APPROVAL = "operation_awaits_approval"
    OPERATION_NEEDS_RESOLUTION = "operation_needs_resolution"
    ORDER_UNPAID = "order_unpaid"
    PAID_TWICE = "paid_twice"
    PROVIDER_CLOCK = "provider_clock"
    SECRET_MISSING = "secret_missing"  # noqa: S105  (a name)
    SECRET_UNREADABLE = "secret_unreadable"  # noqa: S105  (a name)
    DISPATCH_PARKED = "dispatch_parked"

    # shown by ``payments_health`` alone
    API_KEY_REFUSED = "api_key_refused"
    DELIVERIES_MISSING = "deliveries_missing"
    ERASURE_UNFINISHED = "erasure_unfinished"
    EVENTS_PENDING = "events_pending"
    EVENTS_UNDISPATCHED = "events_undispatched"
    NEVER_RECONCILED = "never_reconciled"
    NO_ENDPOINT = "no_endpoint"
    OPERATION_UNKNOWN = "operation_unknown"
    OPERATIONS_DUE = "operations_due"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    REFRESHES_DUE = "refreshes_due"
    REFRESHES_FAIL = "refreshes_fail"
    REMOVED_ACCOUNT = "removed_account"
    RUNS_FAIL = "runs_fail"
    RUNS_STOPPED = "runs_stopped"
    WATERMARK_OLD = "watermark_old"


#: Something needs a person. Sent after the commit of what it is about, at least once. A receiver that fails is not
#: called again. Arguments: ``sender`` (a model class), ``reason`` (a ``Reason``, which equals its stable short name;
#: ``attention.ACTIONS`` says what to do), ``account``, ``message``, ``instance`` (a row, or None).
attention: SynchronousSignal = SynchronousSignal()

#: A scheduled pass (``process_events``, ``payments_process``) has done its work. Sent outside transactions, every half
#: minute or so: a place for short periodic work of other apps. Django logs a receiver that fails. ``sender`` is None.
pass_ended: SynchronousSignal = SynchronousSignal()


def has_listeners(signal: Signal, sender: type[Any], name: str) -> bool:
    """Return True if a receiver is connected that may react to this event type or status.

    ``handlers`` gives its receivers an attribute ``payments_wants``; a project's may have ``wants`` for its own use. A
    receiver without it reacts to everything of the sender.
    """
    synchronous, asynchronous = signal._live_receivers(sender)
    wanted = (_marks(receiver).get("payments_wants") for receiver in (*synchronous, *asynchronous))
    return any(wants is None or wants(name) for wants in wanted)


def are_database_only(signal: Signal, sender: type[Any], name: str) -> bool:
    """Return True if every receiver that may react to this event type or status is declared ``database_only``.

    A receiver that is connected to the signal directly is not.
    """
    synchronous, asynchronous = signal._live_receivers(sender)
    for receiver in (*synchronous, *asynchronous):
        wants = _marks(receiver).get("payments_wants")
        if (wants is None or wants(name)) and not _marks(receiver).get("payments_database_only"):
            return False
    return True


def _marks(receiver: Any) -> Mapping[str, Any]:
    # getattr would find a mark in a mock, which has attributes of any name.
    return getattr(receiver, "__dict__", {})


MirrorListener = Callable[[Sequence[Any]], None]
_mirror_listeners: list[MirrorListener] = []


def on_mirror_written(listener: MirrorListener) -> None:
    """Make ``projection`` call this function with the mirror rows that it writes, in the transaction that writes them.

    Meant for the optional apps in ``contrib`` whose rows must commit with the mirror's. Your own code uses the signals
    above. It is called once per batch of events, once per answer and once per erased row. The rows are saved, of any
    kind, and locked until the commit. An exception rolls the whole batch back. Connecting a function again changes
    nothing. Raises TypeError for an ``async def`` function or a generator.
    """
    refuse_async(listener)
    if listener not in _mirror_listeners:
        _mirror_listeners.append(listener)


def mirror_written(rows: Sequence[Any]) -> None:
    """Call the functions of ``on_mirror_written``, if there are rows. Only ``projection`` calls this."""
    for listener in _mirror_listeners if rows else ():
        _refuse_unrun(listener, listener(rows))


_deletion_listeners: list[MirrorListener] = []


def on_mirror_deleted(listener: MirrorListener) -> None:
    """Make ``payments_forget`` call this function with the mirror rows that it deletes, in the same transaction.

    Meant for the optional apps in ``contrib`` whose rows have no account of their own. Rows with an account are
    deleted without it. Connecting a function again changes nothing. Raises TypeError as ``on_mirror_written`` does.
    """
    refuse_async(listener)
    if listener not in _deletion_listeners:
        _deletion_listeners.append(listener)


def mirror_deleted(rows: Sequence[Any]) -> None:
    """Call the functions of ``on_mirror_deleted``, if there are rows, before they are deleted."""
    for listener in _deletion_listeners if rows else ():
        _refuse_unrun(listener, listener(rows))


@dataclass
class Cause:
    """The event or change that receivers run for."""

    #: The provider's time.
    at: datetime | None = None
    #: Returns the same whenever receivers run for it, also after a restored backup. None: not known.
    name: Callable[[], str] | None = None
    #: The thread that has the receivers' transaction. With ``asyncio.run`` a receiver works in another one.
    thread: int = field(default_factory=threading.get_ident)
    #: For each call that receivers have made, the marks and keys of its repetitions.
    calls: dict[str, list[tuple[Callable[[], None], str]]] = field(default_factory=dict)

    def key(self, call: str, connection: BaseDatabaseWrapper, is_recorded: Callable[[str], bool]) -> str:
        """Return a key for a call that has none, so that receivers that run again do not move money again.

        ``call`` stands for the function and its arguments, ``connection`` is where it is recorded, and ``is_recorded``
        tells if a key is. Returns "" if the cause has no name.
        """
        if self.name is None:
            return ""

        def mark() -> None:
            """Do nothing. Django forgets it with the savepoint that is rolled back, as the call is forgotten."""

        made = self.calls.get(call, [])
        if connection.in_atomic_block:
            # A call that was rolled back and is made again is the same call. A rollback by SQL, or by
            # ``transaction.savepoint_rollback()``, leaves the mark, but not the operation.
            kept = {id(registered[1]) for registered in connection.run_on_commit}
            made = [each for each in made if id(each[0]) in kept and is_recorded(each[1])]
            connection.on_commit(mark)
        parts = [self.name(), call, len(made) + 1]
        key = f"{HANDLER_PREFIX}{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
        self.calls[call] = [*made, (mark, key)]
        return key


_cause: ContextVar[Cause | None] = ContextVar("payments_integration_cause", default=None)


def cause() -> Cause | None:
    """Return what receivers run for in this thread or task; None outside a receiver."""
    return _cause.get()


def is_dispatching() -> bool:
    """Return True if a receiver runs in this thread or task. ``services.defer`` then only records the operation."""
    return _cause.get() is not None


@contextmanager
def dispatching(at: datetime | None = None, name: Callable[[], str] | None = None) -> Iterator[None]:
    """Mark the code within as a receiver that the inbox calls inside its transaction. Can be nested.

    ``at`` and ``name`` say what for, as in ``Cause``.
    """
    token = _cause.set(Cause(at, name))
    try:
        yield
    finally:
        _cause.reset(token)
