"""The ledger: what was asked of the provider, by whom, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import columns, display, filters, on_demand, operation_names
from payments_integration.admin.approving import APPROVE, REJECT, TAKE_BACK, asked_by, panel, waits
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
        "id", "operation_shown", "state_shown", "amount_shown", "objects_shown", "actor", "account", "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("state", _("state"), OperationState, open_ended=False),
        filters.known("operation", _("operation"), operation_names.choices),
        filters.ACCOUNT,
        filters.days("created_at"),
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
    personal = ("note_shown", "error_shown", "arguments_shown", "body_shown")
    export = (
        "id", "operation", "state", "amount", "currency", "target_id", "result_kind", "result_id",
        "merchant_reference", "actor", "approved_by", "approved_at", "attempts", "account", "created_at",
        "first_sent_at", "last_sent_at", "closed_at",
    )  # fmt: skip
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "id", "operation_shown", "state_shown", "note_shown", "error_shown", "request_ids_shown", "actor",
                )
            },
        ),
        (_("What was asked"), {"fields": ("amount_shown", "target_shown", "merchant_reference", "arguments_shown")}),
        (_("Approval"), {"fields": ("approved_by", "approved_at")}),
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
    note_shown = columns.words("note", _("note"), besides="arguments")
    error_shown = columns.refusal("error", _("the provider's refusal"))
    arguments_shown = columns.json("arguments", _("arguments"))
    body_shown = columns.body("body", _("body"))

    def get_urls(self) -> list[URLPattern]:
        own = [self.object_path(button.name, self._pressing(button)) for button in (APPROVE, REJECT, TAKE_BACK)]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # Over the list as it opens; who filters or pages looks for something else.
        if not request.GET and self.has_view_permission(request):
            extra_context = {
                "pi_attention": on_demand.attention.of(self.admin_site, self.objects_shown),
                **(extra_context or {}),
            }
        return super().changelist_view(request, extra_context)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None and waits(obj):
            context["pi_panel"] = panel(self, request, obj, may_approve=self.has_approve_permission(request, obj))
        return super().render_change_form(request, context, *args, **kwargs)

    def has_resolve_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "change_operation", obj)

    def has_close_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "close_operation", obj)

    def has_approve_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "approve_operation", obj)

    def has_take_back_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is not None and asked_by(obj, request.user)

    @admin.display(description=_("operation"))
    def operation_shown(self, obj: Operation) -> str:
        return operation_names.in_words(obj.operation)

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
