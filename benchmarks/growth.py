"""What the app reads with a million events and with ten million, of which all but some dozens are done.

    python benchmarks/growth.py [--sizes 1000000 10000000] [--only health]

Starts a PostgreSQL of its own below TMPDIR, fills a database with a year of payments and four events for each, and
counts what deliveries, dispatch, health, the lists of the admin and the API, and pruning take of it:
statements, rows (of tables and of indexes) and blocks. Then it does the same with the other sizes, each after the one
before is dropped. Prints a Markdown table. Exits 1 when something takes more with the last size than with the first,
and 2 when the disk is too small. Begin with a million: of fewer payments a list's totals add up less than their limit,
and the planner goes about small tables in other ways.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.admin_seed import EVENTS, fill, seed  # noqa: E402
from tests import factories  # noqa: E402
from tests.servers import Postgres  # noqa: E402

#: With the search terms of so many payments only: ``benchmarks/admin.py`` measures searches.
SEARCHED = 5_000
TABLES = ("payment", "event", "statuschange", "refund", "payout", "operation", "objectdispatch")
#: Of hundreds of statements one may be the renewal of a cache; rows differ by chance, blocks by the depth of an index.
STATEMENTS = 1.01
ROWS, BLOCKS = (1.25, 100), (2, 30)
#: Bytes on disk for each event with all that belongs to it, measured; and for the server, its log and sorting.
BYTES_EACH, BYTES_BESIDES = 1_500, 4_000_000_000
#: Of each kind that is not done; of each kind that is due to be pruned, in payments.
UNUSUAL, DUE = 20, 250
DELIVERIES = 50

EVENT, CHANGE, OPERATION = (f"payments_integration_{name}" for name in ("event", "statuschange", "operation"))
ADMIN = {
    "payment": ["", "status=succeeded", "status=failed", "country=CL", "currency=CLP", "method_family=card"],
    "event": ["", "state=done", "state=parked", "type=payment.succeeded", "account=default"],
    "statuschange": ["", "state=done", "state=parked", "account=default"],
    "operation": ["", "state=done", "state=needs_person", "operation=create_refund"],
}
API = {
    "payment": ["", "status=succeeded", "country=CL", "currency=CLP", "method_family=card", "account=default"],
    "payout": ["", "status=succeeded"],
    "refund": ["", "status=succeeded"],
    "event": ["", "type=payment.succeeded", "account=default"],
    "operation": ["", "state=done", "state=needs_person"],
}


@dataclass(frozen=True, slots=True)
class Cost:
    statements: int
    rows: int
    blocks: int


Work = Callable[[], object]


class QuietPostgres(Postgres):
    """Its only transactions are those that are measured, and it estimates few rows as well in a large table.

    An open transaction keeps the entries of deleted rows in the indexes, whichever database it is in; autovacuum opens
    some. A bucket of a histogram is 1% of any table by default, so the estimate of what is due would grow with it.
    """

    def command(self) -> list[str]:
        return [*super().command(), "-c", "autovacuum=off", "-c", "default_statistics_target=1000"]


@contextmanager
def filled(server: QuietPostgres, events: int) -> Iterator[None]:
    """The default connection leads to a new database of this server, with so many events and what belongs to them."""
    import environ
    import psycopg
    from django.core.management import call_command
    from django.db import connection

    address, name = server.url.rpartition("/")[0], f"growth_{events}"
    with psycopg.connect(f"{address}/postgres", autocommit=True) as control:
        control.execute(f"CREATE DATABASE {name}".encode())
        connection.close()
        with patch.dict(connection.settings_dict, environ.Env.db_url_config(f"{address}/{name}")):
            try:
                call_command("migrate", verbosity=0)
                with connection.cursor() as cursor:
                    fill(cursor, "searchterm", SEARCHED)
                seed(connection, events // EVENTS, tables=TABLES)
                _level(events // EVENTS)
                yield
            finally:
                connection.close()
        control.execute(f"DROP DATABASE {name}".encode())


def _level(payments: int) -> None:
    """As many rows of every kind that needs work, at any size."""
    from django.db import connection

    some = range(payments // 2, payments // 2 + UNUSUAL)
    of_objects = "account IN ('default', 'second') AND object_kind = 'payment' AND object_id = ANY(%s)"
    due = [f"pay_{number}" for number in range(payments // 3, payments // 3 + 2 * DUE)]
    with connection.cursor() as cursor:
        for table in (EVENT, CHANGE):
            cursor.execute(f"UPDATE {table} SET state = 'done' WHERE state = 'parked'")
        cursor.execute(f"UPDATE {OPERATION} SET state = 'done' WHERE state = 'needs_person'")
        cursor.execute(
            f"UPDATE {OPERATION} SET state = 'needs_person' WHERE id = ANY(%s)", [[f"op_{n // 2}" for n in some]]
        )
        parked = [f"evt_{number}_4" for number in some]
        cursor.execute(f"UPDATE {EVENT} SET state = 'parked' WHERE id = ANY(%s)", [parked])
        cursor.execute(
            f"UPDATE {CHANGE} SET state = 'parked' WHERE object_id = ANY(%s)", [[f"pay_{number}" for number in some]]
        )
        # To be deleted, and in the middle of the others that have none some that still have a body.
        cursor.execute(
            # Each at another time.
            f"UPDATE {EVENT} SET created_at = now() - interval '410 days' - (now() - created_at) / 1000,"
            f" received_at = now() - interval '410 days' - (now() - created_at) / 1000 WHERE {of_objects}",
            [due[:DUE]],
        )
        cursor.execute(f"UPDATE {EVENT} SET body = '{{}}'::bytea WHERE {of_objects}", [due[DUE:]])
    vacuum()


def vacuum() -> None:
    """As autovacuum would: an index gives entries of deleted rows until then."""
    from django.db import connection

    with connection.cursor() as cursor:
        for table in (EVENT, CHANGE, OPERATION):
            cursor.execute(f"VACUUM (ANALYZE, INDEX_CLEANUP ON) {table}")


def _counters() -> tuple[int, int]:
    """Rows and blocks that the app's tables and indexes have given to all connections so far."""
    from django.db import connection

    with connection.cursor() as cursor:
        # A connection reports what it has read when it is idle, and not more often than once a second unless asked.
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            """SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'payments_%')
                + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'payments_%'),
            (SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))
                FROM pg_statio_user_tables WHERE relname LIKE 'payments_%')"""
        )
        rows, blocks = cursor.fetchone()
    return int(rows), int(blocks)


