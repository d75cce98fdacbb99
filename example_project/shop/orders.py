"""What a payment means for its order. Decided from the payment as it is now, never from what was heard last."""

from __future__ import annotations

from django.db.models import Sum
from django.utils import timezone

from example_project.shop.models import Order, OrderStatus
from payments_integration.models import Payment, Refund

#: A payment's status to its order's; statuses that are not here leave the order waiting.
_STATUS = {
    "succeeded": OrderStatus.PAID,
    "overpaid": OrderStatus.PAID,
    "partially_paid": OrderStatus.PARTIALLY_PAID,
    "on_hold": OrderStatus.REVIEW,
    "failed": OrderStatus.FAILED,
    "expired": OrderStatus.EXPIRED,
    "canceled": OrderStatus.CANCELED,
    "chargeback": OrderStatus.CHARGEBACK,
}


def follow(payment: Payment) -> Order | None:
    """Bring the payment's order in line with it; None where it belongs to no order (a deposit, say).

    Called within the transaction of a handler. Expired is not final: a late payment turns the order paid.
    """
    order = Order.objects.select_for_update().filter(reference=payment.merchant_reference or "").first()
    if order is None:
        return None
    status, note = _judge(order, payment)
    if status == OrderStatus.PAID and order.paid_at is None:
        order.paid_at = timezone.now()
    order.status, order.note = status, note
    order.save(update_fields=["status", "note", "paid_at"])
    return order


def _judge(order: Order, payment: Payment) -> tuple[OrderStatus, str]:
    if (payment.amount, payment.currency) != (order.amount, order.currency):
        # Whoever could change the amount on the way must not get the goods for it.
        return OrderStatus.REVIEW, f"{payment.pk} is not about this order's amount"
    status = _STATUS.get(payment.status, OrderStatus.NEW)
    if status in (OrderStatus.PAID, OrderStatus.PARTIALLY_PAID) and (refunded := refunded_amount(payment)):
        everything = refunded >= payment.amount_received
        return (OrderStatus.REFUNDED if everything else OrderStatus.PARTIALLY_REFUNDED), ""
    if payment.status == "overpaid":
        return status, "more was paid than asked: refund the rest"
    return status, ""


def refunded_amount(payment: Payment) -> int:
    """Minor units that succeeded refunds gave back; the refunds themselves know it first."""
    total = Refund.objects.filter(payment=payment, status="succeeded").aggregate(total=Sum("amount"))["total"]
    return int(total or 0)
