"""The shop's handlers. payments_integration finds this module and calls them for each change, in order, once."""

from __future__ import annotations

from typing import Any

from example_project.shop.models import Notice
from example_project.shop.orders import follow
from payments_integration.handlers import on_event, on_status
from payments_integration.models import Event, Payment, Refund


@on_status(Payment, database_only=True)
def money_moved(payment: Payment, **kwargs: Any) -> None:
    """Also after expiry, which is not final. The order's status depends on all its payments, not on this one."""
    follow(payment)


@on_status(Refund, database_only=True)
def money_goes_back(refund: Refund, **kwargs: Any) -> None:
    """A refund may be dispatched before its payment is mirrored; then the payment's own event updates the order."""
    follow(refund)


@on_event("payment.partially_paid", "payment.overpaid", database_only=True)
def more_came(instance: Payment | None, **kwargs: Any) -> None:
    """A further transfer changes the amount, but may leave the status as it is."""
    follow(instance)


@on_event("*", include_stale=True, database_only=True)
def keep_a_record(event: Event, is_stale: bool, **kwargs: Any) -> None:
    Notice.objects.create(event_id=event.pk, type=event.type, object_id=event.object_id, is_stale=is_stale)
