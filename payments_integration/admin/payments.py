"""Payments: money that came in, and the door to refunding it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import columns, display, filters
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin
from payments_integration.admin.buttons import Button, Tool, may
from payments_integration.admin.refunding import RefundPage
from payments_integration.admin.sections import Page, Section
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, Country, PaymentStatus
from payments_integration.models import Payment


@admin.register(Payment)
class PaymentAdmin(MirrorAdmin):
    list_display = (
        "id", "status_shown", "amounts_shown", "method_shown", "reference_shown", "account", "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("status", _("status"), PaymentStatus),
        filters.FAMILY,
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        "created_at",
    )
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _("The beginning of an id, or a whole merchant reference")
    list_defer = ("payer", "next_action", "metadata", "extra", "checkout_url", "failure_reason")
    actions = ("refund_selected",)
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payment"),
            permission="cancel",
            call=lambda obj, press: services.cancel_payment(obj, idempotency_key=press.key, actor=press.user),
            done=_("The payment was canceled."),
            logged=_("Canceled at the provider."),
            shown=lambda obj: obj.status in CANCELABLE_PAYMENT_STATUSES,
            question=_("The payer will not be able to pay it any more."),
        ),
    )
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "failure_shown", "reference_shown", "country_shown")}),
        (
            _("Money"),
            {
                "fields": (
                    "amount_shown", "received_shown", "refunded_shown", "rest_shown", "fee_shown", "net_shown",
                    "currency",
                )
            },
        ),
        (
            _("Method"),
            {"fields": ("method_code", "method_family", "flow", "checkout_link", "next_action_shown")},
        ),
        (_("Payer"), {"fields": ("payer_shown", "metadata_shown")}),
        (_("Times"), {"fields": ("created_at", "expires_at", "succeeded_at")}),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), PaymentStatus)
    country_shown = columns.choice("country", _("country"), Country)
    amount_shown = columns.money("amount", _("amount"))
    amounts_shown = columns.money("amount", _("amount"), less="refunded_amount", words=_("refunded {}"))
    received_shown = columns.money("amount_received", _("amount received"))
    refunded_shown = columns.money("refunded_amount", _("refunded"))
    rest_shown = columns.money("refundable_amount", _("refundable"))
    fee_shown = columns.money("fee", _("fee"))
    net_shown = columns.money("net_amount", _("net amount"))
    failure_shown = columns.plain("failure_reason", _("failure reason"))
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    checkout_link = columns.web_link("checkout_url", _("checkout URL"))
    next_action_shown = columns.json("next_action", _("next action"))
    payer_shown = columns.json("payer", _("payer"))
    metadata_shown = columns.json("metadata", _("metadata"))

    @admin.display(description=_("method and country"))
    def method_shown(self, obj: Payment) -> str:
        return format_html(
            '{}<br><span class="pi-less">{}</span>', display.text(obj.method_code), self.country_shown(obj)
        )

    def has_refund_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "refund_payment", obj)

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "cancel_payment", obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.object_path("refund", self.refund_view), *super().get_urls()]

    # An error report must not repeat where money goes.
    @method_decorator(sensitive_post_parameters("account_number", "holder_name", "document_number"))
    def refund_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        payment = self.permitted(request, object_id, "refund")
        return RefundPage(self, request, payment).respond()

    @admin.action(description=_("Refund selected payment"), permissions=["refund"])
    def refund_selected(self, request: HttpRequest, queryset: QuerySet[Payment]) -> HttpResponse | None:
        chosen = list(queryset[:2])
        if len(chosen) != 1:
            self.message_user(request, _("Select exactly one payment to refund."), messages.WARNING)
            return None
        return HttpResponseRedirect(self.object_url("refund", chosen[0]))

    def links(self, request: HttpRequest, obj: Payment) -> Iterable[Tool]:
        if obj.refundable_amount > 0 and self.has_refund_permission(request, obj):
            yield Tool(_("Refund"), self.object_url("refund", obj), post=False)

    def sections(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield from page.refunds(obj.refunds.all(), obj.object_id)
        yield from page.history(obj)
