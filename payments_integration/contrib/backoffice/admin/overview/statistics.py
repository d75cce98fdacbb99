"""The dashboard's statistics: a few queries per account, each over a limited range of an index, cached for a minute.

The cache holds the same for every user; the page decides who sees what. Amounts are never added across currencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import router
from django.db.models import BigIntegerField, Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.utils import timezone

from payments_integration import __version__, dates, health
from payments_integration.contrib.backoffice import todo
from payments_integration.contrib.finance.models import Movement
from payments_integration.db.statements import union_of
from payments_integration.db.sums import ExactSum
from payments_integration.health import AccountReport
from payments_integration.models import Balance, Payment, Payout, Refund

#: The days that are counted, today included.
DAYS = 30
#: What is usual on a day is the average of the same weekday in so many weeks before. ``DAYS`` has yesterday's too.
WEEKS = 4
CACHE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Days:
    """Calendar days in the site's time zone, oldest first. ``bounds``: the start of each, and the end of the last."""

    bounds: tuple[datetime, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def last(self) -> int:
        """The index of today."""
        return len(self) - 1


@dataclass(frozen=True, slots=True)
class Group:
    """What was created, or moved, on one day in one currency and has one status now. Amounts are in minor units."""

    day: int
    currency: str
    status: str
    count: int
    amount: int
    #: Payments only: the method's code.
    method: str = ""
    #: Movements only: the part of the amount that had moved when the day was as old as today is.
    early: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics that were asked for; the others are None or empty. ``as_of``: the time of the oldest count."""

    days: Days
    as_of: datetime
    health: AccountReport | None
    balances: list[Balance]
    payments: list[Group]
    payouts: list[Group]
    refunds: list[Group]
    #: What moved, by the day of the cash book; the status is the kind of the movements.
    movements: list[Group]
    #: When the movements were counted.
    moved_until: datetime
    #: Orders that were paid twice, or do not match their payments.
    differences: list[todo.Thing]


def last_days(count: int = DAYS) -> Days:
    """The last days, today included. A day has 23 or 25 hours when clocks change."""
    today = dates.today()
    days = (today - timedelta(days=count - 1 - number) for number in range(count + 1))
    return Days(tuple(map(dates.start_of, days)))


def gather(account: str, wanted: Iterable[str]) -> Statistics:
    """The statistics of one account. ``wanted``: names of ``_COUNTERS``; only these are counted."""
    days, names = last_days(), [name for name in _COUNTERS if name in set(wanted)]
    begun = days.bounds[0].isoformat()
    keys = {
        name: f"payments_integration:dashboard:{__version__}:{account}:{name}:{begun}".replace(" ", "_")
        for name in names
    }
    known = cache.get_many(keys.values())
    found: dict[str, tuple[datetime, Any]] = {}
    for name in names:
        kept = known.get(keys[name])
        if kept is None:
            kept = (timezone.now(), _COUNTERS[name](account, days))
            cache.set(keys[name], kept, CACHE_SECONDS)
        found[name] = kept
    values = {name: value for name, (_at, value) in found.items()}
    return Statistics(
        days=days,
        as_of=min((at for at, _value in found.values()), default=timezone.now()),
        health=values.get("health"),
        balances=values.get("balances", []),
        payments=values.get("payments", []),
        payouts=values.get("money_out", {}).get("payouts", []),
        refunds=values.get("money_out", {}).get("refunds", []),
        movements=values.get("movements", []),
        moved_until=found["movements"][0] if "movements" in found else timezone.now(),
        differences=values.get("differences", []),
    )


def _health(account: str, days: Days) -> AccountReport:
    return health.examine(account).accounts[account]


def _balances(account: str, days: Days) -> list[Balance]:
    return list(Balance.objects.filter(account=account, gone_at=None).defer("extra").order_by("currency"))


def _payments(account: str, days: Days) -> list[Group]:
    return [Group(*row) for row in _grouped(Payment.objects.all(), account, days, "method_code")]


def _money_out(account: str, days: Days) -> dict[str, list[Group]]:
    """Payouts and refunds, in one statement."""
    parts = {"payouts": Payout.objects.all(), "refunds": Refund.objects.all()}
    named = [_grouped(rows.annotate(name=Value(name)), account, days, "name") for name, rows in parts.items()]
    found: dict[str, list[Group]] = {name: [] for name in parts}
    for *row, name in union_of(named, using=router.db_for_write(Payout), convert=True):
        found[name].append(Group(*row))
    return found


def _movements(account: str, days: Days) -> list[Group]:
    first, last = (dates.day_of(days.bounds[number]) for number in (0, days.last))
    rows = Movement.objects.filter(account=account, booked_on__gte=first, booked_on__lte=last).order_by()
    sums = rows.values_list("booked_on", "currency", "kind").annotate(
        total=ExactSum("amount"), early=ExactSum(_if_early(last)), count=Count("pk")
    )
    return [
        Group((day - first).days, currency, kind, count, total, early=early)
        for day, currency, kind, total, early, count in sums
    ]


def _if_early(today: date) -> Case:
    """The amount if it moved on today's weekday in an earlier week, before the time of day that it is now."""
    clock = dates.on_site(timezone.now()).time()
    weeks = [today - timedelta(weeks=number) for number in range(1, WEEKS + 1)]
    is_early = [Q(booked_on=day, occurred_at__lt=dates.from_site(datetime.combine(day, clock))) for day in weeks]
    whens = [When(early, then=F("amount")) for early in is_early]
    return Case(*whens, default=Value(0), output_field=BigIntegerField())


def _differences(account: str, days: Days) -> list[todo.Thing]:
    return todo.differences_of(account, days.bounds[0])


def _grouped(rows: QuerySet[Any], account: str, days: Days, *names: str) -> Any:
    """Day, currency, status, count and sum, then the columns ``names``."""
    # What the provider does not know any more is no money.
    within = rows.filter(account=account, gone_at=None, created_at__gte=days.bounds[0], created_at__lt=days.bounds[-1])
    by_day = within.annotate(day=_day(days)).order_by().values("day", "currency", "status", *names)
    counted = by_day.annotate(count=Count("pk"), total=ExactSum("amount"))
    return counted.values_list("day", "currency", "status", "count", "total", *names)


def _day(days: Days) -> Case:
    """The index of the day, by comparison with its bounds: MariaDB has no time zones until they are loaded."""
    earlier = [When(created_at__lt=end, then=Value(number)) for number, end in enumerate(days.bounds[1:-1])]
    return Case(*earlier, default=Value(days.last), output_field=IntegerField())


#: The statistics by name, in the order of the page.
_COUNTERS: dict[str, Callable[[str, Days], Any]] = {
    "health": _health,
    "balances": _balances,
    "payments": _payments,
    "money_out": _money_out,
    "movements": _movements,
    "differences": _differences,
}
