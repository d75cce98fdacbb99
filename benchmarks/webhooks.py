"""Webhooks taken in per second, next to the floor under any Django inbox, all in one run.

    python benchmarks/webhooks.py [--events 3000] [--rounds 3] [--only floor redis …] [--peer] [--filled N]

Starts a stock PostgreSQL, Redis and RabbitMQ, and for each contender a database and a gunicorn of its own with the
same settings. Contenders take turns in every round, and a ratio is the median of the ratios within the rounds: a
machine's speed drifts. Every delivery must be acknowledged, and every distinct event stored; with a worker, applied.

Contenders: the floor (contenders/floor.py); the app with "celery" over Redis, once more with prepared statements
(``OPTIONS["prepare_threshold"]``), and over RabbitMQ, and with "inline"; and
the app over Redis with a handler for every event (contenders/merchant), once declared ``database_only`` and once not.
Both are measured with a worker only: from the first delivery to the last call, and the time from an event's arrival to
its call at a steady trickle.
``--peer`` adds dj-stripe, installed on demand into an environment of its own (peer.py). It gets events in its own
format, and fewer of them, and fetches their objects from a stub of its provider (stripe_stub.py).
``--filled`` adds the app over Redis with N events in its table before the first one comes.
Exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import figures, peer, stripe_stub  # noqa: E402
from benchmarks.contenders.peer import ENDPOINT  # noqa: E402
from benchmarks.deliveries import Life, deliveries  # noqa: E402
from benchmarks.figures import Figure  # noqa: E402
from benchmarks.machine import StockPostgres, cpu_seconds, family, spin_ms  # noqa: E402
from example_project.demo.processes import Child, Children, raise_on_signals  # noqa: E402
from payments_integration.signatures import HEADER  # noqa: E402
from tests.servers import RabbitMQ, Redis, free_port, listens, wait_until  # noqa: E402

FLOOR = "floor"
PEER = "djstripe"
FILLED = "filled"
#: With a handler that is not declared, and with one that is declared ``database_only``.
HANDLERS = "handlers"
DECLARED = "database_only"
PREPARED = "prepared"
WARM_UP = 300
#: A steady trickle, as a merchant has it, for the time that an acknowledgement takes.
PACE = 25.0
PACED_SECONDS = 40
#: Only for a run that hangs.
DRAIN_SECONDS = 300.0
#: Share of deliveries that came before.
SCENARIOS = {"unique": 0.0, "a fifth repeated": 0.2}

#: What must hold: scenario's ratio to the floor's rate, by contender.
INGEST = {"redis": 0.8, PREPARED: 0.8, "rabbitmq": 0.7, "inline": 0.4}
END_TO_END = 0.5
HANDLED = {HANDLERS: 0.2, DECLARED: 0.4}
#: Seconds from an event's arrival to its handler, at the trickle.
HANDLED_P50 = 0.4
PACED_P99 = 1.5
#: The time of an acknowledgement inline, with all connections busy, to the floor's.
INLINE_P99 = 8.0
#: The rate over Redis to the peer's.
TIMES_PEER = 8.0
#: Into a table of many events, to the rate into an empty one.
FILLED_RATIO = 0.9

#: Events of five weeks that are done, under ids in no order. Without their bodies, which no index has.
FILL = """
CREATE TABLE kept AS SELECT indexdef FROM pg_indexes WHERE tablename = 'payments_integration_event';
ALTER TABLE payments_integration_event DROP CONSTRAINT payments_integration_event_pkey;
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT indexname FROM pg_indexes WHERE tablename = 'payments_integration_event' LOOP
        EXECUTE 'DROP INDEX ' || quote_ident(name);
    END LOOP;
END $$;
INSERT INTO payments_integration_event (id, account, type, created_at, object_kind, object_id, received_at, source,
    content_hash, state, previous_status, dispatched_at, attempts, error, traceparent)
