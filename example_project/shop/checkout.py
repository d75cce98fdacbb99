"""From a completed form to a payment. One attempt is one payment, however often it is sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from example_project.shop.models import Order, OrderStatus
from example_project.shop.orders import MAX_CODE, current_attempt, may_begin, settle, settle_locked
from example_project.shop.provider import refreshed
from payments_integration import services
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError, ProviderError
from payments_integration.models import Payment


class NotNow(Exception):
    """Another attempt is open, or there is nothing more to pay."""


def place(submission: str, **fields: Any) -> Order:
    """The order of this form: created now, or when the form was sent before."""
    order = Order(submission=submission, **fields)
    # Stored, so that a form sent twice is one attempt, even if the first is declined in between.
    order.key = order.attempt_key()
    try:
        with transaction.atomic():
            order.save(force_insert=True)
            return order
    except IntegrityError:
        return Order.objects.get(submission=submission)


def begin(order: Order, attempt: str, *, method_code: str, flow: str) -> Order:
    """Open the attempt whose signed key the form has; returns the order as it is now.

    If the form is sent twice, the second one finds the attempt of the first. Raises NotNow; ValidationError for a key
    that this order's form did not have.
    """
    key = order.attempt_key(attempt)
    with transaction.atomic():
        order = Order.objects.select_for_update().select_related("product").get(pk=order.pk)
        if (key, method_code, flow) == (order.key, order.method_code, order.flow):
            return order
        settle_locked(order)
        if key != order.attempt_key() or not may_begin(order, current_attempt(order)):
            raise NotNow
        order.key, order.method_code, order.flow = key, method_code, flow
        order.status, order.note, order.refusal = OrderStatus.NEW, "", ""
        order.save(update_fields=["key", "method_code", "flow", "status", "note", "refusal"])
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
        Order.objects.filter(pk=order.pk, key=order.key).update(refusal=code[:MAX_CODE])
        settle(order)
        raise


def cancel(order: Order, submission: str) -> Payment:
    """Cancel the order's open attempt; ``submission``: of the form, so that a double click is one call.

    Raises NotNow if no attempt can be canceled, OutcomeUnknown and other PaymentsErrors.
    """
    payment = order.payment
    if payment is None or payment.status not in CANCELABLE_PAYMENT_STATUSES:
        raise NotNow
    try:
        key = services.scoped_key(submission, "cancel", payment.pk)
        return services.cancel_payment(payment, idempotency_key=key, actor="shop")
    except ValidationError:
        # It was paid, or ended, in the meantime.
        raise NotNow from None
    except ProviderError as error:
        if error.code != "invalid_state":
            raise
        # The same, but the event has not come yet.
        refreshed(payment, timedelta(0))
        raise NotNow from None
