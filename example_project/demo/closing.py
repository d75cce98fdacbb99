"""The end of the demo: what must hold, and the tables. All figures are read from both sides when the story is over.

The mirror is compared with the provider field by field, straight from JSON to columns, without the app's projection:
a mistake in the projection could not show otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Sum

from example_project.demo.provider import Books, Json
from example_project.shop.models import Notice, Order
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    Balance,
    DepositReference,
    DueRefresh,
    Event,
    EventSource,
    EventState,
    Operation,
    Payment,
    Payout,
    Refund,
)
from payments_integration.money import format_money
from payments_integration.payable import OrderStatus

Row = tuple[str, ...]


@dataclass(slots=True)
class Expected:
    """The intended results, noted during the story."""

    #: Order reference to its expected last status.
    orders: dict[str, str] = field(default_factory=dict)
    #: Payments without an order: transfers to deposit references.
    deposits: int = 0
    payouts: int = 0
    refunds: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold; ``problems`` says where it does not."""

    name: str
    problems: list[str]

    @property
    def holds(self) -> bool:
        return not self.problems


def checks(books: Books, expected: Expected) -> list[Check]:
    """Everything that must hold at the end."""
    return [
        Check("every planned fault occurred", _unspent(books)),
        Check("every event of the provider is stored and done", _events(books)),
        Check("every event was dispatched to handlers exactly once", _dispatches(books)),
        Check("every lost event was found by reconciliation", _recovered(books)),
        Check("every delivery with a wrong signature was refused", _refused(books)),
        Check("one intent is one payment, payout or refund", _intents(books, expected)),
        Check("every order ended as it should", _orders(expected)),
        Check("no operation is unresolved and nothing is due", _unresolved()),
        Check("the provider's books add up", books.audit),
        Check("the mirror equals the provider, field by field", compare(books).differences),
        Check("money in, out and refunded is the same on both sides", _money_differences(books)),
    ]


def events_table(books: Books) -> list[Row]:
    """How the events arrived."""
    lost = {attempt["event_id"] for attempt in books.struck("drop")}
    found = Event.objects.filter(pk__in=lost, source=EventSource.RECONCILIATION).count()
    late = len({attempt["event_id"] for attempt in books.struck("delay")})
    twice = len({attempt["event_id"] for attempt in books.struck("duplicate")})
    done = Event.objects.filter(state=EventState.DONE).count()
    return [
        ("events of the provider", str(len(books.events))),
        ("  delivered late", str(late)),
        ("  delivered twice", str(twice)),
        ("  arrived after a newer one of their object", str(out_of_order())),
        ("  sent with a wrong signature, refused, sent again", str(len(books.struck("bad_signature")))),
        ("  lost on the way", str(len(lost))),
        ("  recovered by reconciliation", str(found)),
        ("applied, each once", str(done)),
    ]


def money_table() -> list[Row]:
    """Money by currency, as the mirror knows it."""
    sums = _mirrored_money()
    return [
        ("", "in", "refunded", "out"),
        *(
            (currency, *(format_money(sums[currency, kind], currency) for kind in ("in", "refunded", "out")))
            for currency in sorted({currency for currency, _kind in sums})
        ),
    ]


def state_table(books: Books) -> list[Row]:
    found = compare(books)
    unresolved = Operation.objects.filter(state__in=OPEN_OPERATION_STATES).count()
    paid = Order.objects.exclude(paid_at=None).count()
    return [
        ("orders paid", f"{paid} of {Order.objects.count()}"),
        ("operations unresolved", str(unresolved)),
        ("fields compared", f"{found.fields} of {found.objects} objects"),
        ("mirror equals provider", "yes" if found.is_equal else "NO"),
    ]


def out_of_order() -> int:
    """Events that came in after a newer one of the same object had come."""
    newest: dict[tuple[str, str], Any] = {}
    count = 0
    rows = Event.objects.filter(source=EventSource.WEBHOOK).order_by("received_at")
    for kind, object_id, created_at in rows.values_list("object_kind", "object_id", "created_at"):
        before = newest.get((kind, object_id))
        if before is not None and created_at < before:
            count += 1
        else:
            newest[kind, object_id] = created_at
    return count


def _unspent(books: Books) -> list[str]:
    return [
        f"{fault['kind']} ({fault['event_type'] or fault['operation']}) struck {fault['used']} of {fault['times']}"
        for fault in books.faults
        if fault["used"] != fault["times"]
    ]


def _events(books: Books) -> list[str]:
    theirs = {event["id"] for event in books.events}
    ours = dict(Event.objects.values_list("pk", "state"))
    return [
        *(f"{event_id} is not stored" for event_id in sorted(theirs - ours.keys())),
        *(f"{event_id} is unknown to the provider" for event_id in sorted(ours.keys() - theirs)),
        *(f"{event_id} is {state}" for event_id, state in sorted(ours.items()) if state != EventState.DONE),
    ]


def _dispatches(books: Books) -> list[str]:
    dispatched = Counter(Notice.objects.values_list("event_id", flat=True))
    ids = {event["id"] for event in books.events} | dispatched.keys()
    return [
        f"{event_id} was dispatched {dispatched[event_id]} times"
        for event_id in sorted(ids)
        if dispatched[event_id] != 1
    ]


def _recovered(books: Books) -> list[str]:
    lost = {attempt["event_id"] for attempt in books.struck("drop")}
    found = Event.objects.filter(pk__in=lost, source=EventSource.RECONCILIATION).values_list("pk", flat=True)
    problems = [f"{event_id} was lost and not found" for event_id in sorted(lost - set(found))]
    return problems if lost else ["no delivery was lost, so nothing was proven"]


