"""The failure catalogue is documented, and its report fails when it should."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import cases
from tests.catalogue import ALL, BY_NUMBER, CASES, GUNICORN, RABBITMQ, REDIS, Case
from tests.databases import depends_on_database

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_catalogue_has_every_case_once() -> None:
    page = (ROOT / "tests" / "catalogue.md").read_text()
    shown: list[int] = []
    for numbers in re.findall(r"^- \*\*(\d[\d, –]*)\*\*: ", page, re.MULTILINE):
        for span in numbers.split(", "):
            first, _, last = span.partition("–")
            shown += range(int(first), int(last or first) + 1)
    assert sorted(shown) == [case.number for case in CASES]


def notes(directory: Path, *, case: int, places: list[str], good: bool = True, test: str = "tests/a.py::test") -> None:
    (directory / f"{len(list(directory.iterdir()))}.json").write_text(json.dumps({test: [[case], places, good]}))


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case(7, "seven", ALL)
    monkeypatch.setattr(cases, "CASES", (case,))
    return case


def test_the_report_fails_for_a_case_that_nothing_covers(
    tmp_path: Path, one_case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cases.report(tmp_path) == 1
    assert "UNCOVERED on SQLite, PostgreSQL, MariaDB" in capsys.readouterr().out


def test_the_report_fails_for_a_database_that_is_missing(
    tmp_path: Path, one_case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    notes(tmp_path, case=7, places=["SQLite"])
    notes(tmp_path, case=7, places=["MariaDB"])
    assert cases.report(tmp_path) == 1
    assert "UNCOVERED on PostgreSQL" in capsys.readouterr().out


def test_the_report_fails_for_a_test_that_failed_on_one_database(
    tmp_path: Path, one_case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ALL:
        notes(tmp_path, case=7, places=[place], good=place != "MariaDB")
    assert cases.report(tmp_path) == 1
    assert "failed: tests/a.py::test [MariaDB]" in capsys.readouterr().out


def test_the_report_succeeds_if_every_case_passed_everywhere(
    tmp_path: Path, one_case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ALL:
        notes(tmp_path, case=7, places=[place])
    assert cases.report(tmp_path) == 0
    assert "1 tests  ok  (SQLite 1 PostgreSQL 1 MariaDB 1)" in capsys.readouterr().out


def test_a_case_that_is_not_built_is_shown_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cases, "CASES", (Case(8, "eight", ALL, awaits="wings"),))
    assert cases.report(tmp_path) == 0
    assert "not built: wings" in capsys.readouterr().out
    notes(tmp_path, case=8, places=["SQLite"], good=False)
    assert cases.report(tmp_path) == 1


INNER = """
import pytest

@pytest.mark.case(33)
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_good(broker: str) -> None:
    pass

@pytest.mark.case(34)
def test_bad() -> None:
    assert False

@pytest.mark.case(35)
@pytest.mark.skip(reason="why not")
def test_skipped() -> None:
    pass

def test_of_no_case() -> None:
    pass
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_plugin_records_where_each_test_ran(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    pytester.makeini("[pytest]\nmarkers = case(number)\n")
    pytester.mkdir("deploy").joinpath("test_inner.py").write_text(INNER)
    monkeypatch.setenv(cases.VARIABLE, str(pytester.path / "notes"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.runpytest_subprocess("-p", "tests.cases", "--ds", "tests.settings", "-n", processes, "deploy")
    found: cases.Notes = {}
    for path in (pytester.path / "notes").iterdir():
        found.update(json.loads(path.read_text()))
    results = {
        name.partition("::")[2]: (numbers, set(places), good) for name, (numbers, places, good) in found.items()
    }
    here = next(iter(results["test_bad"][1] - {GUNICORN}))
    assert results == {
        "test_good[redis]": ([33], {here, GUNICORN, REDIS}, True),
        "test_good[rabbitmq]": ([33], {here, GUNICORN, RABBITMQ}, True),
        "test_bad": ([34], {here, GUNICORN}, False),
    }, "a skipped test proves nothing, and is no failure"
    assert here in ALL


def test_a_case_that_is_not_in_the_catalogue_is_an_error(pytester: pytest.Pytester) -> None:
    assert 999 not in BY_NUMBER
    pytester.makeini("[pytest]\nmarkers = case(number)\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.case(999)\ndef test_it() -> None: ...\n")
    result = pytester.runpytest_subprocess("-p", "tests.cases", "--ds", "tests.settings")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*the catalogue has no case 999*"])


def test_a_test_without_a_database_proves_its_case_on_all_of_them(request: pytest.FixtureRequest) -> None:
    """It runs once, so that one run must count everywhere."""
    assert not depends_on_database(request.node)
    assert set(cases._places(request.node)) == set(ALL)


def test_a_fixture_that_opens_the_database_counts_as_using_it(
    request: pytest.FixtureRequest, admin_user: object
) -> None:
    assert depends_on_database(request.node)
    assert len(cases._places(request.node)) == 1


@pytest.mark.django_db
def test_a_marker_that_opens_the_database_counts_as_using_it(request: pytest.FixtureRequest) -> None:
    assert depends_on_database(request.node)


@pytest.mark.django_db
@pytest.mark.any_database
def test_a_test_for_which_any_database_will_do_proves_its_case_on_all_of_them(request: pytest.FixtureRequest) -> None:
    assert not depends_on_database(request.node)
    assert set(cases._places(request.node)) == set(ALL)


@pytest.mark.any_database
def test_so_does_one_that_commits(request: pytest.FixtureRequest, transactional_db: None) -> None:
    assert not depends_on_database(request.node)
