"""Running schedules: batches of them, each from a seed of its own."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation import database
from tests.simulation.machine import Schedule
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import Violation, World

#: Set it to end after the schedule in hand.
stop = Event()
#: Schedules per seed, and steps of a schedule at most.
BATCH = 50
STEPS = 30


@dataclass
class Findings:
    """What a batch came to."""

    seed: int
    schedules: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    digests: list[str] = field(default_factory=list)
    violation: str = ""
    #: The shrunk schedule, a line per happening.
    trace: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """As JSON, without the digests."""
        names = ("seed", "schedules", "counts", "violation", "trace")
        return {name: getattr(self, name) for name in names}


@contextmanager
def scheduler() -> Iterator[Scheduler]:
    """The threads, with boundaries in their connections; the app's own log is silent meanwhile."""
    logging.disable(logging.CRITICAL)
    held = Scheduler(
        prepare=lambda: database.hook(lambda: Schedule.last),
        discard=database.discard,
        close_thread=database.close,
    )
    Schedule.scheduler = held
    try:
        yield held
    finally:
        if Schedule.last is not None:
            Schedule.last.close()  # a test that failed has left it open, with its time and its chance
        Schedule.last = None
        held.close()
        logging.disable(logging.NOTSET)


def run(number: int, schedules: int = BATCH, *, steps: int = STEPS, shrink: int = 60) -> Findings:
    """Run a batch from its seed; stops at the first violation. ``shrink``: seconds spent on a smaller schedule that
    violates the same, at most.
    """
    findings = Findings(number)

    def finished(world: World) -> None:
        findings.schedules += 1
        findings.counts.update(world.counts)
        findings.digests.append(world.digest)
        if stop.is_set():
            # Hypothesis would take SystemExit for a violation.
            raise KeyboardInterrupt

    class Batch(Schedule):
        pass

    Schedule.finished = staticmethod(finished)  # type: ignore[assignment]
    try:
        with mock.patch.object(engine, "MAX_SHRINKING_SECONDS", shrink):
            run_state_machine_as_test(
                seed(number)(Batch),
                settings=settings(
                    max_examples=schedules,
                    stateful_step_count=steps,
                    database=None,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
                    report_multiple_bugs=False,
                    print_blob=False,
                    verbosity=Verbosity.quiet,
                ),
            )
    except Exception as error:
        findings.violation = str(error) if isinstance(error, Violation) else "".join(traceback.format_exception(error))
        findings.trace = list(Schedule.last.trace) if Schedule.last is not None else []
    return findings
