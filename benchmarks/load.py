"""Webhooks under load while the worker is killed: what arrives, how fast, and whether anything is lost or doubled.

    python benchmarks/load.py [--webhooks 10000] [--clients 8] [--kills 6] [--pgbouncer]

Starts PostgreSQL and Redis of its own, and the example project on them: gunicorn with two workers, a Celery worker and
beat. Concurrent clients send signed webhooks, a fifth of them duplicates, a fifth of the objects with their events out
of order, while the worker's whole process group is killed by SIGKILL again and again. Then the backlog drains, and
everything that was acknowledged is looked for. Exits 1 when something is lost, doubled or out of order. With
``--pgbouncer`` everything reaches PostgreSQL through PgBouncer in transaction mode.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.load_checks import Report, check  # noqa: E402
from example_project.demo.processes import Child, Children, raise_on_signals  # noqa: E402
from payments_integration.signatures import HEADER, sign  # noqa: E402
from tests import factories  # noqa: E402
from tests.clusters import PgBouncer  # noqa: E402
from tests.servers import Postgres, Redis, free_port, listens, wait_until  # noqa: E402

SECRET = "whsec_load"
PATH = "/payments/webhook/"
DUPLICATES = 0.2
SHUFFLED = 0.2
#: Seconds that the backlog has to drain.
DRAIN_SECONDS = 300.0
#: Seconds between two sweeps of the schedule: often, so that a worker always has work to die over.
SWEEP_EVERY = 5
CELERY = [sys.executable, "-m", "celery", "-A", "example_project"]

PAYMENT = ["created", "requires_action", "processing", "succeeded"]
PAYOUT = ["created", "processing", "on_hold", "succeeded"]


@dataclass
class Plan:
    """What is sent: per client the bodies in their order, and what must come of it."""

    queues: list[list[bytes]]
    #: Event id to the object it is about, and the objects' events in the provider's order.
    objects: dict[str, list[dict[str, Any]]]
    shuffled: set[str]
    duplicates: int


@dataclass
class Sent:
    """What the clients saw."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)


