"""Products, and buying one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from example_project.shop import checkout
from example_project.shop.forms import DEFAULT_MARKET, MAX_QUANTITY, BuyForm, markets, new_submission
from example_project.shop.models import Order, Price, Product
from example_project.shop.provider import MethodsUnavailable, methods
from example_project.shop.sessions import remember
from payments_integration.checkout import return_url
from payments_integration.enums import OPEN_PAYMENT_STATUSES, Flow
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.money import format_for_payer

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

logger = logging.getLogger(__name__)

#: Fields that keep their values when the payer changes the country.
KEPT = ("name", "email", "quantity", "flow")
UNREACHABLE = gettext_lazy("We cannot reach the payment provider just now. Please try again in a moment.")
_WORDS = {
    "amount_out_of_range": gettext_lazy("This way of paying does not take such an amount. Please choose another."),
    "method_not_available": gettext_lazy("This way of paying is not available just now. Please choose another."),
    "method_not_allowed": gettext_lazy("This way of paying is not available. Please choose another."),
    "country_not_allowed": gettext_lazy("We cannot take payments from this country."),
    "blocked_payer": gettext_lazy("We cannot take this payment."),
    "rate_limited": gettext_lazy("Many people are paying just now. Nothing was charged; please try again."),
}


@require_GET
def products(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/products.html", {"products": Product.objects.prefetch_related("prices")})


@never_cache
@require_http_methods(["GET", "POST"])
def buy(request: HttpRequest, slug: str) -> HttpResponse:
    """GET shows the form for ``?market=PE-USD``; POST creates the payment and sends the payer on.

    A POST with another market than the page showed buys nothing: the payer first sees the prices there.
    """
    product = get_object_or_404(Product, slug=slug)
    shown = _market(request.GET.get("market"), DEFAULT_MARKET)
    market = _market(request.POST.get("market"), shown)
    country, _sign, currency = market.partition("-")
    price = get_object_or_404(Price, product=product, currency=currency)
    problem: StrOrPromise = ""
    try:
        offered = methods(country, currency, price.amount * _quantity(request.POST.get("quantity")))
    except MethodsUnavailable:
        offered, problem = [], UNREACHABLE
    new = {"market": market, "submission": new_submission(), "price": price.amount}
    only_look = request.method == "POST" and (market != shown or "show" in request.POST)
    if request.method == "POST" and not only_look:
        form = BuyForm(request.POST, price=price, country=country, methods=offered)
    else:
        typed = {name: request.POST[name] for name in KEPT if name in request.POST}
        form = BuyForm(initial={**typed, **new}, price=price, country=country, methods=offered)
    if form.is_valid() and _is_repriced(form.cleaned_data, price):
        problem = _("The price has changed meanwhile. Please have a look before you pay.")
        form = BuyForm(initial={**form.cleaned_data, **new}, price=price, country=country, methods=offered)
    elif form.is_valid():
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
        remember(request, order)
        try:
            return send_on(request, order)
        except (PaymentsError, ValidationError) as error:
            problem = explain(error)
        # The key stays refused, so the next attempt is another purchase.
        form = BuyForm(initial={**data, **new}, price=price, country=country, methods=offered)
    context = {
        "product": product,
        "price": format_for_payer(price.amount, currency, country),
        "form": form,
        "market": market,
        "elsewhere": dict(markets())[market] if only_look else "",
        "problem": problem,
    }
    return render(request, "shop/buy.html", context, status=422 if problem and request.method == "POST" else 200)


def send_on(request: HttpRequest, order: Order) -> HttpResponseRedirect:
    """Redirect to the provider's page, or to the order's page, which shows what to do, or that the outcome is open.

    Raises the same as ``checkout.pay``, except OutcomeUnknown, IdempotencyMismatch and NotNow.
    """
    try:
        payment = checkout.pay(order, return_url=return_url(request, order.reference, url_name="shop:returned"))
    except (OutcomeUnknown, IdempotencyMismatch, checkout.NotNow):
        # A mismatch: the same attempt was sent before with other arguments (under another host, say). Its page shows
        # the result. A payer who reads that nothing was charged would pay twice.
        return redirect(order)
    address = payment.checkout_url or ""
    is_web = address.startswith(("https://", "http://"))
    if order.flow == Flow.HOSTED and is_web and payment.status in OPEN_PAYMENT_STATUSES:
        return redirect(address)
    return redirect(order)


def _market(asked: str | None, otherwise: str) -> str:
    return asked if asked in dict(markets()) else otherwise


def _is_repriced(data: dict[str, Any], price: Price) -> bool:
    """Whether the form showed another price. An order that it placed before keeps its price."""
    seen = data["price"]
    return seen not in (None, price.amount) and not Order.objects.filter(submission=data["submission"]).exists()


def _quantity(asked: str | None) -> int:
    """The quantity for which methods are offered; the form reports a wrong one."""
    numbers = {str(number): number for number in range(1, MAX_QUANTITY + 1)}
    return numbers.get(asked or "", 1)


def explain(error: PaymentsError | ValidationError) -> str:
    """A refusal in the payer's words; the details go to the log."""
    if isinstance(error, ValidationError):
        return " ".join(error.messages)
    logger.warning("The provider refused: %s", error)
    otherwise = _("The payment could not be set up. Nothing was charged; please try again.")
    return str(_WORDS.get(getattr(error, "code", ""), otherwise))
