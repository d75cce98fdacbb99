"""The sandbox's own time: real by default, and movable by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from weakref import WeakMethod


class Clock:
    """Aware UTC time that can be frozen, advanced and shifted. Thread-safe.

    Whoever subscribes is called after every move by hand, so that timers fall due at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = timedelta()
        self._frozen: datetime | None = None
        self._last_stamp: datetime | None = None
        self._listeners: list[WeakMethod[Callable[[], object]]] = []

    def now(self) -> datetime:
        """The time on this clock; never before the last :meth:`stamp`."""
        with self._lock:
            return self._now()

    def stamp(self) -> datetime:
        """A time later than every stamp before it, by a microsecond if need be: the order of changes shows in
        it.

        Only a step back by hand makes stamps smaller again.
        """
        with self._lock:
            now = self._now()
            if self._last_stamp is not None and now <= self._last_stamp:
                now = self._last_stamp + timedelta(microseconds=1)
            self._last_stamp = now
            return now

    def advance(self, seconds: float) -> None:
        """Move the time on, frozen or not; a negative number moves it back."""
        with self._lock:
            target = self._now() + timedelta(seconds=seconds)
            self._move_to(target, stay_frozen=self._frozen is not None)
        self._tell()

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock, now or at the aware time given. :meth:`advance` still moves it."""
        if at is not None and at.tzinfo is None:
            raise ValueError("freeze() needs an aware datetime")
        with self._lock:
            self._move_to(self._now() if at is None else at.astimezone(UTC), stay_frozen=True)
        self._tell()

    def unfreeze(self) -> None:
        """Let a frozen clock run on from where it stands."""
        with self._lock:
            self._move_to(self._now(), stay_frozen=False)
        self._tell()

    def set_offset(self, seconds: float) -> None:
        """Run at real time plus this many seconds (negative: behind). Ends a freeze."""
        with self._lock:
            self._move_to(datetime.now(UTC) + timedelta(seconds=seconds), stay_frozen=False)
        self._tell()

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call this bound method after every move by hand; held weakly, so a clock keeps no engine alive."""
        with self._lock:
            self._listeners.append(WeakMethod(listener))

    @property
    def is_frozen(self) -> bool:
        """Whether the clock stands still."""
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

    def _tell(self) -> None:
        with self._lock:
            self._listeners = [reference for reference in self._listeners if reference() is not None]
            listeners = [reference() for reference in self._listeners]
        for listener in listeners:
            if listener is not None:
                listener()
