"""Find the rows of the to-do list about payments, payouts, refunds and operations: one statement finds nearly all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import Any

from django.db import router
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Exists,
    F,
    Func,
    IntegerField,
    JSONField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Coalesce, Concat, NullIf, Upper
from django.db.models.lookups import Exact, GreaterThan
from django.utils import timezone

from payments_integration.contrib.backoffice.models import Todo
from payments_integration.contrib.backoffice.todo.rows import (
    CHARGEBACK_DAYS,
    FAILED_DAYS,
    OF_OPERATIONS,
    SHOWN,
    Asked,
    Found,
    Kind,
    View,
)
from payments_integration.db import statements
from payments_integration.db.claims import NOW
from payments_integration.db.sizes import in_parts
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

#: The number of attempts to pay again that the list looks for. All but the last are refused (``pay_again.attempt``).
_ATTEMPTS = 9
#: The most orders reported as paid twice that are examined.
_DOUBLES = 1_000
_FAILED_REFUND = (RefundStatus.FAILED.value, RefundStatus.RETURNED.value)
#: A margin, because times of the provider's clock are compared with times of ours.
_CLOCKS = timedelta(days=1)
#: Stand for the texts of a call in the statement.
_ACCOUNT, _USER, _THING = statements.stand_ins(3, "todo ")


def mirrored_rows(asked: Asked) -> list[Found]:
    kinds = [kind for kind in _PARTS if kind in asked.kinds]
    if not kinds:
        return []
    like = Asked(
        account=_ACCOUNT,
        kinds=tuple(kinds),
        view=asked.view,
        user_id=_USER if asked.user_id else "",
        others=tuple(kind for kind in kinds if kind in asked.others),
        thing=None if asked.thing is None else _THING,
    )
    given = {_ACCOUNT: asked.account, _USER: asked.user_id, _THING: asked.thing}
    now = timezone.now()
    ages = [timedelta(days) for days in (0, CHARGEBACK_DAYS, FAILED_DAYS)]
    times = {NOW - each: now - each for age in ages for each in (age, age + _CLOCKS)}
    # This statement reads the big tables. Django takes longer to build it than the database to answer it.
    using = router.db_for_write(Payment)
    most = SHOWN + 1
    found = [Found(*row) for row in _parts(like, most, using=using, given=given, times=times)]
    others = [row for row in found if row.kind != Kind.REFUND]
    refunds = [row for row in found if row.kind == Kind.REFUND]
    while refunds:
        payments = sorted({row.about for row in refunds})
        replaced = set().union(*(_replaced(asked.account, part) for part in in_parts(payments)))
        lacking = [row for row in refunds if row.thing not in replaced]
        if len(refunds) < most or len(lacking) > SHOWN:
            return others + lacking
        # The statement was cut, and what it left out may lack another refund.
        most *= 4
        of_refunds = replace(like, kinds=(Kind.REFUND,))
        refunds = [Found(*row) for row in _parts(of_refunds, most, using=using, given=given, times=times)]
    return others


@statements.built_once
def _parts(asked: Asked, most: int) -> list[QuerySet[Any]]:
    return [_shown(kind, _PARTS[kind](asked), asked, most) for kind in asked.kinds]


# Things about a row of the mirror or the ledger. Each part yields the columns of ``Found``.


def _shown(kind: Kind, rows: QuerySet[Any], asked: Asked, most: int) -> QuerySet[Any]:
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
    )[: _DOUBLES if kind == Kind.PAID_TWICE else most]  # fmt: skip


def _is_over(asked: Asked) -> Q:
    """Return the condition for things that are done, or are snoozed and so not shown."""
    done = Q(done_at__isnull=False)
    return done if asked.view == View.SNOOZED else done | Q(snoozed_until__gt=NOW)


def _is_needed(asked: Asked) -> Q | None:
    if asked.view == View.MINE:
        return Q(assignee=asked.user_id)
    return Q(snoozed_until__gt=NOW) if asked.view == View.SNOOZED else None


def _mirrored(rows: QuerySet[Any], status: Collection[str], *, days: int = 0, **columns: Any) -> QuerySet[Any]:
    """Return rows with one of these statuses. The status may have begun long after the creation.

    A row is synced when its status changes, so the index over status and ``synced_at`` leaves few rows.
    """
    rows = rows.filter(status__in=status, gone_at=None).annotate(began=_began(rows.model.kind))
    if days:
        after = NOW - timedelta(days=days)
        rows = rows.filter(synced_at__gte=after - _CLOCKS, began__gte=after)
    erased = Case(When(erased_at=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    found: QuerySet[Any] = rows.annotate(
        row_status=F("status"), row_erased=erased, row_actor=Value("", CharField()), **columns
    )
    return found


def _began(kind: str) -> Coalesce:
    """Return when a row of this kind came into its status."""
    changes = StatusChange.objects.filter(
        account=OuterRef("account"), object_kind=kind, object_id=OuterRef("pk"), status=OuterRef("status")
    )
    return Coalesce(Subquery(changes.order_by("-at").values("at")[:1]), F("created_at"))


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
    keys = [Concat(*map(_literal, again_key("\0", number).partition("\0"))) for number in range(1, _ATTEMPTS + 1)]
    attempts = Operation.objects.filter(**of_account).exclude(
        state__in=(OperationState.REJECTED, OperationState.CLOSED)
    )
    rows = Payout.objects.filter(
        # MariaDB uses no index for IN with columns of the outer row.
        *(~Exists(attempts.filter(idempotency_key=key)) for key in keys),
        ~Exists(open_payout_operations()),
        ~Exists(Refund.objects.filter(**of_account, payout_id=OuterRef("pk"))),
        account=asked.account,
        refund=None,
    )
    return _mirrored(
        rows, (PayoutStatus.FAILED.value, PayoutStatus.RETURNED.value), days=FAILED_DAYS,
        row_reference=_text("merchant_reference"), row_person=F("destination"), row_reason=_text("failure_reason"),
        row_about=Value("", CharField()),
    ).filter(~Exists(later_payouts(since="began")))  # fmt: skip


def later_payouts(*, since: str = "created_at") -> QuerySet[Payout]:
    """Return payouts after ``since`` that have the outer payout's reference, and are open or succeeded.

    One to certainly another person does not count.
    """
    found = Payout.objects.filter(
        _may_be_same_person(F("destination")), **_same_reference(), created_at__gte=OuterRef(since), refund=None
    )
    return found.exclude(pk=OuterRef("pk")).exclude(status__in=VOID_PAYOUT_STATUSES)


def open_payout_operations() -> QuerySet[Operation]:
    """Return open operations that may still make a payout with the outer payout's reference.

    One for certainly another person does not count.
    """
    return Operation.objects.filter(
        _may_be_same_person(KeyTransform("destination", F("arguments"))),
        **_same_reference(),
        operation="create_payout",
        state__in=OPEN_OPERATION_STATES,
    )


def _same_reference() -> dict[str, Any]:
    # An empty reference must not match, because many payouts have none.
    reference = NullIf(OuterRef("merchant_reference"), Value(""))
    return {"account": OuterRef("account"), "merchant_reference": reference}


def _may_be_same_person(destination: F | KeyTransform) -> Q:
    """Return the condition that a destination is not certainly another person's than the outer payout's.

    A reference may stand for many people, such as a payroll. For another person, the account number, the holder's
    document and the holder's name are all known and all differ. Someone may correct an account number, and write a
    document with its check digit or without.
    """
    both = (destination, OuterRef("destination"))
    number = [KeyTextTransform("account_number", place) for place in both]
    document = [KeyTextTransform("number", KeyTransform("holder_document", place)) for place in both]
    name = [KeyTextTransform("holder_name", place) for place in both]
    return _may_be_equal(*number) | _may_be_equal(*document) | _may_be_equal(*name)


def _may_be_equal(*texts: KeyTextTransform) -> Q:
    one, other = map(_known, texts)
    neither = Value("", TextField())
    return Q(Exact(Coalesce(one, other, neither), Coalesce(other, one, neither)))


def _known(text: KeyTextTransform) -> Upper:
    """Return the text in upper case; NULL if it is empty, or JSON's null, which is a text in some databases."""
    return Upper(NullIf(NullIf(text, Value("null", TextField())), Value("", TextField())))


