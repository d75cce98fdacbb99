"""The background thread of a sandbox."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger("payments_integration.sandbox")


class Pump:
    """A thread that delivers what is due and lets timers run, until it is stopped."""

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
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin; does nothing when it runs."""
        if self.running:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="payments-sandbox-pump", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the delivery under way, and join the thread."""
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
            except Exception:  # one bad turn must not end all deliveries
                logger.exception("The sandbox's pump failed")
