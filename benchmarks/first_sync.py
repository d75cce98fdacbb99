"""What the first synchronisation of a shop that has payments already costs, next to the sandbox alone.

    python benchmarks/first_sync.py [--payments 5000] [--json FILE]

Starts PostgreSQL and the sandbox, with payments of the last 56 days and the events of the last 30. Reads every page of
both with a bare HTTP client, then runs ``payments_reconcile --full`` into an empty database: each in a process of its
own. No handler may be called. Exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, report
from benchmarks.machine import StockPostgres
from benchmarks.measuring import ROOT, Work, contend, counted
from example_project.demo.processes import raise_on_signals

API_KEY = "sk_test_benchmark"
DAYS = 56
DAY_SECONDS = 86_400.0


def serve(payments: int) -> None:
    """A sandbox with so many paid payments; prints its port, and runs until it is stopped."""
    from payments_integration.sandbox import Engine, SandboxServer

    engine = Engine(API_KEY, rate_limits=False)
    state = engine.default_project.state
    for day in range(DAYS, 0, -1):
        engine.clock.set_offset(-day * DAY_SECONDS)
        for _ in range(len(range(day - 1, payments, DAYS))):
            made = state.payments.create(
                {"amount": 1_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
            )
            engine.pay(made["id"])
    engine.clock.set_offset(0)
    with SandboxServer(engine, deliver=False) as server:
        print(server.url.rpartition(":")[2], flush=True)
        sys.stdin.read()


def bare(work: Work) -> None:
    """Every page, and nothing else."""
    client = http.client.HTTPConnection("127.0.0.1", work.port)
    begun, seen, pages = time.monotonic(), 0, 0
    for path in ("/v1/events", "/v1/payments"):
        cursor, more = "", True
        while more:
            headers = {"Authorization": f"Bearer {API_KEY}"}
            client.request("GET", f"{path}?limit=100{cursor and '&starting_after='}{cursor}", headers=headers)
            page = json.loads(client.getresponse().read())
            seen, pages = seen + len(page["data"]), pages + 1
            more, cursor = page["has_more"], page["data"][-1]["id"]
    _tell(time.monotonic() - begun, seen, pages, 0)


def sync(work: Work) -> None:
    """The command of docs/add-to-your-shop.md."""
    from django.conf import settings
    from django.core.management import call_command

    from payments_integration.handlers import on_event, on_status
    from payments_integration.models import Event, Payment, ReconciliationRun

    del settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]["DISPATCH_SINCE"]
    called = []
    on_status(Payment)(lambda payment, **kwargs: called.append(payment))
    on_event("*")(lambda event, **kwargs: called.append(event))
    begun = time.monotonic()
    with counted() as statements:
        call_command("payments_reconcile", "--full", stdout=sys.stderr)
    seconds = time.monotonic() - begun
    assert not called, "a handler was called for what was before the installation"
    assert Payment.objects.filter(status="succeeded").count() == work.items
    runs = ReconciliationRun.objects.all()
    assert all(run.state == "done" for run in runs)
    _tell(seconds, Event.objects.count() + Payment.objects.count(), sum(run.pages for run in runs), statements[0])


def _tell(seconds: float, seen: int, pages: int, statements: int) -> None:
    print(json.dumps({"seconds": seconds, "seen": seen, "pages": pages, "statements": statements}))


CONTENDERS = {"bare": bare, "sync": sync}


@contextmanager
def sandbox(payments: int) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    command = [sys.executable, "-m", "benchmarks.first_sync", "--serve", str(payments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def run(contender: str, work: Work) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_sync", "--contender", contender, json.dumps(asdict(work))]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    )
    rate = found["seen"] / found["seconds"]
    print(
        f"{contender:8}{found['seen']:>9.0f}{found['pages']:>8.0f}{found['seconds']:>9.1f}{rate:>9.0f}"
        f"{found['statements'] / found['seen']:>12.3f}",
        flush=True,
    )
    return {**found, "rate": rate}


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        return 0
    if contend(CONTENDERS, sys.argv[1:]):
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payments", type=int, default=5_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    raise_on_signals()
    with StockPostgres() as server, sandbox(options.payments) as (port, pid):
        work = Work(server.database("first"), port=port, items=options.payments, postgres=server.pid, stub=pid)
        command = [sys.executable, "-m", "benchmarks.measuring", "--contender", "migrate", json.dumps(asdict(work))]
        subprocess.run(command, check=True, cwd=ROOT)
        print(f"{'':8}{'objects':>9}{'pages':>8}{'seconds':>9}{'per s':>9}{'statements':>12}")
        alone, ours = run("bare", work), run("sync", work)
    return report(
        [
            Figure("first synchronisation, of the sandbox alone", ours["rate"] / alone["rate"], None, "more"),
            Figure("first synchronisation, statements/object", ours["statements"] / ours["seen"], 0.3, "less"),
        ],
        options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
