"""From a completed form to a payment. One attempt is one payment, however often it is sent."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from example_project.shop.models import Order
from example_project.shop.orders import current_attempt, settle, settle_locked
from payments_integration import services
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError, ProviderError
from payments_integration.models import Payment
from payments_integration.payable import OrderStatus, may_begin


class NotNow(Exception):
    """Another attempt is open, or there is nothing more to pay."""


def place(submission: str, **fields: Any) -> Order:
    """The order of this form: created now, or when the form was sent before."""
    return Order.objects.get_or_create(submission=submission, defaults={"flow": settings.SHOP_FLOW, **fields})[0]


def begin(order: Order, attempt: str, *, method_code: str) -> Order:
    """Open the attempt whose signed key the form has; returns the order as it is now.

    If the form is sent twice, the second one finds the attempt of the first. Raises NotNow; ValidationError for a key
    that this order's form did not have.
    """
    key = order.attempt_key(attempt)
    with transaction.atomic():
        order = Order.objects.select_for_update().select_related("product").get(pk=order.pk)
        if (key, method_code) == (order.key, order.method_code):
            return order
        settle_locked(order)
        if key != order.attempt_key() or not may_begin(order, order.status, current_attempt(order)):
            raise NotNow
        order.key, order.method_code, order.flow = key, method_code, settings.SHOP_FLOW
        order.status, order.note, order.refusal = OrderStatus.NEW, "", ""
        order.save()
    return order


def pay(order: Order, *, return_url: str | None = None) -> Payment:
    """Create the payment of the order's attempt, or return the one that it has.

    Raises OutcomeUnknown (it is being resolved, and the order waits), NotNow (the attempt was never sent, and money
    came since), ValidationError or any other PaymentsError (it did not happen and will not; ``attempt_key`` has the
    key for another try).
    """
    if current_attempt(order).is_unsent and settle(order).status != OrderStatus.NEW:
        raise NotNow
    try:
        return services.create_payment(
            amount=order.amount,
            currency=order.currency,
            country=order.country,
            method_code=order.method_code,
            merchant_reference=order.reference,
            payer={"name": order.name, "email": order.email},
            return_url=return_url,
            flow=order.flow,
            metadata={"product": order.product.slug},
            idempotency_key=order.key,
            actor="shop",
        )
    except (OutcomeUnknown, IdempotencyMismatch):
        # The call that used this key before may have created a payment.
        raise
    except (PaymentsError, ValidationError) as error:
        code = error.code if isinstance(error, ProviderError) else type(error).__name__
        Order.objects.filter(pk=order.pk, key=order.key).update(refusal=code[:100])
        settle(order)
        raise
