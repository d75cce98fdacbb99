"""Write dataclasses as JSON and read them back by the types of their fields. Reading checks every type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from .clock import iso, parse_iso

T = TypeVar("T")
# A bool is an int in Python, but not in a record.
SCALARS: Final[dict[Any, tuple[type, ...]]] = {
    str: (str,), bool: (bool,), int: (int,), float: (float, int), NoneType: (NoneType,),
}  # fmt: skip


class RecordError(ValueError):
    """The data does not have the shape of the record. The text says where."""


def dump(record: object) -> bytes:
    """Return the record as JSON. Times are ISO 8601, bytes are UTF-8 text, sets and tuples are lists."""
    return json.dumps(record, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def load(kind: type[T], data: Any, where: str = "record") -> T:
    """Return the record of this type from parsed JSON. Raises RecordError with the path of the wrong field."""
    loaded: T = _load(kind, data, where)
    return loaded


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, set):
        return sorted(value)
    raise TypeError(f"a record cannot hold {type(value).__name__}")


def _load(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    if kind in SCALARS:
        _require(isinstance(data, SCALARS[kind]) and (kind is bool or not isinstance(data, bool)), kind, where)
        return data
    if kind in (datetime, bytes):
        _require(isinstance(data, str), kind, where)
        read: Callable[[str], Any] = parse_iso if kind is datetime else str.encode
        try:
            return read(data)
        except ValueError as error:
            raise RecordError(f"{where}: {error}") from error
    if is_dataclass(kind):
        return _load_dataclass(kind, data, where)
    return _load_generic(kind, data, where)


def _load_generic(kind: Any, data: Any, where: str) -> Any:
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is UnionType:  # records have unions only with None
        return None if data is None else _load(kinds[0], data, where)
    if origin is dict:
        _require(isinstance(data, dict), kind, where)
        return {name: _load(kinds[1], item, f"{where}.{name}") for name, item in data.items()}
    _require(isinstance(data, list), kind, where)
    if origin is tuple:
        _require(len(data) == len(kinds), kind, where)
        return tuple(_load(each, item, where) for each, item in zip(kinds, data, strict=True))
    return origin(_load(kinds[0], item, f"{where}[{index}]") for index, item in enumerate(data))


def _load_dataclass(kind: Any, data: Any, where: str) -> Any:
    _require(isinstance(data, dict), kind, where)
    hints, own = _hints(kind), {field.name: field for field in fields(kind)}
    if unknown := sorted(set(data) - set(own)):
        raise RecordError(f"{where} has unknown fields: {', '.join(unknown)}")
    missing = [
        name
        for name, field in own.items()
        if name not in data and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise RecordError(f"{where} lacks {', '.join(missing)}")
    values = {name: _load(hints[name], item, f"{where}.{name}") for name, item in data.items()}
    try:
        made = kind(**{name: value for name, value in values.items() if own[name].init})
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from error
    for name, value in values.items():
        if not own[name].init:
            setattr(made, name, value)
    return made


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _require(fits: bool, kind: Any, where: str) -> None:
    if not fits:
        raise RecordError(f"{where} is not {getattr(kind, '__name__', kind)}")
