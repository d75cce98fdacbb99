"""``python benchmarks/scrape.py``: what a scrape of metrics reads next to few and to many finished events.

Starts a PostgreSQL, stores 10,000 and then 1,000,000 events that are done, of two accounts, and counts rows (those of
tables and entries of indexes, by the server's own count), statements and CPU time of the process. Fails if the many
take more rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: Scrapes of which the median counts.
SCRAPES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs=2, default=[10_000, 1_000_000], metavar=("FEW", "MANY"))
    options = parser.parse_args()
    from tests.servers import Postgres

    with Postgres() as server:
        os.environ |= {"TEST_DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        return measure(options.events)


def measure(counts: list[int]) -> int:
    import django

    django.setup()
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from payments_integration.contrib.prometheus import PaymentsCollector
    from tests.integration import scraping

    connection.creation.create_test_db(verbosity=0)
    found, stored = [], 0
    print("| finished events | rows read | statements | CPU of the process |\n|---|---|---|---|")
    for count in counts:
        scraping.store_finished(stored, count - stored)
        stored = count
        scraping.analyse()
        scraping.rows_read()  # the first one is planned, and marks entries
        found.append(scraping.rows_read())
        took = []
        for _ in range(SCRAPES):
            began = time.process_time()
            with CaptureQueriesContext(connection) as queries:
                list(PaymentsCollector().collect())
            took.append(time.process_time() - began)
        print(f"| {count:,} | {found[-1]:,} | {len(queries)} | {statistics.median(took) * 1000:.0f} ms |")
    connection.close()
    few, many = found
    return 0 if many <= few * 1.01 else 1


if __name__ == "__main__":
    sys.exit(main())
