"""Read the journal of a period, and compare its movements with the balances.

A movement is in the journal on its ``booked_on``, which never changes. So the journals of consecutive periods contain
each movement once. The journal of a closed month never changes if the account's books were open in that month.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import pairwise

from django.db.models import Count, QuerySet

from payments_integration.contrib.finance.balances import Amounts
from payments_integration.contrib.finance.closing import close_months_before_reading, ends_of, without_end
from payments_integration.contrib.finance.models import Movement
from payments_integration.db.keyset import Order
from payments_integration.db.sums import ExactSum
from payments_integration.models import Balance

#: The first and last day that a journal may have. Every database stores these years.
EARLIEST, LATEST = date(1970, 2, 1), date(8999, 12, 1)
#: Movements per statement of ``stream``.
PAGE = 1000
#: The most days that a cash book shows one by one.
MOST_DAYS = 62
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Period:
    """The days from ``since`` to the day before ``until``, of one account, or of all if ``account`` is None.

    A ``currency`` narrows the movements only: statements have every currency with a balance.
    """

    since: date
    until: date
    account: str | None = None
    currency: str | None = None

    def movements(self) -> QuerySet[Movement]:
        """Return the movements in the journal of the period."""
        return self._chosen().filter(booked_on__gte=self.since, booked_on__lt=self.until)

    def recorded_after(self) -> QuerySet[Movement]:
        """Return the movements that occurred in the period and are in the journal of a later one."""
        return self._chosen().filter(
            occurred_on__gte=self.since, occurred_on__lt=self.until, booked_on__gte=self.until
        )

    def _chosen(self) -> QuerySet[Movement]:
        chosen = {"account": self.account, "currency": self.currency}
        return Movement.objects.filter(**{name: value for name, value in chosen.items() if value is not None})


@dataclass(slots=True)
class Statement:
    """The money of one account and currency in a period, in minor units. An empty account stands for all accounts."""

    account: str
    currency: str
    #: The provider's balance before the period and at its end; None if no balance was mirrored by then.
    before: Amounts | None = None
    after: Amounts | None = None
    #: The sum of the movements in the journal of the period, by kind.
    booked: dict[str, int] = field(default_factory=dict)
    #: The part of ``booked`` that occurred before the period. The opening balance contains it.
    occurred_before: int = 0
    #: The sum of the movements that occurred in the period and are in a later journal. The closing balance has it.
    recorded_after: int = 0
    #: The number of movements in the journal whose month was closed when they were recorded.
    recorded_later: int = 0

    @property
    def opening(self) -> int | None:
        """The balance before the period: available, pending, reserve and hold, less debt."""
        return self.before.total if self.before is not None else None

    @property
    def closing(self) -> int | None:
        """The balance at the end of the period."""
        return self.after.total if self.after is not None else None

    @property
    def total(self) -> int:
        """The sum of the movements in the journal."""
        return sum(self.booked.values())

    @property
    def elsewhere(self) -> int:
        """The sum of this period's movements in later journals, less this journal's movements of earlier periods."""
        return self.recorded_after - self.occurred_before

    @property
    def unexplained(self) -> int | None:
        """The change of the balance that no movement explains; None if a balance is not known."""
        if self.opening is None or self.closing is None:
            return None
        return self.closing - self.opening - self.total - self.elsewhere

    @property
    def has_late(self) -> bool:
        """True if movements of a closed month were recorded later."""
        return bool(self.occurred_before or self.recorded_after)

    @property
    def has_moved(self) -> bool:
        return any(self.booked.values()) or self.has_late or bool(self.unexplained)


def steps(period: Period) -> list[Period]:
    """Return the days of a period, or its months if it has more than ``MOST_DAYS`` days."""
    found = []
    since = period.since
    while since < period.until:
        by_day = (period.until - period.since).days <= MOST_DAYS
        until = since + _DAY if by_day else min(month_after(since), period.until)
        found.append(replace(period, since=since, until=until))
        since = until
    return found


def month_after(day: date) -> date:
    """Return the first day of the next month."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def unstored(period: Period) -> QuerySet[Balance]:
    """Return the balances whose last month is not stored: reconciliation is behind, or the database is read-only."""
    found = without_end(month_after(period.until - _DAY))
    return found if period.account is None else found.filter(account=period.account)


