"""Find orders that do not match their payments: unpaid or gone although money came, or paid without a payment.

The option ``payments_paid`` of a ``Payable`` says which rows the project treats as paid. The work is limited: it
compares the newest payments of an account and the newest rows of each model, in sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from payments_integration.dates import day_of
from payments_integration.enums import PAID_PAYMENT_STATUSES
from payments_integration.models import Payment
from payments_integration.payable import attempts
from payments_integration.payable.models import Payable, payables
from payments_integration.payable.queries import (
    COMPARED_FIELDS,
    chunks,
    conditions,
    is_deposit,
    with_money_left,
    with_references,
)

#: How many of the newest payments, and of the newest rows of each model, are compared.
LIMIT = 1_000
#: The time that a handler has to mark the order as paid. It covers the retries of a failing handler.
GRACE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class OrderRow:
    """The compared values of a row of a merchant's model."""

    model: type[Payable]
    pk: Any
    reference: str
    is_paid: bool


def compared_models(account: str) -> list[type[Payable]]:
    """Return the models that say which rows are paid and that have payments of the account."""
    found = [model for model in payables() if model.payments_paid is not None]
    # A child's rows are also rows of its parent, so comparing both would report them twice.
    return [model for model in _of(account, found) if not set(model._meta.all_parents).intersection(found)]


def models_of(account: str) -> list[type[Payable]]:
    """Return the models that have payments of the account."""
    return _of(account, payables())


def _of(account: str, found: list[type[Payable]]) -> list[type[Payable]]:
    return [model for model in found if model.payments_account_field or model.payments_account in (None, account)]


def newest_paid(account: str, since: datetime) -> list[Payment]:
    """Return the payments with a reference that were created at ``since`` or later and are paid for longer than
    ``GRACE``, newest first.

    Reads nothing if no model has payments of the account.
    """
    if not models_of(account):
        return []
    before = timezone.now() - GRACE
    newest = Payment.objects.filter(account=account, status__in=PAID_PAYMENT_STATUSES)
    newest = newest.filter(created_at__gte=since, created_at__lte=before)
    return [
        payment
        for payment in newest.only(*COMPARED_FIELDS).order_by("-created_at", "-pk")[:LIMIT]
        if payment.merchant_reference and (payment.succeeded_at or payment.created_at) <= before
    ]


def orders_of(account: str, compared: list[type[Payable]], payments: list[Payment]) -> list[OrderRow]:
    """Return the rows of the models that have the reference of one of the payments."""
    references = sorted({str(payment.merchant_reference) for payment in payments})
    return [row for model in compared for row in _rows_of(model, account, references)]


def paid_without_order(payments: list[Payment], orders: list[OrderRow]) -> list[Payment]:
    """Return the payments of the list that still hold received money although no row has their reference.

    ``orders`` are their rows of all models of the account. Only payments that an ``attempt_key`` began: other
    payments of a project, such as donations, need no row. A row that the default manager hides, such as one that is
    marked as deleted, counts as gone.
    """
    there = {row.reference for row in orders}
    begun = attempts.begun([payment for payment in payments if payment.merchant_reference not in there])
    holding = with_money_left(begun)
    return [payment for payment in begun if payment.pk in holding]


def paid_for_and_unpaid(
    account: str, payments: list[Payment], orders: list[OrderRow]
) -> list[tuple[Payment, OrderRow]]:
    """Return the payments of the list that still hold received money although their order is not paid, each with its
    order.

    ``orders`` are their rows, at least of ``compared_models``. Leaves out a payment that was refunded in full or is
    being refunded in full.
    """
    found: list[tuple[Payment, OrderRow]] = []
    for model in compared_models(account):
        unpaid: dict[str, list[OrderRow]] = defaultdict(list)
        for row in orders:
            if row.model is model and not row.is_paid:
                unpaid[row.reference].append(row)
        mine = [payment for payment in payments if model.payments_include_deposits or not is_deposit(payment)]
        found += [(payment, row) for payment in mine for row in unpaid[str(payment.merchant_reference)]]
    left = with_money_left([payment for payment, _row in found])
    return [(payment, row) for payment, row in found if payment.pk in left]


def paid_without_payment(model: type[Payable], account: str, since: datetime) -> list[OrderRow]:
    """Return rows that are paid although none of their payments has received money, newest first.

    Leaves out what costs nothing, as far as ``payments_amount_field`` says.

    ``Meta.get_latest_by`` decides which rows are the newest, otherwise the highest keys. If it names a time, only rows
    since ``since`` are compared. Rows whose money was refunded or charged back have received money.
    """
    rows = [row for row in _newest(model, account, since) if row.is_paid and row.reference]
    of_account = None if model.payments_account is None and not model.payments_account_field else account
    arrived: set[str] = set()
    for chunk in chunks(sorted({row.reference for row in rows})):
        found = with_references(of_account, chunk, deposits=model.payments_include_deposits)
        references = found.filter(amount_received__gt=0).values_list("merchant_reference", flat=True)
        arrived.update(str(reference) for reference in references.distinct())
    return [row for row in rows if row.reference not in arrived]


def _rows_of(model: type[Payable], account: str, references: list[str]) -> Iterator[OrderRow]:
    """Yield the rows with one of the references, byte for byte, because the merchant's column may compare loosely."""
    for wanted, asked in conditions(model, references):
        yield from (row for row in _read(model, account, asked) if row.reference in wanted)


def _newest(model: type[Payable], account: str, since: datetime) -> Iterator[OrderRow]:
    latest = model._meta.get_latest_by or "pk"
    order = [latest] if isinstance(latest, str) else list(latest)
    asked, first, field = Q(), order[0].removeprefix("-"), None
    with suppress(FieldDoesNotExist):  # "pk", or a field of another model
        field = model._meta.get_field(first)
    if isinstance(field, models.DateField):
        asked = Q(**{f"{first}__gte": since if isinstance(field, models.DateTimeField) else day_of(since)})
    if model.payments_amount_field:
        asked &= ~Q(**{model.payments_amount_field: 0})
    # ``latest()`` takes the last row of this order.
    backwards = [name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in order]
    return _read(model, account, asked, order_by=backwards)


def _read(
    model: type[Payable], account: str, asked: Q, *, order_by: Sequence[str] | None = None
) -> Iterator[OrderRow]:
    """Yield the rows of the account, in one statement. With ``order_by``, only the first ``LIMIT``."""
    rows: Any = model._default_manager.filter(asked)
    if name := model.payments_account_field:
        try:
            rows = rows.filter(**{name: account})
        except (ValueError, ValidationError):  # a number or a UUID: no row can name this account
            return
    # The project's condition may join other tables. As a subquery, it cannot multiply rows, and the database evaluates
    # it only for the rows that are read.
    condition = Q() if model.payments_paid is None else model.payments_paid
    paid = Exists(model._default_manager.filter(condition, pk=OuterRef("pk")).order_by())
    rows = rows.order_by(*order_by)[:LIMIT] if order_by else rows.order_by()
    for pk, reference, is_paid in rows.values_list("pk", model.merchant_reference_field, paid):
        yield OrderRow(model, pk, "" if reference is None else str(reference), bool(is_paid))
