"""Actors in threads of which exactly one runs at a time, and the boundaries at which the schedule has its say.

An actor is one request, task or call inside a process of the merchant's. At a boundary the plan says whether it goes
on, waits (its thread hands the baton back and others run), meets a fault, or its process is killed: from then on
every statement and every request of that process refuses too, so that no ``finally`` can tidy up.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

#: Seconds of real time after which a thread that does not come back is stuck.
STUCK = 30.0

#: Faults that wait for their occasion.
MOST_PLANNED = 6

GO = "go"
CRASH = "crash"
WAIT = "wait"


class Killed(BaseException):
    """The process is dead; nothing but this leaves it."""


class Stuck(Exception):
    """A thread did not hand the baton back: the simulator is wrong, or a lock is held over a boundary."""


@dataclass(frozen=True, slots=True)
class Fault:
    """At the ``nth`` time (from 0) that this point is reached: this happens."""

    point: str
    kind: str
    nth: int = 0

    def __str__(self) -> str:
        return f"{self.kind} at {self.point}{f' #{self.nth}' if self.nth else ''}"


class Plan:
    """What is to happen; what finds no occasion in its step stays for the next ones."""

    def __init__(self) -> None:
        self._left: list[Fault] = []
        self._seen: Counter[str] = Counter()

    def add(self, faults: Iterable[Fault]) -> None:
        """A step begins: count its boundaries anew."""
        self._left = [*self._left, *faults][-MOST_PLANNED:]
        self._seen.clear()

    def clear(self) -> None:
        self._left = []

    def take(self, point: str, *, may_wait: bool) -> str:
        """What happens now at this point."""
        count = self._seen[point]
        self._seen[point] += 1
        for fault in self._left:
            if fault.point == point and fault.nth <= count and (may_wait or fault.kind != WAIT):
                self._left.remove(fault)
                return fault.kind
        return GO


@dataclass(eq=False)
class Process:
    """A process of the merchant's: what it has in memory is gone when it dies."""

    name: str
    is_dead: bool = False
    #: By name, what stands for the process's own global variables.
    memory: dict[str, Any] = field(default_factory=dict)
    #: Accounts that its publisher has still to send wake-ups for.
    outgoing: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Actor:
    """One thing that a process does."""

    name: str
    process: Process
    job: Callable[[], Any]
    #: Called in the scheduler's thread when it has ended.
    then: Callable[[Actor], None] | None = None
    #: Where it waits, and since when.
    point: str = ""
    since: datetime | None = None
    is_done: bool = False
    was_killed: bool = False
    result: Any = None
    error: Exception | None = None
    thread: Worker | None = field(default=None, repr=False)


class Worker(threading.Thread):
    """A thread that acts, one actor after the other; ``prepare`` and ``tidy`` are called in it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="simulation", daemon=True)
        self._stage = stage
        self._turn = threading.Semaphore(0)
        self.actor: Actor | None = None
        self.start()

    def give(self) -> None:
        """Hand the baton to this thread and wait until it comes back."""
        self._turn.release()
        self._stage.wait()

    def pause(self) -> None:
        """In this thread: give the baton back and wait for the next turn."""
        self._stage.back()
        self._turn.acquire()

    def run(self) -> None:
        self._stage.prepare()
        while True:
            self._turn.acquire()
            actor = self.actor
            if actor is None:
                break
            try:
                actor.result = actor.job()
            except Killed:
                actor.was_killed = True
            except Exception as error:
                actor.error = error
            actor.is_done = True
            if actor.was_killed or actor.process.is_dead:
                self._stage.bury()
            self.actor = None
            self._stage.back()
        self._stage.tidy()
        self._stage.back()


class Stage:
    """The threads and the baton. ``prepare``, ``bury`` and ``tidy`` run in a thread: at its start, after a death, at
    its end.
    """

    def __init__(self, prepare: Callable[[], object], bury: Callable[[], object], tidy: Callable[[], object]) -> None:
        self.prepare, self.bury, self.tidy = prepare, bury, tidy
        self._baton = threading.Semaphore(0)
        self._workers: list[Worker] = []
        self.actor: Actor | None = None

    def act(self, actor: Actor) -> None:
        """Let a new or waiting actor go on until it waits or has ended."""
        if actor.thread is None:
            actor.thread = self._idle()
            actor.thread.actor = actor
        before, self.actor = self.actor, actor
        actor.thread.give()
        self.actor = before

    def pause(self) -> None:
        """In an actor's thread: wait until it is let go on."""
        thread = threading.current_thread()
        assert isinstance(thread, Worker)
        thread.pause()

    def wait(self) -> None:
        # In parts: a process that was stopped for hours, and goes on, has lost one of them.
        if not any(self._baton.acquire(timeout=STUCK / 5) for _ in range(5)):
            raise Stuck(f"{self.actor} does not come back")

    def back(self) -> None:
        self._baton.release()

    def close(self) -> None:
        """End all threads; every actor has ended before."""
        for worker in self._workers:
            worker.actor = None
            worker.give()
            worker.join(STUCK)
        self._workers.clear()

    def _idle(self) -> Worker:
        for worker in self._workers:
            if worker.actor is None:
                return worker
        self._workers.append(Worker(self))
        return self._workers[-1]
