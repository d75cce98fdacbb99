"""Lists that cost the same with a hundred rows and with a hundred million: no COUNT, no OFFSET.

A page begins behind (``after``) or ends before (``before``) a cursor, which is what the list is ordered by as one row
has it. Whether there is a further page is known by reading one row more.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import F, Model, OrderBy, Q, QuerySet
from django.db.models.options import Options
from django.http import HttpRequest
from django.utils.timezone import is_aware

AFTER, BEFORE = "after", "before"
#: No cursor of ours is longer.
_MAX_CURSOR = 1000


@dataclass(frozen=True, slots=True)
class Key:
    """One column of the order."""

    name: str
    descending: bool
    nullable: bool

    def reversed(self) -> Key:
        return Key(self.name, not self.descending, self.nullable)

    def order(self) -> Any:
        if not self.nullable:
            return f"-{self.name}" if self.descending else self.name
        # Databases differ in where they put nulls: descending last, ascending first.
        field = F(self.name)
        return OrderBy(
            field,
            descending=self.descending,
            nulls_last=True if self.descending else None,
            nulls_first=None if self.descending else True,
        )

    def beyond(self, value: Any, *, inclusive: bool) -> Q:
        """Rows that stand behind ``value`` in this column, or (``inclusive``) beside it."""
        null = Q(**{f"{self.name}__isnull": True})
        if value is None:
            return (null if inclusive else Q(pk__in=())) if self.descending else (Q() if inclusive else ~null)
        operator = ("lt" if self.descending else "gt") + ("e" if inclusive else "")
        found = Q(**{f"{self.name}__{operator}": value})
        return found | null if self.nullable and self.descending else found


class Order:
    """How a list is sorted, down to the primary key, so that each row has a place of its own."""

    def __init__(self, opts: Options[Any], names: list[str]) -> None:
        self._opts = opts
        self.keys: list[Key] = []
        for name in names:
            field = self._field(name.removeprefix("-"))
            self.keys.append(Key(field.attname, name.startswith("-"), field.null))
            if field.primary_key:
                return
        # In the direction of the others: one index serves them all.
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
        return [key.order() for key in self.keys]

    def place(self, row: Model | Mapping[str, Any]) -> tuple[Any, ...]:
        """Where a row stands."""
        return tuple(row[key.name] if isinstance(row, Mapping) else getattr(row, key.name) for key in self.keys)

    def behind(self, place: tuple[Any, ...]) -> Q:
        """Rows that come after this place."""
        # ``a <= 1 AND (a < 1 OR b < 2)``: every database enters its index by the first half.
        found = self.keys[-1].beyond(place[-1], inclusive=False)
        for key, value in zip(self.keys[-2::-1], place[-2::-1], strict=True):
            found = key.beyond(value, inclusive=True) & (key.beyond(value, inclusive=False) | found)
        return found

    def cursor(self, row: Model) -> str:
        """The place of a row, as it stands in an address."""
        values = [item.isoformat() if isinstance(item, datetime) else item for item in self.place(row)]
        return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")

    def parse(self, cursor: str) -> tuple[Any, ...] | None:
        """The place that a cursor means; None for what is none of this order."""
        try:
            raw = base64.urlsafe_b64decode(cursor[:_MAX_CURSOR] + "=" * (-len(cursor) % 4))
            values = json.loads(raw)
            if not isinstance(values, list) or len(values) != len(self.keys):
                return None
            return tuple(self._value(key, value) for key, value in zip(self.keys, values, strict=True))
        except (binascii.Error, TypeError, ValueError, OverflowError, RecursionError, ValidationError):
            return None

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


class KeysetChangeList(ChangeList):
    """Django's list, one page at a time.

    Leaves out of its query what no list shows: bodies, tracebacks, payers.
    """

    cursor: str | None = None
    backwards = False

    def get_filters(self, request: HttpRequest) -> Any:
        # The first thing that is done with the parameters: a cursor is no filter, and no link but ours repeats it.
        for name in (AFTER, BEFORE):
            if value := self.params.pop(name, None):
                self.cursor, self.backwards = str(value), name == BEFORE
            self.filter_params.pop(name, None)
        return super().get_filters(request)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(*args, **kwargs)
        return found.defer(*self.model_admin.list_defer)  # type: ignore[attr-defined]

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        self.order = Order(self.lookup_opts, self._sorted_by() or [*map(str, self.model_admin.get_ordering(request))])
        return self.order.by

    def _sorted_by(self) -> list[str]:
        """The one column that was asked for, if the list offers to be sorted by it: those have an index."""
        chosen = str(self.params.get(ORDER_VAR) or "").split(".")[0]
        try:
            column = self.list_display[int(chosen.removeprefix("-"))]
        except (ValueError, IndexError):
            return []
        if self.sortable_by is not None and column not in self.sortable_by:
            return []
        try:
            name = self.get_ordering_field(column)
        except FieldDoesNotExist:
            return []
        return [f"-{name}" if chosen.startswith("-") else str(name)] if name else []

    def get_results(self, request: HttpRequest) -> None:
        place = self.order.parse(self.cursor) if self.cursor else None
        rows, self.newer, self.older = self._page(place)
        self.result_list = rows
        # What Django would ask of a count. Equal numbers: there is nothing but this page to select.
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.show_all = self.multi_page = False

    def _page(self, place: tuple[Any, ...] | None) -> tuple[list[Any], bool, bool]:
        """The rows, and whether there are any before and behind them."""
        wanted = self.list_per_page
        if place is not None and self.backwards:
            back = self.order.reversed()
            rows = list(self.queryset.filter(back.behind(place)).order_by(*back.by)[: wanted + 1])
            if len(rows) > wanted:
                return rows[wanted - 1 :: -1], True, True
            # The beginning: a full first page rather than the rest of one.
            place = None
        found = self.queryset if place is None else self.queryset.filter(self.order.behind(place))
        rows = list(found[: wanted + 1])
        return rows[:wanted], place is not None, len(rows) > wanted

    @property
    def first_url(self) -> str:
        return self.get_query_string() if self.newer else ""

    @property
    def newer_url(self) -> str:
        if not self.newer or not self.result_list:
            return ""
        return self.get_query_string({BEFORE: self.order.cursor(self.result_list[0])})

    @property
    def older_url(self) -> str:
        return self.get_query_string({AFTER: self.order.cursor(self.result_list[-1])}) if self.older else ""


def batches(rows: QuerySet[Any], order: Order, fields: list[str], *, size: int) -> Iterator[list[dict[str, Any]]]:
    """All rows as dicts of ``fields``, ``size`` at a time, each read by a statement of its own.

    Not by a server's cursor: that needs a transaction for as long as somebody downloads, which a pooler of
    connections may not keep.
    """
    names = list(dict.fromkeys([*fields, *(key.name for key in order.keys)]))
    found = rows.order_by(*order.by).values(*names)
    page = list(found[:size])
    while page:
        yield page
        page = list(found.filter(order.behind(order.place(page[-1])))[:size]) if len(page) == size else []
