"""Show payouts: money that went out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, masking, orders, people, twins
from payments_integration.admin.shared.buttons import Button, Tool, Weight, canceled, may
from payments_integration.admin.shared.calculation import Calculation, Row
from payments_integration.admin.shared.menu import Place
from payments_integration.admin.shared.methods import method_name, reason_text
from payments_integration.admin.shared.sections import Advice, Page, Section
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, OPEN_PAYOUT_STATUSES, Country, PayoutStatus
from payments_integration.models import Payout, Refund
from payments_integration.money import format_money


def _rows(payout: Payout) -> Iterator[Row]:
    """Yield what the payout takes from the balance. The provider does not say that a fee comes back."""

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
class PayoutAdmin(MirrorAdmin):
    menu_place = Place.PAYOUTS
    list_display = (
        "amount_shown", "state_shown", "recipient_name", "reference_shown", "method_shown", "created_at",
        "refund_link", "account", "id",
    )  # fmt: skip
    list_filter: ClassVar[Any] = (
        filters.known("status", _("status"), PayoutStatus),
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        filters.days("created_at"),
    )
    search_fields = ("id__startswith", "merchant_reference__exact", "refund_id__exact")
    search_help_text = _("The beginning of an id; the whole merchant reference, or the whole id of the refund")
    list_defer = ("metadata", "extra")
    personal = ("state_shown", "recipient_name", "extra_shown")
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
    fieldsets = (
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

    def has_add_permission(self, request: HttpRequest) -> bool:
        # Django's index and lists link to the add page, which is one of our own.
        return may(request, "create_payout")

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.has_add_permission(request):
            url = display.page_url(self.admin_site, Payout, "add")
            yield Tool(gettext("New payout"), url, post=False, weight=Weight.MAIN)

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("add", self.add_view), *super().get_urls()]

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

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "cancel_payout", obj)

    def headline(self, page: Page, obj: Payout) -> Iterable[str]:
        yield display.money(obj.amount, obj.currency)
        yield display.status(obj.status, PayoutStatus)
        yield people.name(page, obj, "destination")
        yield orders.order_link(page, obj)

    def whose(self, page: Page, obj: Payout) -> Iterable[str]:
        yield format_money(obj.amount, obj.currency)
        yield people.name(page, obj, "destination")

    def aside(self, page: Page, obj: Payout) -> Iterable[Section]:
        yield Calculation([], list(_rows(obj)), [], _("What it takes from the balance"))
        yield from people.section(page, _("Recipient"), obj, "destination")
        facts: list[people.Fact] = [
            (_("Order"), display.text(obj.merchant_reference)),
            (_("Method"), method_name(obj.method_code)),
            (_("Refund"), display.admin_link(page.site, Refund, obj.refund_id) if obj.refund_id else ""),
            (_("Created at"), display.moment(obj.created_at)),
            (_("Succeeded at"), display.moment(obj.succeeded_at) if obj.succeeded_at else ""),
        ]
        yield people.Facts(_("Payout"), facts)
        yield from people.section(page, _("Metadata"), obj, "metadata")

    def lead(self, page: Page, obj: Payout) -> Iterable[Section]:
        if sentences := list(self.sentences(page, obj)):
            yield Advice(_("What it means"), sentences)

    def sentences(self, page: Page, obj: Payout) -> Iterator[str]:
        """Say why it did not arrive, and what a person can do about it."""
        if obj.failure_reason:
            yield format_html(gettext("Failure reason: {}"), page.personal(reason_text(obj.failure_reason)))
        if obj.status == PayoutStatus.ON_HOLD:
            yield gettext("The provider holds it. Ask the provider what it waits for.")

    def details(self, page: Page, obj: Payout) -> Iterable[Section]:
        yield from super().details(page, obj)
        # A payout may arrive before the refund that it executes, or after it.
        refunds = Refund.objects.filter(Q(payout_id=obj.pk) | Q(pk=obj.refund_id), account=obj.account)
        yield from page.refunds(refunds, obj.object_id, of_payout=True)
