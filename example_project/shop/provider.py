"""What the shop reads from the provider while a page is open: payment methods, and rows that may be out of date."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from django.core.cache import cache
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import services
from payments_integration.enums import Flow
from payments_integration.exceptions import PaymentsError
from payments_integration.models import DepositReference, Payment
from payments_integration.schemas import PaymentMethod

logger = logging.getLogger(__name__)

Row = TypeVar("Row", Payment, DepositReference)

#: The currencies that a payer can choose, by country.
CURRENCIES = {
    "CL": ("CLP",),
    "CO": ("COP",),
    "EC": ("USD",),
    "PE": ("PEN", "USD"),
    "MX": ("MXN",),
    "BR": ("BRL",),
}
#: Seconds.
METHODS_CACHED_FOR = 60
#: A row that was confirmed longer ago is read again.
MAX_AGE = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Choice:
    """A payment method as a form shows it."""

    code: str
    name: str
    #: Its purposes: ``payment``, ``payout``, ``deposit_reference``.
    uses: tuple[str, ...]


class MethodsUnavailable(Exception):
    """The provider did not list its payment methods."""


def methods(country: str, currency: str, amount: int) -> list[Choice]:
    """The methods for a payment of ``amount`` minor units. Raises MethodsUnavailable."""
    return [choice for choice in _listed(country, currency, amount) if "payment" in choice.uses]


def deposit_method(country: str, currency: str) -> str:
    """The code of the method for deposit references; empty if there is none. Raises MethodsUnavailable."""
    found = (choice.code for choice in _listed(country, currency, None) if "deposit_reference" in choice.uses)
    return next(found, "")


def method_name(code: str) -> str:
    """The provider's name for a method, as last listed; before that, made from its code: ``cl_khipu`` is Khipu."""
    return str(cache.get(_name_key(code)) or code.partition("_")[2].replace("_", " ").capitalize() or code)


def flows() -> list[tuple[str, str]]:
    return [(Flow.HOSTED, _("On the provider's page")), (Flow.S2S, _("Right here"))]


def _listed(country: str, currency: str, amount: int | None) -> list[Choice]:
    """Cached for a minute, because it hardly changes."""
    key = f"shop-methods-{country}-{currency}-{amount}"
    found: list[Choice] | None = cache.get(key)
    if found is None:
        try:
            records = services.list_payment_methods(country=country, currency=currency, amount=amount)
        except PaymentsError as error:
            raise MethodsUnavailable from error
        found = [choice for record in records if (choice := _choice(record)) is not None]
        cache.set(key, found, METHODS_CACHED_FOR)
        cache.set_many({_name_key(choice.code): choice.name for choice in found}, timeout=None)
    return found


def _name_key(code: str) -> str:
    return f"shop-method-name-{code}"


def _choice(record: PaymentMethod) -> Choice | None:
    """Only the code of a payment method is documented; other fields are used if they are there."""
    data = record.extra
    if data.get("available") is False:
        return None
    return Choice(record.code, str(data.get("name") or record.code), tuple(data.get("uses", ["payment"])))


def refreshed(row: Row, max_age: timedelta = MAX_AGE) -> Row:
    """The row as the provider has it now, if it is older than ``max_age``; read once in that time at most.

    A delivery may be late or lost, so a page that a payer looks at does not rely on webhooks alone.
    """
    if timezone.now() - row.synced_at <= max_age:
        return row
    # Counted in the cache, so that open pages do not keep asking a provider that does not answer.
    seconds = max_age.total_seconds()
    if not cache.add(f"shop-read-{row.pk}-{seconds:.0f}", 1, timeout=seconds):
        return row
    try:
        return services.refresh(row)
    except PaymentsError as error:
        logger.info("%s could not be read: %s", row.pk, error)
        return row
