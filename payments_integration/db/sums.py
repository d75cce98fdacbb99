"""Sum amounts beyond the range of a column: SQLite fails if a sum leaves int64, which two amounts can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet, Sum


class ExactSum(Sum):
    """A sum of any size."""

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # The sums of the upper and of the lower halves, as text: no number of SQLite is large enough.
        halves = "SUM(%(expressions)s >> 32) || ' ' || SUM(%(expressions)s & 4294967295)"
        sql, params = self.as_sql(compiler, connection, template=halves, **context)
        # The template has the expression twice.
        return sql, [*params, *params]

    def convert_value(self, value: Any, expression: Any, connection: Any) -> int:
        if isinstance(value, str):
            upper, lower = map(int, value.split())
            return (upper << 32) + lower
        return int(value or 0)


def sums_by(
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
