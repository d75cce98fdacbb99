"""List for a payer what happened to an order's payments, newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.checkout.payment_methods import logo_of, method_name
from payments_integration.dates import with_zone
from payments_integration.enums import Kind, PaymentStatus, RefundStatus
from payments_integration.models import Payment, Refund, StatusChange
from payments_integration.money import format_for_payer
from payments_integration.payable import Payable
from payments_integration.payable.queries import chunks
from payments_integration.payer.status import HEADLINES, TONES
from payments_integration.payer.texts import visible
from payments_integration.validation.text import StrOrPromise

#: Statuses without a step, because the first step says the same.
_UNSAID = frozenset({PaymentStatus.CREATED, PaymentStatus.REQUIRES_ACTION})
_TRANSFER_STATUSES = frozenset({PaymentStatus.PARTIALLY_PAID, PaymentStatus.SUCCEEDED, PaymentStatus.OVERPAID})
_REFUND_WORDS: dict[str, StrOrPromise] = {
    RefundStatus.CREATED: gettext_lazy("Your money is on its way back to you"),
    RefundStatus.PROCESSING: gettext_lazy("Your money is on its way back to you"),
    RefundStatus.SUCCEEDED: gettext_lazy("Sent back to you"),
    RefundStatus.FAILED: gettext_lazy("Sending it back did not work; we look after it"),
    RefundStatus.CANCELED: gettext_lazy("Sending it back did not work; we look after it"),
    RefundStatus.RETURNED: gettext_lazy("Your refund came back to us; we look after it"),
}
_REFUND_TONES: dict[str, str] = {
    RefundStatus.SUCCEEDED: "good",
    RefundStatus.CREATED: "open",
    RefundStatus.PROCESSING: "open",
}
#: Order the steps of the same time: a later rank stands above.
_BEGINNING, _CHANGE, _REFUND = range(3)


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Everything in it may be shown to the payer."""

    at: datetime
    #: The time in words, in the zone of the payment's country, with the zone.
    when: str
    words: str
    #: ``good``, ``bad``, ``quiet`` or ``open``.
    tone: str
    #: Formatted; empty if the step has no amount.
    amount: str = ""
    #: The method's name and the static path of its drawing, for a payment's first step.
    method: str = ""
    logo: str = ""
    #: The provider's id of the payment, for a payer who asks about it.
    payment_id: str = ""
    #: The refund's status; empty for other steps.
    refund_status: str = ""
    rank: int = _CHANGE

    @property
    def iso(self) -> str:
        return self.at.isoformat(timespec="seconds")


def timeline(order: Payable) -> list[Step]:
    """Return the steps of all attempts to pay for an order and of its refunds.

    A refund is one step with its current status. Needs three statements for up to 500 payments.
    """
    payments = {payment.pk: payment for payment in order.payments}
    refunds = list(order.refunds)
    steps = [_begun(payment) for payment in payments.values()]
    steps += [
        _changed(row, payments[row.object_id])
        for row in _changes(list(payments.values()))
        if row.status not in _UNSAID
    ]
    steps += [_refunded(refund, payments.get(refund.payment_id or "")) for refund in refunds]
    # Compare whole seconds first, because the provider may send only those.
    return sorted(steps, key=lambda step: (step.at.replace(microsecond=0), step.rank, step.at), reverse=True)


def _changes(payments: Sequence[Payment]) -> list[StatusChange]:
    found: list[StatusChange] = []
    # SQLite takes no condition with a thousand alternatives.
    for chunk in chunks(payments):
        of_account: dict[str, list[str]] = defaultdict(list)
        for payment in chunk:
            of_account[payment.account].append(payment.pk)
        wanted = Q()
        for account, ids in of_account.items():
            wanted |= Q(account=account, object_kind=Kind.PAYMENT, object_id__in=ids)
        found += StatusChange.objects.filter(wanted).defer("error")
    return sorted(found, key=lambda row: (row.at, row.pk))


def _begun(payment: Payment) -> Step:
    return Step(
        payment.created_at,
        with_zone(payment.created_at, payment.country),
        _("Payment started"),
        "quiet",
        _money(payment.amount, payment),
        method_name(payment.method_code),
        logo_of(payment.method_family),
        visible(payment.pk),
        rank=_BEGINNING,
    )


def _changed(row: StatusChange, payment: Payment) -> Step:
    # The mirror keeps only the current amount, which belongs to the payment's current status.
    came = payment.amount_received if row.status == payment.status and row.status in _TRANSFER_STATUSES else 0
    words = HEADLINES.get(row.status, gettext_lazy("Your payment is being checked"))
    tone = TONES.get(row.status, "open")
    return Step(row.at, with_zone(row.at, payment.country), str(words), tone, _money(came, payment) if came else "")


def _refunded(refund: Refund, payment: Payment | None) -> Step:
    country = payment.country if payment is not None else ""
    words = _REFUND_WORDS.get(refund.status, gettext_lazy("Your refund is being looked after"))
    return Step(
        refund.created_at,
        with_zone(refund.created_at, country),
        str(words),
        _REFUND_TONES.get(refund.status, "bad"),
        format_for_payer(refund.amount, refund.currency, country),
        refund_status=visible(refund.status),
        rank=_REFUND,
    )


def _money(amount: int, of: Any) -> str:
    return format_for_payer(amount, of.currency, of.country)
