"""Child processes that never outlive this one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

#: Seconds that a child has to end by itself.
GRACE = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class DemoError(Exception):
    """The demo cannot continue; the message says why, for the person who started it."""


class Stopped(BaseException):
    """A signal asked this process to end. Not an Exception, so that no handler catches it."""


@dataclass(slots=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self, lines: int = 15) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Children:
    """Starts children, notices when one dies, and ends all of them. Use as a context manager."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.running: list[Child] = []

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Child:
        """Start one in a session of its own: a Ctrl-C at the terminal reaches us alone, and we end it in order."""
        log = self._logs / f"{name}.log"
        parent = os.getpid()
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  (commands are written in this package)
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ or os.environ),
                start_new_session=True,
                preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509  (no thread runs yet)
            )
        child = Child(name, process, log)
        self.running.append(child)
        return child

    def check(self) -> None:
        """Raise DemoError when a child has ended by itself."""
        for child in self.running:
            if child.process.poll() is not None:
                code = child.process.returncode
                raise DemoError(f"the {child.name} ended by itself (exit code {code}):\n{child.tail()}")

    def wait_until(self, what: str, holds: Callable[[], bool], timeout: float = 30.0) -> None:
        """Wait for something while all children live."""
        end = time.monotonic() + timeout
        while not holds():
            self.check()
            if time.monotonic() > end:
                tails = "\n".join(f"--- {child.name}\n{child.tail()}" for child in self.running)
                raise DemoError(f"waited {timeout:.0f} seconds for {what}\n{tails}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End every child and wait for it: asked first, killed when it does not listen. Never raises."""
        for child in reversed(self.running):
            _signal(child, signal.SIGTERM)
        end = time.monotonic() + GRACE
        for child in reversed(self.running):
            try:
                child.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(child, signal.SIGKILL)
                child.process.wait()
        self.running.clear()

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not cut the ending short.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
        try:
            self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise Stopped in the main thread, so that ``with`` blocks end in order."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


def _signal(child: Child, number: signal.Signals) -> None:
    """Signal the child's process group, unless it has ended: the system reuses ids."""
    if child.process.poll() is not None:
        return
    try:
        os.killpg(child.process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _end_with(parent: int) -> None:
    """In the child, before it executes its command: end when the parent ends (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
