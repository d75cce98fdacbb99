"""Which of two states is newer: the rule by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from payments_integration.projection.ordering import (
    Order,
    against_answer,
    against_event,
    event_against_answer,
    when_read,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


@pytest.mark.parametrize(("seconds", "order"), [(0.000001, Order.NEWER), (0, Order.UNCLEAR), (-0.000001, Order.OLDER)])
def test_events_are_ordered_exactly(seconds: float, order: Order) -> None:
    assert against_event(after(seconds), AT) is order


@pytest.mark.parametrize(
    ("seconds", "order"),
    [
        (5.001, Order.NEWER),
        (5, Order.UNCLEAR),
        (0, Order.UNCLEAR),
        (-7, Order.UNCLEAR),
        (-7.001, Order.OLDER),
    ],
)
def test_an_answer_covers_its_duration_and_a_margin(seconds: float, order: Order) -> None:
    assert against_answer(after(seconds), AT, duration=2) is order


@pytest.mark.parametrize(
    ("seconds", "order", "if_it_goes_back"),
    [
        (300.001, Order.NEWER, Order.NEWER),
        (300, Order.NEWER, Order.UNCLEAR),
        (5.001, Order.NEWER, Order.UNCLEAR),
        (5, Order.UNCLEAR, Order.UNCLEAR),
        (-300, Order.UNCLEAR, Order.UNCLEAR),
        (-300.001, Order.OLDER, Order.OLDER),
    ],
)
def test_within_minutes_of_an_answer_an_event_that_seems_older_or_goes_back_is_unclear(
    seconds: float, order: Order, if_it_goes_back: Order
) -> None:
    assert event_against_answer(after(seconds), AT, 2, goes_back=False) is order
    assert event_against_answer(after(seconds), AT, 2, goes_back=True) is if_it_goes_back


@pytest.mark.parametrize("days", [-400, -1, 0, 1, 400])
def test_no_event_is_older_or_newer_than_an_undated_answer(days: int) -> None:
    assert against_answer(after(days * 86400), AT, None) is Order.UNCLEAR


@pytest.mark.case(78)
@pytest.mark.parametrize(
    ("date", "at", "duration"),
    [
        (after(0), 0, 2),
        (after(-300), -300, 2),
        (after(300), 300, 2),
        (after(301), 301, None),
        (after(-86400), -86400, None),
        (after(2 * 86400), 0, None),  # cannot be
        (None, 0, None),
    ],
)
def test_a_date_that_contradicts_our_clock_makes_the_answer_undated(
    date: datetime | None, at: float, duration: float | None
) -> None:
    assert when_read(date, AT, 2) == (after(at), duration)
