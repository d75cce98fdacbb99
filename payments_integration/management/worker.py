"""Run the loops of ``payments_worker``: work at each wake-up, and do what is due at the schedule's interval.

The calling thread handles wake-ups. It sleeps until PostgreSQL notifies it, or looks for work with one statement. A
second thread does what ``payments_process`` does, because a reconciliation pass may take hours and must not delay
events. Claims in the database keep the two threads and other processes apart.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management import CommandError
from django.db import Error as AnyDatabaseError, InterfaceError, OperationalError, connections, router

from payments_integration import reconciliation, telemetry
from payments_integration.attention import send_overdue
from payments_integration.db.notifications import Listener, can_notify
from payments_integration.db.reconnecting import discard_all
from payments_integration.models import Event
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.schedule import BEAT_SCHEDULE

logger = get_logger(__name__)

#: Each step of a pass stops after about this many seconds, so that accounts take turns and a stop is noticed soon.
TURN_SECONDS = 2.0
#: Seconds between looks if PostgreSQL notifies the worker, for work that no notification announces, such as a retry.
LISTENING_SECONDS = 5.0
#: Seconds until a pass tries again work that it left, such as a dispatch that waits for a read. Doubled each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Seconds to wait after a failure, such as a lost connection. Doubled each time.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 30.0
#: The most seconds until a signal is noticed.
_SLICE = 0.5
#: The least seconds between two touches of the heartbeat file.
HEARTBEAT_SECONDS = 5.0


def require_two_connections() -> None:
    """Raise CommandError if the database's pool has one connection. Each of the two threads keeps one."""
    pool = connections[router.db_for_write(Event)].settings_dict["OPTIONS"].get("pool")
    # Without a ``max_size`` a pool of psycopg does not grow.
    if isinstance(pool, Mapping) and (pool.get("max_size") or pool.get("min_size", 2)) < 2:
        raise CommandError(
            'OPTIONS["pool"] of the database allows one connection. payments_worker needs two, and a third to wake '
            "others: raise its max_size."
        )


class Counts(telemetry.Observer):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.applied = self.dispatched = self.failed = self.sent = 0

    @property
    def steps(self) -> int:
        return self.applied + self.dispatched + self.failed + self.sent

    def begun(self, activity: telemetry.Activity) -> None:
        if isinstance(activity, telemetry.Sending):
            with self._lock:
                self.sent += 1

    def happened(self, fact: telemetry.Fact) -> None:
        with self._lock:
            match fact:
                case telemetry.Applied(events):
                    self.applied += len(events)
                case telemetry.Dispatched():
                    self.dispatched += 1
                case telemetry.DispatchFailed():
                    self.failed += 1

    def __str__(self) -> str:
        return (
            f"{self.applied} events applied, {self.dispatched} dispatched, {self.failed} attempts failed, "
            f"{self.sent} operations sent"
        )