def again_key(payout_id: str, number: int) -> str:
    """Return the idempotency key with which a payout is paid again for the n-th time."""
    return f"again-{payout_id}-{number}"


def _literal(part: str) -> Any:
    return OuterRef("pk") if part == "\0" else Value(part)


def _refunds(asked: Asked) -> QuerySet[Any]:
    """Return refunds that did not arrive, are not replaced, and whose payer does not have all money back."""
    nothing_left = Q(status__in=NEVER_REFUNDED_STATUSES) | Q(refunded_amount__gte=F("amount_received"))
    over = Payment.objects.filter(nothing_left, account=OuterRef("account"), pk=OuterRef("payment_id"))
    rows = Refund.objects.filter(~Exists(over), account=asked.account)
    return _mirrored(
        rows, _FAILED_REFUND, days=FAILED_DAYS,
        row_reference=_text("payment__merchant_reference"), row_person=F("payment__payer"),
        row_reason=Value("", CharField()), row_about=_text("payment_id"),
    ).filter(_may_lack_another())  # fmt: skip


def _may_lack_another() -> GreaterThan:
    """Return the condition that fewer refunds of as much were made since a refund failed than failed in all.

    Otherwise it is replaced. ``_replaced`` compares the amounts of what this leaves.
    """
    of_payment: dict[str, Any] = {"account": OuterRef("account"), "payment_id": OuterRef("payment_id")}
    as_much, since = Q(amount__gte=OuterRef("amount")), Q(created_at__gt=OuterRef("began"))
    made = _not_canceled().filter(as_much, since, **of_payment).exclude(pk=OuterRef("pk"))
    asked = open_refund_operations(OuterRef("account")).filter(target_id=OuterRef("payment_id"))
    # Without an amount, all that is left is refunded.
    asked = asked.filter(as_much | Q(amount=None), since)
    failed = Refund.objects.filter(**of_payment, status__in=_FAILED_REFUND, gone_at=None)
    return GreaterThan(_number(failed), _number(made) + _number(asked))


