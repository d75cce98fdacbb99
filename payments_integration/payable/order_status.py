"""Decide the status of an order from all its payments as they are now, not from the last event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _, gettext_noop

from payments_integration.db.statements import filter_account
from payments_integration.db.transactions import ledger_database
from payments_integration.enums import OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment
from payments_integration.money import format_money
from payments_integration.payable.attempts import precedence
from payments_integration.payable.models import Payable
from payments_integration.payable.totals import Totals

#: Characters of a refusal's code. The provider writes the codes, so a long one is cut.
MAX_CODE = 100


class OrderStatus(TextChoices):
    """The status that an order's payments give it. Choices for a field of yours, in words for the payer.

    ``decide_status`` derives it from all payments, so any status may follow any other.
    """

    #: No money came yet: an attempt is open, its outcome is unknown, or there is none. Next: the attempt's outcome.
    NEW = "new", _("waiting for payment")
    #: Money came in a way that needs a person: on hold, in another currency, for an ended attempt, too little, or in
    #: part and being refunded. The note says why, except for money on hold. Next: any status, when a person or the
    #: provider has decided.
    REVIEW = "review", _("being reviewed")
    #: A part of the price came and the rest is in progress. Next: PAID when the rest comes; REVIEW if it does not; or
    #: the status of a refund or chargeback.
    PARTIALLY_PAID = "partially_paid", _("paid in part")
    #: The price was received and is kept. The note warns if all of it is being refunded. Final, unless money is
    #: refunded or charged back.
    PAID = "paid", _("paid")
    #: The newest attempt failed without money. The payer may try again.
    FAILED = "failed", _("payment failed")
    #: The newest attempt expired without money. Not final: late money makes the order paid. The payer may try again.
    EXPIRED = "expired", _("payment expired")
    #: The newest attempt was canceled without money. The payer may try again.
    CANCELED = "canceled", _("canceled")
    #: A part was refunded and a part is kept. Next: REFUNDED if the rest is refunded too.
    PARTIALLY_REFUNDED = "partially_refunded", _("refunded in part")
    #: All received money was refunded. Stays, unless another payment brings money.
    REFUNDED = "refunded", _("refunded")
    #: The payer's bank took money back and other payments do not pay the price. Stays, unless one does later.
    CHARGEBACK = "chargeback", _("charged back")
    #: The provider refused to create a payment, so no money can arrive. The payer may try again.
    REFUSED = "refused", _("not accepted")


#: The order has or had its money, so the payer is not asked for more.
SETTLED = frozenset({OrderStatus.PAID, OrderStatus.PARTIALLY_REFUNDED, OrderStatus.REFUNDED, OrderStatus.CHARGEBACK})
#: The order may change without the payer starting again.
WAITING = frozenset({OrderStatus.NEW, OrderStatus.REVIEW, OrderStatus.PARTIALLY_PAID})
_VAIN: dict[str, OrderStatus] = {
    PaymentStatus.FAILED: OrderStatus.FAILED,
    PaymentStatus.EXPIRED: OrderStatus.EXPIRED,
    PaymentStatus.CANCELED: OrderStatus.CANCELED,
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of ``create_payment``, under one key of an order."""

    #: True if it was or will be requested and its payment is not known yet.
    is_pending: bool
    #: True if it was never requested: the process stopped between placing the order and paying.
    is_unsent: bool
    #: The code that says why there will be no payment; empty if there is or may be one.
    refusal: str


def current_payment(payments: Sequence[Payment]) -> Payment | None:
    """Return the open attempt of ``list(order.payments)``, otherwise the newest one; None if there is none."""
    still_open = (payment for payment in payments if payment.status in OPEN_PAYMENT_STATUSES)
    return next(still_open, payments[0] if payments else None)


def find_attempt(order: Payable, key: str, refusal: str = "") -> Attempt:
    """Return the state of the attempt under this idempotency key.

    ``refusal`` is the code that you noted when the call failed before it was recorded, for example by a
    ValidationError.
    """
    account, _reference = order._key()
    found = Operation.objects.using(ledger_database()).filter(idempotency_key=key)
    operation = max(filter_account(found, account), key=precedence, default=None)
    if operation is None:
        return Attempt(is_pending=not refusal, is_unsent=not refusal, refusal=refusal)
    code = ""
    if operation.state in (OperationState.REJECTED, OperationState.CLOSED):
        code = str((operation.error or {}).get("code") or operation.state)[:MAX_CODE]
    return Attempt(is_pending=operation.state in OPEN_OPERATION_STATES, is_unsent=False, refusal=code)


