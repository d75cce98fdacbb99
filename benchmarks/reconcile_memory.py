"""Peak memory and speed of a catch-up through GET /events.

    python benchmarks/reconcile_memory.py [--events 100000] [--database sqlite:////tmp/x.sqlite3]

Starts a stub of the provider as a process of its own, reconciles into an empty database (a temporary SQLite file
unless another is named), reconciles the same again, and prints peak memory, rates and statements per event.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 150


def configure(database: str, port: int) -> None:
    from django.conf import settings

    connection = environ.Env.db_url_config(database)
    if connection["ENGINE"] == "django.db.backends.sqlite3":
        connection["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
    settings.configure(
        SECRET_KEY="benchmark",
        USE_TZ=True,
        INSTALLED_APPS=["rest_framework", "payments_integration"],
        DATABASES={"default": connection},
        PAYMENTS_INTEGRATION={
            "ACCOUNTS": {"default": {"BASE_URL": f"http://127.0.0.1:{port}", "API_KEY": "sk_test_benchmark"}}
        },
    )
    import django

    django.setup()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(events: int, database: str) -> bool:
    from django.core.management import call_command
    from django.db import connection
    from django.utils import timezone

    from payments_integration import reconciliation
    from payments_integration.models import Event, Payment

    call_command("migrate", verbosity=0)
    statements = [0]

    def count(execute: Any, *args: Any) -> Any:
        statements[0] += 1
        return execute(*args)

    base = peak_mb()
    print(f"{'':28}{'events':>10}{'seconds':>10}{'events/s':>10}{'statements/event':>18}{'peak MB':>10}")
    print(f"{'before':28}{'':>48}{base:>10.0f}")
    since = timezone.now() - timedelta(days=29)
    for title in ("everything new", "everything known already"):
        statements[0] = 0
        started = time.perf_counter()
        with connection.execute_wrapper(count):
            run = reconciliation.reconcile_events(since=since)
        seconds = time.perf_counter() - started
        if run.error or Event.objects.count() != events:  # windows overlap: a few are seen twice
            print(f"failed: {run.state} {run.error}, {run.seen} seen")
            return False
        print(
            f"{title:28}{run.seen:>10}{seconds:>10.1f}{run.seen / seconds:>10.0f}"
            f"{statements[0] / run.seen:>18.3f}{peak_mb():>10.0f}"
        )
    assert Event.objects.filter(state="done").count() == events
    assert Payment.objects.filter(status="succeeded").count() == events // 4
    print(f"peak {peak_mb():.0f} MB, limit {LIMIT_MB} MB: {'kept' if peak_mb() < LIMIT_MB else 'BROKEN'}")
    return peak_mb() < LIMIT_MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    command = [sys.executable, str(ROOT / "benchmarks" / "event_stub.py"), str(options.events), "86400"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stub:
        try:
            assert stub.stdout is not None
            port = int(stub.stdout.readline())
            configure(options.database or f"sqlite:///{os.path.join(folder, 'db.sqlite3')}", port)
            return 0 if measure(options.events, options.database) else 1
        finally:
            stub.terminate()


if __name__ == "__main__":
    sys.exit(main())
