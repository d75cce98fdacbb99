"""Which cases of the failure catalogue are proved, and where.

As a pytest plugin it notes the result of every test of a case in the directory that ``CASES_DIR`` names. As a command,

    python -m tests.cases [--from DIRECTORY]

it runs those tests on every database, broker and server (or takes the notes of earlier runs), prints a line per case,
and fails where one is uncovered or red.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from tests.catalogue import ALL, BY_NUMBER, CASES, GUNICORN, MARIADB, POSTGRES, RABBITMQ, REDIS, SQLITE, Case

VARIABLE = "CASES_DIR"
_ENGINES = {
    "django.db.backends.sqlite3": SQLITE,
    "django.db.backends.postgresql": POSTGRES,
    "django.db.backends.mysql": MARIADB,
}
_BROKERS = {"redis": REDIS, "rabbitmq": RABBITMQ}
_CASE, _WHERE = "case", "where"

PYTEST = [sys.executable, "-W", "error", "-m", "pytest", "-q"]
SUITE = ["-n", "2", "-m", "case", "tests/unit", "tests/integration"]
#: What ``python -m tests.cases`` runs.
RUNS = (
    [*PYTEST, *SUITE],
    [sys.executable, "-m", "tests.servers", "postgres", "--", *PYTEST, *SUITE],
    [sys.executable, "-m", "tests.servers", "mariadb", "--", *PYTEST, *SUITE],
    [*PYTEST, "-m", "case", "tests/systems/brokers", "tests/systems/deploy", "tests/systems/outages"],
)

#: By test: its cases, where it ran, whether it passed.
Notes = dict[str, tuple[list[int], list[str], bool]]


# --- the plugin


def pytest_itemcollected(item: pytest.Item) -> None:
    numbers = sorted({mark.args[0] for mark in item.iter_markers("case")})
    for number in numbers:
        if number not in BY_NUMBER:
            raise pytest.UsageError(f"{item.nodeid}: the catalogue has no case {number}")
        item.user_properties.append((_CASE, number))
    if numbers:
        item.user_properties.extend((_WHERE, place) for place in _places(item))


def _places(item: pytest.Item) -> list[str]:
    # The plugin is loaded before Django is set up.
    from django.conf import settings  # noqa: PLC0415

    from tests.databases import depends_on_database  # noqa: PLC0415

    if item.path.parent.name == "outages":
        return [POSTGRES]  # of its own; this process uses none
    # A test for which any database will do proves its case for all of them.
    places = [_ENGINES[settings.DATABASES["default"]["ENGINE"]]] if depends_on_database(item) else list(ALL)
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        values = [value for value in callspec.params.values() if isinstance(value, str)]
        places.extend(_BROKERS[value] for value in values if value in _BROKERS)
    if item.path.parent.name == "deploy":
        places.append(GUNICORN)
    return places


class _Notebook:
    """Gathers the results; with xdist in the process that hears all of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._notes: Notes = {}
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        numbers = [value for name, value in report.user_properties if name == _CASE]
        if report.skipped:
            # It proves nothing, here. ``where`` of the case says where it must be proved.
            self._skipped.add(report.nodeid)
        if numbers and report.nodeid not in self._skipped:
            places = [str(value) for name, value in report.user_properties if name == _WHERE]
            _, _, good = self._notes.get(report.nodeid, ([], [], True))
            self._notes[report.nodeid] = ([int(str(n)) for n in numbers], places, good and report.passed)

    def pytest_sessionfinish(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / f"{uuid.uuid4().hex}.json").write_text(json.dumps(self._notes))


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(VARIABLE) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notebook(Path(os.environ[VARIABLE]).resolve()))


# --- the command


def report(directory: Path) -> int:
    """Print what the notes in a directory prove; returns how many cases are uncovered or red."""
    tests: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    failed: dict[int, set[str]] = defaultdict(set)
    for path in sorted(directory.glob("*.json")):
        notes: Notes = json.loads(path.read_text())
        for test, (numbers, places, good) in notes.items():
            for number in numbers:
                for place in places:
                    tests[number][place].add(test)
                if not good:
                    failed[number].add(f"{test} [{', '.join(places)}]")
    bad = 0
    for case in CASES:
        result = _result(case, tests[case.number], failed[case.number])
        bad += result not in {"ok", "later"}
        _print(case, tests[case.number], result)
        for test in sorted(failed[case.number]):
            print(f"      failed: {test}")
    built = [case for case in CASES if not case.awaits]
    later = f"; {len(CASES) - len(built)} wait for what is not built" if len(built) < len(CASES) else ""
    print(f"\n{len(built)} cases, {bad} uncovered or failed{later}.")
    return bad


def _result(case: Case, tests: dict[str, set[str]], failed: set[str]) -> str:
    if failed:
        return "FAILED"
    missing = [place for place in case.where if not tests.get(place)]
    if not missing:
        return "ok"
    return "later" if case.awaits else f"UNCOVERED on {', '.join(missing)}"


def _print(case: Case, tests: dict[str, set[str]], result: str) -> None:
    count = len(set().union(*tests.values()))
    places = " ".join(f"{place} {len(tests[place])}" for place in dict.fromkeys([*case.where, *tests]) if tests[place])
    note = f"not built: {case.awaits}" if result == "later" else places
    print(f"{case.number:3}  {case.title[:64]:64}  {count:3} tests  {result}  ({note or 'nowhere'})")


def run(directory: Path) -> None:
    """Run every test of a case; what fails is in the notes."""
    for command in RUNS:
        print(f"--- {' '.join(command[1:])}", flush=True)
        environment = {key: value for key, value in os.environ.items() if key != "TEST_DATABASE_URL"}
        subprocess.run(command, env={**environment, VARIABLE: str(directory)}, check=False)


def main() -> int:
    """Exit code 0: every case is covered wherever it must be, and green."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="directory", type=Path, help="take the notes of earlier runs from here")
    directory = parser.parse_args().directory
    if directory is not None:
        return int(report(directory) > 0)
    with tempfile.TemporaryDirectory() as temporary:
        run(Path(temporary))
        return int(report(Path(temporary)) > 0)


if __name__ == "__main__":
    sys.exit(main())
