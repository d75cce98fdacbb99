"""Which payment a page is about: the mirror decides, never the address."""

from __future__ import annotations

from django.db.models import Case, IntegerField, Value, When

from payments_integration.checkout.standing import PAID
from payments_integration.checkout.tokens import Subject
from payments_integration.models import Payment
from payments_integration.payable.matching import DEPOSITS

#: MariaDB compares references without regard to case: so many others may stand before the one that is meant.
_PAGE = 50


def find(subject: Subject) -> Payment | None:
    """The payment of a subject; None where the mirror has none.

    A reference may have been tried to pay several times: the attempt that is paid, else the newest. Transfers to a
    deposit reference are none: the reference that they carry names their payer, and may well be some order's number.
    """
    rows = Payment.objects.filter(account=subject.account)
    if subject.payment_id:
        return _exactly(rows.filter(pk=subject.payment_id).first(), subject)
    if not subject.merchant_reference:
        return None
    paid_first = Case(When(status__in=PAID, then=Value(0)), default=Value(1), output_field=IntegerField())
    # The second condition is exact on MariaDB too, but for what follows the reference.
    attempts = rows.exclude(DEPOSITS).filter(
        merchant_reference=subject.merchant_reference, merchant_reference__startswith=subject.merchant_reference
    )
    attempts = attempts.order_by(paid_first, "-created_at", "-pk")[:_PAGE]
    return next((row for row in attempts if _exactly(row, subject)), None)


def _exactly(row: Payment | None, subject: Subject) -> Payment | None:
    """``row`` if it is of this account and reference to the letter."""
    if row is None or row.account != subject.account:
        return None
    return row if subject.payment_id or row.merchant_reference == subject.merchant_reference else None
