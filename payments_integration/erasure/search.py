"""Search for the objects that hold a payer's personal data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from payments_integration import conf
from payments_integration.db import keyset
from payments_integration.db.sizes import in_parts
from payments_integration.db.statements import filter_account
from payments_integration.enums import Kind, kind_of
from payments_integration.erasure.erasers import Eraser, erasers
from payments_integration.erasure.selection import Selection, strings_of
from payments_integration.inbox import QUARANTINE_PREFIX
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    DepositReference,
    Erasure,
    Event,
    EventState,
    ObjectKey,
    Operation,
    Payment,
    Payout,
    Refund,
    of_objects,
)

#: Rows per page of a search.
_PAGE = 500
_REFERENCED: tuple[type[Any], ...] = (Payment, Payout, DepositReference)
#: Called with the number of rows after each page of a search.
Looked = Callable[[int], object]


class UnknownObject(LookupError):
    """No object has one of the ids; the message names it."""


@dataclass(slots=True)
class Found:
    """Objects to erase, with the objects that belong to them."""

    keys: set[ObjectKey] = field(default_factory=set)
    #: Ids of quarantined events whose bodies hold the data.
    quarantined: set[str] = field(default_factory=set)
    #: Keys of other apps' rows about other objects, whose texts hold the data.
    elsewhere: dict[Eraser, set[Any]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Count the objects of each kind. ``open_operation`` counts operations that must be closed first."""
        counts: Counter[str] = Counter(kind for _, kind, _ in self.keys if kind != Erasure.OPERATION)
        states: dict[str, str] = {}
        for part in in_parts(sorted(self.keys)):
            counts["event"] += Event.objects.filter(of_objects(part)).exclude(body=None).count()
            states |= dict(operations_of(part).values_list("pk", "state"))
            for eraser in erasers():
                counts[eraser.name[0]] += eraser.rows().filter(of_objects(part)).count()
        for eraser, rows in self.elsewhere.items():
            counts[eraser.name[0]] += len(rows)
        counts["open_operation"] = sum(state in OPEN_OPERATION_STATES for state in states.values())
        counts["operation"] = len(states) - counts["open_operation"]
        counts["quarantined"] = len(self.quarantined)
        return {kind: count for kind, count in sorted(counts.items()) if count}


def select(selection: Selection, account: str | None = None, *, looked: Looked = lambda rows: None) -> Found:
    """Find every object, operation and quarantined body that holds the selected data, and what belongs to them.

    ``account``: search only this account. References and ids are found by index; other data is searched for in every
    row, a page at a time. Raises UnknownObject.
    """
    found = Found()
    quarantined = {object_id for object_id in selection.ids if object_id.startswith(QUARANTINE_PREFIX)}
    for object_id in sorted(selection.ids - quarantined):
        found.keys.add(_known(object_id, account))
    if selection.references:
        found.keys |= set(_by_reference(selection, account))
    if selection.has_personal_data:
        found.keys |= set(_by_content(selection, account, looked))
    expand(found.keys)
    if selection.has_personal_data:
        found.elsewhere = {each: set(_elsewhere(each, selection, account, found.keys, looked)) for each in erasers()}
    ids = {object_id for _, _, object_id in found.keys}
    found.quarantined = {*in_quarantine(account, selection, ids, looked), *_quarantined(quarantined, account)}
    return found


def expand(keys: set[ObjectKey]) -> None:
    """Add the objects that belong to them: a payment's refunds, a refund's payout, an operation's object."""
    new = set(keys)
    while new:
        children: set[ObjectKey] = set()
        for part in in_parts(sorted(new)):
            children |= set(_children(part))
        new = children - keys
        keys |= new


def operations_of(keys: Iterable[ObjectKey]) -> Any:
    """Return the operations that created or changed these objects, and the operations among them."""
    ids = [object_id for _, _, object_id in keys]
    return Operation.objects.filter(Q(pk__in=ids) | Q(result_id__in=ids) | Q(target_id__in=ids))


def in_quarantine(
    account: str | None, selection: Selection, ids: set[str], looked: Looked = lambda rows: None
) -> Iterator[str]:
    """Yield ids of quarantined events whose bodies hold the selected data or one of the ids."""
    rows = Event.objects.filter(state=EventState.QUARANTINED, body__isnull=False)
    for pk, body in _pages(rows, account, looked, "body"):
        raw = bytes(body)
        if not ids.isdisjoint(strings_of(raw)) or (selection.has_personal_data and selection.is_in_body(raw)):
            yield pk


def _known(object_id: str, account: str | None) -> ObjectKey:
    kind = Erasure.OPERATION if object_id.startswith("op_") else kind_of(object_id)
    if kind is None or kind == Kind.WEBHOOK_ENDPOINT:
        raise UnknownObject(f"{object_id} is not the id of a payment, payout, refund, deposit reference or operation")
    model = Operation if kind == Erasure.OPERATION else MIRRORS[kind]
    at = model._default_manager.filter(pk=object_id).values_list("account", flat=True).first()
    if at is None:
        # Its events may not be applied yet, or the answer that contained it was lost.
        events = Event.objects.filter(account__in=conf.aliases(account), object_kind=kind, object_id=object_id)
        at = events.values_list("account", flat=True).first()
    if at is None or account not in (None, at):
        raise UnknownObject(f"nothing is known of {object_id}" + (f" in account {account}" if account else ""))
    return (at, str(kind), object_id)


