"""Converts structs to rows, compares them, builds the history rows of a change, and keeps erased data out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import NoneType
from typing import Any

from django.utils import timezone

from payments_integration import schemas
from payments_integration.conf import MIN_EVENT_DAYS
from payments_integration.db.transactions import locked
from payments_integration.enums import Kind
from payments_integration.models import (
    EMPTY_VALUES,
    MIRRORS,
    Balance,
    BalanceChange,
    Erasure,
    Event,
    EventState,
    Mirror,
    ObjectKey,
    StatusChange,
)
from payments_integration.projection.refreshes import of_objects
from payments_integration.projection.terms import erase_terms
from payments_integration.signals import has_listeners, status_changed

#: PostgreSQL stores no NUL in text. The exact bytes stay in the event.
_NUL, _REPLACEMENT = "\x00", "\ufffd"
#: Every float from here on is a whole number. PostgreSQL returns 1e300 as 10**300, which does not equal it.
_WHOLE_FLOATS = 2.0**53
#: Types that every database stores without change.
_AS_THEY_ARE = frozenset({int, datetime, NoneType})

KIND_OF: dict[type[schemas.Resource], Kind] = {struct: Kind(kind) for kind, struct in schemas.RESOURCES.items()}


def model_of(kind: str) -> type[Any]:
    return MIRRORS[kind]


def object_id_of(resource: schemas.AnyResource) -> str:
    """The object's id; the currency of a balance."""
    return resource.currency if isinstance(resource, schemas.Balance) else resource.id


def row_values(resource: schemas.AnyResource) -> dict[str, Any]:
    """The mirrored fields of an object, the derived ones and ``extra``, as a row stores them."""
    model = model_of(KIND_OF[type(resource)])
    values = {name: getattr(resource, name) for name in model.mirrored}
    for name, value in values.items():
        if type(value) not in _AS_THEY_ARE:
            values[name] = storable(value)
    values |= model.derived(values)
    values["extra"] = storable(resource.extra)
    return values


def storable(value: Any) -> Any:
    """The value in a form that every database returns unchanged: no NUL, no float above 2**53, at any depth."""
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
    """Field to (ours, theirs) for each mirrored field that differs, without erased personal data."""
    erased = row.personal if row.erased_at else ()
    return {
        name: (getattr(row, name), value)
        for name, value in row_values(resource).items()
        if name not in erased and getattr(row, name) != value
    }


def assign(row: Mirror, values: dict[str, Any]) -> None:
    """Set the provider's values on a row; erased personal data stays erased."""
    erased = row.personal if row.erased_at else ()
    for name, value in values.items():
        if name not in erased:
            setattr(row, name, value)


def empty_values(model: type[Any]) -> dict[str, Any]:
    """The values of a model's personal fields after an erasure."""
    return {name: copy.deepcopy(EMPTY_VALUES.get(name)) for name in model.personal}


def stamp(row: Mirror, *, at: datetime, by: str, duration: float = 0.0) -> None:
    """Record what wrote the row and when (the provider's clock), and count the version up."""
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
    duration: float = 0.0,
    is_erased: bool = False,
) -> Any:
    """An unsaved row of a new object; ``is_erased``: without personal data."""
    model = model_of(KIND_OF[type(resource)])
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
    """The mirrored status; "" for balances."""
    return getattr(row, "status", "")


#: Events and objects that are found later than this are stored and not dispatched.
TOO_OLD_TO_DISPATCH = timedelta(days=MIN_EVENT_DAYS)

_BALANCE_FIELDS = ("available", "pending", "reserve", "hold", "debt")


def own_time(row: Mirror) -> datetime | None:
    """When the object came into its status, by its own times: ``succeeded_at`` if it fits, else its creation."""
    succeeded_at: datetime | None = getattr(row, "succeeded_at", None)
    return succeeded_at if succeeded_at and status_of(row) == "succeeded" else getattr(row, "created_at", None)


def status_change(row: Mirror, previous_status: str, *, at: datetime, event: Event | None) -> StatusChange | None:
    """An unsaved StatusChange, or None if the status has not changed."""
    status = status_of(row)
    if status == previous_status:
        return None
    # A change that an event brought is dispatched with the event; one that an answer brought is dispatched alone.
    is_wanted = event is None and has_listeners(status_changed, type(row), status)
    waits = is_wanted and not _is_too_old(row, previous_status)
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


def _is_too_old(row: Mirror, previous_status: str) -> bool:
    """Whether the object is new to the mirror and as old as events that are no longer dispatched."""
    created_at = getattr(row, "created_at", None)
    return not previous_status and created_at is not None and timezone.now() - created_at > TOO_OLD_TO_DISPATCH


def balance_amounts(balance: Balance) -> tuple[int, ...]:
    return tuple(getattr(balance, name) for name in _BALANCE_FIELDS)


def balance_change(balance: Balance, *, at: datetime) -> BalanceChange:
    """An unsaved BalanceChange with the present amounts."""
    return BalanceChange(balance=balance, at=at, **dict(zip(_BALANCE_FIELDS, balance_amounts(balance), strict=True)))


def erased(keys: Iterable[ObjectKey]) -> set[ObjectKey]:
    """The keys of those objects whose personal data was erased; one statement, none without keys."""
    wanted = set(keys)
    return {erasure.key for erasure in Erasure.objects.filter(of_objects(wanted))} if wanted else set()


def keep_erased(objects: Iterable[tuple[str, schemas.AnyResource]]) -> set[ObjectKey]:
    """The keys of those new (account, object) pairs that must be inserted without personal data.

    A refund is erased with its payment, and a payout with its refund. Call it in the transaction that inserts; after
    an IntegrityError, which means a lost race, repeat the transaction. At most two statements.
    """
    parents = {
        (account, str(KIND_OF[type(resource)]), object_id_of(resource)): _parent(account, resource)
        for account, resource in objects
        if model_of(KIND_OF[type(resource)]).personal
    }
    known = erased({*parents, *(parent for parent in parents.values() if parent is not None)})
    found = {key for key, parent in parents.items() if key in known or parent in known}
    inherited = [
        Erasure(account=account, object_kind=kind, object_id=object_id, actor="with what it belongs to")
        for account, kind, object_id in sorted(found - known)
    ]
    if inherited:
        Erasure.objects.bulk_create(inherited)
    return found


def erasing_keys(account: str, resource: schemas.AnyResource) -> list[ObjectKey]:
    """The keys of the objects whose erasure erases this one too: itself and what it belongs to."""
    if not model_of(KIND_OF[type(resource)]).personal:
        return []
    parent = _parent(account, resource)
    own = (account, str(KIND_OF[type(resource)]), object_id_of(resource))
    return [own, parent] if parent is not None else [own]


def erase_row(account: str, kind: str, object_id: str) -> bool:
    """Empty the personal fields of one mirror row, within a transaction; False if there is no such row."""
    model = model_of(kind)
    row = locked(model._default_manager.filter(pk=object_id, account=account)).first()
    if row is None:
        return False
    since = row.erased_at or timezone.now()
    model._default_manager.filter(pk=row.pk).update(**empty_values(model), erased_at=since)
    erase_terms(kind, object_id)
    return True


def _parent(account: str, resource: schemas.AnyResource) -> ObjectKey | None:
    if isinstance(resource, schemas.Refund):
        return (account, str(Kind.PAYMENT), resource.payment_id)
    if isinstance(resource, schemas.Payout) and resource.refund_id:
        return (account, str(Kind.REFUND), resource.refund_id)
    return None