def together(found: Iterable[Statement]) -> list[Statement]:
    """Merge the statements of all accounts in each currency, sorted by currency.

    A merged balance is known if the balance of every account is known.
    """
    sums: dict[str, Statement] = {}
    for one in found:
        if one.currency not in sums:
            sums[one.currency] = Statement("", one.currency, before=one.before, after=one.after)
        else:
            known = sums[one.currency]
            known.before, known.after = _added(known.before, one.before), _added(known.after, one.after)
        whole = sums[one.currency]
        for kind, amount in one.booked.items():
            whole.booked[kind] = whole.booked.get(kind, 0) + amount
        whole.occurred_before += one.occurred_before
        whole.recorded_after += one.recorded_after
        whole.recorded_later += one.recorded_later
    return [sums[currency] for currency in sorted(sums)]


def _added(one: Amounts | None, other: Amounts | None) -> Amounts | None:
    return Amounts(*map(int.__add__, one, other)) if one is not None and other is not None else None


def stream(period: Period) -> Iterator[Movement]:
    """Yield the movements in the journal's order, reading a page per statement.

    A server-side cursor needs a transaction for the whole file, which a connection pooler may not allow.
    """
    order = Order(Movement._meta, ("booked_on",))
    rows = period.movements().order_by(*order.by)
    page = list(rows[:PAGE])
    while page:
        yield from page
        page = list(rows.filter(order.after(order.place(page[-1])))[:PAGE]) if len(page) == PAGE else []


def parts(period: Period) -> list[tuple[str, str, str]]:
    """Return each (account, currency, kind) in the journal of the period, sorted."""
    found = period.movements().order_by("account", "currency", "kind")
    return list(found.values_list("account", "currency", "kind").distinct())


def statements(period: Period) -> list[Statement]:
    """Return a statement for each account and currency that has movements or a balance, sorted."""
    [found] = statements_of([period])
    return found


def statements_of(periods: Sequence[Period]) -> list[list[Statement]]:
    """Return the statements of each of these consecutive periods, with as many SQL statements as for one.

    The database adds up the movements of each day.
    """
    close_months_before_reading()
    whole = replace(periods[0], until=periods[-1].until)
    begins = [period.since for period in periods]
    found: list[dict[tuple[str, str], Statement]] = [{} for _ in periods]

    def of(number: int, account: str, currency: str) -> Statement:
        return found[number].setdefault((account, currency), Statement(account, currency))

    def number_of(day: date) -> int:
        return bisect_right(begins, day) - 1

    days = ("account", "currency", "booked_on", "occurred_on")
    booked = whole.movements().order_by().values_list(*days, "kind").annotate(ExactSum("amount"), Count("pk"))
    for account, currency, booked_on, occurred_on, kind, amount, count in booked:
        number = number_of(booked_on)
        statement = of(number, account, currency)
        statement.booked[kind] = statement.booked.get(kind, 0) + amount
        if booked_on != occurred_on:
            statement.recorded_later += count
        if occurred_on < begins[number]:
            statement.occurred_before += amount
            if occurred_on >= whole.since:
                of(number_of(occurred_on), account, currency).recorded_after += amount
    late = whole.recorded_after().order_by().values_list(*days[:2], "occurred_on").annotate(ExactSum("amount"))
    for account, currency, occurred_on, amount in late:
        of(number_of(occurred_on), account, currency).recorded_after += amount
    # The day before each period, and the last day of the last one.
    ends = [begin - _DAY for begin in [*begins, whole.until]]
    for (account, currency), amounts in ends_of(ends, whole.account).items():
        for number, (before, after) in enumerate(pairwise(ends)):
            statement = of(number, account, currency)
            statement.before, statement.after = amounts[before], amounts[after]
    return [[of_period[key] for key in sorted(of_period)] for of_period in found]
