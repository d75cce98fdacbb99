"""Wake-ups: coalesced, never in the way, never lost while the process lives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from payments_integration import wakeup


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_many_wake_ups_are_coalesced_and_one_follows_the_last() -> None:
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


def test_wake_ups_are_coalesced_per_account() -> None:
    sent: list[str] = []
    publisher = wakeup.Publisher(sent.append, interval=0.01)
    publisher.publish("a")
    publisher.publish("b")
    wait_for(lambda: set(sent) == {"a", "b"})


def test_an_interrupted_wake_up_does_not_suppress_the_next() -> None:
    sent: list[str] = []
    publisher = wakeup.Publisher(sent.append, interval=0)
    publisher.publish("a")
    wait_for(lambda: sent == ["a"] and not publisher._busy)
    publisher._accounts["a"] = None  # recorded, and the thread was not woken
    publisher.publish("a")
    wait_for(lambda: sent == ["a", "a"])


@pytest.mark.case(69)
def test_a_hanging_broker_does_not_delay_the_caller() -> None:
    release = threading.Event()
    publisher = wakeup.Publisher(lambda account: release.wait(30) and None, interval=0)
    started = time.monotonic()
    for _ in range(100):
        publisher.publish("default")
    assert time.monotonic() - started < 20
    release.set()


@pytest.mark.case(68)
def test_a_failing_broker_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
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


def test_at_exit_pending_messages_are_still_sent() -> None:
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


class Worked:
    """Work that is held up, and who did it."""

    def __init__(self) -> None:
        self.passes: list[str] = []
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self, account: str, deadline: float) -> None:
        self.passes.append(threading.current_thread().name)
        self.begun.release()
        assert self.go_on.wait(30)

    def start(self, inline: wakeup.Inline, name: str, deadline: float | None = None) -> threading.Thread:
        until = time.monotonic() + 60 if deadline is None else deadline
        thread = threading.Thread(target=inline, args=("default", until), name=name, daemon=True)
        thread.start()
        return thread


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_one_thread_runs_the_passes_of_all_wake_ups() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=60)
    first = work.start(inline, "first")
    assert work.begun.acquire(timeout=30)
    join(*(work.start(inline, "another") for _ in range(5)))  # at once, while the first one works
    work.go_on.set()
    join(first)
    assert work.passes == ["first", "first"]  # the second pass is for all the five
    join(work.start(inline, "later"))
    assert work.passes == ["first", "first", "later"]


def waiting_worker(work: Worked, inline: wakeup.Inline) -> threading.Thread:
    """A worker that was woken during its pass, and waits for the next one."""
    first = work.start(inline, "first")
    assert work.begun.acquire(timeout=30)
    join(work.start(inline, "another"))
    work.go_on.set()
    wait_for(lambda: inline._workers["default"].pass_at is not None)
    return first


def test_a_waiting_thread_is_relieved_by_each_wake_up_and_the_last_one_runs_the_pass() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=60, pause=60)
    first = waiting_worker(work, inline)
    pass_at = inline._workers["default"].pass_at
    second = work.start(inline, "second")
    join(first)  # though its pause is not over
    waiting = inline._workers["default"]
    assert waiting.pass_at == pass_at  # a relief does not postpone the pass
    waiting.pass_at = time.monotonic()
    join(work.start(inline, "third"), second)
    assert work.passes == ["first", "third"]
    assert inline._workers == {}


def test_a_thread_that_may_not_wait_long_enough_does_not_relieve_another() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=60, pause=0.5)
    first = waiting_worker(work, inline)
    join(work.start(inline, "second", deadline=time.monotonic()), first)
    assert work.passes == ["first", "first"]


def test_no_wake_up_is_lost_between_many_threads() -> None:
    lock = threading.Lock()
    stored: list[int] = []
    applied: list[int] = []

    def work(account: str, deadline: float) -> None:
        with lock:
            events, stored[:] = list(stored), []
        time.sleep(0.001)
        applied.extend(events)

    def deliver(numbers: range) -> None:
        for number in numbers:
            with lock:
                stored.append(number)
            inline("default", time.monotonic() + 60)

    inline = wakeup.Inline(work, term=0.002, pause=0.002)
    threads = [threading.Thread(target=deliver, args=(range(n, n + 100),), daemon=True) for n in range(0, 800, 100)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert sorted(applied) == list(range(800))
    assert inline._workers == {}


def test_accounts_do_not_wait_for_each_other_inline() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=60)
    first = work.start(inline, "first")
    assert work.begun.acquire(timeout=30)
    second = threading.Thread(target=inline, args=("second", time.monotonic() + 60), name="second", daemon=True)
    second.start()
    assert work.begun.acquire(timeout=30)
    work.go_on.set()
    join(first, second)
    assert sorted(work.passes) == ["first", "second"]


def test_a_wake_up_after_the_term_of_the_working_thread_runs_its_own_pass() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=0)
    first = work.start(inline, "first")
    assert work.begun.acquire(timeout=30)
    second = work.start(inline, "second")
    assert work.begun.acquire(timeout=30)  # though the first one hangs
    work.go_on.set()
    join(first, second)
    assert work.passes == ["first", "second"]


def test_a_wake_up_within_a_pass_starts_none_within_it() -> None:
    """As of a callback that calls a service: the request would last as long as its backlog."""
    passes: list[str] = []

    def work(account: str, deadline: float) -> None:
        passes.append(account)
        if len(passes) == 1:
            inline("default", time.monotonic() + 60)
            assert passes == ["default"]
            inline("second", time.monotonic() + 60)
            assert passes == ["default", "second"]

    inline = wakeup.Inline(work, term=0, pause=0)
    inline("default", time.monotonic() + 60)
    assert passes == ["default", "second", "default"]


def test_a_wake_up_within_a_pass_is_not_lost_after_another_thread_took_over_and_ended() -> None:
    passes: list[str] = []

    def work(account: str, deadline: float) -> None:
        passes.append(threading.current_thread().name)
        if len(passes) == 1:
            other = threading.Thread(target=inline, args=("default", time.monotonic() + 60), name="other", daemon=True)
            other.start()
            join(other)
            assert passes == ["MainThread", "other"]
            inline("default", time.monotonic() + 60)
            assert passes == ["MainThread", "other"]

    inline = wakeup.Inline(work, term=0, pause=0)
    inline("default", time.monotonic() + 60)
    assert passes == ["MainThread", "other", "MainThread"]
    assert inline._workers == {}


def test_no_pass_is_started_for_other_accounts_after_the_deadline() -> None:
    work = Worked()
    inline = wakeup.Inline(work, term=60)
    first = work.start(inline, "first", deadline=time.monotonic())
    assert work.begun.acquire(timeout=30)
    join(work.start(inline, "another"))
    work.go_on.set()
    join(first)
    assert work.passes == ["first"]
    join(work.start(inline, "later"))
    assert work.passes == ["first", "later"]


def test_a_wake_up_after_a_failed_pass_starts_a_new_pass() -> None:
    calls: list[str] = []

    def work(account: str, deadline: float) -> None:
        calls.append(account)
        if len(calls) == 1:
            raise OSError("the database is away")

    inline = wakeup.Inline(work, term=60)
    with pytest.raises(OSError, match="away"):
        inline("default", time.monotonic() + 60)
    inline("default", time.monotonic() + 60)
    assert calls == ["default", "default"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork")  # as gunicorn and multiprocessing do
def test_a_fork_waits_until_the_thread_holds_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has no such thread, so nothing would release them: its first import of the same module would hang."""
    shared, began = threading.Lock(), threading.Event()

    def send(account: str) -> None:
        with shared:
            began.set()
            time.sleep(0.3)

    publisher = wakeup.Publisher(send, interval=0.0)
    # However slow the machine is: after two seconds it would wait no longer.
    monkeypatch.setattr(publisher, "flush", partial(publisher.flush, 60))
    publisher.publish("default")
    assert began.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if shared.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork")
def test_a_hook_that_forks_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    forked, waited = threading.Event(), []

    def send(account: str) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        forked.set()

    publisher = wakeup.Publisher(send, interval=0.0)
    monkeypatch.setattr(publisher, "flush", lambda: waited.append(1))
    publisher.publish("default")
    assert forked.wait(30)
    assert not waited
