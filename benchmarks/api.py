"""Pages of the REST API's list of payments, the first and the last: statements, time, and their ratio.

    python benchmarks/api.py [--sizes 200000]

Starts a PostgreSQL of its own (or uses the server of TEST_POSTGRES_URL), makes a database with a year of payments, and
reads the list as a superuser, as a member of staff by a group's permissions, and as a customer with a thousand
payments: the first page, one in the middle and the last one, plain and filtered. Prints a Markdown table. Exits 1 when
a page takes more than 4 statements, or when the last one takes more than 3 times as long as the first and more than
30 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.admin import create_database  # noqa: E402
from benchmarks.admin_seed import seed  # noqa: E402
from tests.servers import database  # noqa: E402

STATEMENTS = 5
RATIO = 3.0
#: Seconds; a page that is faster than this may be as many times slower as it likes.
FLOOR = 0.03
REPEATS = 15
#: Payments of the customer, spread over the year.
OWN = 1000
LIMIT = 25

QUERIES = ["", "status=succeeded", "currency=CLP", "country=CL", "method_family=card", "account=default"]


@dataclass
class Result:
    statements: int
    seconds: float


def people(size: int) -> dict[str, Any]:
    """A superuser, a clerk and a customer, signed in."""
    from django.contrib.auth.models import Group, Permission, User
    from django.db import connection
    from django.test import Client

    clerks = Group.objects.create(name="clerks")
    clerks.permissions.set(Permission.objects.filter(content_type__app_label="payments_integration"))
    users = [
        User.objects.create_superuser("superuser"),
        User.objects.create_user("clerk", is_staff=True),
        User.objects.create_user("customer"),
    ]
    users[1].groups.add(clerks)
    # Some of the operations that made a payment are the customer's; the others have no owner.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE payments_integration_operation SET actor_id = %s WHERE operation = 'create_payment'"
            " AND substr(id, 4)::int %% %s = 1",
            [str(users[2].pk), max(1, size // 2 // OWN)],
        )
        cursor.execute("VACUUM ANALYZE payments_integration_operation")
    found = {}
    for user in users:
        found[user.username] = Client()
        found[user.username].force_login(user)
    return found


def places(user: Any, query: str) -> Iterator[tuple[str, str]]:
    """The first page, the one in the middle and the last, by name."""
    from django.urls import reverse

    from payments_integration.api import lists
    from payments_integration.api.querysets import visible
    from payments_integration.models import Payment

    base = reverse("payments_integration:api-payment-list")
    yield "first", f"{base}?{query}"
    values = dict([query.split("=")]) if query else {}
    rows = lists.PaymentFilters(values, visible(Payment.objects.all(), user)).qs
    count = rows.count()
    for name, place in (("middle", count // 2), ("last", max(0, count - LIMIT))):
        row = rows.order_by("-created_at", "-pk")[place - 1]
        cursor = lists.cursor_of(lists.ORDERINGS[0], row)
        yield name, f"{base}?{query}&cursor={cursor}".replace("?&", "?")


def measure(client: Any, address: str) -> Result:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        response = client.get(address)
    if response.status_code != 200 or not response.json()["data"]:
        raise SystemExit(f"{address}: {response.status_code}")
    statements = len(captured)  # the next request empties the log
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        client.get(address)
        taken.append(time.perf_counter() - began)
    return Result(statements, statistics.median(taken))


def run(size: int, url: str) -> bool:
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = create_database(url, size)
    call_command("migrate", verbosity=0)
    print(f"{size:,} payments: seeded in {seed(connection, size):.0f} s", file=sys.stderr)
    fine = True
    print(f"| {size:,} payments | page | statements | time | ratio to the first |\n|---|---|---|---|---|")
    for name, client in people(size).items():
        user = User.objects.get(username=name)
        for query in QUERIES if name == "superuser" else QUERIES[:1]:
            first: Result | None = None
            for place, address in places(user, query):
                found = measure(client, address)
                first = first or found
                ratio = found.seconds / first.seconds
                print(
                    f"| {name}, {query or 'all'} | {place} | {found.statements} | {found.seconds * 1000:.1f} ms"
                    f" | {ratio:.2f} |"
                )
                grows = found.seconds > FLOOR and ratio > RATIO
                if found.statements > STATEMENTS or grows:
                    print(f"failed: {name}, {query or 'all'}, {place}", file=sys.stderr)
                    fine = False
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000], help="payments")
    options = parser.parse_args()
    os.chdir(ROOT)
    with database("postgres") as url:
        os.environ.update(DJANGO_SETTINGS_MODULE="tests.settings", TEST_DATABASE_URL=url)
        import django
        from django.conf import settings

        django.setup()
        # What is measured is the page, not how often it may be read.
        settings.PAYMENTS_INTEGRATION["API_THROTTLE_CLASSES"] = []
        settings.PAYMENTS_INTEGRATION["API_PERMISSION_CLASSES"] = [
            "payments_integration.api.permissions.StaffAndCustomers"
        ]
        failed = [size for size in options.sizes if not run(size, url)]
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
