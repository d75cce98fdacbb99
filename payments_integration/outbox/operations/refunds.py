"""Refunds (spec, "Refunds")."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration import projection, sync
from payments_integration.client import Client
from payments_integration.db.statements import lock_row
from payments_integration.enums import NEVER_REFUNDED_STATUSES, VOID_REFUND_STATUSES, Kind, MethodFamily, PaymentStatus
from payments_integration.models import DueRefresh, Operation, Payment, Refund, refundable_rest, sent_refund_operations
from payments_integration.outbox.operations.base import (
    Candidates,
    Creation,
    Intent,
    Precondition,
    PreconditionFailed,
    reaches_approval_limit,
)
from payments_integration.outbox.operations.lost import IS_OURS, not_ours

_REFUNDS = Refund.objects.filter(account=OuterRef("account"), payment_id=OuterRef("pk"))


class CreateRefund(Creation):
    name, label, kind = "create_refund", _("refund"), Kind.REFUND
    target, permission = Kind.PAYMENT, "refund_payment"
    approval_request = _("%(who)s asked on %(at)s to refund %(amount)s to a bank account.")
    target_annotations = {
        # An event, such as a refund's, came that the payment's row may not show yet.
        "is_marked": Exists(
            DueRefresh.objects.filter(account=OuterRef("account"), object_kind=Kind.PAYMENT, object_id=OuterRef("pk"))
        ),
        "has_refunds": Exists(_REFUNDS),
        "has_refunds_of_others": Exists(_REFUNDS.filter(~IS_OURS)),
    }

    def precondition(self, intent: Intent) -> Precondition:
        return WithinRest(
            intent.account,
            intent.target_id,
            takes_all=intent.amount is None,
            payment=intent.target if isinstance(intent.target, Payment) else None,
            operation_id=intent.operation_id,
        )

    def needs_approval(self, intent: Intent) -> bool:
        # A refund without a destination goes back to the card that was charged.
        return "destination" in (intent.body or {}) and reaches_approval_limit(intent.amount, intent.currency)

    def matches_request(self, operation: Operation, body: dict[str, Any]) -> bool:
        # The currency is the payment's; the request does not name it.
        return (body.get("amount"), body.get("payment_id")) == (operation.amount, operation.target_id)

    def contradicts(self, operation: Operation, answer: Any) -> str:
        if answer is not None and answer.payment_id != operation.target_id:
            return "the answer is about another payment"
        return super().contradicts(operation, answer)

    def look_up(self, client: Client, operation: Operation) -> Candidates:
        listed = client.refunds.list(payment_id=operation.target_id, max_wait=sync.WORKER_WAIT, background=True)
        return self.candidates(operation, listed)

    def mirrored(self, operation: Operation) -> QuerySet[Refund]:
        return Refund.objects.filter(payment_id=operation.target_id)

    def may_be_a_repeat(self, intent: Intent) -> bool:
        if not getattr(intent.target, "has_refunds_of_others", True):
            return False
        lost = self.lost_results(intent)
        return lost is not None and lost.exists()

    def lost_results(self, asked: Intent | Operation) -> QuerySet[Refund] | None:
        # A user has seen the refunds of the payment. A full refund is refused if nothing is left.
        if asked.actor_id or asked.amount is None:
            return None
        rows = Refund.objects.filter(payment_id=asked.target_id).exclude(status__in=VOID_REFUND_STATUSES)
        return not_ours(rows, asked)

    def fits(self, operation: Operation, item: Any) -> bool:
        # Refunds have no merchant reference.
        return not self.contradicts(operation, item)

    def is_certain(self, operation: Operation, item: Any) -> bool:
        # So an earlier one may have been made elsewhere, for example in the provider's dashboard.
        return operation.sent_after is not None and item.created_at >= operation.sent_after - projection.MARGIN


@dataclass(frozen=True, slots=True)
class WithinRest(Precondition):
    """The refund fits into ``refundable_rest`` of its payment. Decided under the payment's lock."""

    account: str
    payment_id: str
    #: No amount was given. The rest becomes the amount, so the mirror must be up to date.
    takes_all: bool
    #: As the service found it, with ``target_annotations``; None: not mirrored yet.
    payment: Any
    #: The operation, if it is already recorded: it does not count against itself.
    operation_id: str = ""

    def prepare(self) -> bool:
        payment = self.payment
        if self.takes_all or payment is None or payment.is_marked:
            sync.read(Kind.PAYMENT, self.account, self.payment_id)
        elif not payment.refunded_amount and not payment.has_refunds:
            return False
        # Refunds are also made elsewhere, for example in the provider's dashboard. A listed refund that was not
        # mirrored may be an operation's. So may any refund while an operation is unknown.
        return sync.read_refunds(self.account, self.payment_id)

    def decide(self, intent: Intent) -> Intent:
        payment = lock_row(Payment, self.payment_id)
        if payment is None or payment.account != self.account:
            message = gettext("This payment is not known here; read it with services.refresh first.")
            raise PreconditionFailed({"payment": [message]})
        body = intent.body or {}
        by_card = payment.method_family == MethodFamily.CARD
        if by_card and "destination" in body:
            message = gettext("A card is refunded to the card; leave the destination out.")
            raise PreconditionFailed({"destination": [message]})
        if not by_card and "destination" not in body:
            raise PreconditionFailed({"destination": [gettext("This is required unless a card was charged.")]})
        if payment.status in NEVER_REFUNDED_STATUSES:
            message = gettext("A payment that is %(status)s is not refunded.")
            status = dict(PaymentStatus.choices).get(payment.status, payment.status)
            raise PreconditionFailed({"payment": [message % {"status": status}]})
        rest = refundable_rest(payment, without=self.operation_id)
        if rest <= 0:
            raise PreconditionFailed({"payment": [gettext("Nothing is left to refund.")]})
        if not self.takes_all and intent.amount is not None and intent.amount > rest:
            message = gettext("At most %(rest)d minor units are left to refund.")
            error = ValidationError(message, code="max_value", params={"rest": rest, "currency": payment.currency})
            raise PreconditionFailed({"amount": error})
        # The same call under a free key asks for what was left then. Perhaps less is left now.
        amount = rest if intent.amount is None else min(intent.amount, rest)
        # The request always names the amount: a refund never moves more than was decided here.
        return dataclasses.replace(intent, amount=amount, currency=payment.currency, body={**body, "amount": amount})

    def refresh(self) -> None:
        sync.read(Kind.PAYMENT, self.account, self.payment_id)
        sync.read_refunds(self.account, self.payment_id)

    def competitors(self) -> Iterable[Operation]:
        """Return operations that were sent and may have made a refund that was just read: it would count twice."""
        return sent_refund_operations(self.account, self.payment_id).exclude(pk=self.operation_id)