def plan(webhooks: int, clients: int, chance: random.Random) -> Plan:
    """Objects with four events each; every object's events go to one client, so that they leave in order."""
    count = max(clients, round(webhooks * (1 - DUPLICATES)) // 4)
    objects: dict[str, list[dict[str, Any]]] = {}
    shuffled: set[str] = set()
    queues: list[list[bytes]] = [[] for _ in range(clients)]
    anywhere: list[bytes] = []
    # Many objects are under way at a time, as at a real provider.
    lanes: list[list[list[bytes]]] = [[] for _ in range(clients)]
    for number in range(count):
        is_payout = number % 5 == 4
        object_id = f"{'pout' if is_payout else 'pay'}_load_{number}"
        make, steps = (factories.payout, PAYOUT) if is_payout else (factories.payment, PAYMENT)
        events = [
            factories.event(
                make(id=object_id, status=status),
                seconds=factories.RECENT + number * 0.1 + step,
                id=f"evt_{object_id}_{step}",
            )
            for step, status in enumerate(steps)
        ]
        objects[object_id] = events
        order = list(events)
        if chance.random() < SHUFFLED:
            while order == events:
                chance.shuffle(order)
            shuffled.add(object_id)
        lanes[number % clients].append([factories.body(event) for event in order])
        anywhere += [factories.body(event) for event in (order if object_id in shuffled else order[:1])]
    for queue, lane in zip(queues, lanes, strict=True):
        for start in range(0, len(lane), 10):
            group = lane[start : start + 10]
            for step in range(4):
                queue.extend(bodies[step] for bodies in group)
    duplicates = max(0, webhooks - sum(map(len, queues)))
    _double(queues, duplicates, anywhere, chance)
    return Plan(queues, objects, shuffled, duplicates)


def _double(queues: list[list[bytes]], duplicates: int, anywhere: list[bytes], chance: random.Random) -> None:
    """Put duplicates in: half of them behind their originals, half with any client at any time.

    The latter are of events that may come early: an object's oldest, or of an object out of order anyway.
    """
    for number in range(duplicates):
        queue = chance.choice(queues)
        if number % 2:
            queue.insert(chance.randrange(len(queue) + 1), chance.choice(anywhere))
        else:
            place = chance.randrange(len(queue))
            queue.insert(chance.randrange(place, len(queue)) + 1, queue[place])


def send(port: int, bodies: list[bytes], sent: Sent, lock: threading.Lock) -> None:
    """One client: one connection that is kept, one webhook after the other, each until it is acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    latencies: list[float] = []
    statuses: Counter[str] = Counter()
    acknowledged: set[str] = set()
    for body in bodies:
        for _ in range(20):
            headers = {"Content-Type": "application/json", HEADER: sign(body, SECRET)}
            began = time.perf_counter()
            try:
                connection.request("POST", PATH, body, headers)
                answer = connection.getresponse()
                answer.read()
                status = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                status = type(error).__name__
            statuses[status] += 1
            if status == "200":
                latencies.append(time.perf_counter() - began)
                acknowledged.add(json.loads(body)["id"])
                break
            time.sleep(0.2)
    connection.close()
    with lock:
        sent.latencies += latencies
        sent.statuses += statuses
        sent.acknowledged |= acknowledged


class Backlog:
    """Watches how many events are stored and not done, from a thread."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Backlog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        from django.db import connection

        while not self._stop.wait(0.5):
            self.peak = max(self.peak, backlog())
        connection.close()


def backlog() -> int:
    from payments_integration.models import Event

    return Event.objects.exclude(state="done").count()


class Killed:
    """A worker that is killed by SIGKILL with all of its children, each time it has done its share of the events.

    A share of the work, and not a time: a fast worker would be through before a timer ends.
    """

    def __init__(self, children: Children, share: int) -> None:
        self.kills = 0
        self._children = children
        self._share = share
        self._chance = random.Random(1)
        self._until: float
        self._worker: Child
        self._start()

    def look(self) -> None:
        """Kill it if it has done its share, and start the next."""
        if done() >= self._until:
            os.killpg(self._worker.process.pid, signal.SIGKILL)
            self._worker.process.wait()
            self._children.running.remove(self._worker)
            self.kills += 1
            self._start()

    def _start(self) -> None:
        self._until = done() + max(self._share * self._chance.uniform(0.5, 1.5), 1)
        self._worker = self._children.start("worker", [*CELERY, "worker", "--concurrency", "2", "-l", "WARNING"])


def ingest(options: argparse.Namespace, what: Plan, port: int, children: Children) -> tuple[Sent, float, int, int]:
    """All clients at once, the worker killed meanwhile, and further until it was often enough.

    Returns what the clients saw, how many seconds they took, the backlog then, and the kills.
    """
    sent, lock = Sent(), threading.Lock()
    clients = [threading.Thread(target=send, args=(port, queue, sent, lock), daemon=True) for queue in what.queues]
    worker = Killed(children, options.webhooks // (2 * options.kills))
    began, seconds, left = time.perf_counter(), 0.0, 0
    for client in clients:
        client.start()
    while not seconds or (worker.kills < options.kills and backlog()):
        time.sleep(0.02)
        children.check()
        worker.look()
        if not seconds and not any(client.is_alive() for client in clients):
            seconds, left = time.perf_counter() - began, backlog()
    return sent, seconds, left, worker.kills


@contextmanager
def example(stack: ExitStack) -> Iterator[tuple[int, Children]]:
    """The example project, served, with beat; without a worker."""
    from django.core.management import call_command

    logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pi-load-")))
    call_command("migrate", verbosity=0)
    port = free_port()
    with Children(logs) as children:
        serve = ["-m", "gunicorn", "example_project.wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "2"]
        children.start(
            "gunicorn", [sys.executable, *serve, "--worker-class", "gthread", "--threads", "4", "--keep-alive", "30"]
        )
        children.start("beat", [*CELERY, "beat", "--loglevel", "WARNING", "--schedule", str(logs / "beat")])
        wait_until(lambda: listens(port), 30, "gunicorn to listen")
        yield port, children


def run(options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        redis = stack.enter_context(Redis())
        pool = stack.enter_context(PgBouncer()) if options.pgbouncer else None
        postgres = pool.postgres if pool else stack.enter_context(Postgres())
        # Before Django reads its settings.
        os.environ.update(
            DJANGO_SETTINGS_MODULE="example_project.settings",
            DEBUG="false",
            SECRET_KEY="a key for this measurement and for nothing else",
            ALLOWED_HOSTS="127.0.0.1",
            DATABASE_URL=pool.url if pool else f"{postgres.url}?conn_max_age=60",
            BROKER_URL=redis.url,
            PAYMENTS_PROCESSING="celery",
            PAYMENTS_WEBHOOK_SECRETS=SECRET,
            PAYMENTS_BASE_URL="http://127.0.0.1:9",
            LOG_LEVEL="ERROR",
            SCHEDULE_PROCESS_EVENTS=str(SWEEP_EVERY),
        )
        create_database(postgres)
        import django

        django.setup()
        what = plan(options.webhooks, options.clients, random.Random(options.seed))
        port, children = stack.enter_context(example(stack))
        with Backlog() as watched:
            began = time.perf_counter()
            sent, seconds, left, kills = ingest(options, what, port, children)
            began += seconds
            while backlog() and time.perf_counter() - began < DRAIN_SECONDS:
                children.check()
                time.sleep(0.25)
            drain = time.perf_counter() - began
        report = Report(what.objects, what.shuffled, sent.acknowledged)
        check(report)
        report.count("kills that are missing", ["none"] if not kills else [])
        show(options, what, sent, seconds, kills, left, drain, watched.peak)
        report.show()
        return not report.problems


def done() -> int:
    from payments_integration.models import Event

    return Event.objects.filter(state="done").count()


def create_database(postgres: Postgres) -> None:
    import psycopg

    server, _, name = postgres.url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')


def show(
    options: argparse.Namespace,
    what: Plan,
    sent: Sent,
    seconds: float,
    kills: int,
    left: int,
    drain: float,
    peak: int,
) -> None:
    ordered = sorted(sent.latencies)
    total = len(ordered)
    duplicates, shuffled = what.duplicates / total, len(what.shuffled) / len(what.objects)
    print(f"webhooks acknowledged        {total:>10}  from {options.clients} clients")
    print(f"  of these duplicates        {what.duplicates:>10}  {duplicates:.0%}")
    print(f"  objects                    {len(what.objects):>10}  {shuffled:.0%} with events out of order")
    print(f"answers                      {'':>10}  {dict(sent.statuses)}")
    print(f"webhooks per second          {total / seconds:>10.0f}  for {seconds:.1f} s")
    print(f"acknowledged within, p50     {ordered[total // 2] * 1000:>10.1f}  ms")
    print(f"acknowledged within, p99     {ordered[total * 99 // 100] * 1000:>10.1f}  ms")
    print(f"worker killed                {kills:>10}  times")
    print(f"backlog at its peak          {peak:>10}  events")
    print(f"backlog after the last one   {left:>10}  events, drained in {drain:.1f} s, kills included")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--webhooks", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=6, help="how often the worker is killed, spread over the work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pgbouncer", action="store_true", help="between everything and PostgreSQL")
    options = parser.parse_args()
    os.chdir(ROOT)
    raise_on_signals()
    return 0 if run(options) else 1


if __name__ == "__main__":
    sys.exit(main())
