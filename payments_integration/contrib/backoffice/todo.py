"""Compute the to-do list from the state of the tables. Nothing is written when something happens.

A thing leaves the list when it is paid or refunded again, decided or matched. ``models.Todo`` holds what people add,
such as "done"; ``handling`` writes it. One statement finds all things about payments, payouts, refunds and operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from django.db import router
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Exists,
    F,
    IntegerField,
    JSONField,
    Model,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextChoices,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat, NullIf
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.contrib.backoffice import comparison
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.dates import from_site, start_of
from payments_integration.db import statements
from payments_integration.enums import (
    NEVER_REFUNDED_STATUSES,
    VOID_PAYOUT_STATUSES,
    PaymentStatus,
    PayoutStatus,
    RefundStatus,
)
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    DoublePayment,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
    StatusChange,
)
from payments_integration.models.mirrors import open_refund_operations
from payments_integration.payable import Payable
from payments_integration.payable.doubles import find_doubles
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: The number of rows that are shown, the oldest first.
SHOWN = 100
#: A chargeback needs no answer here, so it leaves the list after these days.
CHARGEBACK_DAYS = 30
#: Payouts and refunds that failed longer ago are only in the admin's lists.
FAILED_DAYS = 90
#: The number of attempts to pay again that the list looks for. All but the last are refused (``pay_again.attempt``).
ATTEMPTS = 9
#: The most orders reported as paid twice that are examined.
_DOUBLES = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A margin, because times of the provider's clock are compared with times of ours.
_CLOCKS = timedelta(days=1)
#: The number of rows of orders for which one statement reads what people added.
_CHUNK = 500


class Kind(TextChoices):
    """The kind of a row of the list."""

    #: An operation that a person must decide about. It ends with the decision.
    DECIDE = "decide", _("to decide")
    #: An operation that waits for a second person. It ends when it is approved or rejected.
    APPROVE = "approve", _("to approve")
    #: An operation without a known outcome. In most cases it is resolved without a person.
    UNKNOWN = "unknown", _("outcome not known")
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


def things(asked: Asked, differences: Iterable[Thing]) -> list[Thing]:
    """Return the oldest ``SHOWN`` things and one more, oldest first. ``differences`` are from ``differences_of``."""
    read = _read(asked)
    found = [
        Thing(asked.account, row, getattr(MODELS[Kind(row.kind)], "kind", "operation"), row.thing)
        for row in read
        if row.kind != Kind.PAID_TWICE
    ]
    twice = [row for row in read if row.kind == Kind.PAID_TWICE]
    orders = [each for each in (*_paid_twice(asked, twice), *differences) if _is_asked(asked, each)]
    found += _with_people(_marked(asked, sorted(orders, key=_age)))
    return sorted(found, key=_age)[: SHOWN + 1]


def _age(thing: Thing) -> tuple[bool, datetime, str]:
    return thing.found.since is None, thing.since, thing.found.thing


def _is_asked(asked: Asked, thing: Thing) -> bool:
    if thing.kind not in asked.kinds or asked.thing not in (None, thing.found.thing):
        return False
    return thing.kind != Kind.WITHOUT_PAYMENT or (thing.order is not None and thing.order.model in asked.order_models)


def _read(asked: Asked) -> list[Found]:
    parts = [
        part for kind, make in _PARTS.items() if kind in asked.kinds for part in [_shown(kind, make(asked), asked)]
    ]
    using = router.db_for_write(Payment)
    # This is the only statement of the page that reads the big tables.
    return [Found(*row) for row in statements.union_of(parts, using=using, convert=True)]


# Things about a row of the mirror or the ledger. Each part yields the columns of ``Found``.


def _shown(kind: Kind, rows: QuerySet[Any], asked: Asked) -> QuerySet[Any]:
    """Return the oldest rows of a part that belong to the view, with what people added."""
    key = "merchant_reference" if kind == Kind.PAID_TWICE else "pk"
    marks = Todo.objects.filter(
        account=OuterRef("account"), kind=kind.value, thing=OuterRef(key), since__gte=OuterRef("began")
    )
    if kind == Kind.PAID_TWICE:
        pass  # _marked filters these, because their time is known only with their payments
    elif asked.thing is not None:
        rows = rows.filter(pk=asked.thing)
    else:
        rows = rows.filter(~Exists(marks.filter(_is_over(asked))))
        if needed := _is_needed(asked):
            rows = rows.filter(Exists(marks.filter(needed)))
    newest = marks.order_by("-since")
    columns = {name: Subquery(newest.values(name)[:1]) for name in ("assignee", "assignee_name", "snoozed_until")}
    rows = rows.annotate(
        row_kind=Value(kind.value, CharField()), **{f"mark_{name}": each for name, each in columns.items()}
    )
    return rows.order_by("began", "pk").values_list(
        "row_kind", key, "began", "row_status", "amount", "currency", "row_reference", "row_person", "row_reason",
        "row_erased", "row_about", "row_actor", "mark_assignee", "mark_assignee_name", "mark_snoozed_until",
    )[: _DOUBLES if kind == Kind.PAID_TWICE else SHOWN + 1]  # fmt: skip


def _is_over(asked: Asked) -> Q:
    """Return the condition for things that are done, or are snoozed and so not shown."""
    done = Q(done_at__isnull=False)
    return done if asked.view == View.SNOOZED else done | Q(snoozed_until__gt=timezone.now())


def _is_needed(asked: Asked) -> Q | None:
    if asked.view == View.MINE:
        return Q(assignee=asked.user_id)
    return Q(snoozed_until__gt=timezone.now()) if asked.view == View.SNOOZED else None


def _mirrored(rows: QuerySet[Any], status: Collection[str], *, days: int = 0, **columns: Any) -> QuerySet[Any]:
    """Return rows with one of these statuses. The status may have begun long after the creation.

    A row is synced when its status changes, so the index over status and ``synced_at`` leaves few rows.
    """
    changes = StatusChange.objects.filter(
        account=OuterRef("account"), object_kind=rows.model.kind, object_id=OuterRef("pk"), status=OuterRef("status")
    )
    began = Coalesce(Subquery(changes.order_by("-at").values("at")[:1]), F("created_at"))
    rows = rows.filter(status__in=status, gone_at=None).annotate(began=began)
    if days:
        after = timezone.now() - timedelta(days=days)
        rows = rows.filter(synced_at__gte=after - _CLOCKS, began__gte=after)
    erased = Case(When(erased_at=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    found: QuerySet[Any] = rows.annotate(
        row_status=F("status"), row_erased=erased, row_actor=Value("", CharField()), **columns
    )
    return found


def _text(name: str) -> Coalesce:
    return Coalesce(F(name), Value(""), output_field=CharField())


def _payments(asked: Asked, status: PaymentStatus, days: int = 0) -> QuerySet[Any]:
    return _mirrored(
        Payment.objects.filter(account=asked.account), [status.value], days=days,
        row_reference=_text("merchant_reference"), row_person=F("payer"), row_reason=_text("failure_reason"),
        row_about=Value("", CharField()),
    )  # fmt: skip


def _payouts(asked: Asked) -> QuerySet[Any]:
    """Return payouts that did not arrive and were not paid again. Payouts that execute a refund show as the refund."""
    of_account = {"account": OuterRef("account")}
    keys = [Concat(*map(_literal, again_key("\0", number).partition("\0"))) for number in range(1, ATTEMPTS + 1)]
    again = Operation.objects.filter(**of_account, idempotency_key__in=keys)
    # An empty reference must not match, because many payouts have none.
    same = {**of_account, "merchant_reference": NullIf(OuterRef("merchant_reference"), Value(""))}
    asked_for = Operation.objects.filter(**same, operation="create_payout", state__in=OPEN_OPERATION_STATES)
    later = Payout.objects.filter(**same, created_at__gte=OuterRef("created_at"), refund=None)
    rows = Payout.objects.filter(
        ~Exists(again.exclude(state__in=(OperationState.REJECTED, OperationState.CLOSED))),
        ~Exists(asked_for),
        ~Exists(later.exclude(pk=OuterRef("pk")).exclude(status__in=VOID_PAYOUT_STATUSES)),
        ~Exists(Refund.objects.filter(**of_account, payout_id=OuterRef("pk"))),
        account=asked.account,
        refund=None,
    )
    return _mirrored(
        rows, (PayoutStatus.FAILED.value, PayoutStatus.RETURNED.value), days=FAILED_DAYS,
        row_reference=_text("merchant_reference"), row_person=F("destination"), row_reason=_text("failure_reason"),
        row_about=Value("", CharField()),
    )  # fmt: skip


def again_key(payout_id: str, number: int) -> str:
    """Return the idempotency key with which a payout is paid again for the n-th time."""
    return f"again-{payout_id}-{number}"


def _literal(part: str) -> Any:
    return OuterRef("pk") if part == "\0" else Value(part)


def _refunds(asked: Asked) -> QuerySet[Any]:
    """Return refunds that did not arrive.

    Leaves out a refund if the payer got the same amount or more later, is getting a refund, or has all money back.
    """
    later = Refund.objects.filter(
        account=OuterRef("account"), payment_id=OuterRef("payment_id"), created_at__gt=OuterRef("created_at"),
        amount__gte=OuterRef("amount"),
    )  # fmt: skip
    nothing_left = Q(status__in=NEVER_REFUNDED_STATUSES) | Q(refunded_amount__gte=F("amount_received"))
    over = Payment.objects.filter(nothing_left, account=OuterRef("account"), pk=OuterRef("payment_id"))
    rows = Refund.objects.filter(
        ~Exists(later.exclude(status=RefundStatus.CANCELED)),
        ~Exists(open_refund_operations(OuterRef("account"), OuterRef("payment_id"))),
        ~Exists(over),
        account=asked.account,
    )
    return _mirrored(
        rows, (RefundStatus.FAILED.value, RefundStatus.RETURNED.value), days=FAILED_DAYS,
        row_reference=_text("payment__merchant_reference"), row_person=F("payment__payer"),
        row_reason=Value("", CharField()), row_about=_text("payment_id"),
    )  # fmt: skip


def _operations(kind: Kind, asked: Asked) -> QuerySet[Any]:
    rows = Operation.objects.filter(account=asked.account, state=OF_OPERATIONS[kind])
    if kind not in asked.others:
        rows = rows.filter(actor_id=asked.user_id).exclude(actor_id="")
    target = Payment.objects.filter(account=OuterRef("account"), pk=OuterRef("target_id"))
    reference = Coalesce(
        NullIf(F("merchant_reference"), Value("")), Subquery(target.values("merchant_reference")[:1]),
        Value(""), output_field=CharField(),
    )  # fmt: skip
    return rows.annotate(
        began=F("created_at"), row_status=F("operation"), row_reference=reference,
        row_person=Coalesce(Subquery(target.values("payer")[:1]), F("arguments")), row_reason=Value("", CharField()),
        row_erased=Value(0, IntegerField()), row_about=F("target_id"), row_actor=F("actor_id"),
    )  # fmt: skip


def _doubles(asked: Asked) -> QuerySet[Any]:
    """Return the orders that are reported as paid twice. ``_paid_twice`` finds their payments."""
    nothing = Value("", CharField())
    return DoublePayment.objects.filter(account=asked.account).annotate(
        began=F("found_at"), row_status=nothing, amount=Value(0, BigIntegerField()), row_reference=nothing,
        row_person=Value({}, JSONField()), row_reason=nothing, row_erased=Value(0, IntegerField()), row_about=nothing,
        row_actor=nothing,
    )  # fmt: skip


_PARTS: dict[Kind, Any] = {
    Kind.ON_HOLD: lambda asked: _payments(asked, PaymentStatus.ON_HOLD),
    Kind.CHARGEBACK: lambda asked: _payments(asked, PaymentStatus.CHARGEBACK, CHARGEBACK_DAYS),
    Kind.PAID_TWICE: _doubles,
    Kind.PAYOUT: _payouts,
    Kind.REFUND: _refunds,
    Kind.DECIDE: lambda asked: _operations(Kind.DECIDE, asked),
    Kind.APPROVE: lambda asked: _operations(Kind.APPROVE, asked),
    Kind.UNKNOWN: lambda asked: _operations(Kind.UNKNOWN, asked),
}


# Things about the merchant's orders. Python compares orders with payments, because SQL cannot join the two.


def differences_of(account: str, since: datetime) -> list[Thing]:
    """Return the orders since then that do not match their payments, without personal data."""
    paid = comparison.newest_paid(account, since)
    unpaid = comparison.paid_for_and_unpaid(account, paid)
    found = [_of_payment(Kind.UNPAID, account, payment, row) for payment, row in unpaid]
    lost = comparison.paid_without_order(account, paid)
    found += [_of_payment(Kind.WITHOUT_ORDER, account, payment, None) for payment in lost]
    for model in comparison.compared_models(account):
        found += _without_payment(account, model, comparison.paid_without_payment(model, account, since))
    return found


def _paid_twice(asked: Asked, known: list[Found]) -> Iterator[Thing]:
    """Yield the orders that are reported as paid twice and still are. Takes two statements if any is reported."""
    found_at = {(row.thing, row.currency): row.since for row in known}
    for double in find_doubles(asked.account, found_at):
        newest = double.payments[-1]
        paid_at = newest.succeeded_at or newest.created_at
        # With a third payment, it happens again.
        since = max(found_at[double.merchant_reference, double.currency] or paid_at, paid_at)
        found = _difference(
            Kind.PAID_TWICE, f"{double.merchant_reference} {double.currency}", since, currency=double.currency,
            amount=sum(each.amount_received for each in double.payments), reference=double.merchant_reference,
            about=newest.pk,
        )  # fmt: skip
        yield Thing(asked.account, found, Payment.kind, newest.pk, payments=len(double.payments))


def _of_payment(kind: Kind, account: str, payment: Payment, row: comparison.OrderRow | None) -> Thing:
    found = _difference(
        kind, payment.pk, payment.succeeded_at or payment.created_at, currency=payment.currency,
        amount=payment.amount_received, reference=str(payment.merchant_reference), about=payment.pk,
    )  # fmt: skip
    return Thing(account, found, Payment.kind, payment.pk, order=row)


def _without_payment(account: str, model: type[Payable], rows: list[comparison.OrderRow]) -> Iterator[Thing]:
    orders = model._default_manager.in_bulk([row.pk for row in rows[:SHOWN]]) if rows else {}
    latest = model._meta.get_latest_by or ""
    dated = (latest if isinstance(latest, str) else latest[0]).removeprefix("-")
    label = model._meta.label_lower
    for row in rows:
        order = orders.get(row.pk)
        amount, currency = _price(order, account)
        found = _difference(
            Kind.WITHOUT_PAYMENT, f"{label} {row.pk}", _time(getattr(order, dated, None) if dated else None),
            amount=amount, currency=currency, reference=row.reference, about="",
        )  # fmt: skip
        yield Thing(account, found, label, str(row.pk), order=row)


def _price(order: Payable | None, account: str) -> tuple[int | None, str]:
    if order is None:
        return None, ""
    try:
        return order.payments_price() or (None, "")
    except Exception:  # the project's own code may raise any error
        logger.exception("payments_price() of %s failed", order._meta.label, extra={"account": account})
        return None, ""


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if timezone.is_aware(value) else from_site(value)
    return start_of(value) if isinstance(value, date) else None


def _difference(
    kind: Kind, thing: str, since: datetime | None, *, amount: int | None, currency: str, reference: str, about: str
) -> Found:
    return Found(
        kind.value, thing, since, status="", amount=amount, currency=currency, reference=reference, person=None,
        reason="", is_erased=0, about=about, actor_id="", assignee=None, assignee_name=None, snoozed_until=None,
    )  # fmt: skip


def _marked(asked: Asked, differences: list[Thing]) -> list[Thing]:
    """Return the differences that belong to the view, with what people added. Takes one statement, unless many are
    done.
    """
    shown: list[Thing] = []
    for start in range(0, len(differences), _CHUNK):
        some = differences[start : start + _CHUNK]
        marks: dict[tuple[str, str], list[Todo]] = defaultdict(list)
        known = Todo.objects.filter(account=asked.account, thing__in=[each.found.thing for each in some])
        for mark in known.filter(kind__in={each.kind.value for each in some}).order_by("-since").defer("note"):
            marks[mark.kind, mark.thing].append(mark)
        for each in some:
            own = [mark for mark in marks[each.kind.value, each.found.thing] if mark.since >= each.since]
            if _belongs(asked, own):
                shown.append(_with_mark(each, own[0]) if own else each)
        if len(shown) > SHOWN:
            break
    return shown[: SHOWN + 1]


def _belongs(asked: Asked, marks: list[Todo]) -> bool:
    if asked.thing is not None:
        return True
    snoozed = any(mark.snoozed_until and mark.snoozed_until > timezone.now() for mark in marks)
    if any(mark.done_at for mark in marks) or snoozed is not (asked.view == View.SNOOZED):
        return False
    return asked.view != View.MINE or any(mark.assignee == asked.user_id for mark in marks)


def _with_mark(thing: Thing, mark: Todo) -> Thing:
    found = thing.found._replace(
        assignee=mark.assignee, assignee_name=mark.assignee_name, snoozed_until=mark.snoozed_until
    )
    return replace(thing, found=found)


def _with_people(differences: list[Thing]) -> list[Thing]:
    ids = {each.found.about for each in differences if each.found.about}
    if not ids:
        return differences
    payers = {
        pk: (payer, int(erased_at is not None))
        for pk, payer, erased_at in Payment.objects.filter(pk__in=ids).values_list("pk", "payer", "erased_at")
    }
    return [
        replace(each, found=each.found._replace(person=payer, is_erased=is_erased))
        for each in differences
        for payer, is_erased in [payers.get(each.found.about, (None, 0))]
    ]
