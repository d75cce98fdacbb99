"""Refunds, and what is left to refund (spec, "Refunds")."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import F, QuerySet
from django.utils.translation import gettext as _

from payments_integration.enums import (
    NEVER_REFUNDED_STATUSES,
    OPEN_REFUND_STATUSES,
    VOID_REFUND_STATUSES,
    Kind,
    MethodFamily,
    PaymentStatus,
    RefundStatus,
)
from payments_integration.exceptions import NotFound
from payments_integration.models import OPEN_OPERATION_STATES, DueRefresh, Operation, Payment, Refund
from payments_integration.services import guards, reads, shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import MAX_LONG_TEXT, Checks, Json
from payments_integration.services.intents import Doubt, Intent, check_size, target
from payments_integration.services.recipes import CREATE_REFUND

#: Refunds in progress that are read again before a refusal.
_MAX_REFRESHED = 20


@sends(Refund)
def create_refund(
    payment: Payment | str,
    *,
    amount: int | None = None,
    destination: Mapping[str, Any] | None = None,
    reason: str | None = None,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Give money back (spec, "Refunds"); returns the Refund.

    ``payment``: an instance or its id. ``amount``: minor units; left out: everything that is left, as read
    from the provider just before. ``destination``: as in ``create_payout``; required unless a card was
    charged, and refused where one was, because the money goes back to the card.

    Raises what ``create_payment`` raises; ValidationError also where more is asked for than is left, counting
    refunds in progress and operations whose outcome is open, after having read the payment again;
    ApprovalRequired as ``create_payout``, where it has a destination.
    """
    checks = Checks()
    alias, object_id, row = target(checks, "payment", Payment, payment, "pay_", account)
    arguments: Json = {"payment": object_id}
    body: Json = {"payment_id": object_id}
    if amount is not None:
        arguments["amount"] = body["amount"] = checks.amount("amount", amount)
    if destination is not None:
        country = row.country if row is not None else ""
        arguments["destination"] = body["destination"] = shapes.destination(
            checks, "destination", destination, country
        )
    if reason is not None:
        arguments["reason"] = body["reason"] = checks.text("reason", reason, max_length=MAX_LONG_TEXT)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    check_size(checks, body)
    checks.finish()
    return Intent(
        operation=CREATE_REFUND,
        account=alias,
        arguments=arguments,
        body=body,
        target_id=object_id,
        amount=body.get("amount"),
        idempotency_key=key,
        actor=who,
        guard=RestGuard(alias, object_id, takes_all=amount is None, is_known=row is not None),
    )


