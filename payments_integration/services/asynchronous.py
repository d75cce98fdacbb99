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


def _in_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a service for async views, with its arguments, result and documentation.

    The service runs in the thread, and with the connection, that Django's async queries of the same request use. A
    cancelled ``await`` ends at once. A service that has begun goes on in its thread and records what the provider
    answers. A service that waits behind another of the same request is not called.
    """

    # The arguments hold personal data, as in the service. asgiref's frames, which an error report shows, must not have
    # them.
    @sensitive_variables()
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        @sensitive_variables()
        def run() -> R:
            return function(*args, **kwargs)

        return await sync_to_async(run)()

    public = wraps(function)(call)
    public.__name__ = public.__qualname__ = f"a{function.__name__}"
    public.__module__ = __name__
    return public


acreate_payment = _in_thread(create_payment)
acancel_payment = _in_thread(cancel_payment)
acreate_refund = _in_thread(create_refund)
arefundable = _in_thread(refundable)
acreate_payout = _in_thread(create_payout)
acancel_payout = _in_thread(cancel_payout)
apayout_cover = _in_thread(payout_cover)
acreate_deposit_reference = _in_thread(create_deposit_reference)
alist_payment_methods = _in_thread(list_payment_methods)
arefresh = _in_thread(refresh)
