"""Wake-ups: coalesced, never in the way, never lost while the process lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from payments_integration import wakeup


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_many_wake_ups_become_few_and_one_follows_the_last() -> None:
    sent: list[float] = []
    publisher = wakeup.Publisher(lambda account: sent.append(time.monotonic()), interval=0.05)
    began = last = time.monotonic()
    for _ in range(200):
        last = time.monotonic()
        publisher.publish("default")
        time.sleep(0.0005)
    wait_for(lambda: bool(sent) and sent[-1] >= last and not publisher._busy)
    # However slow the machine: one at once, and then one per interval.
    assert 1 <= len(sent) <= 1 + (sent[-1] - began) / 0.05


def test_each_account_has_its_own() -> None:
    sent: list[str] = []
    publisher = wakeup.Publisher(sent.append, interval=0.01)
    publisher.publish("a")
    publisher.publish("b")
    wait_for(lambda: set(sent) == {"a", "b"})


@pytest.mark.case(69)
def test_a_hanging_broker_delays_nobody() -> None:
    release = threading.Event()
    publisher = wakeup.Publisher(lambda account: release.wait(30) and None, interval=0)
    started = time.monotonic()
    for _ in range(100):
        publisher.publish("default")
    assert time.monotonic() - started < 20
    release.set()


@pytest.mark.case(68)
def test_a_failing_broker_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    def send(account: str) -> None:
        sent.append(account)
        if len(sent) == 1:
            raise OSError("refused")

    publisher = wakeup.Publisher(send, interval=0)
    publisher.publish("default")
    wait_for(lambda: len(sent) == 1 and not publisher._busy)
    publisher.publish("default")
    wait_for(lambda: len(sent) == 2)
    assert "the scheduled sweeper will find the work" in caplog.text


def test_at_exit_what_is_due_may_still_leave() -> None:
    sent: list[str] = []
    publisher = wakeup.Publisher(sent.append, interval=0)
    publisher.publish("default")
    publisher.flush(timeout=30.0)
    assert sent == ["default"]


def test_wake_never_raises() -> None:
    def fails(account: str, deadline: float | None) -> None:
        raise OSError("down")

    previous = wakeup.set_hook(fails)
    try:
        wakeup.wake("default")
        wakeup.set_hook(None)
        wakeup.wake("default")
    finally:
        wakeup.set_hook(previous)