@dataclass(frozen=True, slots=True)
class RestGuard:
    """A refund must fit into what is left of its payment. Decided under the payment's lock."""

    when_deferred: ClassVar[bool] = True
    counts_operations: ClassVar[bool] = True

    account: str
    payment_id: str
    #: No amount was given: the rest is the amount, so it must not be an old one.
    takes_all: bool
    #: The payment is mirrored.
    is_known: bool = True
    #: The operation that is decided about, where it is recorded already: it does not stand in its own way.
    recorded: str = ""

    def before(self) -> None:
        if self.takes_all or not self.is_known or _is_marked(self.account, self.payment_id):
            reads.read(Kind.PAYMENT, self.account, self.payment_id)

    def decide(self, intent: Intent) -> Intent:
        payment = Payment.objects.select_for_update().filter(pk=self.payment_id).first()
        if payment is None:
            raise Doubt({"payment": [_("This payment is not known here; read it with services.refresh first.")]})
        # A write that changes nothing: under REPEATABLE READ the next one to decide would get the lock and still
        # count as of before this refund. So PostgreSQL refuses it the row, and it is decided again.
        Payment.objects.filter(pk=payment.pk).update(account=F("account"))
        body = intent.body or {}
        by_card = payment.method_family == MethodFamily.CARD
        if by_card and "destination" in body:
            raise Doubt({"destination": [_("A card is refunded to the card; leave the destination out.")]})
        if not by_card and "destination" not in body:
            raise Doubt({"destination": [_("This is required unless a card was charged.")]})
        if payment.status in NEVER_REFUNDED_STATUSES:
            words = _("A payment that is %(status)s is not refunded.")
            status = dict(PaymentStatus.choices).get(payment.status, payment.status)
            raise Doubt({"payment": [words % {"status": status}]})
        rest = refundable_rest(payment, without=self.recorded)
        if rest <= 0:
            raise Doubt({"payment": [_("Nothing is left to refund.")]})
        if intent.amount is not None and intent.amount > rest:
            too_much = _("At most %(rest)d minor units are left to refund.")
            raise Doubt({"amount": ValidationError(too_much, code="max_value", params={"rest": rest})})
        amount = rest if intent.amount is None else intent.amount
        # The amount always goes out: a refund never moves more than what was checked here.
        return dataclasses.replace(intent, amount=amount, currency=payment.currency, body={**body, "amount": amount})

    def refresh(self) -> None:
        """Read the payment, and its refunds in progress: both say how much is gone."""
        open_refunds = Refund.objects.filter(payment_id=self.payment_id, status__in=OPEN_REFUND_STATUSES)
        for refund_id in list(open_refunds.order_by("-created_at").values_list("pk", flat=True)[:_MAX_REFRESHED]):
            try:
                reads.read(Kind.REFUND, self.account, refund_id)
            except NotFound:
                continue
        reads.read(Kind.PAYMENT, self.account, self.payment_id)


def refundable_rest(payment: Payment, *, without: str = "") -> int:
    """Minor units of a payment that no refund has taken, whether done, in progress or perhaps sent.

    ``refunded_amount`` may count refunds that are not mirrored, and not yet those that are. The larger figure
    counts; while the payment is marked to be read again, refunds that may be newer than its row come on top,
    because nobody knows whether they are in it. Exact in the transaction that records a refund, with the
    payment's row locked; elsewhere for showing. ``without``: an operation's id that is not counted.
    """
    # Operations first: one that is closed between the two reads is then counted twice, and a refusal is
    # decided again. The other way round it would be counted in neither.
    undecided = Operation.objects.filter(
        operation=CREATE_REFUND, target_id=payment.pk, state__in=OPEN_OPERATION_STATES, result_id=""
    )
    promised = sum(operation.amount or 0 for operation in list(_newest(undecided)) if operation.pk != without)
    refunds = list(_newest(Refund.objects.filter(payment_id=payment.pk)))
    # The mark after the refunds: it is settled only by a GET that was sent after they were written.
    is_marked = _is_marked(payment.account, payment.pk)
    counted_until = payment.state_at - timedelta(seconds=payment.state_span) if is_marked else None
    succeeded = uncounted = 0
    for refund in refunds:
        if refund.status == RefundStatus.SUCCEEDED:
            if counted_until is not None and refund.state_at > counted_until:
                uncounted += refund.amount
            else:
                succeeded += refund.amount
    in_progress = sum(
        refund.amount
        for refund in refunds
        if refund.status not in VOID_REFUND_STATUSES and refund.status != RefundStatus.SUCCEEDED
    )
    taken = max(succeeded, payment.refunded_amount or 0) + uncounted
    rest: int = payment.amount_received - taken - in_progress - promised
    return rest


def _is_marked(account: str, payment_id: str) -> bool:
    """Whether something has come, such as a refund, that the payment's row may not show yet."""
    marks = DueRefresh.objects.filter(account=account, object_kind=Kind.PAYMENT, object_id=payment_id)
    return bool(list(_newest(marks)))


def _newest(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Rows as they are committed now: in a transaction a plain read may show MariaDB's older snapshot."""
    connection = connections[guards.database()]
    locks = connection.vendor == "mysql" and connection.in_atomic_block
    return queryset.select_for_update() if locks else queryset
