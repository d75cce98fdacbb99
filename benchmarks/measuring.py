"""What the measurements of reconciliation share: PostgreSQL and a stub, contenders in processes of their own.

A contender runs in its own process, so that its memory is its own, and prints its :class:`Result` as JSON. CPU time is
from ``/proc``.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import environ

from benchmarks.machine import TICKS, StockPostgres, cpu_seconds, family, spin_ms

ROOT = Path(__file__).resolve().parent.parent
#: The stub's events lie within so many seconds: in one window of a pass.
SPAN_SECONDS = 80_000


@dataclass(slots=True)
class Result:
    """What one process measured about itself. Items are events or objects."""

    items: int
    seconds: float
    statements: int
    #: Seconds of this process, of PostgreSQL, of the stub.
    own_cpu: float
    postgres_cpu: float
    stub_cpu: float
    peak_mb: float
    #: In the first tenth and in the last: items per second; and per second of CPU of this process and of PostgreSQL,
    #: in which the machine does as much as in any other one.
    first_tenth: tuple[float, float]
    last_tenth: tuple[float, float]
    #: Of the statements: those of the transactions that called a handler, and the most of one of them.
    of_events: int = 0
    most: int = 0

    @property
    def rate(self) -> float:
        return self.items / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Items per second of CPU, of this process and of PostgreSQL together."""
        return self.items / (self.own_cpu + self.postgres_cpu)

    @property
    def statements_each(self) -> float:
        return self.statements / self.items

    @property
    def lasting(self) -> float:
        """How the last tenth stands to the first, by CPU."""
        return self.last_tenth[1] / self.first_tenth[1]


@dataclass(frozen=True, slots=True)
class Work:
    """The task of a contender: the database, the stub's port, how many items, and whose CPU time counts."""

    database: str
    port: int
    items: int
    postgres: int
    stub: int


class Clock:
    """Wall and CPU time of a run, and where its tenths lie."""

    def __init__(self, work: Work) -> None:
        self._work = work
        #: Items seen, seconds since the beginning, seconds of CPU, what a fixed piece of work took here and before.
        self._marks: list[tuple[int, float, float, float]] = []
        self._spun = 0.0
        #: Seconds of CPU for those pieces, which are not the contender's.
        self._own_spun = 0.0
        self._stub = cpu_seconds([work.stub])
        self._postgres = cpu_seconds(family(work.postgres))
        self._own = time.process_time()
        self._began = time.perf_counter()
        self.tick(0)

    def tick(self, seen: int) -> None:
        """Note the time, where another fortieth is done."""
        if not self._marks or seen - self._marks[-1][0] >= self._work.items / 40 or seen >= self._work.items:
            began = time.process_time()
            self._spun += spin_ms()
            self._own_spun += time.process_time() - began
            cpu = self._own_cpu() + cpu_seconds(family(self._work.postgres)) - self._postgres
            self._marks.append((seen, time.perf_counter() - self._began, cpu, self._spun))

    def _own_cpu(self) -> float:
        return time.process_time() - self._own - self._own_spun

    def result(self, seen: int, statements: int) -> Result:
        return Result(
            items=seen,
            seconds=time.perf_counter() - self._began - self._own_spun,
            statements=statements,
            own_cpu=self._own_cpu(),
            postgres_cpu=cpu_seconds(family(self._work.postgres)) - self._postgres,
            stub_cpu=cpu_seconds([self._work.stub]) - self._stub,
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            first_tenth=self._between(0, seen * 0.1),
            last_tenth=self._between(seen * 0.9, seen),
        )

    def _between(self, low: float, high: float) -> tuple[float, float]:
        first = max(mark for mark in self._marks if mark[0] <= low)
        last = min(mark for mark in self._marks if mark[0] >= high)
        done, seconds, cpu, spun = (later - earlier for earlier, later in zip(first, last, strict=True))
        # The clock of other processes ticks in hundredths of a second. The machine is faster now, and slower then.
        pace = spun / sum(low < mark[0] <= last[0] for mark in self._marks) / (self._spun / len(self._marks))
        return done / seconds, done / max(cpu, 1 / TICKS) * pace


