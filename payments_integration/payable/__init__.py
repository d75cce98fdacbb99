"""Join the merchant's own models with their payments by ``merchant_reference``.

class Order(Payable):
    number = models.CharField(max_length=32, unique=True)
    merchant_reference_field = "number"

order.payments, order.refunds, order.totals(), order.is_paid(10_000, "CLP")
Order.objects.with_totals(), Order.objects.of(payment)
"""

from payments_integration.payable.models import (
    Payable as Payable,
    PayableManager as PayableManager,
    PayableQuerySet as PayableQuerySet,
)
from payments_integration.payable.order_status import (
    SETTLED as SETTLED,
    WAITING as WAITING,
    Attempt as Attempt,
    OrderStatus as OrderStatus,
    current_payment as current_payment,
    decide_status as decide_status,
    find_attempt as find_attempt,
    may_begin as may_begin,
)
from payments_integration.payable.totals import Totals as Totals
