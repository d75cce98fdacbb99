"""Erasing what was found, object by object, each in a transaction of its own; and finishing what had to wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import IntegrityError, router, transaction
from django.db.models import Q
from django.utils import timezone

from payments_integration import projection
from payments_integration.erasure.matching import Selection
from payments_integration.erasure.selecting import Found, expand, in_quarantine, operations_of, parts
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    StatusChange,
)
from payments_integration.projection.refreshes import ObjectKey, any_of
from payments_integration.transactions import hold, repeatable

#: Stands where a text was that may have held personal data.
REMOVED = "removed with the personal data"
#: Arguments that are personal. What else an operation says of itself stays.
_PERSONAL = ("payer", "destination")
#: Of these, members that name nobody.
_CODES = frozenset({"type", "bank_code", "account_type"})
#: Shorter texts are not looked for in notes: they would be found everywhere.
_MIN_TEXT = 4
_PAGE = 200


@dataclass(slots=True)
class Erased:
    """What one pass did, by kind, and what it had to leave."""

    done: Counter[str] = field(default_factory=Counter)
    #: Ids of operations that are open: what they sent may have to be sent again.
    open_operations: set[str] = field(default_factory=set)
    #: Events that must be applied first.
    pending_events: int = 0

    @property
    def left(self) -> dict[str, int]:
        """What is left, by kind."""
        left = {"event": self.pending_events, "operation": len(self.open_operations)}
        return {kind: count for kind, count in left.items() if count}


def erase(found: Found, *, actor: str) -> Erased:
    """Remember the wish for every object, then erase what can be. Can be interrupted, and repeated.

    What is left (operations of open outcome, events that are not applied) is erased by ``finish``. ``actor``: who
    asked for it.
    """
    for part in parts(sorted(found.keys)):
        for key in part:
            _remember(key, actor)
    erased = Erased()
    for part in parts(sorted(found.keys)):
        _erase_all(part, erased)
    _erase_quarantined(found.quarantined, erased)
    return erased


def finish(account: str | None = None, *, thorough: bool = False) -> Erased:
    """Erase what had to wait and need not any more.

    ``thorough``: look at every erasure there ever was, and at the quarantine: what came in while an object was being
    erased, belongs to one now, or was asked for since. Cheap where nothing is left.
    """
    erased = Erased()
    for part in _wishes(account, Q(done_at=None)):
        _erase_all(part, erased)
    if thorough:
        ids: set[str] = set()
        for part in _wishes(account, Q()):
            ids.update(object_id for _, kind, object_id in part if kind != Erasure.OPERATION)
            _erase_all(_with_something_left(part), erased)
        if ids:
            _erase_quarantined(set(in_quarantine(account, Selection(), ids)), erased)
    return erased


def _remember(key: ObjectKey, actor: str) -> None:
    account, kind, object_id = key
    wish = Erasure.objects.filter(any_of({key: ""}))
    if wish.update(done_at=None):
        return
    try:
        with transaction.atomic(using=router.db_for_write(Erasure)):
            Erasure.objects.create(account=account, object_kind=kind, object_id=object_id, actor=actor[:255])
    except IntegrityError:
        pass  # another process was first


def _wishes(account: str | None, which: Q) -> Iterator[list[ObjectKey]]:
    wishes = Erasure.objects.filter(which).order_by("pk")
    if account is not None:
        wishes = wishes.filter(account=account)
    last = 0
    while page := list(wishes.filter(pk__gt=last)[:_PAGE]):
        last = page[-1].pk
        yield [wish.key for wish in page]


def _with_something_left(keys: list[ObjectKey]) -> list[ObjectKey]:
    """Those of these objects, and of what belongs to them, that still hold something."""
    all_keys = set(keys)
    expand(all_keys)
    children = all_keys - set(keys)
    left: set[ObjectKey] = children - projection.erased(children)
    for part in parts(sorted(all_keys)):
        bodies = Event.objects.filter(any_of(dict.fromkeys(part, "")), body__isnull=False)
        left.update(bodies.values_list("account", "object_kind", "object_id"))
        ids = {key[2]: key for key in part}
        for model in MIRRORS.values():
            if model.personal:
                rows = model._default_manager.filter(pk__in=ids, erased_at=None)
                left.update(ids[pk] for pk in rows.values_list("pk", flat=True))
        for operation in operations_of(part).filter(_holds_data()):
            left.update(ids[pk] for pk in (operation.pk, operation.result_id, operation.target_id) if pk in ids)
    return sorted(left)


def _erase_all(keys: list[ObjectKey], erased: Erased) -> None:
    """Erase these with what belongs to them by now."""
    known = set(keys)
    wanted = set(keys)
    expand(wanted)
    for key in sorted(wanted):
        if key not in known:
            _remember(key, "with what it belongs to")
        left = _erase_operations(key, erased)
        if key[1] != Erasure.OPERATION:
            left += _erase_object(key, erased)
        if not left:
            Erasure.objects.filter(any_of({key: ""}), done_at=None).update(done_at=timezone.now())


def _erase_object(key: ObjectKey, erased: Erased) -> int:
    """Its row, and the bodies and tracebacks of its events; returns how many events must be applied first."""
    account, kind, object_id = key

    def write() -> tuple[bool, int, int]:
        is_new = False
        if kind in MIRRORS:
            was_erased = MIRRORS[kind]._default_manager.filter(pk=object_id).exclude(erased_at=None).exists()
            is_new = projection.erase_row(account, kind, object_id) and not was_erased
        mine = Event.objects.filter(any_of({key: ""}))
        # A body is needed until it is applied; then it goes by itself.
        settled = mine.exclude(state=EventState.PENDING)
        bodies = settled.filter(body__isnull=False).update(body=None)
        for rows in (settled, StatusChange.objects.filter(any_of({key: ""}))):
            rows.exclude(error__in=("", REMOVED)).update(error=REMOVED)
        DueRefresh.objects.filter(any_of({key: ""})).exclude(error__in=("", REMOVED)).update(error=REMOVED)
        return is_new, bodies, mine.filter(state=EventState.PENDING).count()

    is_new, bodies, pending = repeatable(write, using=router.db_for_write(Event))
    erased.done[kind] += is_new
    erased.done["event"] += bodies
    erased.pending_events += pending
    return pending


def _erase_operations(key: ObjectKey, erased: Erased) -> int:
    """The operations of an object, or the one that is meant; returns how many are open."""
    left = 0
    for pk in list(operations_of([key]).filter(account=key[0]).values_list("pk", flat=True)):
        outcome = repeatable(partial(_erase_operation, pk), using=router.db_for_write(Operation))
        erased.done["operation"] += outcome == "done"
        if outcome == "open":
            erased.open_operations.add(pk)
            left += 1
    return left


def _erase_operation(pk: str) -> str:
    """Blank a closed operation's arguments and request; its hash, key and outcome stay, so it is known again."""
    operation = hold(Operation.objects.filter(pk=pk)).get()
    if operation.state in OPEN_OPERATION_STATES:
        return "open"
    texts = set(_texts({name: operation.arguments.get(name) for name in _PERSONAL}))
    values: dict[str, Any] = {
        "arguments": {},
        "body": None if operation.body else operation.body,
        "actor": _without(operation.actor, texts),
        "approved_by": _without(operation.approved_by, texts),
        "note": _without(operation.note, texts),
        "error": {**operation.error, "message": REMOVED} if operation.error else operation.error,
    }
    changed = {name: value for name, value in values.items() if getattr(operation, name) != value}
    if not changed:
        return ""
    Operation.objects.filter(pk=pk).update(**changed)
    return "done"


def _holds_data() -> Q:
    """Closed operations that were not erased yet."""
    return ~Q(state__in=OPEN_OPERATION_STATES) & (Q(body__isnull=False) & ~Q(body=b"") | ~Q(arguments={}))


def _texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, name)
    elif isinstance(value, str) and len(value) >= _MIN_TEXT and name not in _CODES:
        yield value


def _without(text: str, texts: Iterable[str]) -> str:
    for found in sorted(texts, key=len, reverse=True):
        text = text.replace(found, "…")
    return text


def _erase_quarantined(ids: set[str], erased: Erased) -> None:
    """Bodies that were not understood go for good; their rows stay, so that the same bytes are not taken in again."""
    for pk in sorted(ids):
        rows = Event.objects.filter(pk=pk, state=EventState.QUARANTINED)
        erased.done["quarantined"] += rows.update(body=None, state=EventState.DONE, error=REMOVED)
