"""Show operations: what the provider was asked for, by whom, and with which result."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from payments_integration import services
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.flows import decisions
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, people
from payments_integration.admin.shared.buttons import Button
from payments_integration.models import MIRRORS, Operation, OperationState
from payments_integration.money import format_money
from payments_integration.validation.text import StrOrPromise


def _choices() -> list[tuple[str, StrOrPromise]]:
    return [(call.name, call.label) for call in services.operations.CALLS.values()]


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "operation_shown", "state_shown", "amount_shown", "person_shown", "reference_shown", "objects_shown",
        "actor_shown", "created_at", "account", "id",
    )  # fmt: skip
    list_filter = (
        filters.known("state", _("state"), OperationState, open_ended=False),
        filters.known("operation", _("operation"), _choices),
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
    list_defer = ("body", "error", "note", "request_ids")
    linked = ("objects_shown", "target_shown", "result_shown", "actor_shown")
    personal = ("person_shown", "note_shown", "error_shown", "arguments_shown", "body_shown")
    fieldsets = (
        (None, {"fields": (
            "id", "operation_shown", "state_shown", "note_shown", "error_shown", "request_ids_shown",
            "actor_shown",
        )}),
        (_("Request"), {"fields": ("amount_shown", "target_shown", "merchant_reference", "arguments_shown")}),
        (_("Approval"), {"fields": ("approved_by_shown", "approved_at")}),
        (_("Result"), {"fields": ("result_shown",)}),
        (_("Sending"), {"fields": (
            "created_at", "first_sent_at", "last_sent_at", "next_attempt_at", "closed_at", "attempts",
            "may_have_run", "deferred", "account", "idempotency_key",
        )}),
        (_("Exact request"), {"classes": ("collapse",), "fields": ("body_shown",)}),
    )  # fmt: skip

    state_shown = columns.status(_("state"), OperationState, "state")
    amount_shown = columns.money("amount", _("amount"))
    approved_by_shown = columns.value("approved_by", _("approved by"), display.actor)
    result_shown = columns.object_link(_("result"), "result_kind", "result_id")
    note_shown = columns.note("note", _("note"), quoting="arguments")
    error_shown = columns.provider_error("error", _("the provider's error"))
    arguments_shown = columns.json("arguments", _("arguments"))
    body_shown = columns.body("body", _("body"))

    def get_urls(self) -> list[URLPattern]:
        # These buttons are in the panel, so ``buttons`` does not list them.
        own = [self.object_path(button.name, self.button_view(button)) for button in decisions.BUTTONS]
        return [*own, *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None:
            # Loaded with the first page that is opened, because Django imports this module in every process.
            from payments_integration.admin.flows import panels  # noqa: PLC0415

            context["pi_warnings"] = panels.warnings(obj)
            context["pi_panel"] = panels.panel(self.seen(request), request, obj)
            # The breadcrumbs show the id.
            amount = format_money(obj.amount, obj.currency) if obj.amount is not None else ""
            state = dict(OperationState.choices).get(obj.state, obj.state)
            parts = (display.operation_name(obj.operation), amount, display.text(state))
            context["subtitle"] = " · ".join(filter(None, parts))
        return super().render_change_form(request, context, *args, **kwargs)

    def may_press(self, button: Button, request: HttpRequest, obj: Any) -> bool:
        if button is decisions.TAKE_BACK:
            return obj is not None and services.is_requester(obj, request.user)
        return super().may_press(button, request, obj)

    @admin.display(description=_("operation"))
    def operation_shown(self, obj: Operation) -> str:
        return display.operation_name(obj.operation)

    @admin.display(description=_("recipient or payer"))
    def person_shown(self, obj: Operation) -> str:
        """Show the person in the request. A refund to a card has none."""
        given = obj.arguments if isinstance(obj.arguments, dict) else {}
        return display.beginning(people.name_in(given.get("destination")) or people.name_in(given.get("payer")))

    @admin.display(description=_("actor"))
    def actor_shown(self, obj: Operation) -> str:
        return display.requester(self.admin_site, obj)

    @admin.display(description=_("reference"))
    def reference_shown(self, obj: Operation) -> str:
        """Show the merchant's own reference. Without one, the operation's id was sent."""
        return display.text(obj.merchant_reference if obj.merchant_reference != obj.pk else "")

    @admin.display(description=_("request ids"))
    def request_ids_shown(self, obj: Operation) -> str:
        return display.text(", ".join(map(str, obj.request_ids or ())))

    @admin.display(description=_("target and result"))
    def objects_shown(self, obj: Operation) -> str:
        """Show target and result in one column, because the list would otherwise be too wide."""
        target, result = self.target_shown(obj), self.result_shown(obj)
        if not obj.result_id or obj.result_id == obj.target_id:
            return target
        return format_html("{} →<br>{}", target, result) if obj.target_id else result

    @admin.display(description=_("target"))
    def target_shown(self, obj: Operation) -> str:
        call = services.operations.get(obj.operation)
        if call is None or call.target is None:
            return display.text(obj.target_id)
        return display.admin_link(self.admin_site, MIRRORS[call.target], obj.target_id)
