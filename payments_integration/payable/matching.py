"""Payments by the merchant's reference, compared byte for byte on every database.

MariaDB and MySQL compare text without regard to case, accents and trailing spaces: there "order-a" finds the payment
of "ORDER-A" as well, and another order would count as paid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, Func, Q, QuerySet
from django.db.models.sql.compiler import SQLCompiler

from payments_integration.enums import Flow, MethodFamily
from payments_integration.models import Payment, Refund
from payments_integration.payable.totals import Totals, reckon

#: References of one statement. SQLite takes 32,766 values in one, others more.
CHUNK = 500

#: What totals are made of.
_PAYMENT_FIELDS = (
    "merchant_reference", "status", "amount", "amount_received", "refunded_amount", "currency", "state_at", "gone_at",
)  # fmt: skip
_REFUND_FIELDS = ("payment_id", "status", "amount", "currency", "state_at")

#: A transfer to a deposit reference: its ``merchant_reference`` is that of the deposit reference, "e.g. an id of the
#: payer on the merchant side" (spec, "Deposit reference"), and may well be some order's number.
DEPOSITS = Q(flow=Flow.DEPOSIT_REFERENCE) | Q(method_family=MethodFamily.DEPOSIT_REFERENCE)

#: Whose a payment is: its account (None: any) and its reference.
Key = tuple[str | None, str]


class AsWritten(Func):
    """A text as its bytes, where the database would compare it otherwise; a condition that is no use for an index."""

    arity = 1
    template = "%(expressions)s"
    output_field = CharField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        # Without statistics SQLite would walk through the account's payments rather than the reference's.
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="CAST(%(expressions)s AS BINARY)", **context)


def payments_of(account: str | None, reference: str, *, deposits: bool) -> QuerySet[Payment]:
    """Newest first. None at all for an empty reference: it says nothing about whose a payment is."""
    if not reference:
        return Payment.objects.none()
    # The first condition has the index, the second is exact.
    found = Payment.objects.filter(merchant_reference=reference).alias(written=AsWritten("merchant_reference"))
    return _within(found.filter(written=reference), account, deposits=deposits).order_by("-created_at", "-pk")


def totals_by_key(keys: Iterable[Key], *, deposits: bool) -> dict[Key, dict[str, Totals]]:
    """Totals by currency, at least of each key that has payments. Two statements for up to 500 keys of one account."""
    references: dict[str | None, set[str]] = defaultdict(set)
    for account, reference in keys:
        if reference:
            references[account].add(reference)
    found: dict[Key, dict[str, Totals]] = {}
    for account, wanted in references.items():
        ordered = sorted(wanted)
        for start in range(0, len(ordered), CHUNK):
            found |= _totals(account, ordered[start : start + CHUNK], deposits=deposits)
    return found


def _totals(account: str | None, references: list[str], *, deposits: bool) -> dict[Key, dict[str, Totals]]:
    there = _within(Payment.objects.filter(merchant_reference__in=references), account, deposits=deposits)
    payments: dict[Key, list[Payment]] = defaultdict(list)
    for payment in there.only(*_PAYMENT_FIELDS):
        # As written: what the database found of another writing has a key that nobody asks for.
        payments[account, payment.merchant_reference or ""].append(payment)
    refunds: dict[str, list[Refund]] = defaultdict(list)
    # By the payments' condition, not by their ids, which may be many.
    given_back = Refund.objects.filter(payment__in=there.values("pk"))
    for refund in given_back.only(*_REFUND_FIELDS):
        refunds[str(refund.payment_id)].append(refund)
    return {
        key: reckon(some, [refund for payment in some for refund in refunds[payment.pk]])
        for key, some in payments.items()
    }


def _within(payments: QuerySet[Payment], account: str | None, *, deposits: bool) -> QuerySet[Payment]:
    if account is not None:
        payments = payments.alias(owner=AsWritten("account")).filter(owner=account)
    return payments if deposits else payments.exclude(DEPOSITS)


def is_deposit(payment: Payment) -> bool:
    """The same as ``DEPOSITS``, of one payment."""
    return payment.flow == Flow.DEPOSIT_REFERENCE or payment.method_family == MethodFamily.DEPOSIT_REFERENCE
