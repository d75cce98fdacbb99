"""From a filled-in form to a payment. One order is one payment, however often it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from example_project.shop.models import Order, OrderStatus
from payments_integration import services
from payments_integration.enums import Flow
from payments_integration.exceptions import OutcomeUnknown, PaymentsError, ProviderError
from payments_integration.models import Payment

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
    """A payment method as the form shows it."""

    code: str
    name: str
    family: str


class MethodsUnavailable(Exception):
    """The provider did not tell its payment methods."""


def methods(country: str, currency: str) -> list[Choice]:
    """What a payer there can pay with; kept for a minute, because it hardly changes."""
    key = f"shop-methods-{country}-{currency}"
    found: list[Choice] | None = cache.get(key)
    if found is None:
        try:
            records = services.list_payment_methods(country=country, currency=currency)
        except PaymentsError as error:
            raise MethodsUnavailable from error
        found = [choice for record in records if (choice := _choice(record)) is not None]
        cache.set(key, found, METHODS_FOR)
        cache.set_many({_name_key(choice.code): choice.name for choice in found}, timeout=None)
    return found


def method_name(code: str) -> str:
    """What the provider calls a method, as last listed; until then what its code says: ``cl_khipu`` is Khipu."""
    return str(cache.get(_name_key(code)) or code.partition("_")[2].replace("_", " ").capitalize() or code)


def _name_key(code: str) -> str:
    return f"shop-method-name-{code}"


def place(submission: str, **fields: Any) -> Order:
    """The order of this form: made now, or when it was sent before."""
    try:
        with transaction.atomic():
            return Order.objects.create(submission=submission, **fields)
    except IntegrityError:
        return Order.objects.get(submission=submission)


def pay(order: Order, *, return_url: str | None = None) -> Payment:
    """Set up the order's payment, or return the one that it has.

    Raises OutcomeUnknown (it is being found out; the order waits), ValidationError or any other PaymentsError (it did
    not happen and will not; the order is closed).
    """
    try:
        return services.create_payment(
            amount=order.amount,
            currency=order.currency,
            country=order.country,
            method_code=order.method_code,
            merchant_reference=order.reference,
            payer={"name": order.name, "email": order.email},
            return_url=return_url,
            flow=order.flow,
            metadata={"product": order.product.slug},
            idempotency_key=f"order-{order.reference}",
            actor="shop",
        )
    except OutcomeUnknown:
        raise
    except (PaymentsError, ValidationError) as error:
        # Closed for good under this key: the payer begins anew with another order.
        note = error.code if isinstance(error, ProviderError) else type(error).__name__
        Order.objects.filter(pk=order.pk, status=OrderStatus.NEW).update(status=OrderStatus.REFUSED, note=note)
        raise


def _choice(record: Any) -> Choice | None:
    """Only the code of a payment method is documented; the rest is shown when it is there."""
    data = getattr(record, "extra", {})
    if data.get("available") is False or "payment" not in data.get("uses", ["payment"]):
        return None
    return Choice(record.code, str(data.get("name") or record.code), str(data.get("family") or ""))


def flows() -> list[tuple[str, str]]:
    return [(Flow.HOSTED, "On the provider's page"), (Flow.S2S, "Right here")]
