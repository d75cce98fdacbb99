"""Which objects a payer's personal data is in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from payments_integration import conf
from payments_integration.enums import Kind
from payments_integration.erasure.matching import Selection, strings_of
from payments_integration.inbox.receiving import QUARANTINE_PREFIX
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    DepositReference,
    Erasure,
    Event,
    EventState,
    Operation,
    Payment,
    Payout,
    Refund,
)
from payments_integration.projection.refreshes import ObjectKey, any_of

#: Rows that are searched at a time.
_PAGE = 500
#: The models that hold personal data, and the prefixes of their ids.
PREFIXES: dict[str, str] = {
    "pay_": Kind.PAYMENT,
    "pout_": Kind.PAYOUT,
    "ref_": Kind.REFUND,
    "dep_": Kind.DEPOSIT_REFERENCE,
    "op_": Erasure.OPERATION,
}
_REFERENCED = (Payment, Payout, DepositReference)


class UnknownObject(LookupError):
    """Nothing is known under one of the ids; the message names it."""


@dataclass(slots=True)
class Found:
    """Objects to be erased, with what belongs to them, and how much is kept of them."""

    keys: set[ObjectKey] = field(default_factory=set)
    #: Ids of bodies in quarantine that hold the data.
    quarantined: set[str] = field(default_factory=set)

    def counts(self) -> dict[str, int]:
        """How many of each kind; ``open_operations`` are those that must be closed first."""
        counts: Counter[str] = Counter(kind for _, kind, _ in self.keys if kind != Erasure.OPERATION)
        counts["event"] = sum(
            Event.objects.filter(any_of(dict.fromkeys(part, ""))).exclude(body=None).count()
            for part in parts(sorted(self.keys))
        )
        states = {
            operation.pk: operation.state
            for part in parts(sorted(self.keys))
            for operation in operations_of(part).only("pk", "state")
        }
        counts["open_operation"] = sum(state in OPEN_OPERATION_STATES for state in states.values())
        counts["operation"] = len(states) - counts["open_operation"]
        counts["quarantined"] = len(self.quarantined)
        return {kind: count for kind, count in sorted(counts.items()) if count}


def select(selection: Selection, account: str | None = None) -> Found:
    """Every object, operation and body that holds what is selected, with what belongs to it.

    ``account``: only there. What people are known by is searched for in every row, a page at a time; references and
    ids are found by index. Raises UnknownObject.
    """
    found = Found()
    strangers = {object_id for object_id in selection.ids if object_id.startswith(QUARANTINE_PREFIX)}
    for object_id in sorted(selection.ids - strangers):
        found.keys.add(_known(object_id, account))
    if selection.references:
        found.keys |= set(_by_reference(selection, account))
    if selection.names_people:
        found.keys |= set(_by_content(selection, account))
    expand(found.keys)
    ids = {object_id for _, _, object_id in found.keys}
    found.quarantined = {*in_quarantine(account, selection, ids), *_held(strangers, account)}
    return found


def expand(keys: set[ObjectKey]) -> None:
    """Add what belongs to them: a payment's refunds, a refund's payout, an operation's object."""
    new = set(keys)
    while new:
        children: set[ObjectKey] = set()
        for part in parts(sorted(new)):
            children |= set(_children(part))
        new = children - keys
        keys |= new


def operations_of(keys: Iterable[ObjectKey]) -> Any:
    """The operations that made or changed these objects, and those among them."""
    ids = [object_id for _, _, object_id in keys]
    return Operation.objects.filter(Q(pk__in=ids) | Q(result_id__in=ids) | Q(target_id__in=ids))


def in_quarantine(account: str | None, selection: Selection, ids: set[str]) -> Iterator[str]:
    """Ids of bodies that were not understood and hold what is selected, or the id of one of the objects."""
    rows = Event.objects.filter(state=EventState.QUARANTINED, body__isnull=False)
    for pk, body in _pages(rows, account, "body"):
        raw = bytes(body)
        if not ids.isdisjoint(strings_of(raw)) or (selection.names_people and selection.is_in_body(raw)):
            yield pk


def parts(keys: list[ObjectKey]) -> Iterator[list[ObjectKey]]:
    """So many at a time as a statement takes."""
    for start in range(0, len(keys), _PAGE):
        yield keys[start : start + _PAGE]


