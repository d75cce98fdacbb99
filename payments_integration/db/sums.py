"""Sum amounts beyond the range of a column: SQLite fails if a sum leaves int64, which two amounts can do."""

from __future__ import annotations

from typing import Any

from django.db.models import Sum


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
