"""Decorators for handlers, in a module ``payment_handlers.py`` of any installed app (found at start-up).

    @on_status(Payment, "succeeded")
    def deliver(payment, **kwargs): ...

    @on_event("payout.*")
    def log(event, instance, **kwargs): ...

A handler runs inside the transaction that records that it ran, so its database work commits exactly once. It must not
call the provider (use ``services.defer``), and should leave slow work to ``transaction.on_commit``. It cannot be
``async def``: the decorators raise TypeError.

Type checkers find a status or an event type that the spec does not have, and a handler that cannot be called. For one
that the provider added later, write ``# type: ignore`` behind it; ``manage.py check`` warns of it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, overload

from asgiref.sync import AsyncToSync
from django.apps import apps

from payments_integration import conf
from payments_integration.enums import (
    EVENT_TYPES,
    ActiveStatus,
    ActiveStatusName,
    BalanceEventType,
    DepositReferenceStatus,
    EventPattern,
    EventType,
    PaymentEventType,
    PaymentStatus,
    PaymentStatusName,
    PayoutEventType,
    PayoutStatus,
    PayoutStatusName,
    RefundEventType,
    RefundStatus,
    RefundStatusName,
)
from payments_integration.models import (
    MIRRORS,
    Balance,
    DepositReference,
    Event,
    Payment,
    Payout,
    Refund,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.models.base import Row
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import event_received, refuse_async, status_changed

logger = get_logger(__name__)

_PACKAGE = "payments_integration."

#: The models of the events whose type begins with the name of a mirrored object.
_MODELS: dict[str, type[Any]] = {name.partition(".")[0]: MIRRORS[name.partition(".")[0]] for name in EVENT_TYPES}

#: Every handler with its model (None: on_event) and its statuses or patterns, for the system checks.
registered: list[tuple[Callable[..., Any], type[Any] | None, tuple[str, ...]]] = []

RowT = TypeVar("RowT", contravariant=True)
# In the two protocols, ``_added_later`` stands for the arguments of later versions: it makes ``**kwargs`` necessary.


class EventHandler(Protocol[RowT]):
    """A function for :func:`on_event`. It names the arguments that it uses; the rest goes to its ``**kwargs``."""

    def __call__(
        self,
        *,
        sender: type[RowT],
        event: Event,
        instance: RowT,
        previous_status: str,
        is_stale: bool,
        _added_later: Any,
    ) -> None: ...


class StatusHandler(Protocol[RowT]):
    """A function for :func:`on_status`. It names the arguments that it uses; the rest goes to its ``**kwargs``."""

    def __call__(
        self,
        instance: RowT,
        /,
        *,
        sender: type[RowT],
        previous_status: str,
        status: str,
        event: Event | None,
        status_change: StatusChange,
        is_stale: bool,
        _added_later: Any,
    ) -> None: ...


Handler = TypeVar("Handler", bound=Callable[..., Any])
# The decorators return the function as it is. Each type variable is bound to the handlers of one model.
OfEvent = TypeVar("OfEvent", bound=EventHandler[Any])
OfPaymentEvent = TypeVar("OfPaymentEvent", bound=EventHandler[Payment])
OfPayoutEvent = TypeVar("OfPayoutEvent", bound=EventHandler[Payout])
OfRefundEvent = TypeVar("OfRefundEvent", bound=EventHandler[Refund])
OfBalanceEvent = TypeVar("OfBalanceEvent", bound=EventHandler[Balance])
OfPayment = TypeVar("OfPayment", bound=StatusHandler[Payment])
OfPayout = TypeVar("OfPayout", bound=StatusHandler[Payout])
OfRefund = TypeVar("OfRefund", bound=StatusHandler[Refund])
OfDepositReference = TypeVar("OfDepositReference", bound=StatusHandler[DepositReference])
OfWebhookEndpoint = TypeVar("OfWebhookEndpoint", bound=StatusHandler[WebhookEndpoint])

PaymentEvents = PaymentEventType | Literal["payment.*"]
PayoutEvents = PayoutEventType | Literal["payout.*"]
RefundEvents = RefundEventType | Literal["refund.*"]
BalanceEvents = BalanceEventType | Literal["balance.*"]
Events = EventType | EventPattern


@overload
def on_event(
    pattern: PaymentEvents, /, *patterns: PaymentEvents, include_stale: bool = False, database_only: bool = False
) -> Callable[[OfPaymentEvent], OfPaymentEvent]: ...
@overload
def on_event(
    pattern: PayoutEvents, /, *patterns: PayoutEvents, include_stale: bool = False, database_only: bool = False
) -> Callable[[OfPayoutEvent], OfPayoutEvent]: ...
@overload
def on_event(
    pattern: RefundEvents, /, *patterns: RefundEvents, include_stale: bool = False, database_only: bool = False
) -> Callable[[OfRefundEvent], OfRefundEvent]: ...
@overload
def on_event(
    pattern: BalanceEvents, /, *patterns: BalanceEvents, include_stale: bool = False, database_only: bool = False
) -> Callable[[OfBalanceEvent], OfBalanceEvent]: ...
@overload
def on_event(
    pattern: Events, /, *patterns: Events, include_stale: bool = False, database_only: bool = False
) -> Callable[[OfEvent], OfEvent]: ...


def on_event(*patterns: str, include_stale: bool = False, database_only: bool = False) -> Callable[[Handler], Handler]:
    """Call the function for events of these types (spec, "Events").

    For work that depends on a status prefer ``on_status``.

    It is called with ``event``, ``instance`` (the mirror row as it is now, or None), ``previous_status``, ``is_stale``
    and ``sender``, all by name.

    Args:
        patterns: Event types. ``*`` stands for any text: ``payout.*``.
        include_stale: Also call it for an event after which a newer one of the object was dispatched.
        database_only: Declares that the function writes only to the database of this app's tables (``on_commit`` is
            allowed). If all receivers of several events are declared, they share a transaction, which is several
            times as fast; after a failure in it, the function is called again for events that had not failed.

    Raises:
        TypeError: There is no pattern; the function is ``async def`` or a generator, or cannot be called like this;
            its module is imported under two names.
    """
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError('on_event() takes event types, e.g. @on_event("payment.succeeded", "payout.*")')

    def wants(event_type: str) -> bool:
        return any(fnmatchcase(event_type, pattern) for pattern in patterns)

    def decorate(handler: Handler) -> Handler:
        refuse_async(handler)
        _refuse_uncallable(handler, EventHandler, "def handler(event, instance, **kwargs)")

        def receiver(sender: type[Any], event: Any, is_stale: bool, **kwargs: Any) -> Any:
            if (is_stale and not include_stale) or not wants(event.type):
                return None
            kwargs.pop("signal", None)
            return handler(sender=sender, event=event, is_stale=is_stale, **kwargs)

        # Events that no receiver wants are done when they are applied.
        receiver.payments_wants = wants  # type: ignore[attr-defined]
        receiver.payments_database_only = database_only  # type: ignore[attr-defined]
        _register(handler, None, patterns)
        for sender in _senders(patterns):
            event_received.connect(receiver, sender=sender, weak=False, dispatch_uid=("on_event", handler, patterns))
        return handler

    return decorate


def _register(handler: Callable[..., Any], model: type[Any] | None, names: tuple[str, ...]) -> None:
    module = _module(handler)
    for name in {_module(other) for other, *_ in registered} - {module}:
        if _file(name) == _file(module) is not None:
            raise TypeError(
                f"{handler!r} would be called twice: its module was imported as {name} and as {module}. Import it by "
                "one name, that of its app in INSTALLED_APPS."
            )
    registered.append((handler, model, names))
    if apps.ready and not conf.in_test_environment():
        # A process that has not imported the module takes the handler's events for events that no handler wants.
        logger.warning(
            "The handler %s.%s came after the start: processes without its module skip it. Use payment_handlers.py",
            module,
            getattr(handler, "__qualname__", repr(handler)),
        )


def _module(handler: Any) -> str:
    while isinstance(handler, partial | AsyncToSync):
        handler = handler.func if isinstance(handler, partial) else handler.awaitable
    return getattr(handler, "__module__", None) or "?"


def follow_payments() -> bool:
    """Return True if a handler of the project, or a receiver of a signal, is called when a payment succeeds."""
    for handler, model, names in registered:
        by_type = any(fnmatchcase("payment.succeeded", name) for name in names)
        is_wanted = not names or (by_type if model is None else "succeeded" in names)
        if model in (None, Payment) and is_wanted and not _module(handler).startswith(_PACKAGE):
            return True
    live = (signal._live_receivers(Payment) for signal in (event_received, status_changed))
    receivers = (receiver for pair in live for some in pair for receiver in some)
    # A handler's own receiver is of this module.
    return any(not str(receiver.__module__).startswith(_PACKAGE) for receiver in receivers)


def _file(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def signature_of(handler: Callable[..., Any]) -> inspect.Signature | None:
    """Return None if Python finds none, as for some functions that are written in C."""
    try:
        # It finds none for what async_to_sync returns.
        return inspect.signature(handler.awaitable if isinstance(handler, AsyncToSync) else handler)
    except ValueError:
        return None


def _refuse_uncallable(handler: Callable[..., Any], protocol: Any, example: str) -> None:
    """Raise TypeError if the handler wants an argument that its protocol does not have: each call would fail.

    That it does not take all arguments is a warning of the system checks (W006).
    """
    if (signature := signature_of(handler)) is None:
        return
    takes_any = inspect.Parameter.VAR_KEYWORD in {parameter.kind for parameter in signature.parameters.values()}
    positional: list[str] = []
    named: dict[str, None] = {}
    for name, parameter in inspect.signature(protocol.__call__).parameters.items():
        if name == "self":
            continue
        own = signature.parameters.get(name)
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY:
            positional.append(name)
        elif own is not None and own.kind == inspect.Parameter.POSITIONAL_ONLY:
            continue  # Python 3.13.0 would bind it by its name, as no call does
        elif parameter.kind == inspect.Parameter.KEYWORD_ONLY and (takes_any or name in signature.parameters):
            named[name] = None
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise TypeError(f"{handler!r} cannot be called: {error}. Write it as {example}.") from None


def _senders(patterns: tuple[str, ...]) -> set[type[Any] | None]:
    """Return the narrowest senders that can match, so that events of other kinds are not dispatched."""
    # A type with another prefix, such as dispute.opened, may carry any object.
    senders = {_MODELS.get(pattern.partition(".")[0]) for pattern in patterns}
    return {None} if None in senders else senders


@overload
def on_status(
    model: type[Payment], *statuses: PaymentStatusName | PaymentStatus, database_only: bool = False
) -> Callable[[OfPayment], OfPayment]: ...
@overload
def on_status(
    model: type[Payout], *statuses: PayoutStatusName | PayoutStatus, database_only: bool = False
) -> Callable[[OfPayout], OfPayout]: ...
@overload
def on_status(
    model: type[Refund], *statuses: RefundStatusName | RefundStatus, database_only: bool = False
) -> Callable[[OfRefund], OfRefund]: ...
@overload
def on_status(
    model: type[DepositReference], *statuses: ActiveStatusName | DepositReferenceStatus, database_only: bool = False
) -> Callable[[OfDepositReference], OfDepositReference]: ...
@overload
def on_status(
    model: type[WebhookEndpoint], *statuses: ActiveStatusName | ActiveStatus, database_only: bool = False
) -> Callable[[OfWebhookEndpoint], OfWebhookEndpoint]: ...
def on_status(model: type[Any], *statuses: str, database_only: bool = False) -> Callable[[Handler], Handler]:
    """Call the function when the mirrored status of an object changes to one of these.

    It is called with ``instance``, the row as it is now, which may have a later status; and, by name, with
    ``previous_status``, ``status``, ``event`` (None if an answer brought the change), ``is_stale`` (a newer event of
    the object was dispatched before, for example because this one was parked and replayed) and ``sender``.

    Args:
        model: A mirrored model with a status, such as Payment.
        statuses: One or several, each as an argument of its own. None given: any status.
        database_only: As for ``on_event``.

    Raises:
        TypeError: ``model`` is no mirrored model with a status; a status is no text; the function is ``async def`` or
            a generator, or cannot be called like this; its module is imported under two names.
    """
    # The mirror is sent as its own model, never as a proxy.
    if isinstance(model, type) and issubclass(model, Row):
        model = model._meta.concrete_model or model
    if model not in MIRRORS.values() or not hasattr(model, "Status"):
        raise TypeError(
            f'on_status() takes a mirrored model with a status, e.g. @on_status(Payment, "succeeded"), not {model!r}'
        )
    if not all(isinstance(status, str) for status in statuses):
        raise TypeError(
            'on_status() takes each status as an argument of its own: @on_status(Payment, "succeeded", "overpaid"), '
            f"not {statuses!r}"
        )

    def wants(status: str) -> bool:
        return not statuses or status in statuses

    def decorate(handler: Handler) -> Handler:
        refuse_async(handler)
        _refuse_uncallable(handler, StatusHandler, "def handler(instance, **kwargs)")

        def receiver(sender: type[Any], instance: Any, status: str, **kwargs: Any) -> Any:
            if not wants(status):
                return None
            kwargs.pop("signal", None)
            return handler(instance, sender=sender, status=status, **kwargs)

        receiver.payments_wants = wants  # type: ignore[attr-defined]
        receiver.payments_database_only = database_only  # type: ignore[attr-defined]
        _register(handler, model, statuses)
        status_changed.connect(receiver, sender=model, weak=False, dispatch_uid=("on_status", handler, statuses))
        return handler

    return decorate
