"""Find orders that were paid more than once: two payments of a reference hold money in one currency.

A voucher may be paid late, after another attempt, or the payer may use two tabs. If the order's model knows its price,
paying in parts is fine and only an overpaid order counts. Transfers to a deposit reference never count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from payments_integration.enums import RECEIVED_PAYMENT_STATUSES
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.models import Payment
from payments_integration.payable.models import Payable, PayableQuerySet, payables
from payments_integration.payable.queries import COMPARED_FIELDS, chunks, conditions, with_money_left, with_references
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: A merchant reference and a currency.
Paid = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Double:
    """An order that was paid more than once."""

    merchant_reference: str
    currency: str
    #: The payments that hold money, oldest first.
    payments: tuple[Payment, ...]


def find_doubles(account: str, paid: Iterable[Paid]) -> list[Double]:
    """Return the references and currencies that are paid more than once now, in alphabetical order."""
    wanted = sorted(set(paid))
    found: list[Double] = []
    for chunk in chunks(wanted):
        found += _find(account, set(chunk))
    return sorted(found, key=lambda double: (double.merchant_reference, double.currency))


def _find(account: str, wanted: set[Paid]) -> Iterator[Double]:
    rows = with_references(account, sorted({reference for reference, _currency in wanted}), deposits=False)
    by_paid: dict[Paid, list[Payment]] = defaultdict(list)
    for payment in rows.filter(status__in=RECEIVED_PAYMENT_STATUSES).only(*COMPARED_FIELDS):
        by_paid[str(payment.merchant_reference), payment.currency].append(payment)
    several = {key: payments for key, payments in by_paid.items() if key in wanted and len(payments) > 1}
    left = with_money_left([payment for payments in several.values() for payment in payments])
    holding = {key: [payment for payment in payments if payment.pk in left] for key, payments in several.items()}
    holding = {key: payments for key, payments in holding.items() if len(payments) > 1}
    in_order = _paid_in_parts(account, set(holding)) if holding else set()
    for (reference, currency), payments in holding.items():
        if (reference, currency) not in in_order:
            ordered = sorted(payments, key=lambda payment: (payment.succeeded_at or payment.created_at, payment.pk))
            yield Double(reference, currency, tuple(ordered))


def _paid_in_parts(account: str, paid: set[Paid]) -> set[Paid]:
    """Return the references and currencies whose orders know their price and are not overpaid."""
    surplus: dict[Paid, int] = defaultdict(int)
    for model in _priced(account):
        try:
            for key, amount in _surplus(model, account, sorted({reference for reference, _currency in paid})):
                surplus[key] += amount
        except INTERRUPTIONS:
            raise
        except BaseException:  # the project's code and tables may fail in any way; the pass goes on
            logger.exception("The prices of %s cannot be read", model._meta.label, extra={"account": account})
    return {key for key, amount in surplus.items() if not amount}


def _surplus(model: type[Payable], account: str, references: list[str]) -> Iterator[tuple[Paid, int]]:
    for wanted, asked in conditions(model, references):
        orders: Iterable[Payable] = PayableQuerySet(model).filter(asked).with_totals()
        for order in orders:
            of_account, reference = order._key()
            if of_account in (None, account) and reference in wanted:
                for currency, amount in _overpaid(order, account):
                    yield (reference, currency), amount


def _priced(account: str) -> list[type[Payable]]:
    return [
        model
        for model in payables()
        if model._knows_price() and (model.payments_account_field or model.payments_account in (None, account))
    ]


def _overpaid(order: Payable, account: str) -> Iterator[tuple[str, int]]:
    """Yield the currency of its price and the surplus in minor units; nothing if it does not know its price."""
    try:
        price = order.payments_price()
        if price is not None:
            amount, currency = price
            yield currency, order.totals_in(currency).overpaid(amount)
    except INTERRUPTIONS:
        raise
    except BaseException:  # the project's own code may raise anything, such as a time-out of gevent
        logger.exception("payments_price() of %s failed", order._meta.label, extra={"account": account})
