"""Find the rows that came into a status on some days, which may be long after their creation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Exists, Model, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration.contrib.backoffice.admin.days import FROM, Day, Days
from payments_integration.dates import start_of
from payments_integration.enums import RefundStatus
from payments_integration.models import StatusChange

#: The query parameter of ``StatusSince``: the first day.
SINCE = "status_since"
SUCCEEDED, RETURNED = RefundStatus.SUCCEEDED, RefundStatus.RETURNED
#: A margin, because ``synced_at`` is by our clock, and a change's ``at`` is by the provider's.
_CLOCKS = timedelta(days=1)


def since(rows: QuerySet[Any], at: datetime) -> QuerySet[Any]:
    """Return the mirror rows whose present status began at ``at`` or later.

    A row is synced when its status changes, so the index over status and ``synced_at`` leaves few rows. Each row takes
    one look at the index over the object's changes.
    """
    changes = StatusChange.objects.filter(
        account=OuterRef("account"), object_kind=rows.model.kind, object_id=OuterRef("pk"), status=OuterRef("status"),
        at__gte=at,
    )  # fmt: skip
    return rows.filter(Exists(changes), synced_at__gte=at - _CLOCKS)


class SucceededDays(Days):
    """A filter for mirror rows without a time of success: it uses their change to "succeeded".

    It includes rows that were returned since, because their money did go out on that day.
    """

    def within(self, rows: QuerySet[Any], start: datetime | None, end: datetime | None) -> QuerySet[Any]:
        changes = StatusChange.objects.filter(
            account=OuterRef("account"), object_kind=rows.model.kind, object_id=OuterRef("pk"), status=SUCCEEDED
        )
        rows = rows.filter(status__in=(SUCCEEDED, RETURNED))
        if start:
            # As above, the index over status and ``synced_at`` leaves few rows.
            changes, rows = changes.filter(at__gte=start), rows.filter(synced_at__gte=start - _CLOCKS)
        if end:
            # No object succeeds before it is created, so the list's order begins near its first row.
            changes, rows = changes.filter(at__lt=end), rows.filter(created_at__lt=end)
        return rows.filter(Exists(changes))


def success_days(field_name: str = "succeeded_at", base: type[Days] = Days) -> type[Days]:
    """Return a filter on the day of success."""
    own = {"field_name": field_name, "prefix": "succeeded_", "title": _("day of success")}
    return cast("type[Days]", type("SuccessDaysFilter", (base,), {**own, "parameter_name": f"succeeded_{FROM}"}))


class StatusSince(admin.ListFilter):
    """A filter that is shown if the link has its parameter and a status. With an invalid day, the list is empty.

    Without a status it is ignored, because a list of every status could read the whole table.
    """

    title = _("status since")
    template = "admin/filter.html"
    #: Themes of the admin read this name from every filter.
    parameter_name = SINCE

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        given = str(params.pop(SINCE)[-1]).strip() if SINCE in params else ""
        self._given = given if request.GET.get("status") else ""
        self.used_parameters = {SINCE: self._given} if self._given else {}
        self._day: date | None = None
        with contextlib.suppress(ValidationError):
            self._day = Day(input_formats=["%Y-%m-%d"], required=False).clean(self._given)

    def has_output(self) -> bool:
        return bool(self._given)

    def expected_parameters(self) -> list[str | None]:
        return [SINCE]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return since(queryset, start_of(self._day)) if self._day else queryset.none()

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        yield {
            "selected": False,
            "query_string": changelist.get_query_string({SINCE: None}),
            "display": gettext("Any day"),
        }
        yield {"selected": True, "query_string": changelist.get_query_string(), "display": self._given}
