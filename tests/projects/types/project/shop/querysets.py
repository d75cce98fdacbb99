"""What only the types of Django say: what is in a queryset."""

from typing import assert_type

from payments_integration.models import Payment, Refund
from shop.models import Order


def rows(payment: Payment, order: Order) -> None:
    assert_type(Payment.objects.filter(status="succeeded").first(), Payment | None)
    assert_type([found.amount for found in Payment.objects.order_by("-created_at")], list[int])
    assert_type(Payment.objects.using("replica").count(), int)
    assert_type([found.status for found in payment.refunds.all()], list[str])
    assert_type(order.payments.first(), Payment | None)
    assert_type(order.refunds.first(), Refund | None)
    assert_type(Order.objects.of(payment), Order | None)
    assert_type(Order.objects.select_for_update().of(payment), Order | None)
    assert_type(Order.objects.filter(status="new").with_totals().get(), Order)
    assert_type(Order.objects.with_totals().exclude(status="new").of(payment), Order | None)
