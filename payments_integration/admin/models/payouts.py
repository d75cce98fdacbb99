"""Show payouts: money that went out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext, gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, masking, twins
from payments_integration.admin.shared.buttons import Button, Tool, Weight, canceled, may
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, Country, PayoutStatus
from payments_integration.models import Payout, Refund


@admin.register(Payout)
class PayoutAdmin(MirrorAdmin):
    list_display = (
        "amount_shown", "state_shown", "recipient_name", "reference_shown", "method_shown", "created_at",
        "refund_link", "account", "id",
    )  # fmt: skip
    list_filter: ClassVar[Any] = (
        filters.known("status", _("status"), PayoutStatus),
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        "created_at",
    )
    search_fields = ("id__startswith", "merchant_reference__exact", "refund_id__exact")
    search_help_text = _("The beginning of an id; the whole merchant reference, or the whole id of the refund")
    list_defer = ("metadata", "extra")
    linked = ("refund_link",)
    personal: tuple[str, ...] = (
        "state_shown", "failure_reason_shown", "recipient_name", "destination_shown", "metadata_shown", "extra_shown",
    )  # fmt: skip
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payout"),
            permission="cancel_payout",
            call=lambda obj, press: services.cancel_payout(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("cancel_payout"),
            done=canceled,
            logged=_("Canceled at the provider."),
            shown=lambda obj: display.can_send(obj) and obj.status in CANCELABLE_PAYOUT_STATUSES,
            question=_("The money goes back to the available balance."),
        ),
    )
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (
            "id", "status_shown", "failure_reason_shown", "amount_shown", "fee_shown", "destination_shown",
            "reference_shown", "method_shown", "refund_link", "created_at", "succeeded_at",
        )}),
        (_("Details"), {"fields": ("method_code", "country_shown", "metadata_shown")}),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), PayoutStatus)
    state_shown = columns.status_with_reason(_("status"), PayoutStatus, "failure_reason")
    country_shown = columns.choice("country", _("country"), Country)
    amount_shown = columns.money("amount", _("amount"))
    reference_shown = columns.value("merchant_reference", _("merchant reference"), display.text)
    recipient_name = columns.person("destination", _("recipient"))
    method_shown = columns.method()
    failure_reason_shown = columns.reason("failure_reason", _("failure reason"))
    fee_shown = columns.money("fee", _("fee"))
    destination_shown = columns.fields("destination", _("recipient"))
    metadata_shown = columns.fields("metadata", _("metadata"))
    refund_link = columns.row_link("refund_id", _("refund"), Refund)

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Django's index and lists link to the add page, which is one of our own.
        return may(request, "create_payout")

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.has_add_permission(request):
            url = display.page_url(self.admin_site, Payout, "add")
            yield Tool(gettext("New payout"), url, post=False, weight=Weight.MAIN)

    # An error report must not contain the bank account.
    @method_decorator(sensitive_post_parameters(*masking.SENSITIVE_FIELDS))
    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.payout_page(request).respond()

    def payout_page(self, request: HttpRequest) -> flows.PayoutPage:
        return flows.PayoutPage(self, request)
