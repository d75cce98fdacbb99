"""Erase objects, each in its own transaction, and later finish the ones that had to wait."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import router
from django.db.models import Q, QuerySet
from django.utils import timezone

from payments_integration import projection, schemas
from payments_integration.db import keyset
from payments_integration.db.sizes import in_parts
from payments_integration.db.statements import filter_account, insert_many
from payments_integration.db.transactions import locked, repeatable, updated
from payments_integration.erasure.erasers import erasers
from payments_integration.erasure.search import Found, expand, in_quarantine, operations_of
from payments_integration.erasure.selection import Selection
from payments_integration.exceptions import REFUSAL_CODES
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    ObjectKey,
    Operation,
    OperationState,
    StatusChange,
    of_objects,
)
from payments_integration.permissions import actor_name

#: Replaces texts that may have held personal data.
REMOVED = "removed with the personal data"
#: Arguments of an operation that hold personal data.
_PERSONAL = ("payer", "destination")
#: Keys within these arguments that hold no personal data.
_CODES = frozenset({"type", "bank_code", "account_type"})
#: Shorter texts are not replaced, because they occur everywhere.
_MIN_TEXT = 4
_PAGE = 200


@dataclass(slots=True)
class Erased:
    """How many rows were erased, by kind, and what could not be erased yet."""

    done: Counter[str] = field(default_factory=Counter)
    #: Ids of open operations, whose requests may have to be sent again.
    open_operations: set[str] = field(default_factory=set)
    #: Events that must be applied first.
    pending_events: int = 0

    @property
    def left(self) -> dict[str, int]:
        """Return how many rows could not be erased yet, by kind."""
        left = {"event": self.pending_events, "operation": len(self.open_operations)}
        return {kind: count for kind, count in left.items() if count}


def erase(found: Found, *, actor: str) -> Erased:
    """Record the request for every object, then erase what can be erased now. Can be interrupted and repeated.

    ``finish`` erases the rest: open operations and pending events. ``actor`` is who asked for the erasure.
    """
    for part in in_parts(sorted(found.keys)):
        for key in part:
            _record(key, actor)
    erased = Erased()
    for part in in_parts(sorted(found.keys)):
        _erase_all(part, erased)
    _erase_quarantined(found.quarantined, erased)
    for eraser, keys in found.elsewhere.items():
        for pk in sorted(keys):
            erased.done[eraser.name[0]] += eraser.erase(eraser.rows().filter(pk=pk))
    return erased


def finish(account: str | None = None, *, thorough: bool = False) -> Erased:
    """Erase what had to wait and can be erased now. Cheap if nothing is left.

    ``thorough``: also check all earlier erasures and the quarantine, for data that arrived during an erasure, for
    objects that belong to an erased one since then, and for new operations.
    """
    erased = Erased()
    for part in _requests(account, Q(done_at=None)):
        _erase_all(part, erased)
    if thorough:
        ids: set[str] = set()
        for part in _requests(account, Q()):
            ids.update(object_id for _, kind, object_id in part if kind != Erasure.OPERATION)
            _erase_all(_with_something_left(part), erased)
        if ids:
            _erase_quarantined(set(in_quarantine(account, Selection(), ids)), erased)
    return erased


def _record(key: ObjectKey, actor: str) -> None:
    account, kind, object_id = key

    def write() -> None:
        if not Erasure.objects.filter(of_objects([key])).update(done_at=None):
            row = Erasure(account=account, object_kind=kind, object_id=object_id, actor=actor[:255])
            insert_many([row], keys=False)

    repeatable(write, using=router.db_for_write(Erasure))


def _requests(account: str | None, which: Q) -> Iterator[list[ObjectKey]]:
    requests = filter_account(Erasure.objects.filter(which), account)
    for page in keyset.pages(requests, "account", "object_kind", "object_id", size=_PAGE):
        yield [(alias, kind, object_id) for _, alias, kind, object_id in page]


def _with_something_left(keys: list[ObjectKey]) -> list[ObjectKey]:
    """Return these objects and the objects that belong to them, if they still hold personal data."""
    all_keys = set(keys)
    expand(all_keys)
    children = all_keys - set(keys)
    left: set[ObjectKey] = children - projection.erased(children)
    for part in in_parts(sorted(all_keys)):
        bodies = Event.objects.filter(of_objects(part), body__isnull=False)
        of_others = (eraser.rows().filter(of_objects(part)) for eraser in erasers())
        for rows in (bodies, *of_others):
            left.update(rows.values_list("account", "object_kind", "object_id"))
        ids = {key[2]: key for key in part}
        for model in MIRRORS.values():
            if model.personal:
                kept = model._default_manager.filter(pk__in=ids, erased_at=None)
                left.update(ids[pk] for pk in kept.values_list("pk", flat=True))
        for operation in operations_of(part).filter(_holds_data()):
            left.update(ids[pk] for pk in (operation.pk, operation.result_id, operation.target_id) if pk in ids)
    return sorted(left)


def _erase_all(keys: Sequence[ObjectKey], erased: Erased) -> None:
    """Erase these objects and the objects that belong to them now."""
    known = set(keys)
    wanted = set(keys)
    expand(wanted)
    # Read it before any of it is erased.
    texts = _identifying(wanted)
    for key in sorted(wanted):
        if key not in known:
            _record(key, "with what it belongs to")
        left = _erase_operations(key, erased, texts)
        if key[1] != Erasure.OPERATION:
            left += _erase_object(key, erased)
        if not left:
            updated(Erasure.objects.filter(of_objects([key]), done_at=None), done_at=timezone.now())


def _erase_object(key: ObjectKey, erased: Erased) -> int:
    """Erase its row and its events' bodies and tracebacks. Returns how many events must be applied first."""
    account, kind, object_id = key

    def write() -> tuple[Counter[str], int]:
        done = Counter[str]()
        if kind in MIRRORS:
            was_erased = MIRRORS[kind]._default_manager.filter(pk=object_id).exclude(erased_at=None).exists()
            done[kind] += projection.erase_row(account, kind, object_id) and not was_erased
        # After the row, which is locked now: a transaction that adds to these rows takes that lock first.
        for eraser in erasers():
            done[eraser.name[0]] += eraser.erase(eraser.rows().filter(of_objects([key])))
        mine = Event.objects.filter(of_objects([key]))
        # An event needs its body until it is applied. The body is blanked afterwards.
        applied = mine.exclude(state=EventState.PENDING)
        done["event"] += applied.filter(body__isnull=False).update(body=None)
        others: list[QuerySet[Any]] = [model.objects.filter(of_objects([key])) for model in (StatusChange, DueRefresh)]
        for rows in (applied, *others):
            rows.exclude(error__in=("", REMOVED)).update(error=REMOVED)
        return done, mine.filter(state=EventState.PENDING).count()

    done, pending = repeatable(write, using=router.db_for_write(Event))
    erased.done += done
    erased.pending_events += pending
    return pending


