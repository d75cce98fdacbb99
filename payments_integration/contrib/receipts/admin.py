"""Show the receipts by mail in the admin, and send them again."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.models.payments import MORE_TOOLS
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import NOTHING_DONE, Button, Press, Tool
from payments_integration.contrib.receipts import options
from payments_integration.contrib.receipts.models import ReceiptMail, ReceiptState, Why
from payments_integration.enums import PAID_PAYMENT_STATUSES
from payments_integration.models import Payment

SEND = "payments_receipts.send_receiptmail"


def _send_again(obj: ReceiptMail, press: Press) -> None:
    # Load the module with the first use, not at start-up.
    from payments_integration.contrib.receipts.mails import send_again  # noqa: PLC0415

    send_again(obj)


@admin.register(ReceiptMail)
class ReceiptMailAdmin(ReadOnlyAdmin):
    change_list_template = "admin/payments_integration/change_list.html"
    change_form_template = "admin/payments_integration/change_form.html"
    object_history_template = "admin/payments_integration/object_history.html"
    linked = ("payment_shown",)
    list_display = ("payment_shown", "state_shown", "reason_shown", "account", "queued_at", "tried_at")
    list_display_links = ("state_shown",)
    list_filter = (filters.known("state", _("state"), ReceiptState, open_ended=False), filters.ACCOUNT)
    ordering = ("-queued_at", "-pk")
    sortable_by = ("queued_at",)
    search_fields = ("payment_id__exact",)
    search_help_text = _("The whole id of a payment")
    fieldsets = (
        (None, {"fields": ("payment_shown", "state_shown", "reason_shown", "account")}),
        (_("Times"), {"fields": ("queued_at", "tried_at")}),
    )
    buttons = (
        Button(
            name="send-again",
            label=_("Send again"),
            permission=SEND,
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

    def get_urls(self) -> list[URLPattern]:
        return [self._path("of-payment/<path:payment_id>/", "of-payment", self.of_payment_view), *super().get_urls()]

    def of_payment_view(self, request: HttpRequest, payment_id: str) -> HttpResponse:
        """Send a payment's receipt again, or for the first time: the button on its page."""
        payments = self.admin_site.get_model_admin(Payment) if self.admin_site.is_registered(Payment) else None
        if payments is None or not request.user.has_perm(SEND):
            raise PermissionDenied
        payment = payments.get_object(request, unquote(payment_id))
        if not payments.has_view_permission(request, payment):
            raise PermissionDenied
        if payment is None:
            raise Http404
        from payments_integration.contrib.receipts.mails import send_of  # noqa: PLC0415  (with the first use)

        if request.method != "POST":
            payments.message_user(request, NOTHING_DONE, messages.WARNING)
        elif not _may_have_one(payment):
            payments.message_user(request, _("This payment gets no receipt by mail."), messages.ERROR)
        elif send_of(payment):
            payments.log_change(request, payment, gettext("Receipt sent again by mail."))
            payments.message_user(request, _("The receipt will be sent within a minute or so."), messages.SUCCESS)
        else:
            payments.message_user(request, _("The receipt is already on its way."), messages.WARNING)
        return HttpResponseRedirect(display.change_url(self.admin_site, Payment, payment.pk))


def _button(site: AdminSite, request: HttpRequest, payment: Payment) -> Iterable[Tool]:
    """Yield the button for a payment's page."""
    if _may_have_one(payment) and site.is_registered(ReceiptMail) and request.user.has_perm(SEND):
        url = display.page_url(site, ReceiptMail, "of-payment", payment.pk)
        yield Tool(_("Send the receipt again"), url, question=_("The payer may get the receipt twice."))


def _may_have_one(payment: Payment) -> bool:
    """Return True if receipts are sent, and the payment is paid and has an address. Takes no statement."""
    has_address = isinstance(payment.payer, dict) and bool(payment.payer.get("email"))
    return options.is_on() and payment.status in PAID_PAYMENT_STATUSES and has_address


MORE_TOOLS.append(_button)
