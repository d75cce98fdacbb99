"""A dump taken under load is restored after a disaster, and the site goes on from there.

    python -m tests.systems.outages.restore [--seconds 20] [--merchants 4]

The example project runs under gunicorn with a Celery worker and beat. Merchants take payments, pay out and refund;
pg_dump runs in the middle. As many seconds later everything is killed, and the dump is restored on a new server. Then
come the steps of docs/runbook.md: a full reconciliation while nothing else runs, the site, and every merchant's calls
again with their keys. Nothing may be sent twice, and the mirror must be as the sandbox is, field by field.
"""

from __future__ import annotations

import argparse
import sys
import time
from io import StringIO

from tests.clusters import Primary
from tests.servers import Redis
from tests.systems.outages.site import command, site_on, start

#: How often the reconciliation is tried, and the seconds between two attempts.
ATTEMPTS, PAUSE = 20, 3.0


def reconcile() -> None:
    """Repeat it as the page says: a pass that ran during the dump blocks others for up to 15 seconds."""
    from django.core.management import call_command

    for _ in range(ATTEMPTS):
        said = StringIO()
        call_command("payments_reconcile", full=True, stdout=said)
        print(said.getvalue(), end="")
        if "skipped" not in said.getvalue() and "resumed" not in said.getvalue():
            return
        time.sleep(PAUSE)
    raise AssertionError("the reconciliation was skipped or resumed each time")


def restore(options: argparse.Namespace) -> bool:
    fresh = Primary()
    with Primary() as primary, Redis() as redis:
        primary.ask("CREATE DATABASE payments")
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, fresh))
        url = f"postgres://postgres@{hosts}/payments?target_session_attrs=read-write&connect_timeout=5"
        with site_on(url, redis) as installation:
            from tests.systems.outages.traffic import Traffic, show_problems

            start(installation)
            with Traffic(installation, options.merchants) as traffic:
                time.sleep(options.seconds)
                known, began = len(traffic.intents), time.monotonic()
                dump = primary.dump("payments")
                dumped, meanwhile = time.monotonic() - began, len(traffic.intents) - known
                time.sleep(options.seconds)
                for process in installation.processes.all:
                    process.kill()
                primary.crash()
                traffic.end()
                with fresh:
                    fresh.restore(dump, "payments")
                    forgotten = traffic.missing()
                    began = time.monotonic()
                    reconcile()
                    reconciled = time.monotonic() - began
                    start(installation)
                    began = time.monotonic()
                    problems = traffic.judge()
                    judged = time.monotonic() - began
                    installation.close()
            traffic.show()
            calls = sum(name.startswith("m") for name in forgotten)
            print(f"dumped within                {dumped:>8.1f}  s, in which merchants asked {meanwhile} times")
            print(f"forgotten by the dump        {calls:>8}  calls and {len(forgotten) - calls} events")
            print(f"full reconciliation          {reconciled:>8.1f}  s")
            print(f"all calls repeated within    {judged:>8.1f}  s, until nothing was left to do")
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(restore, __doc__))
