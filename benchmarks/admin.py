"""The admin's pages with ten thousand payments and with a million: statements, time, and how the time grows.

    python benchmarks/admin.py [--sizes 10000 1000000]

Starts a PostgreSQL of its own (or uses the server of TEST_POSTGRES_URL), makes a database for each size with a year of
payments, four events for each and in proportion what belongs to them, and opens every list as a person would: first
and deep pages, each filter with common and rare values, searches, and pages of one row; in turns with each size.
Prints a Markdown table. Exits 1 when a list takes more than 12 statements, a page of one row more than 17, the
dashboard (uncached) more than 23, or when a page grows with the tables: more than 5 times slower with the last size
than with the first, and slower than 30 ms. A page that ten thousand payments do not fill is compared with the list
itself.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.admin_seed import seed  # noqa: E402
from tests.servers import database  # noqa: E402

#: Of a list or a search.
STATEMENTS = 12
#: Of the page of one row, with its events, changes, operations, refunds and notes, and the merchant's orders.
PAGE_STATEMENTS = 17
#: Six of them compare the newest payments with the shop's two models of orders.
DASHBOARD_STATEMENTS = 23
RATIO = 5.0
#: Seconds; a page that is faster than this may be as many times slower as it likes.
FLOOR = 0.03
REPEATS = 7
#: It sums up whole days: it may grow with what happens on one, and is counted once a minute for everybody.
DASHBOARD = "dashboard"

#: Model: the field that its list is sorted by, and what is filtered by, common, rare and unknown values.
LISTS: dict[str, tuple[str, list[str]]] = {
    "payment": (
        "created_at",
        [
            "status=succeeded", "status=chargeback", "status=partially_paid", "status=~other", "country=CL",
            "country=~other", "currency=CLP", "currency=~other", "method_family=card", "method_family=cash",
            "method_family=~other", "account=default", "account=second", "account=~other",
            "status=failed&country=BR", "status=chargeback&currency=PEN",
        ],
    ),
    "payout": (
        "created_at",
        ["status=succeeded", "status=on_hold", "status=~other", "country=CL", "country=~other", "currency=CLP",
         "account=second"],
    ),
    "refund": (
        "created_at",
        ["status=succeeded", "status=on_hold", "status=~other", "currency=CLP", "account=second"],
    ),
    "depositreference": ("created_at", ["status=active", "status=disabled", "country=CL", "currency=CLP"]),
    "event": (
        "created_at",
        ["state=done", "state=parked", "state=held", "type=payment.succeeded", "type=payout.failed", "type=~other",
         "account=default", "account=second"],
    ),
    "statuschange": ("at", ["state=done", "state=parked", "account=default", "account=second"]),
    "operation": (
        "created_at",
        ["state=done", "state=needs_person", "state=unknown", "operation=create_refund", "operation=cancel_payout",
         "account=second"],
    ),
}  # fmt: skip

#: Model: what is searched for. ``{n}`` is the number of a row in the middle.
SEARCHES: dict[str, list[str]] = {
    "payment": [
        "pay_{n}",
        "pay_",
        "order-{n}",
        "payer{m}@example.com",
        "office@example.com",
        "d{m}",
        "nothing-like-it",
        "payer",
        "payer p{m}",
        "payer office",
        "payer office d{m}",
        "150.00",
        "v{n}",
    ],
    "payout": ["pout_5", "payroll-7", "nothing-like-it"],
    "refund": ["ref_5", "pay_{n}", "nothing-like-it"],
    "depositreference": ["dep_5", "customer-7"],
    "event": ["evt_{n}_1", "pay_{n}", "nothing-like-it"],
    "statuschange": ["pay_{n}", "evt_{n}_1"],
    "operation": ["op_5", "pay_{n}", "order-{n}", "key-5", "nothing-like-it"],
}
#: What is searched for in everything at once.
EVERYWHERE = [
    "pay_{n}", "pay_", "order-{n}", "payer{m}@", "payer", "payer p{m}", "payer office", "office d{m} v{n}", "150.00",
    "USD 150.00 payer", "v{n}", "ref_5", "op_5", "nothing-like-it",
]  # fmt: skip


class Pages:
    """The addresses of what is measured, by its name."""

    def __init__(self, payments: int) -> None:
        from datetime import timedelta

        from payments_integration.dates import today

        self.middle = payments // 2 // 20 * 20
        self.today = today()
        self.month_ago = self.today - timedelta(days=200)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        from django.urls import reverse

        for model, (field, filters) in LISTS.items():
            base = reverse(f"admin:payments_integration_{model}_changelist")
            yield f"{model} list", base
            yield f"{model} list, 90 % down", f"{base}?after={self._cursor(model, field)}"
            yield f"{model} list, 90 % down, back", f"{base}?before={self._cursor(model, field)}"
            if field:
                yield f"{model} list, oldest first", f"{base}?o={self._column(model, field)}"
                days = f"from={self.month_ago}&to={self.month_ago}"
                yield f"{model} of one day", f"{base}?{days}"
                yield f"{model} of 30 days", f"{base}?from={self.month_ago}"
            for query in filters:
                yield f"{model} {query.replace('&', ', ')}", f"{base}?{query}"
            if field:
                first = filters[0]
                yield f"{model} {first}, one day", f"{base}?{first}&{days}"
                yield f"{model} {first}, 90 % down", f"{base}?{first}&after={self._cursor(model, field)}"
            for term in SEARCHES[model]:
                shown = term.format(n=self.middle, m=self.middle // 3)
                yield f"{model} search “{term}”", f"{base}?q={shown}"
        base = reverse("admin:payments_integration_payment_search")
        for term in EVERYWHERE:
            yield f"search “{term}”", f"{base}?q={term.format(n=self.middle, m=self.middle // 3)}"
        yield from self._details()
        yield DASHBOARD, reverse("admin:app_list", args=["payments_integration"])

    def _details(self) -> Iterator[tuple[str, str]]:
        from django.apps import apps
        from django.contrib.admin.utils import quote
        from django.urls import reverse

        ids = {
            "payment": f"pay_{self.middle}", "event": f"evt_{self.middle}_4", "operation": "op_10",
            "refund": "ref_5", "payout": "pout_5", "depositreference": "dep_5",
        }  # fmt: skip
        ids["statuschange"] = apps.get_model("payments_integration", "statuschange").objects.order_by("pk")[50].pk
        for model, pk in ids.items():
            yield f"{model} page", reverse(f"admin:payments_integration_{model}_change", args=[quote(str(pk))])

    def _admin(self, model: str) -> Any:
        from django.apps import apps
        from django.contrib import admin

        return admin.site.get_model_admin(apps.get_model("payments_integration", model))

    def _cursor(self, model: str, field: str) -> str:
        from payments_integration.db.keyset import Order

        shown = self._admin(model)
        rows = shown.model.objects.order_by("pk")
        if field:
            from datetime import timedelta

            from django.utils.timezone import now

            row = rows.filter(**{f"{field}__lte": now() - timedelta(days=365 * 0.9)}).order_by(f"-{field}", "-pk")[0]
        else:
            row = rows[max(0, rows.count() // 10)]
        return Order(shown.opts, list(shown.ordering)).cursor(row)

    def _column(self, model: str, field: str) -> int:
        from django.test import RequestFactory

        request = RequestFactory().get("/")
        request.user = SUPERUSER[0]
        shown = self._admin(model)
        columns = ["action_checkbox"] if shown.get_actions(request) else []
        columns += [getattr(name, "__name__", name) for name in shown.get_list_display(request)]
        return columns.index(field)


SUPERUSER: list[Any] = []


class Site:
    """One size of it: a database of its own, kept open, and somebody who is signed in."""

    def __init__(self, url: str, size: int) -> None:
        from django.contrib.auth.models import User
        from django.core.management import call_command
        from django.db import connection
        from django.test import Client

        self.name = create_database(url, size)
        connection.close()
        connection.settings_dict["NAME"] = self.name
        call_command("migrate", verbosity=0)
        user = User.objects.filter(username="measure").first() or User.objects.create_superuser("measure")
        SUPERUSER[:] = [user]
        self.client = Client()
        self.client.force_login(user)
        print(f"{size:,} payments: seeded in {seed(connection, size):.0f} s", file=sys.stderr)
        self.pages = dict(Pages(size))
        # Not opened again for each page: a warm server keeps its connections.
        self._opened = connection.connection
        connection.connection = None

    def __enter__(self) -> Any:
        from django.db import connection

        connection.connection = self._opened
        return self.client

    def __exit__(self, *_: object) -> None:
        from django.db import connection

        connection.connection = None


@dataclass
class Result:
    statements: int
    seconds: float
    #: Of a list: how many rows were on the page.
    rows: int


def measure(sites: list[Site], page: str) -> list[Result]:
    """One page on each site: the median of some tries, in turns: what else the machine does hits all alike."""
    from django.core.cache import cache
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    found = []
    for site in sites:
        cache.clear()
        with site as client:
            with CaptureQueriesContext(connection) as captured:
                response = client.get(site.pages[page])
            if response.status_code != 200:
                raise SystemExit(f"{site.pages[page]}: {response.status_code}")
            rows = re.search(rb"(\d+) rows? on this page", response.content)
            found.append(Result(len(captured), 0, int(rows[1]) if rows else 0))
    times: list[list[float]] = [[] for _ in sites]
    for _ in range(REPEATS):
        for site, taken in zip(sites, times, strict=True):
            cache.clear()  # cached figures of a page are computed again
            with site as client:
                began = time.perf_counter()
                client.get(site.pages[page])
                taken.append(time.perf_counter() - began)
    for result, taken in zip(found, times, strict=True):
        result.seconds = statistics.median(taken)
    return found


def export(client: Any) -> tuple[int, float, float]:
    """All payments as CSV: rows, seconds, and by how many megabytes the process grew."""
    from django.urls import reverse

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, rows = time.perf_counter(), -1
    for part in client.get(reverse("admin:payments_integration_payment_export")).streaming_content:
        rows += part.count(b"\r\n")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    return rows, time.perf_counter() - began, grown


def run(options: argparse.Namespace, url: str) -> bool:
    os.environ.update(DJANGO_SETTINGS_MODULE="tests.settings", TEST_DATABASE_URL=url)
    import django

    django.setup()
    sites = [Site(url, size) for size in options.sizes]
    found = {page: measure(sites, page) for page in sites[0].pages if options.only in page}
    fine = show(options.sizes, found)
    if options.export:
        for site in sites:
            with site as client:
                rows, seconds, grown = export(client)
            print(f"CSV of {rows:,} payments: {seconds:.0f} s, {grown:.0f} MB more memory", file=sys.stderr)
    return fine


def show(sizes: list[int], found: dict[str, list[Result]]) -> bool:
    print("| page | statements | " + " | ".join(f"{size:,}" for size in sizes) + " | ratio |")
    print("|---|---|" + "---|" * len(sizes) + "---|")
    failed = []
    for page, results in found.items():
        statements = max(result.statements for result in results)
        first, last = results[0], results[-1]
        # Few rows are shown sooner, however they are found: then the list itself is what it is compared with.
        whole = found.get(f"{page.split()[0]} list", results)[0]
        base = first if first.rows == last.rows else whole
        ratio = last.seconds / base.seconds
        times = " | ".join(f"{result.seconds * 1000:.0f} ms" for result in results)
        print(f"| {page} | {statements} | {times} | {ratio:.1f}{'' if base is first else ' of the list'} |")
        grows = last.seconds > FLOOR and ratio > RATIO and page != DASHBOARD
        most = PAGE_STATEMENTS if page.endswith(" page") else STATEMENTS
        if statements > (DASHBOARD_STATEMENTS if page == DASHBOARD else most) or grows:
            failed.append(page)
    for page in failed:
        print(f"failed: {page}", file=sys.stderr)
    return not failed


def create_database(url: str, size: int) -> str:
    """A database for one size, new or emptied; returns its name."""
    import psycopg

    server, _, name = url.rpartition("/")
    name = f"{name.partition('?')[0]}_{size}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        connection.execute(f'CREATE DATABASE "{name}"')
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000], help="payments")
    parser.add_argument("--only", default="", help="only pages with this in their name")
    parser.add_argument("--export", action="store_true", help="and all payments as CSV: some minutes")
    options = parser.parse_args()
    os.chdir(ROOT)
    with database("postgres") as url:
        return 0 if run(options, url) else 1


if __name__ == "__main__":
    sys.exit(main())
