"""Query payments by merchant reference. The mirror's columns compare references byte for byte on every database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import connections, models
from django.db.models import Q, QuerySet
from django.db.models.expressions import BaseExpression

from payments_integration.db.sizes import in_parts
from payments_integration.enums import Flow, MethodFamily
from payments_integration.models import DepositReference, Payment, Payout, Refund, promised_refunds, rest_after
from payments_integration.payable import prices
from payments_integration.payable.prices import Payable
from payments_integration.payable.totals import Totals, compute_totals

T = TypeVar("T")

#: References in one statement. SQLite takes 32,766 values per statement, other databases more.
CHUNK = 500

#: The columns that totals need.
_TOTALS_FIELDS = (
    "account", "merchant_reference", "status", "amount", "amount_received", "refunded_amount", "currency", "state_at",
    "gone_at",
)  # fmt: skip
#: The columns that a comparison of orders and payments reads.
COMPARED_FIELDS = (
    "account", "merchant_reference", "status", "amount", "amount_received", "refunded_amount", "currency", "state_at",
    "flow", "method_family", "created_at", "succeeded_at",
)  # fmt: skip
REFUND_FIELDS = ("account", "payment_id", "status", "amount", "currency", "state_at")

#: A transfer to a deposit reference. Its ``merchant_reference`` comes from the deposit reference, "e.g. an id of the
#: payer on the merchant side" (spec, "Deposit reference"), and may equal an order's number by chance.
DEPOSITS = Q(flow=Flow.DEPOSIT_REFERENCE) | Q(method_family=MethodFamily.DEPOSIT_REFERENCE)

#: An object with a ``merchant_reference``.
Referring = Payment | Payout | DepositReference
#: An account (None: any) and a reference.
Key = tuple[str | None, str]


def payments_of(account: str | None, reference: str, *, deposits: bool) -> QuerySet[Payment]:
    """Return the payments of a reference, newest first. An empty reference names no order, so it has none."""
    if not reference:
        return Payment.objects.none()
    found = Payment.objects.filter(merchant_reference=reference)
    return within(found, account, deposits=deposits).order_by("-created_at", "-pk")


def with_references(account: str | None, references: Sequence[str], *, deposits: bool) -> QuerySet[Payment]:
    """Return the payments of up to ``CHUNK`` references, in no order."""
    return within(Payment.objects.filter(merchant_reference__in=references), account, deposits=deposits)


def totals_by_key(keys: Iterable[Key], *, deposits: bool) -> dict[Key, dict[str, Totals]]:
    """Return the totals by currency of each key that has payments. Two statements for up to 500 keys of an account."""
    references: dict[str | None, set[str]] = defaultdict(set)
    for account, reference in keys:
        if reference:
            references[account].add(reference)
    found: dict[Key, dict[str, Totals]] = {}
    for account, wanted in references.items():
        ordered = sorted(wanted)
        for chunk in chunks(ordered):
            found |= _totals(account, chunk, deposits=deposits)
    return found


def is_deposit(obj: Referring) -> bool:
    """Return True if ``DEPOSITS`` matches the object, or if it is a deposit reference. False for a payout."""
    if isinstance(obj, Payment):
        return obj.flow == Flow.DEPOSIT_REFERENCE or obj.method_family == MethodFamily.DEPOSIT_REFERENCE
    return isinstance(obj, DepositReference)


def _totals(account: str | None, references: Sequence[str], *, deposits: bool) -> dict[Key, dict[str, Totals]]:
    found = with_references(account, references, deposits=deposits)
    payments: dict[Key, list[Payment]] = defaultdict(list)
    # Promised refunds are read with the payments, before the refunds: see ``refundable_rest``.
    for payment in found.only(*_TOTALS_FIELDS).annotate(promised=promised_refunds()):
        payments[account, payment.merchant_reference or ""].append(payment)
    refunds: dict[str, list[Refund]] = defaultdict(list)
    # Repeat the payments' condition instead of listing their ids, because there may be many.
    for refund in Refund.objects.filter(payment__in=found.values("pk")).only(*REFUND_FIELDS):
        refunds[str(refund.payment_id)].append(refund)
    return {
        key: compute_totals(some, [refund for payment in some for refund in refunds[payment.pk]])
        for key, some in payments.items()
    }


def within(payments: QuerySet[Payment], account: str | BaseExpression | None, *, deposits: bool) -> QuerySet[Payment]:
    """Return the account's payments (None: all accounts), without deposits unless ``deposits`` is True."""
    if account is not None:
        payments = payments.filter(account=account)
    return payments if deposits else payments.exclude(DEPOSITS)


def conditions(model: type[Payable], references: list[str]) -> Iterator[tuple[set[str], Q]]:
    """Yield up to ``CHUNK`` references with a condition that finds at least the model's rows with them."""
    name = model.merchant_reference_field
    field: Any = prices.column(model, name)
    values = {}
    for reference in references:
        with suppress(ValidationError):
            values[reference] = field.to_python(reference)
    number: Any = prices.target(field)
    if isinstance(number, models.IntegerField):
        # Leave out numbers that no row can have, because a database may refuse them.
        low, high = connections[model._default_manager.db].ops.integer_field_range(number.get_internal_type())
        values = {
            reference: value
            for reference, value in values.items()
            if (low is None or value >= low) and (high is None or value <= high)
        }
    for chunk in chunks(sorted(values)):
        yield set(chunk), Q(**{f"{name}__in": [values[reference] for reference in chunk]})


def with_money_left(payments: list[Payment]) -> set[str]:
    """Return the keys of payments that still hold money after the refunds in progress: see ``Totals.paid``."""
    refunds: dict[str, list[Refund]] = defaultdict(list)
    for chunk in chunks(sorted({payment.pk for payment in payments})):
        for refund in Refund.objects.filter(payment__in=chunk).only(*REFUND_FIELDS):
            refunds[str(refund.payment_id)].append(refund)
    return {
        payment.pk
        for payment in payments
        if rest_after(
            payment,
            [
                refund
                for refund in refunds[payment.pk]
                if (refund.account, refund.currency) == (payment.account, payment.currency)
            ],
        )
        > 0
    }


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return slices of at most ``CHUNK`` values."""
    return in_parts(values, CHUNK)
