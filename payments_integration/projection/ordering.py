"""Which of two states is newer: the rule, without a database. ``answers`` adds that nothing came during a request.

A row knows the provider's time of its state, and whether an event or an answer wrote it. An event's time is exact.
An answer was read at its ``Date`` (whole seconds, the provider's clock), or up to the request's duration before. An
event from within that time, give or take a margin, may or may not be in it. An answer without a credible ``Date`` is
undated: no event is clearly older or newer.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

#: Added before and after an answer: Date has whole seconds, and the provider's own clocks may differ a little.
MARGIN = timedelta(seconds=5)
#: An event further ahead of the provider's clock than this is not used for ordering, and makes no other event stale.
MAX_AHEAD = timedelta(minutes=5)
#: The duration (seconds) of an undated answer: a year, longer than any request.
UNDATED = timedelta(days=365).total_seconds()
#: A Date further from our clock than this is wrong, and counts as missing.
MAX_DATE_OFF = timedelta(days=1)


class Order(enum.Enum):
    """An event compared with the state of a row."""

    NEWER = "newer"
    OLDER = "older"
    #: The same moment, or while the answer was read. The same content is no change; other content needs a refresh.
    UNCLEAR = "unclear"


def event_after_event(event_at: datetime, state_at: datetime) -> Order:
    if event_at == state_at:
        return Order.UNCLEAR
    return Order.NEWER if event_at > state_at else Order.OLDER


def event_after_answer(event_at: datetime, answered_at: datetime, duration: float) -> Order:
    if duration >= UNDATED:
        return Order.UNCLEAR
    if event_at > answered_at + MARGIN:
        return Order.NEWER
    if event_at < answered_at - timedelta(seconds=duration) - MARGIN:
        return Order.OLDER
    return Order.UNCLEAR


def when_read(date: datetime | None, now: datetime, duration: float) -> tuple[datetime, float]:
    """The latest time at which an answer can have been read, and the seconds before it in which it may have been.

    ``now``: the provider's time as we know it. Without a Date the time is a guess and the answer is undated: our clock
    may have been set since we compared it with the provider's. The same holds if the Date is minutes from ``now``,
    because either of the two may be wrong.
    """
    if date is None or abs(date - now) > MAX_DATE_OFF:
        return now, UNDATED
    return date, duration if abs(date - now) <= MAX_AHEAD else UNDATED


def answer_may_replace_event(answered_at: datetime, duration: float, event_at: datetime) -> bool:
    """False if the answer was read clearly before the event that wrote the row."""
    return duration >= UNDATED or answered_at + MARGIN >= event_at
