"""Find the payment that a page shows, and describe its status in a payer's words."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, F, IntegerField, Q, Value, When
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.enums import (
    ENDED_PAYMENT_STATUSES,
    PAID_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    PaymentStatus as Status,
)
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment
from payments_integration.money import format_for_payer
from payments_integration.payable.queries import DEPOSITS
from payments_integration.payer.links import Subject
from payments_integration.payer.texts import visible
from payments_integration.validation.text import StrOrPromise

#: Only payments with these statuses show the payer how to pay. The others are over, or their money is on its way.
PAYABLE = frozenset({Status.CREATED, Status.REQUIRES_ACTION, Status.PARTIALLY_PAID})
#: Some of the money is here, or it is on its way.
_COMING = (Status.PARTIALLY_PAID, Status.ON_HOLD, Status.PROCESSING)

_WAITING = gettext_lazy("Waiting for your payment")
HEADLINES: dict[str, StrOrPromise] = {
    Status.CREATED: _WAITING,
    Status.REQUIRES_ACTION: _WAITING,
    Status.PROCESSING: gettext_lazy("Your payment is being processed"),
    Status.SUCCEEDED: gettext_lazy("Paid"),
    Status.FAILED: gettext_lazy("The payment failed"),
    Status.EXPIRED: gettext_lazy("The time to pay is over"),
    Status.CANCELED: gettext_lazy("The payment was canceled"),
    Status.ON_HOLD: gettext_lazy("Your payment is being reviewed"),
    Status.PARTIALLY_PAID: gettext_lazy("Paid in part"),
    Status.OVERPAID: gettext_lazy("Paid"),
    Status.CHARGEBACK: gettext_lazy("The payment was charged back"),
}
_MESSAGES: dict[str, StrOrPromise] = {
    Status.CREATED: gettext_lazy("This page shows when it has arrived."),
    Status.REQUIRES_ACTION: gettext_lazy("This page shows when it has arrived."),
    Status.PROCESSING: gettext_lazy("There is nothing you need to do. This page shows when it has arrived."),
    Status.SUCCEEDED: gettext_lazy("Thank you! Your payment has arrived."),
    Status.FAILED: gettext_lazy("No payment has arrived."),
    Status.EXPIRED: gettext_lazy("If you have paid already, your money will still be found. Please do not pay again."),
    Status.CANCELED: gettext_lazy("No payment has arrived."),
    Status.ON_HOLD: gettext_lazy("There is nothing you need to do. Please do not pay again."),
    Status.CHARGEBACK: gettext_lazy("Your bank has taken the money back."),
}
TONES: dict[str, str] = {
    **dict.fromkeys(PAID_PAYMENT_STATUSES, "good"),
    Status.FAILED: "bad",
    Status.CHARGEBACK: "bad",
    Status.EXPIRED: "quiet",
    Status.CANCELED: "quiet",
}


@dataclass(frozen=True, slots=True)
class ShownStatus:
    """The words of a page about a payment."""

    #: The provider's status; ``failed`` if it refused to create a payment; empty if there is no payment yet.
    status: str
    headline: str
    message: str
    #: The look of the status: ``good``, ``bad``, ``quiet`` or ``open``.
    tone: str
    #: True if the page does not wait for another status.
    is_final: bool


def find_payment(subject: Subject) -> Payment | None:
    """Return the payment that a page is about, or None if the mirror has none.

    If a reference has several payments, return one whose money is here to stay, or else is on its way, or else went
    back, or else the newest. While a newer attempt may have a payment that is not mirrored yet, none that came to
    nothing. Transfers to a deposit reference do not count: their reference names a payer, and may equal an order's
    number by chance.
    """
    rows = Payment.objects.filter(account=subject.account)
    if subject.payment_id:
        return rows.filter(pk=subject.payment_id).first()
    if not subject.merchant_reference:
        return None
    is_paid = Q(status__in=PAID_PAYMENT_STATUSES)
    is_back = Q(refunded_amount__gt=0, refunded_amount__gte=F("amount_received"))
    paid_first = Case(
        When(is_paid & ~is_back, then=Value(0)),
        When(status__in=_COMING, then=Value(1)),
        When(is_paid, then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )
    attempts = rows.filter(merchant_reference=subject.merchant_reference).exclude(DEPOSITS)
    found = attempts.order_by(paid_first, "-created_at", "-pk").first()
    if found is not None and found.status in VAIN_PAYMENT_STATUSES:
        newer = Operation.objects.filter(account=subject.account, merchant_reference=subject.merchant_reference)
        newer = newer.filter(operation="create_payment", created_at__gt=found.created_at)
        if newer.filter(state__in=OPEN_OPERATION_STATES).exists():
            return None
    return found


def refused_attempts(subject: Subject) -> list[Operation]:
    """Return the attempts to create the payment if each was refused or not sent, so that none may be under way."""
    if not subject.merchant_reference:
        return []
    attempts = list(
        Operation.objects.filter(
            account=subject.account, merchant_reference=subject.merchant_reference, operation="create_payment"
        ).only("state", "error", "body")
    )
    ended = (OperationState.REJECTED, OperationState.CLOSED)
    return attempts if all(attempt.state in ended for attempt in attempts) else []


def shown_status(payment: Payment | None, *, subject: Subject | None = None) -> ShownStatus:
    """Return the status now.

    None stands for a payment that was requested and is not in the mirror yet. If all attempts of the ``subject`` were
    refused, it is shown as a failed payment.
    """
    if payment is None:
        if subject is not None and (attempts := refused_attempts(subject)):
            words = str(HEADLINES[Status.FAILED]), str(_MESSAGES[Status.FAILED])
            # A job may repeat a call whose key is free.
            is_final = not any(attempt.has_free_key for attempt in attempts)
            return ShownStatus(Status.FAILED, *words, TONES[Status.FAILED], is_final=is_final)
        words = _("We are looking for your payment"), _("This takes a moment. Please do not pay again.")
        return ShownStatus("", *words, "open", is_final=False)
    status = payment.status
    if status in PAID_PAYMENT_STATUSES and (refunded := payment.refunded_amount or 0) > 0:
        return _refunded(payment, refunded)
    headline = HEADLINES.get(status)
    return ShownStatus(
        status=visible(status),
        # The name of a status that this version does not know means nothing to a payer.
        headline=str(headline) if headline else _("Your payment is being checked"),
        message=_message(payment) if headline else _("Please do not pay again."),
        tone=TONES.get(status, "open"),
        # Late money may still turn an expired payment into a succeeded one. The page does not wait for it.
        is_final=status in ENDED_PAYMENT_STATUSES,
    )


def _message(payment: Payment) -> str:
    amounts = {
        "received": format_for_payer(payment.amount_received, payment.currency, payment.country),
        "amount": format_for_payer(payment.amount, payment.currency, payment.country),
    }
    if payment.status == Status.PARTIALLY_PAID:
        return _("%(received)s of %(amount)s have arrived.") % amounts
    if payment.status == Status.OVERPAID:
        return _("Thank you! %(received)s have arrived, more than the %(amount)s asked for.") % amounts
    return str(_MESSAGES[payment.status])


def _refunded(payment: Payment, refunded: int) -> ShownStatus:
    if refunded >= payment.amount_received:
        words = _("Refunded"), _("Your money was sent back.")
    else:
        amount = format_for_payer(refunded, payment.currency, payment.country)
        words = _("Refunded in part"), _("%(amount)s were sent back.") % {"amount": amount}
    return ShownStatus(payment.status, *words, "quiet", is_final=True)
