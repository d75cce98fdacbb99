"""The journal of a period, and how its movements compare with the balances.

A movement is in the journal on its ``booked_on``, which never changes. So a month that is closed has the same journal
for ever, and the journals of consecutive periods contain each movement once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date

from django.db.models import Count, F, Q, QuerySet, Sum

from payments_integration.contrib.finance.models import Movement
from payments_integration.contrib.finance.movements import start_of
from payments_integration.db.keyset import Order
from payments_integration.models import Balance, BalanceChange

#: The days that a journal may begin and end with; within the years that every database stores.
EARLIEST, LATEST = date(1970, 2, 1), date(8999, 12, 1)
#: Movements per statement of ``stream``.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Period:
    """The days from ``since`` up to and without ``until``, of one account (None: of all)."""

    since: date
    until: date
    account: str | None = None

    def movements(self) -> QuerySet[Movement]:
        """What is in the journal of the period."""
        return self._of_account().filter(booked_on__gte=self.since, booked_on__lt=self.until)

    def recorded_after(self) -> QuerySet[Movement]:
        """What occurred in the period and is in the journal of a later one."""
        return self._of_account().filter(
            occurred_on__gte=self.since, occurred_on__lt=self.until, booked_on__gte=self.until
        )

    def _of_account(self) -> QuerySet[Movement]:
        return Movement.objects.filter(**({"account": self.account} if self.account is not None else {}))


@dataclass(slots=True)
class Statement:
    """The money of one account and currency in a period, in minor units."""

    account: str
    currency: str
    #: The balance before the period and at its end; None if no balance was mirrored until then.
    opening: int | None = None
    closing: int | None = None
    #: The sum of the movements in the journal of the period, by kind.
    booked: dict[str, int] = field(default_factory=dict)
    #: Of those, what occurred before the period. The opening balance contains it.
    occurred_before: int = 0
    #: What occurred in the period and is in a later journal. The closing balance contains it.
    recorded_after: int = 0
    #: How many movements of the journal occurred in a month that was closed when they were recorded.
    recorded_later: int = 0

    @property
    def total(self) -> int:
        """The sum of the movements in the journal."""
        return sum(self.booked.values())

    @property
    def unexplained(self) -> int | None:
        """What changed the balance and is no movement; None if a balance is not known."""
        if self.opening is None or self.closing is None:
            return None
        occurred = self.total - self.occurred_before + self.recorded_after
        return self.closing - self.opening - occurred


def stream(period: Period) -> Iterator[Movement]:
    """The movements in the journal's order, a page per statement.

    A server-side cursor would need a transaction for the whole file, which a connection pooler may not allow.
    """
    order = Order(Movement._meta, ("booked_on",))
    rows = period.movements().order_by(*order.by)
    page = list(rows[:PAGE])
    while page:
        yield from page
        page = list(rows.filter(order.after(order.place(page[-1])))[:PAGE]) if len(page) == PAGE else []


def parts(period: Period) -> list[tuple[str, str, str]]:
    """Each (account, currency, kind) that the journal of the period contains, in order."""
    found = period.movements().order_by("account", "currency", "kind")
    return list(found.values_list("account", "currency", "kind").distinct())


def statements(period: Period) -> list[Statement]:
    """A statement for each account and currency that has movements or a balance, in order."""
    found: dict[tuple[str, str], Statement] = {}

    def of(account: str, currency: str) -> Statement:
        return found.setdefault((account, currency), Statement(account, currency))

    groups = ("account", "currency")
    later = Count("pk", Q(booked_on__gt=F("occurred_on")))
    sums = period.movements().order_by().values_list(*groups, "kind").annotate(Sum("amount"), later=later)
    for account, currency, kind, amount, count in sums:
        statement = of(account, currency)
        statement.booked[kind] = amount
        statement.recorded_later += count
    before = period.movements().filter(occurred_on__lt=period.since)
    for account, currency, amount in before.order_by().values_list(*groups).annotate(Sum("amount")):
        of(account, currency).occurred_before = amount
    for account, currency, amount in period.recorded_after().order_by().values_list(*groups).annotate(Sum("amount")):
        of(account, currency).recorded_after = amount
    for balance in _balances(period):
        statement = of(balance.account, balance.currency)
        statement.opening = _total(balance, period.since)
        statement.closing = _total(balance, period.until)
    return [found[key] for key in sorted(found)]


def _balances(period: Period) -> Iterable[Balance]:
    return Balance.objects.filter(**({"account": period.account} if period.account is not None else {}))


def _total(balance: Balance, day: date) -> int | None:
    """All of the merchant's money in a currency, as it was mirrored before this day began."""
    changes = BalanceChange.objects.filter(balance=balance, at__lt=start_of(day))
    last = changes.order_by("-at", "-pk").first()
    return last.available + last.pending + last.reserve + last.hold - last.debt if last is not None else None
