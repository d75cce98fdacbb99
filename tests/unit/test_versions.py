"""tests/versions.md has a row for each session of noxfile.py, and the sessions can write them."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from tests import versions

NOXFILE = versions.PAGE.parents[1] / "noxfile.py"
PAGE = versions.PAGE.read_text()


def constant(name: str) -> list[object]:
    """A list of constants in noxfile.py, without the comprehension in it."""
    [value] = [
        node.value
        for node in ast.parse(NOXFILE.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    assert isinstance(value, ast.List)
    return [ast.literal_eval(each) for each in value.elts if not isinstance(each, ast.Starred)]


def sessions() -> set[str]:
    found = {", ".join(map(str, each)) for each in constant("COMBINATIONS") if isinstance(each, tuple)}
    grid = product(("3.12", "3.13", "3.14"), ("5.2", "6.0", "6.1"))
    return found | {f"{python}, {django}, highest, sqlite" for python, django in grid}


def test_each_session_and_each_extra_has_a_row() -> None:
    assert set(re.findall(r"^\| (3\.\d+, .*?) \|", PAGE, re.MULTILINE)) == sessions()
    shown = re.findall(r"^\| ([\w-]+) \|", PAGE.partition("| extra |")[2].partition("\n\n")[0], re.MULTILINE)
    assert shown == constant("EXTRAS")


def test_a_session_that_passed_writes_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, page = tmp_path / "report.xml", tmp_path / "versions.md"
    report.write_text(
        '<testsuites><testsuite tests="12345" errors="0" failures="0" skipped="45"></testsuite></testsuites>'
    )
    before = re.sub(r"\b20\d\d-\d\d-\d\d\b", "2020-01-01", PAGE)
    page.write_text(before)
    monkeypatch.setattr(versions, "PAGE", page)
    for name in ("3.11, 5.2, lowest, sqlite", "3.13, 6.1, highest, postgres"):
        versions.main(name, str(report))
    versions.main("api", "lowest")
    changed = {*page.read_text().splitlines()} - {*before.splitlines()}
    assert len(changed) == 3
    for session in ("3.11, 5.2, lowest, sqlite", "3.13, 6.1, highest, postgres"):
        row = rf"\| {re.escape(session)} \| \d{{4}}-\d\d-\d\d \| 12,300 \|"
        assert any(re.fullmatch(row, each) for each in changed), session
    assert len(page.read_text().splitlines()) == len(before.splitlines())


def test_the_matrix_names_every_session() -> None:
    command = [sys.executable, "-m", "nox", "--noxfile", str(NOXFILE), "--list"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed = re.findall(r"^[*-] (\w+(?:\(.*?\))?)", shown, re.MULTILINE)
    spec = importlib.util.spec_from_file_location("noxfile_of_the_project", NOXFILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert sorted(listed) == sorted([*module.MATRIX, "matrix"])


def test_what_has_no_row_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"has 0 rows of 3\.9"):
        versions.with_session(PAGE, "3.9, 4.2, highest, sqlite", date(2026, 1, 1), 1)
    with pytest.raises(ValueError, match="has no row of nothing"):
        versions.with_extra(PAGE, "nothing", "lowest", date(2026, 1, 1))
    assert "| api | 2026-01-01 |" in versions.with_extra(PAGE, "api", "highest", date(2026, 1, 1))
