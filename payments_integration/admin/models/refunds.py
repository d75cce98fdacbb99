"""Show refunds: money that went back to payers."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, people
from payments_integration.enums import RefundStatus
from payments_integration.models import Payment, Payout, Refund


@admin.register(Refund)
class RefundAdmin(MirrorAdmin):
    list_display = (
        "amount_shown", "status_shown", "payer_name", "payment_shown", "reason_start", "created_at", "payout_link",
        "account", "id",
    )  # fmt: skip
    list_filter: ClassVar[Any] = (
        filters.known("status", _("status"), RefundStatus),
        filters.CURRENCY,
        filters.ACCOUNT,
        "created_at",
    )
    list_select_related = ("payment",)
    # The list shows only the payer and the merchant reference of the payment.
    list_defer = (
        "extra", "payment__next_action", "payment__metadata", "payment__extra", "payment__checkout_url",
        "payment__failure_reason",
    )  # fmt: skip
    search_fields = ("id__startswith", "payment_id__exact", "payout_id__exact")
    search_help_text = _("The beginning of an id, or the whole id of the payment or payout")
    linked = ("payer_name", "payment_reference", "payment_shown", "payment_link", "payout_link")
    personal: tuple[str, ...] = ("payer_name", "reason_start", "reason_shown", "extra_shown")
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (
            "id", "status_shown", "amount_shown", "reason_shown", "payment_link", "payment_reference",
            "payer_name", "payout_link", "created_at",
        )}),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), RefundStatus)
    amount_shown = columns.money("amount", _("amount"))
    reason_start = columns.beginning("reason", _("reason"))
    reason_shown = columns.reason("reason", _("reason"))
    payment_link = columns.row_link("payment_id", _("payment"), Payment)
    payout_link = columns.row_link("payout_id", _("payout"), Payout)

    @admin.display(description=_("merchant reference"))
    def payment_reference(self, obj: Refund) -> str:
        payment = self._payment(obj)
        return display.text(payment.merchant_reference if payment else None)

    @admin.display(description=_("payment"))
    def payment_shown(self, obj: Refund) -> str:
        payment = self._payment(obj)
        reference = payment.merchant_reference if payment else None
        return display.admin_link(self.admin_site, Payment, obj.payment_id, reference or None)

    @admin.display(description=_("payer"))
    def payer_name(self, obj: Refund) -> str:
        payment = self._payment(obj)
        return columns.person_in(payment, "payer") if payment else display.EMPTY

    def _payment(self, obj: Refund) -> Payment | None:
        """Return the payment; None if it has not arrived yet or the user may not see it."""
        return people.known_payment(obj) if display.opens(self.admin_site, Payment) else None