def _quarantined(quarantined: set[str], account: str | None) -> Iterator[str]:
    """Yield quarantined events that were selected by their own id. Raises UnknownObject."""
    rows = filter_account(Event.objects.filter(pk__in=quarantined, state=EventState.QUARANTINED), account)
    found = set(rows.values_list("pk", flat=True))
    for missing in sorted(quarantined - found):
        raise UnknownObject(f"{missing} is not in quarantine")
    yield from found


def _by_reference(selection: Selection, account: str | None) -> Iterator[ObjectKey]:
    for model in _REFERENCED:
        rows = filter_account(model._default_manager.filter(merchant_reference__in=selection.references), account)
        for row_account, pk, reference in rows.values_list("account", "pk", "merchant_reference"):
            if reference in selection.references:  # some databases ignore case
                yield (row_account, str(model.kind), pk)
    asked = filter_account(Operation.objects.filter(merchant_reference__in=selection.references), account)
    for row_account, pk, reference in asked.values_list("account", "pk", "merchant_reference"):
        if reference in selection.references:
            yield (row_account, Erasure.OPERATION, pk)


def _by_content(selection: Selection, account: str | None, looked: Looked) -> Iterator[ObjectKey]:
    for kind, model in MIRRORS.items():
        if not model.personal:
            continue
        for pk, at, *values in _pages(model._default_manager.all(), account, looked, "account", *model.personal):
            if selection.is_in(dict(zip(model.personal, values, strict=True))):
                yield (at, str(kind), pk)
    for pk, at, arguments in _pages(Operation.objects.all(), account, looked, "account", "arguments"):
        if selection.is_in(arguments):
            yield (at, Erasure.OPERATION, pk)
    # Bodies hold values that the rows no longer show, and objects that are not mirrored.
    bodies = Event.objects.filter(body__isnull=False).exclude(state=EventState.QUARANTINED)
    bodies = bodies.exclude(object_kind=Kind.BALANCE)
    for _, at, kind, object_id, body in _pages(bodies, account, looked, "account", "object_kind", "object_id", "body"):
        if selection.is_in_body(bytes(body)):
            yield (at, kind, object_id)


def _elsewhere(
    eraser: Eraser, selection: Selection, account: str | None, keys: set[ObjectKey], looked: Looked
) -> Iterator[Any]:
    """Yield rows that hold the selected data and are about none of these objects. Only the row is erased there."""
    fields = ("account", "object_kind", "object_id", eraser.text)
    for pk, at, kind, object_id, text in _pages(eraser.rows(), account, looked, *fields):
        if (at, kind, object_id) not in keys and selection.is_in_body(text.encode()):
            yield pk


def _children(keys: Sequence[ObjectKey]) -> Iterator[ObjectKey]:
    ids: dict[str, list[str]] = defaultdict(list)
    for _, kind, object_id in keys:
        ids[kind].append(object_id)
    # Another account's rows may name these objects.
    of_account = set(keys)
    of_payments = Refund.objects.filter(payment_id__in=ids[Kind.PAYMENT])
    for at, pk, parent in of_payments.values_list("account", "pk", "payment_id") if ids[Kind.PAYMENT] else ():
        if (at, str(Kind.PAYMENT), parent) in of_account:
            yield (at, str(Kind.REFUND), pk)
    if ids[Kind.REFUND]:
        named = Refund.objects.filter(pk__in=ids[Kind.REFUND]).exclude(payout_id=None)
        named_by = set(named.values_list("account", "payout_id"))
        executing = Q(refund_id__in=ids[Kind.REFUND]) | Q(pk__in=[payout_id for _, payout_id in named_by])
        for at, pk, parent in Payout.objects.filter(executing).values_list("account", "pk", "refund_id"):
            if (at, pk) in named_by or (at, str(Kind.REFUND), parent) in of_account:
                yield (at, str(Kind.PAYOUT), pk)
    made = Operation.objects.filter(pk__in=ids[Erasure.OPERATION]).exclude(result_id="")
    results = made.values_list("account", "result_kind", "result_id") if ids[Erasure.OPERATION] else ()
    for at, kind, object_id in results:
        if getattr(MIRRORS.get(kind), "personal", ()):
            yield (at, kind, object_id)


def _pages(rows: QuerySet[Any], account: str | None, looked: Looked, *fields: str) -> Iterator[Any]:
    """Yield the fields of every row, its key first, with one page in memory at a time."""
    for page in keyset.pages(filter_account(rows, account), *fields, size=_PAGE):
        yield from page
        looked(len(page))
