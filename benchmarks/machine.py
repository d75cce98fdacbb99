"""What a measurement needs of the machine: a stock PostgreSQL, processes, and the CPU time that they took."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import Postgres

#: The clock of other processes ticks so often in a second.
TICKS = os.sysconf("SC_CLK_TCK")


class StockPostgres(Postgres):
    """With the settings that PostgreSQL comes with: a commit waits for the disk."""

    def command(self) -> list[str]:
        data, port, sockets = str(self.directory / "data"), str(self.port), str(self.directory)
        return [self._binary("postgres"), "-D", data, "-p", port, "-k", sockets, "-c", "listen_addresses=127.0.0.1"]

    @property
    def pid(self) -> int:
        """The parent of every backend."""
        return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])

    def database(self, name: str) -> str:
        """The URL of a new, empty database."""
        self.ask(f'DROP DATABASE IF EXISTS "{name}"')
        self.ask(f'CREATE DATABASE "{name}"')
        return self.url.replace("/payments", f"/{name}")

    def ask(self, sql: str, *, database: str = "postgres") -> Any:
        """The first value of the first row; None where there is none."""
        with psycopg.connect(self.url.replace("/payments", f"/{database}"), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[call-overload]
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def wal_bytes(self) -> int:
        return int(self.ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))


def family(pid: int) -> list[int]:
    """A process and everything that it started and that still runs."""
    found = [pid]
    with suppress(FileNotFoundError):  # it ended meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in _read(task).split():
                found += family(int(child))
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """What these took so far, in user and kernel, with those of their children that have ended."""
    total = 0
    for pid in pids:
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def peak_mb(pid: int) -> float:
    """The most memory that a process held at a time."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def spin_ms() -> float:
    """How long a fixed piece of work takes now: compare it before comparing what was measured at different times."""
    took = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for number in range(100_000):
            total += number * number % 7
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it ended meanwhile
        return ""
