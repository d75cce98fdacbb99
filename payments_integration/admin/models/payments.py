"""Show payments: money that came in, and the links to refund it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _, pgettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, masking, twins
from payments_integration.admin.shared.buttons import Button, Tool, Weight, canceled, may
from payments_integration.admin.shared.sections import Page, Section, once
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, Country, Flow, MethodFamily, PaymentStatus
from payments_integration.models import (
    Payment,
    RefundFigures,
    payer_document,
    payer_email,
    refunds_and_promises,
    rest_after,
)
from payments_integration.payer import links

#: Functions that return more buttons for a payment's page. An optional app adds its own.
MORE_TOOLS: list[Callable[[AdminSite, HttpRequest, Payment], Iterable[Tool]]] = []


@admin.register(Payment)
class PaymentAdmin(MirrorAdmin):
    list_display = (
        "amount_shown", "state_shown", "payer_name", "reference_shown", "method_shown", "created_at", "account", "id",
    )  # fmt: skip
    list_filter: ClassVar[Any] = (
        filters.known("status", _("status"), PaymentStatus),
        filters.Refunded,
        filters.FAMILY,
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        "created_at",
    )
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _(
        "The beginning of an id; the whole merchant reference, e-mail address or document of the payer"
    )
    list_defer = ("next_action", "metadata", "extra", "checkout_url")
    personal: tuple[str, ...] = (
        "state_shown", "failure_reason_shown", "payer_name", "payer_shown", "next_action_shown", "metadata_shown",
        "extra_shown",
    )  # fmt: skip
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payment"),
            permission="cancel_payment",
            call=lambda obj, press: services.cancel_payment(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("cancel_payment"),
            done=canceled,
            logged=_("Canceled at the provider."),
            shown=lambda obj: display.can_send(obj) and obj.status in CANCELABLE_PAYMENT_STATUSES,
            question=_("The payer can no longer pay it."),
        ),
    )
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (
            "id", "status_shown", "failure_reason_shown", "amount_shown", "received_shown", "refunded_shown",
            "fee_shown", "net_shown", "payer_shown", "reference_shown", "method_shown", "created_at",
            "expires_at", "succeeded_at",
        )}),
        (_("What the payer was shown"), {"fields": ("next_action_shown", "checkout_link")}),
        (_("Details"), {"fields": ("method_code", "family_shown", "flow_shown", "country_shown", "metadata_shown")}),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), PaymentStatus)
    state_shown = columns.status_with_reason(_("status"), PaymentStatus, "failure_reason", also=columns.refunded)
    country_shown = columns.choice("country", _("country"), Country)
    family_shown = columns.choice("method_family", _("method family"), MethodFamily)
    flow_shown = columns.choice("flow", _("flow"), Flow)
    amount_shown = columns.money("amount", _("amount"))
    reference_shown = columns.value("merchant_reference", _("merchant reference"), display.text)
    method_shown = columns.method()
    checkout_link = columns.value("checkout_url", _("checkout URL"), display.web_link)
    payer_name = columns.person("payer", _("payer"))
    failure_reason_shown = columns.reason("failure_reason", _("failure reason"))
    received_shown = columns.money("amount_received", _("amount received"))
    refunded_shown = columns.money("refunded_amount", _("refunded amount"))
    fee_shown = columns.money("fee", _("fee"))
    net_shown = columns.money("net_amount", _("net amount"))
    payer_shown = columns.fields("payer", _("payer"))
    next_action_shown = columns.fields("next_action", _("next action"))
    metadata_shown = columns.fields("metadata", _("metadata"))

    def get_lookups(self, request: HttpRequest, term: str) -> list[filters.Lookup]:
        found = super().get_lookups(request, term)
        # The result of a search for an address reveals personal data, so it needs the permission to see such data.
        if self.sees_personal(request):
            email, document = payer_email({"email": term}), payer_document({"document": {"number": term}})
            if "@" in email:
                found.append(filters.Lookup(Q(payer_email=email)))
            if document:
                found.append(filters.Lookup(Q(payer_document=document)))
        return found

    def has_refund_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "refund_payment", obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.object_path("refund", self.refund_view), *super().get_urls()]

    # An error report must not contain the bank account.
    @method_decorator(sensitive_post_parameters(*masking.SENSITIVE_FIELDS))
    def refund_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        payment = self.permitted(request, object_id, self.has_refund_permission)
        if words := display.removed(payment.account):
            self.message_user(request, words, messages.WARNING)
            return self.back(request, payment)
        return self.refund_page(request, payment).respond()

    def refund_page(self, request: HttpRequest, payment: Payment) -> flows.RefundPage:
        return flows.RefundPage(self, request, payment)

    def sections(self, page: Page, obj: Payment) -> Iterable[Section]:
        yield from page.refunds(obj.refunds.all(), obj.object_id)
        yield from super().sections(page, obj)

    def links(self, request: HttpRequest, obj: Payment) -> Iterable[Tool]:
        is_refundable = not display.removed(obj.account) and rest_after(obj, *figures(obj)) > 0
        if is_refundable and self.has_refund_permission(request, obj):
            url = self.object_url("refund", obj)
            yield Tool(pgettext_lazy("button", "Refund"), url, post=False, weight=Weight.MAIN)
        # Anyone who has the address of that page sees the payer's data.
        if self.sees_personal(request) and (url := payers_page(obj)):
            yield Tool(_("The payer's page"), url, post=False)
        for more in MORE_TOOLS:
            yield from more(self.admin_site, request, obj)


def figures(payment: Payment) -> tuple[list[RefundFigures], int]:
    """Return ``refunds_and_promises`` of the row of a page."""
    return once(payment, "pi_figures", lambda: refunds_and_promises(payment))


def payers_page(payment: Payment) -> str:
    """Return the path of the page that shows the payer the payment's status; empty if the project has no such page."""
    try:
        return links.path(links.STATUS, links.status_token(links.Subject(payment.account, payment_id=payment.pk)))
    except NoReverseMatch:
        return ""
