"""Record the history of balances: the amounts after each change.

``record`` runs in the transaction that writes the mirror row, under the row's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import router
from django.db.models import Exists, OuterRef, QuerySet

from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.db.statements import insert_many
from payments_integration.db.transactions import locked, repeatable
from payments_integration.models import Balance


class Amounts(NamedTuple):
    """The merchant's money in one currency, in minor units."""

    available: int
    pending: int
    reserve: int
    hold: int
    debt: int

    @property
    def total(self) -> int:
        """The balance that movements change: all money at the provider, less the debt to it."""
        return self.available + self.pending + self.reserve + self.hold - self.debt


def changes_of(balance: Balance) -> QuerySet[BalanceChange]:
    return BalanceChange.objects.filter(account=balance.account, currency=balance.currency)


def record(rows: Sequence[Any]) -> None:
    """Record the balances whose amounts this transaction has changed. Takes one statement, none without a change."""
    balances = [row for row in rows if isinstance(row, Balance)]
    _record([row for row in balances if any(getattr(row, name) != row.as_read.get(name) for name in Amounts._fields)])


def backfill() -> int:
    """Record the present amounts of balances that were mirrored before the app was installed. Returns how many."""
    known = BalanceChange.objects.filter(account=OuterRef("account"), currency=OuterRef("currency"))

    def record_unknown() -> int:
        rows = list(locked(Balance.objects.order_by("pk")))
        unknown = set(Balance.objects.filter(~Exists(known)).values_list("pk", flat=True))
        return _record([row for row in rows if row.pk in unknown])

    return repeatable(record_unknown, using=router.db_for_write(BalanceChange))


def _record(rows: Sequence[Balance]) -> int:
    changes = [
        BalanceChange(
            account=row.account,
            currency=row.currency,
            # An answer that confirmed the row may have set its time back by part of a second.
            at=max(row.state_at, row.as_read.get("state_at", row.state_at)),
            **{name: getattr(row, name) for name in Amounts._fields},
        )
        for row in rows
    ]
    insert_many(changes, keys=False)
    return len(changes)
