"""A customer's own account to transfer to, and what came in with it."""

from __future__ import annotations

from datetime import timedelta

from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from example_project.shop import deposits as accounts
from example_project.shop import visiting
from example_project.shop.forms import DEFAULT_MARKET, DepositForm
from example_project.shop.looking import freshened
from example_project.shop.methods import MethodsUnavailable
from example_project.shop.models import DepositAccount
from example_project.shop.money import show_money
from example_project.shop.refusals import UNREACHABLE, explain
from payments_integration.exceptions import PaymentsError

#: A deposit reference has no events: whether it is still active is read while somebody looks.
QUIET_FOR = timedelta(minutes=1)
NEWEST = 50
#: Seconds: nobody's post is flooded.
MAIL_EVERY = 600


@never_cache
@require_http_methods(["GET", "POST"])
def deposits(request: HttpRequest) -> HttpResponse:
    """GET shows the form, and the accounts made in this browser; POST makes one, or finds the one there is.

    An e-mail address is no proof of whose it is: the account of an address that is known already is shown in the
    browser where it was made, and told to nobody else but by a mail to that address.
    """
    form = DepositForm(request.POST if request.method == "POST" else None, initial={"market": DEFAULT_MARKET})
    problem = ""
    if form.is_valid():
        country, _, currency = form.cleaned_data["market"].partition("-")
        name, email = form.cleaned_data["name"], form.cleaned_data["email"]
        try:
            account, is_new = accounts.open_account(name=name, email=email, country=country, currency=currency)
            if not is_new and not visiting.is_mine(request, account):
                _send_address(request, account)
                return render(request, "shop/deposit_sent.html", {"email": email})
            visiting.remember(request, account)
            accounts.set_up(account)
        except MethodsUnavailable:
            problem = UNREACHABLE
        except accounts.NoDeposits:
            problem = "There are no such accounts there. Please choose another country or currency."
        except (PaymentsError, ValidationError) as error:
            problem = explain(error)
        else:
            return redirect(account)
    mine = DepositAccount.objects.filter(reference__in=visiting.remembered(request, DepositAccount))
    context = {"form": form, "problem": problem, "accounts": mine}
    return render(request, "shop/deposits.html", context, status=422 if problem else 200)


@never_cache
@require_GET
def deposit(request: HttpRequest, reference: str) -> HttpResponse:
    """Whoever has the address sees it; nobody can guess it."""
    account = get_object_or_404(DepositAccount, reference=reference)
    provided = account.deposit_reference
    if provided is not None:
        provided = freshened(provided, QUIET_FOR)
    context = {
        "account": account,
        "provided": provided,
        "deposits": [(each, show_money(each.amount_received, each.currency)) for each in account.payments[:NEWEST]],
        "received": show_money(account.totals_in(account.currency).received, account.currency),
    }
    return render(request, "shop/deposit.html", context)


def _send_address(request: HttpRequest, account: DepositAccount) -> None:
    if not cache.add(f"shop-mail-{account.reference}", 1, timeout=MAIL_EVERY):
        return
    address = request.build_absolute_uri(account.get_absolute_url())
    send_mail(
        "Your account at The Corner Shop", f"Your deposit account is here:\n\n{address}\n", None, [account.email]
    )
