"""Which of two states is the newer one. The whole rule, without a database.

A row knows the provider's time of its state and whether an event or an answer wrote it. An event's time is exact.
An answer was read at its ``Date`` (whole seconds, provider's clock) or up to the request's duration before, so an
event that falls within that span, give or take a margin, may or may not be in it. Of an answer that nobody can date
nothing is known.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

#: Added on both sides of an answer's span: Date has whole seconds, and the provider's parts may disagree a little.
MARGIN = timedelta(seconds=5)
#: An event further ahead of the provider's clock than this does not order anything.
MAX_AHEAD = timedelta(minutes=5)
#: The span of an answer that nobody can date: no event stands clearly before or after it. A year, and no request's.
UNDATED_SPAN = timedelta(days=365).total_seconds()
#: A Date further than this from our clock cannot be, and counts as none.
MAX_DATE_OFF = timedelta(days=1)


class Order(enum.Enum):
    """How an event stands to the state that a row has."""

    NEWER = "newer"
    OLDER = "older"
    #: The same moment, or within an answer's span: equal content is nothing new, other content must be read.
    UNCLEAR = "unclear"


def event_after_event(event_at: datetime, state_at: datetime) -> Order:
    if event_at == state_at:
        return Order.UNCLEAR
    return Order.NEWER if event_at > state_at else Order.OLDER


def event_after_answer(event_at: datetime, answered_at: datetime, span: float) -> Order:
    if span >= UNDATED_SPAN:
        return Order.UNCLEAR
    if event_at > answered_at + MARGIN:
        return Order.NEWER
    if event_at < answered_at - timedelta(seconds=span) - MARGIN:
        return Order.OLDER
    return Order.UNCLEAR


def when_read(date: datetime | None, now: datetime, duration: float) -> tuple[datetime, float]:
    """The latest time at which an answer can have been read, and for how many seconds before that.

    ``now``: the provider's time, as far as we know it. Without a Date nothing tells when that was: our own clock may
    have been set since it was compared with the provider's, by any amount. Nor does a Date that is minutes from it:
    nobody knows which of the two is wrong. Then the time is a guess, and the span is UNDATED_SPAN.
    """
    if date is None or abs(date - now) > MAX_DATE_OFF:
        return now, UNDATED_SPAN
    return date, duration if abs(date - now) <= MAX_AHEAD else UNDATED_SPAN


def answer_may_replace_event(answered_at: datetime, span: float, event_at: datetime) -> bool:
    """An answer read clearly before the event that wrote the row says nothing about it."""
    return span >= UNDATED_SPAN or answered_at + MARGIN >= event_at
