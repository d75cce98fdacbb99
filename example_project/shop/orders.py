"""An order's attempts to pay, and the order's status. It depends on all its payments now, not on the last event."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from example_project.shop.models import Order, OrderStatus
from payments_integration import services
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment, Refund
from payments_integration.money import format_money
from payments_integration.payable import Totals

_VAIN: dict[str, OrderStatus] = {
    PaymentStatus.FAILED: OrderStatus.FAILED,
    PaymentStatus.EXPIRED: OrderStatus.EXPIRED,
    PaymentStatus.CANCELED: OrderStatus.CANCELED,
}
#: The order has its money; the payer is not asked for more.
SETTLED = (OrderStatus.PAID, OrderStatus.PARTIALLY_REFUNDED, OrderStatus.REFUNDED, OrderStatus.CHARGEBACK)


#: Characters. The provider writes the codes, so a long one is cut.
MAX_CODE = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """``create_payment`` under the order's key."""

    #: It was requested, or will be, and its payment is not known yet.
    is_pending: bool
    #: It was never requested: the process stopped between placing the order and paying.
    is_unsent: bool
    #: Why there will be no payment; empty if there is one, or may be one.
    refusal: str


def current_attempt(order: Order) -> Attempt:
    operation = Operation.objects.filter(account="default", idempotency_key=order.key).first()
    if operation is None:
        # Either never requested, or refused before anything was recorded.
        return Attempt(is_pending=not order.refusal, is_unsent=not order.refusal, refusal=order.refusal)
    refusal = ""
    if operation.state in (OperationState.REJECTED, OperationState.CLOSED):
        refusal = str((operation.error or {}).get("code") or operation.state)[:MAX_CODE]
    return Attempt(is_pending=operation.state in OPEN_OPERATION_STATES, is_unsent=False, refusal=refusal)


def follow(obj: Payment | Refund | None) -> Order | None:
    """Update the order of a payment or refund; None if it belongs to no order.

    Called within the transaction of a handler. Two payments of one order may be dispatched at the same time, so the
    order is locked.
    """
    order = Order.objects.get_queryset().select_for_update().of(obj)
    if order is not None:
        settle_locked(order)
    return order


def settle(order: Order) -> Order:
    """Update an order in a transaction of its own; returns it as it is now."""
    with transaction.atomic():
        order = Order.objects.select_for_update().select_related("product").get(pk=order.pk)
        settle_locked(order)
    return order


def up_to_date(order: Order) -> Order:
    """The order with its current status. Some changes have no event, such as a late refusal."""
    now = decide_status(order, order.totals(), list(order.payments))
    return order if now == (order.status, order.note) else settle(order)


def settle_locked(order: Order) -> None:
    """Update an order that is locked. Expired is not final: late money makes the order paid."""
    payments = list(order.payments)
    status, note = decide_status(order, order.totals(), payments)
    if status == OrderStatus.PAID and order.paid_at is None:
        order.paid_at = timezone.now()
    order.status, order.note = status, note
    order.save(update_fields=["status", "note", "paid_at"])
    if status in SETTLED:
        _close_others(payments)


def decide_status(order: Order, sums: dict[str, Totals], payments: list[Payment]) -> tuple[OrderStatus, str]:
    """The order's status, and a note for the shop's staff. ``payments``: newest first."""
    elsewhere = [each for each in sums.values() if each.currency != order.currency and (each.received or each.held)]
    if elsewhere:
        # Otherwise a payer who could change the currency on the way would get the goods.
        return OrderStatus.REVIEW, f"money came in {elsewhere[0].currency}, not in {order.currency}"
    totals = sums.get(order.currency, Totals(order.currency))
    if totals.is_paid(order.amount):
        is_whole = totals.kept >= order.amount
        return (OrderStatus.PAID if is_whole else OrderStatus.PARTIALLY_REFUNDED), _paid_note(order, totals, payments)
    if totals.charged_back:
        return OrderStatus.CHARGEBACK, gettext_noop("the payer's bank took the money back")
    if totals.received:
        return _decide_received(order, totals)
    if totals.held or any(payment.status == PaymentStatus.ON_HOLD for payment in payments):
        is_vain = not any(payment.status == PaymentStatus.ON_HOLD for payment in payments)
        return OrderStatus.REVIEW, gettext_noop("money arrived for an attempt that had ended") if is_vain else ""
    attempt = current_attempt(order)
    if totals.in_progress or attempt.is_pending:
        return OrderStatus.NEW, ""
    if attempt.refusal:
        return OrderStatus.REFUSED, attempt.refusal
    return (_VAIN.get(payments[0].status, OrderStatus.NEW) if payments else OrderStatus.NEW), ""


def _decide_received(order: Order, totals: Totals) -> tuple[OrderStatus, str]:
    """For money that came but does not make the order paid."""
    if totals.kept >= order.amount:
        # The order is paid until the money has left; the note keeps the goods here.
        return OrderStatus.PAID, gettext_noop("all of it is being refunded: do not deliver")
    if totals.kept == 0:
        return OrderStatus.REFUNDED, ""
    if totals.refunded:
        return OrderStatus.PARTIALLY_REFUNDED, ""
    if totals.refunding:
        # Nothing has left yet, and the refund may fail; meanwhile the payer is not asked for the rest.
        return OrderStatus.REVIEW, gettext_noop("what came is being refunded")
    if totals.in_progress:
        return OrderStatus.PARTIALLY_PAID, ""
    # Otherwise a payer who could change the amount on the way would get the goods for less.
    return OrderStatus.REVIEW, gettext_noop("less came than the order's amount, and no more is asked for")


def _paid_note(order: Order, totals: Totals, payments: list[Payment]) -> str:
    surplus = totals.overpaid(order.amount)
    if not surplus:
        # The payer sees no figure that includes it, and staff would not look for it in a paid order.
        return gettext_noop("more money is held with another attempt") if totals.held else ""
    paying = [payment for payment in payments if payment.status in (PaymentStatus.SUCCEEDED, PaymentStatus.OVERPAID)]
    if len(paying) < 2:
        return gettext_noop("more was paid than asked: refund the rest")
    # In the language of the code. It is stored, so it must not depend on the language of a request.
    return f"paid {len(paying)} times: refund {format_money(surplus, order.currency, 'en')}"


def _close_others(payments: list[Payment]) -> None:
    """Cancel the attempts that are still open, so that the payer cannot pay twice.

    Sent after this transaction, or by the next ``resume_operations``. If one is paid meanwhile, its cancellation is
    refused and its money is a surplus.
    """
    for payment in payments:
        if payment.status not in CANCELABLE_PAYMENT_STATUSES:
            continue
        # Its status may have changed since it was read; the order's new status must be saved anyway.
        with contextlib.suppress(ValidationError):
            services.defer(services.cancel_payment, payment, idempotency_key=f"superfluous-{payment.pk}", actor="shop")


def may_begin(order: Order, attempt: Attempt) -> bool:
    """Whether the payer may try once more: the last attempt failed, and no other is open."""
    if order.status not in (OrderStatus.FAILED, OrderStatus.EXPIRED, OrderStatus.CANCELED, OrderStatus.REFUSED):
        return False
    return not attempt.is_pending and not order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists()
