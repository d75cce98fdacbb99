from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from payments_integration.sandbox import Clock, Engine

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def real() -> Iterator[time_machine.Traveller]:
    """Real time, as far as the clock can tell."""
    with time_machine.travel(AT - timedelta(days=100), tick=False) as traveller:
        yield traveller


def test_the_clock_runs_in_real_time_in_utc(real: time_machine.Traveller) -> None:
    clock = Clock()
    assert clock.now() == datetime.now(UTC)
    real.shift(7)
    assert clock.now() == datetime.now(UTC)
    assert clock.now().tzinfo is UTC
    assert not clock.is_frozen


def test_a_frozen_clock_can_be_advanced_and_unfrozen(real: time_machine.Traveller) -> None:
    clock = Clock()
    clock.freeze(AT)
    real.shift(7)
    assert clock.now() == AT
    clock.advance(90)
    assert clock.now() == AT + timedelta(seconds=90)
    clock.unfreeze()
    assert clock.now() == AT + timedelta(seconds=90)
    real.shift(7)
    assert clock.now() == AT + timedelta(seconds=97)
    clock.freeze()
    assert clock.is_frozen
    with pytest.raises(ValueError, match="aware"):
        clock.freeze(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_running_clock_can_be_offset_and_advanced(real: time_machine.Traveller) -> None:
    clock = Clock()
    clock.set_offset(-600)
    real.shift(7)
    assert clock.now() == datetime.now(UTC) - timedelta(minutes=10)
    clock.advance(1_200)
    real.shift(7)
    assert clock.now() == datetime.now(UTC) + timedelta(minutes=10)


def test_stamps_always_increase_and_now_is_never_before_a_stamp() -> None:
    clock = Clock()
    clock.freeze(AT)
    stamps = [clock.stamp() for _ in range(3)]
    assert stamps == [AT, AT + timedelta(microseconds=1), AT + timedelta(microseconds=2)]
    assert clock.now() == stamps[-1]


def test_the_clock_can_be_moved_back() -> None:
    clock = Clock()
    clock.freeze(AT)
    clock.stamp()
    clock.advance(-60)
    assert clock.now() == AT - timedelta(seconds=60) == clock.stamp()


def test_moving_the_clock_notifies_engines_without_keeping_them_alive() -> None:
    clock = Clock()
    engine = Engine(clock=clock)
    calls: list[int] = []

    class Listener:
        def heard(self) -> None:
            calls.append(1)

    listener = Listener()
    clock.subscribe(listener.heard)
    clock.advance(1)
    clock.freeze()
    assert len(calls) == 2
    del listener, engine
    gc.collect()
    clock.advance(1)
    assert len(calls) == 2
    assert clock._listeners == []
