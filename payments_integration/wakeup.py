"""The hook that flows call to say "there is work".

``apps`` sets it at start-up: to a publisher of Celery messages ("celery") or to the processor itself ("inline").
Flows never know which, and never import ``tasks``. A wake-up is a hint: losing one costs time, never an event,
because the sweeper in the schedule looks for itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: "inline" processing starts no further work so long after a request came: the provider waits 10 seconds.
INLINE_SECONDS = 4.0

Hook = Callable[[str, float | None], None]
_hook: Hook | None = None


def set_hook(hook: Hook | None) -> Hook | None:
    """``hook(account, deadline)`` is called for every wake-up; ``deadline`` is a ``time.monotonic()`` or None.

    Returns the hook before it.
    """
    global _hook
    previous, _hook = _hook, hook
    return previous


def wake(account: str, *, deadline: float | None = None) -> None:
    """Say that the account has work. Never raises: what called us has already committed."""
    if _hook is None:
        return
    try:
        _hook(account, deadline)
    except Exception:
        logger.exception("The wake-up for account %s failed; the scheduled sweeper will find the work", account)


class Publisher:
    """Publishes wake-ups from a thread of its own, coalesced.

    A dead or hanging broker can delay only that thread, never an answer. However many wake-ups come, at most one
    message per account leaves in ``interval`` seconds, and one always leaves after the last of them.
    """

    def __init__(self, send: Callable[[str], None], *, interval: float = 0.3) -> None:
        self._send = send
        self._interval = interval
        self._thread: threading.Thread | None = None
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.flush)

    def publish(self, account: str) -> None:
        """Have a message sent soon; returns at once."""
        # Noted, and not taken yet when this was called: the message leaves after what the caller has committed.
        if account in self._accounts and self._work.is_set() and self._is_running:
            return
        with self._lock:
            self._accounts[account] = None
            if not self._is_running:
                self._thread = threading.Thread(target=self._run, name="payments-wakeup", daemon=True)
                self._thread.start()
            self._work.set()

    def flush(self, timeout: float = 2.0) -> None:
        """Give messages that are due a chance to leave; at exit."""
        end = time.monotonic() + timeout
        while self._busy and time.monotonic() < end:
            time.sleep(0.01)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._accounts: dict[str, None] = {}
        self._sending = False
        self._thread = None

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def _busy(self) -> bool:
        return bool(self._accounts) or self._sending

    def _run(self) -> None:
        while True:
            self._work.wait()
            with self._lock:
                self._work.clear()
                # First: whoever looks without the lock must not see neither.
                self._sending = True
                accounts, self._accounts = self._accounts, {}
            for account in accounts:
                try:
                    self._send(account)
                except Exception:
                    logger.exception("No wake-up for account %s; the scheduled sweeper will find the work", account)
            self._sending = False
            time.sleep(self._interval)


class Inline:
    """Works off in the threads that are woken, coalesced: while one works, what wakes the others is its work too.

    Under load a pass then takes many events at once, for little more than it takes for one. It goes on until nothing
    woke anybody since it began. Whoever comes after ``term`` seconds takes over, so that nobody works for the others
    for long. Where one hangs in a receiver, what came in its first ``term`` seconds waits for it or for whoever comes
    next; beyond its deadline for the sweeper.
    """

    def __init__(self, work: Callable[[str, float], None], *, term: float = 0.25, pause: float = 0.1) -> None:
        """``pause``: seconds before another pass, in which more comes that it can take along."""
        self._work = work
        self._term = term
        self._pause = pause
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def __call__(self, account: str, deadline: float) -> None:
        """Return when the work is done, or somebody else's. What comes after the deadline is left to the sweeper."""
        with self._lock:
            turn = self._turns.get(account)
            if turn is not None and time.monotonic() < turn.until:
                turn.again = True
                return
            turn = self._turns[account] = _Turn(time.monotonic() + self._term)
        is_over = False
        while not is_over:
            try:
                self._work(account, deadline)
            except BaseException:
                self._end(account, turn)
                raise
            is_over = self._end(account, turn, unless_again=time.monotonic() < deadline)
            if not is_over:
                time.sleep(self._pause)

    def _end(self, account: str, turn: _Turn, *, unless_again: bool = False) -> bool:
        """Whether the turn is over. In one step: who comes later either finds it, and is heard, or has the next."""
        with self._lock:
            if self._turns.get(account) is not turn:
                return True
            if unless_again and turn.again:
                turn.again = False
                return False
            del self._turns[account]
            return True

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}


class _Turn:
    """Of one thread, until ``until``; ``again``: somebody was woken since its pass began."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.again = False
