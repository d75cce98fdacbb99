"""What calling the merchant's handlers costs, next to the floor under it.

    python benchmarks/handlers.py [--backlog 2000] [--rounds 3] [--events 100000] [--only backlog workers catch-up]
                                  [--json FILE]

Starts PostgreSQL. Every handler does one UPDATE of a table of the benchmark's own. ``--only`` selects parts:

- backlog: three contenders, one after the other, each in its own process and database. The floor runs one transaction
  per event: the handler's UPDATE, and one that marks the event. The app runs with ``on_event`` for every event (they
  are stored and applied before), once declared ``database_only`` and once not; and once with ``on_status`` for one of
  four statuses (they are stored before).
  Ratios are within a round, medians over the rounds.
- workers: a backlog, dispatched by one process and then by four at the same time. The handler also records its calls.
- catch-up: a pass of reconciliation over ``--events`` events, and over a tenth of them.

Statements are counted without the handler's own and without BEGIN and COMMIT. Exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.deliveries import STATUSES, deliveries
from benchmarks.figures import Figure, report
from benchmarks.measuring import SPAN_SECONDS, Clock, Result, Site, Work, contend, headings, site
from example_project.demo.processes import raise_on_signals

MODULE = "benchmarks.handlers"
WORKERS = 4
#: Events stored at a time.
PAGE = 500
#: Only for a run that hangs.
PATIENCE = 600.0


@dataclass(slots=True)
class Counts:
    """Statements of this process, without those of the handlers."""

    total: int = 0
    #: Those of the transactions that called a handler, and the most of one such transaction.
    of_events: int = 0
    most: int = 0
    #: Calls of handlers.
    calls: int = 0
    #: In the open transaction: statements, and whether it called a handler.
    _open: int = 0
    _called: bool = False
    _in_handler: bool = False

    def count(self, execute: Any, *args: Any) -> Any:
        if not self._in_handler:
            self.total += 1
            self._open += 1
        return execute(*args)

    def bounded(self, set_autocommit: Callable[..., None]) -> Callable[..., None]:
        """``Atomic`` begins a transaction with this call and ends it with another."""

        def bound(autocommit: bool, *args: Any, **kwargs: Any) -> None:
            if autocommit and self._called:
                self.of_events += self._open
                self.most = max(self.most, self._open)
            self._open, self._called = 0, False
            set_autocommit(autocommit, *args, **kwargs)

        return bound

    @contextmanager
    def handler(self) -> Iterator[None]:
        self.calls += 1
        self._called = self._in_handler = True
        try:
            yield
        finally:
            self._in_handler = False


@contextmanager
def counting() -> Iterator[Counts]:
    from django.db import connections

    counts, connection = Counts(), connections["default"]
    bounded = counts.bounded(connection.set_autocommit)
    with connection.execute_wrapper(counts.count), mock.patch.object(connection, "set_autocommit", bounded):
        yield counts


def connect(
    counts: Counts, called: Callable[[Any], None], *, on_status: bool = False, database_only: bool = False
) -> None:
    """Connect a handler that updates the row of its payment. ``called`` gets the event of each call."""
    from django.db.models import F

    from benchmarks.contenders.merchant.models import Handled
    from payments_integration import handlers
    from payments_integration.models import Payment

    def handle(*args: Any, event: Any, **kwargs: Any) -> None:
        with counts.handler():
            Handled.objects.filter(pk=event.object_id).update(calls=F("calls") + 1)
            called(event)

    # Stale events too: a wrong order must show as one, and not as a missing call.
    register = (
        handlers.on_status(Payment, STATUSES[-1])
        if on_status
        else handlers.on_event("payment.*", include_stale=True, database_only=database_only)
    )
    register(handle)


def create_tables() -> None:
    from django.db import connection

    from benchmarks.contenders.merchant.models import Call, Handled

    with connection.schema_editor() as editor:
        editor.create_model(Handled)
        editor.create_model(Call)
        editor.execute("CREATE TABLE present (id serial)")


def called_for(calls: int, counts: Counts) -> int:
    assert counts.calls == calls, f"{counts.calls} calls instead of {calls}"
    return calls


def check(calls: int) -> None:
    """Nothing twice, nothing lost, no event left."""
    from django.db.models import Sum

    from benchmarks.contenders.merchant.models import Handled
    from payments_integration.models import Event

    left = Event.objects.exclude(state="done").count()
    written = Handled.objects.aggregate(all=Sum("calls"))["all"]
    assert (left, written) == (0, calls), f"{left} events left, {written} of {calls} calls written"


def store(work: Work) -> None:
    """The events, and a row of the merchant for each payment."""
    from benchmarks.contenders.merchant.models import Handled
    from payments_integration import inbox

    create_tables()
    bodies = [body for _, body in deliveries(work.items, repeated=0.0, seed="handlers")]
    for first in range(0, len(bodies), PAGE):
        inbox.receive_many("default", bodies[first : first + PAGE], source="webhook")
    payments = {json.loads(body)["data"]["id"] for body in bodies}
    Handled.objects.bulk_create(Handled(id=payment) for payment in payments)


def apply(work: Work) -> None:
    """Store the events and apply them, with a handler, so that they wait to be dispatched."""
    from payments_integration import inbox

    store(work)
    connect(Counts(), lambda event: None)
    inbox.process()


def floor(work: Work) -> Result:
    """A transaction for each event: the handler's UPDATE and a mark."""
    from django.db import transaction
    from django.db.models import F
    from django.utils import timezone

    from benchmarks.contenders.merchant.models import Handled
    from payments_integration.models import Event

    waiting = list(Event.objects.filter(state="applied").order_by("created_at").values_list("pk", "object_id"))
    with counting() as counts:
        clock = Clock(work)
        for number, (event_id, payment_id) in enumerate(waiting, 1):
            with transaction.atomic():
                with counts.handler():
                    Handled.objects.filter(pk=payment_id).update(calls=F("calls") + 1)
                Event.objects.filter(pk=event_id).update(state="done", dispatched_at=timezone.now())
            clock.tick(number)
        result = clock.result(called_for(work.items, counts), counts.total)
    check(work.items)
    return result


