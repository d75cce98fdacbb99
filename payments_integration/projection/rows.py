"""Convert structs to rows, compare them, build the history rows of a change, and keep erased data out.

``read_facts`` reads what decides about a batch. A new row may also show that another ledger made its object.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Iterable, Set
from datetime import datetime, timedelta
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

from django.db import router
from django.db.models import CharField, FloatField, Q, QuerySet, Value
from django.utils import timezone

from payments_integration import schemas
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.transactions import locked, updated
from payments_integration.enums import Kind
from payments_integration.models import (
    EMPTY_VALUES,
    MIRRORS,
    AccountState,
    Balance,
    Erasure,
    Event,
    EventState,
    Mirror,
    ObjectKey,
    Operation,
    OperationState,
    Payment,
    Payout,
    Shape,
    StatusChange,
    keys_of,
    of_objects,
    operation_states,
    shape_of,
)
from payments_integration.projection import history, ordering
from payments_integration.signals import Reason, has_listeners, mirror_written, status_changed

#: PostgreSQL stores no NUL in text. The exact bytes stay in the event.
_NUL, _REPLACEMENT = "\x00", "\ufffd"
#: Every float from here on is a whole number. PostgreSQL returns 1e300 as 10**300, which does not equal it.
_WHOLE_FLOATS = 2.0**53
#: Types that every database stores without change.
_AS_THEY_ARE = frozenset({int, datetime, NoneType})
#: One call for attention per account and day: after a restore there may be thousands of objects of another ledger.
_REPORT_EVERY = timedelta(days=1)

KIND_OF: dict[type[schemas.Resource], Kind] = {struct: Kind(kind) for kind, struct in schemas.RESOURCES.items()}


#: A row of the mirror: (kind, scope, id). The scope is empty but for a balance, because currencies are not unique: its
#: account. Other ids are unique across accounts, and a row of another account must be found, to refuse the event.
RowKey = tuple[str, str, str]


def rows_of(kind: str, account: str, object_id: str) -> QuerySet[Any]:
    """Match an object's row. Other accounts may name the same id: a row may be another account's."""
    identity = {"account": account, "currency": object_id} if kind == Kind.BALANCE else {"pk": object_id}
    rows: QuerySet[Any] = MIRRORS[kind]._default_manager.filter(**identity)
    return rows


def object_id_of(resource: schemas.AnyResource) -> str:
    """Return the object's id, or the currency of a balance."""
    return resource.currency if isinstance(resource, schemas.Balance) else resource.id


def row_values(resource: schemas.AnyResource) -> dict[str, Any]:
    """Return the mirrored fields of an object, the derived ones and ``extra``, as a row stores them."""
    model: type[Any] = MIRRORS[KIND_OF[type(resource)]]
    values = {name: getattr(resource, name) for name in schemas.MIRRORED[model.kind]}
    for name, value in values.items():
        if type(value) not in _AS_THEY_ARE:
            values[name] = storable(value)
    values |= model.derived(values)
    values["extra"] = storable(resource.extra)
    return values


def storable(value: Any) -> Any:
    """Return the value as every database returns it: no NUL, no float above 2**53, at any depth."""
    if isinstance(value, str):
        return value.replace(_NUL, _REPLACEMENT) if _NUL in value else value
    if isinstance(value, float):
        return int(value) if abs(value) >= _WHOLE_FLOATS else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def differences(row: Mirror, resource: schemas.AnyResource) -> dict[str, tuple[Any, Any]]:
    """Map each mirrored field that differs to (ours, theirs), without erased personal data."""
    return differing(row, row_values(resource))


