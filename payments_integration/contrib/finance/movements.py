"""Record movements: the difference between the money that an object's state implies and its recorded movements.

``record`` runs in the transaction that writes the mirror row, under the row's lock. So after each commit, the
movements of an object add up to the money that its mirrored state implies. Events and answers may arrive in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

from django.db import router
from django.db.models import F
from django.utils import timezone

from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.dates import day_of, start_of
from payments_integration.db.statements import insert_many
from payments_integration.db.transactions import WriterPauses, as_committed, locked, repeatable
from payments_integration.enums import PaymentStatus, PayoutStatus, RefundStatus
from payments_integration.models import (
    AccountState,
    ObjectKey,
    Payment,
    Payout,
    Refund,
    StateBy,
    StatusChange,
    of_objects,
    refunded_so_far,
)
from payments_integration.money import INT64_MAX
from payments_integration.projection import installed_at, provider_time

#: A month closes this long after it ends, in the site's time zone: the provider retries a delivery for three days.
CLOSES_AFTER = timedelta(days=3)
#: A month is settled this long after it closes: transactions that began before have committed by then.
SETTLED_AFTER = timedelta(hours=1)
#: Rows per transaction of ``backfill``.
PAGE = 500

#: The money that an object implies, by kind, in minor units of its currency. Positive: the merchant has more.
Amounts = dict[MovementKind, int]
_Recorded = dict[tuple[str, str], int]


def implied(row: Payment | Payout | Refund, refunds: Sequence[Refund] = ()) -> Amounts:
    """Return the money that an object's state implies. docs/bookkeeping.md lists the assumptions.

    ``refunds``: the refunds of a charged back payment. They count if the provider leaves out ``refunded_amount``. A
    later refund has the payment read again, which corrects the figure if the payment has changed.
    """
    if isinstance(row, Payment):
        is_charged_back = row.status == PaymentStatus.CHARGEBACK
        refunded = refunded_so_far(row, refunds) if row.refunded_amount is None else row.refunded_amount
        return {
            MovementKind.PAYMENT: row.amount_received,
            MovementKind.PAYMENT_FEE: -(row.fee or 0),
            MovementKind.CHARGEBACK: refunded - row.amount_received if is_charged_back else 0,
        }
    if isinstance(row, Payout):
        has_succeeded = row.status == PayoutStatus.SUCCEEDED
        return {
            # A payout that executes a refund is booked under the refund.
            MovementKind.PAYOUT: -row.amount if has_succeeded and not row.refund_id else 0,
            # A returned payout brings back its amount, but not its fee.
            MovementKind.PAYOUT_FEE: -(row.fee or 0) if has_succeeded or row.status == PayoutStatus.RETURNED else 0,
        }
    return {MovementKind.REFUND: -row.amount if row.status == RefundStatus.SUCCEEDED else 0}


def record(rows: Sequence[Any]) -> None:
    """Record the movements of mirror rows that this transaction has written.

    Takes at most two statements, one more for rows that were read, one for chargebacks without ``refunded_amount``,
    and at most four per account with a movement of a closed month.

    What occurred in months that were closed when the account's books opened is booked on its own date: there was no
    file of them. A month that was open then may be in a file by now.
    """
    _record(rows)


def backfill(progress: Callable[[int], object] = lambda count: None) -> int:
    """Record the movements of objects that were mirrored before the app was installed. Returns the number recorded.

    It books like ``record``, so it must run before the month of the installation closes: later, what occurred in that
    month counts as found late. It can run next to all other work, and records nothing for objects that miss nothing.
    ``progress`` is called with the number of objects examined so far.
    """
    looked = 0

    def looked_at(more: int) -> None:
        nonlocal looked
        looked += more
        progress(looked)

    return sum(_backfill(model, looked_at) for model in (Payment, Payout, Refund))


def booking_date(occurred_on: date, recorded_at: datetime) -> date:
    """Return a movement's day in the journal: its own day, or the day of recording if its month was closed."""
    recorded_on = day_of(recorded_at)
    return occurred_on if occurred_on >= _oldest_open_month(recorded_on) else recorded_on


def _oldest_open_month(day: date) -> date:
    return (day - CLOSES_AFTER).replace(day=1)


def _opened_on(account: str) -> date:
    """Return the day on which the account's books opened, from which on files of it are made.

    That is when both the app was installed and the first full resync was complete, or the day of the first movement
    if that was earlier. The resync brings the account's history into the mirror, so the books are not open before.
    """
    states = AccountState.objects.filter(pk=account).values_list("first_synced_at", flat=True)
    if (synced_at := next(iter(states), timezone.now())) is None:
        return date.max
    # By key: the first row stands at the beginning of the table, and no index has the times.
    first = Movement.objects.filter(account=account).order_by("pk").values_list("recorded_at", flat=True).first()
    installation = installed_at("payments_finance")
    opened_at = [max(synced_at, installation)] if installation else []
    return day_of(min([*opened_at, *([first] if first else [])], default=timezone.now()))


def closes_at(until: date) -> datetime:
    """Return the time after which the journal up to ``until`` (exclusive) cannot change."""
    last_day = until - timedelta(days=1)
    next_month = (last_day.replace(day=1) + timedelta(days=32)).replace(day=1)
    return start_of(next_month + CLOSES_AFTER) + SETTLED_AFTER