def cost(work: Work) -> Cost:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    rows, blocks = _counters()
    with CaptureQueriesContext(connection) as captured:
        work()
    statements = len(captured)
    rows_now, blocks_now = _counters()
    return Cost(statements, rows_now - rows, blocks_now - blocks)


def works(events: int) -> Iterator[tuple[str, Work]]:
    """What is measured, in this order: later ones find what earlier ones have done."""
    from payments_integration import health, inbox, reconciliation
    from payments_integration.reconciliation import process_due

    newest = events // EVENTS
    # Not those of the other account, see the seed.
    numbers = [number for number in range(newest - 4 * DELIVERIES, newest) if number % 200 != 5]
    bodies = [_bodies(numbers[part * DELIVERIES :][:DELIVERIES]) for part in range(3)]
    yield f"{DELIVERIES} deliveries stored", lambda: [inbox.receive("default", body) for body in bodies[0]]
    yield f"{DELIVERIES} known deliveries", lambda: [inbox.receive("default", body) for body in bodies[0]]
    yield "apply and dispatch them", lambda: process_due("default")
    yield (
        f"a page of {DELIVERIES} by reconciliation",
        lambda: inbox.receive_many("default", bodies[1], source="reconciliation"),
    )
    yield "apply it", lambda: process_due("default")
    yield "dispatch it", lambda: (inbox.release("default"), process_due("default"))
    yield "a page of known ones", lambda: inbox.receive_many("default", bodies[1], source="reconciliation")
    vacuum()
    yield f"{DELIVERIES} deliveries over HTTP", lambda: [_deliver(body) for body in bodies[2]]
    yield "look for work where there is none", process_due
    vacuum()
    yield "health", lambda: health.examine("default")
    yield from _pages(newest)
    yield "prune, dry run", lambda: reconciliation.prune(dry_run=True)
    yield (
        f"prune {EVENTS * DUE} events and as many bodies",
        lambda: _expect(reconciliation.prune(), bodies=EVENTS * DUE, events=EVENTS * DUE),
    )
    vacuum()
    yield "prune where nothing is due", lambda: _expect(reconciliation.prune(), bodies=0, events=0)


def _bodies(numbers: list[int]) -> list[bytes]:
    """Events of known payments, created now, that change the status: the seed has none with this one."""
    from django.utils.timezone import now

    at = factories.iso(now())
    found = []
    for number in numbers:
        data = factories.payment(id=f"pay_{number}", status="partially_paid")
        found.append(factories.body(factories.event(data, id=f"evt_new_{number}", created_at=at)))
    return found


def _deliver(body: bytes) -> None:
    from django.test import Client

    from payments_integration.signatures import HEADER, sign

    response = Client().post(
        "/payments/webhook/", body, content_type="application/json", headers={HEADER: sign(body, "whsec_default")}
    )
    assert response.status_code == 200, response.content


def _expect(done: dict[str, int], **counts: int) -> None:
    assert {name: done[name] for name in counts} == counts, done


