"""The ledger: what was asked of the provider, by whom, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import columns, display, filters
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.buttons import may
from payments_integration.admin.resolving import HAPPENED, LOOK_UP, NEVER_HAPPENED, SEND_AGAIN
from payments_integration.models import Operation, OperationState, Payment, Payout, WebhookEndpoint

#: The service functions that leave an operation, and what their target is.
TARGETS: dict[str, type[Model] | None] = {
    "create_payment": None,
    "cancel_payment": Payment,
    "create_payout": None,
    "cancel_payout": Payout,
    "create_refund": Payment,
    "create_deposit_reference": None,
    "create_webhook_endpoint": None,
    "rotate_webhook_secret": WebhookEndpoint,
    "delete_webhook_endpoint": WebhookEndpoint,
}


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "operation", "state_shown", "amount_shown", "objects_shown", "actor", "account", "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("state", _("state"), OperationState, open_ended=False),
        filters.known("operation", _("operation"), lambda: [(name, name) for name in TARGETS]),
        filters.ACCOUNT,
        "created_at",
    )
    ordering = ("-created_at", "-pk")
    sortable_by = ("created_at",)
    search_fields = (
        "id__startswith", "target_id__exact", "result_id__exact", "merchant_reference__exact",
        "idempotency_key__exact",
    )  # fmt: skip
    search_help_text = _("The beginning of an id; a whole object id, merchant reference or idempotency key")
    buttons = (LOOK_UP, SEND_AGAIN, HAPPENED, NEVER_HAPPENED)
    list_defer = ("arguments", "body", "error", "note", "request_ids")
    fieldsets = (
        (
            None,
            {"fields": ("id", "operation", "state_shown", "note_shown", "error_shown", "request_ids_shown", "actor")},
        ),
        (_("What was asked"), {"fields": ("amount_shown", "target_shown", "merchant_reference", "arguments_shown")}),
        (_("What came of it"), {"fields": ("result_shown",)}),
        (
            _("Sending"),
            {
                "fields": (
                    "created_at", "first_sent_at", "last_sent_at", "next_attempt_at", "closed_at", "attempts",
                    "may_have_run", "deferred", "account", "idempotency_key",
                )
            },
        ),
        (_("Exact request"), {"classes": ("collapse",), "fields": ("body_shown",)}),
    )  # fmt: skip

    state_shown = columns.status(_("state"), OperationState, "state")
    amount_shown = columns.money("amount", _("amount"))
    result_shown = columns.object_link(_("result"), "result_kind", "result_id")
    note_shown = columns.preformatted("note", _("note"))
    error_shown = columns.json("error", _("the provider's refusal"))
    arguments_shown = columns.json("arguments", _("arguments"))
    body_shown = columns.body("body", _("body"))

    def has_resolve_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "change_operation", obj)

    @admin.display(description=_("request ids"))
    def request_ids_shown(self, obj: Operation) -> str:
        return display.text(", ".join(map(str, obj.request_ids or ())))

    @admin.display(description=_("target and result"))
    def objects_shown(self, obj: Operation) -> str:
        """One column, or the list would be wider than most screens."""
        target, result = self.target_shown(obj), self.result_shown(obj)
        if not obj.result_id or obj.result_id == obj.target_id:
            return target
        return format_html("{} →<br>{}", target, result) if obj.target_id else result

    @admin.display(description=_("target"))
    def target_shown(self, obj: Operation) -> str:
        model = TARGETS.get(obj.operation)
        if model is None:
            return display.text(obj.target_id)
        return display.admin_link(self.admin_site, model, obj.target_id)
