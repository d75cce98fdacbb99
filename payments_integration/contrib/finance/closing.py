"""Compute the balances at the end of days. The balances of closed months are stored once and not computed again.

A scheduled pass stores them about half a minute after a month has closed, unless a reader stores them first. From then
on, they never change for that month. A later change of TIME_ZONE, a late change of a balance, and the loss of a
balance's history do not affect them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta

from django.db import DatabaseError, IntegrityError, router, transaction
from django.db.models import Exists, IntegerField, Max, Min, OuterRef, QuerySet, Subquery, Value
from django.utils import timezone

from payments_integration.contrib.finance.balances import Amounts, amounts_in, changes_of
from payments_integration.contrib.finance.models import BalanceChange, ClosingBalance
from payments_integration.contrib.finance.movements import closes_at
from payments_integration.dates import day_of, start_of, today
from payments_integration.db.sizes import in_parts
from payments_integration.db.statements import insert_many, union_of
from payments_integration.enums import Kind
from payments_integration.models import AccountState, Balance, Event, EventState

_DAY = timedelta(days=1)
#: The most parts of one statement. SQLite accepts 500.
_PARTS = 400


#: The amounts at the end of days, by account and currency; None if no balance was known yet.
Ends = dict[tuple[str, str], dict[date, Amounts | None]]


def ends_of(days: Collection[date], account: str | None = None) -> Ends:
    """Return the balances of one account, or of all, at the end of these days.

    For a day that is not over, its end is now. Takes four statements; more for over 400 ends that are not stored.
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
            # A month is stored as a whole: a missing day had no known balance.
            if (*key, last_days[day]) not in stored:
                missing.append((balance, day))
    for (balance, day), amounts_ in zip(missing, _computed(missing), strict=True):
        found[balance.account, balance.currency][day] = amounts_
    return found


def close_months() -> int:
    """Store the balances of every closed month that is not stored yet. Returns the number of rows.

    It may run at any time, repeatedly and in several processes at once. Takes one statement if there is nothing to
    store. A month waits while its events may be incomplete, so that a late change of the balance still counts.
    """
    until = _closed_until()
    unstored = list(without_end(until))
    if not unstored:
        return 0
    complete = dict(AccountState.objects.values_list("pk", "watermark"))
    return sum(
        _close(balance, until) for balance in unstored if _is_complete(complete.get(balance.account), start_of(until))
    )


def close_months_before_reading() -> None:
    """Store the balances of closed months for a reader, who gets the figures even if storing fails.

    It fails on a standby, for instance.
    """
    # The next scheduled pass reports the error.
    with suppress(DatabaseError):
        close_months()


def _closed_until() -> date:
    """Return the first day that is not in a closed month."""
    now, until = timezone.now(), today().replace(day=1)
    while closes_at(until) > now:
        until = (until - _DAY).replace(day=1)
    return until


def without_end(until: date) -> QuerySet[Balance]:
    """Return the balances that were known before this day and whose last month is not stored."""
    of_balance = {"account": OuterRef("account"), "currency": OuterRef("currency")}
    known = BalanceChange.objects.filter(**of_balance, at__lt=start_of(until))
    stored = ClosingBalance.objects.filter(**of_balance, day=until - _DAY)
    return Balance.objects.filter(~Exists(stored), Exists(known)).only("pk", "account", "currency")


def _is_complete(watermark: datetime | None, until: datetime) -> bool:
    # Without reconciliation there is nothing to wait for.
    return watermark is None or watermark >= until


def _close(balance: Balance, until: date) -> int:
    stored = ClosingBalance.objects.filter(account=balance.account, currency=balance.currency)
    last = stored.aggregate(day=Max("day"))["day"]
    first = last + _DAY if last else day_of(changes_of(balance).aggregate(at=Min("at"))["at"])
    wanted = [(balance, day) for day in _days(first, until)]
    rows = [
        ClosingBalance(account=balance.account, currency=balance.currency, day=day, **amounts._asdict())
        for (_, day), amounts in zip(wanted, _computed(wanted), strict=True)
        if amounts is not None
    ]
    try:
        # Insert all rows or none, so that only one of two processes stores the month.
        with transaction.atomic(using=router.db_for_write(ClosingBalance)):
            insert_many(rows, keys=False)
    except IntegrityError:
        return 0
    return len(rows)


def _computed(wanted: Sequence[tuple[Balance, date]]) -> Iterator[Amounts | None]:
    """Yield for each balance the last amounts that the provider had before its day ended, as far as that is known."""
    balances = {balance.pk: balance for balance, _ in wanted}
    newest = {key: changes_of(balance).order_by("-at", "-pk") for key, balance in balances.items()}
    events = {key: _events_of(balance).order_by("-created_at", "-pk") for key, balance in balances.items()}
    for part in in_parts(wanted, _PARTS):
        some = [(balance.pk, start_of(day + _DAY)) for balance, day in part]
        last = [newest[key].filter(at__lt=end)[:1] for key, end in some]
        changes = [
            changes.annotate(part=Value(number, IntegerField())).values_list("part", *Amounts._fields)
            for number, changes in enumerate(last)
        ]
        # Only the newest of the events that were applied together is recorded as a change, and no late one.
        later = [
            events[key]
            .filter(created_at__gt=Subquery(changes.values("at")), created_at__lt=end)
            .annotate(part=Value(number, IntegerField()))
            .values_list("part", "body")[:1]
            for number, ((key, end), changes) in enumerate(zip(some, last, strict=True))
        ]
        using = router.db_for_write(BalanceChange)
        found = {int(number): Amounts(*amounts) for number, *amounts in union_of(changes, using=using)}
        found |= {int(number): amounts_in(bytes(body)) for number, body in union_of(later, using=using)}
        yield from (found.get(number) for number in range(len(some)))


def _events_of(balance: Balance) -> QuerySet[Event]:
    """Return the events that were applied and still have their content."""
    return Event.objects.filter(
        account=balance.account,
        object_kind=Kind.BALANCE,
        object_id=balance.currency,
        state__in=(EventState.HELD, EventState.APPLIED, EventState.DONE, EventState.PARKED),
        body__isnull=False,
    )


def _days(first: date, until: date) -> Iterable[date]:
    return (first + timedelta(days=number) for number in range((until - first).days))


def _last_day(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) - _DAY