class Worker:
    """The worker of one process. It works until the process is asked to stop."""

    def __init__(
        self, accounts: Sequence[str], *, is_every_account: bool, poll_seconds: float, heartbeat: Path | None = None
    ) -> None:
        """Prepare the worker.

        Args:
            accounts: The aliases to work for.
            is_every_account: True if these are all accounts. The worker then also serves accounts that were removed.
            poll_seconds: Seconds between looks for work if the database does not notify.
            heartbeat: A file to touch while the worker lives.
        """
        self._accounts = accounts
        self._is_every_account = is_every_account
        self._poll_seconds = poll_seconds
        self._heartbeat = heartbeat
        self._beat_at = 0.0
        self._using = router.db_for_write(Event)
        self._listener: Listener | None = None
        self._listens = can_notify(self._using)
        #: Accounts that have work, in the order in which they take turns.
        self._woken: dict[str, None] = {}
        self._look_at = 0.0
        #: Maps an account and a kind of work that a pass left to the time of the next try and the pause after it.
        self._pauses: dict[tuple[str, str], tuple[float, float]] = {}
        #: The exception that ended one of the two threads.
        self._fault: BaseException | None = None
        #: True when both threads end. ``stopping`` is about the process, which may live on.
        self._is_ending = False
        self._counts = Counts()

    def run(self) -> None:
        """Work until the process is asked to stop, and finish the items in hand.

        Raises SystemExit at a second signal, and any exception that a handler raised to end the process.
        """
        begun = time.monotonic()
        logger.info("payments_worker has started for %s", ", ".join(self._accounts))
        telemetry.observe(self._counts)
        try:
            self._run()
        finally:
            telemetry.forget(self._counts)
            logger.info("payments_worker has stopped after %d s: %s", time.monotonic() - begun, self._counts)

    def _run(self) -> None:
        schedule = threading.Thread(target=self._follow_schedule, name="payments-schedule", daemon=True)
        schedule.start()
        try:
            try:
                self._work()
            except BaseException as error:
                self._is_ending = True
                if stopping.is_urgent():
                    raise
                self._fault = error
            self._is_ending = True
            stopping.request()
            while schedule.is_alive():
                self._beat()
                schedule.join(_SLICE)
        finally:
            self._close_listener()
            if self._heartbeat is not None:
                with suppress(OSError):
                    self._heartbeat.unlink(missing_ok=True)
        if self._fault is not None:
            raise self._fault

    def _work(self) -> None:
        backoff = _FIRST_BACKOFF
        while not stopping.is_requested():
            self._beat()
            try:
                self._turn()
            except Exception as error:
                _report(error)
                self._close_listener()
                discard_all()
                self._look_at = 0.0
                stopping.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
            else:
                backoff = _FIRST_BACKOFF

    def _turn(self) -> None:
        """Wait for a wake-up or the next look, then give each account that has work a turn."""
        if self._listens and self._listener is None:
            self._listen()
        wait = 0.0 if self._woken else min(_SLICE, max(0.0, self._look_at - time.monotonic()))
        if self._listener is not None:
            woken = self._listener.wait(wait)
            self._woken.update((account, None) for account in self._accounts if account in woken)
        elif wait:
            time.sleep(wait)
        if time.monotonic() >= self._look_at:
            self._look()
        for account in list(self._woken):
            if stopping.is_requested():
                return
            self._beat()
            # Remove it before the pass, so that a wake-up during the pass counts.
            del self._woken[account]
            steps = self._counts.steps
            try:
                is_more = reconciliation.process_due(account, turn_seconds=TURN_SECONDS)
            except (OperationalError, InterfaceError):
                self._woken[account] = None
                raise
            except Exception as error:
                _report(error)  # the schedule tries again; the other accounts have their turns
                # A handler may have changed the session, such as its search_path: each later pass would fail as well.
                discard_all()
                continue
            if is_more:
                self._woken[account] = None
            if self._counts.steps > steps:
                # The pass made progress, so the next look starts without pauses.
                self._pauses = {work: pause for work, pause in self._pauses.items() if work[0] != account}

    def _look(self) -> None:
        now = time.monotonic()
        found = {work for work in reconciliation.waiting_work() if work[0] in self._accounts}
        self._pauses = {work: pause for work, pause in self._pauses.items() if work in found}
        for work in found:
            due_at, pause = self._pauses.get(work, (now, _FIRST_PAUSE))
            if now >= due_at:
                self._woken[work[0]] = None
                self._pauses[work] = (now + pause, min(pause * 2, _LONGEST_PAUSE))
        listening = max(LISTENING_SECONDS, self._poll_seconds)
        self._look_at = now + (self._poll_seconds if self._listener is None else listening)

    def _listen(self) -> None:
        listener = Listener(self._using)
        try:
            is_heard = listener.is_heard(self._using)
        except BaseException:
            listener.close()
            raise
        if is_heard:
            self._listener = listener
        else:
            listener.close()
            self._listens = False
            logger.warning(
                "No notification arrives through this connection: is it a pooler's? Looking for work every %g s",
                self._poll_seconds,
            )
        self._look_at = 0.0  # find work that came before it listened

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _beat(self) -> None:
        if self._heartbeat is None or time.monotonic() < self._beat_at:
            return
        self._beat_at = time.monotonic() + HEARTBEAT_SECONDS
        try:
            self._heartbeat.touch()
        except OSError as error:  # a full disk must not stop the work
            logger.warning("The heartbeat %s cannot be written: %s", self._heartbeat, error)

    def _follow_schedule(self) -> None:
        interval = float(BEAT_SCHEDULE["payments_integration.process_events"]["schedule"])
        try:
            while not (stopping.is_requested() or self._is_ending):
                begun = time.monotonic()
                try:
                    if self._is_every_account:
                        # Includes accounts that the setting no longer has.
                        send_overdue()
                    reconciliation.each(self._accounts, partial(reconciliation.run_due, turn_seconds=TURN_SECONDS))
                except Exception as error:
                    _report(error)
                    discard_all()
                stopping.sleep(begun + interval - time.monotonic())
        except BaseException as error:  # a handler's SystemExit
            self._fault = error
            stopping.request()
        finally:
            discard_all()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Ask the process to stop at SIGTERM or SIGINT. A second signal raises SystemExit in the main thread."""
    signals = 0

    def stop(number: int, frame: Any) -> None:
        nonlocal signals
        signals += 1
        stopping.request(urgent=signals > 1)
        if signals > 1:
            raise SystemExit(128 + number)

    stopping.clear()
    # Only the main thread gets signals.
    gets_signals = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if gets_signals else ()
    previous: dict[int, Any] = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            # None if code outside Python installed it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        stopping.clear()


@contextmanager
def logged_to(output: Any) -> Iterator[None]:
    """Write what the app logs to this stream, if the project has not set up a log."""
    app = logging.getLogger("payments_integration")
    if app.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(output), app.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    app.addHandler(handler)
    app.setLevel(logging.INFO)
    try:
        yield
    finally:
        app.removeHandler(handler)
        app.setLevel(level)


def _report(error: Exception) -> None:
    if isinstance(error, AnyDatabaseError):
        # Leave out the message, because it may show a row.
        logger.warning("The database failed with %s; connecting again", type(error).__name__)
    else:
        logger.error("A pass failed; it is tried again", exc_info=error)
