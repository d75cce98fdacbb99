"""Balances at the end of days; those of closed months are stored once and never computed again.

A scheduled pass stores them half a minute or so after a month has closed, and so does the first who reads them. The
journal and the cash book then say the same of that month for ever: also if TIME_ZONE is set later, if changes of a
balance arrive even later, and if the history of a balance is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.db import DatabaseError, IntegrityError, router, transaction
from django.db.models import Exists, IntegerField, Max, Min, OuterRef, QuerySet, Value
from django.utils import timezone

from payments_integration.contrib.finance.models import ClosingBalance
from payments_integration.contrib.finance.movements import closes_at
from payments_integration.dates import day_of, start_of, today
from payments_integration.db.statements import insert_many, union_of
from payments_integration.models import AccountState, Balance, BalanceChange

_DAY = timedelta(days=1)
#: Parts of one statement. SQLite takes 500.
_PARTS = 400


class Amounts(NamedTuple):
    """What the merchant has in one currency, in minor units."""

    available: int
    pending: int
    reserve: int
    hold: int
    debt: int

    @property
    def total(self) -> int:
        """The balance that movements change: everything at the provider, less what is owed to it."""
        return self.available + self.pending + self.reserve + self.hold - self.debt


#: The amounts at the end of days, by account and currency; None: no balance was known yet.
Ends = dict[tuple[str, str], dict[date, Amounts | None]]


def ends_of(days: Collection[date], account: str | None = None) -> Ends:
    """The balances of one account, or of all, at the end of these days. Three statements; more for 400 unstored ends.

    The end of a day that is not over is now.
    """
    of_account = {"account": account} if account is not None else {}
    balances = list(Balance.objects.filter(**of_account).only("pk", "account", "currency"))
    last_days = {day: _last_day(day) for day in days}
    rows = ClosingBalance.objects.filter(day__in={*days, *last_days.values()}, **of_account)
    names = ("account", "currency", "day", *Amounts._fields)
    stored = {(account, currency, day): Amounts(*amounts)
              for account, currency, day, *amounts in rows.values_list(*names)}  # fmt: skip
    found: Ends = {}
    for account_, currency, _ in stored:
        found.setdefault((account_, currency), dict.fromkeys(days))
    missing: list[tuple[Balance, date]] = []
    for balance in balances:
        of_balance = found.setdefault((balance.account, balance.currency), dict.fromkeys(days))
        key = (balance.account, balance.currency)
        for day in days:
            of_balance[day] = stored.get((*key, day))
            # A month is stored as a whole: what it lacks was not known.
            if (*key, last_days[day]) not in stored:
                missing.append((balance, day))
    for (balance, day), amounts_ in zip(missing, _computed(missing), strict=True):
        found[balance.account, balance.currency][day] = amounts_
    return found


def close_months() -> int:
    """Store the balances of every month that is closed and not stored; returns how many rows.

    It may run at any time, repeatedly and next to itself. One statement if there is nothing to store. A month waits
    while events of it may be missing: a change of the balance that comes late still counts.
    """
    until = _closed_until()
    unstored = list(_without_end(until))
    if not unstored:
        return 0
    complete = dict(AccountState.objects.values_list("pk", "watermark"))
    return sum(
        _close(balance, until) for balance in unstored if _is_complete(complete.get(balance.account), start_of(until))
    )


def close_months_before_reading() -> None:
    """The same for a reader, who gets the figures even if they cannot be stored, for instance on a standby."""
    # The next scheduled pass says why.
    with suppress(DatabaseError):
        close_months()


def _closed_until() -> date:
    """The first day that is not in a closed month."""
    now, until = timezone.now(), today().replace(day=1)
    while closes_at(until) > now:
        until = (until - _DAY).replace(day=1)
    return until


def _without_end(until: date) -> QuerySet[Balance]:
    """The balances that were known before this day and whose last month is not stored."""
    stored = ClosingBalance.objects.filter(
        account=OuterRef("account"), currency=OuterRef("currency"), day=until - _DAY
    )
    known = BalanceChange.objects.filter(balance=OuterRef("pk"), at__lt=start_of(until))
    return Balance.objects.filter(~Exists(stored), Exists(known)).only("pk", "account", "currency")


def _is_complete(watermark: datetime | None, until: datetime) -> bool:
    # Without reconciliation there is nothing to wait for.
    return watermark is None or watermark >= until


def _close(balance: Balance, until: date) -> int:
    stored = ClosingBalance.objects.filter(account=balance.account, currency=balance.currency)
    last = stored.aggregate(day=Max("day"))["day"]
    if last is None:
        first = day_of(BalanceChange.objects.filter(balance=balance).aggregate(at=Min("at"))["at"])
    else:
        first = last + _DAY
    wanted = [(balance, day) for day in _days(first, until)]
    rows = [
        ClosingBalance(account=balance.account, currency=balance.currency, day=day, **amounts._asdict())
        for (_, day), amounts in zip(wanted, _computed(wanted), strict=True)
        if amounts is not None
    ]
    try:
        # All or none, so that of two processes one stores the month.
        with transaction.atomic(using=router.db_for_write(ClosingBalance)):
            insert_many(rows, keys=False)
    except IntegrityError:
        return 0
    return len(rows)


def _computed(wanted: Sequence[tuple[Balance, date]]) -> Iterator[Amounts | None]:
    """The last amounts of each balance that were mirrored before its day ended."""
    for start in range(0, len(wanted), _PARTS):
        parts = [
            BalanceChange.objects.filter(balance=balance, at__lt=start_of(day + _DAY))
            .annotate(part=Value(number, IntegerField()))
            .order_by("-at", "-pk")
            .values_list("part", *Amounts._fields)[:1]
            for number, (balance, day) in enumerate(wanted[start : start + _PARTS])
        ]
        rows = union_of(parts, using=router.db_for_write(BalanceChange))
        found = {int(number): Amounts(*amounts) for number, *amounts in rows}
        yield from (found.get(number) for number in range(len(parts)))


def _days(first: date, until: date) -> Iterable[date]:
    return (first + timedelta(days=number) for number in range((until - first).days))


def _last_day(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) - _DAY
