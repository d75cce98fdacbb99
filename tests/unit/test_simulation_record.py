"""The long run of the simulator: its parts, their record, and the table in the docs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation import __main__ as simulation, record
from tests.simulation.record import BEGIN, END, Part

pytestmark = pytest.mark.slow

PART = Part(
    ended="2026-01-31T12:00:00+00:00", commit="c" * 40, code="v1", database="sqlite", seed=4, batches=2, schedules=105,
    steps=3_000, kills=120, faults=700, seconds=30,
)  # fmt: skip


def test_the_table_of_the_page_follows_from_the_record() -> None:
    shown = record.PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == record.table(record.parts())


def test_a_row_sums_the_parts_of_one_version_on_one_database() -> None:
    more = replace(PART, seed=5, commit="d" * 40, schedules=1_000, violation="no status goes back (--replay 5000001)")
    others = [replace(PART, database="mysql", seed=6), replace(PART, code="v2", seed=7)]
    rows = record.table([PART, more, *others]).splitlines()[2:]
    assert rows[0] == (
        "| `dddddddddddd`, SQLite | 4, 5 | 1,105 of 30,000 | 6,000 | 240 | 1,400 | 1 violation |"
    )  # fmt: skip
    assert rows[1] == "| `cccccccccccc`, MariaDB | 6 | 105 of 5,000 | 3,000 | 120 | 700 | no violation |"
    assert len(rows) == 3


def test_the_next_part_has_a_new_seed_and_what_is_left_of_this_version() -> None:
    assert (record.next_seed([]), record.left([], "sqlite", "v1")) == (1, 30_000)
    known = [PART, replace(PART, seed=9, schedules=4_990, database="mysql"), replace(PART, seed=5, code="v0")]
    assert record.next_seed(known) == 10
    assert record.left(known, "sqlite", "v1") == 29_895
    assert record.left(known, "mysql", "v1") == 10
    assert record.left([replace(PART, schedules=40_000)], "sqlite", "v1") == 0


def test_a_part_is_added_to_the_record_and_to_the_page(tmp_path: Path) -> None:
    lines, page = tmp_path / "record.jsonl", tmp_path / "page.md"
    page.write_text(f"Before.\n\n{BEGIN}\n\nold\n\n{END}\n\nAfter.\n")
    for part in (PART, replace(PART, seed=5)):
        record.add(part, lines, page)
    assert record.parts(lines) == [PART, replace(PART, seed=5)]
    assert page.read_text() == f"Before.\n\n{BEGIN}\n\n{record.table(record.parts(lines))}\n\n{END}\n\nAfter.\n"


def test_faults_are_counted_at_every_boundary() -> None:
    counts = Counter({"steps": 7, "kills": 2, "begin fail": 3, "send drop": 4, "passed send": 90, "delivery drop": 5})
    found = record.part(("c", "v1"), "sqlite", 4, 1, 50, counts, 9.6, "")
    assert (found.steps, found.kills, found.faults, found.seconds) == (7, 2, 7, 10)
    assert (found.commit, found.code) == ("c", "v1")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that the runner adds, with nothing uncommitted and nothing known."""
    added: list[Part] = []
    monkeypatch.setattr(record, "add", added.append)
    monkeypatch.setattr(record, "parts", list)
    monkeypatch.setattr(record, "_git", lambda *words: "" if words[0] == "status" else words[-1])
    monkeypatch.setattr(simulation.signal, "signal", lambda *_: None)
    monkeypatch.delenv("TEST_DATABASE_URL", raising=False)
    return added


def found(**fields: Any) -> dict[str, Any]:
    values = {"seed": 1_000_000, "schedules": 51, "counts": {"steps": 9}, "database": "sqlite", "violation": ""}
    return {**values, "trace": ["a step"], **fields}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_part_that_is_stopped_is_recorded_as_far_as_it_came(
    recorded: list[Part], monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def results(options: Any, seeds: list[int]) -> Iterator[dict[str, Any]]:
        assert (len(seeds), seeds[:2]) == (600, [1_000_000, 1_000_001])
        yield found()
        yield found(seed=1_000_001)
        raise stop

    monkeypatch.setattr(simulation, "_results", results)
    with pytest.raises(stop):
        simulation.main(["--record"])
    assert [(part.seed, part.batches, part.schedules, part.steps) for part in recorded] == [(1, 2, 102, 18)]
    assert (recorded[0].commit, recorded[0].code) == ("HEAD", "HEAD:payments_integration")


def test_a_violation_is_recorded_with_the_seed_that_replays_it(
    recorded: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "_results", lambda options, seeds: iter([found(violation="an invariant")]))
    assert simulation.main(["--record"]) == 1
    assert [part.violation for part in recorded] == ["an invariant (--replay 1000000)"]


def test_an_error_of_the_simulation_itself_does_not_count(
    recorded: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [found(), found(violation="Traceback (most recent call last): …")]
    monkeypatch.setattr(simulation, "_results", lambda options, seeds: iter(batches))
    assert simulation.main(["--record"]) == 1
    assert [(part.batches, part.schedules, part.violation) for part in recorded] == [(1, 51, "")]


def test_a_part_without_a_finished_batch_is_not_recorded(
    recorded: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "_results", lambda options, seeds: iter([]))
    assert simulation.main(["--record"]) == 0
    assert not recorded


def test_nothing_runs_where_the_target_is_reached(recorded: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "parts", lambda: [replace(PART, code="HEAD:payments_integration", schedules=30_000)])
    monkeypatch.setattr(simulation, "_worker", None)
    assert simulation.main(["--record"]) == 0
    assert not recorded


def test_uncommitted_code_is_not_recorded(recorded: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_git", lambda *words: " M payments_integration/conf.py")
    with pytest.raises(SystemExit, match=r"Commit these changes first:\n M payments_integration/conf\.py"):
        simulation.main(["--record"])


def test_a_part_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, time; print('{\"seed\": 1}', flush=True); time.sleep(600)"
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    monkeypatch.setattr(simulation, "_worker", lambda options, seeds: worker)
    options = SimpleNamespace(jobs=1, record=True, minutes=3 / 60)
    assert list(simulation._results(options, [1])) == [{"seed": 1}]  # type: ignore[arg-type]
    assert worker.returncode is not None


def test_a_stop_of_the_server_lets_the_part_end_in_order() -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); print('runs', flush=True); "
        "time.sleep(600)"
    )
    command = [sys.executable, "-m", "tests.servers", "postgres", "--", sys.executable, "-c", code]
    env = {**os.environ, "TEST_POSTGRES_URL": "postgres://named"}
    with subprocess.Popen(command, cwd=record.ROOT, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "runs\n"
        server.terminate()
        assert server.wait(60) == 5