def _refused(books: Books) -> list[str]:
    return [
        f"{attempt['event_id']} was answered {attempt['status']}"
        for attempt in books.struck("bad_signature")
        if attempt["status"] != 400
    ]


def _intents(books: Books, expected: Expected) -> list[str]:
    problems = [
        f"{reference} has {count} payments"
        for reference in expected.orders
        if (count := len(books.payments_of(reference))) != 1
    ]
    wanted = {
        "payments": len(expected.orders) + expected.deposits,
        # A refund of any method but a card runs as a payout.
        "payouts": expected.payouts + sum(refund["payout_id"] is not None for refund in books.refunds),
        "refunds": expected.refunds,
    }
    return problems + [
        f"{count} {name} instead of {wanted[name]}"
        for name in wanted
        if (count := len(getattr(books, name))) != wanted[name]
    ]


def _orders(expected: Expected) -> list[str]:
    ours = dict(Order.objects.values_list("reference", "status"))
    problems = [
        f"{reference} is {ours.get(reference, 'gone')}, not {status}"
        for reference, status in expected.orders.items()
        if ours.get(reference) != status
    ]
    unpaid = Order.objects.filter(status=OrderStatus.PAID, paid_at=None).values_list("reference", flat=True)
    return problems + [f"{reference} is paid and has no date" for reference in unpaid]


def _unresolved() -> list[str]:
    operations = Operation.objects.filter(state__in=OPEN_OPERATION_STATES)
    return [
        *(f"{operation} is {operation.state}" for operation in operations),
        *(f"{due} is to be read ({due.reason})" for due in DueRefresh.objects.all()),
    ]


def _mirrored_money() -> Counter[tuple[str, str]]:
    """(currency, "in" | "out" | "refunded") to minor units."""
    sums: Counter[tuple[str, str]] = Counter()
    for kind, rows, column in (
        ("in", Payment.objects.filter(amount_received__gt=0), "amount_received"),
        ("out", Payout.objects.filter(status="succeeded", refund_id=None), "amount"),
        ("refunded", Refund.objects.filter(status="succeeded"), "amount"),
    ):
        for currency, total in rows.values_list("currency").annotate(Sum(column)).order_by("currency"):
            sums[currency, kind] += total
    return sums


def _money_differences(books: Books) -> list[str]:
    theirs: Counter[tuple[str, str]] = Counter()
    for payment in books.payments:
        theirs[payment["currency"], "in"] += payment["amount_received"]
    for payout in books.payouts:
        if payout["status"] == "succeeded" and payout["refund_id"] is None:
            theirs[payout["currency"], "out"] += payout["amount"]
    for refund in books.refunds:
        theirs[refund["currency"], "refunded"] += _if_succeeded(refund)
    ours = _mirrored_money()
    return [
        f"{currency} {kind}: {ours[currency, kind]} here, {theirs[currency, kind]} there"
        for currency, kind in sorted(ours.keys() | theirs.keys())
        if ours[currency, kind] != theirs[currency, kind]
    ]


def _if_succeeded(refund: Json) -> int:
    return int(refund["amount"]) if refund["status"] == "succeeded" else 0


#: Provider fields without a column.
_NO_COLUMN = frozenset({"object"})


@dataclass(slots=True)
class Comparison:
    """What was compared, and every difference in words."""

    objects: int = 0
    fields: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.objects > 0 and not self.differences


def compare(books: Books) -> Comparison:
    """Every object that either side knows, and every field that either side fills."""
    found = Comparison()
    for name, model, items, key in (
        ("payment", Payment, books.payments, "id"),
        ("payout", Payout, books.payouts, "id"),
        ("refund", Refund, books.refunds, "id"),
        ("deposit reference", DepositReference, books.deposit_references, "id"),
        ("balance", Balance, books.balances, "currency"),
    ):
        rows = {str(getattr(row, key)): row for row in model._default_manager.filter(account="default")}
        _compare_kind(found, name, items, rows, key)
    return found


def _compare_kind(found: Comparison, name: str, items: Iterable[Json], rows: dict[str, Any], key: str) -> None:
    theirs = {item[key]: item for item in items}
    for object_id in sorted(rows.keys() - theirs.keys()):
        found.differences.append(f"{name} {object_id}: in the mirror, but not at the provider")
    for object_id, item in theirs.items():
        found.objects += 1
        row = rows.get(object_id)
        if row is None:
            found.differences.append(f"{name} {object_id}: the mirror does not have it")
            continue
        _compare_fields(found, f"{name} {object_id}", item, row)


def _compare_fields(found: Comparison, name: str, item: Json, row: Any) -> None:
    columns = {*row.mirrored, "id"} if hasattr(row, "id") and "id" in item else {*row.mirrored}
    for field_name in sorted((columns | item.keys() | row.extra.keys()) - _NO_COLUMN):
        ours = getattr(row, field_name) if field_name in columns else row.extra.get(field_name)
        theirs = item.get(field_name)
        if isinstance(ours, datetime) and isinstance(theirs, str):
            theirs = datetime.fromisoformat(theirs)
        found.fields += 1
        # 1 == True and 1 == 1.0 in Python; not in a ledger.
        if ours != theirs or type(ours) is not type(theirs):
            found.differences.append(f"{name}.{field_name}: {ours!r} here, {theirs!r} there")
