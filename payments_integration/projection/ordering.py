"""Decide which of two states is newer, without a database. ``answers`` adds that nothing came during a request.

A row knows the provider's time of its state, and if an event or an answer wrote it. An event's time is exact. An
answer was read at its ``Date`` (whole seconds, the provider's clock), or up to the request's duration before. An event
from within that time, give or take a margin, may or may not be in it. An answer without a credible ``Date`` is
undated, and its ``duration`` is None: no event is clearly older or newer.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

from django.utils import timezone

#: Added before and after an answer: Date has whole seconds, and the provider's own clocks may differ a little.
MARGIN = timedelta(seconds=5)
#: An event further ahead of the provider's clock than this orders nothing, and makes no other event stale. A Date
#: further off than this, either way, makes its answer undated. The clocks of a Date and of events differ by less.
MAX_AHEAD = timedelta(minutes=5)
#: A Date further from the expected time than this is wrong, and counts as missing.
MAX_DATE_OFF = timedelta(days=1)


class Order(enum.Enum):
    """How one state compares with another."""

    NEWER = "newer"
    OLDER = "older"
    #: The same moment, or while the answer was read. Equal content is no change; other content needs a refresh.
    UNCLEAR = "unclear"


def against_event(at: datetime, event_at: datetime) -> Order:
    """Compare an event of the time ``at`` with a state that an event brought."""
    if at == event_at:
        return Order.UNCLEAR
    return Order.NEWER if at > event_at else Order.OLDER


def against_answer(at: datetime, answered_at: datetime, duration: float | None) -> Order:
    """Compare a state of the time ``at`` with an answer."""
    if duration is None:
        return Order.UNCLEAR
    if at > answered_at + MARGIN:
        return Order.NEWER
    if at < answered_at - timedelta(seconds=duration) - MARGIN:
        return Order.OLDER
    return Order.UNCLEAR


def event_against_answer(at: datetime, answered_at: datetime, duration: float | None, *, goes_back: bool) -> Order:
    """Compare an event with a row that an answer brought. ``goes_back``: it would take the status back.

    A proxy may date answers by a clock minutes off the events' clock. So an event that seems to be a little older may
    be newer, and one that seems to be a little newer may be older. Most are newer; only ``goes_back`` raises doubts.
    """
    order = against_answer(at, answered_at, duration)
    is_doubtful = order is Order.OLDER or goes_back
    return Order.UNCLEAR if is_doubtful and abs(at - answered_at) <= MAX_AHEAD else order


def time_by(offset: float | None) -> datetime:
    """Return the provider's present time by its clock minus ours in seconds; None: that is not known."""
    return timezone.now() + timedelta(seconds=offset or 0)


def when_read(date: datetime | None, now: datetime, duration: float) -> tuple[datetime, float | None]:
    """Return the latest time at which an answer was read, and the seconds before it in which it may have been.

    ``now`` is the provider's time as we know it. Without a Date the time is a guess and the answer is undated: our
    clock may have been set since we compared it with the provider's. The same holds if the Date is minutes from
    ``now``, because either of the two may be wrong.
    """
    if date is None or abs(date - now) > MAX_DATE_OFF:
        return now, None
    return date, duration if abs(date - now) <= MAX_AHEAD else None
