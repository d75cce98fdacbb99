"""Which of two states is the newer one. The whole rule, without a database.

A row knows the provider's time of its state and whether an event or an answer wrote it. An event's time is exact.
An answer was read at its ``Date`` (whole seconds, provider's clock) or up to the request's duration before, so an
event that falls within that span, give or take a margin, may or may not be in it.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

#: Added on both sides of an answer's span: Date has whole seconds, and the provider's parts may disagree a little.
MARGIN = timedelta(seconds=5)
#: An event further ahead of the provider's clock than this does not order anything.
MAX_AHEAD = timedelta(minutes=5)
#: How far the local clock may be off where an answer has no Date.
UNDATED_SPAN = MAX_AHEAD.total_seconds()


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
    if event_at > answered_at + MARGIN:
        return Order.NEWER
    if event_at < answered_at - timedelta(seconds=span) - MARGIN:
        return Order.OLDER
    return Order.UNCLEAR


def answer_may_replace_event(answered_at: datetime, event_at: datetime) -> bool:
    """An answer read clearly before the event that wrote the row says nothing about it."""
    return answered_at + MARGIN >= event_at