SELECT 'evt_' || left(md5(number::text), 22), 'default', 'payment.' || (ARRAY['created', 'processing', 'succeeded'])
    [1 + number % 3], at, 'payment', 'pay_' || left(md5((number / 4)::text), 22), at, 'webhook',
    md5(number::text) || md5(number::text), 'done', '', at, 0, '', ''
FROM (
    SELECT number, now() - interval '38 days' + number * (interval '37 days' / {count}) AS at
    FROM generate_series(1, {count}) AS number
) AS numbers;
DO $$ DECLARE statement text; BEGIN
    FOR statement IN SELECT indexdef FROM kept LOOP EXECUTE statement; END LOOP;
END $$;
DROP TABLE kept;
"""


#: The rows that the handler updates, one for each event of a round.
HANDLED_ROWS = """
TRUNCATE merchant_handled;
INSERT INTO merchant_handled (id) SELECT unnest('{{{ids}}}'::text[]);
"""
#: Which events had not one call, with what became of them; nothing if each had.
WRONGLY_HANDLED = """
SELECT string_agg(concat_ws(' ', id, calls, state, attempts, error), '; ')
FROM (
    SELECT * FROM merchant_handled LEFT JOIN payments_integration_event USING (id)
    WHERE calls <> 1 ORDER BY id LIMIT 20
) AS wrong
"""
#: An event's row is made a moment before it is committed: the time includes its INSERT.
HANDLED_AFTER = """
SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY called_at - received_at))
FROM merchant_handled JOIN payments_integration_event USING (id)
"""


@dataclass
class Contender:
    name: str
    settings: str
    path: str
    #: Counts the distinct events stored.
    stored: str
    environment: dict[str, str] = field(default_factory=dict)
    #: What its database is prepared by: arguments of Python.
    setup: tuple[tuple[str, ...], ...] = (("-m", "django", "migrate", "-v0"),)
    python: str = sys.executable
    header: str = HEADER
    #: Its events, where they are in another format.
    life: Life | None = None
    #: Of the deliveries of a round: a slow one gets fewer.
    share: float = 1.0
    #: Its worker calls handlers.
    handles: bool = False
    port: int = 0
    server: Child | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def database(self) -> str:
        return f"bench_{self.name}"

    def deliveries(self, count: int, repeated: float, seed: str) -> list[tuple[str, bytes]]:
        return deliveries(count, repeated=repeated, seed=seed, life=self.life)


def contenders(redis: str, rabbitmq: str) -> list[Contender]:
    app = ("benchmarks.contenders.app_settings", "/webhook/", "SELECT count(*) FROM payments_integration_event")
    return [
        Contender(
            FLOOR,
            "benchmarks.contenders.floor_settings",
            "/webhook/",
            "SELECT count(*) FROM floor_event",
            setup=(("-m", "benchmarks.contenders.floor"),),
        ),
        Contender("redis", *app, {"BENCH_PROCESSING": "celery", "BENCH_BROKER_URL": redis}),
        Contender(
            PREPARED,
            *app,
            # Another queue, so that no worker takes wake-ups for the other contender's database.
            {"BENCH_PROCESSING": "celery", "BENCH_BROKER_URL": redis.removesuffix("/0") + "/2", "BENCH_PREPARE": "5"},
        ),
        Contender("rabbitmq", *app, {"BENCH_PROCESSING": "celery", "BENCH_BROKER_URL": rabbitmq}),
        Contender("inline", *app, {"BENCH_PROCESSING": "inline"}),
        *(
            Contender(
                name,
                *app,
                {
                    "BENCH_PROCESSING": "celery",
                    "BENCH_BROKER_URL": redis.removesuffix("/0") + queue,
                    "BENCH_APPS": "benchmarks.contenders.merchant",
                    "BENCH_HANDLER": name,
                },
                setup=(("-m", "django", "migrate", "-v0", "--run-syncdb"),),
                handles=True,
            )
            for name, queue in ((HANDLERS, "/1"), (DECLARED, "/3"))
        ),
    ]


def filled(redis: str) -> Contender:
    """What comes stays pending, as no worker runs: it is counted without reading the rest."""
    stored = "SELECT count(*) FROM payments_integration_event WHERE state = 'pending'"
    environment = {"BENCH_PROCESSING": "celery", "BENCH_BROKER_URL": redis}
    return Contender(FILLED, "benchmarks.contenders.app_settings", "/webhook/", stored, environment)


def djstripe(python: str, provider: str) -> Contender:
    return Contender(
        PEER,
        "benchmarks.contenders.peer_settings",
        f"/webhook/{ENDPOINT}/",
        "SELECT count(*) FROM djstripe_event",
        # No proxy that this machine may have stands before its provider.
        {"BENCH_STRIPE_URL": provider, "no_proxy": "127.0.0.1"},
        setup=(*Contender.setup, ("-m", "benchmarks.contenders.peer")),
        python=python,
        header=stripe_stub.HEADER,
        life=stripe_stub.life,
        share=1 / 3,
    )


class Bench:
    """The servers, and what is done with them."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options = options
        python = peer.interpreter() if options.peer else ""
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pi-bench-")))
        self.postgres = stack.enter_context(StockPostgres())
        redis = stack.enter_context(Redis()).url
        found = contenders(redis, stack.enter_context(RabbitMQ()).url)
        self.contenders = [one for one in found if not options.only or one.name in options.only]
        self.children = stack.enter_context(Children(self.folder))
        self._seeds = 0
        if options.filled:
            self.contenders.append(filled(redis))
        if options.peer:
            self.contenders.append(djstripe(python, self._stripe()))
        for contender in self.contenders:
            self._start(contender)

    def environment(self, contender: Contender) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": contender.settings,
            "BENCH_DATABASE_URL": self.postgres.url.replace("/payments", f"/{contender.database}"),
            "BENCH_WEBHOOK_SECRET": "whsec_bench",
            "BENCH_PORT": str(contender.port),
            **contender.environment,
        }

    def measure(self, contender: Contender, scenario: str, *, rate: float = 0.0, drained: bool = False) -> None:
        """One round: send, see that all is there, and note what it took. ``drained``: until all is applied."""
        count = int(PACE * PACED_SECONDS) if rate else round(self.options.events * contender.share)
        sent = contender.deliveries(count, SCENARIOS.get(scenario, 0.0), self._seed())
        if contender.handles:
            ids = ",".join(event_id for event_id, _ in sent)
            self.postgres.ask(HANDLED_ROWS.format(ids=ids), database=contender.database)
        self.postgres.ask("CHECKPOINT")
        before = self.postgres.ask(contender.stored, database=contender.database)
        spin, wal = spin_ms(), self.postgres.wal_bytes()
        cpu = self._cpu(contender)
        found = self._send(contender, sent, rate)
        if drained:
            began = time.perf_counter()
            self._drain(contender)
            found["rate"] = count / (found["seconds"] + time.perf_counter() - began)
        found["wal"] = (self.postgres.wal_bytes() - wal) / count
        for name, seconds in self._cpu(contender).items():
            found[name] = 1000 * (seconds - cpu[name]) / count
        found["per_cpu_ms"] = 1 / sum(found[name] for name in cpu)
        stored = self.postgres.ask(contender.stored, database=contender.database) - before
        if stored != len({event_id for event_id, _ in sent}):
            raise SystemExit(f"{contender.name}: {len(sent)} deliveries acknowledged, {stored} events stored")
        if contender.handles:
            found["handled_p50"] = self._handled(contender)
        contender.runs.append({**found, "scenario": scenario, "spin": spin})
        shown = ("p50_ms", "p99_ms", "app_cpu", "worker_cpu", "pg_cpu", "client_cpu_ms")
        print(
            f"{contender.name:14}{scenario:24}{found['rate']:>8.0f}/s  "
            + "  ".join(f"{key} {found[key]:.2f}" for key in shown)
            + f"  WAL {found['wal']:.0f} B  spin {spin:.1f} ms"
            + (f"  handled after {found['handled_p50']:.2f} s" if contender.handles else ""),
            file=sys.stderr,
            flush=True,
        )

    def worker(self, contender: Contender) -> Child:
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.contenders.worker", "worker", "-l", "WARNING"]
        child = self.children.start("worker", [*command, "--concurrency", "1"], self.environment(contender))
        self._send(contender, contender.deliveries(100, 0.0, self._seed()), 0.0)
        self._drain(contender)
        return child

    def end(self, child: Child) -> None:
        child.process.terminate()
        child.process.wait(30)
        self.children.running.remove(child)

    def _start(self, contender: Contender) -> None:
        contender.port = free_port()
        self.postgres.database(contender.database)
        environment = self.environment(contender)
        for arguments in contender.setup:
            subprocess.run([contender.python, *arguments], env=environment, cwd=ROOT, check=True)
        if contender.name == FILLED:
            print(f"Filling a table with {self.options.filled:,} events ...", file=sys.stderr, flush=True)
            self.postgres.ask(FILL.format(count=self.options.filled), database=contender.database)
            self.postgres.ask("VACUUM ANALYZE payments_integration_event", database=contender.database)
        serve = ["-m", "gunicorn", "-c", str(ROOT / "benchmarks/contenders/gunicorn_conf.py")]
        contender.server = self.children.start(
            contender.name, [contender.python, *serve, "benchmarks.contenders.wsgi"], environment
        )
        wait_until(lambda: listens(contender.port), 60, f"{contender.name} to listen")
        self._send(contender, contender.deliveries(WARM_UP, 0.0, self._seed()), 0.0)

    def _stripe(self) -> str:
        """The URL of a stub of the peer's provider."""
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.stripe_stub", str(port)]
        self.children.start("stripe", command, {**os.environ, "PYTHONPATH": str(ROOT)})
        wait_until(lambda: listens(port), 30, "the peer's provider to listen")
        return f"http://127.0.0.1:{port}"

    def _send(self, contender: Contender, sent: list[tuple[str, bytes]], rate: float) -> dict[str, Any]:
        path = self.folder / "deliveries"
        path.write_text("".join(json.dumps([event_id, body.decode()]) + "\n" for event_id, body in sent))
        url = f"http://127.0.0.1:{contender.port}{contender.path}"
        how = ["--rate", str(rate), "--header", contender.header]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.sender", url, str(path), *how],
            env=self.environment(contender),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            logs = "\n".join(child.tail() for child in self.children.running)
            raise SystemExit(f"{contender.name}: deliveries failed\n{done.stdout}{done.stderr[-2000:]}\n{logs}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _drain(self, contender: Contender) -> None:
        url = self.postgres.url.replace("/payments", f"/{contender.database}")
        # One connection: a new one for each look would cost PostgreSQL as much as several events.
        with psycopg.connect(url, autocommit=True) as connection:

            def is_drained() -> bool:
                left = connection.execute("SELECT 1 FROM payments_integration_event WHERE state <> 'done' LIMIT 1")
                return left.fetchone() is None

            self.children.wait_until("the last event to be applied", is_drained, DRAIN_SECONDS)

    def _handled(self, contender: Contender) -> float:
        """The median seconds from an event's arrival to its handler, when each event of the round had its call."""
        self._drain(contender)
        wrong = self.postgres.ask(WRONGLY_HANDLED, database=contender.database)
        if wrong:
            raise SystemExit(f"{contender.name}: events that were not handled exactly once: {wrong}")
        return float(self.postgres.ask(HANDLED_AFTER, database=contender.database))

    def _cpu(self, contender: Contender) -> dict[str, float]:
        assert contender.server is not None
        workers = [child.process.pid for child in self.children.running if child.name == "worker"]
        return {
            "app_cpu": cpu_seconds(family(contender.server.process.pid)),
            "worker_cpu": cpu_seconds(pid for worker in workers for pid in family(worker)),
            "pg_cpu": cpu_seconds(family(self.postgres.pid)),
        }

    def _seed(self) -> str:
        self._seeds += 1
        return f"{os.getpid()}-{self._seeds}"


def run(bench: Bench) -> None:
    rounds = bench.options.rounds
    for _ in range(rounds):
        for scenario in SCENARIOS:
            for contender in bench.contenders:
                if not contender.handles:
                    bench.measure(contender, scenario)
    by_name = {contender.name: contender for contender in bench.contenders}
    floor = [by_name[FLOOR]] if FLOOR in by_name else []
    if "redis" in by_name:
        # The events of the rounds are waiting still: with a worker beside, first all of them are applied.
        worker = bench.worker(by_name["redis"])
        both = [*floor, by_name["redis"]]
        for _ in range(rounds):
            for contender in both:
                bench.measure(contender, "paced", rate=PACE)
        for _ in range(rounds):
            for contender in both:
                bench.measure(contender, "end to end", drained=contender.name != FLOOR)
        bench.end(worker)
    for name in [name for name in HANDLED if name in by_name]:
        worker = bench.worker(by_name[name])
        for _ in range(rounds):
            bench.measure(by_name[name], "handled, paced", rate=PACE)
        for _ in range(rounds):
            for contender in (*floor, by_name[name]):
                bench.measure(contender, f"handled, {name}", drained=contender.handles)
        bench.end(worker)


def judge(found: list[Contender]) -> list[Figure]:
    """Ratios to the floor and to the peer, each round to its own."""
    by_name = {contender.name: contender for contender in found}

    def values(name: str, scenario: str, key: str) -> list[float]:
        return [run[key] for run in by_name[name].runs if run["scenario"] == scenario]

    def ratio(name: str, scenario: str, key: str = "rate", to: str = FLOOR) -> float:
        pairs = zip(values(name, scenario, key), values(to, scenario, key), strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    judged = [
        Figure(f"ingest, {name}, {scenario}", ratio(name, scenario), limit, "more", "of the floor")
        for name, limit in INGEST.items()
        for scenario in SCENARIOS
        if name in by_name
    ]
    if "inline" in by_name:
        slowest = max(ratio("inline", scenario, "p99_ms") for scenario in SCENARIOS)
        judged.append(Figure("p99 inline, all connections busy", slowest, INLINE_P99, "less", "of the floor"))
    if "redis" in by_name:
        judged += [
            Figure("end to end, one worker", ratio("redis", "end to end"), END_TO_END, "more", "of the floor"),
            Figure("p99 at 25/s, worker beside", ratio("redis", "paced", "p99_ms"), PACED_P99, "less", "of the floor"),
        ]
    for name, limit in HANDLED.items():
        if name not in by_name:
            continue
        what, scenario = f"end to end, one worker, {name}", f"handled, {name}"
        called = statistics.median(values(name, "handled, paced", "handled_p50"))
        judged += [
            Figure(what, ratio(name, scenario), limit, "more", "of the floor"),
            Figure(f"{what}, by CPU", ratio(name, scenario, "per_cpu_ms"), None, "more", "of the floor"),
            Figure(f"p50 to the handler at 25/s, {name}", called, HANDLED_P50, "less", "s"),
        ]
    if "redis" in by_name and FILLED in by_name:
        judged += [
            Figure(f"ingest into many events, {scenario}", ratio(FILLED, scenario, to="redis"), FILLED_RATIO, "more")
            for scenario in SCENARIOS
        ]
    if "redis" in by_name and PEER in by_name:
        judged += [
            Figure(f"redis / {PEER}, {scenario}", ratio("redis", scenario, to=PEER), TIMES_PEER, "more", "times")
            for scenario in SCENARIOS
        ]
    return judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help=f"contenders; {FLOOR} is needed for ratios")
    parser.add_argument("--peer", action="store_true", help="dj-stripe too; installs it the first time")
    parser.add_argument("--filled", type=int, default=0, metavar="N", help="a table that has so many events, too")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    os.chdir(ROOT)
    raise_on_signals()
    with ExitStack() as stack:
        bench = Bench(options, stack)
        run(bench)
        return figures.report(judge(bench.contenders), options.json)


if __name__ == "__main__":
    sys.exit(main())
