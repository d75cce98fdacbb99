"""Calculate a payment: received, less what went back, equals what is left. The rows add up.

The last row is the refundable rest (``refundable_rest``), which decides about every refund.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.utils.html import format_html
from django.utils.timesince import timeuntil
from django.utils.timezone import now
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.models.payments import figures
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.buttons import may
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.sections.tables import Advice
from payments_integration.enums import (
    NEVER_REFUNDED_STATUSES,
    OPEN_PAYMENT_STATUSES,
    VOID_REFUND_STATUSES,
    PaymentStatus,
    RefundStatus,
)
from payments_integration.models import (
    Event,
    Payment,
    Refund,
    RefundFigures,
    StatusChange,
    refunded_so_far,
    rest_after,
)
from payments_integration.payer.names import reason_text
from payments_integration.validation.text import StrOrPromise

_TITLE = gettext_lazy("Money")
#: In these statuses, the payer still has to act.
_TO_BE_PAID = frozenset({PaymentStatus.CREATED, PaymentStatus.REQUIRES_ACTION, PaymentStatus.PARTIALLY_PAID})


@dataclass(frozen=True, slots=True)
class Amounts:
    """Minor units. ``received`` less the four amounts after it equals ``left``."""

    received: int
    refunded: int
    #: The amount of refunds and operations in progress that ``refunded`` does not include yet.
    on_its_way: int
    charged_back: int
    #: The amount received by an attempt that failed, expired or was canceled. It cannot be refunded.
    kept_back: int
    #: The refundable rest. It is below zero if more went out than came in, as far as the mirror knows.
    left: int

    @property
    def is_unpaid(self) -> bool:
        """Return True if nothing came in and no other amount is known."""
        return not (self.received or self.refunded or self.on_its_way or self.left)


@dataclass(frozen=True, slots=True)
class Row:
    label: StrOrPromise
    amount: str
    #: Empty, a minus or an equals sign.
    sign: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Calculation(Section):
    template: ClassVar[str] = "admin/payments_backoffice/includes/calculation.html"

    #: What the numbers mean, for instance how much is missing.
    sentences: list[str]
    rows: list[Row]
    #: Fee and net amount, in one line.
    less: list[str]
    #: For screen readers.
    caption: StrOrPromise
    title: StrOrPromise = _TITLE


def calculation(page: Page, payment: Payment) -> Calculation:
    """Return the calculation of a payment's page. Takes one query, and two more for a charged back payment."""
    refunds, promised = figures(payment)
    amounts = compute_amounts(payment, refunds, promised)
    sentences = list(_sentences(page, payment, amounts, refunds, promised))
    less: list[str] = [
        format_html("{} {}", label, display.money(amount, payment.currency))
        for label, amount in ((_("Fee"), payment.fee), (_("Net"), payment.net_amount))
        # Before any money comes, the provider sends zeros.
        if amount is not None and (amount or payment.amount_received)
    ]
    return Calculation(
        sentences, list(_rows(payment, amounts)), less, _("From the amount received to the amount left")
    )


def advice(page: Page, payment: Payment) -> Iterator[Advice]:
    """Explain how much a payer must still pay, or what to do after a chargeback. Takes no queries."""
    if payment.status == PaymentStatus.CHARGEBACK:
        yield Advice(_("A chargeback"), [
            _("The payer's bank took the money back, mostly because the payer says that the payment is not right."),
            _("Do not refund it in another way: the payer has the money. Do not send what is not sent yet."),
            _("If the payer is wrong, send the provider the proof of the order and of its delivery."),
        ])  # fmt: skip
    missing = payment.amount - payment.amount_received
    if payment.status not in _TO_BE_PAID or missing <= 0:
        return
    name = people.name(page, payment, "payer") if may(page.request, "view_personal_data") else ""
    who = name if name and not people.is_erased(payment, "payer") else _("The payer")
    amount, until = display.money(missing, payment.currency), payment.expires_at
    if until is None:
        words = format_html(_("{who} still has to pay {amount}."), who=who, amount=amount)
    elif until > now():
        known = {"who": who, "amount": amount, "at": display.moment(until), "left": timeuntil(until, depth=1)}
        words = format_html(_("{who} still has to pay {amount} until {at}: {left} are left."), **known)
    else:
        words = format_html(_("The time to pay {amount} ended at {at}."), amount=amount, at=display.moment(until))
    yield Advice(_("What is missing"), [words])


def compute_amounts(payment: Payment, refunds: Sequence[Refund | RefundFigures], promised: int) -> Amounts:
    """Return the amounts of a payment with all of its refunds.

    ``promised``: minor units that open operations ask for.
    """
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
    """Return the time of a chargeback and True if an event says so; otherwise the time the mirror saw it and False."""
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
    # The status change has the event's time, even if the event is no longer kept.
    return (change.at, bool(change.event_id)) if change else (payment.state_at, False)


def _rows(payment: Payment, amounts: Amounts) -> Iterator[Row]:
    def row(label: str, amount: int, sign: str = "−", note: str = "") -> Row:  # noqa: RUF001  (a minus sign)
        return Row(label, display.money(amount, payment.currency), sign, note)

    if amounts.is_unpaid:
        is_open = payment.status in OPEN_PAYMENT_STATUSES
        yield row(_("To be paid") if is_open else _("Asked for, not paid"), payment.amount, "")
        return
    yield row(_("Received"), amounts.received, "")
    if amounts.refunded:
        yield row(_("Refunded"), amounts.refunded)
    if amounts.on_its_way:
        yield row(_("On its way"), amounts.on_its_way)
    if amounts.charged_back:
        yield row(_("Charged back"), amounts.charged_back, note=_chargeback_note(payment))
    if amounts.kept_back:
        yield row(_("Not refundable"), amounts.kept_back)
    yield row(_("Left"), amounts.left, "=")


def _chargeback_note(payment: Payment) -> str:
    if payment.status != PaymentStatus.CHARGEBACK:
        return ""
    at, is_known = charged_back_at(payment)
    return display.moment(at) if is_known else _("seen on %(at)s") % {"at": display.moment(at)}


def _sentences(
    page: Page, payment: Payment, amounts: Amounts, refunds: list[RefundFigures], promised: int
) -> Iterator[str]:
    def say(words: str, amount: int) -> str:
        asked, shown = (display.money(each, payment.currency) for each in (payment.amount, amount))
        return format_html(words, amount=shown, asked=asked)

    if payment.failure_reason:
        yield format_html(_("Failure reason: {}"), page.personal(reason_text(payment.failure_reason)))
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