def on_event(work: Work, *, database_only: bool = False) -> Result:
    """One handler for every event of a backlog that is applied."""
    from payments_integration import inbox

    with counting() as counts:
        clock = Clock(work)
        connect(counts, lambda event: clock.tick(counts.calls), database_only=database_only)
        inbox.dispatch()
        result = clock.result(called_for(work.items, counts), counts.total)
    check(work.items)
    return replace(result, of_events=counts.of_events, most=counts.most)


def on_status(work: Work) -> Result:
    """One handler for one of four statuses, and a backlog that is only stored."""
    from payments_integration import inbox

    each = len(STATUSES)
    with counting() as counts:
        clock = Clock(work)
        connect(counts, lambda event: clock.tick(counts.calls * each), on_status=True)
        inbox.process()
        inbox.dispatch()
        result = clock.result(called_for(work.items // each, counts) * each, counts.total)
    check(work.items // each)
    return replace(result, of_events=counts.of_events, most=counts.most)


def catch_up(work: Work) -> Result:
    """A pass over the days in which the events lie. The clock starts with the first call: dispatch is measured."""
    from django.db import connection
    from django.utils import timezone

    from payments_integration import reconciliation

    create_tables()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO merchant_handled (id) SELECT 'pay_' || lpad(number::text, 12, '0')"
            " FROM generate_series(0, %s) AS number",
            [work.items // len(STATUSES)],
        )
    clocks: list[Clock] = []

    def called(event: Any) -> None:
        if not clocks:
            clocks.append(Clock(work))
        clocks[0].tick(counts.calls)

    since = timezone.now() - timedelta(seconds=SPAN_SECONDS + 3600)
    with counting() as counts:
        connect(counts, called)
        run = reconciliation.reconcile_events(since=since)
        result = clocks[0].result(called_for(work.items, counts), counts.total)
    assert not run.error, run.error
    check(work.items)
    return replace(result, of_events=counts.of_events, most=counts.most)


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several workers did, and when."""

    calls: int
    statements: int
    began: float
    ended: float


def record(event: Any) -> None:
    from benchmarks.contenders.merchant.models import Call

    Call.objects.create(event_id=event.id, object_id=event.object_id, created_at=event.created_at)


def worker(work: Work, *, workers: int) -> None:
    """Dispatch a backlog together with other processes. They begin when all of them are there."""
    from django.db import connection

    from payments_integration import inbox

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO present DEFAULT VALUES")
        present = 0
        while present < workers:
            cursor.execute("SELECT count(*) FROM present")
            present = cursor.fetchone()[0]
            time.sleep(0.01)
    with counting() as counts:
        connect(counts, record)
        began = time.time()
        inbox.dispatch()
        print(json.dumps(asdict(Share(counts.calls, counts.total, began, time.time()))))


def finish(work: Work) -> None:
    """Dispatch what the workers have left to the next pass, and see that every event had one call, in order."""
    from benchmarks.contenders.merchant.models import Call
    from payments_integration import inbox
    from payments_integration.models import Event

    end = time.monotonic() + PATIENCE
    with counting() as counts:
        connect(counts, record)
        began = time.time()
        while Event.objects.filter(state="applied").exists() and time.monotonic() < end:
            inbox.dispatch()
        print(json.dumps(asdict(Share(counts.calls, counts.total, began, time.time()))))
    check(work.items)
    calls = list(Call.objects.order_by("object_id", "pk").values_list("object_id", "created_at"))
    assert len(calls) == work.items, f"{len(calls)} calls instead of {work.items}"
    assert calls == sorted(calls), "an object's events were not called in order"


CONTENDERS: dict[str, Callable[[Work], Result | None]] = {
    "store": store,
    "apply": apply,
    "floor": floor,
    "on_event": on_event,
    "database_only": partial(on_event, database_only=True),
    "on_status": on_status,
    "catch-up": catch_up,
    "one worker": partial(worker, workers=1),
    "four workers": partial(worker, workers=WORKERS),
    "finish": finish,
}


def backlog(here: Site, items: int, rounds: int) -> list[Figure]:
    results: dict[str, list[Result]] = {"floor": [], "database_only": [], "on_event": [], "on_status": []}
    for number in range(rounds):
        for name, found in results.items():
            with here.database(f"round_{number}") as of_site:
                work = replace(of_site, items=items)
                here.run(MODULE, "store" if name == "on_status" else "apply", work)
                found.append(here.measure(MODULE, name, work))
    floors, declared, events, statuses = results.values()

    def ratio(mine: list[Result], figure: str) -> float:
        ratios: list[float] = [getattr(a, figure) / getattr(b, figure) for a, b in zip(mine, floors, strict=True)]
        return statistics.median(ratios)

    return [
        Figure("database_only, of the floor", ratio(declared, "rate"), None, "more"),
        Figure("database_only, of the floor, by CPU", ratio(declared, "cpu_rate"), 1.0, "more"),
        Figure("database_only, statements/event, pages included", declared[0].statements_each, 0.4, "less"),
        Figure("on_event, of the floor", ratio(events, "rate"), 0.5, "more"),
        Figure("on_event, of the floor, by CPU", ratio(events, "cpu_rate"), None, "more"),
        Figure("on_event, statements/event, pages included", max(each.statements_each for each in events), 4, "less"),
        Figure("on_event, statements of an event", max(each.of_events / each.items for each in events), None, "less"),
        Figure("on_event, most statements of an event", max(each.most for each in events), 4, "less"),
        Figure("on_event, peak MB", max(each.peak_mb for each in events), 150, "less"),
        Figure("on_status, statements/event applied", max(each.statements_each for each in statuses), 2, "less"),
        Figure("on_status, events applied, of the floor", ratio(statuses, "rate"), None, "more"),
        Figure("on_status, events applied, of the floor, by CPU", ratio(statuses, "cpu_rate"), None, "more"),
        Figure("on_event, events/s", statistics.median(each.rate for each in events), None, "more"),
        Figure("on_status, events/s", statistics.median(each.rate for each in statuses), None, "more"),
    ]


def workers(here: Site, items: int) -> list[Figure]:
    statements, seconds = [], []
    for name, count in (("one worker", 1), ("four workers", WORKERS)):
        with here.database("shared") as of_site, ThreadPoolExecutor(count) as pool:
            work = replace(of_site, items=items)
            here.run(MODULE, "apply", work)
            printed = list(pool.map(partial(here.run, MODULE), [name] * count, [work] * count))
            shares = [Share(**json.loads(line)) for line in (*printed, here.run(MODULE, "finish", work))]
        statements.append(sum(share.statements for share in shares))
        seconds.append(max(share.ended for share in shares[:-1]) - min(share.began for share in shares[:-1]))
        shown = ", ".join(f"{share.calls} calls with {share.statements} statements" for share in shares)
        print(f"{name}: {shown} (the last: what was left)", flush=True)
    return [
        Figure("four workers, statements to one worker's", statements[1] / statements[0], 1.1, "less"),
        Figure("four workers, rate to one worker's", seconds[0] / seconds[1], None, "more"),
    ]


def catch_ups(small: Result, large: Result) -> list[Figure]:
    return [
        Figure("catch-up, handler, statements/event", large.statements_each, None, "less"),
        Figure(
            "catch-up, handler, statements/event to a tenth's",
            large.statements_each / small.statements_each,
            1.02,
            "less",
        ),
        Figure("catch-up, handler, peak MB to a tenth's", large.peak_mb / small.peak_mb, 1.15, "less"),
        Figure("catch-up, handler, last tenth to the first", large.lasting, 0.9, "more"),
    ]


def main() -> int:
    if contend(CONTENDERS, sys.argv[1:]):
        return 0
    parts = ("backlog", "workers", "catch-up")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlog", type=int, default=2000, help="events that wait")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000, help="events of the longer catch-up")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="measure only these parts")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    raise_on_signals()
    headings()
    found: list[Figure] = []
    passes: list[Result] = []
    with site(options.events // 10) as here:
        if "backlog" in options.only:
            found += backlog(here, options.backlog, options.rounds)
        if "workers" in options.only:
            found += workers(here, options.backlog)
        if "catch-up" in options.only:
            with here.database("caught_up") as work:
                passes.append(here.measure(MODULE, "catch-up", work))
    if "catch-up" in options.only:
        with site(options.events) as here, here.database("caught_up") as work:
            passes.append(here.measure(MODULE, "catch-up", work))
        found += catch_ups(*passes)
    return report(found, options.json)


if __name__ == "__main__":
    sys.exit(main())
