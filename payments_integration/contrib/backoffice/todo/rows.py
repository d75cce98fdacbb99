"""Say what a row of the to-do list is: its kinds, its columns, and which rows are asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import Model, TextChoices
from django.utils.translation import gettext_lazy as _

from payments_integration.contrib.backoffice import comparison
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund

#: The number of rows that are shown, the oldest first.
SHOWN = 100
#: A chargeback needs no answer here, so it leaves the list after these days.
CHARGEBACK_DAYS = 30
#: Payouts and refunds that failed longer ago are only in the admin's lists.
FAILED_DAYS = 90
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(TextChoices):
    """The kind of a row of the list."""

    #: An operation that a person must decide about. It ends with the decision.
    DECIDE = "decide", _("to decide")
    #: An operation that waits for a second person. It ends when it is approved or rejected.
    APPROVE = "approve", _("to approve")
    #: An operation without a known outcome. In most cases it is resolved without a person.
    UNKNOWN = "unknown", _("outcome not known")
    #: A deferred call that the provider refused in the last ``FAILED_DAYS``. No caller waited for its answer. It ends
    #: when the same is asked for again, or by a note.
    REFUSED = "refused", _("deferred call that was refused")
    #: A payout that failed or was returned in the last ``FAILED_DAYS``. It ends when it is paid again, or by a note.
    PAYOUT = "payout", _("payout that did not arrive")
    #: A refund that failed or was returned in the last ``FAILED_DAYS``. It ends with another refund, or by a note.
    REFUND = "refund", _("refund that did not arrive")
    #: A payment that the provider reviews. It ends with another status, or by a note.
    ON_HOLD = "on_hold", _("payment on hold")
    #: A payment that was charged back. It ends after ``CHARGEBACK_DAYS``, or by a note.
    CHARGEBACK = "chargeback", _("chargeback")
    #: An order that several payments paid; if its price is known, it is overpaid. It ends when this is over, or by a
    #: note.
    PAID_TWICE = "paid_twice", _("order paid twice")
    #: A paid payment whose order is not marked as paid. It ends when they match, or by a note.
    UNPAID = "unpaid", _("paid for, but the order is not paid")
    #: A paid payment whose order is gone. It ends when the money is returned or the order is back, or by a note.
    WITHOUT_ORDER = "without_order", _("paid, but the order is gone")
    #: An order that is marked as paid although none of its payments has received money. It ends when they match, or by
    #: a note.
    WITHOUT_PAYMENT = "without_payment", _("paid order without a payment")


#: These end when a person has decided or approved. A note cannot end them.
OF_OPERATIONS = {
    Kind.DECIDE: OperationState.NEEDS_PERSON,
    Kind.APPROVE: OperationState.AWAITING_APPROVAL,
    Kind.UNKNOWN: OperationState.UNKNOWN,
}
#: The model of the rows of a kind. Who may view it sees them. An order without a payment is of the merchant's model.
MODELS: dict[Kind, type[Model]] = {
    Kind.DECIDE: Operation,
    Kind.APPROVE: Operation,
    Kind.UNKNOWN: Operation,
    Kind.REFUSED: Operation,
    Kind.PAYOUT: Payout,
    Kind.REFUND: Refund,
    Kind.ON_HOLD: Payment,
    Kind.CHARGEBACK: Payment,
    Kind.PAID_TWICE: Payment,
    Kind.UNPAID: Payment,
    Kind.WITHOUT_ORDER: Payment,
}
#: Kinds that ``differences_of`` and ``_paid_twice`` find.
OF_ORDERS = (Kind.PAID_TWICE, Kind.UNPAID, Kind.WITHOUT_ORDER, Kind.WITHOUT_PAYMENT)
#: Kinds that ask for no action: most unknown outcomes are resolved automatically, and a chargeback cannot be changed.
INFORMATIVE = (Kind.CHARGEBACK, Kind.UNKNOWN)


class View(TextChoices):
    """The choice of rows that are shown."""

    OPEN = "", _("Open")
    MINE = "mine", _("Mine")
    SNOOZED = "snoozed", _("Snoozed")
    DONE = "done", _("Done")


class Found(NamedTuple):
    """One row of the statement."""

    kind: str
    thing: str
    #: The time when it happened; None if it is not known.
    since: datetime | None
    #: A mirrored object's status, or an operation's name.
    status: str
    amount: int | None
    currency: str
    reference: str
    #: JSON that names the payer or recipient; personal data.
    person: Any
    #: The reason why it failed, as the provider sent it; personal data.
    reason: str
    is_erased: int
    #: A refund's payment, an operation's target, or the newest payment of an order that was paid twice.
    about: str
    #: ``permissions.user_id`` of the person who asked for an operation.
    actor_id: str
    assignee: str | None
    assignee_name: str | None
    snoozed_until: datetime | None


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing to do."""

    account: str
    found: Found
    #: The object by which an erasure finds the note.
    object_kind: str
    object_id: str
    #: The number of payments that hold the money of an order that was paid twice.
    payments: int = 0
    #: The merchant's row.
    order: comparison.OrderRow | None = None

    @property
    def kind(self) -> Kind:
        return Kind(self.found.kind)

    @property
    def since(self) -> datetime:
        """The time when it happened. A thing without a time stays done once it is done."""
        return self.found.since or _EPOCH

    @property
    def is_done_by_note(self) -> bool:
        return self.kind not in OF_OPERATIONS


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for things."""

    account: str
    kinds: Collection[Kind]
    view: View = View.OPEN
    #: ``permissions.user_id`` of the person whose things are "mine".
    user_id: str = ""
    #: The kinds of operations that are shown even if other people asked for them.
    others: Collection[Kind] = ()
    #: Only this thing, even if it is done or snoozed.
    thing: str | None = None
    #: The models of orders that are shown.
    order_models: Collection[type[Model]] = ()
