"""Measure how 1, 2, 4 and 8 Celery workers share the work of two accounts. Each account has its own queue.

    python benchmarks/workers.py [--events 6000] [--workers 1 2 4 8] [--json FILE]

Starts PostgreSQL and Redis. For each number of workers both accounts have so many stored events, and every event has a
handler, which does one UPDATE. The workers have one process each and take both queues. Wake-ups come three times a
second, as while deliveries arrive. An event waits from the first wake-up until it is dispatched.

Statements are counted without the handler's own and without BEGIN and COMMIT. Exits 1 if an event was not handled
exactly once, or if an account waits more than twice as long as the other, by its mean or by its longest wait.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import environ

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.deliveries import deliveries
from benchmarks.figures import Figure, report
from benchmarks.handlers import connect, counting, create_tables
from benchmarks.machine import StockPostgres
from benchmarks.measuring import ROOT
from example_project.demo.processes import raise_on_signals
from payments_integration.schedule import route_by_account
from tests.servers import Redis

if TYPE_CHECKING:
    from celery import Celery

QUEUES = {"first": "payments-first", "second": "payments-second"}
TASK = "payments_integration.tasks.process_events"
#: Seconds between two wake-ups of an account.
WAKE_EVERY = 0.3
#: Events stored at a time.
PAGE = 500
#: Only for a run that hangs.
PATIENCE = 900.0


@dataclass(frozen=True, slots=True)
class Work:
    """The task of a process."""

    database: str
    broker: str
    #: Of each account.
    events: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What a number of workers came to. Waits are in seconds, by account: the mean and the longest."""

    workers: int
    seconds: float
    statements: int
    #: Calls of handlers, by worker. One that was rolled back counts as well.
    shares: list[int]
    waits: list[tuple[float, float]]

    @property
    def calls(self) -> int:
        return sum(self.shares)

    @property
    def unfairness(self) -> float:
        """How much longer one account waits than the other: the worse of mean and longest."""
        return max(max(pair) / min(pair) for pair in zip(*self.waits, strict=True))


def configure(work: Work) -> Celery:
    from celery import Celery
    from django.conf import settings

    accounts = {alias: {"BASE_URL": "http://127.0.0.1:9", "API_KEY": f"sk_test_{alias}"} for alias in QUEUES}
    settings.configure(
        SECRET_KEY="benchmark",
        USE_TZ=True,
        INSTALLED_APPS=["rest_framework", "payments_integration"],
        DATABASES={"default": {**environ.Env.db_url_config(work.database), "CONN_MAX_AGE": 60}},
        PAYMENTS_INTEGRATION={"ACCOUNTS": accounts, "PROCESSING": "celery"},
    )
    import django

    django.setup()
    app = Celery("workers", broker=work.broker)
    app.conf.update(
        imports=["payments_integration.tasks"], task_routes=[route_by_account(QUEUES)], worker_redirect_stdouts=False
    )
    app.set_default()
    return app


def store(work: Work) -> None:
    """Both backlogs, a page of one after a page of the other, and a row of the merchant for each payment."""
    configure(work)
    from django.core.management import call_command

    from benchmarks.contenders.merchant.models import Handled
    from payments_integration import inbox

    call_command("migrate", verbosity=0)
    create_tables()
    bodies = {
        alias: [body for _, body in deliveries(work.events, repeated=0.0, seed=f"workers {alias}")] for alias in QUEUES
    }
    for first in range(0, work.events, PAGE):
        for alias in QUEUES:
            inbox.receive_many(alias, bodies[alias][first : first + PAGE], source="webhook")
    payments = {json.loads(body)["data"]["id"] for alias in QUEUES for body in bodies[alias]}
    Handled.objects.bulk_create((Handled(id=payment) for payment in payments), batch_size=1000)


def work_off(work: Work) -> None:
    """A Celery worker with one process, until SIGTERM; prints that it is ready, and then its calls and statements."""
    app = configure(work)
    from celery.signals import worker_ready

    worker_ready.connect(lambda **_: print("ready", flush=True), weak=False)
    with counting() as counts:
        connect(counts, lambda event: None)
        with suppress(SystemExit):
            app.worker_main(
                ["worker", "--pool", "solo", "--queues", ",".join(QUEUES.values()), "-l", "ERROR", "--without-gossip"]
            )
    print(json.dumps([counts.calls, counts.total]), flush=True)


