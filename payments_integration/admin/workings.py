"""How the mirror is kept complete: reconciliation, and what is due to be read anew."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import columns, display, filters
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.models import AccountState, DueRefresh, ReconciliationRun, RunKind, RunState


@admin.register(ReconciliationRun)
class ReconciliationRunAdmin(ReadOnlyAdmin):
    list_display = (
        "started_at", "kind", "state_shown", "seen", "recovered", "drifted", "repaired", "duration_shown", "account",
    )  # fmt: skip
    list_filter = (
        filters.known("kind", _("kind"), RunKind, open_ended=False),
        filters.known("state", _("state"), RunState, open_ended=False),
        filters.ACCOUNT,
        "started_at",
    )
    ordering = ("-started_at", "-pk")
    sortable_by = ("started_at",)
    list_defer = ("drift", "error")
    fieldsets = (
        (None, {"fields": ("kind", "state_shown", "account", "error_shown")}),
        (_("Window"), {"fields": ("window_from", "window_to", "pages")}),
        (_("Found"), {"fields": ("seen", "recovered", "drifted", "repaired", "drift_shown")}),
        (_("Times"), {"fields": ("started_at", "finished_at", "duration_shown")}),
    )

    state_shown = columns.status(_("state"), RunState, "state")
    error_shown = columns.preformatted("error", _("error"))
    drift_shown = columns.json("drift", _("drift"))

    @admin.display(description=_("duration"))
    def duration_shown(self, obj: ReconciliationRun) -> str:
        return display.EMPTY if obj.duration is None else _("%(seconds).1f s") % {"seconds": obj.duration}


@admin.register(AccountState)
class AccountStateAdmin(ReadOnlyAdmin):
    list_display = ("account", "watermark", "swept_at", "clock_offset")
    ordering = ("account",)
    fieldsets = (
        (None, {"fields": ("account", "watermark", "swept_at", "clock_offset")}),
        (_("Running pass"), {"fields": ("window_from", "window_to", "lease_until")}),
    )


@admin.register(DueRefresh)
class DueRefreshAdmin(ReadOnlyAdmin):
    list_display = ("id", "object_shown", "object_kind", "reason", "due_at", "attempts", "account")
    list_filter = (filters.OBJECT_KIND, filters.ACCOUNT)
    ordering = ("due_at", "pk")
    sortable_by = ("due_at",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of an object")
    list_defer = ("error",)
    fieldsets = (
        (None, {"fields": ("object_shown", "object_kind", "account", "reason", "due_at")}),
        (_("Attempts"), {"fields": ("attempts", "error_shown")}),
    )

    object_shown = columns.object_link(_("object"))
    error_shown = columns.preformatted("error", _("error"))
