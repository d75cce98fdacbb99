"""What the day's sweep over the lists, and a look at the balances, cost where nothing drifted.

    python benchmarks/sweeps.py [--payments 100000] [--json FILE]

Starts PostgreSQL and a stub of the provider, mirrors as many payments as the stub lists and sweeps them, first a tenth
as many and then all, each time in a process of its own. Exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.event_stub import BALANCES, STATUSES
from benchmarks.figures import Figure, report
from benchmarks.measuring import Clock, Result, Work, contend, counted, headings, site
from example_project.demo.processes import raise_on_signals

BATCH = 1000
#: Looks at the balances.
LOOKS = 200


def seed(work: Work) -> None:
    """Mirror every payment that the stub lists, and the balances."""
    from payments_integration import services
    from payments_integration.db import statements
    from payments_integration.models import StateBy
    from payments_integration.projection import rows
    from payments_integration.sync import get_client

    batch: list[Any] = []
    for item in get_client("default").payments.list():
        batch.append(rows.new_row("default", item, rows.row_values(item), at=item.created_at, by=StateBy.EVENT))
        if len(batch) == BATCH:
            statements.insert_many(batch)
            batch.clear()
    statements.insert_many(batch)
    services.sync_balances()


def sweep(work: Work) -> Result:
    """The schedule's pass over the objects, with the day's sweep due."""
    from payments_integration import reconciliation
    from payments_integration.models import AccountState

    AccountState.objects.update(swept_at=None)
    with counted() as statements:
        clock = Clock(work)
        run = reconciliation.reconcile_objects(progress=lambda run: clock.tick(run.seen))
        result = clock.result(run.seen, statements[0])
    assert (run.error, run.seen, run.recovered, run.drifted) == ("", work.items // len(STATUSES), 0, 0), run.error
    return result


def balances(work: Work) -> Result:
    from payments_integration import services

    services.sync_balances()
    work = replace(work, items=LOOKS * len(BALANCES))
    with counted() as statements:
        clock, seen = Clock(work), 0
        for _ in range(LOOKS):
            seen += len(services.sync_balances())
            clock.tick(seen)
        return clock.result(seen, statements[0])


CONTENDERS = {"seed": seed, "sweep": sweep, "balances": balances}


def figures(small: Result, large: Result, looks: Result) -> list[Figure]:
    return [
        Figure("sweep, statements/object", large.statements_each, 0.05, "less"),
        Figure("sweep, peak MB", large.peak_mb, 150, "less"),
        Figure("sweep, peak MB to that of a tenth", large.peak_mb / small.peak_mb, 1.05, "less"),
        Figure("sweep, last tenth to the first, by CPU", large.lasting, 0.9, "more"),
        Figure("balances, statements/look", looks.statements / LOOKS, 12, "less"),
    ]


def main() -> int:
    if contend(CONTENDERS, sys.argv[1:]):
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payments", type=int, default=100_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    raise_on_signals()
    headings()
    sweeps: list[Result] = []
    for payments in (options.payments // 10, options.payments):
        with site(payments * len(STATUSES)) as here, here.database("mirrored") as work:
            here.run("benchmarks.sweeps", "seed", work)
            sweeps.append(here.measure("benchmarks.sweeps", "sweep", work))
            looks = here.measure("benchmarks.sweeps", "balances", work)
    assert looks.items == LOOKS * len(BALANCES)
    return report(figures(*sweeps, looks), options.json)


if __name__ == "__main__":
    sys.exit(main())