TASKS = {"store": store, "worker": work_off}


def command(task: str, work: Work) -> list[str]:
    return [sys.executable, "-m", "benchmarks.workers", "--task", task, json.dumps(asdict(work))]


@contextmanager
def worker(work: Work) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command("worker", work), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[str], beginning: str) -> str:
    """Read up to a line with this beginning, and return the line. Celery prints other lines."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line
    raise SystemExit("a worker ended")


def share(server: StockPostgres, redis: Redis, events: int, count: int) -> Shared:
    from celery import Celery

    name = f"workers_{count}"
    work = Work(server.database(name), redis.url, events)
    subprocess.run(command("store", work), check=True, cwd=ROOT)
    server.ask("VACUUM ANALYZE", database=name)
    app = Celery("merchant", broker=work.broker, set_as_current=False)
    with closing(app), ExitStack() as stack:
        workers = [stack.enter_context(worker(work)) for _ in range(count)]
        for each in workers:
            printed(each, "ready")
        began, wall = datetime.now(UTC), time.perf_counter()
        end = wall + PATIENCE
        while server.ask("SELECT count(*) FROM payments_integration_event WHERE state <> 'done'", database=name):
            if time.perf_counter() > end:
                raise SystemExit("the backlogs were not dispatched in time")
            for alias, queue in QUEUES.items():
                app.send_task(TASK, kwargs={"account": alias}, queue=queue, expires=60)
            time.sleep(WAKE_EVERY)
        seconds = time.perf_counter() - wall
        handled = server.ask("SELECT sum(calls) FROM merchant_handled", database=name)
        if handled != len(QUEUES) * events:
            raise SystemExit(f"{handled} calls of handlers were committed for {len(QUEUES) * events} events")
        waits = [waited(server, name, alias, began) for alias in QUEUES]
        for each in workers:
            each.terminate()
        counts = [json.loads(printed(each, "[")) for each in workers]
    return Shared(count, seconds, sum(each[1] for each in counts), [each[0] for each in counts], waits)


def waited(server: StockPostgres, name: str, alias: str, began: datetime) -> tuple[float, float]:
    since = f"extract(epoch FROM dispatched_at - '{began.isoformat()}'::timestamptz)"
    table = f"FROM payments_integration_event WHERE account = '{alias}'"
    mean, longest = (server.ask(f"SELECT {what}({since}) {table}", database=name) for what in ("avg", "max"))
    return float(mean), float(longest)


def show(found: list[Shared]) -> None:
    print("| workers | rate | statements per event | share of each | mean wait | longest wait |")
    print("|---|---|---|---|---|---|")
    for each in found:
        rate = found[0].seconds / each.seconds
        shares = ", ".join(f"{of_one / each.calls:.0%}" for of_one in each.shares)
        means, longest = (" and ".join(f"{wait:.1f} s" for wait in pair) for pair in zip(*each.waits, strict=True))
        print(f"| {each.workers} | {rate:.2f} | {each.statements / each.calls:.2f} | {shares} | {means} | {longest} |")


def figures(found: list[Shared]) -> list[Figure]:
    first = found[0]
    limits: list[Figure] = []
    for each in found:
        workers = f"{each.workers} workers"
        limits += [
            Figure(f"{workers}, an account's wait to the other's", each.unfairness, 2.0, "less"),
            Figure(
                f"{workers}, statements to those of {first.workers}", each.statements / first.statements, 1.5, "less"
            ),
            Figure(f"{workers}, rate to that of {first.workers}", first.seconds / each.seconds, None, "more"),
        ]
    return limits


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--task"]:
        TASKS[arguments[1]](Work(**json.loads(arguments[2])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--events", type=int, default=6000, help="of each account; with fewer, one turn is most of a wait"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    raise_on_signals()
    with StockPostgres() as server, Redis() as redis:
        found = [share(server, redis, options.events, count) for count in options.workers]
    show(found)
    return report(figures(found), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
