"""A customer's permanent deposit reference: one for each e-mail address and currency, and the pages about it."""

from __future__ import annotations

from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from example_project.shop import sessions
from example_project.shop.forms import DEFAULT_MARKET, DepositForm
from example_project.shop.models import DepositAccount
from payments_integration import services
from payments_integration.checkout import explain, methods, refreshed
from payments_integration.exceptions import OutcomeUnknown, PaymentsError

#: Seconds. A deposit reference has no events, so its page reads whether it is still active.
MAX_AGE = 60


class NoDeposits(Exception):
    """The provider has no deposit references in this country and currency."""


def open_account(*, name: str, email: str, country: str, currency: str) -> tuple[DepositAccount, bool]:
    """The customer's account in this currency, and whether it was created now.

    Raises NoDeposits or a PaymentsError (nothing was created).
    """
    key = {"email": email.lower(), "currency": currency}
    if known := DepositAccount.objects.filter(**key).first():
        return known, False
    found = methods(country, currency, use="deposit_reference")
    if not found:
        raise NoDeposits
    fields = {"name": name, "country": country, "method_code": found[0].code}
    return DepositAccount.objects.get_or_create(**key, defaults=fields)


def set_up(account: DepositAccount) -> None:
    """Create the account's deposit reference at the provider; a second call returns the same.

    Raises ValidationError or a PaymentsError if it was refused; then the account is deleted, so that the customer can
    try again. An unknown outcome raises nothing: the page shows the reference as soon as it is known.
    """
    try:
        services.create_deposit_reference(
            country=account.country,
            currency=account.currency,
            method_code=account.method_code,
            payer={"name": account.name, "email": account.email},
            merchant_reference=account.reference,
            idempotency_key=f"deposit-{account.reference}",
            actor="shop",
        )
    except OutcomeUnknown:
        return
    except (PaymentsError, ValidationError):
        if account.deposit_reference is None:
            account.delete()
        raise


@never_cache
@require_http_methods(["GET", "POST"])
def deposits(request: HttpRequest) -> HttpResponse:
    """GET shows the form and the accounts created in this browser; POST creates one, or finds the existing one.

    Anyone can type an e-mail address. So an existing account is shown only in the browser where it was created; in
    other browsers its address is sent by mail. A real shop has a login and takes the address from there: here a
    stranger who types it first sees what its owner pays in.
    """
    form = DepositForm(request.POST if request.method == "POST" else None, initial={"market": DEFAULT_MARKET})
    problem = ""
    if form.is_valid():
        country, _sign, currency = form.cleaned_data["market"].partition("-")
        name, email = form.cleaned_data["name"], form.cleaned_data["email"]
        try:
            account, is_new = open_account(name=name, email=email, country=country, currency=currency)
            if not is_new and not sessions.is_mine(request, account):
                _send_address(request, account)
                return render(request, "shop/deposit_sent.html", {"email": email})
            sessions.remember(request, account)
            set_up(account)
            return redirect(account)
        except NoDeposits:
            problem = _("There are no such accounts there. Please choose another country or currency.")
        except (PaymentsError, ValidationError) as error:
            problem = explain(error)
    mine = DepositAccount.objects.filter(reference__in=sessions.remembered(request, DepositAccount))
    context = {"form": form, "problem": problem, "accounts": mine}
    return render(request, "shop/deposits.html", context, status=422 if problem else 200)


@never_cache
@require_GET
def deposit(request: HttpRequest, reference: str) -> HttpResponse:
    """Anyone who has the address sees it; it cannot be guessed."""
    account = get_object_or_404(DepositAccount, reference=reference)
    context = {
        "account": account,
        "provided": (found := account.deposit_reference) and refreshed(found, every=MAX_AGE),
        "deposits": account.payments[:50],
        "received": account.totals_in(account.currency).received,
    }
    return render(request, "shop/deposit.html", context)


def _send_address(request: HttpRequest, account: DepositAccount) -> None:
    # One mail in ten minutes, however often somebody asks.
    if cache.add(f"shop-mail-{account.reference}", 1, timeout=600):
        address = request.build_absolute_uri(account.get_absolute_url())
        text = _("Your deposit account is here:")
        send_mail(_("Your account at The Corner Shop"), f"{text}\n\n{address}\n", None, [account.email])
