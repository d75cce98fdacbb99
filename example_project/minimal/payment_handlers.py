"""The app finds this module and calls its handlers for each change, in order, once."""

from typing import Any

from django.utils import timezone

from example_project.minimal.models import Order
from payments_integration.handlers import on_status
from payments_integration.models import Payment, Refund


@on_status(Payment, database_only=True)
def payment_changed(payment: Payment, **kwargs: Any) -> None:
    _update(Order.objects.get_queryset().select_for_update().of(payment))


@on_status(Refund, database_only=True)
def refund_changed(refund: Refund, **kwargs: Any) -> None:
    _update(Order.objects.get_queryset().select_for_update().of(refund))


def _update(order: Order | None) -> None:
    """All payments and refunds decide, not this one: money may come late, twice, in part, or go back."""
    if order is not None:
        is_paid = order.is_paid(order.amount, order.payments_currency)
        order.paid_at = (order.paid_at or timezone.now()) if is_paid else None
        order.save(update_fields=["paid_at"])
