"""The movements, the monthly statement and the receipts by mail in the admin."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, reverse
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Button, Press, Tool, may_view
from payments_integration.contrib.finance.models import Movement, MovementKind, ReceiptMail, ReceiptState, Why
from payments_integration.models import Balance, Payment


@admin.register(Movement)
class MovementAdmin(ReadOnlyAdmin):
    change_list_template = "admin/payments_integration/change_list.html"
    change_form_template = "admin/payments_integration/change_form.html"
    object_history_template = "admin/payments_integration/object_history.html"
    list_display = ("booked_on", "kind_shown", "amount_shown", "object_shown", "account", "occurred_at")
    list_filter = (filters.ACCOUNT,)
    ordering = ("-booked_on", "-pk")
    sortable_by = ("booked_on",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of a payment, refund or payout")
    export = (
        "id", "booked_on", "occurred_on", "kind", "amount", "currency", "object_id", "account", "occurred_at",
        "recorded_at",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("kind_shown", "amount_shown", "object_shown", "account")}),
        (_("Times"), {"fields": ("booked_on", "occurred_on", "occurred_at", "recorded_at")}),
    )

    kind_shown = columns.choice("kind", _("kind"), MovementKind)
    amount_shown = columns.money("amount", _("amount"))

    @admin.display(description=_("object"))
    def object_shown(self, obj: Movement) -> str:
        return display.object_link(self.admin_site, obj.account, obj.object_kind, obj.object_id)

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("statement", self.statement_view), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.has_statement_permission(request):
            url = reverse(f"admin:{self.url_name('statement')}", current_app=self.admin_site.name)
            yield Tool(_("Monthly statement"), url, post=False)

    def has_statement_permission(self, request: HttpRequest) -> bool:
        """The statement shows balances, too."""
        return self.has_view_permission(request) and may_view(self.admin_site, request, Balance)

    def statement_view(self, request: HttpRequest) -> HttpResponseBase:
        if not self.has_statement_permission(request):
            raise PermissionDenied
        # Loaded with the first page that is opened, not at start-up.
        from payments_integration.contrib.finance.statement import StatementPage  # noqa: PLC0415

        return StatementPage(self, request).respond()


def _send_again(obj: ReceiptMail, press: Press) -> None:
    # Loaded with the first use, not at start-up.
    from payments_integration.contrib.finance.receipt_mails import send_again  # noqa: PLC0415

    send_again(obj)


@admin.register(ReceiptMail)
class ReceiptMailAdmin(ReadOnlyAdmin):
    change_list_template = "admin/payments_integration/change_list.html"
    change_form_template = "admin/payments_integration/change_form.html"
    object_history_template = "admin/payments_integration/object_history.html"
    list_display = ("payment_shown", "state_shown", "reason_shown", "account", "queued_at", "tried_at")
    list_filter = (filters.known("state", _("state"), ReceiptState, open_ended=False), filters.ACCOUNT)
    ordering = ("-queued_at", "-pk")
    sortable_by = ("queued_at",)
    search_fields = ("payment_id__exact",)
    search_help_text = _("The whole id of a payment")
    export = ("id", "payment_id", "state", "reason", "account", "queued_at", "tried_at")
    fieldsets = (
        (None, {"fields": ("payment_shown", "state_shown", "reason_shown", "account")}),
        (_("Times"), {"fields": ("queued_at", "tried_at")}),
    )
    buttons = (
        Button(
            name="send-again",
            label=_("Send again"),
            permission="send",
            call=_send_again,
            twin=None,
            done=_("The receipt will be sent within a minute or so."),
            logged=_("Sent again by mail."),
            shown=lambda obj: obj.state not in (ReceiptState.QUEUED, ReceiptState.SENDING),
            question=_("The payer may get the receipt twice."),
        ),
    )

    state_shown = columns.status(_("state"), ReceiptState, "state")

    @admin.display(description=_("payment"))
    def payment_shown(self, obj: ReceiptMail) -> str:
        return display.admin_link(self.admin_site, Payment, obj.payment_id)

    @admin.display(description=_("reason"))
    def reason_shown(self, obj: ReceiptMail) -> str:
        return display.text(dict(Why.choices).get(obj.reason, obj.reason))

    def has_send_permission(self, request: HttpRequest, obj: ReceiptMail | None = None) -> bool:
        return request.user.has_perm("payments_finance.send_receiptmail")
