"""Payouts: money that went out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH
from payments_integration.admin.flows import pay_again
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.since import StatusSince
from payments_integration.admin.models.notes import NotedAdmin
from payments_integration.admin.shared import columns, display, masking, orders, people, twins
from payments_integration.admin.shared.buttons import Button, Tool, canceled, may
from payments_integration.admin.shared.calculation import Calculation, Row
from payments_integration.admin.shared.methods import method_name
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, OPEN_PAYOUT_STATUSES, Country, PayoutStatus
from payments_integration.models import Payout, Refund


def _rows(payout: Payout) -> Iterator[Row]:
    """What the payout takes from the balance. The provider does not say that a fee comes back."""

    def shown(amount: int) -> str:
        return display.money(amount, payout.currency)

    yield Row(_("Amount"), shown(payout.amount))
    if payout.fee is None:
        yield Row(_("Fee"), gettext("not known"), "+")
        total: str = format_html(gettext("{} and the fee"), shown(payout.amount))
    else:
        yield Row(_("Fee"), shown(payout.fee), "+")
        total = shown(payout.amount + payout.fee)
    if payout.status == PayoutStatus.SUCCEEDED:
        yield Row(_("Total debited"), total, "=")
    elif payout.status == PayoutStatus.RETURNED:
        yield Row(_("Total debited"), total, "=")
        yield Row(_("Came back"), shown(payout.amount))
    elif payout.status in (PayoutStatus.FAILED, PayoutStatus.CANCELED):
        yield Row(_("Total debited"), shown(0))
    elif payout.status in OPEN_PAYOUT_STATUSES:
        yield Row(_("Reserved from the balance"), total, "=")


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
    personal = ("recipient_name", "extra_shown")
    buttons = (
        REFRESH,
        Button(
            name="cancel",
            label=_("Cancel payout"),
            permission="cancel",
            call=lambda obj, press: services.cancel_payout(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("cancel_payout"),
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
        (_("Payout"), {"fields": ("method_named", "refund_link", "created_at", "succeeded_at")}),
        (
            _("Identifiers"),
            {"classes": ("collapse",), "fields": ("id", "reference_shown", "method_code", "country_shown")},
        ),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), PayoutStatus)
    state_shown = columns.status_with_reason(_("status"), PayoutStatus, "failure_reason")
    country_shown = columns.choice("country", _("country"), Country)
    amount_shown = columns.money("amount", _("amount"))
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    recipient_name = columns.person("destination", _("recipient"))
    method_shown = columns.method()
    refund_link = columns.row_link("refund_id", _("refund"), Refund)

    @admin.display(description=_("method"))
    def method_named(self, obj: Payout) -> str:
        return method_name(obj.method_code, obj.country)

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

    def headline(self, page: Page, obj: Payout) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, PayoutStatus)
        yield people.name(page, obj, "destination")
        yield orders.order_link(page, obj)

    def links(self, request: HttpRequest, obj: Payout) -> Iterable[Tool]:
        if self.has_add_permission(request) and pay_again.is_payable_again(obj) and not self._obstacle(obj):
            url = reverse(f"admin:{self.url_name('add')}", current_app=self.admin_site.name)
            yield Tool(_("Pay again"), f"{url}?{urlencode({'again': obj.pk})}", post=False)

    def _obstacle(self, obj: Payout) -> str:
        # The page asks twice, for the button and for its sentences.
        kept: dict[str, Any] = obj.__dict__
        if "pi_obstacle" not in kept:
            kept["pi_obstacle"] = pay_again.obstacle(self.admin_site, obj)
        found: str = kept["pi_obstacle"]
        return found

    def lead(self, page: Page, obj: Payout) -> Iterable[Section]:
        yield Calculation(list(self._sentences(obj)), list(_rows(obj)), [], _("What it takes from the balance"))
        yield from people.section(page, _("Recipient"), obj, "destination")

    def _sentences(self, obj: Payout) -> Iterator[str]:
        """Why it did not arrive, and what a person can do about it."""
        if obj.failure_reason:
            yield format_html(gettext("Failure reason: {}"), display.text(obj.failure_reason))
        if obj.status == PayoutStatus.ON_HOLD:
            yield gettext("The provider holds it. Ask the provider what it waits for.")
        elif obj.status in (PayoutStatus.FAILED, PayoutStatus.RETURNED):
            check = gettext("Check the recipient's bank account with the recipient, then press “Pay again”.")
            yield self._obstacle(obj) or check

    def sections(self, page: Page, obj: Payout) -> Iterable[Section]:
        yield from people.section(page, _("Metadata"), obj, "metadata")
        # A payout may arrive before the refund that it executes, or after it.
        refunds = Refund.objects.filter(Q(payout_id=obj.pk) | Q(pk=obj.refund_id), account=obj.account)
        yield from page.refunds(refunds, obj.object_id, of_payout=True)
        yield from super().sections(page, obj)
