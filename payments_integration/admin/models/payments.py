"""Payments: money that came in, and the links to refund it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _, pgettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH
from payments_integration.admin.dashboard.search import SearchPage
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.filters import Lookup
from payments_integration.admin.lists.since import StatusSince
from payments_integration.admin.models.notes import NotedAdmin
from payments_integration.admin.shared import columns, display, masking, next_actions, orders, people, twins
from payments_integration.admin.shared.buttons import Button, Tool, canceled, may
from payments_integration.admin.shared.calculation import calculation
from payments_integration.admin.shared.methods import method_name
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.enums import (
    CANCELABLE_PAYMENT_STATUSES,
    Country,
    Flow,
    MethodFamily,
    PaymentStatus,
)
from payments_integration.models import Payment, payer_document, payer_email, refundable_rest


@admin.register(Payment)
class PaymentAdmin(NotedAdmin):
    list_display = (
        "id", "state_shown", "amounts_shown", "payer_name", "reference_shown", "method_shown", "account", "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("status", _("status"), PaymentStatus),
        filters.FAMILY,
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        filters.days("created_at"),
        filters.success_days(),
        StatusSince,
    )
    aged = ("created_at", "succeeded_at")
    totals = ("amount", "amount_received", "refunded_amount")
    finds_terms = True
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _(
        "An id, amount, merchant reference, bank reference, voucher or QR code; the payer's name, e-mail address, "
        "document or phone. The beginning of each word is enough."
    )
    list_defer = ("next_action", "metadata", "extra", "checkout_url")
    personal = ("payer_name", "extra_shown")
    actions = ("refund_selected",)
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payment"),
            permission="cancel",
            call=lambda obj, press: services.cancel_payment(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("cancel_payment"),
            done=canceled,
            logged=_("Canceled at the provider."),
            shown=lambda obj: obj.status in CANCELABLE_PAYMENT_STATUSES,
            question=_("The payer can no longer pay it."),
        ),
    )
    export = (
        "id", "status", "amount", "amount_received", "refunded_amount", "fee", "net_amount", "currency", "country",
        "method_code", "method_family", "flow", "merchant_reference", "failure_reason", "payer_email",
        "payer_document", "account", "created_at", "expires_at", "succeeded_at",
    )  # fmt: skip
    export_personal = ("payer_email", "payer_document")
    fieldsets = (
        (
            _("Identifiers"),
            {
                "classes": ("collapse",),
                "fields": (
                    "id", "reference_shown", "method_code", "family_shown", "flow_shown", "country_shown",
                    "checkout_link",
                ),
            },
        ),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), PaymentStatus)
    state_shown = columns.status_with_reason(_("status"), PaymentStatus, "failure_reason")
    country_shown = columns.choice("country", _("country"), Country)
    family_shown = columns.choice("method_family", _("method family"), MethodFamily)
    flow_shown = columns.choice("flow", _("flow"), Flow)
    amounts_shown = columns.refunded("amount", _("amount"))
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    method_shown = columns.method()
    checkout_link = columns.web_link("checkout_url", _("checkout URL"))
    payer_name = columns.person("payer", _("payer"))

    def get_lookups(self, request: HttpRequest, term: str) -> list[Lookup]:
        found = super().get_lookups(request, term)
        # Whether a search finds an address reveals personal data, so it needs the permission to see it.
        if self.sees_personal(request):
            email, document = payer_email({"email": term}), payer_document({"document": {"number": term}})
            if "@" in email:
                found.append(Lookup(Q(payer_email=email)))
            if document:
                found.append(Lookup(Q(payer_document=document)))
        return found

    def has_refund_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "refund_payment", obj)

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "cancel_payment", obj)

    def get_urls(self) -> list[URLPattern]:
        return [
            self.list_path("refund-selected", self.refund_selected_view),
            self.list_path("methods", self.methods_view),
            self.list_path("search", self.search_view),
            self.list_path("orders", self.orders_view),
            self.object_path("refund", self.refund_view),
            *super().get_urls(),
        ]

    # An error report must not contain the bank account.
    @method_decorator(sensitive_post_parameters(*masking.SENSITIVE_FIELDS))
    def refund_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        payment = self.permitted(request, object_id, "refund")
        return flows.RefundPage(self, request, payment).respond()

    @admin.action(description=_("Refund selected payments"), permissions=["refund"])
    def refund_selected(self, request: HttpRequest, queryset: QuerySet[Payment]) -> HttpResponse | None:
        chosen = list(queryset[: flows.MAX_PAYMENTS + 1])
        if len(chosen) > flows.MAX_PAYMENTS:
            words = _("Select at most %(most)d payments to refund at once.") % {"most": flows.MAX_PAYMENTS}
            self.message_user(request, words, messages.WARNING)
            return None
        if len(chosen) == 1:
            return HttpResponseRedirect(self.object_url("refund", chosen[0]))
        return HttpResponseRedirect(flows.bulk_refund_url(self, [payment.pk for payment in chosen]))

    def refund_selected_view(self, request: HttpRequest) -> HttpResponse:
        return flows.BulkRefundPage(self, request).respond()

    def methods_view(self, request: HttpRequest) -> HttpResponse:
        return flows.PaymentMethodsPage(self, request).respond()

    def search_view(self, request: HttpRequest) -> HttpResponse:
        # Not about payments only: the page checks which rows the user may see.
        return SearchPage(self, request).respond()

    def orders_view(self, request: HttpRequest) -> HttpResponse:
        # Loaded with the first page that is opened, not at start-up.
        from payments_integration.admin.dashboard.orders import OrdersPage  # noqa: PLC0415

        return OrdersPage(self, request).respond()

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        url = reverse(f"admin:{self.url_name('methods')}", current_app=self.admin_site.name)
        yield Tool(_("Payment methods"), url, post=False)

    def headline(self, page: Page, obj: Payment) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, PaymentStatus)
        yield people.name(page, obj, "payer")
        yield orders.order_link(page, obj)

    def lead(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield calculation(obj)

    def links(self, request: HttpRequest, obj: Payment) -> Iterable[Tool]:
        if self.has_refund_permission(request, obj) and refundable_rest(obj) > 0:
            yield Tool(pgettext_lazy("button", "Refund"), self.object_url("refund", obj), post=False)

    def sections(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield from people.section(page, _("Payer"), obj, "payer")
        yield from next_actions.section(page, _("What the payer was shown"), obj, "next_action")
        yield people.Facts(_("Payment"), list(_details(obj)))
        yield from people.section(page, _("Metadata"), obj, "metadata")
        yield from page.refunds(obj.refunds.all(), obj.object_id)
        yield from super().sections(page, obj)


def _details(payment: Payment) -> Iterable[people.Fact]:
    yield _("Method"), method_name(payment.method_code, payment.country)
    for label, at in (
        (_("Created at"), payment.created_at),
        (_("Expires at"), payment.expires_at),
        (_("Succeeded at"), payment.succeeded_at),
    ):
        if at:
            yield label, display.moment(at)