def _known(object_id: str, account: str | None) -> ObjectKey:
    kind = next((kind for prefix, kind in PREFIXES.items() if object_id.startswith(prefix)), None)
    if kind is None:
        raise UnknownObject(f"{object_id} is not the id of a payment, payout, refund, deposit reference or operation")
    model = Operation if kind == Erasure.OPERATION else MIRRORS[kind]
    at = model._default_manager.filter(pk=object_id).values_list("account", flat=True).first()
    if at is None:
        # Its events may have come and not been applied, or the answer that brought it been lost.
        told = Event.objects.filter(account__in=conf.aliases(account), object_kind=kind, object_id=object_id)
        at = told.values_list("account", flat=True).first()
    if at is None or account not in (None, at):
        raise UnknownObject(f"nothing is known of {object_id}" + (f" in account {account}" if account else ""))
    return (at, str(kind), object_id)


def _held(strangers: set[str], account: str | None) -> Iterator[str]:
    """Bodies in quarantine that were named themselves."""
    rows = _of(Event.objects.filter(pk__in=strangers, state=EventState.QUARANTINED), account)
    held = set(rows.values_list("pk", flat=True))
    for missing in sorted(strangers - held):
        raise UnknownObject(f"{missing} is not in quarantine")
    yield from held


def _by_reference(selection: Selection, account: str | None) -> Iterator[ObjectKey]:
    for model in _REFERENCED:
        rows = _of(model._default_manager.filter(merchant_reference__in=selection.references), account)
        for row_account, pk, reference in rows.values_list("account", "pk", "merchant_reference"):
            if reference in selection.references:  # some databases do not mind the case
                yield (row_account, str(model.kind), pk)
    asked = _of(Operation.objects.filter(merchant_reference__in=selection.references), account)
    for row_account, pk, reference in asked.values_list("account", "pk", "merchant_reference"):
        if reference in selection.references:
            yield (row_account, Erasure.OPERATION, pk)


def _by_content(selection: Selection, account: str | None) -> Iterator[ObjectKey]:
    for kind, model in MIRRORS.items():
        if not model.personal:
            continue
        for pk, at, *values in _pages(model._default_manager.all(), account, "account", *model.personal):
            if selection.is_in(dict(zip(model.personal, values, strict=True))):
                yield (at, str(kind), pk)
    for pk, at, arguments in _pages(Operation.objects.all(), account, "account", "arguments"):
        if selection.is_in(arguments):
            yield (at, Erasure.OPERATION, pk)
    # What the rows do not show any more, and what is not mirrored, is still in the bodies.
    bodies = Event.objects.filter(body__isnull=False).exclude(state=EventState.QUARANTINED)
    bodies = bodies.exclude(object_kind=Kind.BALANCE)
    for _, at, kind, object_id, body in _pages(bodies, account, "account", "object_kind", "object_id", "body"):
        if selection.is_in_body(bytes(body)):
            yield (at, kind, object_id)


def _children(keys: list[ObjectKey]) -> Iterator[ObjectKey]:
    ids: dict[str, list[str]] = defaultdict(list)
    for _, kind, object_id in keys:
        ids[kind].append(object_id)
    refunds = Q(payment_id__in=ids[Kind.PAYMENT])
    for at, pk in Refund.objects.filter(refunds).values_list("account", "pk") if ids[Kind.PAYMENT] else ():
        yield (at, str(Kind.REFUND), pk)
    if ids[Kind.REFUND]:
        named = Refund.objects.filter(pk__in=ids[Kind.REFUND]).exclude(payout_id=None)
        executing = Q(refund_id__in=ids[Kind.REFUND]) | Q(pk__in=list(named.values_list("payout_id", flat=True)))
        payouts = Payout.objects.filter(executing)
        for at, pk in payouts.values_list("account", "pk"):
            yield (at, str(Kind.PAYOUT), pk)
    made = Operation.objects.filter(pk__in=ids[Erasure.OPERATION]).exclude(result_id="")
    results = made.values_list("account", "result_kind", "result_id") if ids[Erasure.OPERATION] else ()
    for at, kind, object_id in results:
        if getattr(MIRRORS.get(kind), "personal", ()):
            yield (at, kind, object_id)


def _pages(rows: QuerySet[Any], account: str | None, *fields: str) -> Iterator[Any]:
    """The fields of every row, its key first, a page in memory at a time."""
    rows = _of(rows, account).order_by("pk")
    last: Any = None
    while page := list((rows if last is None else rows.filter(pk__gt=last)).values_list("pk", *fields)[:_PAGE]):
        yield from page
        last = page[-1][0]


def _of(rows: QuerySet[Any], account: str | None) -> QuerySet[Any]:
    return rows if account is None else rows.filter(account=account)
