"""Which of two states is newer: the rule by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from payments_integration.projection.ordering import (
    Order,
    answer_may_replace_event,
    event_after_answer,
    event_after_event,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


@pytest.mark.parametrize(("seconds", "order"), [(0.000001, Order.NEWER), (0, Order.UNCLEAR), (-0.000001, Order.OLDER)])
def test_events_are_ordered_exactly(seconds: float, order: Order) -> None:
    assert event_after_event(after(seconds), AT) is order


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
def test_an_answer_covers_its_span_and_a_margin(seconds: float, order: Order) -> None:
    assert event_after_answer(after(seconds), AT, span=2) is order


def test_an_answer_read_clearly_before_an_event_says_nothing_about_it() -> None:
    assert answer_may_replace_event(AT, after(5))
    assert not answer_may_replace_event(AT, after(5.001))
