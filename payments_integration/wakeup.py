"""Wake up: do the work that an account has, or publish a message, as PROCESSING says.

A wake-up is a hint: a lost one costs time but no event, because the scheduled sweeper finds the work. Modules of the
layers above are loaded with their first use, so that the modules that wake up import neither ``tasks`` nor
``reconciliation``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

from django.apps import apps
from django.db import connections, router, transaction
from django.utils.module_loading import import_string

from payments_integration import conf, telemetry
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: "inline" starts no further work after this many seconds of a request: the provider waits 10 seconds.
INLINE_SECONDS = 4.0

Hook = Callable[[str, float | None], None]


def wake(account: str, *, deadline: float | None = None) -> None:
    """Signal that the account has work. Raises no error, because the caller has already committed.

    ``deadline`` (``time.monotonic()``): when the work ends that is done in this thread.
    """
    if _hook is None:
        return
    try:
        _hook(account, deadline)
    except INTERRUPTIONS:
        raise
    except BaseException as error:  # also the time-outs of gevent
        report_failure(account, error)


def _on_wake(account: str, deadline: float | None) -> None:
    processing = conf.current().PROCESSING
    if processing != "inline" and not (processing == "celery" and _is_eager_test()):
        _publisher.publish(account)
        return
    using = import_module("payments_integration.db.transactions").nested_database()
    if using is not None:
        # What a handler writes there would end with the caller's transaction, and its event would be done. After a
        # rollback, the sweeper finds the work.
        transaction.on_commit(partial(wake, account), using=using, robust=True)
    else:
        # The provider or the caller of a service waits for the answer.
        deadline = time.monotonic() + INLINE_SECONDS if deadline is None else deadline
        _inline(account, deadline)


def _is_eager_test() -> bool:
    """Return True in a test of a project whose Celery runs each task in its caller's thread.

    The publisher's thread would not see the test's transaction, and would lock a database in memory for the test.
    """
    if not conf.in_test_environment():
        return False
    task = import_module("payments_integration.tasks").process_events
    return bool(task.app.conf.task_always_eager)


def _process(account: str, deadline: float) -> None:
    import_module("payments_integration.reconciliation").process_due(account, deadline=deadline)


def _send_wake_up(account: str) -> None:
    """Send a wake-up, in the publisher's thread: no answer waits for a broker, the database or project code."""
    settings = conf.current()
    try:
        if settings.PROCESSING == "celery":
            import_module("payments_integration.tasks").wake_up(account)
            return
        try:
            _notify(account)
        finally:
            # Even if the database could not be reached: the two are independent.
            if settings.WAKE_UP:
                result = import_string(settings.WAKE_UP)(account)
                import_module("payments_integration.db.border").refuse_coroutine(result)
    finally:
        # This thread's own: a queue in the database, or the project's code when a task is published, may have opened
        # some, or left a block of one open. Nothing else would notice that the server has dropped them.
        import_module("payments_integration.db.reconnecting").discard_left_open()
        # Gives a connection back to its pool, if it has one.
        connections.close_all()


def _notify(account: str) -> None:
    """Notify every ``payments_worker``, if the database can."""
    notifications = import_module("payments_integration.db.notifications")
    using = router.db_for_write(apps.get_model("payments_integration", "Event"))
    if notifications.can_notify(using):
        notifications.notify(using, account)


def report_failure(account: str, error: BaseException) -> None:
    """Log and observe that a wake-up did not get through."""
    logger.error(
        "The wake-up for account %s failed; the scheduled sweeper will find the work",
        account,
        exc_info=error,
        extra={"account": account},
    )
    telemetry.happened(telemetry.WakeUpFailed(account, error))


class Publisher:
    """Publishes wake-ups from its own thread: at most one message per account in ``interval`` seconds.

    A dead or hanging broker delays only that thread, never an answer. A message is always sent after the last wake-up.
    """

    def __init__(self, send: Callable[[str], None], *, interval: float = 0.3) -> None:
        self._send = send
        self._interval = interval
        self._thread: threading.Thread | None = None
        self._reset()
        os.register_at_fork(before=self._finish_before_fork, after_in_child=self._reset)
        atexit.register(self.flush)

    def publish(self, account: str) -> None:
        """Send a message soon. Returns at once."""
        # The thread has not taken the account yet, so its message is sent after the caller's commit.
        if account in self._accounts and self._work.is_set() and self._is_running:
            return
        with self._lock:
            self._accounts[account] = None
            if not self._is_running:
                self._thread = threading.Thread(target=self._run, name="payments-wakeup", daemon=True)
                self._thread.start()
            self._work.set()

    def flush(self, timeout: float = 2.0) -> None:
        """Wait until pending messages are sent."""
        end = time.monotonic() + timeout
        while self._busy and time.monotonic() < end:
            time.sleep(0.01)

    def _finish_before_fork(self) -> None:
        """Let the thread finish. Otherwise a child inherits the locks that it holds, and nothing ever releases them.

        The first message imports Celery's transport. A child forked meanwhile would hang when it publishes anything.
        """
        if threading.current_thread() is not self._thread:
            self.flush()

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
                # Set before ``_accounts`` is emptied, because ``_busy`` reads both without the lock.
                self._sending = True
                accounts, self._accounts = self._accounts, {}
            for account in accounts:
                try:
                    self._send(account)
                except BaseException as error:  # the project's code may raise anything, and this thread must go on
                    report_failure(account, error)
            self._sending = False
            time.sleep(self._interval)


