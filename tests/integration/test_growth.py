"""What the app reads with ten times as many events, of which most are done: ``make growth`` in a small size.

It counts with the views of PostgreSQL.
"""

from __future__ import annotations

import pytest

from benchmarks import growth
from payments_integration.contrib.backoffice.admin import chosen, totals
from payments_integration.health import statistics
from payments_integration.models import Event, EventState
from tests.databases import DRIVER, POSTGRES

pytestmark = [
    pytest.mark.skipif(not POSTGRES, reason="others do not count what a statement reads"),
    pytest.mark.skipif(DRIVER == "psycopg2", reason="the benchmark fills the table with psycopg 3"),
    pytest.mark.django_db(transaction=True),
]

SIZES = (20_000, 200_000)


def test_no_flow_reads_more_of_a_larger_table(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is read up to a limit, is read up to it with the smaller size already.
    monkeypatch.setattr(totals, "MAX_ROWS", 50)
    monkeypatch.setattr(statistics, "_NEWEST", 50)
    monkeypatch.setattr(chosen, "MOST", 50)
    monkeypatch.setattr(growth, "DUE", 100)
    found = []
    # Not the suite's server: a long transaction of another test would count.
    with growth.QuietPostgres() as server:
        for size in SIZES:
            with growth.filled(server, size):
                found.append(growth.measure(size))
                assert Event.objects.exclude(state=EventState.DONE).count() == growth.UNUSUAL
    assert growth.grown(*found) == []
    assert len(found[0]) > 60
    first, last = ({**costs, "health": growth.Cost(9, 9_999, 9_999)} for costs in found)
    last["health"] = growth.Cost(10, 30_000, 30_000)
    assert [line.partition(":")[2].split()[1] for line in growth.grown(first, last)] == [
        "statements",
        "rows",
        "blocks",
    ]


def test_a_disk_that_is_too_small_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["growth.py", "--sizes", "1000", "1000000000000"])
    assert growth.main() == 2
    assert "1500004 GB are needed" in capsys.readouterr().err
