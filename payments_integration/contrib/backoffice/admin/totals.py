"""Add up all rows of a list per currency, and show the totals on every page of the list.

A small number of rows is added up with the page. With more rows, or if no single index finds them, the page has a link
that adds up everything. So a list costs the same even with a hundred million rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet
from django.utils.text import capfirst

from payments_integration.admin.lists.filters import KnownValues
from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.days import Days
from payments_integration.models import Mirror
from payments_integration.money import format_count

#: The query parameter that asks for all rows. It is no filter: links to other pages and exports leave it out.
ADD_UP = "add_up"
#: The most rows that are added up without this parameter.
MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Totals:
    """The table of totals. It has no lines if there are too many rows."""

    headings: list[str]
    #: (currency, number of rows, sums).
    lines: list[tuple[str, str, list[str]]]


def totals(rows: QuerySet[Any], names: Iterable[str], specs: Iterable[Any], *, everything: bool) -> Totals | None:
    """Return the sums of the amounts ``names`` over ``rows``, which ``specs`` have filtered; None if no row counts."""
    names = list(names)
    fields = [rows.model._meta.get_field(name) for name in names]
    headings = [capfirst(str(getattr(field, "verbose_name", field.name))) for field in fields]
    if not everything and not _is_found_by_one_index(specs):
        return Totals(headings, [])
    if issubclass(rows.model, Mirror):
        # Objects that the provider no longer knows are no money.
        rows = rows.filter(gone_at=None)
    # Keep the order of the list, so that the database plans the query like a page.
    limited = rows.order_by() if everything else rows[: MAX_ROWS + 1]
    found = _sums_by(limited, "currency", names, using=rows.db)
    if not everything and sum(count for _currency, count, _sums in found) > MAX_ROWS:
        return Totals(headings, [])
    if not found:
        return None
    lines = [
        (display.text(currency), format_count(count), [display.money(amount, currency) for amount in sums])
        for currency, count, sums in sorted(found)
    ]
    return Totals(headings, lines)


def _sums_by(
    rows: QuerySet[Any, Any], group: str, names: Sequence[str], *, using: str
) -> list[tuple[str, int, list[int]]]:
    """Return for each value of the field ``group`` the number of rows and the sums of the integer fields ``names``.

    ``rows`` may have a LIMIT, which Django would apply to the groups. Sums may have any size.
    """
    # SQLite adds up the upper and the lower halves.
    halves = "SUM({0} >> 32), SUM({0} & 4294967295)" if connections[using].vendor == "sqlite" else "0, SUM({0})"
    quote = connections[using].ops.quote_name
    columns = [quote(rows.model._meta.get_field(name).column) for name in (group, *names)]
    try:
        sql, parameters = rows.values_list(group, *names).query.get_compiler(using=using).as_sql()
    except EmptyResultSet:
        return []
    wanted = ", ".join((columns[0], "COUNT(*)", *map(halves.format, columns[1:])))
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {wanted} FROM ({sql}) AS listed GROUP BY {columns[0]}", parameters)  # noqa: S608
        found = cursor.fetchall()

    def total(upper: Any, lower: Any) -> int:
        return (int(upper or 0) << 32) + int(lower or 0)

    return [(value, count, list(map(total, sums[::2], sums[1::2]))) for value, count, *sums in found]


def _is_found_by_one_index(specs: Iterable[Any]) -> bool:
    """Return True if an index finds the rows, or if a range of days limits the rows that are read."""
    chosen = [spec for spec in specs if spec.used_parameters]
    has_days = any(isinstance(spec, Days) and spec.begins for spec in chosen)
    return has_days or sum(isinstance(spec, KnownValues) for spec in chosen) <= 1
