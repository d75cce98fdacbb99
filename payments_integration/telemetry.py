"""Report what this process does, for metrics and traces: hooks to which ``contrib`` connects observers.

The hooks stand where the flows are: around work that takes time (an activity), and after the commit of what has
happened (a fact). An observer can neither change nor stop the work: its errors are logged and ignored. Without an
observer a hook costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: W3C Trace Context, level 1.
_TRACEPARENT = r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"


# Activities: each has a beginning and an end.


class Delivery(NamedTuple):
    """A delivery whose signature is valid is stored."""

    account: str


class Batch(NamedTuple):
    """Stored events are applied to the mirror, in one transaction. It begins again after a conflict."""

    #: Rows of ``Event``.
    events: Sequence[Any]


class Handling(NamedTuple):
    """Receivers run for an item, inside the transaction that marks it."""

    #: A row of ``Event``, or of ``StatusChange`` for a change that an answer brought.
    item: Any


@dataclass(slots=True)
class ServiceCall:
    """A function of ``services`` that sends."""

    operation: str
    #: Known when the arguments are valid.
    account: str = ""


class Sending(NamedTuple):
    """An operation is sent, by its caller or by a worker."""

    #: A row of ``Operation``.
    operation: Any
    #: True if it may have been sent before.
    is_repeated: bool


@dataclass(slots=True)
class Exchange:
    """One HTTP request to the provider and its answer. After a 429 the same call makes another one."""

    account: str
    method: str
    #: The path without ids, such as ``/payments/{id}/cancel``.
    route: str
    #: How many requests of the same call were answered 429 before.
    retries: int
    #: 0 until an answer has come.
    status_code: int = 0
    #: The provider's id of the request; empty if the answer names none.
    request_id: str = ""
    #: The error of the answer: the call raises it, or makes another request. Without an answer, an exception ends the
    #: request.
    refusal: Exception | None = None


# Facts: each has happened, and is committed.


class Refused(NamedTuple):
    """A delivery was answered 400, 413 or 503, and not stored."""

    account: str
    reason: str


class Received(NamedTuple):
    """An event was stored now or before; in quarantine, the type is empty."""

    account: str
    source: str
    type: str
    #: ``inbox.Receipt``: new, known or quarantined.
    receipt: str
    event_id: str


class Applied(NamedTuple):
    """Events were applied to the mirror."""

    #: Rows of ``Event``.
    events: Sequence[Any]


class Dispatched(NamedTuple):
    """All receivers have run for an item."""

    #: As in ``Handling``.
    item: Any


class DispatchFailed(NamedTuple):
    """A receiver failed, or the commit of its work, or the process died over it."""

    #: As in ``Handling``.
    item: Any
    #: It was the last attempt.
    is_parked: bool


class CallbackFailed(NamedTuple):
    """A function that a handler, or another app's receiver, gave to ``transaction.on_commit`` failed after a commit.

    The transaction is committed and stays so.
    """

    #: Empty if the transaction was about no single account.
    account: str
    error: BaseException


class WakeUpFailed(NamedTuple):
    """The processor was not told that an account has work: by a broker, the database, or the project's WAKE_UP.

    The work is committed, and the schedule finds it.
    """

    account: str
    error: BaseException


class RateLimit(NamedTuple):
    """What an answer says about the rate limit of an API key."""

    account: str
    #: ``read`` or ``write``.
    bucket: str
    limit: int
    remaining: int


Activity = Delivery | Batch | Handling | ServiceCall | Sending | Exchange
Fact = Refused | Received | Applied | Dispatched | DispatchFailed | CallbackFailed | WakeUpFailed | RateLimit
ActivityT = TypeVar("ActivityT", Delivery, Batch, Handling, ServiceCall, Sending, Exchange)
#: Called at the end of an activity, with the exception that ended it.
End = Callable[[BaseException | None], None]


class Observer:
    """Override what you need. The methods run within the flows: they must be quick, and not use the database."""

    def begun(self, activity: Activity) -> End | None:
        """Note that an activity begins. Returns what to call at its end, when the activity has its last values."""

    def happened(self, fact: Fact) -> None:
        """Note a fact."""

    def traceparent(self) -> str:
        """Return the trace that is active now, as a W3C ``traceparent``; empty: none. An event is stored with it."""
        return ""


_observers: list[Observer] = []


def observe(observer: Observer) -> None:
    """Tell the observer of everything that happens in this process from now on."""
    if observer not in _observers:
        _observers.append(observer)


def forget(observer: Observer) -> None:
    """Stop telling the observer."""
    if observer in _observers:
        _observers.remove(observer)


def during(activity: ActivityT) -> AbstractContextManager[ActivityT]:
    """Tell observers when the block begins and ends. What becomes known meanwhile is set on the activity."""
    return _observed(activity) if _observers else nullcontext(activity)


@contextmanager
def _observed(activity: ActivityT) -> Iterator[ActivityT]:
    ends = [end for observer in _observers if (end := _told(observer.begun, activity)) is not None]
    try:
        yield activity
    except BaseException as error:
        for end in reversed(ends):
            _told(end, error)
        raise
    for end in reversed(ends):
        _told(end, None)


def happened(fact: Fact) -> None:
    """Tell observers of a fact."""
    for observer in _observers:
        _told(observer.happened, fact)


def traceparent() -> str:
    """Return the active trace of the first observer that has one; empty: none, or it is malformed."""
    found = next((found for observer in _observers if (found := _told(observer.traceparent))), "")
    # It is stored with each event: a longer text would stop every delivery.
    return found if found and isinstance(found, str) and re.fullmatch(_TRACEPARENT, found) else ""


def _told(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception:
        logger.exception("An observer failed: %r", function)
        return None
