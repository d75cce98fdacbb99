"""How a payer can pay, as the provider lists it for a country, a currency and an amount."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.cache import cache

from payments_integration import services
from payments_integration.enums import Flow
from payments_integration.exceptions import PaymentsError
from payments_integration.wire import PaymentMethod

#: Which currencies a payer can choose, by country.
CURRENCIES = {
    "CL": ("CLP",),
    "CO": ("COP",),
    "EC": ("USD",),
    "PE": ("PEN", "USD"),
    "MX": ("MXN",),
    "BR": ("BRL",),
}
METHODS_FOR = 60


@dataclass(frozen=True, slots=True)
class Choice:
    """A payment method as a form shows it."""

    code: str
    name: str
    #: What it is for: ``payment``, ``payout``, ``deposit_reference``.
    uses: tuple[str, ...]


class MethodsUnavailable(Exception):
    """The provider did not tell its payment methods."""


def methods(country: str, currency: str, amount: int) -> list[Choice]:
    """What takes a payment of ``amount`` minor units there. Raises MethodsUnavailable."""
    return [choice for choice in _listed(country, currency, amount) if "payment" in choice.uses]


def deposit_method(country: str, currency: str) -> str:
    """The code of what a deposit reference can be had with there; empty for none. Raises MethodsUnavailable."""
    found = (choice.code for choice in _listed(country, currency, None) if "deposit_reference" in choice.uses)
    return next(found, "")


def method_name(code: str) -> str:
    """What the provider calls a method, as last listed; until then what its code says: ``cl_khipu`` is Khipu."""
    return str(cache.get(_name_key(code)) or code.partition("_")[2].replace("_", " ").capitalize() or code)


def flows() -> list[tuple[str, str]]:
    return [(Flow.HOSTED, "On the provider's page"), (Flow.S2S, "Right here")]


def _listed(country: str, currency: str, amount: int | None) -> list[Choice]:
    """Kept for a minute, because it hardly changes."""
    key = f"shop-methods-{country}-{currency}-{amount}"
    found: list[Choice] | None = cache.get(key)
    if found is None:
        try:
            records = services.list_payment_methods(country=country, currency=currency, amount=amount)
        except PaymentsError as error:
            raise MethodsUnavailable from error
        found = [choice for record in records if (choice := _choice(record)) is not None]
        cache.set(key, found, METHODS_FOR)
        cache.set_many({_name_key(choice.code): choice.name for choice in found}, timeout=None)
    return found


def _name_key(code: str) -> str:
    return f"shop-method-name-{code}"


def _choice(record: PaymentMethod) -> Choice | None:
    """Only the code of a payment method is documented; the rest is shown when it is there."""
    data = record.extra
    if data.get("available") is False:
        return None
    return Choice(record.code, str(data.get("name") or record.code), tuple(data.get("uses", ["payment"])))
