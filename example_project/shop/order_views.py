"""The page of an order, and the payer's actions. It shows what the mirror says and ignores the query string."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from example_project.shop import checkout, sessions
from example_project.shop.forms import PayAgainForm, new_submission
from example_project.shop.models import Order, OrderStatus
from example_project.shop.orders import Attempt, current_attempt, may_begin, settle, up_to_date
from example_project.shop.provider import MethodsUnavailable, method_name, methods, refreshed
from example_project.shop.views import UNREACHABLE, explain, send_on
from payments_integration.checkout import CheckoutReturnView
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.exceptions import OutcomeUnknown, PaymentsError
from payments_integration.models import Payment, Refund
from payments_integration.money import format_for_payer

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Seconds after which a waiting page without scripts reloads; longer while there is something to type.
RELOAD_SECONDS, RELOAD_SECONDS_WITH_DETAILS = 3, 15
#: The number of an order's attempts that are read before another one begins.
READ_ATTEMPTS = 5
WAITING = (OrderStatus.NEW, OrderStatus.REVIEW, OrderStatus.PARTIALLY_PAID)
REFUND_WORDS = {
    "created": gettext_lazy("on its way to you"),
    "processing": gettext_lazy("on its way to you"),
    "succeeded": gettext_lazy("sent back"),
    "failed": gettext_lazy("did not work; we look after it"),
    "canceled": gettext_lazy("did not work; we look after it"),
    "returned": gettext_lazy("came back to us; we look after it"),
}


@never_cache
@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    """The orders created in this browser."""
    mine = Order.objects.filter(reference__in=sessions.remembered(request, Order)).select_related("product")
    return render(request, "shop/orders.html", {"orders": mine})


@never_cache
@require_GET
def order(request: HttpRequest, reference: str) -> HttpResponse:
    """The order's status. The page's script reads this page repeatedly and shows what has changed."""
    order = _order(reference)
    payment = order.payment
    if payment is not None and payment.status in OPEN_PAYMENT_STATUSES:
        refreshed(payment)
        order.refresh_from_db()
        payment = order.payment
    order = up_to_date(order)
    attempt = current_attempt(order)
    return render(request, "shop/order.html", _context(request, order, payment, attempt))


def _context(request: HttpRequest, order: Order, payment: Payment | None, attempt: Attempt) -> dict[str, Any]:
    totals = order.totals_in(order.currency)
    is_waiting = order.status in WAITING
    is_open = payment is not None and payment.status in OPEN_PAYMENT_STATUSES
    is_checking = attempt.is_pending and not attempt.is_unsent
    # Also if the provider has the money and the shop's handler was not called yet.
    is_awaited = order.status in (OrderStatus.NEW, OrderStatus.PARTIALLY_PAID)
    is_looking = (is_awaited and sessions.has_returned(request, order)) or (
        order.status == OrderStatus.NEW and not is_open
    )
    is_asked = is_awaited and is_open and not is_looking
    is_mine = sessions.is_mine(request, order)
    is_cancelable = payment is not None and payment.status in CANCELABLE_PAYMENT_STATUSES
    return {
        "order": order,
        "payment": payment,
        "is_mine": is_mine,
        "is_waiting": is_waiting,
        "is_checking": is_checking,
        "is_unsent": attempt.is_unsent and order.status == OrderStatus.NEW,
        "is_looking": is_looking and not attempt.is_pending,
        "asked": payment if is_asked and not attempt.is_pending else None,
        "submission": new_submission(),
        "may_cancel": is_mine and is_cancelable and order.status == OrderStatus.NEW,
        "may_pay_again": is_mine and may_begin(order, attempt),
        "attempts": [(each, method_name(each.method_code)) for each in order.payments],
        "refunds": [_shown(each, order) for each in order.refunds],
        "received": _money(totals.received, order),
        "missing": _money(totals.missing(order.amount), order) if totals.received else "",
        "surplus": _money(totals.overpaid(order.amount), order) if totals.is_paid(order.amount) else "",
        "reload_seconds": (RELOAD_SECONDS_WITH_DETAILS if is_asked else RELOAD_SECONDS) if is_waiting else None,
        "sandbox_url": _sandbox_page(payment) if is_open else "",
    }


@never_cache
@require_http_methods(["GET", "POST"])
def pay_again(request: HttpRequest, reference: str) -> HttpResponse:
    """Another attempt at the same order, after the last one failed."""
    order = _order(reference)
    sessions.only_mine(request, order)
    attempt = current_attempt(order)
    if request.method == "POST":
        # Any of them may have been paid late, and its event may not have come yet.
        for payment in order.payments[:READ_ATTEMPTS]:
            refreshed(payment, timedelta(seconds=2))
    if attempt.is_unsent:
        # The order was placed and its payment never sent: send that attempt now, as it was chosen.
        return _resend(request, order) if request.method == "POST" else redirect(order)
    problem: StrOrPromise = ""
    try:
        offered = methods(order.country, order.currency, order.amount)
    except MethodsUnavailable:
        offered, problem = [], UNREACHABLE
    if request.method == "POST":
        form = PayAgainForm(request.POST, methods=offered)
        if form.is_valid():
            try:
                order = checkout.begin(order, **form.cleaned_data)
                return send_on(request, order)
            except checkout.NotNow:
                messages.info(request, _("There is nothing to pay again just now."))
                return redirect(order)
            except (PaymentsError, ValidationError) as error:
                problem = explain(error)
            form = PayAgainForm(initial={"attempt": order.signed_attempt_key()}, methods=offered)
    elif not may_begin(order, attempt):
        return redirect(order)
    else:
        form = PayAgainForm(initial={"attempt": order.signed_attempt_key()}, methods=offered)
    status = 422 if problem and request.method == "POST" else 200
    return render(request, "shop/pay_again.html", {"order": order, "form": form, "problem": problem}, status=status)


def _resend(request: HttpRequest, order: Order) -> HttpResponse:
    try:
        return send_on(request, order)
    except (PaymentsError, ValidationError) as error:
        messages.error(request, explain(error))
        return redirect(order)


@never_cache
@require_POST
def cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """Cancel the open payment. A payment on its way cannot be canceled."""
    order = _order(reference)
    sessions.only_mine(request, order)
    try:
        checkout.cancel(order, request.POST.get("submission") or new_submission())
    except checkout.NotNow:
        if not order.payments.filter(status=PaymentStatus.CANCELED).exists():
            messages.info(request, _("This payment cannot be canceled any more."))
    except OutcomeUnknown:
        messages.info(request, _("We are canceling the payment. This page shows when it is done."))
    except PaymentsError as error:
        explain(error)
        messages.error(request, _("The payment could not be canceled just now. Please try again."))
    settle(order)
    return redirect(order)


class Returned(CheckoutReturnView):
    """Where the provider sends the payer back to: reads the payment, then shows the order."""

    def get_next_url(self, payment: Payment | None) -> str:
        order = _order(self.subject.merchant_reference)
        sessions.note_return(self.request, order)
        return order.get_absolute_url()


def _order(reference: str) -> Order:
    return get_object_or_404(Order.objects.select_related("product"), reference=reference)


def _money(amount: int, order: Order) -> str:
    """Empty for zero."""
    return format_for_payer(amount, order.currency, order.country) if amount else ""


def _shown(refund: Refund, order: Order) -> dict[str, Any]:
    return {
        "status": refund.status,
        "amount": format_for_payer(refund.amount, refund.currency, order.country),
        "words": REFUND_WORDS.get(refund.status, _("being looked after")),
        "at": refund.created_at,
    }


def _sandbox_page(payment: Payment | None) -> str:
    """The sandbox's page for a payment, where a developer plays the payer."""
    if payment is None or not settings.SHOP_SANDBOX_URL:
        return ""
    return f"{settings.SHOP_SANDBOX_URL.rstrip('/')}/checkout/{payment.pk}"
