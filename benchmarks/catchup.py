"""What a catch-up through GET /events costs, next to the floor under it.

    python benchmarks/catchup.py [--events 20000] [--rounds 3] [--json FILE]

Starts PostgreSQL and a stub of the provider, and in each round, one after the other and each in a process of its own:
the floor (one INSERT of every page of 100 into a bare table), the app into an empty database, the app once more with
everything known. Ratios are within a round, medians over the rounds: the speed of a shared machine drifts. Exits 1
when a limit is broken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, report
from benchmarks.measuring import (
    SPAN_SECONDS,
    Clock,
    Result,
    Work,
    contend,
    counted,
    headings,
    site,
)
from example_project.demo.processes import raise_on_signals


def floor(work: Work) -> Result:
    """Every page in one INSERT, and nothing else."""
    from django.db import connection, models

    class Stored(models.Model):  # noqa: DJ008  (it is never displayed)
        id = models.TextField(primary_key=True)
        body = models.TextField()

        class Meta:
            app_label = "benchmark"

    with connection.schema_editor() as editor:
        editor.create_model(Stored)
    client = http.client.HTTPConnection("127.0.0.1", work.port)
    seen, cursor, more = 0, "", True
    with counted() as statements:
        clock = Clock(work)
        while more:
            client.request("GET", f"/v1/events?limit=100{cursor and '&starting_after='}{cursor}")
            page = json.loads(client.getresponse().read())
            rows = [Stored(id=item["id"], body=json.dumps(item)) for item in page["data"]]
            Stored.objects.bulk_create(rows, ignore_conflicts=True)
            seen += len(rows)
            more, cursor = page["has_more"], rows[-1].id
            clock.tick(seen)
        result = clock.result(seen, statements[0])
    with connection.schema_editor() as editor:
        editor.delete_model(Stored)
    return result


def catch_up(work: Work) -> Result:
    """A pass over the days in which the events lie."""
    from django.utils import timezone

    from payments_integration import reconciliation
    from payments_integration.models import Event, Payment

    since = timezone.now() - timedelta(seconds=SPAN_SECONDS + 3600)
    with counted() as statements:
        clock = Clock(work)
        run = reconciliation.reconcile_events(since=since, progress=lambda run: clock.tick(run.seen))
        result = clock.result(run.seen, statements[0])
    assert not run.error, run.error
    # Windows overlap by a second: a few may be seen twice.
    assert run.seen >= work.items == Event.objects.filter(state="done").count()
    assert Payment.objects.filter(status="succeeded").count() == work.items // 4
    return result


CONTENDERS = {"floor": floor, "new": catch_up, "known": catch_up}


def figures(results: dict[str, list[Result]]) -> list[Figure]:
    floors, new, known = (results[name] for name in CONTENDERS)

    def median(values: Iterable[float]) -> float:
        return statistics.median(values)

    def ratio(mine: list[Result], figure: str) -> float:
        return median(getattr(a, figure) / getattr(b, figure) for a, b in zip(mine, floors, strict=True))

    return [
        Figure("new, events/s", median(each.rate for each in new), None, "more"),
        Figure("new, of the floor", ratio(new, "rate"), 0.3, "more"),
        Figure("new, of the floor, by CPU", ratio(new, "cpu_rate"), None, "more"),
        Figure("known, of the floor", ratio(known, "rate"), 0.6, "more"),
        Figure("known, of the floor, by CPU", ratio(known, "cpu_rate"), None, "more"),
        Figure("new, statements/event", max(each.statements_each for each in new), 0.1, "less"),
        Figure("known, statements/event", max(each.statements_each for each in known), 0.03, "less"),
        Figure("new, peak MB", max(each.peak_mb for each in new), 150, "less"),
        Figure("known, peak MB", max(each.peak_mb for each in known), 150, "less"),
        Figure("new, last tenth to the first, by CPU", median(each.lasting for each in new), 0.9, "more"),
        Figure("known, last tenth to the first, by CPU", median(each.lasting for each in known), 0.9, "more"),
    ]


def main() -> int:
    if contend(CONTENDERS, sys.argv[1:]):
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    raise_on_signals()
    results: dict[str, list[Result]] = {name: [] for name in CONTENDERS}
    headings()
    with site(options.events) as here:
        for number in range(options.rounds):
            with here.database(f"round_{number}") as work:
                for name in CONTENDERS:
                    results[name].append(here.measure("benchmarks.catchup", name, work))
    return report(figures(results), options.json)


if __name__ == "__main__":
    sys.exit(main())
