"""What an order's payments come to. One currency is never added to another.

A payment's status says whose its money is, ``amount_received`` how much came (spec, "Payment" and "States and
transitions"). What was refunded is known twice: a succeeded refund is in its own row first, and the payment's
``refunded_amount`` follows by a GET; that in turn counts refunds that are not mirrored. The larger figure counts, as
where a refund is decided about (``services``), but for refunds that came back since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields

from payments_integration.enums import (
    ENDED_PAYMENT_STATUSES,
    RECEIVED_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    VOID_REFUND_STATUSES,
    PaymentStatus,
    RefundStatus,
)
from payments_integration.models import Payment, Refund


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the payments of one order in one currency, in minor units, each 0 or more."""

    currency: str
    #: Asked for by every attempt but those that failed, expired or were canceled.
    asked: int = 0
    #: Came, and was the merchant's: succeeded, overpaid, partially paid and charged back payments.
    received: int = 0
    #: Given back by refunds that succeeded and did not come back.
    refunded: int = 0
    #: Taken back by chargebacks: what was not refunded before.
    charged_back: int = 0
    #: To be given back by refunds in progress; ``kept`` has it until they succeed.
    refunding: int = 0
    #: Still to come by attempts that are open.
    in_progress: int = 0
    #: Came and is not the merchant's: under review, or with an attempt that failed, expired or was canceled.
    held: int = 0
    #: Came by payments of which something is left. A partial refund is a price that was given, and leaves an order
    #: paid; a payment that was refunded in full, is being so, or was charged back, pays for nothing.
    paid: int = 0
    #: What can still be refunded, refunds in progress taken off.
    refundable: int = 0

    @property
    def kept(self) -> int:
        """What is left of what came. Fees are not taken off."""
        return self.received - self.refunded - self.charged_back

    def is_paid(self, amount: int) -> bool:
        """Whether ``amount`` minor units are paid. Raises ValueError for a negative amount."""
        return self.missing(amount) == 0

    def missing(self, amount: int) -> int:
        """Minor units that are not paid of ``amount``. What is in progress does not count as paid."""
        return max(0, _checked(amount) - self.paid)

    def overpaid(self, amount: int) -> int:
        """Minor units that can be refunded with ``amount`` still kept. Refunds in progress are taken off."""
        return max(0, self.refundable - _checked(amount))


def reckon(payments: Iterable[Payment], refunds: Iterable[Refund]) -> dict[str, Totals]:
    """Totals by currency, in alphabetical order, of the currencies that occur. ``refunds``: of these payments."""
    by_payment: dict[str, list[Refund]] = defaultdict(list)
    for refund in refunds:
        by_payment[str(refund.payment_id)].append(refund)
    sums: dict[str, Totals] = {}
    for payment in payments:
        own = by_payment[payment.pk]
        parts = [_of_payment(payment, [refund for refund in own if refund.currency == payment.currency])]
        # The spec knows none. What cannot be compared with the payment stands by itself.
        parts += [_of_foreign(refund) for refund in own if refund.currency != payment.currency]
        for part in parts:
            sums[part.currency] = _plus(sums.get(part.currency, Totals(part.currency)), part)
    return dict(sorted(sums.items()))


def _of_payment(payment: Payment, refunds: list[Refund]) -> Totals:
    refunded = _refunded(payment, refunds)
    refunding = sum(refund.amount for refund in refunds if _is_open(refund))
    # What was given back had come, also where the payment's row is behind its refunds or counts it no more.
    came = max(payment.amount_received, refunded)
    charged_back = payment.status == PaymentStatus.CHARGEBACK
    counts = charged_back or payment.status in RECEIVED_PAYMENT_STATUSES
    left = 0 if charged_back or not counts else max(0, came - refunded - refunding)
    is_open = payment.status not in ENDED_PAYMENT_STATUSES and payment.gone_at is None
    return Totals(
        currency=payment.currency,
        asked=0 if payment.status in VAIN_PAYMENT_STATUSES else payment.amount,
        received=came if counts else refunded,
        refunded=refunded,
        charged_back=came - refunded if charged_back else 0,
        refunding=refunding,
        in_progress=max(0, payment.amount - came) if is_open else 0,
        held=0 if counts else came - refunded,
        paid=came if left else 0,
        refundable=left,
    )


def _refunded(payment: Payment, refunds: list[Refund]) -> int:
    done = sum(refund.amount for refund in refunds if _is_done(refund))
    # Handlers are told of a returned refund before the payment is read again, and the payment's figure brings no
    # telling of its own: what came back since must not look refunded to them.
    came_back = sum(
        refund.amount
        for refund in refunds
        if refund.status == RefundStatus.RETURNED and refund.state_at > payment.state_at
    )
    return max(done, (payment.refunded_amount or 0) - came_back)


def _of_foreign(refund: Refund) -> Totals:
    done = refund.amount if _is_done(refund) else 0
    return Totals(
        currency=refund.currency,
        received=done,
        refunded=done,
        refunding=refund.amount if _is_open(refund) else 0,
    )


def _is_done(refund: Refund) -> bool:
    return refund.status == RefundStatus.SUCCEEDED


def _is_open(refund: Refund) -> bool:
    """A status that this version does not know counts too, as where a refund is decided about."""
    return not _is_done(refund) and refund.status not in VOID_REFUND_STATUSES


def _plus(one: Totals, other: Totals) -> Totals:
    names = (field.name for field in fields(Totals) if field.name != "currency")
    return Totals(one.currency, **{name: getattr(one, name) + getattr(other, name) for name in names})


def _checked(amount: int) -> int:
    if amount < 0:
        raise ValueError("an amount is not negative")
    return amount
