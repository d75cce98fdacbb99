"""Payouts: money that went out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.since import StatusSince
from payments_integration.admin.models.notes import NotedAdmin
from payments_integration.admin.shared import columns, masking
from payments_integration.admin.shared.buttons import Button, canceled, may
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, Country, PayoutStatus
from payments_integration.models import Payout, Refund


@admin.register(Payout)
class PayoutAdmin(NotedAdmin):
    list_display = (
        "id", "state_shown", "amount_shown", "recipient_name", "reference_shown", "method_shown", "refund_link",
        "account", "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("status", _("status"), PayoutStatus),
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        filters.days("created_at"),
        filters.success_days(),
        StatusSince,
    )
    aged = ("created_at", "succeeded_at")
    totals = ("amount", "fee")
    finds_terms = True
    search_fields = ("id__startswith", "merchant_reference__exact", "refund_id__exact")
    search_help_text = _(
        "An id, amount or merchant reference, or the refund's id; the recipient's name, document or account. The "
        "beginning of each word is enough."
    )
    list_defer = ("metadata", "extra")
    personal = ("recipient_name", "destination_shown", "metadata_shown", "extra_shown")
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payout"),
            permission="cancel",
            call=lambda obj, press: services.cancel_payout(obj, idempotency_key=press.key, actor=press.user),
            done=canceled,
            logged=_("Canceled at the provider."),
            shown=lambda obj: obj.status in CANCELABLE_PAYOUT_STATUSES,
            question=_("The money goes back to the available balance."),
        ),
    )
    export = (
        "id", "status", "amount", "fee", "currency", "country", "method_code", "merchant_reference",
        "failure_reason", "refund_id", "destination", "account", "created_at", "succeeded_at",
    )  # fmt: skip
    export_personal = ("destination",)
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "failure_shown", "reference_shown", "country_shown", "method_code")}),
        (_("Money"), {"fields": ("amount_shown", "fee_shown", "currency")}),
        (_("Recipient"), {"fields": ("destination_shown", "metadata_shown")}),
        (_("Refund"), {"fields": ("refund_link",)}),
        (_("Times"), {"fields": ("created_at", "succeeded_at")}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(_("status"), PayoutStatus)
    state_shown = columns.status_with_reason(_("status"), PayoutStatus, "failure_reason")
    country_shown = columns.choice("country", _("country"), Country)
    amount_shown = columns.money("amount", _("amount"))
    fee_shown = columns.money("fee", _("fee"))
    failure_shown = columns.plain("failure_reason", _("failure reason"))
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    recipient_name = columns.person("destination", _("recipient"), "holder_name")
    method_shown = columns.method()
    destination_shown = columns.json("destination", _("destination"))
    metadata_shown = columns.json("metadata", _("metadata"))
    refund_link = columns.row_link("refund_id", _("refund"), Refund)

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Django's index and lists link to the add page, which is our own.
        return may(request, "create_payout")

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("add", self.add_view), *super().get_urls()]

    # An error report must not contain the bank account.
    @method_decorator(sensitive_post_parameters(*masking.SENSITIVE_FIELDS))
    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return flows.PayoutPage(self, request).respond()

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "cancel_payout", obj)

    def sections(self, page: Page, obj: Payout) -> Iterable[Section]:
        # A payout may arrive before the refund that it executes, or after it.
        refunds = Refund.objects.filter(Q(payout_id=obj.pk) | Q(pk=obj.refund_id), account=obj.account)
        yield from page.refunds(refunds, obj.object_id)
        yield from super().sections(page, obj)
