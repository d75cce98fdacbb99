"""A form that makes an order, and the order's page, where it is paid."""

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.generic import CreateView

from example_project.minimal.models import Order
from payments_integration import services
from payments_integration.checkout import explain, method_field, methods, provider_page, return_url, status_url
from payments_integration.enums import VAIN_PAYMENT_STATUSES
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError


class Buy(CreateView):  # type: ignore[type-arg]
    model, fields, template_name = Order, ("amount", "email"), "minimal/buy.html"


def pay(request: HttpRequest, number: str) -> HttpResponse:
    """GET offers the ways to pay, or leads to the app's status page. POST pays; a form sent twice is one payment."""
    order = get_object_or_404(Order, number=number)
    reference, again = str(order.number), order.get_absolute_url()
    status, form, problem = status_url(request, reference, pay_again_url=again), forms.Form(), ""
    try:
        if request.method == "POST":
            payment = services.create_payment(
                amount=order.amount,
                currency=order.payments_currency,
                country="CL",
                method_code=request.POST.get("method_code", ""),
                payer={"email": order.email},
                merchant_reference=reference,
                return_url=return_url(request, reference, pay_again_url=again),
                idempotency_key=order.attempt_key(request.POST.get("attempt")),
            )
            return redirect(provider_page(payment) or status)
        if order.payments.exclude(status__in=VAIN_PAYMENT_STATUSES).exists():
            return redirect(status)
        form.fields["method_code"] = method_field(methods("CL", order.payments_currency, order.amount))
    except (OutcomeUnknown, IdempotencyMismatch):
        return redirect(status)  # there may be a payment: never offer a second one
    except (PaymentsError, ValidationError) as error:
        problem = explain(error)
    return render(request, "minimal/pay.html", {"order": order, "form": form, "problem": problem})
