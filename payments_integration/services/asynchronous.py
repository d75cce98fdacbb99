"""Offer the services for async views: the same names with an ``a``, as Django's async queries have."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.views.decorators.debug import sensitive_variables

from payments_integration.services.deposit_references import create_deposit_reference
from payments_integration.services.payments import cancel_payment, create_payment
from payments_integration.services.payouts import cancel_payout, create_payout
from payments_integration.services.reads import list_payment_methods, payout_cover, refresh
from payments_integration.services.refunds import create_refund, refundable

P = ParamSpec("P")
R = TypeVar("R")


def _runs(function: Callable[P, R]) -> Callable[[Callable[[], None]], Callable[P, Coroutine[Any, Any, R]]]:
    """Decorate a name with the arguments, result and documentation of a service.

    The service runs in the thread, and with the connection, that Django's async queries of the same request use. A
    cancelled ``await`` ends at once. A service that has begun goes on in its thread and records what the provider
    answers. A service that waits behind another of the same request is not called.
    """

    def decorate(named: Callable[[], None]) -> Callable[P, Coroutine[Any, Any, R]]:
        # The arguments hold personal data, as in the service. asgiref's frames, which an error report shows, must not
        # have them.
        @sensitive_variables()
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            @sensitive_variables()
            def run() -> R:
                return function(*args, **kwargs)

            return await sync_to_async(run)()

        public = wraps(function)(call)
        public.__name__, public.__qualname__, public.__module__ = named.__name__, named.__qualname__, named.__module__
        return public

    return decorate


@_runs(create_payment)
def acreate_payment() -> None: ...


@_runs(cancel_payment)
def acancel_payment() -> None: ...


@_runs(create_refund)
def acreate_refund() -> None: ...


@_runs(refundable)
def arefundable() -> None: ...


@_runs(create_payout)
def acreate_payout() -> None: ...


@_runs(cancel_payout)
def acancel_payout() -> None: ...


@_runs(payout_cover)
def apayout_cover() -> None: ...


@_runs(create_deposit_reference)
def acreate_deposit_reference() -> None: ...


@_runs(list_payment_methods)
def alist_payment_methods() -> None: ...


@_runs(refresh)
def arefresh() -> None: ...
