"""Decide what an order's page tells its payer and asks for, from all attempts to pay."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest

from payments_integration.checkout.attempts import has_returned
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, PAID_PAYMENT_STATUSES
from payments_integration.models import Payment
from payments_integration.money import format_for_payer
from payments_integration.payable import WAITING, OrderStatus, Payable, current_payment, find_attempt, may_begin
from payments_integration.payer.links import receipt_url

#: Seconds after which a waiting page without scripts reloads. Longer while the payer has details to copy.
RELOAD_SECONDS, RELOAD_SECONDS_WITH_DETAILS = 3, 15


@dataclass(frozen=True, slots=True)
class OrderPage:
    """The values for an order page's template. They do not check who asks: compare with your login or session."""

    #: The open attempt, otherwise the newest one; None until the mirror has one.
    payment: Payment | None
    #: The attempt that was paid; None if there is none.
    paid: Payment | None
    #: The attempt that the payer is asked to pay now, for ``{% next_action %}``.
    asked: Payment | None
    #: True if ``create_payment`` was never called. Offer to pay.
    is_unsent: bool
    #: True if the attempt's outcome is unknown. Say "please wait", and offer no other attempt.
    is_checking: bool
    #: True if the payer came back a moment ago or the mirror lacks the payment. Do not ask for the money yet.
    is_looking: bool
    #: True if the provider may still ask the payer for money.
    is_open: bool
    may_cancel: bool
    may_pay_again: bool
    #: Formatted; empty for nothing. The same holds for the next two.
    received: str
    missing: str
    #: The amount above the price, which you will give back.
    surplus: str
    #: Empty without a paid attempt or without ``contrib.receipts``.
    receipt_url: str
    #: Seconds until a page without scripts reloads; None if nothing will change by itself.
    reload_seconds: int | None


def order_page(request: HttpRequest, order: Payable, status: str, key: str, *, refusal: str = "") -> OrderPage:
    """Return the page of an order as it is now. Reads only the mirror.

    Args:
        status: The status that ``decide_status`` returned.
        key: The idempotency key of the order's current attempt.
        refusal: As for ``find_attempt``.

    Raises:
        ValueError: The order has no price.
    """
    price = order.payments_price()
    if price is None:
        raise ValueError("order_page needs an order that knows its price: see Payable.payments_price")
    amount, currency = price
    payments = list(order.payments)
    payment = current_payment(payments)
    attempt, totals = find_attempt(order, key, refusal), order.totals_in(currency)
    is_new, is_open = status == OrderStatus.NEW, payment is not None and payment.status in OPEN_PAYMENT_STATUSES
    # True even if the provider has the money but the handler was not called yet.
    is_awaited = status in (OrderStatus.NEW, OrderStatus.PARTIALLY_PAID)
    _account, reference = order._key()
    is_looking = (is_awaited and has_returned(request, reference)) or (is_new and not is_open)
    is_asked = is_awaited and is_open and not is_looking
    paid = next((each for each in payments if each.status in PAID_PAYMENT_STATUSES), None)
    seconds = RELOAD_SECONDS_WITH_DETAILS if is_asked else RELOAD_SECONDS

    def money(minor: int) -> str:
        return format_for_payer(minor, currency, payments[0].country) if minor and payments else ""

    return OrderPage(
        payment=payment,
        paid=paid,
        asked=payment if is_asked and not attempt.is_pending else None,
        is_unsent=attempt.is_unsent and is_new,
        is_checking=attempt.is_pending and not attempt.is_unsent,
        is_looking=is_looking and not attempt.is_pending,
        is_open=is_open,
        may_cancel=is_new and payment is not None and payment.status in CANCELABLE_PAYMENT_STATUSES,
        may_pay_again=may_begin(order, status, attempt),
        received=money(totals.received),
        missing=money(totals.missing(amount)),
        surplus=money(totals.overpaid(amount)) if totals.is_paid(amount) else "",
        receipt_url=receipt_url(request, paid) if paid is not None else "",
        reload_seconds=seconds if status in WAITING else None,
    )
