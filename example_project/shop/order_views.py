"""The page of an order, and the payer's actions. It shows what the mirror says and ignores the query string."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from example_project.shop import checkout, sessions
from example_project.shop.forms import PayAgainForm, new_submission
from example_project.shop.models import Order
from example_project.shop.orders import current_attempt, settle, up_to_date
from example_project.shop.views import offers, send_on
from payments_integration.checkout import (
    CheckoutReturnView,
    cancel_attempt,
    explain,
    note_return,
    order_page,
    refreshed,
)
from payments_integration.contrib.receipts.views import facts
from payments_integration.enums import OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.exceptions import OutcomeUnknown, PaymentsError
from payments_integration.models import Payment
from payments_integration.payable import may_begin

#: Seconds. A payment that the mirror confirmed longer ago is read again: a delivery may be late or lost.
MAX_AGE = 20
#: The number of an order's attempts that are read before another one begins.
READ_ATTEMPTS = 5


@never_cache
@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    """The orders created in this browser."""
    mine = Order.objects.filter(reference__in=sessions.remembered(request, Order)).select_related("product")
    return render(request, "shop/orders.html", {"orders": mine})


@never_cache
@require_GET
def order(request: HttpRequest, reference: str) -> HttpResponse:
    """The order's status. The app's script reads this page repeatedly and shows what has changed."""
    order = _order(reference)
    payment = order.payment
    if payment is not None and payment.status in OPEN_PAYMENT_STATUSES:
        refreshed(payment, every=MAX_AGE)
        order.refresh_from_db()
    order = up_to_date(order)
    page = order_page(request, order, order.status, order.key, refusal=order.refusal)
    sandbox = settings.SHOP_SANDBOX_URL.rstrip("/") if page.is_open else ""
    context = {
        "order": order,
        "page": page,
        "is_mine": sessions.is_mine(request, order),
        "submission": new_submission(),
        "receipt": facts(page.paid) if page.paid else None,
        # Where a developer plays the payer.
        "sandbox_url": f"{sandbox}/checkout/{page.payment.pk}" if sandbox and page.payment else "",
    }
    return render(request, "shop/order.html", context)


@never_cache
@require_http_methods(["GET", "POST"])
def pay_again(request: HttpRequest, reference: str) -> HttpResponse:
    """Another attempt at the same order, after the last one failed."""
    order = _order(reference)
    sessions.only_mine(request, order)
    attempt, is_sent = current_attempt(order), request.method == "POST"
    if is_sent:
        # Any of them may have been paid late, and its event may not have come yet.
        for payment in order.payments[:READ_ATTEMPTS]:
            refreshed(payment, every=2)
    if not is_sent and not may_begin(order, order.status, attempt):
        return redirect(order)
    offered, problem = offers(order.country, order.currency, order.amount)
    form = PayAgainForm(request.POST if is_sent else None, methods=offered)
    # An attempt that was begun and never sent is sent as it was chosen.
    is_resent = is_sent and attempt.is_unsent
    if is_resent or form.is_valid():
        try:
            return send_on(request, order if is_resent else checkout.begin(order, **form.cleaned_data))
        except checkout.NotNow:
            messages.info(request, _("There is nothing to pay again just now."))
            return redirect(order)
        except (PaymentsError, ValidationError) as error:
            problem = explain(error)
    if problem or not is_sent:
        form = PayAgainForm(initial={"attempt": order.signed_attempt_key()}, methods=offered)
    context = {"order": order, "form": form, "problem": problem}
    return render(request, "shop/pay_again.html", context, status=422 if problem and is_sent else 200)


@never_cache
@require_POST
def cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """Cancel the open payment. A payment on its way cannot be canceled."""
    order = _order(reference)
    sessions.only_mine(request, order)
    try:
        is_canceled = cancel_attempt(order.payment, request.POST.get("submission") or new_submission(), actor="shop")
        if not is_canceled and not order.payments.filter(status=PaymentStatus.CANCELED).exists():
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
        note_return(self.request, self.subject.merchant_reference)
        return _order(self.subject.merchant_reference).get_absolute_url()


def _order(reference: str) -> Order:
    return get_object_or_404(Order.objects.select_related("product"), reference=reference)
