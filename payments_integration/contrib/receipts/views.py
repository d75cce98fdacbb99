"""Show the payer's receipt: a page that prints well. Anyone with the token of the status page may see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.generic import TemplateView

from payments_integration import conf
from payments_integration.checkout import CheckoutView
from payments_integration.dates import with_zone
from payments_integration.enums import PAID_PAYMENT_STATUSES
from payments_integration.models import Payment, Refund, StatusChange, refunded_so_far
from payments_integration.money import format_for_payer
from payments_integration.payer.links import STATUS, path
from payments_integration.payer.texts import visible

#: The setting with the merchant's name, tax number and address, one line each.
ISSUER = "PAYMENTS_RECEIPT_ISSUER"


class ReceiptView(CheckoutView, TemplateView):
    """The receipt of a paid payment; 404 for any other.

    Templates get ``payment``, ``issuer`` (lines), ``amount``, ``refunded`` (empty without refunds), ``paid_at``,
    ``paid_in_words``, ``reference`` and ``status_url``. The page shows nothing about the payer.
    """

    template_name: str = "payments_integration/receipt.html"

    payment: Payment

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.subject = self.read_token(kwargs["token"])
        payment = self.get_payment()
        if payment is None or payment.status not in PAID_PAYMENT_STATUSES:
            raise Http404
        self.payment = payment
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        status_url = path(STATUS, self.kwargs["token"])
        return super().get_context_data(**{**facts(self.payment), "status_url": status_url, **kwargs})


def facts(payment: Payment) -> dict[str, Any]:
    """Return the facts on a receipt, for its page and its mail."""
    refunds = Refund.objects.filter(account=payment.account, payment_id=payment.pk)
    refunded, moment = refunded_so_far(payment, refunds), paid_at(payment)

    def money(amount: int) -> str:
        return format_for_payer(amount, payment.currency, payment.country)

    return {
        "payment": payment,
        "is_test": conf.is_test(payment.account),
        "issuer": str(getattr(settings, ISSUER, "")).splitlines(),
        "amount": money(payment.amount_received),
        "refunded": money(refunded) if refunded else "",
        "paid_at": moment,
        "paid_in_words": with_zone(moment, payment.country),
        "reference": visible(payment.merchant_reference or ""),
    }


def paid_at(payment: Payment) -> datetime:
    """Return the provider's time of success or, if there is none, the time of the change of status.

    ``state_at`` is the last choice, because it moves on with each read.
    """
    changes = StatusChange.objects.filter(
        account=payment.account, object_kind=payment.kind, object_id=payment.pk, status__in=PAID_PAYMENT_STATUSES
    )
    change = None if payment.succeeded_at else changes.order_by("at", "pk").first()
    return payment.succeeded_at or (change.at if change is not None else payment.state_at)
