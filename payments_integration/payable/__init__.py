"""Join the merchant's own models with their payments by ``merchant_reference``.

class Order(Payable):
    number = models.CharField(max_length=32, unique=True)
    merchant_reference_field = "number"

order.payments, order.refunds, order.totals(), order.is_paid(10_000, "CLP")
Order.objects.with_totals(), Order.objects.of(payment)
"""

from payments_integration.payable.models import Payable, PayableManager, PayableQuerySet
from payments_integration.payable.order_status import (
    SETTLED,
    WAITING,
    Attempt,
    OrderStatus,
    current_payment,
    decide_status,
    find_attempt,
    may_begin,
)
from payments_integration.payable.totals import Totals

__all__ = [
    "SETTLED",
    "WAITING",
    "Attempt",
    "OrderStatus",
    "Payable",
    "PayableManager",
    "PayableQuerySet",
    "Totals",
    "current_payment",
    "decide_status",
    "find_attempt",
    "may_begin",
]