def _record(rows: Sequence[Any], *, is_backfill: bool = False) -> int:
    """Record the missing movements of these rows. Returns their number."""
    found = {_key(row): row for row in rows if isinstance(row, Payment | Payout | Refund)}
    if not found:
        return 0
    recorded = _recorded(found)
    now = timezone.now()
    at_provider = cache(provider_time)
    # An event dates its state. An answer has the time of the read, which may be long after the change.
    undated = [row for row in found.values() if is_backfill or row.state_by == StateBy.ANSWER]
    history = cache(lambda: _changed_at(undated))
    refunds = _refunds(found.values())
    begins_on = cache(lambda account: _oldest_open_month(_opened_on(account)))
    movements: list[Movement] = []
    for key, row in found.items():
        account, kind, object_id = key
        wanted: _Recorded = {(name, row.currency): amount for name, amount in implied(row, refunds[key]).items()}
        for name, currency in dict.fromkeys([*wanted, *recorded[key]]):
            missing = wanted.get((name, currency), 0) - recorded[key].get((name, currency), 0)
            if not missing:
                continue
            # The app follows an object with movements: what comes to it later came when it was read. That includes
            # its first amount of a kind, such as a fee on the second part of a payment.
            occurred_at = row.state_at if recorded[key] else _occurred_at(row, name, history)
            occurred_on = day_of(occurred_at)
            is_late = booking_date(occurred_on, now) != occurred_on and occurred_on >= begins_on(account)
            # If our clock is ahead, an open month would pass for a closed one, and a movement is never changed.
            recorded_at = at_provider(account) if is_late else now
            movements += [
                Movement(
                    account=account,
                    object_kind=kind,
                    object_id=object_id,
                    kind=name,
                    currency=currency,
                    amount=amount,
                    occurred_at=occurred_at,
                    recorded_at=recorded_at,
                    occurred_on=occurred_on,
                    booked_on=booking_date(occurred_on, recorded_at) if is_late else occurred_on,
                )
                for amount in _storable(missing)
            ]
    insert_many(movements, keys=False)
    return len(movements)


def _refunds(rows: Iterable[Any]) -> dict[ObjectKey, list[Refund]]:
    """Return the refunds of charged back payments without ``refunded_amount``, in one statement if there are any."""
    lacking = {
        row.pk: _key(row)
        for row in rows
        if isinstance(row, Payment) and row.status == PaymentStatus.CHARGEBACK and row.refunded_amount is None
    }
    found: dict[ObjectKey, list[Refund]] = defaultdict(list)
    for refund in Refund.objects.filter(payment_id__in=lacking) if lacking else ():
        key = lacking[refund.payment_id or ""]
        if refund.account == key[0]:
            found[key].append(refund)
    return found


def _recorded(objects: Mapping[ObjectKey, Any]) -> dict[ObjectKey, _Recorded]:
    """Return the sums of the recorded movements, by object, then by kind and currency. Takes one statement."""
    sums: dict[ObjectKey, _Recorded] = defaultdict(dict)
    # Read the rows as they are committed now, because a snapshot may be older than the lock on the mirror row. The
    # lock keeps other transactions from adding movements.
    rows = as_committed(Movement.objects.filter(of_objects(objects)))
    names = ("account", "object_kind", "object_id", "kind", "currency", "amount")
    # Add up in Python: a database may refuse a sum that leaves its range on the way.
    for account, kind, object_id, name, currency, amount in rows.values_list(*names):
        of_object = sums[account, kind, object_id]
        of_object[name, currency] = of_object.get((name, currency), 0) + amount
    return sums


def _occurred_at(row: Any, name: str, history: Callable[[], Mapping[ObjectKey, datetime]]) -> datetime:
    """Return the provider's time of an object's first movements: when the state changed, or ``succeeded_at`` if it
    is earlier.
    """
    changed_at: datetime = row.state_at
    succeeded_at: datetime | None = getattr(row, "succeeded_at", None)
    if succeeded_at is not None and succeeded_at > changed_at:
        succeeded_at = None
    if succeeded_at is not None and name != MovementKind.CHARGEBACK:
        return succeeded_at
    changed_at = history().get(_key(row), changed_at)
    # The history of a first synchronisation may have only the creation, and a chargeback follows the success.
    return max(changed_at, succeeded_at or changed_at)


def _storable(amount: int) -> Iterator[int]:
    """Yield the amount in parts that a column can hold, because the difference of two amounts may be too large.
    Yields nothing for 0.
    """
    while amount:
        part = max(-INT64_MAX, min(amount, INT64_MAX))
        yield part
        amount -= part


def _key(row: Payment | Payout | Refund) -> ObjectKey:
    return (row.account, str(row.kind), row.object_id)


def _backfill(model: type[Any], looked_at: Callable[[int], None]) -> int:
    using = router.db_for_write(model)
    pauses = WriterPauses(using)
    count, last = 0, ""
    while True:
        ids = list(model.objects.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:PAGE])
        if not ids:
            return count

        def book(ids: list[str] = ids) -> int:
            rows = list(locked(model.objects.filter(pk__in=ids)).order_by("pk"))
            # Write the rows: under REPEATABLE READ, a transaction that began earlier does not see these movements.
            # PostgreSQL refuses it only if the row that it locks was written.
            model.objects.filter(pk__in=ids).update(version=F("version"))
            return _record(rows, is_backfill=True)

        count += repeatable(book, using=using)
        last = ids[-1]
        looked_at(len(ids))
        pauses.pause_if_due()


def _changed_at(rows: Sequence[Any]) -> dict[ObjectKey, datetime]:
    """Return when each object came into its status, as far as its history shows.

    The time in the row is not enough, because it moves on with each read.
    """
    statuses = {_key(row): row.status for row in rows}
    history = StatusChange.objects.filter(of_objects(statuses)).order_by("at", "pk") if statuses else ()
    changes = [((change.account, change.object_kind, change.object_id), change) for change in history]
    return {key: change.at for key, change in changes if change.status == statuses[key]}
