"""Keep the sandbox's own time, which can be moved by hand, and run the thread that does what falls due."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from weakref import WeakMethod

logger = logging.getLogger("payments_integration.sandbox")


def iso(at: datetime) -> str:
    """Return ISO 8601 in UTC, always with six decimals: ``2026-01-31T12:00:00.000001Z``."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> datetime:
    """Return the time in an ISO 8601 text. Raises ValueError if it has no time zone."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a date-time needs a time zone")
    return at.astimezone(UTC)


@dataclass(frozen=True)
class ClockRecord:
    """The saved state of a clock. ``offset`` is the seconds from real time to the clock's."""

    offset: float
    frozen_at: datetime | None
    last_stamp: datetime | None


class Clock:
    """Aware UTC time that can be frozen, advanced and shifted. Thread-safe.

    Subscribers are called after every move by hand, so that due timers run at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = timedelta()
        self._frozen: datetime | None = None
        self._last_stamp: datetime | None = None
        self._listeners: list[WeakMethod[Callable[[], object]]] = []

    def now(self) -> datetime:
        """Return the time on this clock, never before the last :meth:`stamp`."""
        with self._lock:
            return self._now()

    def stamp(self) -> datetime:
        """Return a time later than every earlier stamp, by a microsecond if necessary.

        Stamps therefore show the order of changes. Only moving the clock back makes stamps smaller again.
        """
        with self._lock:
            now = self._now()
            if self._last_stamp is not None and now <= self._last_stamp:
                now = self._last_stamp + timedelta(microseconds=1)
            self._last_stamp = now
            return now

    def advance(self, seconds: float) -> None:
        """Move the time forward, frozen or not. A negative number moves it back."""
        with self._lock:
            target = self._now() + timedelta(seconds=seconds)
            self._move_to(target, stay_frozen=self._frozen is not None)
        self._notify()

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock, now or at the aware time given. :meth:`advance` still moves it."""
        if at is not None and at.tzinfo is None:
            raise ValueError("freeze() needs an aware datetime")
        with self._lock:
            self._move_to(self._now() if at is None else at.astimezone(UTC), stay_frozen=True)
        self._notify()

    def unfreeze(self) -> None:
        """Let a frozen clock run on from its time."""
        with self._lock:
            self._move_to(self._now(), stay_frozen=False)
        self._notify()

    def set_offset(self, seconds: float) -> None:
        """Run at real time plus this many seconds; a negative number runs behind. Ends a freeze."""
        with self._lock:
            self._move_to(datetime.now(UTC) + timedelta(seconds=seconds), stay_frozen=False)
        self._notify()

    def reset(self) -> None:
        """Run in real time again, as a new clock does. Subscribers stay."""
        self.restore(ClockRecord(0.0, None, None))
        self._notify()

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call this bound method after every move by hand. It is held weakly, so a clock keeps no engine alive."""
        reference = WeakMethod(listener)
        with self._lock:
            if reference not in self._listeners:
                self._listeners.append(reference)

    def record(self) -> ClockRecord:
        """Return the state for :meth:`restore`."""
        with self._lock:
            return ClockRecord(self._offset.total_seconds(), self._frozen, self._last_stamp)

    def restore(self, record: ClockRecord) -> None:
        """Continue from a record: with the same offset from real time, or frozen at the same time."""
        with self._lock:
            self._offset = timedelta(seconds=record.offset)
            self._frozen = record.frozen_at
            self._last_stamp = record.last_stamp

    @property
    def ahead(self) -> float:
        """The seconds from real time to this clock's; negative if it is behind."""
        return (self.now() - datetime.now(UTC)).total_seconds()

    @property
    def is_frozen(self) -> bool:
        """True if the clock is stopped."""
        with self._lock:
            return self._frozen is not None

    def _now(self) -> datetime:
        now = self._frozen if self._frozen is not None else datetime.now(UTC) + self._offset
        if self._last_stamp is not None and now < self._last_stamp:
            return self._last_stamp
        return now

    def _move_to(self, target: datetime, *, stay_frozen: bool) -> None:
        if self._last_stamp is not None and target < self._last_stamp:
            self._last_stamp = None
        self._frozen = target if stay_frozen else None
        self._offset = timedelta() if stay_frozen else target - datetime.now(UTC)

    def _notify(self) -> None:
        with self._lock:
            self._listeners = [reference for reference in self._listeners if reference() is not None]
            listeners = [reference() for reference in self._listeners]
        for listener in listeners:
            if listener is not None:
                listener()


class Scheduler:
    """A background thread that calls ``work`` at each interval, and at once when ``wake`` is set.

    ``work`` takes a function that returns True if the thread must stop.
    """

    def __init__(
        self, work: Callable[[Callable[[], bool]], object], wake: threading.Event, interval: float = 0.1
    ) -> None:
        self._work = work
        self._wake = wake
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """True if the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. Does nothing if it runs."""
        if self.running:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="payments-sandbox-scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the delivery in progress, and join the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._work(self._stop.is_set)
            except Exception:  # one failure must not end all deliveries
                logger.exception("The sandbox's scheduler failed")
