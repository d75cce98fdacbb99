"""The shop's pages. They show what the mirror says; what stands in an address is never believed."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from example_project.shop import checkout
from example_project.shop.forms import DEFAULT_MARKET, MARKETS, BuyForm, new_submission
from example_project.shop.models import Order, OrderStatus, Price, Product
from payments_integration import services
from payments_integration.enums import OPEN_PAYMENT_STATUSES, Flow
from payments_integration.exceptions import OutcomeUnknown, PaymentsError
from payments_integration.models import Payment

logger = logging.getLogger(__name__)

#: A page that waits loads itself anew after so many seconds: later where there are details to read and type.
RELOAD_SECONDS, RELOAD_SECONDS_WITH_DETAILS = 2, 10
#: Whoever comes back has probably paid: for so long we look for the money before we ask for it again.
LOOK_FOR = timedelta(seconds=30)
#: A payment that nobody told us of for so long is read from the provider while somebody looks.
QUIET_FOR = timedelta(seconds=20)
WAITING = (OrderStatus.NEW, OrderStatus.REVIEW, OrderStatus.PARTIALLY_PAID)
REMEMBERED = 20
#: The provider's words for a payment where they need explaining.
STATUS_WORDS = {"created": "waiting for the payer", "requires_action": "waiting for the payer"}
#: What a change of the country leaves as it was typed.
KEPT = ("name", "email", "quantity", "flow")


@require_GET
def products(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/products.html", {"products": Product.objects.prefetch_related("prices")})


@never_cache
@require_http_methods(["GET", "POST"])
def buy(request: HttpRequest, slug: str) -> HttpResponse:
    """GET shows the form for ``?market=PE-USD``; POST sets up the payment and sends the payer on.

    A form with another market than its page showed is no purchase yet: the payer first sees the prices there.
    """
    product = get_object_or_404(Product, slug=slug)
    shown = _market(request.GET.get("market"), DEFAULT_MARKET)
    market = _market(request.POST.get("market"), shown)
    country, _, currency = market.partition("-")
    price = get_object_or_404(Price, product=product, currency=currency)
    problem = ""
    try:
        methods = checkout.methods(country, currency)
    except checkout.MethodsUnavailable:
        methods, problem = [], "We cannot reach the payment provider just now. Please try again in a moment."
    new = {"market": market, "submission": new_submission()}
    only_look = request.method == "POST" and (market != shown or "show" in request.POST)
    if request.method == "POST" and not only_look:
        form = BuyForm(request.POST, price=price, methods=methods)
    else:
        typed = {name: request.POST[name] for name in KEPT if name in request.POST}
        form = BuyForm(initial={**typed, **new}, price=price, methods=methods)
    if form.is_valid():
        data = form.cleaned_data
        order = checkout.place(
            data["submission"],
            product=product,
            quantity=data["quantity"],
            amount=price.amount * data["quantity"],
            currency=currency,
            country=country,
            method_code=data["method_code"],
            flow=data["flow"],
            name=data["name"],
            email=data["email"],
        )
        _remember(request, order)
        try:
            return _send_on(request, order)
        except PaymentsError as error:
            problem = _explain(error)
        except ValidationError as error:
            problem = " ".join(error.messages)
        # Refused for good under that key: the next attempt is another purchase.
        form = BuyForm(initial={**data, **new}, price=price, methods=methods)
    context = {
        "product": product,
        "price": price,
        "form": form,
        "market": market,
        "elsewhere": dict(MARKETS)[market] if only_look else "",
        "problem": problem,
    }
    return render(request, "shop/buy.html", context, status=422 if problem and request.method == "POST" else 200)


def _market(asked: str | None, otherwise: str) -> str:
    return asked if asked in dict(MARKETS) else otherwise


def _send_on(request: HttpRequest, order: Order) -> HttpResponseRedirect:
    """To the provider's page, or to the order where the payer is told what to do, or that it is being found out."""
    try:
        payment = checkout.pay(order, return_url=request.build_absolute_uri(order.get_absolute_url()))
    except OutcomeUnknown:
        return redirect(order)
    if order.flow == Flow.HOSTED and payment.checkout_url and payment.status in OPEN_PAYMENT_STATUSES:
        return redirect(payment.checkout_url)
    return redirect(order)


