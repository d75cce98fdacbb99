"""Filter the movements by the days that they store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.db.models import QuerySet

from payments_integration.contrib.backoffice.admin.days import FROM, Days
from payments_integration.dates import day_of


class MovementDays(Days):
    """A filter on a day that the movement stores, so a later change of TIME_ZONE does not move it."""

    def within(self, rows: QuerySet[Any], start: datetime | None, end: datetime | None) -> QuerySet[Any]:
        if start:
            rows = rows.filter(**{f"{self.field_name}__gte": day_of(start)})
        return rows.filter(**{f"{self.field_name}__lt": day_of(end)}) if end else rows


def movement_days(field_name: str, prefix: str, title: Any) -> type[Days]:
    own = {"field_name": field_name, "prefix": prefix, "title": title, "parameter_name": prefix + FROM}
    return cast("type[Days]", type("MovementDaysFilter", (MovementDays,), own))