def _identifying(keys: Iterable[ObjectKey]) -> set[str]:
    """Return the e-mail addresses and numbers of the payers of these objects.

    A customer's user name is often one of them. It is in all of their operations, also in those without a payer, such
    as a cancel.
    """
    found: list[Any] = []
    for part in in_parts(sorted(keys)):
        ids = [object_id for _, _, object_id in part]
        for model in MIRRORS.values():
            for name in set(_PERSONAL).intersection(model.personal):
                found += model._default_manager.filter(pk__in=ids).values_list(name, flat=True)
        for arguments in operations_of(part).values_list("arguments", flat=True):
            found += [arguments.get(name) for name in _PERSONAL]
    # Without names: a payer may be called as a member of staff.
    return {text for text in _texts(found) if "@" in text or any(map(str.isdigit, text))}


def _texts(value: Any) -> set[str]:
    return {text for name, text in schemas.texts_in(value) if len(text) >= _MIN_TEXT and name not in _CODES}


def _erase_operations(key: ObjectKey, erased: Erased, texts: Collection[str]) -> int:
    """Erase the operations of an object, or the operation itself. Returns how many are open.

    ``texts``: the texts to erase in the names of its people.
    """
    left = 0
    for pk in list(operations_of([key]).filter(account=key[0]).values_list("pk", flat=True)):
        outcome = repeatable(partial(_erase_operation, pk, texts), using=router.db_for_write(Operation))
        erased.done["operation"] += outcome == "done"
        if outcome == "open":
            erased.open_operations.add(pk)
            left += 1
            continue
        for eraser in erasers():
            of_operation = of_objects([(key[0], Erasure.OPERATION, pk)])
            erased.done[eraser.name[0]] += eraser.erase(eraser.rows().filter(of_operation))
    return left


