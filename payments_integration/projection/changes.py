"""The records that go with a change of a mirror row: StatusChange and BalanceChange."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from payments_integration.conf import MIN_EVENT_DAYS
from payments_integration.models import Balance, BalanceChange, Event, EventState, Mirror, StatusChange
from payments_integration.projection.rows import status_of
from payments_integration.signals import status_changed

#: Events and objects found later than this are kept for the record and never told.
TOO_OLD_TO_TELL = timedelta(days=MIN_EVENT_DAYS)

_BALANCE_FIELDS = ("available", "pending", "reserve", "hold", "debt")


def status_change(row: Mirror, previous_status: str, *, at: datetime, event: Event | None) -> StatusChange | None:
    """The unsaved record of a change of status, or None where nothing changed."""
    status = status_of(row)
    if status == previous_status:
        return None
    # An event's own telling tells its change too; a change that an answer brought is told by itself.
    untold = event is None and status_changed.has_listeners(type(row)) and not _is_old_news(row, previous_status)
    return StatusChange(
        account=row.account,
        object_kind=row.kind,
        object_id=row.object_id,
        previous_status=previous_status,
        status=status,
        at=at,
        event=event,
        state=EventState.APPLIED if untold else EventState.DONE,
        told_at=None if untold or event is not None else timezone.now(),
    )


def _is_old_news(row: Mirror, previous_status: str) -> bool:
    """An object that a sweep found, as old as events that are not told any more: nobody waits for it."""
    created_at = getattr(row, "created_at", None)
    return not previous_status and created_at is not None and timezone.now() - created_at > TOO_OLD_TO_TELL


def balance_amounts(balance: Balance) -> tuple[int, ...]:
    return tuple(getattr(balance, name) for name in _BALANCE_FIELDS)


def balance_change(balance: Balance, *, at: datetime) -> BalanceChange:
    """The unsaved record of a balance as it is now."""
    return BalanceChange(balance=balance, at=at, **dict(zip(_BALANCE_FIELDS, balance_amounts(balance), strict=True)))
