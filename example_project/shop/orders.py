"""What an order's payments mean for it. Decided from what all attempts come to now, never from what was heard last."""

from __future__ import annotations

import contextlib

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from example_project.shop.attempts import Attempt, current
from example_project.shop.models import Order, OrderStatus
from example_project.shop.money import show_money
from payments_integration import services
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.models import Payment, Refund
from payments_integration.payable import Totals

_VAIN: dict[str, OrderStatus] = {
    PaymentStatus.FAILED: OrderStatus.FAILED,
    PaymentStatus.EXPIRED: OrderStatus.EXPIRED,
    PaymentStatus.CANCELED: OrderStatus.CANCELED,
}
#: The order has its money: nobody is asked for it any more.
SETTLED = (OrderStatus.PAID, OrderStatus.PARTIALLY_REFUNDED, OrderStatus.REFUNDED, OrderStatus.CHARGEBACK)


def follow(obj: Payment | Refund | None) -> Order | None:
    """Bring the order of a payment or refund in line with its money; None where it belongs to no order.

    Called within the transaction of a handler. Two payments of one order may be told at the same moment: one waits.
    """
    order = Order.objects.get_queryset().select_for_update().of(obj)
    if order is not None:
        settle_locked(order)
    return order


def settle(order: Order) -> Order:
    """The same for an order at hand, in a transaction of its own; returns it as it is now."""
    with transaction.atomic():
        order = Order.objects.select_for_update().select_related("product").get(pk=order.pk)
        settle_locked(order)
    return order


def up_to_date(order: Order) -> Order:
    """The order as its money stands now. Not everything is told: a refusal that came late has no event, nor has a
    payment that is read anew.
    """
    stands = judge(order, order.totals(), list(order.payments))
    return order if stands == (order.status, order.note) else settle(order)


def settle_locked(order: Order) -> None:
    """``order``: under lock. Expired is not final: late money turns it paid."""
    payments = list(order.payments)
    status, note = judge(order, order.totals(), payments)
    if status == OrderStatus.PAID and order.paid_at is None:
        order.paid_at = timezone.now()
    order.status, order.note = status, note
    order.save(update_fields=["status", "note", "paid_at"])
    if status in SETTLED:
        _close_others(payments)


def judge(order: Order, sums: dict[str, Totals], payments: list[Payment]) -> tuple[OrderStatus, str]:
    """The order's status, and what a person should know. ``payments``: newest first."""
    elsewhere = [each for each in sums.values() if each.currency != order.currency and (each.received or each.held)]
    if elsewhere:
        # Whoever could change the currency on the way must not get the goods for it.
        return OrderStatus.REVIEW, f"money came in {elsewhere[0].currency}, not in {order.currency}"
    totals = sums.get(order.currency, Totals(order.currency))
    if totals.is_paid(order.amount):
        is_whole = totals.kept >= order.amount
        return (OrderStatus.PAID if is_whole else OrderStatus.PARTIALLY_REFUNDED), _paid_note(order, totals, payments)
    if totals.charged_back:
        return OrderStatus.CHARGEBACK, "the payer's bank took the money back"
    if totals.received:
        return _judge_what_came(order, totals)
    if totals.held or any(payment.status == PaymentStatus.ON_HOLD for payment in payments):
        is_vain = not any(payment.status == PaymentStatus.ON_HOLD for payment in payments)
        return OrderStatus.REVIEW, "money came with an attempt that is over" if is_vain else ""
    attempt = current(order)
    if totals.in_progress or attempt.is_pending:
        return OrderStatus.NEW, ""
    if attempt.refusal:
        return OrderStatus.REFUSED, attempt.refusal
    return (_VAIN.get(payments[0].status, OrderStatus.NEW) if payments else OrderStatus.NEW), ""


def _judge_what_came(order: Order, totals: Totals) -> tuple[OrderStatus, str]:
    """Something came, and is not what makes the order paid."""
    if totals.kept >= order.amount:
        # Until the money has left it is told as it is; the goods stay here.
        return OrderStatus.PAID, "all of it is being refunded: do not deliver"
    if totals.kept == 0:
        return OrderStatus.REFUNDED, ""
    if totals.refunded:
        return OrderStatus.PARTIALLY_REFUNDED, ""
    if totals.refunding:
        # Nothing has left yet, and it may fail; meanwhile nobody is asked for the rest.
        return OrderStatus.REVIEW, "what came is being refunded"
    if totals.in_progress:
        return OrderStatus.PARTIALLY_PAID, ""
    # Whoever could change the amount on the way must not get the goods for less.
    return OrderStatus.REVIEW, "less came than the order's amount, and no more is asked for"


def _paid_note(order: Order, totals: Totals, payments: list[Payment]) -> str:
    surplus = totals.overpaid(order.amount)
    if not surplus:
        # It is in no figure that the payer sees, and nobody would look for it with an order that is paid.
        return "more money is held with another attempt" if totals.held else ""
    paying = [payment for payment in payments if payment.status in (PaymentStatus.SUCCEEDED, PaymentStatus.OVERPAID)]
    if len(paying) < 2:
        return "more was paid than asked: refund the rest"
    return f"paid {len(paying)} times: refund {show_money(surplus, order.currency)}"


def _close_others(payments: list[Payment]) -> None:
    """An attempt that is open although the order has its money would be paid once more: it is given up.

    Sent after this transaction, or by the next ``resume_operations``; one that is paid meanwhile is refused, and its
    money is a surplus.
    """
    for payment in payments:
        if payment.status not in CANCELABLE_PAYMENT_STATUSES:
            continue
        # Its status may have changed since it was read: that is no reason to forget what the order has become.
        with contextlib.suppress(ValidationError):
            services.defer(services.cancel_payment, payment, idempotency_key=f"superfluous-{payment.pk}", actor="shop")


def may_begin(order: Order, attempt: Attempt) -> bool:
    """Whether the payer may try once more: the last attempt came to nothing, and nothing is on its way."""
    if order.status not in (OrderStatus.FAILED, OrderStatus.EXPIRED, OrderStatus.CANCELED, OrderStatus.REFUSED):
        return False
    return not attempt.is_pending and not order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists()
