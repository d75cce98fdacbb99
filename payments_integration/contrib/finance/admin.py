"""Show the movements in the admin."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.contrib.finance.models import Movement, MovementKind


@admin.register(Movement)
class MovementAdmin(ReadOnlyAdmin):
    change_list_template = "admin/payments_integration/change_list.html"
    change_form_template = "admin/payments_integration/change_form.html"
    object_history_template = "admin/payments_integration/object_history.html"
    linked = ("object_shown",)
    list_display = ("booked_on", "kind_shown", "amount_shown", "object_shown", "account", "occurred_at")
    list_filter: ClassVar[Any] = (
        "booked_on",
        filters.known("kind", _("kind"), MovementKind, open_ended=False),
        filters.CURRENCY,
        filters.ACCOUNT,
        "occurred_on",
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