class Inline:
    """Works in the threads that are woken: while one thread works, it takes over the others' wake-ups.

    Under load a pass then takes many events at once, for little more than it takes for one. If there was a wake-up
    during its pass, the worker waits for ``pause`` seconds to collect more events, and makes another pass. If another
    thread wakes meanwhile, it takes over: the first thread returns its response, the second does the next pass. So a
    request under load takes as long as one pass, even if its events came with other requests.

    A wake-up later than ``term`` seconds after a pass began starts a new worker. If a worker hangs in a receiver, the
    events of these seconds wait for it or for the next worker, and after its deadline for the sweeper.
    """

    def __init__(self, work: Callable[[str, float], None], *, term: float = 0.25, pause: float = 0.1) -> None:
        self._work = work
        self._term = term
        self._pause = pause
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def __call__(self, account: str, deadline: float) -> None:
        """Return when the work is done, or another thread does it. Work after the deadline is left to the sweeper."""
        with self._lock:
            now, pass_at = time.monotonic(), None
            other = self._workers.get(account)
            in_pass = self._in_this_thread.workers
            if account in in_pass:
                # A callback of this thread's pass wakes. A pass begun here would have its full time again, as would
                # each one within it: the request would last as long as its backlog. So one more pass follows the one
                # around the callback, even if a thread that took over is done by now.
                self._workers.setdefault(account, in_pass[account]).again = True
                return
            if other is not None and other.pass_at is not None:
                if deadline <= other.pass_at:
                    return  # its pass comes after this wake-up
                pass_at = other.pass_at
                other.relieved.set()
            elif other is not None and now < other.until:
                other.again = True
                return
            worker = self._workers[account] = _Worker(now + self._term, pass_at)
        while worker.pass_at is None or self._waited(account, worker, worker.pass_at):
            self._in_this_thread.workers = {**in_pass, account: worker}
            try:
                self._work(account, deadline)
            except BaseException:
                self._end(account, worker)
                raise
            finally:
                self._in_this_thread.workers = in_pass
            if self._end(account, worker, deadline):
                return

    def _waited(self, account: str, worker: _Worker, pass_at: float) -> bool:
        """Wait for the time of the next pass. Returns False if another thread has taken over."""
        worker.relieved.wait(max(0.0, pass_at - time.monotonic()))
        with self._lock:
            if self._workers.get(account) is not worker:
                return False
            worker.pass_at, worker.until = None, time.monotonic() + self._term
            return True

    def _end(self, account: str, worker: _Worker, deadline: float | None = None) -> bool:
        """Remove the worker. Returns False if it was woken again before the deadline, and waits for another pass.

        One step, so that no wake-up is lost between the two.
        """
        with self._lock:
            if self._workers.get(account) is not worker:
                return True
            now = time.monotonic()
            if worker.again and deadline is not None and now < deadline:
                worker.again, worker.pass_at = False, now + self._pause
                return False
            del self._workers[account]
            return True

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._in_this_thread = _InThisThread()


class _InThisThread(threading.local):
    #: Whose passes run, by account.
    workers: Mapping[str, _Worker] = {}


@dataclass(slots=True, eq=False)
class _Worker:
    """A thread that works for others: in a pass, or waiting for the next one."""

    #: It works for others until then.
    until: float
    #: When its next pass begins; None: a pass is running.
    pass_at: float | None
    #: Woken since its pass began.
    again: bool = False
    #: Set when another thread takes over.
    relieved: threading.Event = field(default_factory=threading.Event)


_publisher = Publisher(_send_wake_up)
_inline = Inline(_process)
_hook: Hook | None = _on_wake


def set_hook(hook: Hook | None) -> Hook | None:
    """Set what tests want every wake-up to call instead: ``hook(account, deadline)``. Returns the previous one."""
    global _hook
    previous, _hook = _hook, hook
    return previous
