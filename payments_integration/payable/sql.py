"""Make the decisions of ``totals`` in SQL, to filter lists by them.

The index of references finds each row's payments. If other conditions shorten a list, only the payments of the
remaining rows are read. A property test compares the rules with ``Totals.paid`` and ``Totals.refundable``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import BigIntegerField, BooleanField, Case, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, In

from payments_integration.enums import (
    NEVER_REFUNDED_STATUSES,
    RECEIVED_PAYMENT_STATUSES,
    VOID_REFUND_STATUSES,
    RefundStatus,
)
from payments_integration.models import Payment, Refund, promised_refunds
from payments_integration.payable import prices
from payments_integration.payable.prices import Payable
from payments_integration.payable.queries import within
from payments_integration.payable.text import ExactText

RowsT = TypeVar("RowsT", bound=QuerySet[Any])

_COUNTED = sorted(RECEIVED_PAYMENT_STATUSES - NEVER_REFUNDED_STATUSES)


def require(rows: QuerySet[Payable]) -> None:
    """Raise ImproperlyConfigured if the rows cannot be compared with their payments in SQL."""
    prices.require(rows.model)
    _reference(rows.model)
    payments = Payment.objects.all().db
    if rows.db != payments:
        raise ImproperlyConfigured(
            f"{rows.model._meta.label} is read from the database {rows.db!r}, and the payments from {payments!r}: no "
            f"SQL joins them. If {payments!r} has these rows too, read them there: .using({payments!r}) before "
            "paid(), unpaid() and overpaid()."
        )


def paid(rows: RowsT) -> RowsT:
    """Apply ``PayableQuerySet.paid()`` to any queryset of the model."""
    require(rows)
    return rows.filter(prices.is_known(rows.model), is_paid(rows.model))


def unpaid(rows: RowsT) -> RowsT:
    require(rows)
    return rows.filter(prices.is_known(rows.model), ~Q(is_paid(rows.model)))


def overpaid(rows: RowsT) -> RowsT:
    require(rows)
    return rows.filter(prices.is_known(rows.model), is_overpaid(rows.model))


def is_paid(model: type[Payable]) -> Case:
    """Return an expression that is true if a row's payments come to its price, as ``Totals.is_paid``."""
    return _where(model, GreaterThanOrEqual(_total(model, _paid()), prices.minor(model)))


def is_overpaid(model: type[Payable]) -> Case:
    """Return an expression that is true if more than the price is refundable: ``Totals.overpaid`` is above 0."""
    return _where(model, GreaterThan(_total(model, _refundable()), prices.minor(model)))


def _where(model: type[Payable], condition: Any) -> Case:
    # A CASE is never null, so its negation selects all other rows.
    return Case(When(prices.is_right(model) & Q(condition), then=True), default=False, output_field=BooleanField())


def _total(model: type[Payable], part: Any) -> Coalesce:
    """Return the sum of this part of the row's payments in its currency.

    Without payments it is 0, or -1 in a currency that the spec does not have.
    """
    payments = payments_of_row(model).filter(currency=prices.currency_of(model, OuterRef))
    sums = payments.order_by().values("merchant_reference").annotate(_total=Sum(part)).values("_total")
    without = prices.by_exponent(model, lambda _decimals: Value(0), default=Value(-1))
    return Coalesce(Subquery(sums, output_field=BigIntegerField()), without, output_field=BigIntegerField())


def payments_of_row(model: type[Payable]) -> QuerySet[Payment]:
    """Return ``Payable.payments``, newest first, as a subquery of the model's rows."""
    account: Any = model.payments_account
    if model.payments_account_field:
        account = _text(model, model.payments_account_field)
    found = Payment.objects.filter(merchant_reference=_reference(model)).exclude(merchant_reference="")
    return within(found, account, deposits=model.payments_include_deposits).order_by("-created_at", "-pk")


def _reference(model: type[Payable]) -> ExactText:
    name = model.merchant_reference_field
    field = prices.column(model, name)
    plain = isinstance(field, models.CharField | models.TextField | models.IntegerField | models.UUIDField)
    if not plain or hasattr(field, "from_db_value"):
        raise ImproperlyConfigured(
            f"{model._meta.label}: paid(), unpaid() and overpaid() need a merchant_reference_field that is a text, an "
            f"integer or a UUID, and {name!r} is none."
        )
    return _text(model, name)


def _text(model: type[Payable], name: str) -> ExactText:
    field = prices.target(prices.column(model, name))
    return ExactText(OuterRef(name), is_uuid=isinstance(field, models.UUIDField))


# The parts below are computed for one payment.


def _paid() -> Case:
    """Return ``Totals.paid``: everything that was received, while a part of it is left."""
    has_rest = Q(In(ExactText("status"), _COUNTED)) & Q(GreaterThan(F("amount_received"), _taken()))
    return Case(When(has_rest, then=F("amount_received")), default=Value(0), output_field=BigIntegerField())


def _refundable() -> Case:
    """Return ``Totals.refundable``."""
    rest = Greatest(F("amount_received") - _taken(), Value(0), output_field=BigIntegerField())
    unpromised = Greatest(rest - Coalesce(promised_refunds(), Value(0)), Value(0), output_field=BigIntegerField())
    counts = Q(In(ExactText("status"), _COUNTED))
    return Case(When(counts, then=unpromised), default=Value(0), output_field=BigIntegerField())


def _taken() -> Greatest:
    """Return what ``rest_after`` subtracts: the provider's figure or the listed refunds, if they are more."""
    status = ExactText(F("status"))
    returned = Q(In(status, [RefundStatus.RETURNED.value])) & Q(state_at__gt=OuterRef("state_at"))
    listed = ~Q(In(status, sorted(VOID_REFUND_STATUSES)))
    reported = Coalesce(F("refunded_amount"), Value(0)) - _refunds(returned)
    return Greatest(reported, _refunds(listed), Value(0), output_field=BigIntegerField())


def _refunds(condition: Q) -> Coalesce:
    """Return the sum of the payment's refunds that meet the condition."""
    found = Refund.objects.filter(
        condition, payment_id=OuterRef("pk"), account=OuterRef("account"), currency=ExactText(OuterRef("currency"))
    )
    sums = found.order_by().values("payment_id").annotate(_total=Sum("amount")).values("_total")
    return Coalesce(Subquery(sums, output_field=BigIntegerField()), Value(0), output_field=BigIntegerField())
