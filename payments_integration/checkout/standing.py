"""How a payment stands, in the words of the one who pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration.checkout.texts import visible
from payments_integration.enums import PaymentStatus as Status
from payments_integration.models import Payment
from payments_integration.money import format_money

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Only now may a payer be told how to pay: the others are over, or their money is on its way.
PAYABLE = frozenset({Status.CREATED, Status.REQUIRES_ACTION, Status.PARTIALLY_PAID})
PAID = frozenset({Status.SUCCEEDED, Status.OVERPAID})
#: Nobody waits for these to change. Late money may still turn ``expired`` into ``succeeded``.
ENDED = PAID | {Status.FAILED, Status.EXPIRED, Status.CANCELED, Status.CHARGEBACK}

_WAITING = gettext_lazy("Waiting for your payment")
_HEADLINES: dict[str, StrOrPromise] = {
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
_TONES: dict[str, str] = {
    **dict.fromkeys(PAID, "good"),
    Status.FAILED: "bad",
    Status.CHARGEBACK: "bad",
    Status.EXPIRED: "quiet",
    Status.CANCELED: "quiet",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a page says of a payment."""

    #: The provider's, or empty where there is no payment yet.
    status: str
    headline: str
    message: str
    #: ``good``, ``bad``, ``quiet`` or ``open``: how it looks.
    tone: str
    #: Nothing more is waited for.
    is_final: bool


def standing(payment: Payment | None) -> Standing:
    """How it stands now. None: a payment that was asked for and is not in the mirror yet."""
    if payment is None:
        words = _("We are looking for your payment"), _("This takes a moment. Please do not pay again.")
        return Standing("", *words, "open", is_final=False)
    status = payment.status
    if status in PAID and (given_back := payment.refunded_amount or 0) > 0:
        return _refunded(payment, given_back)
    headline = _HEADLINES.get(status)
    return Standing(
        status=visible(status),
        # A status that this version does not know says nothing to a payer.
        headline=str(headline) if headline else _("Your payment is being checked"),
        message=_message(payment) if headline else _("Please do not pay again."),
        tone=_TONES.get(status, "open"),
        is_final=status in ENDED,
    )


def _message(payment: Payment) -> str:
    amounts = {
        "received": format_money(payment.amount_received, payment.currency),
        "amount": format_money(payment.amount, payment.currency),
    }
    if payment.status == Status.PARTIALLY_PAID:
        return _("%(received)s of %(amount)s have arrived.") % amounts
    if payment.status == Status.OVERPAID:
        return _("Thank you! %(received)s have arrived, more than the %(amount)s asked for.") % amounts
    return str(_MESSAGES[payment.status])


def _refunded(payment: Payment, given_back: int) -> Standing:
    if given_back >= payment.amount_received:
        words = _("Refunded"), _("Your money was sent back.")
    else:
        amount = format_money(given_back, payment.currency)
        words = _("Refunded in part"), _("%(amount)s were sent back.") % {"amount": amount}
    return Standing(payment.status, *words, "quiet", is_final=True)