def _pages(newest: int) -> Iterator[tuple[str, Work]]:
    from django.apps import apps
    from django.contrib import admin
    from django.contrib.admin.utils import quote
    from django.contrib.auth.models import User
    from django.core.cache import cache
    from django.test import Client
    from django.urls import reverse
    from django.utils.timezone import now

    from payments_integration.api import lists
    from payments_integration.db.keyset import Order

    user = User.objects.filter(username="measure").first() or User.objects.create_superuser("measure")
    client = Client()
    client.force_login(user)

    def get(address: str) -> None:
        cache.clear()
        response = client.get(address)
        assert response.status_code == 200, (address, response.headers)

    def page(name: str, address: str) -> tuple[str, Work]:
        get(address)  # what a process does once
        return name, lambda: get(address)

    def old(model: Any, field: str) -> Any:
        """A row that is half-way down its list."""
        at = now() - timedelta(days=182)
        return model._default_manager.filter(**{f"{field}__lte": at}).order_by(f"-{field}", "-pk").first()

    for name, queries in ADMIN.items():
        shown = admin.site.get_model_admin(apps.get_model("payments_integration", name))
        field = "at" if name == "statuschange" else "created_at"
        base = reverse(f"admin:payments_integration_{name}_changelist")
        for query in queries:
            yield page(f"admin, {name} {query or 'list'}", f"{base}?{query}")
            if not query.endswith(("parked", "needs_person")):
                cursor = Order(shown.opts, list(shown.ordering)).cursor(old(shown.model, field))
                yield page(f"admin, {name} {query or 'list'}, half-way", f"{base}?{query}&after={cursor}")
    yield page("admin, a payment", reverse("admin:payments_integration_payment_change", args=[quote(f"pay_{newest}")]))
    yield page("admin, an event", reverse("admin:payments_integration_event_change", args=[quote(f"evt_{newest}_1")]))
    for name, queries in API.items():
        base = reverse(f"payments_integration:api-{name}-list")
        for query in queries:
            yield page(f"API, {name} {query or 'list'}", f"{base}?{query}")
            if "needs_person" not in query:
                cursor = lists.cursor_of(
                    "-created_at", old(apps.get_model("payments_integration", name), "created_at")
                )
                yield page(f"API, {name} {query or 'list'}, half-way", f"{base}?{query}&cursor={cursor}")


def measure(events: int, only: str = "") -> dict[str, Cost]:
    """What each work takes of a database that is filled with so many events."""
    from payments_integration import inbox
    from payments_integration.signals import event_received

    def receiver(**_: Any) -> None:
        """It wants every event, so that all are dispatched."""

    event_received.connect(receiver)
    try:
        # What a process does once.
        inbox.receive("default", _bodies([1000])[0])
        return {name: cost(work) for name, work in works(events) if only in name}
    finally:
        event_received.disconnect(receiver)


def grown(first: dict[str, Cost], last: dict[str, Cost]) -> list[str]:
    """What takes more of the larger database, in words."""
    found = []
    for name, small in first.items():
        large = last[name]
        if large.statements > small.statements * STATEMENTS:
            found.append(f"{name}: {large.statements} statements instead of {small.statements}")
        if large.rows > small.rows * ROWS[0] + ROWS[1]:
            found.append(f"{name}: {large.rows:,} rows instead of {small.rows:,}")
        if large.blocks > small.blocks * BLOCKS[0] + BLOCKS[1]:
            found.append(f"{name}: {large.blocks:,} blocks instead of {small.blocks:,}")
    return found


def show(found: dict[int, dict[str, Cost]]) -> None:
    sizes = list(found)
    print(
        "| | statements | "
        + " | ".join(f"rows, {size:,} | blocks" for size in sizes)
        + " | ratio of rows | of blocks |"
    )
    print("|---|---|" + "---|---|" * len(sizes) + "---|---|")
    for name, first in found[sizes[0]].items():
        costs = [found[size][name] for size in sizes]
        statements = " / ".join(map(str, dict.fromkeys(cost.statements for cost in costs)))
        counts = " | ".join(f"{cost.rows:,} | {cost.blocks:,}" for cost in costs)
        ratios = [
            (after + 1) / (before + 1)
            for before, after in ((first.rows, costs[-1].rows), (first.blocks, costs[-1].blocks))
        ]
        print(f"| {name} | {statements} | {counts} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


def run(sizes: list[int], server: QuietPostgres, only: str) -> bool:
    os.environ.update(DJANGO_SETTINGS_MODULE="tests.settings", TEST_DATABASE_URL=server.url)
    import django
    from django.db import connection

    django.setup()
    found: dict[int, dict[str, Cost]] = {}
    for size in sizes:
        began = time.perf_counter()
        with filled(server, size):
            found[size] = measure(size, only)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_database_size(current_database()) / %s", [size])
                (used,) = cursor.fetchone()
        seconds = time.perf_counter() - began
        print(f"{size:,} events: {used:,} bytes each with all that belongs to it, {seconds:.0f} s", file=sys.stderr)
    show(found)
    worse = grown(found[sizes[0]], found[sizes[-1]])
    print("\n".join(f"grows: {line}" for line in worse), file=sys.stderr)
    return not worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="events")
    parser.add_argument("--only", default="", help="only what has this in its name")
    options = parser.parse_args()
    os.chdir(ROOT)
    place = tempfile.gettempdir()
    needed, free = max(options.sizes) * BYTES_EACH + BYTES_BESIDES, shutil.disk_usage(place).free
    print(f"{needed / 1e9:.0f} GB are needed below {place}, {free / 1e9:.0f} GB are free", file=sys.stderr)
    if free < needed:
        print("Set TMPDIR to a larger disk, or choose smaller --sizes.", file=sys.stderr)
        return 2
    with QuietPostgres() as server:
        return 0 if run(options.sizes, server, options.only) else 1


if __name__ == "__main__":
    sys.exit(main())
