"""Products, and buying one."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from example_project.shop import checkout
from example_project.shop.forms import DEFAULT_MARKET, MARKETS, MAX_QUANTITY, BuyForm, markets, new_submission
from example_project.shop.models import Order, Price, Product
from example_project.shop.sessions import remember
from payments_integration.checkout import Method, explain, methods, provider_page, return_url
from payments_integration.exceptions import IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.money import format_for_payer

#: Fields that keep their values when the payer changes the country.
KEPT = ("name", "email", "quantity")


@require_GET
def products(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/products.html", {"products": Product.objects.prefetch_related("prices")})


@never_cache
@require_http_methods(["GET", "POST"])
def buy(request: HttpRequest, slug: str) -> HttpResponse:
    """GET shows the form for ``?market=PE-USD``; POST creates the payment and sends the payer on.

    A POST with another market or price than the page showed buys nothing: the payer first sees what it costs.
    """
    product = get_object_or_404(Product, slug=slug)
    shown = next((each for each in MARKETS if each == request.GET.get("market")), DEFAULT_MARKET)
    market = next((each for each in MARKETS if each == request.POST.get("market")), shown)
    country, _sign, currency = market.partition("-")
    price = get_object_or_404(Price, product=product, currency=currency)
    # The form reports a wrong quantity.
    quantity = request.POST.get("quantity", "")
    total = price.amount * (int(quantity) if quantity in map(str, range(1, MAX_QUANTITY + 1)) else 1)
    offered, problem = offers(country, currency, total)
    new = {"market": market, "submission": new_submission(), "price": total}
    only_look = request.method == "POST" and (market != shown or "show" in request.POST)
    if request.method == "POST" and not only_look:
        form = BuyForm(request.POST, price=price, country=country, methods=offered)
    else:
        typed = {name: request.POST[name] for name in KEPT if name in request.POST}
        form = BuyForm(initial={**typed, **new}, price=price, country=country, methods=offered)
    if form.is_valid():
        data = form.cleaned_data
        submission, seen, _market = (data.pop(name) for name in ("submission", "price", "market"))
        # An order that this form placed before keeps its price.
        if seen not in (None, total) and not Order.objects.filter(submission=submission).exists():
            problem = _("The price has changed. Please have a look before you pay.")
        else:
            priced = {"product": product, "amount": total, "currency": currency, "country": country}
            order = checkout.place(submission, **priced, **data)
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
        "total": format_for_payer(total, currency, country),
        "form": form,
        "market": market,
        "elsewhere": dict(markets())[market] if only_look else "",
        "problem": problem,
    }
    return render(request, "shop/buy.html", context, status=422 if problem and request.method == "POST" else 200)


def offers(country: str, currency: str, amount: int) -> tuple[list[Method], str]:
    """The ways to pay, or why there are none now."""
    try:
        return methods(country, currency, amount), ""
    except PaymentsError as error:
        return [], explain(error)


def send_on(request: HttpRequest, order: Order) -> HttpResponseRedirect:
    """Redirect to the provider's page, or to the order's page, which shows what to do, or that the outcome is open.

    Raises the same as ``checkout.pay``, except OutcomeUnknown, IdempotencyMismatch and NotNow.
    """
    try:
        payment = checkout.pay(order, return_url=return_url(request, order.reference, url_name="shop:returned"))
    except (OutcomeUnknown, IdempotencyMismatch, checkout.NotNow):
        # A mismatch: the same attempt was sent before with other arguments (for another payer, say). Its page shows
        # the result. A payer who reads that nothing was charged would pay twice.
        return redirect(order)
    return redirect(provider_page(payment) or order)
