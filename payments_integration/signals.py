"""The signals that merchants receive, all sent after the mirror was committed; and a hook for ``contrib``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from inspect import isasyncgenfunction, iscoroutine
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.dispatch import Signal

_WRITE_INSTEAD = (
    "Receivers of payments_integration run one after the other, inside a transaction. Write a plain function that "
    "calls asgiref.sync.async_to_sync, or that starts a task on commit."
)


def refuse_async(receiver: Callable[..., Any]) -> None:
    """Raise TypeError if calling the receiver only makes a coroutine, as with ``async def``."""
    function: Any = receiver
    while isinstance(function, partial):
        function = function.func
    if any(
        iscoroutinefunction(called) or isasyncgenfunction(called) for called in (function, type(function).__call__)
    ):
        raise TypeError(f"{receiver!r} is async. {_WRITE_INSTEAD}")


class SynchronousSignal(Signal):
    """A signal that refuses ``async def`` receivers."""

    def connect(self, receiver: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """As Django's. Raises TypeError for an ``async def`` receiver."""
        refuse_async(receiver)
        super().connect(receiver, *args, **kwargs)

    def send(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """As Django's. Raises TypeError if a receiver returns a coroutine, because a decorator hides ``async def``."""
        responses: list[Any] = super().send(sender, **named)
        for receiver, response in responses:
            if iscoroutine(response):
                response.close()
                raise TypeError(f"{receiver!r} returned a coroutine. {_WRITE_INSTEAD}")
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

#: Something needs a person. Sent after the commit of what it is about, at least once. A receiver that fails is not
#: called again. Arguments: ``sender`` (a model class), ``reason`` (a ``reasons.Reason``, which equals its stable short
#: name; ``reasons.ACTIONS`` says what to do), ``account``, ``message``, ``instance`` (a row, or None).
attention: SynchronousSignal = SynchronousSignal()

#: A scheduled pass (``process_events``, ``payments_process``) has done its work. Sent outside transactions, every half
#: minute or so: a place for short periodic work of other apps. Django logs a
#: receiver that fails. ``sender`` is None.
pass_ended: SynchronousSignal = SynchronousSignal()


def has_listeners(signal: Signal, sender: type[Any], name: str) -> bool:
    """Whether a receiver is connected that may react to this event type or status.

    ``handlers`` gives its receivers an attribute ``wants``. A receiver without it reacts to everything of the sender.
    """
    synchronous, asynchronous = signal._live_receivers(sender)
    wanted = (getattr(receiver, "wants", None) for receiver in (*synchronous, *asynchronous))
    return any(wants is None or wants(name) for wants in wanted)


MirrorListener = Callable[[Sequence[Any]], None]
_mirror_listeners: list[MirrorListener] = []


def on_mirror_written(listener: MirrorListener) -> None:
    """Have ``projection`` call this function with the mirror rows that it writes, in the transaction that writes them.

    For the optional apps in ``contrib`` whose rows must commit with the mirror's; for your own code there are the
    signals above. It is called once per batch of events and once per answer. The rows are saved, of any kind, and
    locked until the commit. An exception rolls the whole batch back. To connect a function again changes nothing.
    """
    if listener not in _mirror_listeners:
        _mirror_listeners.append(listener)


def mirror_written(rows: Sequence[Any]) -> None:
    """Call the functions of ``on_mirror_written``, if there are rows. Only ``projection`` calls this."""
    for listener in _mirror_listeners if rows else ():
        listener(rows)


_dispatching: ContextVar[bool] = ContextVar("payments_integration_dispatching", default=False)
_dispatched_at: ContextVar[datetime | None] = ContextVar("payments_integration_dispatched_at", default=None)


def is_dispatching() -> bool:
    """Whether a receiver runs now in this thread or task. ``services.defer`` then only records the operation."""
    return _dispatching.get()


def dispatched_at() -> datetime | None:
    """The provider's time of the event or change whose receiver runs now; None outside a receiver."""
    return _dispatched_at.get()


@contextmanager
def dispatching(at: datetime | None = None) -> Iterator[None]:
    """Mark the code within as a receiver that the inbox calls inside its transaction. Can be nested.

    ``at``: the provider's time of what it is called for.
    """
    token, token_at = _dispatching.set(True), _dispatched_at.set(at)
    try:
        yield
    finally:
        _dispatching.reset(token)
        _dispatched_at.reset(token_at)
