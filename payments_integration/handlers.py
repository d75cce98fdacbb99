"""Decorators for handlers, in a module ``payment_handlers.py`` of any installed app (found at start-up).

    @on_status(Payment, "succeeded")
    def deliver(payment, **kwargs): ...

    @on_event("payout.*")
    def log(event, instance, **kwargs): ...

A handler runs inside the transaction that records that it ran, so its database work commits exactly once. It must not
call the provider (use ``services.defer``), and should leave slow work to ``transaction.on_commit``. It cannot be
``async def``: the decorators raise TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from payments_integration.enums import EVENT_TYPES
from payments_integration.models import MIRRORS, Event
from payments_integration.signals import event_received, refuse_async, status_changed

#: The kinds whose events contain a mirrored object; other events have ``sender=Event``.
_MODELS: dict[str, type[Any]] = {name.partition(".")[0]: MIRRORS[name.partition(".")[0]] for name in EVENT_TYPES}

#: Every handler with its model (None: on_event) and its statuses or patterns, for the system checks.
registered: list[tuple[Callable[..., Any], type[Any] | None, tuple[str, ...]]] = []

Handler = TypeVar("Handler", bound=Callable[..., Any])


def on_event(*patterns: str, include_stale: bool = False) -> Callable[[Handler], Handler]:
    """Call ``handler(event=…, instance=…, previous_status=…, is_stale=…, sender=…)`` for events of these types.

    A pattern is a type, and ``*`` in it stands for any text. Stale events are skipped unless ``include_stale``. For
    work that depends on a status prefer :func:`on_status`.
    """
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError('on_event() takes event types, e.g. @on_event("payment.succeeded", "payout.*")')

    def wants(event_type: str) -> bool:
        return any(fnmatchcase(event_type, pattern) for pattern in patterns)

    def decorate(handler: Handler) -> Handler:
        refuse_async(handler)

        def receiver(sender: type[Any], event: Any, is_stale: bool, **kwargs: Any) -> Any:
            if (is_stale and not include_stale) or not wants(event.type):
                return None
            kwargs.pop("signal", None)
            return handler(sender=sender, event=event, is_stale=is_stale, **kwargs)

        # Events that no receiver wants are done when they are applied.
        receiver.wants = wants  # type: ignore[attr-defined]
        registered.append((handler, None, patterns))
        for sender in _senders(patterns):
            event_received.connect(receiver, sender=sender, weak=False, dispatch_uid=("on_event", handler, patterns))
        return handler

    return decorate


def _senders(patterns: tuple[str, ...]) -> set[type[Any] | None]:
    """The narrowest senders that can match, so that events of other kinds are not dispatched."""
    senders: set[type[Any] | None] = set()
    for pattern in patterns:
        prefix = pattern.partition(".")[0]
        senders.add(None if any(sign in prefix for sign in "*?[") else _MODELS.get(prefix, Event))
    return {None} if None in senders else senders


def on_status(model: type[Any], *statuses: str) -> Callable[[Handler], Handler]:
    """Call ``handler(instance, previous_status=…, status=…, event=…, is_stale=…, sender=…)`` when a mirror of
    ``model`` changes to one of these statuses (none given: to any).

    ``instance`` is the row as it is now, and may have a later status. ``is_stale``: a newer event of the object was
    dispatched before, for example because this one was parked and replayed.
    """
    if not isinstance(model, type):
        raise TypeError('on_status() takes a model first, e.g. @on_status(Payment, "succeeded")')

    def wants(status: str) -> bool:
        return not statuses or status in statuses

    def decorate(handler: Handler) -> Handler:
        refuse_async(handler)

        def receiver(sender: type[Any], instance: Any, status: str, **kwargs: Any) -> Any:
            if not wants(status):
                return None
            kwargs.pop("signal", None)
            return handler(instance, sender=sender, status=status, **kwargs)

        receiver.wants = wants  # type: ignore[attr-defined]
        registered.append((handler, model, statuses))
        status_changed.connect(receiver, sender=model, weak=False, dispatch_uid=("on_status", handler, statuses))
        return handler

    return decorate
