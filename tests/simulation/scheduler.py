"""Actors in threads of which exactly one runs at a time, and the boundaries at which the plan decides.

An actor is one request, task or call inside a process of the merchant's. At a boundary the plan says whether it goes
on, waits (its thread ends its turn and others run), meets a fault, or its process is killed: from then on
every statement and every request of that process refuses too, so that no ``finally`` can clean up.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

#: Seconds of real time after which a thread that does not come back is stuck. A run of low priority on
#: a busy machine gets little of it.
STUCK = 300.0

#: At most so many faults wait for their occasion.
MOST_PLANNED = 6

GO = "go"
CRASH = "crash"
WAIT = "wait"


class Killed(SystemExit):
    """The process is dead; every further call in it raises this. The app raises a SystemExit again."""


class Stuck(Exception):
    """A thread did not end its turn: the simulator is wrong, or a lock is held over a boundary."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of this kind at the ``nth`` time (from 0) that this point is reached; ``method``: by such a request."""

    point: str
    kind: str
    nth: int = 0
    method: str = ""

    def __str__(self) -> str:
        of_what = f" of {self.method}" if self.method else ""
        return f"{self.kind} at {self.point}{of_what}{f' #{self.nth}' if self.nth else ''}"


class Plan:
    """The planned faults; one that finds no occasion in its step stays for the next steps."""

    def __init__(self) -> None:
        self._left: list[Fault] = []
        #: How often each point was reached in this step, by any request ("") and by each method.
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(self, faults: Iterable[Fault]) -> None:
        """A step begins: count its boundaries from zero."""
        self._left = [*self._left, *faults][-MOST_PLANNED:]
        self._seen.clear()

    def clear(self) -> None:
        self._left = []

    def take(self, point: str, *, may_wait: bool, method: str = "") -> str:
        """What happens now at this point; ``method``: of the request, if this is one."""
        for place in {(point, ""), (point, method)}:
            self._seen[place] += 1
        for fault in self._left:
            if (
                fault.point == point
                and fault.method in ("", method)
                and fault.nth < self._seen[point, fault.method]
                and (may_wait or fault.kind != WAIT)
            ):
                self._left.remove(fault)
                return fault.kind
        return GO


@dataclass(eq=False)
class Process:
    """A process of the merchant's: its memory is lost when it dies."""

    name: str
    #: The API key and the PROCESSING with which it was deployed.
    key: str = ""
    mode: str = ""
    #: What it calls the account.
    alias: str = ""
    #: Its receivers are declared as ``database_only``, and share transactions.
    database_only: bool = False
    is_dead: bool = False
    #: The process's own global variables, by name.
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
    #: When it began, on the monotonic clock.
    began: float = 0.0
    #: Where it waits, and since when.
    point: str = ""
    since: datetime | None = None
    is_done: bool = False
    was_killed: bool = False
    result: Any = None
    error: BaseException | None = None
    #: The boundaries at which it met a fault; "wait": it stood still.
    met: set[str] = field(default_factory=set)
    #: The claims that it has taken.
    claims: set[str] = field(default_factory=set)
    thread: Worker | None = field(default=None, repr=False)


class Worker(threading.Thread):
    """A thread that acts, one actor after the other; ``prepare`` and ``close_thread`` are called in it."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(name="simulation", daemon=True)
        self._scheduler = scheduler
        self._turn = threading.Semaphore(0)
        self.actor: Actor | None = None
        self.start()

    def give(self) -> None:
        """Give this thread its turn and wait until the turn ends."""
        self._turn.release()
        self._scheduler.wait()

    def pause(self) -> None:
        """In this thread: end the turn and wait for the next one."""
        self._scheduler.back()
        self._turn.acquire()

    def run(self) -> None:
        self._scheduler.prepare()
        while True:
            self._turn.acquire()
            actor = self.actor
            if actor is None:
                break
            try:
                actor.result = actor.job()
            except Killed:
                actor.was_killed = True
            except BaseException as error:  # a receiver of the merchant's may raise any
                actor.error = error
            actor.is_done = True
            if actor.was_killed or actor.process.is_dead:
                self._scheduler.discard()
            self.actor = None
            self._scheduler.back()
        self._scheduler.close_thread()
        self._scheduler.back()


class Scheduler:
    """The threads, of which one has the turn.

    These run in a thread: ``prepare`` at its start, ``discard`` after a death, ``close_thread`` at its end.
    """

    def __init__(
        self, prepare: Callable[[], object], discard: Callable[[], object], close_thread: Callable[[], object]
    ) -> None:
        self.prepare, self.discard, self.close_thread = prepare, discard, close_thread
        self._turn_over = threading.Semaphore(0)
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
        if not any(self._turn_over.acquire(timeout=STUCK / 5) for _ in range(5)):
            raise Stuck(f"{self.actor} does not come back")

    def back(self) -> None:
        self._turn_over.release()

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
