"""The shop's side of payments_integration: found by itself, told of every change, in order, once."""

from __future__ import annotations

from typing import Any

from example_project.shop.models import Notice
from example_project.shop.orders import follow
from payments_integration.handlers import on_event, on_status
from payments_integration.models import Event, Payment, Refund


@on_status(Payment)
def money_moved(payment: Payment, **kwargs: Any) -> None:
    """Also after expiry: expired is not final. What it means is read from all payments, not from the status told."""
    follow(payment)


@on_status(Refund)
def money_goes_back(refund: Refund, **kwargs: Any) -> None:
    """A refund may be told before its payment is here; then the payment's own telling settles the order."""
    follow(refund)


@on_event("payment.partially_paid", "payment.overpaid")
def more_came(instance: Payment | None, **kwargs: Any) -> None:
    """A further transfer changes the amount, and perhaps not the status."""
    follow(instance)


@on_event("*", include_stale=True)
def keep_a_record(event: Event, is_stale: bool, **kwargs: Any) -> None:
    Notice.objects.create(event_id=event.pk, type=event.type, object_id=event.object_id, is_stale=is_stale)