def _replaced(account: str, payments: Collection[str]) -> set[str]:
    """Return the refunds of these payments that did not arrive and that later ones replace. Takes two statements.

    A refund that is made, or asked for, after others failed replaces as many of them as its amount covers, the largest
    first. What was asked for before, such as for another item, replaces nothing.
    """
    refunds = _not_canceled().filter(account=account, payment_id__in=payments).annotate(began=_began(Refund.kind))
    asked = open_refund_operations(account).filter(target_id__in=payments)
    made: list[tuple[Any, ...]] = [*asked.values_list("target_id", "created_at", "amount", "pk")]
    failed = defaultdict(list)
    for refund in refunds.order_by("-amount", "began", "pk"):
        made.append((refund.payment_id, refund.created_at, refund.amount, refund.pk))
        if refund.status in _FAILED_REFUND and refund.gone_at is None:
            failed[refund.payment_id].append((refund.began, refund.amount, refund.pk))
    replaced: set[str] = set()
    for payment, at, covered, by in sorted(made, key=itemgetter(1)):
        left = math.inf if covered is None else covered
        for began, amount, pk in failed[payment]:
            # The time of a status may have no fractions of a second, so it may be before the creation.
            if began < at and amount <= left and pk != by and pk not in replaced:
                replaced.add(pk)
                left -= amount
    return replaced


def _not_canceled() -> QuerySet[Refund]:
    return Refund.objects.exclude(status=RefundStatus.CANCELED)


def _number(rows: QuerySet[Any]) -> Subquery:
    """Return the number of these rows, without the groups that Count makes."""
    number = Func(F("pk"), function="COUNT", output_field=BigIntegerField())
    return Subquery(rows.order_by().annotate(number=number).values("number"))


def _operations(kind: Kind, asked: Asked) -> QuerySet[Any]:
    rows = Operation.objects.filter(account=asked.account, state=OF_OPERATIONS[kind])
    if kind not in asked.others:
        rows = rows.filter(actor_id=asked.user_id).exclude(actor_id="")
    return _of_ledger(rows, began="created_at", erased=Value(0, IntegerField()))


def _of_ledger(rows: QuerySet[Any], *, began: str, erased: Any) -> QuerySet[Any]:
    target = Payment.objects.filter(account=OuterRef("account"), pk=OuterRef("target_id"))
    reference = Coalesce(
        NullIf(F("merchant_reference"), Value("")), Subquery(target.values("merchant_reference")[:1]),
        Value(""), output_field=CharField(),
    )  # fmt: skip
    found: QuerySet[Any] = rows.annotate(
        began=F(began), row_status=F("operation"), row_reference=reference,
        row_person=Coalesce(Subquery(target.values("payer")[:1]), F("arguments")), row_reason=Value("", CharField()),
        row_erased=erased, row_about=F("target_id"), row_actor=F("actor_id"),
    )  # fmt: skip
    return found


def _refused(asked: Asked) -> QuerySet[Any]:
    """Return deferred calls that the provider refused, if the same was not asked for again."""
    later = Operation.objects.filter(
        # What a job asked for along with it does not replace it, nor does a smaller amount.
        Q(amount=None) | Q(amount__gte=OuterRef("amount")),
        account=OuterRef("account"),
        operation=OuterRef("operation"),
        currency=OuterRef("currency"),
        created_at__gt=OuterRef("closed_at"),
    ).exclude(state__in=(OperationState.REJECTED, OperationState.CLOSED))
    # Calls without a target, or without a reference, do not stand for each other. A reference may be of a payroll.
    of_target, of_reference = (
        later.filter(**{name: NullIf(OuterRef(name), Value(""))}) for name in ("target_id", "merchant_reference")
    )
    is_same = ~Q(operation="create_payout") | Q(arguments_hash=OuterRef("arguments_hash"))
    rows = Operation.objects.filter(
        ~Exists(of_target),
        ~Exists(of_reference.filter(is_same)),
        account=asked.account,
        state=OperationState.REJECTED,
        deferred=True,
        created_at__gte=NOW - timedelta(days=FAILED_DAYS),
    )
    erased = Case(When(body=None, then=Value(1)), default=Value(0), output_field=IntegerField())
    return _of_ledger(rows, began="closed_at", erased=erased)


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
    Kind.REFUSED: _refused,
}
