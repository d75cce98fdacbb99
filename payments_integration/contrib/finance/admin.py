"""Show the movements in the admin."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.days import FROM, Days
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.menu import Place
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.dates import day_of


class MovementDays(Days):
    """A filter on a day that the movement stores, so a later change of TIME_ZONE does not move it."""

    def within(self, rows: QuerySet[Any], start: datetime | None, end: datetime | None) -> QuerySet[Any]:
        if start:
            rows = rows.filter(**{f"{self.field_name}__gte": day_of(start)})
        return rows.filter(**{f"{self.field_name}__lt": day_of(end)}) if end else rows


def _days(field_name: str, prefix: str, title: Any) -> type[Days]:
    own = {"field_name": field_name, "prefix": prefix, "title": title, "parameter_name": prefix + FROM}
    return cast("type[Days]", type("MovementDaysFilter", (MovementDays,), own))


@admin.register(Movement)
class MovementAdmin(ReadOnlyAdmin):
    menu_place = Place.CASH_BOOK
    change_list_template = "admin/payments_integration/change_list.html"
    change_form_template = "admin/payments_integration/change_form.html"
    object_history_template = "admin/payments_integration/object_history.html"
    list_display = ("booked_on", "kind_shown", "amount_shown", "object_shown", "account", "occurred_at")
    list_filter = (
        _days("booked_on", "", _("booked on")),
        filters.known("kind", _("kind"), MovementKind, open_ended=False),
        filters.CURRENCY,
        filters.ACCOUNT,
        _days("occurred_on", "occurred_", _("occurred on")),
    )
    ordering = ("-booked_on", "-pk")
    sortable_by = ("booked_on",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of a payment, refund or payout")
    fieldsets = (
        (None, {"fields": ("kind_shown", "amount_shown", "object_shown", "account")}),
        (_("Times"), {"fields": ("booked_on", "occurred_on", "occurred_at", "recorded_at")}),
    )

    kind_shown = columns.choice("kind", _("kind"), MovementKind)
    amount_shown = columns.money("amount", _("amount"))

    @admin.display(description=_("object"))
    def object_shown(self, obj: Movement) -> str:
        return display.object_link(self.admin_site, obj.account, obj.object_kind, obj.object_id)