@contextmanager
def counted() -> Iterator[list[int]]:
    """The number of statements, in a list of one."""
    from django.db import connection

    statements = [0]

    def count(execute: Any, *args: Any) -> Any:
        statements[0] += 1
        return execute(*args)

    with connection.execute_wrapper(count):
        yield statements


class Site:
    """PostgreSQL, and a stub with so many events."""

    def __init__(self, server: StockPostgres, events: int, port: int, stub: int) -> None:
        self.server, self._address = server, server.url.rpartition("/")[0]
        self._shared = {"port": port, "items": events, "postgres": server.pid, "stub": stub}
        self._do("CREATE DATABASE migrated")
        self.run("benchmarks.measuring", "migrate", self._work("migrated"))

    @contextmanager
    def database(self, name: str) -> Iterator[Work]:
        """A new database with the app's tables."""
        self._do(f"CREATE DATABASE {name} TEMPLATE migrated")
        yield self._work(name)
        self._do(f"DROP DATABASE {name}")

    def run(self, module: str, contender: str, work: Work) -> str:
        """What a contender prints. Each begins after a checkpoint and pays for its own writes."""
        self._do("CHECKPOINT")
        command = [sys.executable, "-m", module, "--contender", contender, json.dumps(asdict(work))]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout

    def measure(self, module: str, contender: str, work: Work) -> Result:
        result = Result(**json.loads(self.run(module, contender, work)))
        show(contender, result)
        return result

    def _work(self, database: str) -> Work:
        return Work(f"{self._address}/{database}", **self._shared)

    def _do(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(f"{self._address}/postgres", autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@contextmanager
def site(events: int) -> Iterator[Site]:
    command = [sys.executable, str(ROOT / "benchmarks" / "event_stub.py"), str(events), str(SPAN_SECONDS)]
    with StockPostgres() as server, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stub:
        try:
            assert stub.stdout is not None
            yield Site(server, events, int(stub.stdout.readline()), stub.pid)
        finally:
            stub.terminate()


def configure(work: Work) -> None:
    from django.conf import settings

    account = {
        "BASE_URL": f"http://127.0.0.1:{work.port}",
        "API_KEY": "sk_test_benchmark",
        # The stub's events are older than the first contact.
        "DISPATCH_SINCE": datetime.fromtimestamp(0, UTC),
    }
    settings.configure(
        SECRET_KEY="benchmark",
        USE_TZ=True,
        INSTALLED_APPS=["rest_framework", "payments_integration"],
        DATABASES={"default": environ.Env.db_url_config(work.database)},
        PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": account}},
    )
    import django

    django.setup()


def contend(contenders: Mapping[str, Callable[[Work], Result | None]], arguments: list[str]) -> bool:
    """Whether this process is a contender's; then it has run, and its result is printed."""
    if arguments[:1] != ["--contender"]:
        return False
    work = Work(**json.loads(arguments[2]))
    configure(work)
    result = contenders[arguments[1]](work)
    if result is not None:
        print(json.dumps(asdict(result)))
    return True


def headings() -> None:
    print(
        f"{'':12}{'items':>9}{'per s':>8}{'per CPU s':>10}{'statements':>12}{'own ms':>8}{'Postgres':>10}"
        f"{'stub':>8}{'peak MB':>9}{'first':>9}{'last':>7}{'by CPU':>8}"
    )


def show(contender: str, result: Result) -> None:
    each = 1000 / result.items
    print(
        f"{contender:12}{result.items:>9}{result.rate:>8.0f}{result.cpu_rate:>10.0f}{result.statements_each:>12.3f}"
        f"{result.own_cpu * each:>8.3f}{result.postgres_cpu * each:>10.3f}{result.stub_cpu * each:>8.3f}"
        f"{result.peak_mb:>9.0f}{result.first_tenth[0]:>9.0f}{result.last_tenth[0]:>7.0f}{result.lasting:>8.2f}",
        flush=True,
    )


def migrate(work: Work) -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


if __name__ == "__main__":
    contend({"migrate": migrate}, sys.argv[1:])
