"""Structs to rows and back to differences: pure, no queries."""

from __future__ import annotations

import copy
from datetime import datetime
from types import NoneType
from typing import Any

from django.utils import timezone

from payments_integration import wire
from payments_integration.enums import Kind
from payments_integration.models import EMPTY_VALUES, MIRRORS, Mirror

#: PostgreSQL stores no NUL in text; the exact bytes stay in the event.
_NUL, _REPLACEMENT = "\x00", "\ufffd"
#: From here on every float is a whole number. PostgreSQL gives 1e300 back as 10**300, which is another one.
_WHOLE_FLOATS = 2.0**53
#: Most of an object's values, and the same in every database.
_AS_THEY_ARE = frozenset({int, datetime, NoneType})

KIND_OF: dict[type[wire.Resource], Kind] = {struct: Kind(kind) for kind, struct in wire.RESOURCES.items()}


def model_of(kind: str) -> type[Any]:
    return MIRRORS[kind]


def object_id_of(resource: wire.AnyResource) -> str:
    """The id under which a row of this object is found; balances have only their currency."""
    return resource.currency if isinstance(resource, wire.Balance) else resource.id


def row_values(resource: wire.AnyResource) -> dict[str, Any]:
    """The mirrored fields of an object, what is derived from them, and ``extra``, as a row stores them."""
    model = model_of(KIND_OF[type(resource)])
    values = {name: getattr(resource, name) for name in model.mirrored}
    for name, value in values.items():
        if type(value) not in _AS_THEY_ARE:
            values[name] = storable(value)
    values |= model.derived(values)
    values["extra"] = storable(resource.extra)
    return values


def storable(value: Any) -> Any:
    """The value as every database stores it and gives it back: no NUL, no float above 2**53, at any depth."""
    if isinstance(value, str):
        return value.replace(_NUL, _REPLACEMENT) if _NUL in value else value
    if isinstance(value, float):
        return int(value) if abs(value) >= _WHOLE_FLOATS else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def differences(row: Mirror, resource: wire.AnyResource) -> dict[str, tuple[Any, Any]]:
    """Field to (ours, theirs) for each mirrored field that differs; erased personal data is left out."""
    return value_differences(row, row_values(resource))


def value_differences(row: Mirror, values: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    erased = row.personal if row.erased_at else ()
    return {
        name: (getattr(row, name), value)
        for name, value in values.items()
        if name not in erased and getattr(row, name) != value
    }


def assign(row: Mirror, values: dict[str, Any]) -> None:
    """Put the provider's values on a row; erased personal data stays erased."""
    erased = row.personal if row.erased_at else ()
    for name, value in values.items():
        if name not in erased:
            setattr(row, name, value)


def empty_values(model: type[Any]) -> dict[str, Any]:
    """What an erasure leaves of a model's personal fields."""
    return {name: copy.deepcopy(EMPTY_VALUES.get(name)) for name in model.personal}


def stamp(row: Mirror, *, at: datetime, by: str, span: float = 0.0) -> None:
    """Note what wrote the row, and when by the provider's clock; one more version."""
    row.state_at = at
    row.state_by = by
    row.state_span = span
    row.version += 1
    row.synced_at = timezone.now()
    row.gone_at = None


def new_row(
    account: str,
    resource: wire.AnyResource,
    values: dict[str, Any],
    *,
    at: datetime,
    by: str,
    span: float = 0.0,
    is_erased: bool = False,
) -> Any:
    """An unsaved row of an object that was not mirrored before; ``is_erased``: without its personal data."""
    model = model_of(KIND_OF[type(resource)])
    identity = {} if isinstance(resource, wire.Balance) else {"id": resource.id}
    if is_erased:
        values = {**values, **empty_values(model)}
    return model(
        **identity,
        **values,
        erased_at=timezone.now() if is_erased else None,
        account=account,
        state_at=at,
        state_by=by,
        state_span=span,
        synced_at=timezone.now(),
    )


def status_of(row: Mirror) -> str:
    """The mirrored status; balances have none."""
    return getattr(row, "status", "")