def differing(row: Mirror, values: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Do ``differences`` with the ``row_values`` of the object."""
    erased = row.personal if row.erased_at else ()
    return {
        name: (getattr(row, name), value)
        for name, value in values.items()
        if name not in erased and getattr(row, name) != value
    }


def assign(row: Mirror, values: dict[str, Any]) -> None:
    """Set the provider's values on a row. Erased personal data stays erased."""
    erased = row.personal if row.erased_at else ()
    for name, value in values.items():
        if name not in erased:
            setattr(row, name, value)


def empty_values(model: type[Any]) -> dict[str, Any]:
    """Return the values of a model's personal fields after an erasure."""
    return {name: copy.deepcopy(EMPTY_VALUES.get(name)) for name in model.personal}


def stamp(row: Mirror, *, at: datetime, by: str, duration: float | None = None) -> None:
    """Record what wrote the row and when (the provider's clock), and increase the version."""
    row.state_at = at
    row.state_by = by
    row.answer_seconds = duration
    row.version += 1
    row.synced_at = timezone.now()
    row.gone_at = None


def new_row(
    account: str,
    resource: schemas.AnyResource,
    values: dict[str, Any],
    *,
    at: datetime,
    by: str,
    duration: float | None = None,
    is_erased: bool = False,
) -> Any:
    """Return an unsaved row of a new object, without personal data if ``is_erased``."""
    model: type[Any] = MIRRORS[KIND_OF[type(resource)]]
    identity = {} if isinstance(resource, schemas.Balance) else {"id": resource.id}
    if is_erased:
        values = {**values, **empty_values(model)}
    return model(
        **identity,
        **values,
        erased_at=timezone.now() if is_erased else None,
        account=account,
        state_at=at,
        state_by=by,
        answer_seconds=duration,
        synced_at=timezone.now(),
    )


def status_of(row: Mirror) -> str:
    """Return the mirrored status; "" for balances."""
    return getattr(row, "status", "")


def status_change(row: Mirror, previous_status: str, *, at: datetime, event: Event | None) -> StatusChange | None:
    """Return an unsaved StatusChange, or None if the status has not changed."""
    status = status_of(row)
    if status == previous_status:
        return None
    is_wanted = event is None and has_listeners(status_changed, type(row), status)
    waits = is_wanted and (bool(previous_status) or not history.is_too_old(row))
    return StatusChange(
        account=row.account,
        object_kind=row.kind,
        object_id=row.object_id,
        previous_status=previous_status,
        status=status,
        at=at,
        event=event,
        state=EventState.APPLIED if waits else EventState.DONE,
    )


class Recorded(NamedTuple):
    """The newest recorded status of an object, and its time."""

    status: str
    at: datetime


def recorded_statuses(keys: Iterable[ObjectKey]) -> dict[ObjectKey, Recorded]:
    """Return the newest recorded status of each of these objects. One statement, none without keys."""
    wanted = set(keys)
    if not wanted:
        return {}
    changes = StatusChange.objects.filter(of_objects(wanted)).order_by("at", "pk")
    rows = changes.values_list("account", "object_kind", "object_id", "status", "at")
    return {(account, kind, object_id): Recorded(status, at) for account, kind, object_id, status, at in rows}


def changes_object(change: StatusChange, recorded: Recorded | None, row_at: datetime | None) -> bool:
    """Return True if an unsaved change is a change of the object, and not only of its row.

    A row may be absent although changes of it are recorded, or be older than they are: its table was lost, or restored
    alone. It goes on from the newest of them, so that no receiver is called for the same status again. ``row_at`` is
    the time of the row before the change; None: it is new. Sets ``previous_status`` to the recorded status.
    """
    if recorded is None or (row_at is not None and recorded.at <= row_at):
        return True
    change.previous_status = recorded.status
    return change.status != recorded.status


class Facts(NamedTuple):
    """What decides about a batch, in addition to the rows of its objects."""

    #: The provider's present time by account.
    now_at: dict[str, datetime]
    #: The accounts of mirrored objects.
    owners: dict[RowKey, str]
    #: The newest recorded statuses of the batch's objects.
    recorded: dict[ObjectKey, Recorded]
    #: Objects whose personal data was erased.
    erased: set[ObjectKey]


def read_facts(events: Iterable[Event], mirrored: Iterable[RowKey], erasing: Collection[ObjectKey]) -> Facts:
    """Read the facts in one statement: which of ``mirrored`` is mirrored, and which of ``erasing`` was erased."""
    objects, by_kind = {event.object_key for event in events}, defaultdict(set)
    for key in mirrored:
        by_kind[key[0]].add(key)
    of_events, given = shape_of(objects)
    of_erasing, texts = shape_of(erasing, _ERASING)
    given |= texts
    #: For each kind the columns that find its rows, each with the number of its values.
    columns: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for kind, wanted in sorted(by_kind.items()):
        found = identity(MIRRORS[kind], wanted)
        columns.append((kind, tuple((name, len(values)) for name, values in found.items())))
        for name, values in found.items():
            given |= zip(statements.stand_ins(len(values), f"{kind} {name}"), values, strict=True)
    offsets: dict[str, float | None] = {}
    owners: dict[RowKey, str] = {}
    newest: dict[ObjectKey, tuple[datetime, int, str]] = {}
    gone: set[ObjectKey] = set()
    rows = _facts(of_events, tuple(columns), of_erasing, using=router.db_for_write(StatusChange), given=given)
    for account, kind, object_id, status, at, pk, offset in rows:
        key = (account, kind, object_id)
        if at is not None:
            newest[key] = max(newest.get(key, (at, pk, status)), (at, pk, status))
        elif status:
            gone.add(key)
        elif kind:
            owners[kind, scope(kind, account), object_id] = account
        else:
            offsets[account] = offset
    return Facts(
        {account: ordering.time_by(offsets.get(account)) for account, _, _ in objects},
        owners,
        {key: Recorded(status, at) for key, (at, _, status) in newest.items()},
        gone,
    )


#: The prefix of placeholders for keys of ``erasing``.
_ERASING = "erasing "


@statements.built_once
def _facts(
    of_events: Shape, columns: tuple[tuple[str, tuple[tuple[str, int], ...]], ...], of_erasing: Shape
) -> QuerySet[Any, Any]:
    objects = keys_of(of_events)
    no_text, nothing = Value("", CharField()), Value(None, FloatField())
    key_fields = ("account", "object_kind", "object_id")
    # The first part has a type for each column.
    changes = StatusChange.objects.filter(of_objects(objects)).values_list(*key_fields, "status", "at", "pk", nothing)
    parts: list[Any] = [
        AccountState.objects.filter(account__in={account for account, _, _ in objects}).values_list(
            "account", no_text, no_text, no_text, nothing, nothing, "clock_offset"
        )
    ]
    parts += [
        MIRRORS[kind]
        ._default_manager.filter(
            **{f"{name}__in": statements.stand_ins(count, f"{kind} {name}") for name, count in of_kind}
        )
        .values_list("account", Value(kind, CharField()), id_field(kind), no_text, nothing, nothing, nothing)
        for kind, of_kind in columns
    ]
    if of_erasing:
        erasures = Erasure.objects.filter(of_objects(keys_of(of_erasing, _ERASING)))
        parts.append(erasures.values_list(*key_fields, Value("erased", CharField()), nothing, nothing, nothing))
    return changes.union(*parts, all=True)


def scope(kind: str, account: str) -> str:
    return account if kind == Kind.BALANCE else ""


def identity(model: type[Any], keys: Collection[RowKey]) -> dict[str, set[str]]:
    """Return the columns of these rows, with their values. Other balances of the accounts may have them too."""
    scopes = {"account": {key[1] for key in keys}} if model is Balance else {}
    return {**scopes, id_field(model.kind): {key[2] for key in keys}}


def id_field(kind: str) -> str:
    """Return the column of a mirror that an event's ``object_id`` names."""
    return "currency" if kind == Kind.BALANCE else "id"


def erased(keys: Iterable[ObjectKey]) -> set[ObjectKey]:
    """Return the keys of objects whose personal data was erased. One statement, none without keys."""
    wanted = set(keys)
    return {erasure.object_key for erasure in Erasure.objects.filter(of_objects(wanted))} if wanted else set()


def keep_erased(
    objects: Iterable[tuple[str, schemas.AnyResource]], known: Set[ObjectKey] | None = None
) -> set[ObjectKey]:
    """Return the keys of new (account, object) pairs that must be inserted without personal data.

    A refund is erased with its payment, and a payout with its refund. Call in the transaction that inserts, and repeat
    it after an IntegrityError, which means a lost race. ``known``: the erased ones of all their ``erasing_keys``.
    If it is not given, one statement finds them.
    """
    related = {keys[0]: keys for account, resource in objects if (keys := erasing_keys(account, resource))}
    if known is None:
        known = erased(chain.from_iterable(related.values()))
    found = {own for own, keys in related.items() if not known.isdisjoint(keys)}
    inherited = [
        Erasure(account=account, object_kind=kind, object_id=object_id, actor="with what it belongs to")
        for account, kind, object_id in sorted(found - known)
    ]
    if inherited:
        Erasure.objects.bulk_create(inherited)
    return found


def erasing_keys(account: str, resource: schemas.AnyResource) -> list[ObjectKey]:
    """Return the keys of the objects whose erasure erases this one too: itself and what it belongs to."""
    if not MIRRORS[KIND_OF[type(resource)]].personal:
        return []
    parent = _parent(account, resource)
    own = (account, str(KIND_OF[type(resource)]), object_id_of(resource))
    return [own, parent] if parent is not None else [own]


def erase_row(account: str, kind: str, object_id: str) -> bool:
    """Empty the personal fields of one mirror row, within a transaction. Returns False if there is no such row."""
    model: type[Any] = MIRRORS[kind]
    row = locked(model._default_manager.filter(pk=object_id, account=account)).first()
    if row is None:
        return False
    values = {**empty_values(model), "erased_at": row.erased_at or timezone.now()}
    model._default_manager.filter(pk=row.pk).update(**values)
    for name, value in values.items():
        setattr(row, name, value)
    mirror_written([row])
    return True


def notice_unexpected(rows: Iterable[Any]) -> None:
    """Notice objects of operations that should have made none. ``rows`` were inserted by this transaction.

    No statement if no reference is an operation's id.
    """
    made = {row.merchant_reference: row for row in rows if isinstance(row, Payment | Payout)}
    for reference, state in sorted(operation_states(made).items()):
        if not state:
            _report_other_ledger(made[reference])
        elif state in (OperationState.REJECTED, OperationState.CLOSED):
            _leave_to_a_person(made[reference])


def _report_other_ledger(row: Payment | Payout) -> None:
    """Report an object that another ledger made: proof of a restored backup, or of a second installation."""
    reference, now = row.merchant_reference, timezone.now()
    state = AccountState.objects.filter(
        Q(unknown_operation_at=None) | Q(unknown_operation_at__lt=now - _REPORT_EVERY), account=row.account
    )
    if updated(state, unknown_operation=reference, unknown_operation_at=now):
        message = (
            f"{row.pk} has the reference {reference}, an operation that this ledger does not have: "
            "a backup was restored, or another installation uses this account"
        )
        call_attention(row, Reason.LEDGER_INCOMPLETE, message)


def _leave_to_a_person(row: Payment | Payout) -> None:
    """Open the operation of an object again if it counts as not executed: what was asked for since is done twice.

    A call under a free key finds the object by itself.
    """
    states = (OperationState.REJECTED, OperationState.CLOSED)
    ended = Operation.objects.filter(account=row.account, pk=row.merchant_reference, state__in=states, result_id="")
    operation = locked(ended).first()
    if operation is None or operation.has_free_key or row.pk in operation.other_objects:
        return
    # A person may ask again with the reference that a page shows.
    others = Operation.objects.filter(account=row.account, merchant_reference=operation.pk).exclude(pk=operation.pk)
    if others.exclude(state__in=states).exists():
        return
    why = f"{row.pk} has its reference: it was executed, although it counted as {operation.state}"
    opened = {"state": OperationState.NEEDS_PERSON, "closed_at": None, "may_have_run": True}
    ended.update(**opened, note=operation.with_note(why))
    message = f"{operation.operation} {operation.pk}: {why}"
    call_attention(operation, Reason.OPERATION_NEEDS_RESOLUTION, message)


def _parent(account: str, resource: schemas.AnyResource) -> ObjectKey | None:
    if isinstance(resource, schemas.Refund):
        return (account, str(Kind.PAYMENT), resource.payment_id)
    if isinstance(resource, schemas.Payout) and resource.refund_id:
        return (account, str(Kind.REFUND), resource.refund_id)
    return None
