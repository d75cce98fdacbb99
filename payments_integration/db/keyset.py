"""Page by keyset: a page begins after a row, so the last page costs as much as the first. No COUNT, no OFFSET.

A cursor holds the values of one row by which the list is ordered. It grants nothing: the query finds the same rows
without it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import F, Model, OrderBy, Q, QuerySet
from django.db.models.options import Options
from django.utils.timezone import is_aware

#: Our cursors are shorter.
_MAX_CURSOR = 1000

Place = tuple[Any, ...]


def encode(values: Iterable[Any]) -> str:
    """Return a cursor, safe in an address. Times are written in UTC."""
    content = json.dumps([_plain(value) for value in values], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def decode(cursor: str) -> list[Any] | None:
    """Return the values of a cursor; None for a text that is not one."""
    if len(cursor) > _MAX_CURSOR:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        values = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        return None
    return values if isinstance(values, list) else None


def pages(rows: QuerySet[Any], *names: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield every row in pages, ordered by the primary key: the key, then the named fields."""
    rows = rows.order_by("pk")
    last: Any = None
    while page := list((rows if last is None else rows.filter(pk__gt=last)).values_list("pk", *names)[:size]):
        yield page
        last = page[-1][0]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and is_aware(value):
        value = value.astimezone(UTC)
    return value.isoformat() if isinstance(value, date) else value


class Key(NamedTuple):
    """One column of the order."""

    name: str
    descending: bool
    nullable: bool

    def reversed(self) -> Key:
        return Key(self.name, not self.descending, self.nullable)

    def order(self) -> Any:
        if not self.nullable:
            return f"-{self.name}" if self.descending else self.name
        # Databases differ in where they put nulls: here they are last when descending, first when ascending.
        return OrderBy(
            F(self.name),
            descending=self.descending,
            nulls_last=True if self.descending else None,
            nulls_first=None if self.descending else True,
        )

    def beyond(self, value: Any, *, inclusive: bool) -> Q:
        """Match rows that come after ``value`` in this column or, if ``inclusive``, have the same value."""
        null = Q(**{f"{self.name}__isnull": True})
        if value is None:
            return (null if inclusive else Q(pk__in=())) if self.descending else (Q() if inclusive else ~null)
        operator = ("lt" if self.descending else "gt") + ("e" if inclusive else "")
        found = Q(**{f"{self.name}__{operator}": value})
        return found | null if self.nullable and self.descending else found


class Order:
    """How a list is sorted, with the primary key last, so that no two rows have the same place.

    ``filled`` names nullable fields that are not null in the rows of this list.
    """

    def __init__(self, opts: Options[Any], names: Sequence[str], *, filled: Sequence[str] = ()) -> None:
        self._opts = opts
        self.keys: list[Key] = []
        for name in names:
            field = self._field(name.removeprefix("-"))
            self.keys.append(Key(field.attname, name.startswith("-"), field.null and field.name not in filled))
            if field.primary_key:
                return
        # In the direction of the others, so that one index serves them all.
        down = self.keys[-1].descending if self.keys else True
        self.keys.append(Key(opts.pk.attname, down, False))

    def _field(self, name: str) -> Any:
        return self._opts.pk if name == "pk" else self._opts.get_field(name)

    def reversed(self) -> Order:
        order = Order.__new__(Order)
        order._opts, order.keys = self._opts, [key.reversed() for key in self.keys]
        return order

    @property
    def by(self) -> list[Any]:
        """Return the arguments of ``order_by``."""
        return [key.order() for key in self.keys]

    def place(self, row: Model | Mapping[str, Any]) -> Place:
        """Return the values by which a row is sorted."""
        return tuple(row[key.name] if isinstance(row, Mapping) else getattr(row, key.name) for key in self.keys)

    def after(self, place: Place) -> Q:
        """Match rows that come after this place."""
        # ``a <= 1 AND (a < 1 OR b < 2)``: every database enters its index by the first half.
        found = self.keys[-1].beyond(place[-1], inclusive=False)
        for key, value in zip(self.keys[-2::-1], place[-2::-1], strict=True):
            found = key.beyond(value, inclusive=True) & (key.beyond(value, inclusive=False) | found)
        return found

    def cursor(self, row: Model) -> str:
        return encode(self.place(row))

    def parse(self, cursor: str) -> Place | None:
        """Return the place that a cursor means; None for a text that is not a cursor of this order."""
        values = decode(cursor)
        return None if values is None else self.read(values)

    def read(self, values: Sequence[Any]) -> Place | None:
        """Read a place from the values of a cursor; None if they do not fit the columns."""
        if len(values) != len(self.keys):
            return None
        try:
            place = tuple(self._value(key, value) for key, value in zip(self.keys, values, strict=True))
        except (TypeError, ValueError, OverflowError, ValidationError):
            return None
        return place

    def _value(self, key: Key, value: Any) -> Any:
        if value is None and key.nullable:
            return None
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError("a place is made of texts and numbers")
        if isinstance(value, str) and b"\x00" in value.encode():
            raise ValueError("no database takes NUL in a text")
        found = self._field(key.name).to_python(value)
        if not isinstance(found, datetime):
            return found
        if is_aware(found) != settings.USE_TZ:
            raise ValueError("the time is of another kind than the database's")
        return found.astimezone(UTC) if settings.USE_TZ else found
