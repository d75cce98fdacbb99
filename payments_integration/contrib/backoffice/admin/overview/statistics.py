"""Count the dashboard's statistics with a few queries per account, and cache them for a minute.

Each query reads a limited range of an index. The cache holds the same for every user; the page decides who sees each
part. Amounts are never added across currencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import BigIntegerField, Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.utils import timezone

from payments_integration import __version__, caching, dates, health
from payments_integration.contrib.backoffice import todo
from payments_integration.contrib.finance.models import Movement
from payments_integration.db.statements import union_of
from payments_integration.db.sums import ExactSum
from payments_integration.health import AccountReport
from payments_integration.models import Balance, Payment, Payout, Refund

#: The number of days that are counted, including today.
DAYS = 30
#: The usual amount of a day is the average of the same weekday in this number of weeks before. ``DAYS`` has the weeks
#: before yesterday too.
WEEKS = 4
CACHE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Days:
    """Calendar days in the site's time zone, oldest first. ``bounds`` has each day's start and the end of the last."""

    bounds: tuple[datetime, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def last(self) -> int:
        """The index of today."""
        return len(self) - 1


@dataclass(frozen=True, slots=True)
class Group:
    """The rows that were created, or moved, on one day in one currency and have one status now.

    Amounts are in minor units.
    """

    day: int
    currency: str
    status: str
    count: int
    amount: int
    #: For payments only: the method's code.
    method: str = ""
    #: For movements only: the part of the amount that moved on today's weekday in an earlier week, before the present
    #: time of the day. 0 for other days.
    early: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics that were asked for. The others are None or empty. ``as_of`` is the time of the oldest count."""

    days: Days
    as_of: datetime
    health: AccountReport | None
    balances: list[Balance]
    payments: list[Group]
    payouts: list[Group]
    refunds: list[Group]
    #: Movements by the day of the cash book. The status is the kind of the movements.
    movements: list[Group]
    #: The time when the movements were counted.
    moved_until: datetime
    #: Orders that were paid twice, or do not match their payments.
    differences: list[todo.Thing]


def last_days() -> Days:
    """Return the last ``DAYS`` days, including today. A day has 23 or 25 hours when clocks change."""
    today = dates.today()
    days = (today - timedelta(days=DAYS - 1 - number) for number in range(DAYS + 1))
    return Days(tuple(map(dates.start_of, days)))


def gather(account: str, wanted: Iterable[str]) -> Statistics:
    """Return the statistics of one account. Counts only the ``wanted`` ones, which are names of ``_COUNTERS``."""
    days, names = last_days(), [name for name in _COUNTERS if name in set(wanted)]
    begun = days.bounds[0].isoformat()
    keys = {name: caching.key("dashboard", __version__, account, name, begun) for name in names}
    known = caching.read(keys.values())
    # A cache that serializes as JSON returns lists, which have lost their types.
    found = {name: known[key] for name, key in keys.items() if isinstance(known.get(key), tuple)}
    counted = {name: (timezone.now(), _COUNTERS[name](account, days)) for name in names if name not in found}
    caching.keep({keys[name]: value for name, value in counted.items()}, CACHE_SECONDS)
    found |= counted
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
    """Count payouts and refunds in one statement."""
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
    """Return the amount if it moved on today's weekday in an earlier week, before the present time of the day."""
    clock = dates.on_site(timezone.now()).time()
    weeks = [today - timedelta(weeks=number) for number in range(1, WEEKS + 1)]
    is_early = [Q(booked_on=day, occurred_at__lt=dates.from_site(datetime.combine(day, clock))) for day in weeks]
    whens = [When(early, then=F("amount")) for early in is_early]
    return Case(*whens, default=Value(0), output_field=BigIntegerField())


def _differences(account: str, days: Days) -> list[todo.Thing]:
    return todo.differences_of(account, days.bounds[0])


def _grouped(rows: QuerySet[Any], account: str, days: Days, *names: str) -> Any:
    """Return day, currency, status, count and sum, then the columns ``names``."""
    # Objects that the provider no longer knows are no money.
    within = rows.filter(account=account, gone_at=None, created_at__gte=days.bounds[0], created_at__lt=days.bounds[-1])
    by_day = within.annotate(day=_day(days)).order_by().values("day", "currency", "status", *names)
    counted = by_day.annotate(count=Count("pk"), total=ExactSum("amount"))
    return counted.values_list("day", "currency", "status", "count", "total", *names)


def _day(days: Days) -> Case:
    """Return the index of the day, by comparison with its bounds: MariaDB has no time zones until they are loaded."""
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
