"""Record the history of balances: the amounts after each change.

``record`` runs in the transaction that writes the mirror row, under the row's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import router
from django.db.models import OuterRef, QuerySet, Subquery

from payments_integration import schemas
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


def amounts_in(body: bytes) -> Amounts:
    """Return the amounts in the content of an event that was applied to a balance."""
    resource: Any = schemas.event_resource(schemas.decode_event(body))
    return Amounts(*(getattr(resource, name) for name in Amounts._fields))


def changes_of(balance: Balance) -> QuerySet[BalanceChange]:
    return BalanceChange.objects.filter(account=balance.account, currency=balance.currency)


def record(rows: Sequence[Any]) -> None:
    """Record the balances whose amounts this transaction has changed. Takes one statement, none without a change."""
    balances = [row for row in rows if isinstance(row, Balance)]
    _record([row for row in balances if any(getattr(row, name) != row.as_read.get(name) for name in Amounts._fields)])


def backfill() -> int:
    """Record each balance whose present amounts are not the last ones recorded. Returns how many.

    Its last change came before the app was installed, or from a process that did not have the app yet.
    """
    of_it = BalanceChange.objects.filter(account=OuterRef("account"), currency=OuterRef("currency"))
    newest = Subquery(of_it.order_by("-at", "-pk").values("pk")[:1])

    def record_unknown() -> int:
        rows = list(locked(Balance.objects.order_by("pk")))
        keys = dict(Balance.objects.annotate(newest=newest).values_list("pk", "newest"))
        changes = BalanceChange.objects.in_bulk([key for key in keys.values() if key is not None])
        return _record([row for row in rows if _amounts(changes.get(keys[row.pk])) != _amounts(row)])

    return repeatable(record_unknown, using=router.db_for_write(BalanceChange))


def _amounts(row: Balance | BalanceChange | None) -> list[int | None]:
    return [getattr(row, name, None) for name in Amounts._fields]


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
