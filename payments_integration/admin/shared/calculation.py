"""A payment's calculation: received, less what went back, equals what is left. The rows add up.

Its last row is the refundable rest (``refundable_rest``), which decides about every refund.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Section
from payments_integration.enums import NEVER_REFUNDED_STATUSES, VOID_REFUND_STATUSES, PaymentStatus, RefundStatus
from payments_integration.models import (
    Event,
    Payment,
    Refund,
    StatusChange,
    refunded_so_far,
    refunds_and_promises,
    rest_after,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

_TITLE = gettext_lazy("Money")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Minor units: ``received`` less the four amounts that went is what is ``left``."""

    received: int
    refunded: int
    #: In refunds and operations in progress that ``refunded`` does not count yet.
    on_its_way: int
    charged_back: int
    #: Received by an attempt that failed, expired or was canceled: it cannot be refunded.
    kept_back: int
    #: The refundable rest. Below zero if more went out than came in, as far as the mirror knows.
    left: int


@dataclass(frozen=True, slots=True)
class Row:
    label: StrOrPromise
    amount: str
    #: Empty, a minus or an equals sign.
    sign: str = ""
    note: str = ""
    is_zero: bool = False


@dataclass(frozen=True, slots=True)
class Calculation(Section):
    template: ClassVar[str] = "admin/payments_integration/includes/calculation.html"

    #: What the numbers mean, for instance how much is missing.
    sentences: list[str]
    rows: list[Row]
    #: Fee and net amount, in one line.
    less: list[str]
    #: For screen readers; empty if the title says it.
    caption: StrOrPromise
    title: StrOrPromise = _TITLE


def calculation(payment: Payment) -> Calculation:
    """The calculation of a payment's page: two statements, and two more for one that was charged back."""
    refunds, promised = refunds_and_promises(payment)
    amounts = compute_amounts(payment, refunds, promised)
    sentences = list(_sentences(payment, amounts, refunds, promised))
    less: list[str] = [
        format_html("{} {}", label, display.money(amount, payment.currency))
        for label, amount in ((_("Fee"), payment.fee), (_("Net"), payment.net_amount))
        if amount is not None
    ]
    return Calculation(
        sentences, list(_rows(payment, amounts)), less, _("From the amount received to the amount left")
    )


def compute_amounts(payment: Payment, refunds: list[Refund], promised: int) -> Amounts:
    """The amounts of a payment with all of its refunds. ``promised``: minor units that open operations ask for."""
    refunded = refunded_so_far(payment, refunds)
    left = rest_after(payment, refunds, promised)
    if payment.status not in NEVER_REFUNDED_STATUSES:
        received = payment.amount_received
        return Amounts(received, refunded, received - refunded - left, 0, 0, left)
    # A refunded amount was received, even if the payment's row no longer counts it.
    received = max(payment.amount_received, refunded)
    gone = received - refunded
    is_charged_back = payment.status == PaymentStatus.CHARGEBACK
    return Amounts(received, refunded, 0, gone if is_charged_back else 0, 0 if is_charged_back else gone, left)


def charged_back_at(payment: Payment) -> tuple[datetime, bool]:
    """When a payment was charged back, and whether its event says so; otherwise when the mirror saw it."""
    events = Event.objects.filter(
        account=payment.account, object_kind=payment.kind, object_id=payment.pk, type="payment.chargeback"
    )
    created_at = events.order_by("-created_at").values_list("created_at", flat=True).first()
    if created_at:
        return created_at, True
    changes = StatusChange.objects.filter(
        account=payment.account, object_kind=payment.kind, object_id=payment.pk, status=PaymentStatus.CHARGEBACK
    )
    change = changes.order_by("-at").only("at", "event_id").first()
    # An event that is no longer kept has left its time.
    return (change.at, bool(change.event_id)) if change else (payment.state_at, False)


def _rows(payment: Payment, amounts: Amounts) -> Iterator[Row]:
    def row(label: str, amount: int, sign: str = "−", note: str = "") -> Row:  # noqa: RUF001  (a minus sign)
        return Row(label, display.money(amount, payment.currency), sign, note, is_zero=amount == 0)

    yield row(_("Received"), amounts.received, "")
    yield row(_("Refunded"), amounts.refunded)
    yield row(_("On its way"), amounts.on_its_way)
    yield row(_("Charged back"), amounts.charged_back, note=_chargeback_note(payment))
    if amounts.kept_back:
        yield row(_("Not refundable"), amounts.kept_back)
    yield row(_("Left"), amounts.left, "=")


def _chargeback_note(payment: Payment) -> str:
    if payment.status != PaymentStatus.CHARGEBACK:
        return ""
    at, is_known = charged_back_at(payment)
    return display.moment(at) if is_known else _("seen on %(at)s") % {"at": display.moment(at)}


def _sentences(payment: Payment, amounts: Amounts, refunds: list[Refund], promised: int) -> Iterator[str]:
    def say(words: str, amount: int) -> str:
        asked, shown = (display.money(each, payment.currency) for each in (payment.amount, amount))
        return format_html(words, amount=shown, asked=asked)

    if payment.failure_reason:
        yield format_html(_("Failure reason: {}"), display.text(payment.failure_reason))
    surplus = payment.amount_received - payment.amount
    if payment.status == PaymentStatus.PARTIALLY_PAID and surplus < 0:
        yield say(_("{amount} of {asked} is missing."), -surplus)
    if payment.status == PaymentStatus.OVERPAID and surplus > 0:
        yield say(_("{amount} more than {asked} was paid."), surplus)
    if payment.status == PaymentStatus.ON_HOLD:
        yield _("The provider is reviewing it. The money may go back to the payer.")
    if amounts.refunded >= amounts.received > 0:
        yield _("Everything is refunded.")
    elif amounts.left == 0 and amounts.on_its_way:
        yield _("Nothing is left. The rest is on its way to the payer.")
    if amounts.left < 0:
        yield say(_("{amount} more than was received is refunded or on its way."), -amounts.left)
    ended = {*VOID_REFUND_STATUSES, RefundStatus.SUCCEEDED}
    in_progress = promised + sum(refund.amount for refund in refunds if refund.status not in ended)
    if payment.status == PaymentStatus.CHARGEBACK and in_progress:
        yield say(_("Refunds of {amount} are still in progress."), in_progress)
    if any(refund.currency != payment.currency for refund in refunds):
        words = _("A refund is in another currency. It counts here as if it were in %(currency)s.")
        yield words % {"currency": display.text(payment.currency)}
