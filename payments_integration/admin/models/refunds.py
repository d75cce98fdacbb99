"""Refunds: money that went back to payers."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.since import StatusSince
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.enums import RefundStatus
from payments_integration.models import Payment, Payout, Refund


@admin.register(Refund)
class RefundAdmin(MirrorAdmin):
    list_display = (
        "id", "status_shown", "amount_shown", "payment_link", "payment_reference", "payout_link", "account",
        "created_at",
    )  # fmt: skip
    list_filter = (
        filters.known("status", _("status"), RefundStatus),
        filters.CURRENCY,
        filters.ACCOUNT,
        filters.days("created_at"),
        StatusSince,
    )
    list_select_related = ("payment",)
    # Of the payment, only its merchant reference is shown.
    list_defer = (
        "extra", "reason", "payment__payer", "payment__next_action", "payment__metadata", "payment__extra",
        "payment__checkout_url", "payment__failure_reason",
    )  # fmt: skip
    finds_terms = True
    search_fields = ("id__startswith", "payment_id__exact", "payout_id__exact")
    search_help_text = _("The beginning of an id, an amount, or the whole id of the payment or payout")
    personal = ("reason_shown", "extra_shown")
    export = (
        "id", "status", "amount", "currency", "payment_id", "payment__merchant_reference", "payout_id", "reason",
        "account", "created_at",
    )  # fmt: skip
    export_personal = ("reason",)
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "reason_shown")}),
        (_("Money"), {"fields": ("amount_shown", "currency")}),
        (_("Belongs to"), {"fields": ("payment_link", "payment_reference", "payout_link")}),
        (_("Times"), {"fields": ("created_at",)}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(_("status"), RefundStatus)
    amount_shown = columns.money("amount", _("amount"))
    reason_shown = columns.plain("reason", _("reason"))
    payment_link = columns.row_link("payment_id", _("payment"), Payment)
    payout_link = columns.row_link("payout_id", _("payout"), Payout)

    @admin.display(description=_("merchant reference"))
    def payment_reference(self, obj: Refund) -> str:
        try:
            payment = obj.payment
        except Payment.DoesNotExist:
            # It may arrive after its refund.
            return display.EMPTY
        return display.text(payment.merchant_reference if payment else None)

    def sections(self, page: Page, obj: Refund) -> Iterable[Section]:
        yield from page.payouts(
            Payout.objects.filter(Q(refund_id=obj.pk) | Q(pk=obj.payout_id), account=obj.account), obj.object_id
        )
        yield from super().sections(page, obj)
