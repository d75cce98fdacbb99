"""Processes that a test starts, watches and kills, each by its id; none of them outlives the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Generous: the machine may be busy. What takes long when all is well has its own limit in the test.
PATIENCE = 60.0
STOP_SECONDS = 15.0
#: What Celery writes about each of its tasks: it would hide what happened before.
ROUTINE = re.compile(r"Sending due task|Task \S+ (received|succeeded)")


@dataclass(slots=True)
class Process:
    """A process in a session of its own, with what it has started."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def count(self, pattern: str) -> int:
        """How often it has written this."""
        return len(re.findall(pattern, self.output()))

    def children(self) -> list[int]:
        """The ids of the processes that it has started, those of a worker's pool."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in found.read_text().split()] if found.exists() else []

    def send(self, number: signal.Signals) -> None:
        """To it alone, not to what it has started."""
        if self.is_running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to it and everything it has started: the machine is gone."""
        group = [self.pid, *self.children()]
        for pid in group:
            _kill(pid)
        self.popen.wait(STOP_SECONDS)
        for pid in group[1:]:
            _gone(pid)

    def stop(self) -> None:
        """Asked first, killed where it does not listen. Never raises for a process that has ended."""
        self.send(signal.SIGTERM)
        try:
            self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


class Processes:
    """Starts processes with their logs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Process] = []

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Process:
        log = self.folder / f"{name}-{len(self.all)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                cwd=self.folder,
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self.all.append(process)
        return process

    def wait(self, what: str, holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """The first true result; AssertionError that says what was waited for, and what all of them wrote last."""
        end = time.monotonic() + seconds
        while not (result := holds()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds:g} s for {what}\n{self.tails()}")
            time.sleep(0.05)
        return result

    def tails(self, lines: int = 25) -> str:
        return "\n".join(
            f"--- {process.name} ({'running' if process.is_running else f'ended: {process.popen.returncode}'})\n"
            + "\n".join([line for line in process.output().splitlines() if not ROUTINE.search(line)][-lines:])
            for process in self.all
        )

    def stop(self) -> None:
        """End all of them, also the stopped ones, and every process of their sessions."""
        for process in reversed(self.all):
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
        for process in reversed(self.all):
            process.stop()
            for pid in _session(process.pid):
                _kill(pid)
                _gone(pid)


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _session(leader: int) -> list[int]:
    """Who is left of the session that a process led."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _gone(pid: int) -> None:
    """Wait for a process that is not our child; a zombie counts as gone."""
    end = time.monotonic() + STOP_SECONDS
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} does not end")
