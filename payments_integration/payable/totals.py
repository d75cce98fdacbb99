"""Compute the totals of an order's payments. One currency is never added to another.

A payment's status decides if its money belongs to the merchant; ``amount_received`` says how much came (spec,
"Payment" and "States and transitions"). Two figures say what was refunded: the succeeded refunds, and the payment's
``refunded_amount``. The latter follows later by a GET and also counts refunds that are not mirrored. The larger
figure counts.
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
from payments_integration.models import Payment, Refund, refunded_so_far, rest_after
from payments_integration.money import checked_minor


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the payments of one order in one currency, in minor units, each 0 or more."""

    currency: str
    #: Asked for by all attempts, except attempts that failed, expired or were canceled.
    asked: int = 0
    #: Received for the merchant by succeeded, overpaid, partially paid and charged back payments.
    received: int = 0
    #: Refunded by refunds that succeeded and did not come back.
    refunded: int = 0
    #: Charged back, without amounts that were refunded before.
    charged_back: int = 0
    #: In refunds that are in progress. ``kept`` includes it until they succeed.
    refunding: int = 0
    #: Still to come from open attempts.
    in_progress: int = 0
    #: Received, but not the merchant's yet: under review, or for an attempt that failed, expired or was canceled.
    held: int = 0
    #: Received by payments that still hold a part of their money. A partial refund is a price reduction, so the order
    #: stays paid. A payment that was charged back or refunded in full, or is being refunded in full, counts as 0.
    paid: int = 0
    #: Can still be refunded, after the refunds in progress and the requested refunds.
    refundable: int = 0

    @property
    def kept(self) -> int:
        """Received, less refunds and chargebacks. Fees are not deducted."""
        return self.received - self.refunded - self.charged_back

    def is_paid(self, amount: int) -> bool:
        """Return True if ``amount`` minor units are paid.

        Raises TypeError for an amount that is not an int, and ValueError for a negative one. The methods below raise
        the same errors.
        """
        return self.missing(amount) == 0

    def missing(self, amount: int) -> int:
        """Return the minor units of ``amount`` that are not paid yet. Payments in progress do not count as paid."""
        return max(0, self._checked(amount) - self.paid)

    def overpaid(self, amount: int) -> int:
        """Return the minor units that can be refunded so that ``amount`` is kept, after the refunds in progress."""
        return max(0, self.refundable - self._checked(amount))

    def _checked(self, amount: int) -> int:
        if checked_minor(amount, self.currency) < 0:
            raise ValueError("an amount is not negative")
        return amount


def compute_totals(payments: Iterable[Payment], refunds: Iterable[Refund]) -> dict[str, Totals]:
    """Return the totals of each currency that occurs, in alphabetical order. ``refunds`` belong to these payments."""
    by_payment: dict[tuple[str, str | None], list[Refund]] = defaultdict(list)
    for refund in refunds:
        by_payment[refund.account, refund.payment_id].append(refund)
    sums: dict[str, Totals] = {}
    for payment in payments:
        # Another account's refund may name the payment.
        own = by_payment[payment.account, payment.pk]
        parts = [_of_payment(payment, [refund for refund in own if refund.currency == payment.currency])]
        # The spec has no refunds in another currency. If one comes, it counts in its own currency.
        parts += [_of_foreign(refund) for refund in own if refund.currency != payment.currency]
        for part in parts:
            sums[part.currency] = _plus(sums.get(part.currency, Totals(part.currency)), part)
    return dict(sorted(sums.items()))


def _of_payment(payment: Payment, refunds: list[Refund]) -> Totals:
    refunded = refunded_so_far(payment, refunds)
    refunding = sum(refund.amount for refund in refunds if _is_open(refund))
    # A refunded amount was received, even if the payment's row lags behind its refunds or no longer counts it.
    came = max(payment.amount_received, refunded)
    charged_back = payment.status == PaymentStatus.CHARGEBACK
    counts = charged_back or payment.status in RECEIVED_PAYMENT_STATUSES
    left = max(0, rest_after(payment, refunds)) if counts else 0
    promised: int = getattr(payment, "promised", None) or 0
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
        refundable=max(0, left - promised),
    )


def _of_foreign(refund: Refund) -> Totals:
    done = refund.amount if _is_done(refund) else 0
    return Totals(
        currency=refund.currency, received=done, refunded=done, refunding=refund.amount if _is_open(refund) else 0
    )


def _is_done(refund: Refund) -> bool:
    return refund.status == RefundStatus.SUCCEEDED


def _is_open(refund: Refund) -> bool:
    """Return True if the refund is in progress. ``services`` counts unknown statuses in the same way."""
    return not _is_done(refund) and refund.status not in VOID_REFUND_STATUSES


def _plus(one: Totals, other: Totals) -> Totals:
    names = (field.name for field in fields(Totals) if field.name != "currency")
    return Totals(one.currency, **{name: getattr(one, name) + getattr(other, name) for name in names})