def _explain(error: PaymentsError) -> str:
    """A refusal in the payer's words; the details are for the log."""
    logger.warning("A payment was refused: %s", error)
    return {
        "amount_out_of_range": "This way of paying does not take such an amount. Please choose another.",
        "method_not_available": "This way of paying is not available just now. Please choose another.",
        "method_not_allowed": "This way of paying is not available. Please choose another.",
        "country_not_allowed": "We cannot take payments from this country.",
        "blocked_payer": "We cannot take this payment.",
        "rate_limited": "Many people are paying just now. Nothing was charged; please try again.",
    }.get(getattr(error, "code", ""), "The payment could not be set up. Nothing was charged; please try again.")


@never_cache
@require_GET
def order(request: HttpRequest, reference: str) -> HttpResponse:
    """Where the payer comes back to. Anybody can write a query string: ``payment_id`` is a hint to look, no more."""
    order = get_object_or_404(Order.objects.select_related("product"), reference=reference)
    payment = order.payment
    is_back = "payment_id" in request.GET
    has_returned = _has_returned(request, order, is_back=is_back)
    if payment is not None:
        payment = _freshened(payment, timedelta(0) if is_back else QUIET_FOR)
        order.refresh_from_db()
    action = (payment.next_action or {}) if payment is not None and payment.flow == Flow.S2S else {}
    is_open = payment is not None and payment.status in OPEN_PAYMENT_STATUSES
    has_details = action.get("type", "none") != "none" and not has_returned
    seconds = RELOAD_SECONDS_WITH_DETAILS if has_details else RELOAD_SECONDS
    context = {
        "order": order,
        "payment": payment,
        "action": action,
        "method": checkout.method_name(order.method_code),
        # Also where the provider has the money, and our handler is still to be told.
        "looking": order.status in WAITING and (has_returned or not is_open),
        "payment_status": STATUS_WORDS.get(payment.status, payment.status.replace("_", " ")) if payment else "",
        "payable": is_open,
        "reload_seconds": seconds if order.status in WAITING else None,
        "sandbox_url": _sandbox_page(payment),
    }
    return render(request, "shop/order.html", context)


def _has_returned(request: HttpRequest, order: Order, *, is_back: bool) -> bool:
    """Whether the payer came back from paying just now or a moment ago; the page loads itself without the query."""
    now = timezone.now().timestamp()
    if is_back:
        request.session["returned"] = [order.reference, now]
    reference, at = request.session.get("returned", ["", 0.0])
    return bool(reference == order.reference and now - at < LOOK_FOR.total_seconds())


def _freshened(payment: Payment, quiet_for: timedelta) -> Payment:
    """The payment, read again where it is open and was silent for so long: a delivery may be late or lost."""
    if payment.status in OPEN_PAYMENT_STATUSES and timezone.now() - payment.synced_at > quiet_for:
        try:
            return services.refresh(payment)
        except PaymentsError as error:
            logger.info("The payment %s could not be read: %s", payment.pk, error)
    return payment


def _sandbox_page(payment: Payment | None) -> str:
    """Where a person plays the payer of a payment that has no page of its own, while developing."""
    if payment is None or not settings.SHOP_SANDBOX_URL:
        return ""
    return f"{settings.SHOP_SANDBOX_URL.rstrip('/')}/checkout/{payment.pk}"


@never_cache
@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    """The orders made in this browser."""
    mine = Order.objects.filter(reference__in=request.session.get("orders", [])).select_related("product")
    return render(request, "shop/orders.html", {"orders": mine})


def _remember(request: HttpRequest, order: Order) -> None:
    known = [reference for reference in request.session.get("orders", []) if reference != order.reference]
    request.session["orders"] = [order.reference, *known][:REMEMBERED]
