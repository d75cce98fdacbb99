"""Keeps an order's status up to date. ``decide_status`` of the app reads all its payments, not the last event."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from example_project.shop.models import Order
from payments_integration.checkout import close_attempts
from payments_integration.models import Payment, Refund
from payments_integration.payable import SETTLED, Attempt, OrderStatus, decide_status, find_attempt


def current_attempt(order: Order) -> Attempt:
    return find_attempt(order, order.key, order.refusal)


def follow(obj: Payment | Refund | None) -> None:
    """Update the order of a payment or refund, if it has one, within the transaction of a handler.

    Two payments of one order may be dispatched at the same time, so the order is locked.
    """
    if order := Order.objects.get_queryset().select_for_update().of(obj):
        settle_locked(order)


def settle(order: Order) -> Order:
    """Update an order in a transaction of its own; returns it as it is now."""
    with transaction.atomic():
        order = Order.objects.select_for_update().select_related("product").get(pk=order.pk)
        settle_locked(order)
    return order


def up_to_date(order: Order) -> Order:
    """The order with its current status. Some changes have no event, such as a late refusal."""
    now = decide_status(order, order.key, refusal=order.refusal)
    return order if now == (order.status, order.note) else settle(order)


def settle_locked(order: Order) -> None:
    """Update an order that is locked. Expired is not final: late money makes the order paid."""
    payments = list(order.payments)
    order.status, order.note = decide_status(order, order.key, refusal=order.refusal, payments=payments)
    if order.status == OrderStatus.PAID and order.paid_at is None:
        order.paid_at = timezone.now()
    order.save(update_fields=["status", "note", "paid_at"])
    if order.status in SETTLED:
        close_attempts(payments, actor="shop")