def may_begin(order: Payable, status: str, attempt: Attempt) -> bool:
    """Return True if the payer may try again: the last attempt ended without money and no other is open."""
    if status not in (*_VAIN.values(), OrderStatus.REFUSED):
        return False
    return not attempt.is_pending and not order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists()


def decide_status(
    order: Payable, key: str, *, refusal: str = "", payments: Sequence[Payment] | None = None
) -> tuple[OrderStatus, str]:
    """Return the order's status and a note for the shop's staff.

    The note is in English. The app's catalogues translate its fixed texts, but no text with an amount or a currency,
    and no refusal's code.

    Args:
        order: An order that knows its price.
        key: The idempotency key of its current attempt. Store it with the order (``attempt_key``).
        refusal: As for :func:`find_attempt`.
        payments: ``list(order.payments)``, if you have read them.

    Raises:
        ValueError: The order has no price.
    """
    price = order.payments_price()
    if price is None:
        raise ValueError("decide_status needs an order that knows its price: see Payable.payments_price")
    amount, currency = price
    payments = list(order.payments) if payments is None else payments
    sums = order.totals()
    elsewhere = [each for each in sums.values() if each.currency != currency and (each.kept or each.held)]
    if elsewhere:
        # Otherwise a payer who changes the currency on the way would get the goods.
        return OrderStatus.REVIEW, f"money came in {elsewhere[0].currency}, not in {currency}"
    totals = sums.get(currency, Totals(currency))
    if totals.is_paid(amount):
        is_whole = totals.kept >= amount
        return (OrderStatus.PAID if is_whole else OrderStatus.PARTIALLY_REFUNDED), _paid_note(amount, totals, payments)
    if totals.charged_back:
        return OrderStatus.CHARGEBACK, gettext_noop("the payer's bank took the money back")
    if totals.received:
        return _received(amount, totals)
    on_hold = any(payment.status == PaymentStatus.ON_HOLD for payment in payments)
    if totals.held or on_hold:
        return OrderStatus.REVIEW, "" if on_hold else gettext_noop("money arrived for an attempt that had ended")
    attempt = find_attempt(order, key, refusal)
    if totals.in_progress or attempt.is_pending:
        return OrderStatus.NEW, ""
    if attempt.refusal:
        return OrderStatus.REFUSED, attempt.refusal
    # Money that was received by now was in another currency, and all of it was given back.
    otherwise = OrderStatus.REFUNDED if any(each.received for each in sums.values()) else OrderStatus.NEW
    if any(each.charged_back for each in sums.values()):
        otherwise = OrderStatus.CHARGEBACK
    return (_VAIN.get(payments[0].status, otherwise) if payments else OrderStatus.NEW), ""


def _received(amount: int, totals: Totals) -> tuple[OrderStatus, str]:
    """Return the status and note for received money that does not make the order paid."""
    if totals.kept >= amount:
        # The order is paid until the money has left. The note keeps the goods from being sent.
        return OrderStatus.PAID, gettext_noop("all of it is being refunded: do not deliver")
    if totals.kept == 0:
        return OrderStatus.REFUNDED, ""
    # A payment that was refunded in full asks for nothing. ``paid`` is more than ``kept`` after a refund of a part.
    if totals.in_progress and not totals.refunding and totals.paid == totals.kept:
        return OrderStatus.PARTIALLY_PAID, ""
    if totals.refunded:
        return OrderStatus.PARTIALLY_REFUNDED, ""
    if totals.refunding:
        # Nothing has left yet and the refund may fail. Until then, do not ask the payer for the rest.
        return OrderStatus.REVIEW, gettext_noop("what came is being refunded")
    # Otherwise a payer who changes the amount on the way would get the goods for less.
    return OrderStatus.REVIEW, gettext_noop("less came than the order's amount, and no more is asked for")


def _paid_note(amount: int, totals: Totals, payments: Sequence[Payment]) -> str:
    surplus = totals.overpaid(amount)
    if not surplus:
        # No figure that the payer sees includes it, and staff would not look for it in a paid order.
        return gettext_noop("more money is held with another attempt") if totals.held else ""
    paying = [payment for payment in payments if payment.status in (PaymentStatus.SUCCEEDED, PaymentStatus.OVERPAID)]
    if len(paying) < 2:
        return gettext_noop("more was paid than asked: refund the rest")
    # Formatted in English: the note is stored, so it must not depend on the language of a request.
    return f"paid {len(paying)} times: refund {format_money(surplus, totals.currency, 'en')}"
