"""The dashboard's statistics: a few queries per account, each over a limited range of an index, cached for a minute.

The cache holds the same for every user; the page decides who sees what. Amounts are never added across currencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django.core.cache import cache
from django.db.models import Case, Count, IntegerField, QuerySet, Sum, Value, When
from django.utils import timezone

from payments_integration import __version__, health
from payments_integration.admin.dashboard import concerns
from payments_integration.admin.lists.days import midnight
from payments_integration.health import AccountReport
from payments_integration.models import Balance, Payment, Payout, Refund
from payments_integration.payable import comparison

#: The days that are counted, today included.
DAYS = 30
CACHE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Days:
    """Calendar days in the current time zone, oldest first. ``bounds``: the start of each, and the end of the last."""

    bounds: tuple[datetime, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def last(self) -> int:
        """The index of today."""
        return len(self) - 1


@dataclass(frozen=True, slots=True)
class Group:
    """What was created on one day in one currency and has one status now. Amounts are in minor units."""

    day: int
    currency: str
    status: str
    count: int
    amount: int
    #: Payments only: the amounts received and refunded, and the method's code.
    received: int = 0
    refunded: int = 0
    method: str = ""
    #: Payouts only: whether they execute refunds.
    refund: bool = False


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
    #: Counts by the name of the concern.
    concerns: dict[str, int]
    #: Orders that do not match their payments; None also if no model is compared.
    orders: comparison.Counts | None


def last_days(count: int = DAYS) -> Days:
    """The last days, today included. A day has 23 or 25 hours when clocks change."""
    today = timezone.localdate()
    dates = (today - timedelta(days=count - 1 - number) for number in range(count + 1))
    return Days(tuple(map(midnight, dates)))


def gather(account: str, wanted: Iterable[str]) -> Statistics:
    """The statistics of one account. ``wanted``: names of ``_COUNTERS``; only these are counted."""
    days, names = last_days(), [name for name in _COUNTERS if name in set(wanted)]
    zone, today = timezone.get_current_timezone_name(), timezone.localdate()
    keys = {
        name: f"payments_integration:dashboard:{__version__}:{account}:{name}:{zone}:{today}".replace(" ", "_")
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
        payouts=values.get("payouts", []),
        refunds=values.get("refunds", []),
        concerns=values.get("concerns", {}),
        orders=values.get("orders"),
    )


def _health(account: str, days: Days) -> AccountReport:
    return health.examine(account).accounts[account]


def _balances(account: str, days: Days) -> list[Balance]:
    return list(Balance.objects.filter(account=account, gone_at=None).defer("extra").order_by("currency"))


def _payments(account: str, days: Days) -> list[Group]:
    sums = {"received": ExactSum("amount_received"), "refunded": ExactSum("refunded_amount")}
    rows = _grouped(Payment.objects.all(), account, days, "method_code", **sums)
    return [_group(row, received=row["received"], refunded=row["refunded"], method=row["method_code"]) for row in rows]


def _payouts(account: str, days: Days) -> list[Group]:
    for_refund = Case(When(refund=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    rows = _grouped(Payout.objects.annotate(for_refund=for_refund), account, days, "for_refund")
    return [_group(row, refund=bool(row["for_refund"])) for row in rows]


def _refunds(account: str, days: Days) -> list[Group]:
    return [_group(row) for row in _grouped(Refund.objects.all(), account, days)]


def _concerns(account: str, days: Days) -> dict[str, int]:
    return concerns.count(account, days.bounds[0])


def _orders(account: str, days: Days) -> comparison.Counts | None:
    return comparison.count(account, days.bounds[0])


def _grouped(rows: QuerySet[Any], account: str, days: Days, *names: str, **sums: Any) -> Iterable[dict[str, Any]]:
    within = rows.filter(account=account, created_at__gte=days.bounds[0], created_at__lt=days.bounds[-1])
    by_day = within.annotate(day=_day(days)).order_by().values("day", "currency", "status", *names)
    return cast("Iterable[dict[str, Any]]", by_day.annotate(count=Count("pk"), total=ExactSum("amount"), **sums))


class ExactSum(Sum):
    """A sum of any size: SQLite fails where one leaves int64, which two amounts can do."""

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # The sums of the upper and of the lower halves, as text: no number of SQLite is large enough.
        halves = "SUM(%(expressions)s >> 32) || ' ' || SUM(%(expressions)s & 4294967295)"
        return self.as_sql(compiler, connection, template=halves, **context)

    def convert_value(self, value: Any, expression: Any, connection: Any) -> int:
        if isinstance(value, str):
            upper, lower = map(int, value.split())
            return (upper << 32) + lower
        return int(value or 0)


def _day(days: Days) -> Case:
    """The index of the day, by comparison with its bounds: MariaDB has no time zones until they are loaded."""
    earlier = [When(created_at__lt=end, then=Value(number)) for number, end in enumerate(days.bounds[1:-1])]
    return Case(*earlier, default=Value(days.last), output_field=IntegerField())


def _group(row: dict[str, Any], **further: Any) -> Group:
    return Group(row["day"], row["currency"], row["status"], row["count"], row["total"], **further)


#: The statistics by name, in the order of the page.
_COUNTERS: dict[str, Callable[[str, Days], Any]] = {
    "health": _health,
    "balances": _balances,
    "payments": _payments,
    "payouts": _payouts,
    "refunds": _refunds,
    "concerns": _concerns,
    "orders": _orders,
}
