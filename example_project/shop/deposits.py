"""A permanent deposit reference of a customer: made once for an e-mail address and a currency."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from example_project.shop.methods import deposit_method
from example_project.shop.models import DepositAccount
from payments_integration import services
from payments_integration.exceptions import OutcomeUnknown, PaymentsError


class NoDeposits(Exception):
    """The provider has none there."""


def account_of(email: str, currency: str) -> DepositAccount | None:
    return DepositAccount.objects.filter(email=email.lower(), currency=currency).first()


def open_account(*, name: str, email: str, country: str, currency: str) -> tuple[DepositAccount, bool]:
    """The customer's account in this currency, and whether it was made now.

    Raises NoDeposits, MethodsUnavailable (nothing was made).
    """
    known = account_of(email, currency)
    if known is not None:
        return known, False
    method_code = deposit_method(country, currency)
    if not method_code:
        raise NoDeposits
    fields = {"name": name, "country": country, "method_code": method_code}
    try:
        with transaction.atomic():
            return DepositAccount.objects.create(email=email.lower(), currency=currency, **fields), True
    except IntegrityError:
        # Made at this very moment by the same form.
        return DepositAccount.objects.get(email=email.lower(), currency=currency), False


def set_up(account: DepositAccount) -> None:
    """Ask the provider for the account's reference; asked again, it is the same.

    Raises ValidationError or a PaymentsError: it was refused, and the account is gone, so that the customer can begin
    anew. An unknown outcome raises nothing: the page shows it as soon as it is known.
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