def _erase_operation(pk: str, texts: Collection[str]) -> str:
    """Blank a closed operation's arguments, request and texts. Its hash, key and outcome stay for a repeated call.

    An open operation loses only ``texts`` in its names, because they are no longer known when it has ended.
    """
    operation = locked(Operation.objects.filter(pk=pk)).get()
    texts = {*texts, *_texts([operation.arguments.get(name) for name in _PERSONAL])}
    is_open = operation.state in OPEN_OPERATION_STATES
    values: dict[str, Any] = {}
    if operation.state != OperationState.AWAITING_APPROVAL or operation.actor_id:
        # Until it is approved, a name without an id keeps the person who asked from approving it.
        values = {name: _without(getattr(operation, name), texts) for name in ("actor", "approved_by")}
    if not is_open:
        values |= {
            "arguments": {},
            "body": None if operation.body else operation.body,
            "note": REMOVED if operation.note else "",
            "error": _codes(operation.error),
        }
    changed = {name: value for name, value in values.items() if getattr(operation, name) != value}
    if changed:
        Operation.objects.filter(pk=pk).update(**changed)
    if is_open:
        return "open"
    return "done" if changed else ""


def _holds_data() -> Q:
    """Match closed operations that are not erased yet."""
    has_request = Q(body__isnull=False) & ~Q(body=b"") | ~Q(arguments={})
    return ~Q(state__in=OPEN_OPERATION_STATES) & (has_request | ~Q(note__in=("", REMOVED)))


def _codes(error: Any) -> dict[str, Any] | None:
    """Return a stored refusal without what may repeat the request."""
    if not isinstance(error, dict):
        return None
    return {**{name: error[name] for name in REFUSAL_CODES if name in error}, "message": REMOVED}


def _without(actor: str, texts: Iterable[str]) -> str:
    """Return an operation's actor without the payer's data. The id of a user stays."""
    name = actor_name(actor)
    shown = name
    for found in sorted(texts, key=len, reverse=True):
        # A user name may be written in another case, or be a document without its punctuation. The address
        # ana@example.com is no part of susana@example.com or ana@example.com.mx, but of google_ana@example.com.
        wanted = rf"(?<![^\W_]){re.escape(found)}(?!\.?[^\W_])" if "@" in found else re.escape(found)
        shown = re.sub(wanted, "…", shown, flags=re.IGNORECASE)
        if _plain(found) and _plain(found) == _plain(name):
            shown = "…"
    return f"{actor.removesuffix(name)}{shown}"


def _plain(text: str) -> str:
    return re.sub(r"\W", "", text).casefold()


def _erase_quarantined(ids: set[str], erased: Erased) -> None:
    """Blank quarantined bodies. Their rows stay, so that the same bytes are not stored again."""
    for pk in sorted(ids):
        rows = Event.objects.filter(pk=pk, state=EventState.QUARANTINED)
        erased.done["quarantined"] += updated(rows, body=None, state=EventState.DONE, error=REMOVED)
